// SPDX-License-Identifier: GPL-2.0
/*
 * A number goes back and forth between two nodes through shared memory.
 *
 *	pingpong server			on one node, for one client
 *	pingpong client NODE [ROUNDS]	on another, or the same
 *
 * Each side has a segment of its own, in which it waits for the number. It maps the segment of the
 * other side, and stores the number into it, because stores are fast and loads would be slow. A
 * sequence tells whether a store has arrived. If the link failed meanwhile, the side stores the
 * number again when the link is back, which does no harm.
 */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "sample.h"

#define SERVER_SEGMENT	0x5100
#define CLIENT_SEGMENT	0x5101
#define SEGMENT_SIZE	4096

/* The last number, by which the client ends the game. */
#define STOP		UINT64_MAX

struct side {
	uint64_t *in;
	sci_local_segment_t local;
	sci_map_t local_map;

	volatile uint64_t *out;
	sci_remote_segment_t remote;
	sci_map_t remote_map;
	sci_sequence_t sequence;

	unsigned long repeated;
};

static void store(struct side *side, uint64_t number)
{
	*side->out = number;
	while (!has_arrived(side->sequence, side->remote)) {
		side->repeated++;
		*side->out = number;
	}
}

/* Waits for a number other than `last`. The other side waits for `sent`. */
static uint64_t receive(struct side *side, uint64_t last, uint64_t sent)
{
	unsigned int turns;
	uint64_t number;

	for (turns = 1;; turns++) {
		number = __atomic_load_n(side->in, __ATOMIC_ACQUIRE);
		if (number != last)
			return number;
		if (turns % 1024)
			continue;
		if (is_lost(side->remote))
			end_lost(SCIGetRemoteSegmentNodeId(side->remote));
		/* The number may still be lost, if the link failed just after the check. */
		if (!has_arrived(side->sequence, side->remote)) {
			side->repeated++;
			store(side, sent);
		}
		sched_yield();
	}
}

static void map_other(struct side *side)
{
	side->out = map_segment(side->remote, &side->remote_map, &side->sequence);
	start_sequence(side->sequence, side->remote);
}

/* Releases everything in the reverse order. The descriptor can be closed only at the end. */
static void leave(struct side *side, sci_desc_t device)
{
	sci_error_t error;

	SCIRemoveSequence(side->sequence, NO_FLAGS, &error);
	must(error, "cannot remove the sequence");
	SCIUnmapSegment(side->remote_map, NO_FLAGS, &error);
	must(error, "cannot unmap the other side's segment");
	SCIDisconnectSegment(side->remote, NO_FLAGS, &error);
	must(error, "cannot disconnect");
	SCIUnmapSegment(side->local_map, NO_FLAGS, &error);
	must(error, "cannot unmap the own segment");
	SCIRemoveSegment(side->local, NO_FLAGS, &error);
	must(error, "cannot remove the own segment");
	SCIClose(device, NO_FLAGS, &error);
	must(error, "cannot close the virtual device");
	SCITerminate();
}

static void serve(void)
{
	sci_desc_t device = open_device();
	struct side side = { 0 };
	uint64_t last = 0, rounds = 0;
	unsigned int node;

	side.in = export_segment(device, SERVER_SEGMENT, SEGMENT_SIZE, &side.local,
				 &side.local_map);
	printf("node %u waits for a client\n", own_node());
	fflush(stdout);
	node = wait_for_client(side.local);
	connect_segment(device, node, CLIENT_SEGMENT, &side.remote);
	map_other(&side);
	printf("node %u plays with node %u\n", own_node(), node);
	fflush(stdout);

	do {
		last = receive(&side, last, last);
		store(&side, last);
		rounds++;
	} while (last != STOP);
	wait_for_end(side.local);
	printf("%llu numbers from node %u, %lu stores repeated\n",
	       (unsigned long long)rounds - 1, node, side.repeated);
	leave(&side, device);
}

static void play(unsigned int node, unsigned int rounds)
{
	sci_desc_t device = open_device();
	struct side side = { 0 };
	struct timespec begin, end;
	uint64_t last = 0, number;
	double seconds;

	/* The segment has to exist before the server gets the connection, and connects to it. */
	side.in = export_segment(device, CLIENT_SEGMENT, SEGMENT_SIZE, &side.local,
				 &side.local_map);
	connect_segment(device, node, SERVER_SEGMENT, &side.remote);
	map_other(&side);
	printf("node %u plays with node %u\n", own_node(), node);
	fflush(stdout);

	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (number = 1; number <= rounds; number++) {
		store(&side, number);
		last = receive(&side, last, number);
		if (last != number) {
			fprintf(stderr, "%s: node %u answers %llu to %llu; has it two clients?\n",
				sample, node, (unsigned long long)last,
				(unsigned long long)number);
			exit(EXIT_FAILURE);
		}
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	store(&side, STOP);
	receive(&side, last, STOP);

	seconds = end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) / 1e9;
	printf("%u round trips with node %u, %.2f us each, %lu stores repeated\n", rounds, node,
	       seconds * 1e6 / rounds, side.repeated);
	leave(&side, device);
}

static const char usage[] =
	"usage: pingpong server | pingpong client NODE [ROUNDS]\n"
	"\n"
	"A number goes back and forth through shared memory. NODE is the server's id, which\n"
	"sisci-info shows; ROUNDS is 10000 by default.\n"
	"\n"
	EXIT_CODES;

int main(int argc, char **argv)
{
	sample = "pingpong";
	if (argc == 2 && !strcmp(argv[1], "--help")) {
		fputs(usage, stdout);
	} else if (argc == 2 && !strcmp(argv[1], "server")) {
		serve();
	} else if ((argc == 3 || argc == 4) && !strcmp(argv[1], "client")) {
		play(number(argv[2], "a node's id"),
		     argc == 4 ? number(argv[3], "a number of rounds") : 10000);
	} else {
		fputs(usage, stderr);
		return EXIT_USAGE;
	}
	return 0;
}
