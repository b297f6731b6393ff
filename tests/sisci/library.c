// SPDX-License-Identifier: GPL-2.0
/*
 * The library as a whole: its initialization and its end, virtual devices.
 */
#include "sisci_suite.h"

/* Makes one call of each kind. All have to return this error. */
static void all_give(sci_error_t expected, sci_desc_t device)
{
	sci_remote_interrupt_t remote_interrupt;
	sci_local_interrupt_t interrupt;
	sci_remote_segment_t remote;
	sci_local_segment_t segment;
	unsigned int number = 1;
	sci_dma_queue_t queue;
	sci_desc_t other;
	char text[64];
	sci_query_string_t query = { .str = text, .length = sizeof(text) };

	bad(expected, SCIOpen(&other, 0, &error));
	bad(expected, SCIClose(device, 0, &error));
	bad(expected, SCIQuery(SCI_Q_API, &query, 0, &error));
	bad(expected, SCIProbeNode(device, ADAPTER, own_id(), 0, &error));
	bad(expected, SCIGetLocalNodeId(ADAPTER, &number, 0, &error));
	bad(expected, SCICreateSegment(device, &segment, 1, 4096, NULL, NULL, 0, &error));
	bad(expected, SCIConnectSegment(device, &remote, own_id(), 1, ADAPTER, NULL, NULL, 0, 0,
					&error));
	bad(expected, SCICreateDMAQueue(device, &queue, ADAPTER, 1, 0, &error));
	bad(expected, SCICreateInterrupt(device, &interrupt, ADAPTER, &number, NULL, NULL, 0,
					 &error));
	bad(expected, SCIConnectInterrupt(device, &remote_interrupt, own_id(), ADAPTER, 1, 0, 0,
					  &error));
}

static void before_initialize(void)
{
	all_give(SCI_ERR_NOT_INITIALIZED, NULL);
}

static void after_terminate(void)
{
	sci_desc_t device = new_device();

	SCITerminate();
	all_give(SCI_ERR_NOT_INITIALIZED, device);
}

static void initialize_counted(void)
{
	sci_desc_t device;

	good(SCIInitialize(0, &error));
	good(SCIInitialize(0, &error));
	good(SCIOpen(&device, 0, &error));
	SCITerminate();
	good(SCIClose(device, 0, &error));
	good(SCIOpen(&device, 0, &error));
	SCITerminate();
	bad(SCI_ERR_NOT_INITIALIZED, SCIOpen(&device, 0, &error));
}

static void initialize_again(void)
{
	sci_desc_t device;
	int i;

	for (i = 0; i < 5; i++) {
		good(SCIInitialize(0, &error));
		good(SCIOpen(&device, 0, &error));
		SCITerminate();
	}
	good(SCIInitialize(0, &error));
	/* The handle is from before the library was ended. */
	bad(STALE, SCIClose(device, 0, &error));
}

static void initialize_flags(void)
{
	sci_desc_t device;

	bad(SCI_ERR_ILLEGAL_FLAG, SCIInitialize(0x80000000, &error));
	bad(SCI_ERR_NOT_INITIALIZED, SCIOpen(&device, 0, &error));
}

static void terminate_alone(void)
{
	SCITerminate();
	SCITerminate();
	new_device();
}

static void terminate_releases(void)
{
	struct local local = exported(8192);
	unsigned int number = new_id(), id = local.id;
	sci_local_interrupt_t interrupt;

	own_remote(&local);
	new_interrupt(local.device, &number, SCI_FLAG_FIXED_INTNO);
	new_queue(local.device, 4);
	SCITerminate();
	expect(!is_mapped(local.memory));
	good(SCIInitialize(0, &error));
	good(SCIOpen(&local.device, 0, &error));
	good(SCICreateSegment(local.device, &local.segment, id, 4096, NULL, NULL, 0, &error));
	good(SCICreateInterrupt(local.device, &interrupt, ADAPTER, &number, NULL, NULL,
				SCI_FLAG_FIXED_INTNO, &error));
}

static void terminate_tells_importers(void)
{
	struct local local = exported(4096);
	struct importer importer = imported_by(new_peer(), &local);

	SCITerminate();
	same(there(importer.peer, THERE_REMOTE_EVENT, importer.segment, FOREVER), SCI_CB_LOST);
}

static void null_error(void)
{
	sci_local_segment_t segment = NULL;
	sci_desc_t device = NULL;

	SCIInitialize(0, NULL);
	SCIOpen(&device, 0, NULL);
	expect(device);
	SCICreateSegment(device, &segment, new_id(), 4096, NULL, NULL, 0, NULL);
	expect(segment);
	SCIPrepareSegment(segment, ADAPTER, 0, NULL);
	good(SCISetSegmentAvailable(segment, ADAPTER, 0, &error));
	SCIClose(device, 0, NULL);
	SCIRemoveSegment(segment, 0, NULL);
	SCIClose(device, 0, NULL);
	bad(STALE, SCIClose(device, 0, &error));
}

/* --- Virtual devices --- */

static void open_many(void)
{
	sci_desc_t device[64];
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(device); i++) {
		device[i] = new_device();
		for (j = 0; j < i; j++)
			expect(device[j] != device[i]);
	}
	for (i = 0; i < ARRAY_SIZE(device); i++)
		good(SCIClose(device[i], 0, &error));
}

