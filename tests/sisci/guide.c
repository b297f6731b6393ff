// SPDX-License-Identifier: GPL-2.0
/*
 * The examples of the guide, as far as they go, with a peer as the receiver.
 */
#include "sisci_suite.h"

#define PRINT_COMMAND	1
#define SEGMENT		4

static __s64 receiver(struct peer *peer, __s64 *segment)
{
	__s64 device = there(peer, THERE_OPEN), memory;

	/* The segment of the case before may still exist. */
	wait_until((*segment = ask(peer, THERE_CREATE, device, SEGMENT, 4096, 0)));
	memory = there(peer, THERE_MAP_LOCAL, *segment, 0, 4096, 0);
	there(peer, THERE_STORE, memory, ~PRINT_COMMAND, 4);
	there(peer, THERE_PREPARE, *segment);
	there(peer, THERE_AVAILABLE, *segment);
	return memory;
}

/* Examples 4-1 and 4-2. The receiver removes a segment that is still mapped, which is an error. */
static void guide_remote_memory(void)
{
	struct peer *peer = new_peer();
	__s64 segment, memory = receiver(peer, &segment);
	sci_remote_segment_t remote;
	volatile int *address;
	sci_desc_t device;
	sci_map_t map;
	size_t size;

	good(SCIInitialize(0, &error));
	good(SCIOpen(&device, 0, &error));
	good(SCIConnectSegment(device, &remote, peer_id(peer), SEGMENT, ADAPTER, 0, 0,
			       SCI_INFINITE_TIMEOUT, 0, &error));
	size = SCIGetRemoteSegmentSize(remote);
	same(size, 4096);
	good(address = SCIMapRemoteSegment(remote, &map, 0, size, 0, 0, &error));
	begin(peer, THERE_AWAIT, memory, PRINT_COMMAND);
	*address = PRINT_COMMAND;
	good(SCIUnmapSegment(map, 0, &error));
	good(SCIDisconnectSegment(remote, 0, &error));
	good(SCIClose(device, 0, &error));
	SCITerminate();
	end_good(peer);
	there(peer, THERE_UNAVAILABLE, segment, 0);
	there_bad(peer, SCI_ERR_BUSY, THERE_REMOVE, segment, 0);
}

/* Examples 5-1 and 5-2. */
static void guide_dma(void)
{
	struct peer *peer = new_peer();
	__s64 segment, memory = receiver(peer, &segment);
	sci_local_segment_t local;
	sci_remote_segment_t remote;
	sci_dma_queue_t queue;
	unsigned int id = new_id();
	sci_desc_t device;
	sci_map_t map;
	int *address;

	good(SCIInitialize(0, &error));
	good(SCIOpen(&device, 0, &error));
	good(SCICreateSegment(device, &local, id, 4, 0, 0, 0, &error));
	good(address = SCIMapLocalSegment(local, &map, 0, 4, 0, 0, &error));
	/* The guide's example lacks this call, which its text demands. */
	good(SCIPrepareSegment(local, ADAPTER, 0, &error));
	good(SCICreateDMAQueue(device, &queue, ADAPTER, 1, 0, &error));
	good(SCIConnectSegment(device, &remote, peer_id(peer), SEGMENT, ADAPTER, 0, 0,
			       SCI_INFINITE_TIMEOUT, 0, &error));
	*address = PRINT_COMMAND;
	begin(peer, THERE_AWAIT, memory, PRINT_COMMAND);
	good(SCIStartDMATransfer(queue, local, remote, 0, sizeof(PRINT_COMMAND), 0, 0, NULL, 0,
				 &error));
	good(SCIWaitForDMAQueue(queue, SCI_INFINITE_TIMEOUT, 0, &error));
	same(SCIDMAQueueState(queue), SCI_DMAQUEUE_DONE);
	end_good(peer);
	good(SCIRemoveDMAQueue(queue, 0, &error));
	good(SCIUnmapSegment(map, 0, &error));
	good(SCIRemoveSegment(local, 0, &error));
	good(SCIDisconnectSegment(remote, 0, &error));
	good(SCIClose(device, 0, &error));
	SCITerminate();
}

/* Examples 6-1 and 6-2. */
static void guide_interrupt(void)
{
	struct peer *peer = new_peer();
	__s64 there_device = there(peer, THERE_OPEN), interrupt;
	sci_remote_interrupt_t remote;
	sci_desc_t device;

	interrupt = there(peer, THERE_INTERRUPT, there_device, 12345, SCI_FLAG_FIXED_INTNO);
	begin(peer, THERE_WAIT_INTERRUPT, interrupt, FOREVER);
	good(SCIInitialize(0, &error));
	good(SCIOpen(&device, 0, &error));
	good(SCIConnectInterrupt(device, &remote, peer_id(peer), ADAPTER, 12345,
				 SCI_INFINITE_TIMEOUT, 0, &error));
	good(SCITriggerInterrupt(remote, 0, &error));
	good(SCIDisconnectInterrupt(remote, 0, &error));
	good(SCIClose(device, 0, &error));
	SCITerminate();
	end_good(peer);
	there(peer, THERE_REMOVE_INTERRUPT, interrupt);
}

/* The loop of the guide for a transfer without errors. */
static void guide_sequence(void)
{
	struct remote remote = new_remote(4096);
	sci_sequence_t sequence = new_sequence(remote.map);
	sci_sequence_status_t status;
	int rounds = 0;

	do {
		good(status = SCIStartSequence(sequence, 0, &error));
	} while (status != SCI_SEQ_OK);
	fill_remote(remote.memory, 1, 4096);
	good(status = SCICheckSequence(sequence, 0, &error));
	while (status != SCI_SEQ_OK && rounds++ < 100) {
		while (status != SCI_SEQ_OK && status != SCI_SEQ_RETRIABLE)
			good(status = SCIStartSequence(sequence, 0, &error));
		fill_remote(remote.memory, 1, 4096);
		good(status = SCICheckSequence(sequence, 0, &error));
	}
	same(ask(remote.there.peer, DO_DIFFERS, remote.there.memory, 1, 4096), -1);
}

const struct test_case guide_cases[] = {
	PAIR_MAPPED(guide_remote_memory, "guide.examples"),
	PAIR(guide_dma, "guide.examples"),
	PAIR(guide_interrupt, "guide.examples"),
	PAIR_MAPPED(guide_sequence, "guide.examples sequence.check"),
	{ }
};
