// SPDX-License-Identifier: GPL-2.0
/*
 * Invalid handles: NULL, of another kind, released, made up.
 */
#include "sisci_suite.h"

/* Checks that every call that takes such a handle refuses it. */
static void refused_as_device(void *handle)
{
	sci_remote_data_interrupt_t remote_data;
	sci_local_data_interrupt_t data;
	sci_remote_interrupt_t remote_interrupt;
	sci_local_interrupt_t interrupt;
	sci_remote_segment_t remote;
	sci_local_segment_t segment;
	unsigned int number = 0;
	sci_dma_queue_t queue;
	size_t size;

	bad(STALE, SCIClose(handle, 0, &error));
	bad(STALE, SCIProbeNode(handle, ADAPTER, own_id(), 0, &error));
	bad(STALE, SCICreateSegment(handle, &segment, new_id(), 8, NULL, NULL, 0, &error));
	bad(STALE, SCIAttachLocalSegment(handle, &segment, 1, &size, NULL, NULL, 0, &error));
	bad(STALE, SCIConnectSegment(handle, &remote, own_id(), 1, ADAPTER, NULL, NULL, 0, 0,
				     &error));
	bad(STALE, SCICreateDMAQueue(handle, &queue, ADAPTER, 1, 0, &error));
	bad(STALE, SCICreateInterrupt(handle, &interrupt, ADAPTER, &number, NULL, NULL, 0,
				      &error));
	bad(STALE, SCIConnectInterrupt(handle, &remote_interrupt, own_id(), ADAPTER, 1, 0, 0,
				       &error));
	bad(STALE, SCICreateDataInterrupt(handle, &data, ADAPTER, &number, NULL, NULL, 0,
					  &error));
	bad(STALE, SCIConnectDataInterrupt(handle, &remote_data, own_id(), ADAPTER, 1, 0, 0,
					   &error));
}

static void refused_as_local_segment(void *handle)
{
	unsigned int node, adapter;
	char memory[64];
	sci_map_t map;

	bad(STALE, SCIPrepareSegment(handle, ADAPTER, 0, &error));
	bad(STALE, SCISetSegmentAvailable(handle, ADAPTER, 0, &error));
	bad(STALE, SCISetSegmentUnavailable(handle, ADAPTER, 0, &error));
	bad(STALE, SCIRemoveSegment(handle, 0, &error));
	bad(STALE, SCIWaitForLocalSegmentEvent(handle, &node, &adapter, 0, 0, &error));
	bad(STALE, SCIShareSegment(handle, 0, &error));
	bad(STALE, SCIRegisterSegmentMemory(memory, sizeof(memory), handle, 0, &error));
	bad(STALE, expect(!SCIMapLocalSegment(handle, &map, 0, 8, NULL, 0, &error)));
	same(SCIGetLocalSegmentId(handle), 0);
	same(SCIGetLocalSegmentSize(handle), 0);
}

static void refused_as_remote_segment(void *handle)
{
	sci_error_t status;
	sci_map_t map;

	bad(STALE, SCIDisconnectSegment(handle, 0, &error));
	bad(STALE, SCIWaitForRemoteSegmentEvent(handle, &status, 0, 0, &error));
	bad(STALE, expect(!SCIMapRemoteSegment(handle, &map, 0, 8, NULL, 0, &error)));
	same(SCIGetRemoteSegmentId(handle), 0);
	same(SCIGetRemoteSegmentSize(handle), 0);
	same(SCIGetRemoteSegmentNodeId(handle), 0);
}

static void refused_as_map(void *handle)
{
	sci_sequence_t sequence;
	char memory[64];

	bad(STALE, SCIUnmapSegment(handle, 0, &error));
	bad(STALE, SCICreateMapSequence(handle, &sequence, 0, &error));
	bad(STALE, SCIMemCpy(NULL, memory, handle, 0, 8, 0, &error));
	bad(STALE, SCICacheSync(handle, memory, 8, SCI_FLAG_CACHE_FLUSH, &error));
}

