// SPDX-License-Identifier: GPL-2.0
/*
 * DMA with callbacks, with vectors, of the program's own memory, and aborted.
 */
#include <sys/mman.h>

#include "sisci_suite.h"

#define SIZE	(1024 * 1024L)

struct transfer {
	struct local local;
	struct theirs there;
	sci_remote_segment_t remote;
	sci_dma_queue_t queue;
};

static struct transfer new_transfer(size_t size, unsigned int entries)
{
	struct transfer transfer = { .local = prepared(size) };

	transfer.there = exported_by(new_peer(), size);
	transfer.remote = connect_segment(transfer.local.device, peer_id(transfer.there.peer),
					  transfer.there.id);
	transfer.queue = new_queue(transfer.local.device, entries);
	return transfer;
}

static long peer_differs(struct transfer *transfer, long offset, __u32 seed, long len)
{
	return ask(transfer->there.peer, DO_DIFFERS, transfer->there.memory + offset, seed, len);
}

static void start_with_callback(struct transfer *transfer, size_t size, struct call_log *log)
{
	good(SCIStartDmaTransfer(transfer->queue, transfer->local.segment, transfer->remote, 0,
				 size, 0, log_dma, log, SCI_FLAG_USE_CALLBACK, &error));
}

/* --- Callbacks --- */

static void look_at_state(struct call_log *log)
{
	same(SCIDMAQueueState(log->call[log->count].handle), SCI_DMAQUEUE_DONE);
}

static void dma_callback(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);
	struct call_log *log = new_log();

	log->also = look_at_state;
	fill(transfer.local.memory, 1, SIZE);
	start_with_callback(&transfer, SIZE, log);
	called_exactly(log, 1);
	expect(log->call[0].handle == transfer.queue);
	same(log->call[0].status, SCI_ERR_OK);
	same(peer_differs(&transfer, 0, 1, SIZE), -1);
}

static void dma_callback_each(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);
	struct call_log *log = new_log();
	int i;

	for (i = 0; i < 50; i++) {
		start_with_callback(&transfer, 4096, log);
		wait_until(calls(log) == i + 1);
		/* The callback runs in the final state. It may not have returned yet. */
	}
	called_exactly(log, 50);
}

static void dma_callback_excludes(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);
	struct call_log *log = new_log();

	start_with_callback(&transfer, SIZE, log);
	bad(SCI_ERR_ILLEGAL_OPERATION, SCIWaitForDMAQueue(transfer.queue, FOREVER, 0, &error));
	called_exactly(log, 1);
}

static void dma_callback_ignored(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);
	struct call_log *log = new_log();

	good(SCIStartDmaTransfer(transfer.queue, transfer.local.segment, transfer.remote, 0, SIZE,
				 0, log_dma, log, 0, &error));
	same(SCIWaitForDMAQueue(transfer.queue, FOREVER, 0, &error), SCI_DMAQUEUE_DONE);
	called_exactly(log, 0);
	bad(SCI_ERR_ILLEGAL_PARAMETER,
	    SCIStartDmaTransfer(transfer.queue, transfer.local.segment, transfer.remote, 0, SIZE,
				0, NULL, NULL, SCI_FLAG_USE_CALLBACK, &error));
}

/* Each callback starts the next transfer. */
static void start_next(struct call_log *log)
{
	struct transfer *transfer = log->data;

	if (log->count < 19)
		start_with_callback(transfer, 4096, log);
}

static void dma_callback_starts(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);
	struct call_log *log = new_log();

	log->also = start_next;
	log->data = &transfer;
	start_with_callback(&transfer, 4096, log);
	called_exactly(log, 20);
}

/* The callback may release the segments of its transfer. */
static void release_segments(struct call_log *log)
{
	struct transfer *transfer = log->data;

	good(SCIDisconnectSegment(transfer->remote, 0, &error));
	good(SCIRemoveSegment(transfer->local.segment, 0, &error));
}

