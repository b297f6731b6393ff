// SPDX-License-Identifier: GPL-2.0
/*
 * DMA queues: single transfers, their states and errors.
 */
#include "sisci_suite.h"

#define SIZE	(256 * 1024L)

/* A queue, a local source and a remote segment. */
struct transfer {
	struct local local;
	struct remote remote;
	sci_dma_queue_t queue;
};

static struct transfer new_transfer(size_t size, unsigned int entries)
{
	struct transfer transfer = { .local = prepared(size) };

	transfer.remote.there = exported_by(new_peer(), size);
	transfer.remote.device = transfer.local.device;
	transfer.remote.segment = connect_segment(transfer.local.device,
						  peer_id(transfer.remote.there.peer),
						  transfer.remote.there.id);
	transfer.queue = new_queue(transfer.local.device, entries);
	return transfer;
}

static sci_error_t start(struct transfer *transfer, size_t from, size_t size, size_t to,
			 unsigned int flags)
{
	before_call();
	SCIStartDmaTransfer(transfer->queue, transfer->local.segment, transfer->remote.segment,
			    from, size, to, NULL, NULL, flags, &error);
	return error;
}

static void finish(struct transfer *transfer)
{
	sci_dma_queue_state_t state;

	good(state = SCIWaitForDMAQueue(transfer->queue, FOREVER, 0, &error));
	same(state, SCI_DMAQUEUE_DONE);
	same(SCIDMAQueueState(transfer->queue), SCI_DMAQUEUE_DONE);
}

#define starts(expected, ...)	same(start(__VA_ARGS__), expected)

static long peer_differs(struct transfer *transfer, long offset, __u32 seed, long len)
{
	struct theirs *there = &transfer->remote.there;

	return ask(there->peer, DO_DIFFERS, there->memory + offset, seed, len);
}

static void fill_there(struct transfer *transfer, long offset, __u32 seed, long len)
{
	struct theirs *there = &transfer->remote.there;

	ask(there->peer, DO_FILL, there->memory + offset, seed, len);
}

static void queue_create(void)
{
	sci_desc_t device = new_device();
	sci_dma_queue_t queue = new_queue(device, 4);

	same(SCIDMAQueueState(queue), SCI_DMAQUEUE_IDLE);
	/* The query does not change the state. */
	same(SCIDMAQueueState(queue), SCI_DMAQUEUE_IDLE);
	good(SCIRemoveDMAQueue(queue, 0, &error));
	bad(STALE, SCIRemoveDMAQueue(queue, 0, &error));
	good(SCIClose(device, 0, &error));
}

static void dma_push(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);

	fill(transfer.local.memory, 1, SIZE);
	starts(SCI_ERR_OK, &transfer, 0, SIZE, 0, 0);
	finish(&transfer);
	same(peer_differs(&transfer, 0, 1, SIZE), -1);
	same(differs(transfer.local.memory, 1, SIZE), -1);
}

static void dma_pull(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);

	fill_there(&transfer, 0, 2, SIZE);
	starts(SCI_ERR_OK, &transfer, 0, SIZE, 0, SCI_FLAG_DMA_READ);
	finish(&transfer);
	same(differs(transfer.local.memory, 2, SIZE), -1);
	same(peer_differs(&transfer, 0, 2, SIZE), -1);
}

static void dma_part(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);

	memset(transfer.local.memory, 0x33, SIZE);
	fill(transfer.local.memory + 8192, 3, 4096);
	starts(SCI_ERR_OK, &transfer, 8192, 4096, 65536, 0);
	finish(&transfer);
	same(peer_differs(&transfer, 65536, 3, 4096), -1);
	/* No byte beside the transfer has changed. */
	same(ask(transfer.remote.there.peer, DO_DIFFERS_FROM_BYTE,
		 transfer.remote.there.memory, 0, 65536), -1);
	same(ask(transfer.remote.there.peer, DO_DIFFERS_FROM_BYTE,
		 transfer.remote.there.memory + 65536 + 4096, 0, 4096), -1);
}