static void refused_as_sequence(void *handle)
{
	bad(STALE, SCIRemoveSequence(handle, 0, &error));
	bad(STALE, SCIStartSequence(handle, 0, &error));
	bad(STALE, SCICheckSequence(handle, 0, &error));
	/* These calls return no error. */
	SCIFlush(handle, 0);
	SCIStoreBarrier(handle, 0);
}

static void refused_as_queue(void *handle)
{
	struct local local = prepared(8);

	bad(STALE, SCIRemoveDMAQueue(handle, 0, &error));
	bad(STALE, SCIWaitForDMAQueue(handle, 0, 0, &error));
	bad(STALE, SCIAbortDMAQueue(handle, 0, &error));
	bad(STALE, SCIStartDmaTransfer(handle, local.segment, NULL, 0, 8, 0, NULL, NULL, 0,
				       &error));
	/* The call returns no error, and its state is that of a failed transfer. */
	SCIDMAQueueState(handle);
}

static void refused_as_interrupt(void *handle)
{
	unsigned int length = 8;
	char data[8];

	bad(STALE, SCIRemoveInterrupt(handle, 0, &error));
	bad(STALE, SCIWaitForInterrupt(handle, 0, 0, &error));
	bad(STALE, SCIDisconnectInterrupt(handle, 0, &error));
	bad(STALE, SCITriggerInterrupt(handle, 0, &error));
	bad(STALE, SCIRemoveDataInterrupt(handle, 0, &error));
	bad(STALE, SCIWaitForDataInterrupt(handle, data, &length, 0, 0, &error));
	bad(STALE, SCIDisconnectDataInterrupt(handle, 0, &error));
	bad(STALE, SCITriggerDataInterrupt(handle, data, 8, 0, &error));
}

static void refused_everywhere(void *handle)
{
	refused_as_device(handle);
	refused_as_local_segment(handle);
	refused_as_remote_segment(handle);
	refused_as_map(handle);
	refused_as_sequence(handle);
	refused_as_queue(handle);
	refused_as_interrupt(handle);
}

static void handles_null(void)
{
	initialize();
	refused_everywhere(NULL);
}

static void handles_made_up(void)
{
	char here[64];

	initialize();
	memset(here, 0xff, sizeof(here));
	refused_everywhere(here);
	refused_everywhere((void *)1);
	refused_everywhere((void *)0xdeadbeef);
	refused_everywhere((void *)-1L);
	refused_everywhere((void *)-4096L);
}

static void handles_other_kind(void)
{
	struct local local = exported(8);
	struct remote remote = own_remote(&local);
	unsigned int number = 0;

	refused_as_local_segment(local.device);
	refused_as_local_segment(remote.segment);
	refused_as_remote_segment(local.segment);
	refused_as_remote_segment(local.map);
	refused_as_device(local.segment);
	refused_as_device(remote.map);
	refused_as_map(remote.segment);
	refused_as_map(new_sequence(remote.map));
	refused_as_sequence(remote.map);
	refused_as_queue(local.map);
	refused_as_interrupt(new_queue(local.device, 1));
	refused_as_queue(new_interrupt(local.device, &number, 0));
	/* The resources have not changed. */
	good(SCIUnmapSegment(remote.map, 0, &error));
	good(SCIDisconnectSegment(remote.segment, 0, &error));
	good(SCIUnmapSegment(local.map, 0, &error));
	good(SCIRemoveSegment(local.segment, 0, &error));
}

static void handles_interrupt_kinds(void)
{
	sci_desc_t device = new_device();
	unsigned int number = 0, data_number = 0, length = 0;
	sci_local_interrupt_t local = new_interrupt(device, &number, 0);
	sci_local_data_interrupt_t data = new_data_interrupt(device, &data_number);
	sci_remote_interrupt_t remote = connect_interrupt(device, own_id(), number);
	sci_remote_data_interrupt_t remote_data =
		connect_data_interrupt(device, own_id(), data_number);

	bad(STALE, SCIRemoveInterrupt((void *)data, 0, &error));
	bad(STALE, SCIRemoveDataInterrupt((void *)local, 0, &error));
	bad(STALE, SCITriggerInterrupt((void *)local, 0, &error));
	bad(STALE, SCITriggerInterrupt((void *)remote_data, 0, &error));
	bad(STALE, SCITriggerDataInterrupt((void *)remote, "x", 1, 0, &error));
	bad(STALE, SCIWaitForInterrupt((void *)remote, 0, 0, &error));
	bad(STALE, SCIWaitForDataInterrupt((void *)remote_data, NULL, &length, 0, 0, &error));
	bad(STALE, SCIDisconnectInterrupt((void *)local, 0, &error));
	good(SCITriggerInterrupt(remote, 0, &error));
	good(SCIWaitForInterrupt(local, FOREVER, 0, &error));
}

