// SPDX-License-Identifier: GPL-2.0
/*
 * Callbacks of segments, and rules for all callbacks.
 */
#include <signal.h>

#include "sisci_suite.h"

/* Makes an available segment with a callback. */
static sci_local_segment_t with_callback(sci_desc_t device, unsigned int id, struct call_log *log)
{
	sci_local_segment_t segment;

	good(SCICreateSegment(device, &segment, id, 4096, log_local, log, SCI_FLAG_USE_CALLBACK,
			      &error));
	good(SCIPrepareSegment(segment, ADAPTER, 0, &error));
	good(SCISetSegmentAvailable(segment, ADAPTER, 0, &error));
	return segment;
}

static sci_remote_segment_t connect_with_callback(sci_desc_t device, struct theirs there,
						  struct call_log *log)
{
	sci_remote_segment_t segment;

	good(SCIConnectSegment(device, &segment, peer_id(there.peer), there.id, ADAPTER,
			       log_remote, log, FOREVER, SCI_FLAG_USE_CALLBACK, &error));
	return segment;
}

static void local_callback(void)
{
	struct call_log *log = new_log();
	sci_desc_t device = new_device();
	unsigned int id = new_id();
	sci_local_segment_t segment = with_callback(device, id, log);
	struct peer *peer = new_peer();
	__s64 there_device = there(peer, THERE_OPEN);
	__s64 remote = there(peer, THERE_CONNECT, there_device, own_id(), id, FOREVER, 0);

	called_exactly(log, 1);
	expect(log->call[0].handle == segment);
	same(log->call[0].reason, SCI_CB_CONNECT);
	same(log->call[0].node, peer_id(peer));
	same(log->call[0].adapter, ADAPTER);
	same(log->call[0].status, SCI_ERR_OK);
	there(peer, THERE_DISCONNECT, remote);
	called_exactly(log, 2);
	same(log->call[1].reason, SCI_CB_DISCONNECT);
	same(log->call[1].node, peer_id(peer));
}

static void local_callback_excludes(void)
{
	unsigned int node, adapter;
	sci_local_segment_t segment = with_callback(new_device(), new_id(), new_log());

	bad(SCI_ERR_ILLEGAL_OPERATION,
	    SCIWaitForLocalSegmentEvent(segment, &node, &adapter, 0, 0, &error));
	bad(SCI_ERR_ILLEGAL_OPERATION,
	    SCIWaitForLocalSegmentEvent(segment, &node, &adapter, FOREVER, 0, &error));
}

static void local_callback_cancel(void)
{
	struct call_log *log = new_log();
	sci_desc_t device = new_device();
	unsigned int id = new_id();
	sci_local_segment_t segment;

	log->action = SCI_CALLBACK_CANCEL;
	segment = with_callback(device, id, log);
	connect_segment(device, own_id(), id);
	wait_until(calls(log) == 1);
	connect_segment(device, own_id(), id);
	called_exactly(log, 1);
	good(SCIRemoveSegment(segment, 0, &error));
}

static void local_callback_order(void)
{
	struct call_log *log = new_log();
	sci_desc_t device = new_device();
	unsigned int id = new_id();
	int i;

	with_callback(device, id, log);
	for (i = 0; i < 50; i++)
		good(SCIDisconnectSegment(connect_segment(device, own_id(), id), 0, &error));
	called_exactly(log, 100);
	for (i = 0; i < 100; i++)
		same(log->call[i].reason, i % 2 ? SCI_CB_DISCONNECT : SCI_CB_CONNECT);
}

static void remote_callback(void)
{
	struct call_log *log = new_log();
	struct theirs there = exported_by(new_peer(), 4096);
	sci_remote_segment_t segment = connect_with_callback(new_device(), there, log);
	sci_error_t status;

	bad(SCI_ERR_ILLEGAL_OPERATION,
	    SCIWaitForRemoteSegmentEvent(segment, &status, 0, 0, &error));
	there(there.peer, THERE_UNAVAILABLE, there.segment, SCI_FLAG_NOTIFY);
	wait_until(calls(log) >= 1);
	expect(log->call[0].handle == segment);
	same(log->call[0].reason, SCI_CB_DISCONNECT);
	begin(there.peer, DO_DIE);
	called_exactly(log, 2);
	same(log->call[1].reason, SCI_CB_LOST);
}

static void remote_callback_cancel(void)
{
	struct call_log *log = new_log();
	struct theirs there = exported_by(new_peer(), 4096);
	sci_remote_segment_t segment;

	log->action = SCI_CALLBACK_CANCEL;
	segment = connect_with_callback(new_device(), there, log);
	there(there.peer, THERE_UNAVAILABLE, there.segment, SCI_FLAG_NOTIFY);
	wait_until(calls(log) == 1);
	begin(there.peer, DO_DIE);
	wait_for_death(there.peer);
	called_exactly(log, 1);
	good(SCIDisconnectSegment(segment, 0, &error));
}

/* Disconnects in the callback, as an example of the guide does. */
static void disconnect_itself(struct call_log *log)
{
	good(SCIDisconnectSegment(log->call[log->count].handle, 0, &error));
}

static void callback_disconnects(void)
{
	struct call_log *log = new_log();
	struct theirs there = exported_by(new_peer(), 4096);
	sci_remote_segment_t segment;

	log->also = disconnect_itself;
	segment = connect_with_callback(new_device(), there, log);
	there(there.peer, THERE_UNAVAILABLE, there.segment, SCI_FLAG_NOTIFY);
	called_exactly(log, 1);
	bad(STALE, SCIDisconnectSegment(segment, 0, &error));
}