static void dma_unaligned(void)
{
	static const size_t sizes[] = { 1, 3, 4, 7, 8, 63, 64, 65, 4095, 4097, 10001 };
	static const size_t offsets[] = { 0, 1, 4, 63, 4095 };
	struct transfer transfer = new_transfer(SIZE, 1);
	size_t size, from, to;
	__u32 seed = 0;

	for (size = 0; size < ARRAY_SIZE(sizes); size++) {
		for (from = 0; from < ARRAY_SIZE(offsets); from++) {
			to = (from + size) % ARRAY_SIZE(offsets);
			fill(transfer.local.memory + offsets[from], ++seed, sizes[size]);
			starts(SCI_ERR_OK, &transfer, offsets[from], sizes[size], offsets[to], 0);
			finish(&transfer);
			same(peer_differs(&transfer, offsets[to], seed, sizes[size]), -1);
			starts(SCI_ERR_OK, &transfer, 65537, sizes[size], offsets[to],
			       SCI_FLAG_DMA_READ);
			finish(&transfer);
			same(differs(transfer.local.memory + 65537, seed, sizes[size]), -1);
		}
	}
}

static void dma_guide_size(void)
{
	/* The guide transfers four bytes, which are the whole segment. */
	struct transfer transfer = new_transfer(4, 1);

	*(__u32 *)transfer.local.memory = 12345;
	starts(SCI_ERR_OK, &transfer, 0, 4, 0, 0);
	finish(&transfer);
	same(there(transfer.remote.there.peer, THERE_LOAD, transfer.remote.there.memory, 4),
	     12345);
}

static void dma_out_of_range(void)
{
	struct transfer transfer = new_transfer(8192, 1);

	starts(SCI_ERR_OUT_OF_RANGE, &transfer, 0, 8193, 0, 0);
	starts(SCI_ERR_OUT_OF_RANGE, &transfer, 4096, 4097, 0, 0);
	starts(SCI_ERR_OUT_OF_RANGE, &transfer, 0, 4097, 4096, 0);
	starts(SCI_ERR_OUT_OF_RANGE, &transfer, 0, 8, 8192, SCI_FLAG_DMA_READ);
	starts(SCI_ERR_OUT_OF_RANGE, &transfer, SIZE_MAX - 7, 8, 0, 0);
	starts(SCI_ERR_OUT_OF_RANGE, &transfer, 0, 16, SIZE_MAX - 7, 0);
	starts(SCI_ERR_ILLEGAL_PARAMETER, &transfer, 0, 0, 0, 0);
	/* None of the refused transfers was started. */
	same(SCIDMAQueueState(transfer.queue), SCI_DMAQUEUE_IDLE);
	starts(SCI_ERR_OK, &transfer, 0, 8192, 0, 0);
	finish(&transfer);
}

static void dma_unprepared(void)
{
	struct transfer transfer = new_transfer(8192, 1);
	struct local local = created(8192);

	transfer.local = local;
	starts(SCI_ERR_SEGMENT_NOT_PREPARED, &transfer, 0, 8192, 0, 0);
	good(SCIPrepareSegment(local.segment, ADAPTER, 0, &error));
	starts(SCI_ERR_OK, &transfer, 0, 8192, 0, 0);
	finish(&transfer);
}

static void dma_bad_handles(void)
{
	struct transfer transfer = new_transfer(8192, 1), copy = transfer;

	copy.local.segment = NULL;
	starts(STALE, &copy, 0, 8, 0, 0);
	copy = transfer;
	copy.remote.segment = NULL;
	starts(STALE, &copy, 0, 8, 0, 0);
	copy.remote.segment = (sci_remote_segment_t)transfer.local.segment;
	starts(STALE, &copy, 0, 8, 0, 0);
	same(SCIDMAQueueState(transfer.queue), SCI_DMAQUEUE_IDLE);
}

static void dma_flags(void)
{
	static const unsigned int hints[] = {
		SCI_FLAG_DMA_GLOBAL, SCI_FLAG_DMA_ADAPTER, SCI_FLAG_DMA_SYSDMA,
	};
	struct transfer transfer = new_transfer(8192, 1);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(hints); i++) {
		fill(transfer.local.memory, 20 + i, 4096);
		starts(SCI_ERR_OK, &transfer, 0, 4096, 0, hints[i]);
		finish(&transfer);
		same(peer_differs(&transfer, 0, 20 + i, 4096), -1);
	}
	/* The call returns when the transfer is complete. */
	starts(SCI_ERR_OK, &transfer, 0, 8192, 0, SCI_FLAG_DMA_WAIT);
	same(SCIDMAQueueState(transfer.queue), SCI_DMAQUEUE_DONE);
}

