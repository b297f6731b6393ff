// SPDX-License-Identifier: GPL-2.0
/*
 * Maps of local and remote segments: addresses, parts, flags.
 */
#include <sys/mman.h>

#include "sisci_suite.h"

/* A local and a remote segment, for which calls take the same arguments. */
struct either {
	struct local local;
	struct remote remote;
};

static struct either both_kinds(size_t size)
{
	struct either either = { .remote = new_remote(size) };

	either.local = exported(size);
	return either;
}

static sci_error_t maps_local(struct either *either, size_t offset, size_t size)
{
	sci_map_t map;
	void *address;

	before_call();
	address = SCIMapLocalSegment(either->local.segment, &map, offset, size, NULL, 0, &error);
	expect(!address == (error != SCI_ERR_OK));
	return error;
}

static sci_error_t maps_remote(struct either *either, size_t offset, size_t size)
{
	volatile void *address;
	sci_map_t map;

	before_call();
	address = SCIMapRemoteSegment(either->remote.segment, &map, offset, size, NULL, 0,
				      &error);
	expect(!address == (error != SCI_ERR_OK));
	return error;
}

static void map_offset_alignment(void)
{
	static const size_t bad_offsets[] = { 1, 4, 4095, 4100 };
	static const size_t good_offsets[] = { 8, 512, 2048, 4096, 4104 };
	struct either either = both_kinds(4 * 4096);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad_offsets); i++) {
		same(maps_local(&either, bad_offsets[i], 8), SCI_ERR_OFFSET_ALIGNMENT);
		same(maps_remote(&either, bad_offsets[i], 8), SCI_ERR_OFFSET_ALIGNMENT);
	}
	for (i = 0; i < ARRAY_SIZE(good_offsets); i++) {
		same(maps_local(&either, good_offsets[i], 8), SCI_ERR_OK);
		same(maps_remote(&either, good_offsets[i], 8), SCI_ERR_OK);
	}
}

