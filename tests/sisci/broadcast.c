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

/* A node's words are its own: those beside them are left alone. */
static void broadcast_neighbours(void)
{
	struct group group = new_group();
	volatile __u32 *memory;
	sci_sequence_t sequence;
	sci_map_t map;
	__u32 i;

	if (!group.peers)
		return;
	good(memory = SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, 0, &error));
	sequence = new_sequence(map);
	for (i = 1; i < 4; i++) {
		there(group.peer[0], THERE_STORE, group.memory[0] + 4, i * 100, 4);
		memory[0] = i;
		((volatile __u8 *)memory)[9] = i;
		SCIStoreBarrier(sequence, 0);
		same(there(group.peer[0], THERE_LOAD, group.memory[0], 4), i);
		same(there(group.peer[0], THERE_LOAD, group.memory[0] + 4, 4), i * 100);
		there(group.peer[0], THERE_STORE, group.memory[0] + 8, i, 1);
		same(there(group.peer[0], THERE_LOAD, group.memory[0] + 9, 1), i);
	}
}

/* A copy is sent though it is what was sent before. */
static void broadcast_copy_again(void)
{
	struct group group = new_group();
	unsigned char *memory = pages(1);
	sci_sequence_t sequence;
	sci_map_t map;
	int i;

	if (!group.peers)
		return;
	good(SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, 0, &error));
	sequence = new_sequence(map);
	memset(memory, 0, 13);
	for (i = 0; i < 3; i++) {
		there(group.peer[0], THERE_STORE, group.memory[0] + 5, 9, 1);
		there(group.peer[0], THERE_STORE, group.memory[0] + 16, 9, 1);
		good(SCIMemCpy(sequence, memory, map, 3, 13, 0, &error));
		SCIStoreBarrier(sequence, 0);
		same(there(group.peer[0], THERE_LOAD, group.memory[0] + 5, 1), 0);
		/* And no byte beside it. */
		same(there(group.peer[0], THERE_LOAD, group.memory[0] + 16, 1), 9);
	}
}

/* A node that gets the group after others have connected gets what is stored from then on. */
static void broadcast_joined(void)
{
	struct local source = prepared(64);
	sci_remote_segment_t remote;
	volatile __u32 *memory;
	sci_dma_queue_t queue;
	struct local local;
	struct peer *peer;
	sci_map_t map;
	__s64 there_is;
	__u32 i = 0;

	export_group(&local);
	good(SCIConnectSegment(local.device, &remote, ALL, GROUP, ADAPTER, NULL, NULL, FOREVER,
			       SCI_FLAG_BROADCAST, &error));
	good(memory = SCIMapRemoteSegment(remote, &map, 0, SIZE, NULL, 0, &error));
	memory[0] = 1;
	wait_until(*(volatile __u32 *)local.memory == 1);
	peer = new_peer_on(run.peers - 1);
	if (node_id(run.agent[run.peers - 1].node) == own_id())
		return;
	there_is = export_group_there(peer);
	wait_until((memory[2] = ++i, there(peer, THERE_LOAD, there_is + 8, 4) > 0));
	/* DMA, too. */
	queue = new_queue(local.device, 1);
	fill(source.memory, 3, 64);
	good(SCIStartDmaTransfer(queue, source.segment, remote, 0, 64, 1024, NULL, NULL, 0,
				 &error));
	same(SCIWaitForDMAQueue(queue, FOREVER, 0, &error), SCI_DMAQUEUE_DONE);
	same(ask(peer, DO_DIFFERS, there_is + 1024, 3, 64), -1);
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
	struct local source = prepared(SIZE);
	sci_dma_queue_t queue = new_queue(group.local.device, 1);
	volatile unsigned char *memory;
	sci_sequence_t sequence;
	sci_map_t map;

	good(memory = SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, 0, &error));
	sequence = new_sequence(map);
	good(expect(SCIStartSequence(sequence, 0, &error) == SCI_SEQ_OK));
	begin(group.peer[0], DO_DIE);
	remote_event(group.remote, SCI_CB_LOST);
	/* It is told, once. */
	good(expect(SCICheckSequence(sequence, 0, &error) == SCI_SEQ_NOT_RETRIABLE));
	good(expect(SCIStartSequence(sequence, 0, &error) == SCI_SEQ_OK));
	good(expect(SCICheckSequence(sequence, 0, &error) == SCI_SEQ_OK));
	fill_remote(memory, 8, SIZE);
	SCIFlush(sequence, 0);
	/* The others are reached. */
	wait_until(differs(group.local.memory, 8, SIZE) == -1);
	wait_until(ask(group.peer[1], DO_DIFFERS, group.memory[1], 8, SIZE) == -1);
	fill(source.memory, 9, SIZE);
	good(SCIStartDmaTransfer(queue, source.segment, group.remote, 0, SIZE, 0, NULL, NULL, 0,
				 &error));
	same(SCIWaitForDMAQueue(queue, FOREVER, 0, &error), SCI_DMAQUEUE_DONE);
	same(differs(group.local.memory, 9, SIZE), -1);
	same(ask(group.peer[1], DO_DIFFERS, group.memory[1], 9, SIZE), -1);
	good(SCIRemoveSequence(sequence, 0, &error));
	good(SCIUnmapSegment(map, 0, &error));
	good(SCIDisconnectSegment(group.remote, 0, &error));
}

const struct test_case broadcast_cases[] = {
	PAIR(broadcast_store, "broadcast.store broadcast.own"),
	PAIR(broadcast_barrier, "broadcast.barrier"),
	PAIR(broadcast_copy, "broadcast.copy broadcast.no-read"),
	PAIR(broadcast_copy_again, "broadcast.copy-again"),
	PAIR_MAPPED(broadcast_neighbours, "broadcast.neighbours"),
	PAIR_MAPPED(broadcast_joined, "broadcast.joined"),
	PAIR(broadcast_dma, "broadcast.dma broadcast.no-read"),
	ALONE(broadcast_groups, "broadcast.groups"),
	ALONE(broadcast_none, "broadcast.none"),
	PAIR_MAPPED(broadcast_one, "broadcast.own"),
	STAR(broadcast_member_dies, "broadcast.member-lost"),
	{ }
};
