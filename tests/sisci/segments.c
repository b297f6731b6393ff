// SPDX-License-Identifier: GPL-2.0
/*
 * Local segments: their ids, sizes and states.
 */
#include <signal.h>
#include <sys/resource.h>

#include "sisci_suite.h"

static sci_error_t create(sci_desc_t device, sci_local_segment_t *segment, unsigned int id,
			  size_t size, unsigned int flags)
{
	before_call();
	SCICreateSegment(device, segment, id, size, NULL, NULL, flags, &error);
	return error;
}

#define creates(expected, ...)	same(create(__VA_ARGS__), expected)

static void id_and_size(void)
{
	struct local local = created(12345 * 8);

	same(SCIGetLocalSegmentId(local.segment), local.id);
	same(SCIGetLocalSegmentSize(local.segment), 12345 * 8);
}

static void id_used(void)
{
	sci_desc_t device = new_device();
	sci_local_segment_t segment, other;
	unsigned int id = new_id();

	creates(SCI_ERR_OK, device, &segment, id, 8, 0);
	creates(SCI_ERR_SEGMENTID_USED, device, &other, id, 8, 0);
	creates(SCI_ERR_SEGMENTID_USED, new_device(), &other, id, 8, 0);
	good(SCIRemoveSegment(segment, 0, &error));
	creates(SCI_ERR_OK, device, &other, id, 8, 0);
}

/*
 * On one node an id has one segment, whichever process has created it. Another node may have a
 * segment of that id, too.
 */
static void id_used_by_process(void)
{
	struct theirs there = exported_by(new_peer(), 4096);
	sci_desc_t device = new_device();
	sci_local_segment_t segment;

	creates(peer_id(there.peer) == own_id() ? SCI_ERR_SEGMENTID_USED : SCI_ERR_OK, device,
		&segment, there.id, 8, 0);
	if (peer_id(there.peer) == own_id()) {
		there(there.peer, THERE_UNMAP, there.map);
		there(there.peer, THERE_REMOVE, there.segment, 0);
		creates(SCI_ERR_OK, device, &segment, there.id, 8, 0);
	}
}

static void id_any_number(void)
{
	static const unsigned int ids[] = { 0, 1, 0x7fffffff, 0x80000000, 0xffffffff };
	sci_desc_t device = new_device();
	sci_local_segment_t segment;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		creates(SCI_ERR_OK, device, &segment, ids[i], 8, 0);
		same(SCIGetLocalSegmentId(segment), ids[i]);
		good(SCIPrepareSegment(segment, ADAPTER, 0, &error));
		good(SCISetSegmentAvailable(segment, ADAPTER, 0, &error));
		expect(connect_segment(device, own_id(), ids[i]));
		good(SCIRemoveSegment(segment, 0, &error));
	}
}

/* Interrupts have numbers of their own, so a segment's id can be used for them. */
static void id_classes(void)
{
	struct local local = exported(8);
	unsigned int number = local.id;
	sci_local_data_interrupt_t data;

	new_interrupt(local.device, &number, SCI_FLAG_FIXED_INTNO);
	good(SCICreateDataInterrupt(local.device, &data, ADAPTER, &number, NULL, NULL,
				    SCI_FLAG_FIXED_INTNO, &error));
	connect_segment(local.device, own_id(), local.id);
	connect_interrupt(local.device, own_id(), number);
	connect_data_interrupt(local.device, own_id(), number);
}

static void id_auto(void)
{
	sci_desc_t device = new_device();
	sci_local_segment_t segment[16];
	int i, j;

	for (i = 0; i < 16; i++) {
		/* The call ignores the given id. */
		creates(SCI_ERR_OK, device, &segment[i], 1, 8, SCI_FLAG_AUTO_ID);
		for (j = 0; j < i; j++)
			expect(SCIGetLocalSegmentId(segment[j]) !=
			       SCIGetLocalSegmentId(segment[i]));
	}
	good(SCIPrepareSegment(segment[7], ADAPTER, 0, &error));
	good(SCISetSegmentAvailable(segment[7], ADAPTER, 0, &error));
	connect_segment(device, own_id(), SCIGetLocalSegmentId(segment[7]));
}

