// SPDX-License-Identifier: GPL-2.0
/*
 * Broadcast segments: a write reaches all nodes that have one of that number.
 */
#include "sisci_suite.h"

#define SIZE	8192
#define ALL	DIS_BROADCAST_NODEID_GROUP_ALL

/* The group of this case: the segment of it is there as long as its process. */
#define GROUP	2

static void export_group(struct local *local)
{
	*local = (struct local) { .device = new_device(), .id = GROUP, .size = SIZE };
	good(SCICreateSegment(local->device, &local->segment, GROUP, SIZE, NULL, NULL,
			      SCI_FLAG_BROADCAST, &error));
	good(local->memory = SCIMapLocalSegment(local->segment, &local->map, 0, SIZE, NULL,
						SCI_FLAG_BROADCAST, &error));
	good(SCIPrepareSegment(local->segment, ADAPTER, SCI_FLAG_BROADCAST, &error));
	good(SCISetSegmentAvailable(local->segment, ADAPTER, 0, &error));
}

/* That of a peer, if its node is another one: a node has one segment of a group. */
static __s64 export_group_there(struct peer *peer)
{
	__s64 device = there(peer, THERE_OPEN), segment, memory;

	/* That of the case before may not be gone yet. */
	wait_until((segment = ask(peer, THERE_CREATE, device, GROUP, SIZE, SCI_FLAG_BROADCAST)));
	memory = there(peer, THERE_MAP_LOCAL, segment, 0, SIZE, 0);
	there(peer, THERE_PREPARE, segment);
	there(peer, THERE_AVAILABLE, segment);
	return memory;
}

/* The group on this node and on those of the peers, connected. */
struct group {
	struct local local;
	int peers;
	struct peer *peer[MAX_PEERS];
	__s64 memory[MAX_PEERS];
	sci_remote_segment_t remote;
};

static struct group new_group(void)
{
	struct group group = { .peers = 0 };
	int i;

	export_group(&group.local);
	for (i = 0; i < run.peers; i++) {
		if (node_id(run.agent[i].node) == own_id())
			continue;
		group.peer[group.peers] = new_peer_on(i);
		group.memory[group.peers] = export_group_there(group.peer[group.peers]);
		group.peers++;
	}
	good(SCIConnectSegment(group.local.device, &group.remote, ALL, GROUP, ADAPTER, NULL, NULL,
			       FOREVER, SCI_FLAG_BROADCAST, &error));
	return group;
}

/* All of them have it, sooner or later. */
static void all_have(struct group *group, __u32 seed, long len)
{
	int i;

	wait_until(differs(group->local.memory, seed, len) == -1);
	for (i = 0; i < group->peers; i++)
		wait_until(ask(group->peer[i], DO_DIFFERS, group->memory[i], seed, len) == -1);
}

static void broadcast_store(void)
{
	struct group group = new_group();
	volatile unsigned char *memory;
	sci_sequence_t sequence;
	sci_map_t map;
	int i;

	good(memory = SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, SCI_FLAG_BROADCAST,
					  &error));
	sequence = new_sequence(map);
	for (i = 0; i < 5; i++) {
		fill_remote(memory, i, SIZE);
		SCIFlush(sequence, 0);
		all_have(&group, i, SIZE);
	}
	/* Without anything besides. */
	fill_remote(memory, 77, SIZE);
	all_have(&group, 77, SIZE);
}

static void broadcast_barrier(void)
{
	struct group group = new_group();
	volatile unsigned char *memory;
	sci_sequence_t sequence;
	sci_map_t map;
	int i, peer;

	good(memory = SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, 0, &error));
	sequence = new_sequence(map);
	for (i = 0; i < 5; i++) {
		good(SCIStartSequence(sequence, 0, &error));
		fill_remote(memory, i, SIZE);
		if (i % 2)
			SCIStoreBarrier(sequence, 0);
		else
			good(expect(SCICheckSequence(sequence, 0, &error) == SCI_SEQ_OK));
		/* Now, not later. */
		same(differs(group.local.memory, i, SIZE), -1);
		for (peer = 0; peer < group.peers; peer++)
			same(ask(group.peer[peer], DO_DIFFERS, group.memory[peer], i, SIZE), -1);
	}
}

static void broadcast_copy(void)
{
	struct group group = new_group();
	unsigned char *memory = pages(SIZE / PAGE + 1);
	sci_sequence_t sequence;
	sci_map_t map;

	good(SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, 0, &error));
	sequence = new_sequence(map);
	fill(memory, 5, SIZE);
	good(SCIMemCpy(sequence, memory, map, 0, SIZE, 0, &error));
	SCIStoreBarrier(sequence, 0);
	all_have(&group, 5, SIZE);
	before_call();
	SCIMemCpy(sequence, memory, map, 0, SIZE, SCI_FLAG_BLOCK_READ, &error);
	expect(error != SCI_ERR_OK);
}