static void dma_callback_releases(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);
	struct call_log *log = new_log();

	good(SCIUnmapSegment(transfer.local.map, 0, &error));
	log->also = release_segments;
	log->data = &transfer;
	start_with_callback(&transfer, SIZE, log);
	called_exactly(log, 1);
	good(SCIRemoveDMAQueue(transfer.queue, 0, &error));
	good(SCIClose(transfer.local.device, 0, &error));
}

/* --- Vectors --- */

static void transfer_vector(struct transfer *transfer, dis_dma_vec_t *vector, size_t entries,
			    unsigned int flags)
{
	sci_dma_queue_state_t state;

	good(SCIStartDmaTransferVec(transfer->queue, transfer->local.segment, transfer->remote,
				    entries, vector, NULL, NULL, flags, &error));
	good(state = SCIWaitForDMAQueue(transfer->queue, FOREVER, 0, &error));
	same(state, SCI_DMAQUEUE_DONE);
}

/* Makes pieces of different sizes, which are in reverse order at the destination. */
static void make_vector(dis_dma_vec_t *vector, int entries)
{
	int i;

	memset(vector, 0, entries * sizeof(*vector));
	for (i = 0; i < entries; i++) {
		vector[i].size = 100 + i;
		vector[i].local_offset = i * 512;
		vector[i].remote_offset = (entries - 1 - i) * 512L;
	}
}

static void vector_push(void)
{
	struct transfer transfer = new_transfer(SIZE, DIS_DMA_MAX_VECLEN);
	dis_dma_vec_t vector[DIS_DMA_MAX_VECLEN];
	int i;

	make_vector(vector, DIS_DMA_MAX_VECLEN);
	for (i = 0; i < DIS_DMA_MAX_VECLEN; i++)
		fill(transfer.local.memory + i * 512, i, 512);
	transfer_vector(&transfer, vector, DIS_DMA_MAX_VECLEN, 0);
	for (i = 0; i < DIS_DMA_MAX_VECLEN; i += 5)
		same(peer_differs(&transfer, vector[i].remote_offset, i, vector[i].size), -1);
}

static void vector_pull(void)
{
	struct transfer transfer = new_transfer(SIZE, DIS_DMA_MAX_VECLEN);
	dis_dma_vec_t vector[DIS_DMA_MAX_VECLEN];
	int i;

	make_vector(vector, DIS_DMA_MAX_VECLEN);
	ask(transfer.there.peer, DO_FILL, transfer.there.memory, 9, SIZE);
	/* Reads all of it back by one transfer. */
	transfer_vector(&transfer, &(dis_dma_vec_t) { .size = SIZE / 2 }, 1, SCI_FLAG_DMA_READ);
	same(differs(transfer.local.memory, 9, SIZE / 2), -1);
	memcpy(transfer.local.memory + SIZE / 2, transfer.local.memory, SIZE / 2);
	memset(transfer.local.memory, 0, SIZE / 2);
	transfer_vector(&transfer, vector, DIS_DMA_MAX_VECLEN, SCI_FLAG_DMA_READ);
	for (i = 0; i < DIS_DMA_MAX_VECLEN; i++)
		expect(!memcmp(transfer.local.memory + vector[i].local_offset,
			       transfer.local.memory + SIZE / 2 + vector[i].remote_offset,
			       vector[i].size));
}

static void vector_entries(void)
{
	struct transfer transfer = new_transfer(SIZE, 4);
	dis_dma_vec_t vector[DIS_DMA_MAX_VECLEN + 1];

	make_vector(vector, ARRAY_SIZE(vector));
	transfer_vector(&transfer, vector, 4, 0);
	/* The number of entries given at the creation of the queue is no limit. */
	transfer_vector(&transfer, vector, 5, 0);
	transfer_vector(&transfer, vector, DIS_DMA_MAX_VECLEN, 0);
	bad(SCI_ERR_MAX_ENTRIES,
	    SCIStartDmaTransferVec(transfer.queue, transfer.local.segment, transfer.remote,
				   DIS_DMA_MAX_VECLEN + 1, vector, NULL, NULL, 0, &error));
	bad(SCI_ERR_ILLEGAL_PARAMETER,
	    SCIStartDmaTransferVec(transfer.queue, transfer.local.segment, transfer.remote, 0,
				   vector, NULL, NULL, 0, &error));
	bad(SCI_ERR_ILLEGAL_PARAMETER,
	    SCIStartDmaTransferVec(transfer.queue, transfer.local.segment, transfer.remote, 1,
				   NULL, NULL, NULL, 0, &error));
}

