// SPDX-License-Identifier: GPL-2.0
/*
 * Events of segments, by calls that wait.
 */
#include "sisci_suite.h"

static void local_connect(void)
{
	struct local local = exported(4096);
	struct peer *peer = new_peer();
	__s64 device = there(peer, THERE_OPEN);
	__s64 segment = there(peer, THERE_CONNECT, device, own_id(), local.id, FOREVER, 0);

	same(local_event(local.segment, SCI_CB_CONNECT), peer_id(peer));
	no_local_event(local.segment);
	there(peer, THERE_DISCONNECT, segment);
	same(local_event(local.segment, SCI_CB_DISCONNECT), peer_id(peer));
	no_local_event(local.segment);
}

/* A thread waits before the event occurs. */
static void local_wakes(void)
{
	struct theirs there = exported_by(new_peer(), 4096);
	sci_remote_segment_t segment;

	begin(there.peer, THERE_LOCAL_EVENT, there.segment, FOREVER);
	expect_blocked(there.peer);
	segment = connect_segment(new_device(), peer_id(there.peer), there.id);
	same(end_good(there.peer), SCI_CB_CONNECT);
	same(answer(there.peer, 0), own_id());
	begin(there.peer, THERE_LOCAL_EVENT, there.segment, FOREVER);
	good(SCIDisconnectSegment(segment, 0, &error));
	same(end_good(there.peer), SCI_CB_DISCONNECT);
	same(answer(there.peer, 0), own_id());
}

static void local_exit(void)
{
	struct local local = exported(4096);
	struct peer *peer = new_peer();

	imported_by(peer, &local);
	same(local_event(local.segment, SCI_CB_CONNECT), peer_id(peer));
	begin(peer, DO_EXIT);
	same(local_event(local.segment, SCI_CB_DISCONNECT), peer_id(peer));
}

static void local_killed(void)
{
	struct local local = exported(4096);
	struct peer *peer = new_peer();

	imported_by(peer, &local);
	same(local_event(local.segment, SCI_CB_CONNECT), peer_id(peer));
	begin(peer, DO_DIE);
	same(local_event(local.segment, SCI_CB_DISCONNECT), peer_id(peer));
}

static void local_order(void)
{
	struct local local = exported(4096);
	sci_remote_segment_t remote;
	int i;

	for (i = 0; i < 20; i++) {
		remote = connect_segment(local.device, own_id(), local.id);
		good(SCIDisconnectSegment(remote, 0, &error));
	}
	for (i = 0; i < 20; i++) {
		local_event(local.segment, SCI_CB_CONNECT);
		local_event(local.segment, SCI_CB_DISCONNECT);
	}
	no_local_event(local.segment);
}

static void local_each_connection(void)
{
	struct local local = exported(4096);
	int i;

	for (i = 0; i < 8; i++)
		connect_segment(local.device, own_id(), local.id);
	for (i = 0; i < 8; i++)
		same(local_event(local.segment, SCI_CB_CONNECT), own_id());
	no_local_event(local.segment);
}

static void wait_times_out(void)
{
	struct local local = exported(4096);
	sci_remote_segment_t remote = connect_segment(local.device, own_id(), local.id);
	unsigned int node, adapter;
	sci_error_t status;
	__u64 started;

	local_event(local.segment, SCI_CB_CONNECT);
	bad(SCI_ERR_TIMEOUT,
	    SCIWaitForLocalSegmentEvent(local.segment, &node, &adapter, 0, 0, &error));
	bad(SCI_ERR_TIMEOUT, SCIWaitForRemoteSegmentEvent(remote, &status, 0, 0, &error));
	started = now();
	bad(SCI_ERR_TIMEOUT,
	    SCIWaitForLocalSegmentEvent(local.segment, &node, &adapter, 100, 0, &error));
	expect(now() - started >= 99);
	started = now();
	bad(SCI_ERR_TIMEOUT, SCIWaitForRemoteSegmentEvent(remote, &status, 100, 0, &error));
	expect(now() - started >= 99);
}

/* --- Waits that end because the segment is released --- */

static void *wait_local(void *data)
{
	unsigned int node, adapter;

	bad(SCI_ERR_CANCELLED,
	    SCIWaitForLocalSegmentEvent(data, &node, &adapter, FOREVER, 0, &error));
	return NULL;
}

