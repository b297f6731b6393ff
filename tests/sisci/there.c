// SPDX-License-Identifier: GPL-2.0
/*
 * Operations of peers: each is one call of the library, in the peer's process.
 */
#include "sisci_suite.h"

/* --- The side of the case --- */

__s64 check_there(struct peer *peer, __u32 operation, const __s64 *argument)
{
	begin_operation(peer, operation, argument);
	return check_end(peer);
}

void check_there_bad(struct peer *peer, sci_error_t expected, __u32 operation,
		     const __s64 *argument)
{
	begin_operation(peer, operation, argument);
	check_end_bad(peer, expected);
}

__s64 check_end(struct peer *peer)
{
	__s64 result = end(peer);

	error = errno;
	check_good();
	return result;
}

void check_end_bad(struct peer *peer, sci_error_t expected)
{
	end(peer);
	error = errno;
	check_bad(expected);
}

/* --- The side of the peer --- */

static __s64 open_device(void)
{
	static bool initialized;
	sci_desc_t device = NULL;

	if (!initialized) {
		SCIInitialize(0, &error);
		if (error != SCI_ERR_OK)
			return 0;
		initialized = true;
	}
	SCIOpen(&device, 0, &error);
	return (__s64)device;
}

static __s64 create(const __s64 *a)
{
	sci_local_segment_t segment = NULL;

	SCICreateSegment((sci_desc_t)a[0], &segment, a[1], a[2], NULL, NULL, a[3], &error);
	return (__s64)segment;
}

static __s64 local_event_there(const __s64 *a, __s64 *answer)
{
	unsigned int node = 0, adapter = 0;
	__s64 reason;

	reason = SCIWaitForLocalSegmentEvent((sci_local_segment_t)a[0], &node, &adapter, a[1], 0,
					     &error);
	answer[0] = node;
	answer[1] = adapter;
	return reason;
}

static __s64 remote_event_there(const __s64 *a, __s64 *answer)
{
	sci_error_t status = SCI_ERR_OK;
	__s64 reason;

	reason = SCIWaitForRemoteSegmentEvent((sci_remote_segment_t)a[0], &status, a[1], 0,
					      &error);
	answer[0] = status;
	return reason;
}

static __s64 connect_there(const __s64 *a)
{
	sci_remote_segment_t segment = NULL;

	SCIConnectSegment((sci_desc_t)a[0], &segment, a[1], a[2], ADAPTER, NULL, NULL, a[3], a[4],
			  &error);
	return (__s64)segment;
}

static __s64 map_local(const __s64 *a, __s64 *answer)
{
	sci_map_t map = NULL;
	void *address;

	address = SCIMapLocalSegment((sci_local_segment_t)a[0], &map, a[1], a[2], NULL, a[3],
				     &error);
	answer[0] = (__s64)map;
	return (__s64)address;
}

static __s64 map_remote(const __s64 *a, __s64 *answer)
{
	sci_map_t map = NULL;
	volatile void *address;

	address = SCIMapRemoteSegment((sci_remote_segment_t)a[0], &map, a[1], a[2], NULL, a[3],
				      &error);
	answer[0] = (__s64)map;
	return (__s64)address;
}

static void store(__s64 address, __s64 value, __s64 bytes)
{
	switch (bytes) {
	case 1:
		*(volatile __u8 *)address = value;
		break;
	case 2:
		*(volatile __u16 *)address = value;
		break;
	case 4:
		*(volatile __u32 *)address = value;
		break;
	case 8:
		*(volatile __u64 *)address = value;
		break;
	}
	SCIFlush(NULL, 0);
}

static __s64 load(__s64 address, __s64 bytes)
{
	switch (bytes) {
	case 1:
		return *(volatile __u8 *)address;
	case 2:
		return *(volatile __u16 *)address;
	case 4:
		return *(volatile __u32 *)address;
	}
	return *(volatile __u64 *)address;
}

static void await(__s64 address, __u32 value)
{
	while (__atomic_load_n((__u32 *)address, __ATOMIC_ACQUIRE) != value)
		poll(NULL, 0, 1);
}

static __s64 queue_there(const __s64 *a)
{
	sci_dma_queue_t queue = NULL;

	SCICreateDMAQueue((sci_desc_t)a[0], &queue, ADAPTER, a[1], 0, &error);
	return (__s64)queue;
}

static __s64 interrupt_there(const __s64 *a, __s64 *answer)
{
	sci_local_interrupt_t interrupt = NULL;
	unsigned int number = a[1];

	SCICreateInterrupt((sci_desc_t)a[0], &interrupt, ADAPTER, &number, NULL, NULL, a[2],
			   &error);
	answer[0] = number;
	return (__s64)interrupt;
}

static __s64 connect_interrupt_there(const __s64 *a)
{
	sci_remote_interrupt_t interrupt = NULL;

	SCIConnectInterrupt((sci_desc_t)a[0], &interrupt, a[1], ADAPTER, a[2], FOREVER, 0,
			    &error);
	return (__s64)interrupt;
}

static void trigger(const __s64 *a)
{
	__s64 i;

	for (i = 0; i < a[1] && error == SCI_ERR_OK; i++)
		SCITriggerInterrupt((sci_remote_interrupt_t)a[0], 0, &error);
}