static void handles_stale_segments(void)
{
	struct local local = exported(8);
	struct remote remote = own_remote(&local);
	sci_sequence_t sequence = new_sequence(remote.map);

	good(SCIRemoveSequence(sequence, 0, &error));
	refused_as_sequence(sequence);
	good(SCIUnmapSegment(remote.map, 0, &error));
	refused_as_map(remote.map);
	good(SCIDisconnectSegment(remote.segment, 0, &error));
	refused_as_remote_segment(remote.segment);
	good(SCIUnmapSegment(local.map, 0, &error));
	refused_as_map(local.map);
	good(SCIRemoveSegment(local.segment, 0, &error));
	refused_as_local_segment(local.segment);
	good(SCIClose(local.device, 0, &error));
	refused_as_device(local.device);
}

static void handles_stale_others(void)
{
	sci_desc_t device = new_device();
	unsigned int number = 0;
	sci_local_interrupt_t local = new_interrupt(device, &number, 0);
	sci_remote_interrupt_t remote = connect_interrupt(device, own_id(), number);
	sci_local_data_interrupt_t data = new_data_interrupt(device, &number);
	sci_remote_data_interrupt_t remote_data =
		connect_data_interrupt(device, own_id(), number);
	sci_dma_queue_t queue = new_queue(device, 1);

	good(SCIRemoveDMAQueue(queue, 0, &error));
	refused_as_queue(queue);
	good(SCIDisconnectInterrupt(remote, 0, &error));
	refused_as_interrupt(remote);
	good(SCIRemoveInterrupt(local, 0, &error));
	refused_as_interrupt(local);
	good(SCIDisconnectDataInterrupt(remote_data, 0, &error));
	refused_as_interrupt(remote_data);
	good(SCIRemoveDataInterrupt(data, 0, &error));
	refused_as_interrupt(data);
}

static void handles_not_reused(void)
{
	sci_desc_t first = new_device(), next;
	int i;

	good(SCIClose(first, 0, &error));
	for (i = 0; i < 1000; i++) {
		good(SCIOpen(&next, 0, &error));
		expect(next != first);
		bad(STALE, SCIClose(first, 0, &error));
		good(SCIClose(next, 0, &error));
	}
}