static void dma_wait_states(void)
{
	struct transfer transfer = new_transfer(8192, 1);

	bad(SCI_ERR_ILLEGAL_OPERATION, SCIWaitForDMAQueue(transfer.queue, 0, 0, &error));
	bad(SCI_ERR_ILLEGAL_OPERATION, SCIWaitForDMAQueue(transfer.queue, FOREVER, 0, &error));
	starts(SCI_ERR_OK, &transfer, 0, 8192, 0, 0);
	finish(&transfer);
	/* In a final state the wait returns at once, any number of times. */
	finish(&transfer);
	same(SCIWaitForDMAQueue(transfer.queue, 0, 0, &error), SCI_DMAQUEUE_DONE);
}

static void dma_wait_times_out(void)
{
	struct transfer transfer = new_transfer(16 * MIB, 1);
	sci_dma_queue_state_t state;
	int i;

	for (i = 0; i < 20; i++) {
		starts(SCI_ERR_OK, &transfer, 0, 16 * MIB, 0, 0);
		/* Either the transfer was fast, or the wait has timed out. */
		before_call();
		state = SCIWaitForDMAQueue(transfer.queue, 0, 0, &error);
		if (error == SCI_ERR_OK)
			same(state, SCI_DMAQUEUE_DONE);
		else
			same(error, SCI_ERR_TIMEOUT);
		finish(&transfer);
	}
}

static void dma_poll(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);

	fill(transfer.local.memory, 4, SIZE);
	starts(SCI_ERR_OK, &transfer, 0, SIZE, 0, 0);
	wait_until(SCIDMAQueueState(transfer.queue) != SCI_DMAQUEUE_POSTED);
	same(SCIDMAQueueState(transfer.queue), SCI_DMAQUEUE_DONE);
	same(peer_differs(&transfer, 0, 4, SIZE), -1);
}

static void dma_reuse(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);
	int i;

	for (i = 0; i < 100; i++) {
		fill(transfer.local.memory + i * 64, i, 64);
		starts(SCI_ERR_OK, &transfer, i * 64, 64, i * 128, 0);
		finish(&transfer);
		same(peer_differs(&transfer, i * 128, i, 64), -1);
	}
}

/* A transfer started while the queue is posted is refused. The transfer in flight completes. */
static void dma_busy(void)
{
	struct transfer transfer = new_transfer(16 * MIB, 1);
	int i, refused = 0;

	fill(transfer.local.memory, 5, 16 * MIB);
	for (i = 0; i < 10; i++) {
		starts(SCI_ERR_OK, &transfer, 0, 16 * MIB, 0, 0);
		if (start(&transfer, 0, 8, 0, 0) != SCI_ERR_OK) {
			same(error, SCI_ERR_ILLEGAL_OPERATION);
			refused++;
		}
		before_call();
		SCIRemoveDMAQueue(transfer.queue, 0, &error);
		if (error == SCI_ERR_OK) {
			transfer.queue = new_queue(transfer.local.device, 1);
			continue;
		}
		same(error, SCI_ERR_ILLEGAL_OPERATION);
		finish(&transfer);
	}
	same(peer_differs(&transfer, 0, 5, 16 * MIB), -1);
}

static void dma_segments_busy(void)
{
	struct transfer transfer = new_transfer(16 * MIB, 1);

	good(SCIUnmapSegment(transfer.local.map, 0, &error));
	starts(SCI_ERR_OK, &transfer, 0, 16 * MIB, 0, 0);
	/* The segment is busy as long as the transfer is in flight. */
	wait_until((before_call(), SCIRemoveSegment(transfer.local.segment, 0, &error),
		    error != SCI_ERR_BUSY));
	check_good();
	wait_until((before_call(),
		    SCIDisconnectSegment(transfer.remote.segment, 0, &error),
		    error != SCI_ERR_BUSY));
	check_good();
	same(SCIWaitForDMAQueue(transfer.queue, FOREVER, 0, &error), SCI_DMAQUEUE_DONE);
}

static void dma_private_source(void)
{
	struct transfer transfer = new_transfer(8192, 1);
	unsigned char *memory;
	sci_map_t map;

	good(SCICreateSegment(transfer.local.device, &transfer.local.segment, 0, 8192, NULL,
			      NULL, SCI_FLAG_PRIVATE | SCI_FLAG_DMA_SOURCE_ONLY, &error));
	good(memory = SCIMapLocalSegment(transfer.local.segment, &map, 0, 8192, NULL, 0,
					 &error));
	good(SCIPrepareSegment(transfer.local.segment, ADAPTER, 0, &error));
	fill(memory, 8, 8192);
	starts(SCI_ERR_OK, &transfer, 0, 8192, 0, 0);
	finish(&transfer);
	same(peer_differs(&transfer, 0, 8, 8192), -1);
}