/* If a vector has an invalid entry, nothing is copied. */
static void vector_bad_entry(void)
{
	struct transfer transfer = new_transfer(SIZE, 8);
	dis_dma_vec_t vector[8];

	fill(transfer.local.memory, 1, SIZE);
	make_vector(vector, 8);
	vector[7].remote_offset = SIZE;
	bad(SCI_ERR_OUT_OF_RANGE,
	    SCIStartDmaTransferVec(transfer.queue, transfer.local.segment, transfer.remote, 8,
				   vector, NULL, NULL, 0, &error));
	make_vector(vector, 8);
	vector[6].local_offset = SIZE - 1;
	bad(SCI_ERR_OUT_OF_RANGE,
	    SCIStartDmaTransferVec(transfer.queue, transfer.local.segment, transfer.remote, 8,
				   vector, NULL, NULL, 0, &error));
	vector[6].size = 0;
	bad(SCI_ERR_ILLEGAL_PARAMETER,
	    SCIStartDmaTransferVec(transfer.queue, transfer.local.segment, transfer.remote, 8,
				   vector, NULL, NULL, 0, &error));
	same(SCIDMAQueueState(transfer.queue), SCI_DMAQUEUE_IDLE);
	same(ask(transfer.there.peer, DO_DIFFERS_FROM_BYTE, transfer.there.memory, 0, SIZE), -1);
}

/* Entries that are adjacent in both segments, in one of them, and in neither. */
static void vector_neighbours(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);
	dis_dma_vec_t vector[DIS_DMA_MAX_VECLEN];
	size_t from = 0, to = 0;
	int i;

	memset(vector, 0, sizeof(vector));
	for (i = 0; i < DIS_DMA_MAX_VECLEN; i++) {
		from += i % 3 == 1 ? 64 : 0;
		to += i % 4 == 1 ? 128 : 0;
		vector[i].size = 1 + i % 500;
		vector[i].local_offset = from;
		vector[i].remote_offset = to;
		fill(transfer.local.memory + from, i, vector[i].size);
		from += vector[i].size;
		to += vector[i].size;
	}
	transfer_vector(&transfer, vector, DIS_DMA_MAX_VECLEN, 0);
	for (i = 0; i < DIS_DMA_MAX_VECLEN; i++)
		same(peer_differs(&transfer, vector[i].remote_offset, i, vector[i].size), -1);
	/* No byte between them has changed. */
	same(ask(transfer.there.peer, DO_DIFFERS_FROM_BYTE,
		 transfer.there.memory + vector[0].size, 0, 128), -1);
	same(ask(transfer.there.peer, DO_DIFFERS_FROM_BYTE, transfer.there.memory + to, 0,
		 SIZE - to), -1);
}

static void vector_callback(void)
{
	struct transfer transfer = new_transfer(SIZE, 64);
	struct call_log *log = new_log();
	dis_dma_vec_t vector[64];

	make_vector(vector, 64);
	good(SCIStartDMATransferVec(transfer.queue, transfer.local.segment, transfer.remote, 64,
				    vector, log_dma, log, SCI_FLAG_USE_CALLBACK, &error));
	/* The callback is called once for the whole vector. */
	called_exactly(log, 1);
	same(log->call[0].status, SCI_ERR_OK);
}

