// SPDX-License-Identifier: GPL-2.0
/*
 * Several threads, each with its own resources, and all with the same.
 */
#include "sisci_suite.h"

#define THREADS	4

static void run_threads(void *(*function)(void *data), void *data)
{
	pthread_t thread[THREADS];
	int i;

	for (i = 0; i < THREADS; i++)
		thread[i] = in_thread(function, data);
	for (i = 0; i < THREADS; i++)
		thread_result(thread[i]);
}

static void *open_and_close(void *data)
{
	sci_desc_t device;
	int i;

	for (i = 0; i < 200; i++) {
		good(SCIOpen(&device, 0, &error));
		good(SCIClose(device, 0, &error));
	}
	return NULL;
}

static void threads_open(void)
{
	initialize();
	run_threads(open_and_close, NULL);
}

static void *all_of_ones_own(void *data)
{
	sci_local_segment_t segment;
	sci_remote_segment_t remote;
	volatile __u32 *remote_word;
	sci_desc_t device = *(sci_desc_t *)data;
	sci_map_t map, remote_map;
	__u32 *word;
	int i;

	for (i = 1; i <= 20; i++) {
		good(SCICreateSegment(device, &segment, 0, 4096, NULL, NULL, SCI_FLAG_AUTO_ID,
				      &error));
		good(word = SCIMapLocalSegment(segment, &map, 0, 4096, NULL, 0, &error));
		good(SCIPrepareSegment(segment, ADAPTER, 0, &error));
		good(SCISetSegmentAvailable(segment, ADAPTER, 0, &error));
		remote = connect_segment(device, own_id(), SCIGetLocalSegmentId(segment));
		good(remote_word = SCIMapRemoteSegment(remote, &remote_map, 0, 4096, NULL, 0,
						       &error));
		*remote_word = i;
		same(*word, i);
		good(SCIUnmapSegment(remote_map, 0, &error));
		good(SCIDisconnectSegment(remote, 0, &error));
		good(SCIUnmapSegment(map, 0, &error));
		good(SCIRemoveSegment(segment, 0, &error));
	}
	return NULL;
}

static void threads_segments(void)
{
	sci_desc_t device = new_device();

	run_threads(all_of_ones_own, &device);
	good(SCIClose(device, 0, &error));
}

struct shared_segments {
	struct local local;
	struct remote remote;
};

static void *copy_pieces(void *data)
{
	struct shared_segments *shared = data;
	sci_dma_queue_t queue = new_queue(shared->local.device, 1);
	static int next;
	int at = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % THREADS;
	int i;

	for (i = 0; i < 25; i++) {
		fill(shared->local.memory + at * 65536, i * THREADS + at, 65536);
		good(SCIStartDmaTransfer(queue, shared->local.segment, shared->remote.segment,
					 at * 65536, 65536, at * 65536, NULL, NULL, 0, &error));
		same(SCIWaitForDMAQueue(queue, FOREVER, 0, &error), SCI_DMAQUEUE_DONE);
	}
	good(SCIRemoveDMAQueue(queue, 0, &error));
	return (void *)(long)(24 * THREADS + at);
}

static void threads_transfers(void)
{
	struct shared_segments shared = { .local = prepared(THREADS * 65536) };
	struct theirs there = exported_by(new_peer(), THREADS * 65536);
	int i;

	shared.remote.segment = connect_segment(shared.local.device, peer_id(there.peer),
						there.id);
	run_threads(copy_pieces, &shared);
	for (i = 0; i < THREADS; i++)
		same(ask(there.peer, DO_DIFFERS, there.memory + i * 65536, 24 * THREADS + i,
			 65536), -1);
}

static void *map_and_unmap(void *data)
{
	struct remote *remote = data;
	volatile __u32 *word;
	sci_map_t map;
	int i;

	for (i = 0; i < 100; i++) {
		good(word = SCIMapRemoteSegment(remote->segment, &map, 0, 4096, NULL, 0, &error));
		same(*word, 4711);
		good(SCIRemoveSequence(new_sequence(map), 0, &error));
		good(SCIUnmapSegment(map, 0, &error));
	}
	return NULL;
}

static void threads_maps(void)
{
	struct remote remote = new_remote(4096);

	*(volatile __u32 *)remote.memory = 4711;
	run_threads(map_and_unmap, &remote);
}

static void *trigger_fifty(void *data)
{
	int i;

	for (i = 0; i < 50; i++)
		good(SCITriggerInterrupt(data, 0, &error));
	return NULL;
}

static void threads_trigger(void)
{
	struct peer *peer = new_peer();
	__s64 interrupt = there(peer, THERE_INTERRUPT, there(peer, THERE_OPEN), 0,
				SCI_FLAG_COUNTING_INT);
	sci_remote_interrupt_t remote;
	int i;

	remote = connect_interrupt(new_device(), peer_id(peer), answer(peer, 0));
	run_threads(trigger_fifty, remote);
	for (i = 0; i < 50 * THREADS; i++)
		there(peer, THERE_WAIT_INTERRUPT, interrupt, FOREVER);
	there_bad(peer, SCI_ERR_TIMEOUT, THERE_WAIT_INTERRUPT, interrupt, 0);
}