static void flags_unknown(void)
{
	struct local local = exported(8);
	struct remote remote = own_remote(&local);
	sci_sequence_t sequence = new_sequence(remote.map), other_sequence;
	sci_dma_queue_t queue = new_queue(local.device, 1), other_queue;
	unsigned int number = 0, flag = 0x80000000, node, adapter;
	sci_local_interrupt_t interrupt;
	sci_remote_segment_t connected;
	sci_local_segment_t segment;
	sci_error_t status;
	sci_map_t map;
	char byte;

#define refuses_flag(call) bad(SCI_ERR_ILLEGAL_FLAG, call)
	refuses_flag(SCICreateSegment(local.device, &segment, new_id(), 8, NULL, NULL, flag,
				      &error));
	refuses_flag(SCIPrepareSegment(local.segment, ADAPTER, flag, &error));
	refuses_flag(SCISetSegmentAvailable(local.segment, ADAPTER, flag, &error));
	refuses_flag(SCISetSegmentUnavailable(local.segment, ADAPTER, flag, &error));
	refuses_flag(SCIRemoveSegment(local.segment, flag, &error));
	refuses_flag(SCIWaitForLocalSegmentEvent(local.segment, &node, &adapter, 0, flag,
						 &error));
	refuses_flag(SCIConnectSegment(local.device, &connected, own_id(), local.id, ADAPTER,
				       NULL, NULL, 0, flag, &error));
	refuses_flag(SCIDisconnectSegment(remote.segment, flag, &error));
	refuses_flag(SCIWaitForRemoteSegmentEvent(remote.segment, &status, 0, flag, &error));
	refuses_flag(SCIMapLocalSegment(local.segment, &map, 0, 8, NULL, flag, &error));
	refuses_flag(SCIMapRemoteSegment(remote.segment, &map, 0, 8, NULL, flag, &error));
	refuses_flag(SCIUnmapSegment(remote.map, flag, &error));
	refuses_flag(SCICreateMapSequence(remote.map, &other_sequence, flag, &error));
	refuses_flag(SCIStartSequence(sequence, flag, &error));
	refuses_flag(SCICheckSequence(sequence, flag, &error));
	refuses_flag(SCIRemoveSequence(sequence, flag, &error));
	refuses_flag(SCIMemCpy(sequence, &byte, remote.map, 0, 1, flag, &error));
	refuses_flag(SCICreateDMAQueue(local.device, &other_queue, ADAPTER, 1, flag, &error));
	refuses_flag(SCIStartDmaTransfer(queue, local.segment, remote.segment, 0, 8, 0, NULL,
					 NULL, flag, &error));
	refuses_flag(SCIAbortDMAQueue(queue, flag, &error));
	refuses_flag(SCIRemoveDMAQueue(queue, flag, &error));
	refuses_flag(SCICreateInterrupt(local.device, &interrupt, ADAPTER, &number, NULL, NULL,
					flag, &error));
	refuses_flag(SCIProbeNode(local.device, ADAPTER, own_id(), flag, &error));
	/* The refused calls have had no effect. */
	good(SCIRemoveSequence(sequence, 0, &error));
	good(SCIRemoveDMAQueue(queue, 0, &error));
	good(SCIUnmapSegment(remote.map, 0, &error));
	good(SCIDisconnectSegment(remote.segment, 0, &error));
}

static void places_null(void)
{
	struct local local = exported(8);
	struct remote remote = own_remote(&local);
	sci_local_interrupt_t interrupt;
	unsigned int number = 0;

#define refuses_null(call) bad(SCI_ERR_ILLEGAL_PARAMETER, call)
	refuses_null(SCICreateSegment(local.device, NULL, new_id(), 8, NULL, NULL, 0, &error));
	refuses_null(SCIConnectSegment(local.device, NULL, own_id(), local.id, ADAPTER, NULL,
				       NULL, 0, 0, &error));
	refuses_null(SCIMapLocalSegment(local.segment, NULL, 0, 8, NULL, 0, &error));
	refuses_null(SCIMapRemoteSegment(remote.segment, NULL, 0, 8, NULL, 0, &error));
	refuses_null(SCICreateMapSequence(remote.map, NULL, 0, &error));
	refuses_null(SCICreateDMAQueue(local.device, NULL, ADAPTER, 1, 0, &error));
	refuses_null(SCICreateInterrupt(local.device, NULL, ADAPTER, &number, NULL, NULL, 0,
					&error));
	refuses_null(SCICreateInterrupt(local.device, &interrupt, ADAPTER, NULL, NULL, NULL, 0,
					&error));
	refuses_null(SCIConnectInterrupt(local.device, NULL, own_id(), ADAPTER, 1, 0, 0,
					 &error));
	refuses_null(SCIMemCpy(NULL, NULL, remote.map, 0, 8, 0, &error));
	refuses_null(SCIQuery(SCI_Q_API, NULL, 0, &error));
	refuses_null(SCIGetLocalNodeId(ADAPTER, NULL, 0, &error));
}

const struct test_case handle_cases[] = {
	ALONE(handles_null, "handle.null"),
	ALONE(handles_made_up, "handle.made-up"),
	ALONE(handles_other_kind, "handle.other-kind"),
	ALONE(handles_interrupt_kinds, "handle.other-kind"),
	ALONE(handles_stale_segments, "handle.stale"),
	ALONE(handles_stale_others, "handle.stale"),
	ALONE(handles_not_reused, "handle.stale"),
	ALONE(flags_unknown, "flags.unknown"),
	ALONE(places_null, "handle.places"),
	{ }
};