static void private_segment(void)
{
	sci_desc_t device = new_device();
	sci_local_segment_t segment, other;
	sci_remote_segment_t remote;
	unsigned int id = new_id();

	/*
	 * A private segment has no name, so two can have the same id, and no process can connect.
	 */
	creates(SCI_ERR_OK, device, &segment, id, 8, SCI_FLAG_PRIVATE);
	creates(SCI_ERR_OK, device, &other, id, 8, SCI_FLAG_PRIVATE);
	good(SCIPrepareSegment(segment, ADAPTER, 0, &error));
	bad(SCI_ERR_ILLEGAL_OPERATION, SCISetSegmentAvailable(segment, ADAPTER, 0, &error));
	bad(SCI_ERR_NO_SUCH_SEGMENT, SCIConnectSegment(device, &remote, own_id(), id, ADAPTER,
						       NULL, NULL, FOREVER, 0, &error));
	creates(SCI_ERR_OK, device, &other, id, 8, 0);
}

/* --- Sizes --- */

static void size_zero(void)
{
	sci_desc_t device = new_device();
	sci_local_segment_t segment;

	creates(SCI_ERR_ILLEGAL_PARAMETER, device, &segment, new_id(), 0, 0);
	creates(SCI_ERR_OK, device, &segment, new_id(), 0, SCI_FLAG_EMPTY);
}

static void size_rounded(void)
{
	static const struct {
		size_t asked;
		size_t told;
	} sizes[] = {
		{ 1, 8 }, { 4, 8 }, { 8, 8 }, { 9, 16 }, { 4095, 4096 }, { 4097, 4104 },
		{ 1000003, 1000008 },
	};
	struct local local;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		local = exported(sizes[i].asked);
		same(SCIGetLocalSegmentSize(local.segment), sizes[i].told);
		same(SCIGetRemoteSegmentSize(connect_segment(local.device, own_id(), local.id)),
		     sizes[i].told);
		fill(local.memory, i, sizes[i].told);
		same(differs(local.memory, i, sizes[i].told), -1);
	}
}

static void size_large(void)
{
	struct local local = exported(64 * MIB);
	struct remote remote = own_remote(&local);

	same(SCIGetRemoteSegmentSize(remote.segment), 64 * MIB);
	local.memory[64 * MIB - 1] = 0x77;
	same(remote.memory[64 * MIB - 1], 0x77);
}

static void size_absurd(void)
{
	sci_desc_t device = new_device();
	sci_local_segment_t segment;
	unsigned int id = new_id();

	expect(create(device, &segment, id, SIZE_MAX, 0) != SCI_ERR_OK);
	expect(create(device, &segment, id, SIZE_MAX / 2, 0) != SCI_ERR_OK);
	/* Nothing of the failed segment remains. */
	creates(SCI_ERR_OK, device, &segment, id, 8, 0);
}

/* The segment does not show the former content of its memory. */
static void content_zero(void)
{
	struct local local = created(MIB);

	same(differs_from_byte(local.memory, 0, MIB), -1);
	fill(local.memory, 1, MIB);
	good(SCIUnmapSegment(local.map, 0, &error));
	good(SCIRemoveSegment(local.segment, 0, &error));
	local = created(MIB);
	same(differs_from_byte(local.memory, 0, MIB), -1);
}

/* --- States --- */

static void states(void)
{
	struct local local = created(8);

	bad(SCI_ERR_SEGMENT_NOT_PREPARED,
	    SCISetSegmentAvailable(local.segment, ADAPTER, 0, &error));
	good(SCIPrepareSegment(local.segment, ADAPTER, 0, &error));
	bad(SCI_ERR_ILLEGAL_OPERATION, SCIPrepareSegment(local.segment, ADAPTER, 0, &error));
	bad(SCI_ERR_ILLEGAL_OPERATION,
	    SCISetSegmentUnavailable(local.segment, ADAPTER, 0, &error));
	good(SCISetSegmentAvailable(local.segment, ADAPTER, 0, &error));
	bad(SCI_ERR_ILLEGAL_OPERATION,
	    SCISetSegmentAvailable(local.segment, ADAPTER, 0, &error));
	bad(SCI_ERR_ILLEGAL_OPERATION, SCIPrepareSegment(local.segment, ADAPTER, 0, &error));
	good(SCISetSegmentUnavailable(local.segment, ADAPTER, 0, &error));
	bad(SCI_ERR_ILLEGAL_OPERATION,
	    SCISetSegmentUnavailable(local.segment, ADAPTER, 0, &error));
}