static void *wait_remote(void *data)
{
	sci_error_t status;

	bad(SCI_ERR_CANCELLED, SCIWaitForRemoteSegmentEvent(data, &status, FOREVER, 0, &error));
	return NULL;
}

/* Sleeps so long that the thread mostly waits by then. */
static void let_it_wait(void)
{
	poll(NULL, 0, A_MOMENT);
}

static void local_cancelled(void)
{
	struct local local = exported(4096);
	pthread_t thread = in_thread(wait_local, local.segment);

	let_it_wait();
	good(SCIUnmapSegment(local.map, 0, &error));
	good(SCIRemoveSegment(local.segment, 0, &error));
	thread_result(thread);
}

static void remote_cancelled(void)
{
	sci_desc_t device = new_device();
	struct theirs there = exported_by(new_peer(), 4096);
	sci_remote_segment_t segment = connect_segment(device, peer_id(there.peer), there.id);
	pthread_t thread = in_thread(wait_remote, segment);

	let_it_wait();
	good(SCIDisconnectSegment(segment, 0, &error));
	thread_result(thread);
}

static void terminate_cancels(void)
{
	struct local local = exported(4096);
	sci_remote_segment_t segment = connect_segment(local.device, own_id(), local.id);
	pthread_t thread;

	local_event(local.segment, SCI_CB_CONNECT);
	thread = in_thread(wait_remote, segment);
	let_it_wait();
	SCITerminate();
	thread_result(thread);
}

/* --- At the importer --- */

static void remote_silent(void)
{
	struct theirs there = exported_by(new_peer(), 4096);
	struct remote remote = imported(there);

	/* A connect that was waited for is no event, nor is the end of availability. */
	no_remote_event(remote.segment);
	there(there.peer, THERE_UNAVAILABLE, there.segment, 0);
	no_remote_event(remote.segment);
	there(there.peer, DO_FILL, there.memory, 5, 4096);
	same(remote_differs(remote.memory, 5, 4096), -1);
}

static void remote_notified(void)
{
	struct theirs there = exported_by(new_peer(), 4096);
	struct remote remote = imported(there);

	there(there.peer, THERE_UNAVAILABLE, there.segment, SCI_FLAG_NOTIFY);
	remote_event(remote.segment, SCI_CB_DISCONNECT);
	/* The event is a request, so the memory still exists. */
	ask(there.peer, DO_FILL, there.memory, 6, 4096);
	same(remote_differs(remote.memory, 6, 4096), -1);
	good(SCIUnmapSegment(remote.map, 0, &error));
	good(SCIDisconnectSegment(remote.segment, 0, &error));
}

static void remote_forced(void)
{
	struct theirs there = exported_by(new_peer(), 4096);
	struct remote remote = imported(there);

	there(there.peer, THERE_UNAVAILABLE, there.segment, SCI_FLAG_FORCE_DISCONNECT);
	remote_event(remote.segment, SCI_CB_LOST);
	same(there(there.peer, THERE_LOCAL_EVENT, there.segment, FOREVER), SCI_CB_CONNECT);
	good(SCIUnmapSegment(remote.map, 0, &error));
	good(SCIDisconnectSegment(remote.segment, 0, &error));
}

static void remote_force_removed(void)
{
	struct theirs there = exported_by(new_peer(), 4096);
	struct remote remote = imported(there);

	there(there.peer, THERE_UNMAP, there.map);
	there(there.peer, THERE_REMOVE, there.segment, SCI_FLAG_FORCE_REMOVE);
	remote_event(remote.segment, SCI_CB_LOST);
	/* Loads may return anything, but raise no signal. */
	expect(!load_fails(remote.memory));
	good(SCIUnmapSegment(remote.map, 0, &error));
	good(SCIDisconnectSegment(remote.segment, 0, &error));
}

static void remote_removed(void)
{
	struct theirs there = exported_by(new_peer(), 4096);
	struct remote remote = imported(there);

	there(there.peer, THERE_UNMAP, there.map);
	there(there.peer, THERE_REMOVE, there.segment, 0);
	/* A connected importer keeps the memory. */
	no_remote_event(remote.segment);
}