/* A map begins at the requested offset, not at its page. */
static void map_within_page(void)
{
	const size_t offset = 4096 + 264, size = 4096;
	struct either either = both_kinds(4 * 4096);
	volatile unsigned char *remote;
	unsigned char *local;
	sci_map_t map;
	void *room;

	good(local = SCIMapLocalSegment(either.local.segment, &map, offset, size, NULL, 0, &error));
	local[0] = 17;
	local[size - 1] = 18;
	same(either.local.memory[offset], 17);
	same(either.local.memory[offset + size - 1], 18);
	bad(SCI_ERR_OUT_OF_RANGE, SCIMemCpy(NULL, local, map, size - 4, 8, 0, &error));
	good(SCIUnmapSegment(map, 0, &error));
	good(remote = SCIMapRemoteSegment(either.remote.segment, &map, offset, size, NULL, 0,
					  &error));
	remote[0] = 19;
	remote[size - 1] = 20;
	same(either.remote.memory[offset], 19);
	same(either.remote.memory[offset + size - 1], 20);
	good(SCIUnmapSegment(map, 0, &error));
	/* The wanted address has the same offset within its page. */
	room = mmap(NULL, 4 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(room, 4 * 4096);
	bad(SCI_ERR_ILLEGAL_ADDRESS,
	    SCIMapRemoteSegment(either.remote.segment, &map, offset, size, room,
				SCI_FLAG_FIXED_MAP_ADDR, &error));
	good(remote = SCIMapRemoteSegment(either.remote.segment, &map, offset, size, room + 264,
					  SCI_FLAG_FIXED_MAP_ADDR, &error));
	expect((void *)remote == room + 264);
	same(remote[0], 19);
}

static void map_out_of_range(void)
{
	struct either either = both_kinds(8192);

	same(maps_local(&either, 0, 8193), SCI_ERR_OUT_OF_RANGE);
	same(maps_remote(&either, 0, 8193), SCI_ERR_OUT_OF_RANGE);
	same(maps_local(&either, 4096, 8192), SCI_ERR_OUT_OF_RANGE);
	same(maps_remote(&either, 4096, 8192), SCI_ERR_OUT_OF_RANGE);
	same(maps_local(&either, 8192, 1), SCI_ERR_OUT_OF_RANGE);
	same(maps_remote(&either, 8192, 1), SCI_ERR_OUT_OF_RANGE);
	same(maps_local(&either, 4096, SIZE_MAX), SCI_ERR_OUT_OF_RANGE);
	same(maps_remote(&either, 4096, SIZE_MAX), SCI_ERR_OUT_OF_RANGE);
	same(maps_local(&either, SIZE_MAX - 4095, 8192), SCI_ERR_OUT_OF_RANGE);
	same(maps_remote(&either, SIZE_MAX - 4095, 8192), SCI_ERR_OUT_OF_RANGE);
}

static void map_size_zero(void)
{
	struct either either = both_kinds(4096);

	same(maps_local(&either, 0, 0), SCI_ERR_ILLEGAL_PARAMETER);
	same(maps_remote(&either, 0, 0), SCI_ERR_ILLEGAL_PARAMETER);
}

static void map_part(void)
{
	struct either either = both_kinds(4 * 4096);
	struct theirs *there = &either.remote.there;
	volatile unsigned char *remote;
	unsigned char *local;
	sci_map_t map;
	int i;

	for (i = 0; i < 4; i++)
		fill(either.local.memory + i * 4096, i, 4096);
	for (i = 0; i < 4; i++)
		ask(there->peer, DO_FILL, there->memory + i * 4096, i, 4096);
	for (i = 0; i < 4; i++) {
		good(local = SCIMapLocalSegment(either.local.segment, &map, i * 4096, 4096, NULL,
						0, &error));
		same(differs(local, i, 4096), -1);
		good(remote = SCIMapRemoteSegment(either.remote.segment, &map, i * 4096, 100,
						  NULL, 0, &error));
		same(remote_differs(remote, i, 100), -1);
	}
}

static void map_twice(void)
{
	struct either either = both_kinds(8192);
	volatile unsigned char *remote[2];
	sci_map_t remote_map[2], map;
	unsigned char *other;
	int i;

	good(other = SCIMapLocalSegment(either.local.segment, &map, 0, 8192, NULL, 0, &error));
	expect(other != either.local.memory);
	fill(other, 3, 8192);
	same(differs(either.local.memory, 3, 8192), -1);
	for (i = 0; i < 2; i++)
		good(remote[i] = SCIMapRemoteSegment(either.remote.segment, &remote_map[i], 0,
						     8192, NULL, 0, &error));
	fill_remote(remote[0], 4, 8192);
	same(remote_differs(remote[1], 4, 8192), -1);
	/* Unmaps in the order of mapping. The other map stays. */
	good(SCIUnmapSegment(remote_map[0], 0, &error));
	same(remote_differs(remote[1], 4, 8192), -1);
	good(SCIUnmapSegment(remote_map[1], 0, &error));
	good(SCIUnmapSegment(either.local.map, 0, &error));
	same(differs(other, 3, 8192), -1);
}

static void unmap_ends_it(void)
{
	struct either either = both_kinds(8192);

	expect(is_mapped(either.local.memory) && is_mapped(either.remote.memory));
	good(SCIUnmapSegment(either.local.map, 0, &error));
	good(SCIUnmapSegment(either.remote.map, 0, &error));
	expect(!is_mapped(either.local.memory) && !is_mapped(either.remote.memory));
	bad(STALE, SCIUnmapSegment(either.local.map, 0, &error));
	bad(STALE, SCIUnmapSegment(either.remote.map, 0, &error));
}

static void map_read_only(void)
{
	struct either either = both_kinds(4096);
	struct theirs *there = &either.remote.there;
	volatile void *remote;
	sci_map_t map;
	void *local;

	good(local = SCIMapLocalSegment(either.local.segment, &map, 0, 4096, NULL,
					SCI_FLAG_READONLY_MAP, &error));
	fill(either.local.memory, 8, 4096);
	same(differs(local, 8, 4096), -1);
	expect(store_fails(local));
	good(remote = SCIMapRemoteSegment(either.remote.segment, &map, 0, 4096, NULL,
					  SCI_FLAG_READONLY_MAP, &error));
	ask(there->peer, DO_FILL, there->memory, 9, 4096);
	same(remote_differs(remote, 9, 4096), -1);
	expect(store_fails(remote));
	same(ask(there->peer, DO_DIFFERS, there->memory, 9, 4096), -1);
}

/* Returns an address with free address space of this size. */
static void *free_address(size_t size)
{
	void *address = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	expect(address != MAP_FAILED);
	munmap(address, size);
	return address;
}

static void map_fixed(void)
{
	struct either either = both_kinds(4096);
	void *address = free_address(64 * PAGE);
	volatile void *remote;
	sci_map_t map;
	void *local;

	good(local = SCIMapLocalSegment(either.local.segment, &map, 0, 4096, address,
					SCI_FLAG_FIXED_MAP_ADDR, &error));
	expect(local == address);
	good(SCIUnmapSegment(map, 0, &error));
	good(remote = SCIMapRemoteSegment(either.remote.segment, &map, 0, 4096, address,
					  SCI_FLAG_FIXED_MAP_ADDR, &error));
	expect(remote == address);
	*(volatile __u32 *)remote = 5;
	same(*(volatile __u32 *)either.remote.memory, 5);
}

static void map_fixed_taken(void)
{
	struct either either = both_kinds(4096);
	unsigned char *taken = pages(1);
	sci_map_t map;

	fill(taken, 1, PAGE);
	bad(SCI_ERR_ILLEGAL_ADDRESS,
	    SCIMapLocalSegment(either.local.segment, &map, 0, 4096, taken,
			       SCI_FLAG_FIXED_MAP_ADDR, &error));
	bad(SCI_ERR_ILLEGAL_ADDRESS,
	    SCIMapRemoteSegment(either.remote.segment, &map, 0, 4096, taken,
				SCI_FLAG_FIXED_MAP_ADDR, &error));
	same(differs(taken, 1, PAGE), -1);
	/* No map can have this address. */
	bad(SCI_ERR_ILLEGAL_ADDRESS,
	    SCIMapLocalSegment(either.local.segment, &map, 0, 4096, (char *)free_address(PAGE) + 8,
			       SCI_FLAG_FIXED_MAP_ADDR, &error));
	bad(SCI_ERR_ILLEGAL_ADDRESS,
	    SCIMapRemoteSegment(either.remote.segment, &map, 0, 4096,
				(char *)free_address(PAGE) + 8, SCI_FLAG_FIXED_MAP_ADDR, &error));
}

static void map_address_ignored(void)
{
	struct either either = both_kinds(4096);
	unsigned char *taken = pages(1);
	volatile void *remote;
	sci_map_t map;
	void *local;

	good(local = SCIMapLocalSegment(either.local.segment, &map, 0, 4096, taken, 0, &error));
	good(remote = SCIMapRemoteSegment(either.remote.segment, &map, 0, 4096, taken, 0,
					  &error));
	expect(local != taken && remote != taken);
}

/* A segment can be mapped before it is prepared, and its content stays. */
static void map_before_available(void)
{
	struct local local = created(4096);
	struct importer importer;

	fill(local.memory, 55, 4096);
	good(SCIPrepareSegment(local.segment, ADAPTER, 0, &error));
	good(SCISetSegmentAvailable(local.segment, ADAPTER, 0, &error));
	importer = imported_by(new_peer(), &local);
	same(ask(importer.peer, DO_DIFFERS, importer.memory, 55, 4096), -1);
	ask(importer.peer, DO_FILL, importer.memory, 56, 4096);
	wait_until(differs(local.memory, 56, 4096) == -1);
}

/* The flag for the kind of instructions is a hint, and the map is like any other. */
static void map_ports(void)
{
	struct either either = both_kinds(4096);
	volatile __u32 *remote;
	__u32 *local;
	sci_map_t map;

	good(local = SCIMapLocalSegment(either.local.segment, &map, 0, 4096, NULL,
					SCI_FLAG_IO_MAP_IOSPACE, &error));
	local[0] = 12;
	same(((__u32 *)either.local.memory)[0], 12);
	good(SCIUnmapSegment(map, 0, &error));
	good(remote = SCIMapRemoteSegment(either.remote.segment, &map, 0, 4096, NULL,
					  SCI_FLAG_IO_MAP_IOSPACE, &error));
	remote[1] = 34;
	same(((volatile __u32 *)either.remote.memory)[1], 34);
	good(SCIUnmapSegment(map, 0, &error));
}

static void map_large(void)
{
	struct remote remote = new_remote(4 * MIB);
	struct theirs *there = &remote.there;

	ask(there->peer, DO_FILL, there->memory, 31, 4 * MIB);
	same(remote.memory[4 * MIB - 1], there(there->peer, THERE_LOAD,
					       there->memory + 4 * MIB - 1, 1));
	same(remote_differs(remote.memory, 31, 256 * 1024), -1);
	fill_remote(remote.memory + 3 * MIB, 32, 4096);
	SCIStoreBarrier(new_sequence(remote.map), 0);
	same(ask(there->peer, DO_DIFFERS, there->memory + 3 * MIB, 32, 4096), -1);
}

static void map_many(void)
{
	struct theirs there = exported_by(new_peer(), 64 * 4096);
	struct remote remote = imported(there);
	volatile __u32 *word[64];
	sci_map_t map[64];
	int i;

	for (i = 0; i < 64; i++)
		good(word[i] = SCIMapRemoteSegment(remote.segment, &map[i], i * 4096L, 4096,
						   NULL, 0, &error));
	for (i = 0; i < 64; i++)
		*word[i] = i + 1;
	for (i = 0; i < 64; i++)
		same(((volatile __u32 *)remote.memory)[i * 1024], i + 1);
	bad(SCI_ERR_BUSY, SCIDisconnectSegment(remote.segment, 0, &error));
	for (i = 63; i >= 0; i--)
		good(SCIUnmapSegment(map[i], 0, &error));
	good(SCIUnmapSegment(remote.map, 0, &error));
	good(SCIDisconnectSegment(remote.segment, 0, &error));
}

static void cache_sync(void)
{
	struct remote remote = new_remote(8192);

	good(SCICacheSync(remote.map, (void *)remote.memory, 8192, SCI_FLAG_CACHE_FLUSH,
			  &error));
	good(SCICacheSync(remote.map, (void *)(remote.memory + 100), 1,
			  SCI_FLAG_CACHE_FLUSH | SCI_FLAG_CACHE_INVALIDATE, &error));
	bad(SCI_ERR_OUT_OF_RANGE, SCICacheSync(remote.map, (void *)remote.memory, 8193,
					       SCI_FLAG_CACHE_FLUSH, &error));
	bad(SCI_ERR_OUT_OF_RANGE, SCICacheSync(remote.map, (void *)(remote.memory - 1), 1,
					       SCI_FLAG_CACHE_FLUSH, &error));
}

const struct test_case map_cases[] = {
	PAIR_MAPPED(map_offset_alignment, "map.offset-alignment"),
	PAIR_MAPPED(map_within_page, "map.offset-alignment map.fixed"),
	PAIR_MAPPED(map_out_of_range, "map.out-of-range"),
	PAIR_MAPPED(map_size_zero, "map.size-zero"),
	PAIR_MAPPED(map_part, "map.part"),
	PAIR_MAPPED(map_twice, "map.twice map.unmap"),
	PAIR_MAPPED(unmap_ends_it, "map.unmap handle.stale"),
	PAIR_MAPPED(map_read_only, "map.read-only"),
	PAIR_MAPPED(map_fixed, "map.fixed"),
	PAIR_MAPPED(map_fixed_taken, "map.fixed-taken"),
	PAIR_MAPPED(map_address_ignored, "map.address-ignored"),
	PAIR_MAPPING_US(map_before_available, "map.local-any-state"),
	PAIR_MAPPED(map_ports, "flags.hints"),
	PAIR_MAPPED(map_large, "map.data"),
	PAIR_MAPPED(map_many, "map.twice"),
	PAIR_MAPPED(cache_sync, "map.cache-sync"),
	{ }
};