static void available_again(void)
{
	struct local local = exported(8);
	sci_remote_segment_t remote;
	int i;

	for (i = 0; i < 5; i++) {
		good(SCISetSegmentUnavailable(local.segment, ADAPTER, 0, &error));
		bad(SCI_ERR_NO_SUCH_SEGMENT,
		    SCIConnectSegment(local.device, &remote, own_id(), local.id, ADAPTER, NULL,
				      NULL, FOREVER, 0, &error));
		good(SCISetSegmentAvailable(local.segment, ADAPTER, 0, &error));
		remote = connect_segment(local.device, own_id(), local.id);
		good(SCIDisconnectSegment(remote, 0, &error));
	}
}

static void adapters(void)
{
	struct local local = created(8);

	bad(SCI_ERR_NO_SUCH_ADAPTERNO, SCIPrepareSegment(local.segment, 1, 0, &error));
	bad(SCI_ERR_ILLEGAL_ADAPTERNO, SCIPrepareSegment(local.segment, 16, 0, &error));
	good(SCIPrepareSegment(local.segment, ADAPTER, 0, &error));
	bad(SCI_ERR_NO_SUCH_ADAPTERNO, SCISetSegmentAvailable(local.segment, 2, 0, &error));
	bad(SCI_ERR_ILLEGAL_ADAPTERNO, SCISetSegmentAvailable(local.segment, 99, 0, &error));
	good(SCISetSegmentAvailable(local.segment, ADAPTER, 0, &error));
	bad(SCI_ERR_NO_SUCH_ADAPTERNO, SCISetSegmentUnavailable(local.segment, 15, 0, &error));
	good(SCISetSegmentUnavailable(local.segment, ADAPTER, 0, &error));
}

static void remove_in_each_state(void)
{
	struct local local;
	int state;

	for (state = 0; state < 4; state++) {
		local = state == 0 ? created(8) : state == 1 ? prepared(8) : exported(8);
		if (state == 3)
			good(SCISetSegmentUnavailable(local.segment, ADAPTER, 0, &error));
		good(SCIUnmapSegment(local.map, 0, &error));
		good(SCIRemoveSegment(local.segment, 0, &error));
		good(SCIClose(local.device, 0, &error));
	}
}

static void remove_busy(void)
{
	struct local local = exported(8192);
	sci_map_t other;

	good(SCIMapLocalSegment(local.segment, &other, 4096, 4096, NULL, 0, &error));
	bad(SCI_ERR_BUSY, SCIRemoveSegment(local.segment, 0, &error));
	good(SCIUnmapSegment(local.map, 0, &error));
	bad(SCI_ERR_BUSY, SCIRemoveSegment(local.segment, 0, &error));
	/* The segment has not changed. */
	connect_segment(local.device, own_id(), local.id);
	good(SCIUnmapSegment(other, 0, &error));
	good(SCIRemoveSegment(local.segment, 0, &error));
}

static void remove_leaves_memory(void)
{
	struct remote remote = new_remote(8192);
	struct peer *peer = remote.there.peer;
	sci_remote_segment_t other;

	there(peer, DO_FILL, remote.there.memory, 3, 8192);
	there(peer, THERE_UNMAP, remote.there.map);
	there(peer, THERE_REMOVE, remote.there.segment, 0);
	/* An importer that is connected still has the segment. */
	same(remote_differs(remote.memory, 3, 8192), -1);
	fill_remote(remote.memory, 4, 8192);
	same(remote_differs(remote.memory, 4, 8192), -1);
	/* No other importer can connect. */
	bad(SCI_ERR_NO_SUCH_SEGMENT,
	    SCIConnectSegment(remote.device, &other, peer_id(peer), remote.there.id, ADAPTER,
			      NULL, NULL, FOREVER, 0, &error));
	good(SCIUnmapSegment(remote.map, 0, &error));
	good(SCIDisconnectSegment(remote.segment, 0, &error));
}

