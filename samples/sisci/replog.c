// SPDX-License-Identifier: GPL-2.0
/*
 * A log that is replicated to several nodes, with one writer. The replicas acknowledge its records.
 *
 *	replog replica			on two nodes, or more
 *	replog writer NODE NODE ...	on a third; each line of its input is a record
 *
 * Each replica has the log in a segment. The writer copies new records into it, and then stores the
 * new end of the log behind them. The replica polls this end, and when it has the records, it
 * stores the same number into the writer's segment. A record is safe when all replicas have
 * acknowledged it. A replica that is lost is no longer a replica, and the others go on.
 */
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "sample.h"

#define LOG_SEGMENT	0x5400
#define ACK_SEGMENT	0x5401

#define LOG_SIZE	(1024 * 1024)
#define MOST_REPLICAS	16
#define MOST_NODES	256

/* A replica that is out of reach for this long is given up. */
#define AWAY_SECONDS	5

/*
 * Marks an end as final, in the lowest bit, which is free because lengths of records are multiples
 * of eight.
 */
static const uint64_t CLOSED = 1;

struct record {
	uint32_t len;
	char text[];
};

struct log {
	uint64_t end;		/* stored last */
	char records[LOG_SIZE - sizeof(uint64_t)];
};

/* The writer's segment, with a cache line for each node. */
struct ack {
	uint64_t end;
	char padding[56];
};

struct replica {
	unsigned int node;
	int is_there;
	int must_restart;
	uint64_t sent;
	sci_remote_segment_t remote;
	sci_map_t map;
	sci_sequence_t sequence;
	volatile struct log *log;
};

static size_t record_size(uint32_t len)
{
	return (sizeof(struct record) + len + 7) / 8 * 8;
}

/* ----- a replica -----------------------------------------------------------------*/

static unsigned long taken;
static int is_whole;

/* Prints the count at exit, however a replica ends: any call may notice the loss. */
static void tell_count(void)
{
	printf("%lu records, %s\n", taken, is_whole ? "all" : "and no end");
}

/* Prints the new records. */
static void take_records(struct log *log, uint64_t from, uint64_t to)
{
	struct record *record;
	uint32_t len;

	while (from < to) {
		record = (struct record *)(log->records + from);
		/* Reads the length once, as the writer could change it. */
		len = __atomic_load_n(&record->len, __ATOMIC_RELAXED);
		if (to > sizeof(log->records) || record_size(len) > to - from) {
			fprintf(stderr, "%s: record %lu has %u bytes; has it two writers?\n",
				sample, taken + 1, len);
			exit(EXIT_FAILURE);
		}
		printf("%lu: %.*s\n", ++taken, (int)len, record->text);
		from += record_size(len);
	}
	fflush(stdout);
}

static void replicate(void)
{
	sci_desc_t device = open_device();
	unsigned int turns, node, self = own_node();
	uint64_t end = 0, seen = 0;
	sci_local_segment_t local;
	sci_remote_segment_t remote;
	sci_map_t local_map, map;
	sci_sequence_t sequence;
	volatile struct ack *acks;
	struct log *log;

	log = export_segment(device, LOG_SEGMENT, sizeof(*log), &local, &local_map);
	printf("node %u waits for a writer\n", self);
	fflush(stdout);
	node = wait_for_client(local);
	connect_segment(device, node, ACK_SEGMENT, &remote);
	acks = map_segment(remote, &map, &sequence);
	atexit(tell_count);
	start_sequence(sequence, remote);

	for (turns = 1; !(end & CLOSED); turns++) {
		end = __atomic_load_n(&log->end, __ATOMIC_ACQUIRE);
		if (end == seen) {
			if (turns % 1024)
				continue;
			if (is_lost(remote))
				end_lost(node);
			/* If the link failed, the last acknowledgment may be lost. */
			if (!has_arrived(sequence, remote))
				acks[self].end = seen;
			sched_yield();
			continue;
		}
		take_records(log, seen, end & ~CLOSED);
		do {
			acks[self].end = end;
		} while (!has_arrived(sequence, remote));
		seen = end;
	}
	wait_for_end(local);
	is_whole = 1;
	/* Frees everything that is left. */
	SCITerminate();
}

/* ----- the writer ----------------------------------------------------------------*/

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void drop(struct replica *replica, const char *why)
{
	sci_error_t error;

	fprintf(stderr, "%s: node %u %s: it is no replica any more\n", sample, replica->node, why);
	replica->is_there = 0;
	SCIRemoveSequence(replica->sequence, NO_FLAGS, &error);
	SCIUnmapSegment(replica->map, NO_FLAGS, &error);
	SCIDisconnectSegment(replica->remote, NO_FLAGS, &error);
}

/*
 * Copies the records that the replica does not have. Does not wait, because other replicas must go
 * on if this one's link is down. Data copied since its last acknowledgment may be lost then.
 */