static void remote_taken_away(void)
{
	struct theirs there = exported_by(new_peer(), 4096);
	struct remote remote = imported(there);

	there(there.peer, THERE_UNMAP, there.map);
	there(there.peer, THERE_REMOVE, there.segment, SCI_FLAG_FORCE_REMOVE);
	remote_event(remote.segment, SCI_CB_LOST);
	no_remote_event(remote.segment);
}

static void remote_exit(void)
{
	struct theirs there = exported_by(new_peer(), 4096);
	struct remote remote = imported(there);

	begin(there.peer, DO_EXIT);
	remote_event(remote.segment, SCI_CB_LOST);
	good(SCIUnmapSegment(remote.map, 0, &error));
	good(SCIDisconnectSegment(remote.segment, 0, &error));
}

static void remote_killed(void)
{
	struct theirs there = exported_by(new_peer(), 4096);
	struct remote remote = imported(there);

	begin(there.peer, DO_DIE);
	remote_event(remote.segment, SCI_CB_LOST);
	expect(!load_fails(remote.memory));
	expect(!store_fails(remote.memory));
	good(SCIUnmapSegment(remote.map, 0, &error));
	good(SCIDisconnectSegment(remote.segment, 0, &error));
}

static void remote_each(void)
{
	struct theirs there = exported_by(new_peer(), 4096);
	struct remote one = imported(there), two = imported(there);

	there(there.peer, THERE_UNAVAILABLE, there.segment, SCI_FLAG_NOTIFY);
	remote_event(one.segment, SCI_CB_DISCONNECT);
	remote_event(two.segment, SCI_CB_DISCONNECT);
}

/* If there are too many events, the library keeps only the last of the excess ones. */
static void too_many(void)
{
	struct local local = exported(4096);
	unsigned int node, adapter;
	int i, kept = 0;

	for (i = 0; i < 600; i++)
		good(SCIDisconnectSegment(connect_segment(local.device, own_id(), local.id), 0,
					  &error));
	do {
		before_call();
		SCIWaitForLocalSegmentEvent(local.segment, &node, &adapter, A_MOMENT, 0, &error);
	} while (error == SCI_ERR_OK && ++kept <= 1200);
	same(error, SCI_ERR_TIMEOUT);
	expect(kept >= 1024 && kept <= 1200);
}

static void waits_restart(void)
{
	struct local local = exported(4096);
	sci_remote_segment_t remote = connect_segment(local.device, own_id(), local.id);
	unsigned int node, adapter;
	sci_error_t status;

	local_event(local.segment, SCI_CB_CONNECT);
	interrupt_repeatedly(false);
	bad(SCI_ERR_TIMEOUT,
	    SCIWaitForLocalSegmentEvent(local.segment, &node, &adapter, 300, 0, &error));
	expect(interruptions() > 0);
	bad(SCI_ERR_TIMEOUT, SCIWaitForRemoteSegmentEvent(remote, &status, 300, 0, &error));
	stop_interrupting();
}

const struct test_case event_cases[] = {
	PAIR(local_connect, "event.local-connect event.local-disconnect event.node-adapter"),
	PAIR(local_wakes, "event.local-connect event.local-disconnect event.node-adapter"),
	PAIR(local_exit, "event.local-disconnect"),
	PAIR(local_killed, "event.local-disconnect"),
	ALONE(local_order, "event.order"),
	ALONE(local_each_connection, "event.local-connect event.order"),
	ALONE(wait_times_out, "event.timeout"),
	ALONE(local_cancelled, "event.cancelled"),
	PAIR(remote_cancelled, "event.cancelled"),
	ALONE(terminate_cancels, "event.cancelled init.terminate-releases"),
	PAIR_MAPPED(remote_silent, "segment.unavailable event.remote-silent"),
	PAIR_MAPPED(remote_notified, "event.notify"),
	PAIR_MAPPED(remote_forced, "event.force-disconnect"),
	PAIR_MAPPED(remote_force_removed, "event.force-remove event.remote-lost"),
	PAIR_MAPPED(remote_removed, "segment.remove-connected"),
	PAIR_MAPPED(remote_taken_away, "event.remote-lost"),
	PAIR_MAPPED(remote_exit, "event.remote-lost event.clean-up"),
	PAIR_MAPPED(remote_killed, "event.remote-lost event.clean-up"),
	PAIR_MAPPED(remote_each, "event.notify"),
	ALONE_LONG(too_many, "event.most"),
	ALONE(waits_restart, "wait.restarts"),
	{ }
};