/* The caller may change the vector when the call has returned. */
static void vector_reused(void)
{
	struct transfer transfer = new_transfer(SIZE, 64);
	dis_dma_vec_t vector[64];
	sci_dma_queue_state_t state;
	int i;

	make_vector(vector, 64);
	for (i = 0; i < 64; i++)
		fill(transfer.local.memory + i * 512, i, 512);
	good(SCIStartDmaTransferVec(transfer.queue, transfer.local.segment, transfer.remote, 64,
				    vector, NULL, NULL, 0, &error));
	memset(vector, 0xff, sizeof(vector));
	good(state = SCIWaitForDMAQueue(transfer.queue, FOREVER, 0, &error));
	same(state, SCI_DMAQUEUE_DONE);
	make_vector(vector, 64);
	for (i = 0; i < 64; i++)
		same(peer_differs(&transfer, vector[i].remote_offset, i, vector[i].size), -1);
}

/* --- The program's own memory --- */

static void user_memory(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);
	unsigned char *memory = pages(SIZE / PAGE);
	sci_dma_queue_state_t state;

	fill(memory, 3, SIZE);
	good(SCIStartDmaTransferMem(transfer.queue, memory, transfer.remote, SIZE, 0, NULL, NULL,
				    0, &error));
	good(state = SCIWaitForDMAQueue(transfer.queue, FOREVER, 0, &error));
	same(state, SCI_DMAQUEUE_DONE);
	same(peer_differs(&transfer, 0, 3, SIZE), -1);
	ask(transfer.there.peer, DO_FILL, transfer.there.memory, 4, SIZE);
	good(SCIStartDmaTransferMem(transfer.queue, memory, transfer.remote, SIZE, 0, NULL, NULL,
				    SCI_FLAG_DMA_READ, &error));
	good(state = SCIWaitForDMAQueue(transfer.queue, FOREVER, 0, &error));
	same(state, SCI_DMAQUEUE_DONE);
	same(differs(memory, 4, SIZE), -1);
}

static void user_memory_unaligned(void)
{
	static const long sizes[] = { 1, 5, 64, 1001, 8193 };
	struct transfer transfer = new_transfer(SIZE, 1);
	unsigned char *memory = pages(8);
	size_t i, at;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (at = 1; at < 64; at += 20) {
			fill(memory + at, i + at, sizes[i]);
			good(SCIStartDmaTransferMem(transfer.queue, memory + at, transfer.remote,
						    sizes[i], 3 * at, NULL, NULL, 0, &error));
			same(SCIWaitForDMAQueue(transfer.queue, FOREVER, 0, &error),
			     SCI_DMAQUEUE_DONE);
			same(peer_differs(&transfer, 3 * at, i + at, sizes[i]), -1);
		}
	}
}

/* Unreadable memory leads to an error, whenever it is found, and not to a signal. */
static void user_memory_bad(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);
	unsigned char *memory = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
				     0);
	sci_dma_queue_state_t state = SCI_DMAQUEUE_ERROR;

	before_call();
	SCIStartDmaTransferMem(transfer.queue, memory, transfer.remote, 2 * PAGE, 0, NULL, NULL,
			       0, &error);
	if (error == SCI_ERR_OK)
		state = SCIWaitForDMAQueue(transfer.queue, FOREVER, 0, &error);
	same(state, SCI_DMAQUEUE_ERROR);
	bad(SCI_ERR_ILLEGAL_PARAMETER,
	    SCIStartDmaTransferMem(transfer.queue, NULL, transfer.remote, 8, 0, NULL, NULL, 0,
				   &error));
}

/* --- Abort --- */

static void abort_idle(void)
{
	sci_dma_queue_t queue = new_queue(new_device(), 1);

	good(SCIAbortDMAQueue(queue, 0, &error));
	same(SCIDMAQueueState(queue), SCI_DMAQUEUE_IDLE);
	good(SCIRemoveDMAQueue(queue, 0, &error));
}