static __s64 data_interrupt_there(const __s64 *a, __s64 *answer)
{
	sci_local_data_interrupt_t interrupt = NULL;
	unsigned int number = a[1];

	SCICreateDataInterrupt((sci_desc_t)a[0], &interrupt, ADAPTER, &number, NULL, NULL, a[2],
			       &error);
	answer[0] = number;
	return (__s64)interrupt;
}

static __s64 wait_data(const __s64 *a)
{
	unsigned int length = a[2];

	SCIWaitForDataInterrupt((sci_local_data_interrupt_t)a[0], (void *)a[1], &length, a[3], 0,
				&error);
	return length;
}

static __s64 connect_data_there(const __s64 *a)
{
	sci_remote_data_interrupt_t interrupt = NULL;

	SCIConnectDataInterrupt((sci_desc_t)a[0], &interrupt, a[1], ADAPTER, a[2], FOREVER, 0,
				&error);
	return (__s64)interrupt;
}

static __s64 do_segments(__u32 operation, const __s64 *a, __s64 *answer)
{
	sci_local_segment_t segment = (sci_local_segment_t)a[0];

	switch (operation) {
	case THERE_OPEN:
		return open_device();
	case THERE_CLOSE:
		SCIClose((sci_desc_t)a[0], 0, &error);
		return 0;
	case THERE_TERMINATE:
		SCITerminate();
		return 0;
	case THERE_CREATE:
		return create(a);
	case THERE_PREPARE:
		SCIPrepareSegment(segment, ADAPTER, 0, &error);
		return 0;
	case THERE_AVAILABLE:
		SCISetSegmentAvailable(segment, ADAPTER, 0, &error);
		return 0;
	case THERE_UNAVAILABLE:
		SCISetSegmentUnavailable(segment, ADAPTER, a[1], &error);
		return 0;
	case THERE_REMOVE:
		SCIRemoveSegment(segment, a[1], &error);
		return 0;
	case THERE_MAP_LOCAL:
		return map_local(a, answer);
	case THERE_LOCAL_EVENT:
		return local_event_there(a, answer);
	case THERE_CONNECT:
		return connect_there(a);
	case THERE_DISCONNECT:
		SCIDisconnectSegment((sci_remote_segment_t)a[0], 0, &error);
		return 0;
	case THERE_REMOTE_EVENT:
		return remote_event_there(a, answer);
	case THERE_MAP_REMOTE:
		return map_remote(a, answer);
	case THERE_UNMAP:
		SCIUnmapSegment((sci_map_t)a[0], 0, &error);
		return 0;
	}
	error = SCI_ERR_NOT_IMPLEMENTED;
	return -1;
}

static __s64 do_interrupts(__u32 operation, const __s64 *a, __s64 *answer)
{
	switch (operation) {
	case THERE_INTERRUPT:
		return interrupt_there(a, answer);
	case THERE_REMOVE_INTERRUPT:
		SCIRemoveInterrupt((sci_local_interrupt_t)a[0], 0, &error);
		return 0;
	case THERE_WAIT_INTERRUPT:
		SCIWaitForInterrupt((sci_local_interrupt_t)a[0], a[1], 0, &error);
		return 0;
	case THERE_CONNECT_INTERRUPT:
		return connect_interrupt_there(a);
	case THERE_DISCONNECT_INTERRUPT:
		SCIDisconnectInterrupt((sci_remote_interrupt_t)a[0], 0, &error);
		return 0;
	case THERE_TRIGGER:
		trigger(a);
		return 0;
	case THERE_DATA_INTERRUPT:
		return data_interrupt_there(a, answer);
	case THERE_REMOVE_DATA:
		SCIRemoveDataInterrupt((sci_local_data_interrupt_t)a[0], 0, &error);
		return 0;
	case THERE_WAIT_DATA:
		return wait_data(a);
	case THERE_CONNECT_DATA:
		return connect_data_there(a);
	case THERE_TRIGGER_DATA:
		SCITriggerDataInterrupt((sci_remote_data_interrupt_t)a[0], (void *)a[1], a[2], 0,
					&error);
		return 0;
	}
	error = SCI_ERR_NOT_IMPLEMENTED;
	return -1;
}

static __s64 do_memory(__u32 operation, const __s64 *a)
{
	switch (operation) {
	case THERE_STORE:
		store(a[0], a[1], a[2]);
		return 0;
	case THERE_LOAD:
		return load(a[0], a[1]);
	case THERE_AWAIT:
		await(a[0], a[1]);
		return 0;
	case THERE_QUEUE:
		return queue_there(a);
	case THERE_TRANSFER:
		SCIStartDmaTransfer((sci_dma_queue_t)a[0], (sci_local_segment_t)a[1],
				    (sci_remote_segment_t)a[2], a[3], a[4], a[5], NULL, NULL,
				    a[6], &error);
		return 0;
	case THERE_WAIT_QUEUE:
		return SCIWaitForDMAQueue((sci_dma_queue_t)a[0], a[1], 0, &error);
	}
	error = SCI_ERR_NOT_IMPLEMENTED;
	return -1;
}

long sisci_operation(__u32 operation, const __s64 *argument, __s64 *answer)
{
	__s64 result;

	error = SCI_ERR_OK;
	if (operation < THERE_STORE)
		result = do_segments(operation, argument, answer);
	else if (operation < THERE_INTERRUPT)
		result = do_memory(operation, argument);
	else
		result = do_interrupts(operation, argument, answer);
	errno = error;
	return result;
}