/* Releases a handle. The first thread succeeds, and for the others it is stale. */
static void *release_it(void *data)
{
	bad_either(SCI_ERR_OK, STALE, SCIRemoveInterrupt(data, 0, &error));
	return (void *)(long)(error == SCI_ERR_OK);
}

static void threads_release(void)
{
	sci_desc_t device = new_device();
	sci_local_interrupt_t interrupt;
	pthread_t thread[THREADS];
	unsigned int number = 0;
	int i, round, released;

	for (round = 0; round < 30; round++) {
		interrupt = new_interrupt(device, &number, 0);
		released = 0;
		for (i = 0; i < THREADS; i++)
			thread[i] = in_thread(release_it, interrupt);
		for (i = 0; i < THREADS; i++)
			released += (long)thread_result(thread[i]);
		same(released, 1);
	}
	good(SCIClose(device, 0, &error));
}

static void *start_until_busy(void *data)
{
	struct shared_segments *shared = data;
	sci_dma_queue_t queue = (sci_dma_queue_t)shared->remote.memory;
	int i;

	for (i = 0; i < 20; i++) {
		bad_either(SCI_ERR_OK, SCI_ERR_ILLEGAL_OPERATION,
			   SCIStartDmaTransfer(queue, shared->local.segment,
					       shared->remote.segment, 0, 65536, 0, NULL, NULL,
					       0, &error));
		before_call();
		SCIWaitForDMAQueue(queue, FOREVER, 0, &error);
	}
	return NULL;
}

/* Several threads use one queue without any agreement. */
static void threads_one_queue(void)
{
	struct local target = exported(65536);
	struct shared_segments shared = { .local = prepared(65536) };
	sci_dma_queue_t queue = new_queue(target.device, 1);

	shared.remote.segment = connect_segment(target.device, own_id(), target.id);
	shared.remote.memory = (void *)queue;
	run_threads(start_until_busy, &shared);
	same(SCIDMAQueueState(queue), SCI_DMAQUEUE_DONE);
}

/* --- A transfer that one thread starts and another one waits for --- */

#define ENTRIES	256

struct started {
	struct local *target;
	sci_dma_queue_t queue;
	__u32 round;
	int has_returned;
};

static __u32 word_of(struct local *local, int page)
{
	return *(volatile __u32 *)(local->memory + page * 4096);
}

/* Waits from the moment on at which the transfer is posted. */
static void *wait_for_started(void *data)
{
	struct started *started = data;
	int i;

	while (SCIDMAQueueState(started->queue) != SCI_DMAQUEUE_POSTED &&
	       !__atomic_load_n(&started->has_returned, __ATOMIC_ACQUIRE))
		;
	same(SCIWaitForDMAQueue(started->queue, FOREVER, 0, &error), SCI_DMAQUEUE_DONE);
	for (i = 0; i < ENTRIES; i++)
		same(word_of(started->target, i), started->round);
	return NULL;
}

static void threads_wait_for_start(void)
{
	struct local target = exported(ENTRIES * 4096), source = prepared(ENTRIES * 4096);
	struct started started = { &target, new_queue(target.device, 1) };
	sci_remote_segment_t remote = connect_segment(target.device, own_id(), target.id);
	dis_dma_vec_t vector[ENTRIES];
	pthread_t thread;
	int i;

	/* No entry is adjacent to the one before it. */
	for (i = 0; i < ENTRIES; i++)
		vector[i] = (dis_dma_vec_t){
			.size = 4096,
			.local_offset = i * 4096,
			.remote_offset = (ENTRIES - 1 - i) * 4096,
		};
	for (started.round = 1; started.round <= 20; started.round++) {
		for (i = 0; i < ENTRIES; i++)
			*(volatile __u32 *)(source.memory + i * 4096) = started.round;
		started.has_returned = 0;
		thread = in_thread(wait_for_started, &started);
		good(SCIStartDmaTransferVec(started.queue, source.segment, remote, ENTRIES, vector,
					    NULL, NULL, 0, &error));
		__atomic_store_n(&started.has_returned, 1, __ATOMIC_RELEASE);
		thread_result(thread);
	}
}

static void *terminate(void *data)
{
	poll(NULL, 0, A_MOMENT);
	SCITerminate();
	return NULL;
}

/* One thread ends the library while another one waits in it. */
static void threads_terminate(void)
{
	unsigned int number = 0;
	sci_local_interrupt_t interrupt = new_interrupt(new_device(), &number, 0);
	pthread_t thread = in_thread(terminate, NULL);

	bad(SCI_ERR_CANCELLED, SCIWaitForInterrupt(interrupt, FOREVER, 0, &error));
	thread_result(thread);
	bad(SCI_ERR_NOT_INITIALIZED, SCIWaitForInterrupt(interrupt, 0, 0, &error));
}

const struct test_case thread_cases[] = {
	ALONE(threads_open, "thread.many"),
	ALONE(threads_segments, "thread.many device.many"),
	PAIR(threads_transfers, "thread.many"),
	PAIR_MAPPED(threads_maps, "thread.many"),
	PAIR(threads_trigger, "thread.many interrupt.counting"),
	ALONE(threads_release, "thread.many handle.stale"),
	ALONE(threads_one_queue, "thread.many dma.busy"),
	ALONE(threads_wait_for_start, "thread.many dma.wait-final"),
	ALONE(threads_terminate, "interrupt.cancelled init.after"),
	{ }
};