/* The exporter removes a connected segment. */
static void remove_connected_by_peer(void)
{
	struct local local = exported(8192);
	struct importer importer = imported_by(new_peer(), &local);

	fill(local.memory, 7, 8192);
	good(SCIUnmapSegment(local.map, 0, &error));
	good(SCIRemoveSegment(local.segment, 0, &error));
	same(ask(importer.peer, DO_DIFFERS, importer.memory, 7, 8192), -1);
	there(importer.peer, THERE_UNMAP, importer.map);
	there(importer.peer, THERE_DISCONNECT, importer.segment);
}

static void remove_frees_pages(void)
{
	long before = pinned();
	struct local local = exported(MIB);
	struct importer importer = imported_by(new_peer(), &local);

	good(SCIUnmapSegment(local.map, 0, &error));
	good(SCIRemoveSegment(local.segment, 0, &error));
	there(importer.peer, THERE_UNMAP, importer.map);
	there(importer.peer, THERE_DISCONNECT, importer.segment);
	begin(importer.peer, DO_EXIT);
	wait_until(pinned() <= before);
}

/* --- Memory of the program --- */

static void memory_of_the_user(void)
{
	sci_desc_t device = new_device();
	unsigned char *memory = pages(4);
	struct local local = { .device = device, .id = new_id(), .size = 4 * PAGE };
	struct importer importer;

	creates(SCI_ERR_OK, device, &local.segment, local.id, 0, SCI_FLAG_EMPTY);
	good(SCIRegisterSegmentMemory(memory, 4 * PAGE, local.segment, 0, &error));
	same(SCIGetLocalSegmentSize(local.segment), 4 * PAGE);
	good(SCIPrepareSegment(local.segment, ADAPTER, 0, &error));
	good(SCISetSegmentAvailable(local.segment, ADAPTER, 0, &error));
	fill(memory, 21, 4 * PAGE);
	importer = imported_by(new_peer(), &local);
	same(ask(importer.peer, DO_DIFFERS, importer.memory, 21, 4 * PAGE), -1);
	ask(importer.peer, DO_FILL, importer.memory, 22, 4 * PAGE);
	wait_until(differs(memory, 22, 4 * PAGE) == -1);
}

static void empty_alone(void)
{
	sci_desc_t device = new_device();
	sci_local_segment_t segment;

	/* An empty segment can't be used before it has memory. */
	creates(SCI_ERR_OK, device, &segment, new_id(), 0, SCI_FLAG_EMPTY);
	before_call();
	SCIPrepareSegment(segment, ADAPTER, 0, &error);
	expect(error != SCI_ERR_OK);
	good(SCIRemoveSegment(segment, 0, &error));
}

static void memory_bad(void)
{
	struct local local = created(4096);
	sci_local_segment_t segment;

	creates(SCI_ERR_OK, local.device, &segment, new_id(), 0, SCI_FLAG_EMPTY);
	before_call();
	SCIRegisterSegmentMemory(NULL, 4096, segment, 0, &error);
	expect(error != SCI_ERR_OK);
	/* A segment with memory takes no other memory. */
	before_call();
	SCIRegisterSegmentMemory(pages(1), PAGE, local.segment, 0, &error);
	expect(error != SCI_ERR_OK);
}

static void attach_physical(void *data)
{
	sci_local_segment_t segment;
	sci_desc_t device = new_device();

	creates(SCI_ERR_OK, device, &segment, new_id(), 0, SCI_FLAG_EMPTY | SCI_FLAG_PHYSICAL);
	drop_privileges(MIB);
	bad(SCI_ERR_ACCESS,
	    SCIAttachPhysicalMemory(0x100000, NULL, 0, 4096, segment, 0, &error));
}

static void physical_unprivileged(void)
{
	child_passed(in_child(attach_physical, NULL));
}

/* --- Callbacks, flags --- */

static void callback_without_flag(void)
{
	sci_desc_t device = new_device();
	sci_local_segment_t segment;
	struct call_log *log = new_log();
	unsigned int id = new_id();

	good(SCICreateSegment(device, &segment, id, 8, log_local, log, 0, &error));
	good(SCIPrepareSegment(segment, ADAPTER, 0, &error));
	good(SCISetSegmentAvailable(segment, ADAPTER, 0, &error));
	connect_segment(device, own_id(), id);
	/* So a wait gets the event. */
	same(local_event(segment, SCI_CB_CONNECT), own_id());
	same(calls(log), 0);
}

