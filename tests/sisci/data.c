// SPDX-License-Identifier: GPL-2.0
/*
 * Loads and stores of remote memory: every width, both ways, in order.
 */
#include "sisci_suite.h"

/* Stores values of one width at many offsets, which the peer checks, and the reverse. */
static void of_width(int bytes)
{
	struct remote remote = new_remote(4096);
	struct theirs *there = &remote.there;
	sci_sequence_t sequence = new_sequence(remote.map);
	__u64 value, mask = bytes == 8 ? ~0ULL : (1ULL << (8 * bytes)) - 1;
	long at;

	for (at = 0; at < 4096; at += 256 + bytes) {
		value = 0x8182838485868788ULL * (at + 1) & mask;
		switch (bytes) {
		case 1:
			*(volatile __u8 *)(remote.memory + at) = value;
			break;
		case 2:
			*(volatile __u16 *)(remote.memory + at) = value;
			break;
		case 4:
			*(volatile __u32 *)(remote.memory + at) = value;
			break;
		case 8:
			*(volatile __u64 *)(remote.memory + at) = value;
			break;
		}
		SCIStoreBarrier(sequence, 0);
		expect((__u64)there(there->peer, THERE_LOAD, there->memory + at, bytes) == value);
		there(there->peer, THERE_STORE, there->memory + at, ~value & mask, bytes);
		switch (bytes) {
		case 1:
			expect(*(volatile __u8 *)(remote.memory + at) == (~value & mask));
			break;
		case 2:
			expect(*(volatile __u16 *)(remote.memory + at) == (~value & mask));
			break;
		case 4:
			expect(*(volatile __u32 *)(remote.memory + at) == (~value & mask));
			break;
		case 8:
			expect(*(volatile __u64 *)(remote.memory + at) == (~value & mask));
			break;
		}
	}
}

static void width_1(void)
{
	of_width(1);
}

static void width_2(void)
{
	of_width(2);
}

static void width_4(void)
{
	of_width(4);
}

static void width_8(void)
{
	of_width(8);
}

/* A store changes only its own bytes. */
static void neighbours(void)
{
	struct remote remote = new_remote(4096);
	struct theirs *there = &remote.there;
	int i;

	ask(there->peer, DO_FILL, there->memory, 1, 64);
	for (i = 0; i < 64; i += 2) {
		remote.memory[i] = 0xee;
		SCIStoreBarrier(new_sequence(remote.map), 0);
		same(there(there->peer, THERE_LOAD, there->memory + i, 1), 0xee);
	}
	ask(there->peer, DO_FILL, there->memory + 64, 1, 64);
	for (i = 1; i < 64; i += 2)
		same(there(there->peer, THERE_LOAD, there->memory + i, 1),
		     there(there->peer, THERE_LOAD, there->memory + 64 + i, 1));
}

static void at_page_borders(void)
{
	struct remote remote = new_remote(4 * 4096);
	struct theirs *there = &remote.there;
	long at;

	for (at = 4096; at < 4 * 4096; at += 4096) {
		*(volatile __u64 *)(remote.memory + at - 8) = at;
		*(volatile __u64 *)(remote.memory + at) = at + 1;
	}
	SCIStoreBarrier(new_sequence(remote.map), 0);
	for (at = 4096; at < 4 * 4096; at += 4096) {
		same(there(there->peer, THERE_LOAD, there->memory + at - 8, 8), at);
		same(there(there->peer, THERE_LOAD, there->memory + at, 8), at + 1);
	}
}

/* Earlier stores have arrived when a later one has. */
#define ROUNDS		200
#define DATA		2048

static __s64 check_rounds(const __s64 *argument)
{
	const unsigned char *memory = (const unsigned char *)argument[0];
	volatile __u32 *flag = (volatile __u32 *)(memory + DATA);
	volatile __u32 *answer = (volatile __u32 *)argument[1];
	__u32 round;

	for (round = 1; round <= ROUNDS; round++) {
		while (__atomic_load_n((__u32 *)flag, __ATOMIC_ACQUIRE) != round)
			;
		if (differs(memory, round, DATA) != -1)
			return round;
		*answer = round;
		SCIFlush(NULL, 0);
	}
	return 0;
}

static void order_of_stores(void)
{
	struct remote remote = new_remote(4096);
	struct local back = exported(4096);
	struct importer importer = imported_by(remote.there.peer, &back);
	__u32 round;

	begin(remote.there.peer, DO_RUN, remote.there.memory, importer.memory);
	for (round = 1; round <= ROUNDS; round++) {
		fill_remote(remote.memory, round, DATA);
		/* The flush keeps the CPU from writing the flag first. */
		SCIFlush(NULL, 0);
		*(volatile __u32 *)(remote.memory + DATA) = round;
		SCIFlush(NULL, 0);
		wait_until(__atomic_load_n((__u32 *)back.memory, __ATOMIC_ACQUIRE) == round);
	}
	same(end(remote.there.peer), 0);
}

static void flush_null(void)
{
	int i;

	/* These calls are allowed at any time. */
	SCIFlush(NULL, 0);
	initialize();
	for (i = 0; i < 1000; i++)
		SCIFlush(NULL, 0);
	SCITerminate();
	SCIFlush(NULL, 0);
}

static void flush_sequence(void)
{
	struct remote remote = new_remote(4096);
	sci_sequence_t sequence = new_sequence(remote.map);

	*(volatile __u32 *)remote.memory = 4711;
	SCIFlush(sequence, 0);
	/* The store is in flight, so it arrives. */
	there(remote.there.peer, THERE_AWAIT, remote.there.memory, 4711);
	good(SCIRemoveSequence(sequence, 0, &error));
	SCIFlush(sequence, 0);
	SCIStoreBarrier(sequence, 0);
}

static void barrier_completes(void)
{
	struct remote remote = new_remote(64 * 1024);
	sci_sequence_t sequence = new_sequence(remote.map);
	int i;

	for (i = 0; i < 20; i++) {
		fill_remote(remote.memory, i, 64 * 1024);
		SCIStoreBarrier(sequence, 0);
		same(ask(remote.there.peer, DO_DIFFERS, remote.there.memory, i, 64 * 1024), -1);
	}
}

static void check_completes(void)
{
	struct remote remote = new_remote(64 * 1024);
	sci_sequence_t sequence = new_sequence(remote.map);
	int i;

	for (i = 0; i < 20; i++) {
		good(expect(SCIStartSequence(sequence, 0, &error) == SCI_SEQ_OK));
		fill_remote(remote.memory, 100 + i, 64 * 1024);
		good(expect(SCICheckSequence(sequence, 0, &error) == SCI_SEQ_OK));
		same(ask(remote.there.peer, DO_DIFFERS, remote.there.memory, 100 + i, 64 * 1024),
		     -1);
	}
}

const struct test_case data_cases[] = {
	PAIR_MAPPED(width_1, "map.data"),
	PAIR_MAPPED(width_2, "map.data"),
	PAIR_MAPPED(width_4, "map.data"),
	PAIR_MAPPED(width_8, "map.data"),
	PAIR_MAPPED(neighbours, "map.data"),
	PAIR_MAPPED(at_page_borders, "map.data"),
	PAIR_MAPPED_WITH(order_of_stores, check_rounds, "flush.order"),
	ALONE(flush_null, "flush.null"),
	PAIR_MAPPED(flush_sequence, "flush.sequence handle.stale"),
	PAIR_MAPPED(barrier_completes, "barrier.completes"),
	PAIR_MAPPED(check_completes, "sequence.check-completes"),
	{ }
};