static void abort_done(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);

	good(SCIStartDmaTransfer(transfer.queue, transfer.local.segment, transfer.remote, 0, SIZE,
				 0, NULL, NULL, 0, &error));
	same(SCIWaitForDMAQueue(transfer.queue, FOREVER, 0, &error), SCI_DMAQUEUE_DONE);
	good(SCIAbortDMAQueue(transfer.queue, 0, &error));
	same(SCIDMAQueueState(transfer.queue), SCI_DMAQUEUE_DONE);
	good(SCIRemoveDMAQueue(transfer.queue, 0, &error));
}

static void abort_posted(void)
{
	struct transfer transfer = new_transfer(16 * MIB, 16);
	sci_dma_queue_state_t state;
	dis_dma_vec_t vector[16];
	int i, aborted = 0;

	memset(vector, 0, sizeof(vector));
	for (i = 0; i < 16; i++) {
		vector[i].size = MIB;
		vector[i].local_offset = i * MIB;
		vector[i].remote_offset = i * MIB;
	}
	for (i = 0; i < 20; i++) {
		good(SCIStartDmaTransferVec(transfer.queue, transfer.local.segment,
					    transfer.remote, 16, vector, NULL, NULL, 0, &error));
		good(SCIAbortDMAQueue(transfer.queue, 0, &error));
		state = SCIDMAQueueState(transfer.queue);
		expect(state == SCI_DMAQUEUE_ABORTED || state == SCI_DMAQUEUE_DONE);
		aborted += state == SCI_DMAQUEUE_ABORTED;
		/* The state is final: waiting and aborting change nothing. */
		same(SCIWaitForDMAQueue(transfer.queue, FOREVER, 0, &error), state);
		good(SCIAbortDMAQueue(transfer.queue, 0, &error));
		same(SCIDMAQueueState(transfer.queue), state);
	}
	fill(transfer.local.memory, 7, MIB);
	transfer_vector(&transfer, vector, 1, 0);
	same(peer_differs(&transfer, 0, 7, MIB), -1);
	good(SCIRemoveDMAQueue(transfer.queue, 0, &error));
}

/*
 * An engine may complete the present piece when it is aborted. After the return nothing is written.
 */
static void abort_writes_nothing_more(void)
{
	struct transfer transfer = new_transfer(16 * MIB, 1);
	struct theirs *there = &transfer.there;
	int i;

	memset(transfer.local.memory, 0x55, 16 * MIB);
	for (i = 0; i < 5; i++) {
		good(SCIStartDmaTransfer(transfer.queue, transfer.local.segment, transfer.remote,
					 0, 16 * MIB, 0, NULL, NULL, 0, &error));
		good(SCIAbortDMAQueue(transfer.queue, 0, &error));
		ask(there->peer, DO_FILL, there->memory, i, 16 * MIB);
		same(ask(there->peer, DO_DIFFERS, there->memory, i, 16 * MIB), -1);
	}
}

static void abort_no_callback_after(void)
{
	struct transfer transfer = new_transfer(4 * MIB, 4);
	dis_dma_vec_t vector[4];
	struct call_log *log;
	int i, found;

	memset(vector, 0, sizeof(vector));
	for (i = 0; i < 4; i++) {
		vector[i].size = MIB;
		vector[i].local_offset = i * MIB;
		vector[i].remote_offset = i * MIB;
	}
	for (i = 0; i < 50; i++) {
		log = new_log();
		good(SCIStartDmaTransferVec(transfer.queue, transfer.local.segment,
					    transfer.remote, 4, vector, log_dma, log,
					    SCI_FLAG_USE_CALLBACK, &error));
		if (i % 2)
			poll(NULL, 0, i % 5);
		good(SCIAbortDMAQueue(transfer.queue, 0, &error));
		found = calls(log);
		expect(found <= 1);
		poll(NULL, 0, 2);
		same(calls(log), found);
	}
}

static void *abort_soon(void *data)
{
	poll(NULL, 0, 2);
	good(SCIAbortDMAQueue(data, 0, &error));
	return NULL;
}