static void broadcast_dma(void)
{
	struct group group = new_group();
	struct local source = prepared(SIZE);
	sci_dma_queue_t queue = new_queue(group.local.device, 1);
	sci_dma_queue_state_t state = SCI_DMAQUEUE_ERROR;

	fill(source.memory, 6, SIZE);
	good(SCIStartDmaTransfer(queue, source.segment, group.remote, 0, SIZE, 0, NULL, NULL, 0,
				 &error));
	same(SCIWaitForDMAQueue(queue, FOREVER, 0, &error), SCI_DMAQUEUE_DONE);
	all_have(&group, 6, SIZE);
	/* Nothing can be read. */
	before_call();
	SCIStartDmaTransfer(queue, source.segment, group.remote, 0, SIZE, 0, NULL, NULL,
			    SCI_FLAG_DMA_READ, &error);
	if (error == SCI_ERR_OK)
		state = SCIWaitForDMAQueue(queue, FOREVER, 0, &error);
	same(state, SCI_DMAQUEUE_ERROR);
}

static void broadcast_groups(void)
{
	sci_desc_t device = new_device();
	sci_local_segment_t segment;
	unsigned int id;

	for (id = 0; id < 4; id++)
		good(SCICreateSegment(device, &segment, id, SIZE, NULL, NULL, SCI_FLAG_BROADCAST,
				      &error));
	before_call();
	SCICreateSegment(device, &segment, 4, SIZE, NULL, NULL, SCI_FLAG_BROADCAST, &error);
	expect(error != SCI_ERR_OK);
	good(SCICreateSegment(device, &segment, 4, SIZE, NULL, NULL, 0, &error));
}

static void broadcast_none(void)
{
	sci_desc_t device = new_device();
	sci_remote_segment_t remote;

	bad(SCI_ERR_NO_SUCH_SEGMENT,
	    SCIConnectSegment(device, &remote, ALL, 3, ADAPTER, NULL, NULL, FOREVER,
			      SCI_FLAG_BROADCAST, &error));
}

/* Its own node is one of all, and each can be reached by its own id, too. */
static void broadcast_one(void)
{
	struct group group = new_group();
	sci_remote_segment_t one;
	volatile unsigned char *memory;
	sci_map_t map;
	__u32 before = 0;
	int i;

	good(SCIConnectSegment(group.local.device, &one, own_id(), GROUP, ADAPTER, NULL, NULL,
			       FOREVER, SCI_FLAG_BROADCAST, &error));
	good(memory = SCIMapRemoteSegment(one, &map, 0, SIZE, NULL, 0, &error));
	*(volatile __u32 *)memory = 4712;
	wait_until(*(volatile __u32 *)group.local.memory == 4712);
	for (i = 0; i < group.peers; i++)
		same(there(group.peer[i], THERE_LOAD, group.memory[i], 4), before);
}

static void broadcast_member_dies(void)
{
	struct group group = new_group();
	volatile unsigned char *memory;
	sci_sequence_t sequence;
	sci_map_t map;

	good(memory = SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, 0, &error));
	sequence = new_sequence(map);
	begin(group.peer[0], DO_DIE);
	wait_for_death(group.peer[0]);
	fill_remote(memory, 8, SIZE);
	SCIFlush(sequence, 0);
	/* The others are reached. */
	wait_until(differs(group.local.memory, 8, SIZE) == -1);
	wait_until(ask(group.peer[1], DO_DIFFERS, group.memory[1], 8, SIZE) == -1);
	good(SCIRemoveSequence(sequence, 0, &error));
	good(SCIUnmapSegment(map, 0, &error));
	good(SCIDisconnectSegment(group.remote, 0, &error));
}

const struct test_case broadcast_cases[] = {
	PAIR(broadcast_store, "broadcast.store broadcast.own"),
	PAIR(broadcast_barrier, "broadcast.barrier"),
	PAIR(broadcast_copy, "broadcast.copy broadcast.no-read"),
	PAIR(broadcast_dma, "broadcast.dma broadcast.no-read"),
	ALONE(broadcast_groups, "broadcast.groups"),
	ALONE(broadcast_none, "broadcast.none"),
	PAIR_MAPPED(broadcast_one, "broadcast.own"),
	STAR(broadcast_member_dies, "broadcast.member-lost"),
	{ }
};
