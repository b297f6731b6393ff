// SPDX-License-Identifier: GPL-2.0
/*
 * Cases of SCIMemCpy and SCIMemWrite.
 */
#include "sisci_suite.h"

#define SIZE	(64 * 1024L)

static void copy_to_remote(void)
{
	struct remote remote = new_remote(SIZE);
	sci_sequence_t sequence = new_sequence(remote.map);
	unsigned char *memory = pages(SIZE / PAGE);

	fill(memory, 1, SIZE);
	good(SCIMemCpy(sequence, memory, remote.map, 0, SIZE, 0, &error));
	SCIStoreBarrier(sequence, 0);
	same(ask(remote.there.peer, DO_DIFFERS, remote.there.memory, 1, SIZE), -1);
}

static void copy_from_remote(void)
{
	struct remote remote = new_remote(SIZE);
	sci_sequence_t sequence = new_sequence(remote.map);
	unsigned char *memory = pages(SIZE / PAGE);

	ask(remote.there.peer, DO_FILL, remote.there.memory, 2, SIZE);
	good(SCIMemCpy(sequence, memory, remote.map, 0, SIZE, SCI_FLAG_BLOCK_READ, &error));
	same(differs(memory, 2, SIZE), -1);
}

static const long sizes[] = { 1, 2, 3, 4, 7, 8, 9, 15, 16, 31, 63, 64, 65, 127, 1000, 4097 };

static void copy_unaligned(void)
{
	struct remote remote = new_remote(SIZE);
	struct theirs *there = &remote.there;
	sci_sequence_t sequence = new_sequence(remote.map);
	unsigned char *memory = pages(4);
	size_t size, from, to;

	for (size = 0; size < ARRAY_SIZE(sizes); size++) {
		for (from = 0; from < 4; from++) {
			to = from * 3 + size;
			fill(memory + from, size * 8 + from, sizes[size]);
			good(SCIMemCpy(sequence, memory + from, remote.map, to, sizes[size], 0,
				       &error));
			SCIStoreBarrier(sequence, 0);
			same(ask(there->peer, DO_DIFFERS, there->memory + to, size * 8 + from,
				 sizes[size]), -1);
		}
	}
}

static void copy_unaligned_back(void)
{
	struct remote remote = new_remote(SIZE);
	struct theirs *there = &remote.there;
	unsigned char *memory = pages(4);
	sci_sequence_t sequence = new_sequence(remote.map);
	size_t size, from;

	for (size = 0; size < ARRAY_SIZE(sizes); size++) {
		for (from = 0; from < 4; from++) {
			ask(there->peer, DO_FILL, there->memory + from * 5, size + from,
			    sizes[size]);
			memset(memory, 0x11, 8192);
			good(SCIMemCpy(sequence, memory + 64 + from, remote.map, from * 5,
				       sizes[size], SCI_FLAG_BLOCK_READ, &error));
			same(differs(memory + 64 + from, size + from, sizes[size]), -1);
			/* No byte beside the copy has changed. */
			same(differs_from_byte(memory, 0x11, 64 + from), -1);
			same(differs_from_byte(memory + 64 + from + sizes[size], 0x11, 64), -1);
		}
	}
}

static void copy_out_of_range(void)
{
	struct remote remote = new_remote(8192);
	sci_sequence_t sequence = new_sequence(remote.map);
	unsigned char *memory = pages(4);

	bad(SCI_ERR_OUT_OF_RANGE, SCIMemCpy(sequence, memory, remote.map, 0, 8193, 0, &error));
	bad(SCI_ERR_OUT_OF_RANGE, SCIMemCpy(sequence, memory, remote.map, 8192, 1, 0, &error));
	bad(SCI_ERR_OUT_OF_RANGE, SCIMemCpy(sequence, memory, remote.map, 8191, 2,
					    SCI_FLAG_BLOCK_READ, &error));
	bad(SCI_ERR_OUT_OF_RANGE, SCIMemCpy(sequence, memory, remote.map, SIZE_MAX, 2, 0,
					    &error));
	bad(SCI_ERR_OUT_OF_RANGE, SCIMemCpy(sequence, memory, remote.map, 1, SIZE_MAX, 0,
					    &error));
	good(SCIMemCpy(sequence, memory, remote.map, 8191, 1, 0, &error));
}

/* Offsets are relative to the map, not to the segment. */
static void copy_in_part(void)
{
	struct remote remote = new_remote(4 * 4096);
	unsigned char *memory = pages(1);
	sci_sequence_t sequence;
	sci_map_t map;

	good(SCIMapRemoteSegment(remote.segment, &map, 8192, 4096, NULL, 0, &error));
	sequence = new_sequence(map);
	fill(memory, 9, 100);
	good(SCIMemCpy(sequence, memory, map, 200, 100, 0, &error));
	SCIStoreBarrier(sequence, 0);
	same(ask(remote.there.peer, DO_DIFFERS, remote.there.memory + 8392, 9, 100), -1);
	bad(SCI_ERR_OUT_OF_RANGE, SCIMemCpy(sequence, memory, map, 4096, 100, 0, &error));
}