/* Another thread waits for the transfer meanwhile. */
static void abort_waited_for(void)
{
	struct transfer transfer = new_transfer(16 * MIB, 1);
	sci_dma_queue_state_t state;
	pthread_t thread;
	int i;

	for (i = 0; i < 10; i++) {
		good(SCIStartDmaTransfer(transfer.queue, transfer.local.segment, transfer.remote,
					 0, 16 * MIB, 0, NULL, NULL, 0, &error));
		thread = in_thread(abort_soon, transfer.queue);
		before_call();
		state = SCIWaitForDMAQueue(transfer.queue, FOREVER, 0, &error);
		expect(state == SCI_DMAQUEUE_ABORTED || state == SCI_DMAQUEUE_DONE);
		thread_result(thread);
	}
}

/* --- Errors of transfers in flight --- */

static void dma_peer_gone(void)
{
	struct transfer transfer = new_transfer(SIZE, 1);
	sci_dma_queue_state_t state = SCI_DMAQUEUE_ERROR;

	begin(transfer.there.peer, DO_DIE);
	remote_event(transfer.remote, SCI_CB_LOST);
	before_call();
	SCIStartDmaTransfer(transfer.queue, transfer.local.segment, transfer.remote, 0, SIZE, 0,
			    NULL, NULL, 0, &error);
	if (error == SCI_ERR_OK)
		state = SCIWaitForDMAQueue(transfer.queue, FOREVER, 0, &error);
	same(state, SCI_DMAQUEUE_ERROR);
	good(SCIRemoveDMAQueue(transfer.queue, 0, &error));
	good(SCIDisconnectSegment(transfer.remote, 0, &error));
}

static void dma_waits_restart(void)
{
	struct transfer transfer = new_transfer(16 * MIB, 1);
	sci_dma_queue_state_t state;

	interrupt_repeatedly(false);
	do {
		good(SCIStartDmaTransfer(transfer.queue, transfer.local.segment, transfer.remote,
					 0, 16 * MIB, 0, NULL, NULL, 0, &error));
		good(state = SCIWaitForDMAQueue(transfer.queue, FOREVER, 0, &error));
		same(state, SCI_DMAQUEUE_DONE);
	} while (interruptions() < 5);
	stop_interrupting();
}

const struct test_case dma_more_cases[] = {
	PAIR(dma_callback, "dma.callback"),
	PAIR(dma_callback_each, "dma.callback dma.reuse"),
	PAIR(dma_callback_excludes, "callback.excludes-wait"),
	PAIR(dma_callback_ignored, "callback.flag"),
	PAIR(dma_callback_starts, "dma.callback callback.may-call"),
	PAIR(dma_callback_releases, "dma.callback callback.may-call"),
	PAIR(vector_push, "dma.vector"),
	PAIR(vector_pull, "dma.vector"),
	PAIR(vector_entries, "dma.vector-entries"),
	PAIR(vector_bad_entry, "dma.vector-bad-entry"),
	PAIR(vector_neighbours, "dma.vector"),
	PAIR(vector_callback, "dma.callback"),
	PAIR(vector_reused, "dma.vector"),
	PAIR(user_memory, "dma.user-memory"),
	PAIR(user_memory_unaligned, "dma.user-memory dma.alignment"),
	PAIR(user_memory_bad, "dma.user-memory"),
	ALONE(abort_idle, "dma.abort-idle"),
	PAIR(abort_done, "dma.abort-final"),
	PAIR(abort_posted, "dma.abort dma.abort-final dma.reuse"),
	PAIR(abort_writes_nothing_more, "dma.abort"),
	PAIR(abort_no_callback_after, "dma.abort-no-callback"),
	PAIR(abort_waited_for, "dma.abort"),
	PAIR(dma_peer_gone, "dma.error"),
	PAIR(dma_waits_restart, "wait.restarts"),
	{ }
};