static void callback_missing(void)
{
	sci_desc_t device = new_device();
	sci_local_segment_t segment;

	bad(SCI_ERR_ILLEGAL_PARAMETER,
	    SCICreateSegment(device, &segment, new_id(), 8, NULL, NULL, SCI_FLAG_USE_CALLBACK,
			     &error));
}

/* The driver chooses the engine. A hint is accepted, and changes nothing. */
static void dma_hints(void)
{
	const unsigned int hints =
		SCI_FLAG_DMA_GLOBAL | SCI_FLAG_DMA_ADAPTER | SCI_FLAG_DMA_SYSDMA;
	sci_desc_t device = new_device();
	sci_local_segment_t segment;
	sci_dma_queue_t queue;

	creates(SCI_ERR_OK, device, &segment, new_id(), 8, SCI_FLAG_DMA_GLOBAL);
	good(SCIPrepareSegment(segment, ADAPTER, SCI_FLAG_DMA_GLOBAL, &error));
	good(SCISetSegmentAvailable(segment, ADAPTER, 0, &error));
	good(SCIRemoveSegment(segment, 0, &error));
	good(SCICreateDMAQueue(device, &queue, ADAPTER, 1, hints, &error));
	good(SCIRemoveDMAQueue(queue, 0, &error));
	/* In calls where they are no hints, the flags are unknown. */
	bad(SCI_ERR_ILLEGAL_FLAG,
	    SCICreateDMAQueue(device, &queue, ADAPTER, 1, SCI_FLAG_DMA_READ, &error));
	good(SCIClose(device, 0, &error));
}

static void many_segments(void)
{
	struct local local[100];
	int i;

	for (i = 0; i < 100; i++)
		local[i] = exported(4096);
	for (i = 0; i < 100; i++)
		local[i].memory[0] = i;
	for (i = 0; i < 100; i++)
		same(own_remote(&local[i]).memory[0], i);
}

/* --- Limits of the process --- */

static void prepare_beyond_limit(void *data)
{
	struct rlimit most = { 64 * 1024, 64 * 1024 };
	struct local local;

	expect_value(setrlimit(RLIMIT_MEMLOCK, &most), 0);
	act_for(12345);
	local = created(MIB);
	bad(SCI_ERR_NOSPC, SCIPrepareSegment(local.segment, ADAPTER, 0, &error));
	prepared(4096);
}

static void segment_locked_limit(void)
{
	child_passed(in_child(prepare_beyond_limit, NULL));
}

const struct test_case segment_cases[] = {
	ALONE(id_and_size, "segment.id segment.size"),
	ALONE(id_used, "segment.id-used segment.id-free"),
	PAIR(id_used_by_process, "segment.id-used"),
	ALONE(id_any_number, "segment.id"),
	ALONE(id_classes, "segment.id-class"),
	ALONE(id_auto, "segment.auto-id"),
	ALONE(private_segment, "segment.private"),
	ALONE(size_zero, "segment.size-zero segment.empty"),
	ALONE(size_rounded, "segment.size-rounded"),
	ALONE(size_large, "segment.size"),
	ALONE(size_absurd, "segment.no-space"),
	ALONE(content_zero, "segment.content"),
	ALONE(states, "segment.prepare-twice segment.available-unprepared segment.available-twice"),
	ALONE(available_again, "segment.unavailable"),
	ALONE(adapters, "adapter.numbers"),
	ALONE(remove_in_each_state, "segment.remove-any-state"),
	ALONE(remove_busy, "segment.remove-busy"),
	PAIR(remove_leaves_memory, "segment.remove-connected"),
	PAIR(remove_connected_by_peer, "segment.remove-connected"),
	PAIR(remove_frees_pages, "segment.remove-connected"),
	PAIR(memory_of_the_user, "segment.user-memory"),
	ALONE(empty_alone, "segment.empty"),
	ALONE(memory_bad, "segment.user-memory"),
	ALONE(physical_unprivileged, "segment.physical-privileged"),
	ALONE(callback_without_flag, "callback.flag"),
	ALONE(callback_missing, "callback.flag"),
	ALONE(dma_hints, "flags.hints"),
	ALONE(many_segments, "segment.many"),
	ALONE(segment_locked_limit, "segment.locked-limit"),
	{ }
};