static void open_arguments(void)
{
	sci_desc_t device;

	initialize();
	bad(SCI_ERR_ILLEGAL_PARAMETER, SCIOpen(NULL, 0, &error));
	bad(SCI_ERR_ILLEGAL_FLAG, SCIOpen(&device, 0x80000000, &error));
	good(SCIOpen(&device, SCI_FLAG_THREAD_SAFE, &error));
	bad(SCI_ERR_ILLEGAL_FLAG, SCIClose(device, 0x80000000, &error));
	good(SCIClose(device, 0, &error));
}

static void close_busy(void)
{
	struct local local = exported(4096), other;
	sci_desc_t device = new_device();
	sci_remote_segment_t remote;
	sci_dma_queue_t queue;

	bad(SCI_ERR_BUSY, SCIClose(local.device, 0, &error));
	remote = connect_segment(device, own_id(), local.id);
	bad(SCI_ERR_BUSY, SCIClose(device, 0, &error));
	good(SCIDisconnectSegment(remote, 0, &error));
	queue = new_queue(device, 1);
	bad(SCI_ERR_BUSY, SCIClose(device, 0, &error));
	good(SCIRemoveDMAQueue(queue, 0, &error));
	good(SCIClose(device, 0, &error));
	/* No resource of the other device was released. */
	bad(SCI_ERR_BUSY, SCIClose(local.device, 0, &error));
	good(SCIUnmapSegment(local.map, 0, &error));
	bad(SCI_ERR_BUSY, SCIClose(local.device, 0, &error));
	good(SCIRemoveSegment(local.segment, 0, &error));
	good(SCIClose(local.device, 0, &error));
	other = exported(4096);
	expect(other.segment);
}

static void close_busy_interrupts(void)
{
	unsigned int number = 0, data_number = 0;
	sci_remote_data_interrupt_t remote_data;
	sci_local_data_interrupt_t data;
	sci_remote_interrupt_t remote;
	sci_local_interrupt_t local;
	sci_desc_t device = new_device(), other = new_device();

	local = new_interrupt(device, &number, 0);
	bad(SCI_ERR_BUSY, SCIClose(device, 0, &error));
	remote = connect_interrupt(other, own_id(), number);
	bad(SCI_ERR_BUSY, SCIClose(other, 0, &error));
	good(SCIDisconnectInterrupt(remote, 0, &error));
	good(SCIRemoveInterrupt(local, 0, &error));
	data = new_data_interrupt(device, &data_number);
	bad(SCI_ERR_BUSY, SCIClose(device, 0, &error));
	remote_data = connect_data_interrupt(other, own_id(), data_number);
	bad(SCI_ERR_BUSY, SCIClose(other, 0, &error));
	good(SCIDisconnectDataInterrupt(remote_data, 0, &error));
	good(SCIRemoveDataInterrupt(data, 0, &error));
	good(SCIClose(device, 0, &error));
	good(SCIClose(other, 0, &error));
}

/* A device holds more resources than the guide says, as programs rely on this. */
static void device_holds_many(void)
{
	sci_local_segment_t segment[8];
	sci_local_interrupt_t interrupt[8];
	sci_dma_queue_t queue[8];
	sci_desc_t device = new_device();
	unsigned int number;
	int i;

	for (i = 0; i < 8; i++) {
		good(SCICreateSegment(device, &segment[i], new_id(), 4096, NULL, NULL, 0,
				      &error));
		interrupt[i] = new_interrupt(device, &number, 0);
		queue[i] = new_queue(device, 2);
	}
	for (i = 0; i < 8; i++) {
		good(SCIRemoveSegment(segment[i], 0, &error));
		good(SCIRemoveInterrupt(interrupt[i], 0, &error));
		bad(SCI_ERR_BUSY, SCIClose(device, 0, &error));
		good(SCIRemoveDMAQueue(queue[i], 0, &error));
	}
	good(SCIClose(device, 0, &error));
}

static void end_leaves_nothing(void)
{
	long before = pinned();
	struct local local = exported(MIB);
	struct remote remote = own_remote(&local);

	expect(remote.memory);
	good(SCIUnmapSegment(remote.map, 0, &error));
	good(SCIDisconnectSegment(remote.segment, 0, &error));
	good(SCIUnmapSegment(local.map, 0, &error));
	good(SCIRemoveSegment(local.segment, 0, &error));
	good(SCIClose(local.device, 0, &error));
	SCITerminate();
	wait_until(pinned() <= before);
}

const struct test_case library_cases[] = {
	ALONE(before_initialize, "init.before"),
	ALONE(after_terminate, "init.after"),
	ALONE(initialize_counted, "init.counted"),
	ALONE(initialize_again, "init.counted handle.stale"),
	ALONE(initialize_flags, "init.flags"),
	ALONE(terminate_alone, "init.counted"),
	ALONE(terminate_releases, "init.terminate-releases"),
	PAIR(terminate_tells_importers, "init.terminate-releases event.remote-lost"),
	ALONE(null_error, "error.null"),
	ALONE(open_many, "device.open"),
	ALONE(open_arguments, "device.open device.flags"),
	ALONE(close_busy, "device.busy"),
	ALONE(close_busy_interrupts, "device.busy"),
	ALONE(device_holds_many, "device.many"),
	ALONE(end_leaves_nothing, "init.terminate-releases"),
	{ }
};