static void copy_checked(void)
{
	struct remote remote = new_remote(SIZE);
	sci_sequence_t sequence = new_sequence(remote.map);
	unsigned char *memory = pages(SIZE / PAGE);

	fill(memory, 4, SIZE);
	good(SCIStartSequence(sequence, 0, &error));
	good(SCIMemCpy(sequence, memory, remote.map, 0, SIZE, SCI_FLAG_ERROR_CHECK, &error));
	same(ask(remote.there.peer, DO_DIFFERS, remote.there.memory, 4, SIZE), -1);
	good(SCIMemCpy(sequence, memory, remote.map, 0, 64,
		       SCI_FLAG_ERROR_CHECK | SCI_FLAG_BLOCK_READ, &error));
}

static void copy_large(void)
{
	struct remote remote = new_remote(4 * MIB);
	sci_sequence_t sequence = new_sequence(remote.map);
	unsigned char *memory = pages(4 * MIB / PAGE);

	fill(memory, 6, 4 * MIB);
	good(SCIMemCpy(sequence, memory, remote.map, 0, 4 * MIB, 0, &error));
	SCIStoreBarrier(sequence, 0);
	same(ask(remote.there.peer, DO_DIFFERS, remote.there.memory, 6, 4 * MIB), -1);
}

static void copy_function(void)
{
	struct remote remote = new_remote(8192);
	sci_sequence_t sequence = new_sequence(remote.map);
	unsigned char *memory = pages(2);
	int choice;

	/* Any choice of function copies correctly. */
	for (choice = -1; choice < 10; choice++) {
		SetSciMemCopyFunction(choice);
		fill(memory, choice + 40, 5000);
		good(SCIMemCpy(sequence, memory, remote.map, 3, 5000, 0, &error));
		SCIStoreBarrier(sequence, 0);
		same(ask(remote.there.peer, DO_DIFFERS, remote.there.memory + 3, choice + 40,
			 5000), -1);
	}
}

static void write_memory(void)
{
	struct remote remote = new_remote(8192);
	sci_sequence_t sequence = new_sequence(remote.map);
	unsigned char *memory = pages(2);

	fill(memory, 12, 5000);
	good(SCIMemWrite(memory, remote.memory + 17, 5000, 0, &error));
	SCIStoreBarrier(sequence, 0);
	same(ask(remote.there.peer, DO_DIFFERS, remote.there.memory + 17, 12, 5000), -1);
	bad(SCI_ERR_ILLEGAL_PARAMETER,
	    SCIMemWrite(NULL, remote.memory, 8, 0, &error));
}

static void copy_to_readonly(void)
{
	struct remote remote = new_remote(4096);
	unsigned char *memory = pages(1);
	sci_map_t map;

	good(SCIMapRemoteSegment(remote.segment, &map, 0, 4096, NULL, SCI_FLAG_READONLY_MAP,
				 &error));
	bad(SCI_ERR_ACCESS, SCIMemCpy(NULL, memory, map, 0, 8, 0, &error));
	good(SCIMemCpy(NULL, memory, map, 0, 8, SCI_FLAG_BLOCK_READ, &error));
}

static void copy_stale_map(void)
{
	struct remote remote = new_remote(4096);
	unsigned char *memory = pages(1);

	good(SCIUnmapSegment(remote.map, 0, &error));
	bad(STALE, SCIMemCpy(NULL, memory, remote.map, 0, 8, 0, &error));
}

const struct test_case copy_cases[] = {
	PAIR_MAPPED(copy_to_remote, "copy.write"),
	PAIR_MAPPED(copy_from_remote, "copy.read"),
	PAIR_MAPPED(copy_unaligned, "copy.alignment"),
	PAIR_MAPPED(copy_unaligned_back, "copy.alignment copy.read"),
	PAIR_MAPPED(copy_out_of_range, "copy.out-of-range"),
	PAIR_MAPPED(copy_in_part, "copy.offset"),
	PAIR_MAPPED(copy_checked, "copy.error-check"),
	PAIR_MAPPED(copy_large, "copy.write"),
	PAIR_MAPPED(copy_function, "copy.function"),
	PAIR_MAPPED(write_memory, "copy.mem-write"),
	PAIR_MAPPED(copy_to_readonly, "copy.readonly"),
	PAIR_MAPPED(copy_stale_map, "handle.stale"),
	{ }
};
