// SPDX-License-Identifier: GPL-2.0
/*
 * A pipe between nodes: a DMA engine fills a ring in the server's memory.
 *
 *	dma_ring server >FILE		on one node, for one client
 *	dma_ring client NODE <FILE	on another, or the same
 *
 * While the engine copies one slot, the client reads the next into its own memory. A callback
 * reports that the engine has completed the copy. Behind the data the client stores the number of
 * the slot's turn, for which the server waits. In the other direction the server stores one number,
 * the count of slots that are free again.
 */
#include <sched.h>
#include <semaphore.h>
#include <stddef.h>
#include <string.h>

#include "sample.h"

#define SERVER_SEGMENT	0x5300
#define CLIENT_SEGMENT	0x5301

#define SLOTS		16
#define SLOT_SIZE	65536
#define ROOM		(SLOT_SIZE - 2 * sizeof(uint64_t))

/* One slot is filled while the other is copied. */
#define STAGED		2

/*
 * The client waits for a link that comes back. If a transfer fails this often with a link, it would
 * always fail.
 */
#define MOST_FAILURES	10

struct slot {
	uint64_t turn;		/* stored last */
	uint64_t len;		/* 0 at the end */
	char data[ROOM];
};

/* The content of the client's segment. */
struct client_memory {
	struct slot staged[STAGED];
	uint64_t freed;		/* stored by the server */
	char padding[4096 - sizeof(uint64_t)];
};

struct ring {
	sci_remote_segment_t remote;
	sci_map_t map;
	sci_sequence_t sequence;
	sci_local_segment_t local;
	sci_map_t local_map;
};

struct transfer {
	sci_dma_queue_t queue;
	sem_t ended;
	sci_error_t status;
	uint64_t turn;
	unsigned int failures;
};

/* Spins until the number has arrived, and checks from time to time whether the peer is lost. */
static void wait_for(uint64_t *number, uint64_t at_least, sci_remote_segment_t peer)
{
	unsigned int turns;

	/* The acquire keeps loads of the data from being done before that of the number. */
	for (turns = 1; __atomic_load_n(number, __ATOMIC_ACQUIRE) < at_least; turns++) {
		if (turns % 1024)
			continue;
		if (is_lost(peer) && __atomic_load_n(number, __ATOMIC_ACQUIRE) < at_least)
			end_lost(SCIGetRemoteSegmentNodeId(peer));
		sched_yield();
	}
}

static void leave(struct ring *ring, sci_desc_t device)
{
	sci_error_t error;

	SCIRemoveSequence(ring->sequence, NO_FLAGS, &error);
	must(error, "cannot remove the sequence");
	SCIUnmapSegment(ring->map, NO_FLAGS, &error);
	must(error, "cannot unmap the other side's segment");
	SCIDisconnectSegment(ring->remote, NO_FLAGS, &error);
	must(error, "cannot disconnect");
	SCIUnmapSegment(ring->local_map, NO_FLAGS, &error);
	must(error, "cannot unmap the own segment");
	SCIRemoveSegment(ring->local, NO_FLAGS, &error);
	must(error, "cannot remove the own segment");
	SCIClose(device, NO_FLAGS, &error);
	must(error, "cannot close the virtual device");
	SCITerminate();
}

static void serve(void)
{
	sci_desc_t device = open_device();
	volatile struct client_memory *client;
	struct slot *slots, *slot;
	struct ring ring;
	uint64_t turn, len;
	unsigned int node;

	slots = export_segment(device, SERVER_SEGMENT, SLOTS * sizeof(*slots), &ring.local,
			       &ring.local_map);
	fprintf(stderr, "%s: node %u waits for a client\n", sample, own_node());
	node = wait_for_client(ring.local);
	connect_segment(device, node, CLIENT_SEGMENT, &ring.remote);
	client = map_segment(ring.remote, &ring.map, &ring.sequence);
	start_sequence(ring.sequence, ring.remote);
	fprintf(stderr, "%s: node %u takes from node %u\n", sample, own_node(), node);

	for (turn = 1;; turn++) {
		slot = &slots[turn % SLOTS];
		wait_for(&slot->turn, turn, ring.remote);
		/* Reads the length once, as the client could change it. */
		len = __atomic_load_n(&slot->len, __ATOMIC_RELAXED);
		if (len > ROOM) {
			fprintf(stderr, "%s: a slot has %llu bytes; is it another client?\n",
				sample, (unsigned long long)len);
			exit(EXIT_FAILURE);
		}
		if (fwrite(slot->data, 1, len, stdout) != len || (!len && fflush(stdout))) {
			fprintf(stderr, "%s: cannot write to standard output\n", sample);
			exit(EXIT_FAILURE);
		}
		do {
			client->freed = turn;
		} while (!has_arrived(ring.sequence, ring.remote));
		if (!len)
			break;
	}
	wait_for_end(ring.local);
	leave(&ring, device);
}