static void send_news(struct replica *replica, const struct log *log, uint64_t end, uint64_t acked)
{
	uint64_t from = replica->sent & ~CLOSED, to = end & ~CLOSED;
	sci_error_t error;

	if (replica->must_restart) {
		if (SCIStartSequence(replica->sequence, NO_FLAGS, &error) != SCI_SEQ_OK)
			return;
		replica->must_restart = 0;
		replica->sent = acked;
		from = acked & ~CLOSED;
	}
	if (from < to)
		SCIMemCpy(replica->sequence, (void *)(log->records + from), replica->map,
			  offsetof(struct log, records) + from, to - from, NO_FLAGS, &error);
	else
		error = SCI_ERR_OK;
	replica->log->end = end;
	replica->sent = end;
	if (error != SCI_ERR_OK ||
	    SCICheckSequence(replica->sequence, NO_FLAGS, &error) != SCI_SEQ_OK)
		replica->must_restart = 1;
}

/* Waits until all remaining replicas have all records. Returns the number of these replicas. */
static unsigned int make_safe(struct replica *replicas, unsigned int count, const struct log *log,
			      struct ack *acks, uint64_t end)
{
	double started = now();
	unsigned int i, there, missing;
	struct replica *replica;
	uint64_t acked;

	do {
		there = 0;
		missing = 0;
		for (i = 0; i < count; i++) {
			replica = &replicas[i];
			if (!replica->is_there)
				continue;
			acked = __atomic_load_n(&acks[replica->node].end, __ATOMIC_ACQUIRE);
			there++;
			if (acked == end)
				continue;
			missing++;
			if (is_lost(replica->remote))
				drop(replica, "is lost");
			else if (now() - started > AWAY_SECONDS)
				drop(replica, "does not acknowledge");
			else if (replica->sent != end || replica->must_restart ||
				 SCICheckSequence(replica->sequence, NO_FLAGS,
						  &(sci_error_t){ 0 }) != SCI_SEQ_OK)
				send_news(replica, log, end, acked);
		}
		if (missing)
			sched_yield();
	} while (missing);
	return there;
}

static void must_have(unsigned int replicas, unsigned long records)
{
	if (replicas)
		return;
	fprintf(stderr, "%s: no replica is left; %lu records were safe\n", sample, records);
	exit(EXIT_LOST);
}

static void write_log(char **nodes, unsigned int count)
{
	static struct replica replicas[MOST_REPLICAS];
	static struct log log;
	sci_desc_t device = open_device();
	unsigned long records = 0;
	sci_local_segment_t local;
	unsigned int i, left = count;
	struct record *record;
	size_t line_size = 0;
	sci_map_t local_map;
	struct ack *acks;
	char *line = NULL;
	ssize_t len;

	acks = export_segment(device, ACK_SEGMENT, MOST_NODES * sizeof(*acks), &local, &local_map);
	for (i = 0; i < count; i++) {
		replicas[i].node = number(nodes[i], "a node's id");
		connect_segment(device, replicas[i].node, LOG_SEGMENT, &replicas[i].remote);
		replicas[i].log = map_segment(replicas[i].remote, &replicas[i].map,
					      &replicas[i].sequence);
		start_sequence(replicas[i].sequence, replicas[i].remote);
		replicas[i].is_there = 1;
	}

	while ((len = getline(&line, &line_size, stdin)) > 0) {
		if (line[len - 1] == '\n')
			len--;
		if (record_size(len) > sizeof(log.records) - log.end) {
			fprintf(stderr, "%s: the log is full; it has room for %zu bytes\n", sample,
				sizeof(log.records));
			exit(EXIT_FAILURE);
		}
		record = (struct record *)(log.records + log.end);
		record->len = len;
		memcpy(record->text, line, len);
		log.end += record_size(len);
		left = make_safe(replicas, count, &log, acks, log.end);
		must_have(left, records);
		printf("record %lu is safe on %u nodes\n", ++records, left);
		fflush(stdout);
	}
	left = make_safe(replicas, count, &log, acks, log.end | CLOSED);
	must_have(left, records);
	printf("%lu records on %u nodes\n", records, left);
	free(line);
	/* Frees everything that is left, and disconnects, for which the replicas wait. */
	SCITerminate();
}

static const char usage[] =
	"usage: replog replica | replog writer NODE [NODE ...]\n"
	"\n"
	"The writer reads a record from each line, and waits until all replicas have the record.\n"
	"NODE is a replica's id, which sisci-info shows.\n"
	"\n"
	EXIT_CODES;

int main(int argc, char **argv)
{
	sample = "replog";
	if (argc == 2 && !strcmp(argv[1], "--help")) {
		fputs(usage, stdout);
	} else if (argc == 2 && !strcmp(argv[1], "replica")) {
		replicate();
	} else if (argc >= 3 && argc <= 2 + MOST_REPLICAS && !strcmp(argv[1], "writer")) {
		write_log(argv + 2, argc - 2);
	} else {
		fputs(usage, stderr);
		return EXIT_USAGE;
	}
	return 0;
}