/* --- All callbacks --- */

static void look_at_signals(struct call_log *log)
{
	sigset_t blocked;
	int signal;

	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	for (signal = 1; signal <= SIGSYS; signal++) {
		/* A program can't block these, nor those of the C library behind SIGSYS. */
		if (signal != SIGKILL && signal != SIGSTOP)
			expect(sigismember(&blocked, signal) == 1);
	}
}

static void callback_signals(void)
{
	struct call_log *log = new_log(), *of_interrupt = new_log(), *of_queue = new_log();
	sci_local_interrupt_t interrupt;
	sci_desc_t device = new_device();
	unsigned int id = new_id(), number = 0;
	struct local local = prepared(64);
	sci_remote_segment_t remote;

	log->also = look_at_signals;
	of_interrupt->also = look_at_signals;
	of_queue->also = look_at_signals;
	with_callback(device, id, log);
	remote = connect_segment(device, own_id(), id);
	good(SCICreateInterrupt(device, &interrupt, ADAPTER, &number, log_interrupt, of_interrupt,
				SCI_FLAG_USE_CALLBACK, &error));
	good(SCITriggerInterrupt(connect_interrupt(device, own_id(), number), 0, &error));
	good(SCIStartDmaTransfer(new_queue(device, 1), local.segment, remote, 0, 64, 0, log_dma,
				 of_queue, SCI_FLAG_USE_CALLBACK, &error));
	called_exactly(log, 1);
	called_exactly(of_interrupt, 1);
	called_exactly(of_queue, 1);
}

/* Makes every call that can wait, in a callback. */
static void call_everything(struct call_log *log)
{
	struct local *local = log->data;
	sci_desc_t device = new_device();
	unsigned int number = 0, node, adapter;
	sci_local_interrupt_t interrupt = new_interrupt(device, &number, 0);
	sci_remote_segment_t remote = connect_segment(device, own_id(), local->id);
	sci_dma_queue_t queue = new_queue(device, 1);
	sci_error_t status;

	good(SCIStartDmaTransfer(queue, local->segment, remote, 0, 64, 64, NULL, NULL, 0,
				 &error));
	same(SCIWaitForDMAQueue(queue, FOREVER, 0, &error), SCI_DMAQUEUE_DONE);
	good(SCITriggerInterrupt(connect_interrupt(device, own_id(), number), 0, &error));
	good(SCIWaitForInterrupt(interrupt, FOREVER, 0, &error));
	good(SCIWaitForLocalSegmentEvent(local->segment, &node, &adapter, FOREVER, 0, &error));
	bad(SCI_ERR_TIMEOUT, SCIWaitForRemoteSegmentEvent(remote, &status, 1, 0, &error));
	good(SCIDisconnectSegment(remote, 0, &error));
}

static void callback_may_block(void)
{
	struct call_log *log = new_log();
	sci_desc_t device = new_device();
	struct local local = exported(4096);
	unsigned int id = new_id();

	log->also = call_everything;
	log->data = &local;
	with_callback(device, id, log);
	connect_segment(device, own_id(), id);
	called_exactly(log, 1);
}

static void wait_in_callback(struct call_log *log)
{
	int *go_on = log->data;

	wait_until(__atomic_load_n(go_on, __ATOMIC_ACQUIRE));
}

/* Each resource has a thread of its own, so a callback that waits delays no other resource. */
static void callbacks_independent(void)
{
	struct call_log *waits = new_log(), *other = new_log();
	sci_desc_t device = new_device();
	unsigned int id = new_id(), other_id = new_id();
	int go_on = 0;

	waits->also = wait_in_callback;
	waits->data = &go_on;
	with_callback(device, id, waits);
	with_callback(device, other_id, other);
	connect_segment(device, own_id(), id);
	connect_segment(device, own_id(), other_id);
	called_exactly(other, 1);
	same(calls(waits), 0);
	__atomic_store_n(&go_on, 1, __ATOMIC_RELEASE);
	called_exactly(waits, 1);
}

static void no_call_after_removal(void)
{
	struct call_log *log;
	sci_desc_t device = new_device();
	sci_local_segment_t segment;
	unsigned int id;
	int i, found;

	for (i = 0; i < 20; i++) {
		log = new_log();
		id = new_id();
		segment = with_callback(device, id, log);
		connect_segment(device, own_id(), id);
		good(SCIRemoveSegment(segment, 0, &error));
		found = calls(log);
		expect(found <= 1);
		poll(NULL, 0, 2);
		same(calls(log), found);
	}
}

const struct test_case callback_cases[] = {
	PAIR(local_callback, "callback.local"),
	ALONE(local_callback_excludes, "callback.excludes-wait"),
	ALONE(local_callback_cancel, "callback.cancel"),
	ALONE(local_callback_order, "callback.local event.order"),
	PAIR(remote_callback, "callback.remote callback.excludes-wait"),
	PAIR(remote_callback_cancel, "callback.cancel"),
	PAIR(callback_disconnects, "callback.may-call"),
	ALONE(callback_signals, "callback.signals"),
	ALONE(callback_may_block, "callback.may-call"),
	ALONE(callbacks_independent, "callback.threads"),
	ALONE(no_call_after_removal, "callback.removed"),
	{ }
};