/* Runs in a thread of the library. The main thread may start the next transfer at once. */
static sci_callback_action_t transfer_ended(void *arg, sci_dma_queue_t queue, sci_error_t status)
{
	struct transfer *transfer = arg;

	(void)queue;
	transfer->status = status;
	sem_post(&transfer->ended);
	return SCI_CALLBACK_CONTINUE;
}

/* Starts the transfer of the slot without its turn. */
static void start_transfer(struct ring *ring, struct transfer *transfer, struct slot *staged)
{
	size_t from = transfer->turn % STAGED * sizeof(*staged) + offsetof(struct slot, len);
	size_t to = transfer->turn % SLOTS * sizeof(*staged) + offsetof(struct slot, len);
	sci_error_t error;

	SCIStartDmaTransfer(transfer->queue, ring->local, ring->remote, from,
			    sizeof(staged->len) + staged->len, to, transfer_ended, transfer,
			    SCI_FLAG_USE_CALLBACK, &error);
	must(error, "cannot start a DMA transfer");
}

/* Waits for the transfer, and stores the turn, by which the server sees that the slot is full. */
static void finish_transfer(struct ring *ring, struct transfer *transfer, struct slot *staged,
			    volatile struct slot *slots)
{
	for (;;) {
		sem_wait(&transfer->ended);
		if (transfer->status == SCI_ERR_OK) {
			slots[transfer->turn % SLOTS].turn = transfer->turn;
			if (has_arrived(ring->sequence, ring->remote))
				return;
		} else if (++transfer->failures > MOST_FAILURES) {
			must(transfer->status, "the DMA transfer of slot %llu failed again",
			     (unsigned long long)transfer->turn);
		} else {
			start_sequence(ring->sequence, ring->remote);
		}
		/* The server may have the data already, and then sees the same data once more. */
		start_transfer(ring, transfer, staged);
	}
}

static uint64_t pump(struct ring *ring, struct transfer *transfer, struct client_memory *here,
		     volatile struct slot *slots)
{
	struct slot *slot, *before = NULL;
	uint64_t turn, bytes = 0;

	for (turn = 1;; turn++) {
		slot = &here->staged[turn % STAGED];
		slot->len = fread(slot->data, 1, ROOM, stdin);
		if (ferror(stdin)) {
			fprintf(stderr, "%s: cannot read from standard input\n", sample);
			exit(EXIT_FAILURE);
		}
		if (before)
			finish_transfer(ring, transfer, before, slots);
		if (turn > SLOTS)
			wait_for(&here->freed, turn - SLOTS, ring->remote);
		transfer->turn = turn;
		start_transfer(ring, transfer, slot);
		before = slot;
		bytes += slot->len;
		if (!slot->len)
			break;
	}
	finish_transfer(ring, transfer, before, slots);
	wait_for(&here->freed, turn, ring->remote);
	return bytes;
}

static void send_all(unsigned int node)
{
	sci_desc_t device = open_device();
	struct transfer transfer = { 0 };
	volatile struct slot *slots;
	struct client_memory *here;
	struct ring ring;
	sci_error_t error;
	uint64_t bytes;

	sem_init(&transfer.ended, 0, 0);
	here = export_segment(device, CLIENT_SEGMENT, sizeof(*here), &ring.local, &ring.local_map);
	connect_segment(device, node, SERVER_SEGMENT, &ring.remote);
	slots = map_segment(ring.remote, &ring.map, &ring.sequence);
	start_sequence(ring.sequence, ring.remote);
	SCICreateDMAQueue(device, &transfer.queue, ADAPTER, 1, NO_FLAGS, &error);
	must(error, "cannot create a DMA queue");
	fprintf(stderr, "%s: node %u gives to node %u\n", sample, own_node(), node);

	bytes = pump(&ring, &transfer, here, slots);
	fprintf(stderr, "%s: %llu bytes for node %u, %u transfers repeated\n", sample,
		(unsigned long long)bytes, node, transfer.failures);

	SCIRemoveDMAQueue(transfer.queue, NO_FLAGS, &error);
	must(error, "cannot remove the DMA queue");
	leave(&ring, device);
}

static const char usage[] =
	"usage: dma_ring server >FILE | dma_ring client NODE <FILE\n"
	"\n"
	"The server writes all bytes that the client reads. NODE is the server's id, which\n"
	"sisci-info shows.\n"
	"\n"
	EXIT_CODES;

int main(int argc, char **argv)
{
	sample = "dma_ring";
	if (argc == 2 && !strcmp(argv[1], "--help")) {
		fputs(usage, stdout);
	} else if (argc == 2 && !strcmp(argv[1], "server")) {
		serve();
	} else if (argc == 3 && !strcmp(argv[1], "client")) {
		send_all(number(argv[2], "a node's id"));
	} else {
		fputs(usage, stderr);
		return EXIT_USAGE;
	}
	return 0;
}