/* Two threads use a queue each, with one segment. */
static void dma_two_queues(void)
{
	struct transfer one = new_transfer(2 * MIB, 1), two = one;
	int i;

	two.queue = new_queue(one.local.device, 1);
	for (i = 0; i < 10; i++) {
		fill(one.local.memory, 2 * i, MIB);
		fill(one.local.memory + MIB, 2 * i + 1, MIB);
		starts(SCI_ERR_OK, &one, 0, MIB, 0, 0);
		starts(SCI_ERR_OK, &two, MIB, MIB, MIB, 0);
		finish(&two);
		finish(&one);
		same(peer_differs(&one, 0, 2 * i, MIB), -1);
		same(peer_differs(&one, MIB, 2 * i + 1, MIB), -1);
	}
}

static void dma_own_node(void)
{
	struct local local = exported(SIZE), source = prepared(SIZE);
	struct remote remote = own_remote(&local);
	sci_dma_queue_t queue = new_queue(local.device, 1);

	fill(source.memory, 6, SIZE);
	good(SCIStartDmaTransfer(queue, source.segment, remote.segment, 0, SIZE, 0, NULL, NULL,
				 0, &error));
	same(SCIWaitForDMAQueue(queue, FOREVER, 0, &error), SCI_DMAQUEUE_DONE);
	same(differs(local.memory, 6, SIZE), -1);
}

/* Data written by DMA arrives before an interrupt triggered after it. */
static void dma_then_interrupt(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);
	struct theirs *there = &transfer.remote.there;
	__s64 interrupt = there(there->peer, THERE_INTERRUPT, there->device, 0, 0);
	sci_remote_interrupt_t remote;
	int i;

	remote = connect_interrupt(transfer.local.device, peer_id(there->peer),
				   answer(there->peer, 0));
	for (i = 0; i < 10; i++) {
		fill(transfer.local.memory, 50 + i, SIZE);
		begin(there->peer, THERE_WAIT_INTERRUPT, interrupt, FOREVER);
		starts(SCI_ERR_OK, &transfer, 0, SIZE, 0, 0);
		finish(&transfer);
		good(SCITriggerInterrupt(remote, 0, &error));
		end_good(there->peer);
		same(peer_differs(&transfer, 0, 50 + i, SIZE), -1);
	}
}

static void dma_from_peer(void)
{
	struct local local = exported(SIZE);
	struct peer *peer = new_peer();
	struct theirs source = exported_by(peer, SIZE);
	struct importer importer = imported_by(peer, &local);
	__s64 queue = there(peer, THERE_QUEUE, importer.device, 1);

	ask(peer, DO_FILL, source.memory, 66, SIZE);
	there(peer, THERE_TRANSFER, queue, source.segment, importer.segment, 0, SIZE, 0, 0);
	same(there(peer, THERE_WAIT_QUEUE, queue, FOREVER), SCI_DMAQUEUE_DONE);
	same(differs(local.memory, 66, SIZE), -1);
}

const struct test_case dma_cases[] = {
	ALONE(queue_create, "dma.create dma.state"),
	PAIR(dma_push, "dma.push"),
	PAIR(dma_pull, "dma.pull"),
	PAIR(dma_part, "dma.offsets"),
	PAIR(dma_unaligned, "dma.alignment"),
	PAIR(dma_guide_size, "dma.alignment segment.size-rounded"),
	PAIR(dma_out_of_range, "dma.out-of-range dma.size-zero"),
	PAIR(dma_unprepared, "dma.unprepared"),
	PAIR(dma_bad_handles, "handle.null handle.other-kind"),
	PAIR(dma_flags, "flags.hints dma.wait-flag"),
	PAIR(dma_wait_states, "dma.wait-idle dma.wait-final"),
	PAIR(dma_wait_times_out, "dma.wait-timeout"),
	PAIR(dma_poll, "dma.state"),
	PAIR(dma_reuse, "dma.reuse"),
	PAIR(dma_busy, "dma.busy"),
	PAIR(dma_segments_busy, "segment.remove-busy connect.busy"),
	PAIR(dma_private_source, "segment.private dma.push"),
	PAIR(dma_two_queues, "dma.queues"),
	ALONE(dma_own_node, "dma.push node.own"),
	PAIR(dma_then_interrupt, "dma.order"),
	PAIR(dma_from_peer, "dma.push"),
	{ }
};
