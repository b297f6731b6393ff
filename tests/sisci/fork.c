// SPDX-License-Identifier: GPL-2.0
/*
 * A child that uses the library after its parent: the child starts from scratch, and the parent
 * goes on.
 */
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "sisci_suite.h"

/* Resources of the parent, as the child sees them. */
struct parent {
	struct local local;
	struct remote remote;
	sci_sequence_t sequence;
	unsigned int number;
	sci_local_interrupt_t interrupt;
	sci_remote_interrupt_t trigger;
};

static struct parent new_parent(void)
{
	struct parent parent = { .local = exported(8192) };

	parent.remote = own_remote(&parent.local);
	parent.sequence = new_sequence(parent.remote.map);
	good(expect(SCIStartSequence(parent.sequence, 0, &error) == SCI_SEQ_OK));
	parent.interrupt = new_interrupt(parent.local.device, &parent.number, 0);
	parent.trigger = connect_interrupt(parent.local.device, own_id(), parent.number);
	return parent;
}

/* Checks that nothing has changed, and that no thread of the library is busy. */
static void goes_on(struct parent *parent)
{
	unsigned int node, adapter;
	long before;

	fill(parent->local.memory, 5, 8192);
	same(remote_differs(parent->remote.memory, 5, 8192), -1);
	good(expect(SCICheckSequence(parent->sequence, 0, &error) == SCI_SEQ_OK));
	good(SCITriggerInterrupt(parent->trigger, 0, &error));
	good(SCIWaitForInterrupt(parent->interrupt, FOREVER, 0, &error));
	no_remote_event(parent->remote.segment);
	/* The segment has the event of its own connect, and no other. */
	good(same(SCIWaitForLocalSegmentEvent(parent->local.segment, &node, &adapter, FOREVER, 0,
					      &error), SCI_CB_CONNECT));
	no_local_event(parent->local.segment);
	own_remote(&parent->local);
	before = cpu_milliseconds();
	poll(NULL, 0, 400);
	expect(cpu_milliseconds() - before < 200);
}

static void terminate_in_child(void *data)
{
	SCITerminate();
	SCITerminate();
}

static void fork_child_terminates(void)
{
	struct parent parent = new_parent();

	child_passed(in_child(terminate_in_child, NULL));
	goes_on(&parent);
}

/* Checks that all handles are stale, also if the child has another resource at the same address. */
static void all_is_stale(struct parent *parent, sci_error_t expected)
{
	sci_map_t map;

	bad(expected, SCIClose(parent->local.device, 0, &error));
	bad(expected, SCIPrepareSegment(parent->local.segment, ADAPTER, 0, &error));
	bad(expected, SCIRemoveSegment(parent->local.segment, 0, &error));
	bad(expected, SCIUnmapSegment(parent->remote.map, 0, &error));
	bad(expected, SCIDisconnectSegment(parent->remote.segment, 0, &error));
	bad(expected, SCIMapRemoteSegment(parent->remote.segment, &map, 0, 8, NULL, 0, &error));
	bad(expected, SCITriggerInterrupt(parent->trigger, 0, &error));
	bad(expected, SCIWaitForInterrupt(parent->interrupt, 0, 0, &error));
	bad(expected, SCIRemoveInterrupt(parent->interrupt, 0, &error));
	bad(expected, SCIStartSequence(parent->sequence, 0, &error));
	bad(expected, SCICheckSequence(parent->sequence, 0, &error));
	bad(expected, SCIRemoveSequence(parent->sequence, 0, &error));
	SCIFlush(parent->sequence, 0);
	SCIStoreBarrier(parent->sequence, 0);
	same(SCIGetLocalSegmentSize(parent->local.segment), 0);
}

static void live_in_child(void *data)
{
	struct parent *parent = data, own = { };
	sci_remote_segment_t theirs;
	sci_desc_t device;

	/* This is the first call of the child. */
	bad(SCI_ERR_NOT_INITIALIZED, SCICheckSequence(parent->sequence, 0, &error));
	SCIFlush(parent->sequence, 0);
	SCIStoreBarrier(parent->sequence, 0);
	SCIFlush(NULL, 0);
	all_is_stale(parent, SCI_ERR_NOT_INITIALIZED);
	bad(SCI_ERR_NOT_INITIALIZED, SCIOpen(&device, 0, &error));
	good(SCIInitialize(0, &error));
	all_is_stale(parent, STALE);
	own = new_parent();
	all_is_stale(parent, STALE);
	/* The parent's segment is a remote segment like others. */
	good(SCIConnectSegment(own.local.device, &theirs, own_id(), parent->local.id, ADAPTER,
			       NULL, NULL, FOREVER, 0, &error));
	good(SCIDisconnectSegment(theirs, 0, &error));
	goes_on(&own);
	SCITerminate();
	bad(SCI_ERR_NOT_INITIALIZED, SCIOpen(&device, 0, &error));
}

static void fork_child_starts_anew(void)
{
	struct parent parent = new_parent();
	unsigned int node, adapter;

	child_passed(in_child(live_in_child, &parent));
	/* The child's event comes behind that of the parent. */
	local_event(parent.local.segment, SCI_CB_CONNECT);
	local_event(parent.local.segment, SCI_CB_CONNECT);
	local_event(parent.local.segment, SCI_CB_DISCONNECT);
	bad(SCI_ERR_TIMEOUT, SCIWaitForLocalSegmentEvent(parent.local.segment, &node, &adapter,
							 0, 0, &error));
	own_remote(&parent.local);
	goes_on(&parent);
}

/* Forks without the C library, so that no function runs around the fork. */
static void fork_unseen(void)
{
	struct parent parent = new_parent();
	pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	sci_desc_t device;

	expect(child >= 0);
	if (!child) {
		bad(SCI_ERR_NOT_INITIALIZED,
		    SCICheckSequence(parent.sequence, 0, &error));
		SCIFlush(parent.sequence, 0);
		all_is_stale(&parent, SCI_ERR_NOT_INITIALIZED);
		good(SCIInitialize(0, &error));
		good(SCIOpen(&device, 0, &error));
		all_is_stale(&parent, STALE);
		SCITerminate();
		_exit(0);
	}
	child_passed(child);
	goes_on(&parent);
}

/* Forks a child of the child. */
static void nest(void *data)
{
	int depth = *(int *)data - 1;
	struct local local;

	good(SCIInitialize(0, &error));
	local = exported(4096);
	own_remote(&local);
	if (depth)
		child_passed(in_child(nest, &depth));
	local = exported(4096);
	own_remote(&local);
	SCITerminate();
}

static void fork_nested(void)
{
	struct parent parent = new_parent();
	int depth = 4;

	child_passed(in_child(nest, &depth));
	goes_on(&parent);
}

/* --- Forks while other threads are in the middle of calls --- */

static volatile bool is_over;

static void *create_and_remove(void *data)
{
	sci_desc_t device = data;
	sci_local_segment_t segment;
	sci_sequence_t sequence;
	sci_error_t of_thread;
	sci_map_t map;

	while (!is_over) {
		SCICreateSegment(device, &segment, 0, 4096, NULL, NULL, SCI_FLAG_AUTO_ID,
				 &of_thread);
		SCIMapLocalSegment(segment, &map, 0, 4096, NULL, 0, &of_thread);
		SCICreateMapSequence(map, &sequence, 0, &of_thread);
		SCIRemoveSequence(sequence, 0, &of_thread);
		SCIUnmapSegment(map, 0, &of_thread);
		SCIRemoveSegment(segment, 0, &of_thread);
	}
	return NULL;
}

static void *begin_and_end(void *data)
{
	sci_error_t of_thread;

	while (!is_over) {
		SCIInitialize(0, &of_thread);
		SCITerminate();
	}
	return NULL;
}

static void live_a_little(void *data)
{
	sci_local_segment_t segment;
	sci_sequence_t sequence;
	sci_desc_t device;
	sci_map_t map;

	good(SCIInitialize(0, &error));
	good(SCIOpen(&device, 0, &error));
	good(SCICreateSegment(device, &segment, 0, 4096, NULL, NULL, SCI_FLAG_AUTO_ID, &error));
	good(SCIMapLocalSegment(segment, &map, 0, 4096, NULL, 0, &error));
	good(SCICreateMapSequence(map, &sequence, 0, &error));
	SCITerminate();
}

static void fork_amid_calls(void)
{
	struct parent parent = new_parent();
	pthread_t threads[3];
	size_t i;

	for (i = 0; i < 2; i++)
		threads[i] = in_thread(create_and_remove, parent.local.device);
	threads[2] = in_thread(begin_and_end, NULL);
	for (i = 0; i < 25; i++)
		child_passed(in_child(live_a_little, NULL));
	is_over = true;
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		same(pthread_join(threads[i], NULL), 0);
	goes_on(&parent);
}

/* --- In a callback --- */

static void fork_now(struct call_log *log)
{
	pid_t *child = log->data, forked = fork();

	/* The child returns into the library. */
	if (forked)
		__atomic_store_n(child, forked, __ATOMIC_RELEASE);
}

static void fork_in_callback(void)
{
	struct parent parent = new_parent();
	struct call_log *log = new_log();
	sci_local_interrupt_t interrupt;
	unsigned int number = 0;
	pid_t child = 0;

	log->also = fork_now;
	log->data = &child;
	good(SCICreateInterrupt(parent.local.device, &interrupt, ADAPTER, &number, log_interrupt,
				log, SCI_FLAG_USE_CALLBACK, &error));
	good(SCITriggerInterrupt(connect_interrupt(parent.local.device, own_id(), number), 0,
				 &error));
	wait_until(__atomic_load_n(&child, __ATOMIC_ACQUIRE));
	/* The child has no other thread, and ends with this one. */
	child_passed(child);
	called_exactly(log, 1);
	goes_on(&parent);
}

const struct test_case fork_cases[] = {
	ALONE(fork_child_terminates, "fork.parent"),
	ALONE(fork_child_starts_anew, "fork.anew fork.stale fork.parent"),
	ALONE(fork_unseen, "fork.stale fork.parent"),
	ALONE(fork_nested, "fork.anew"),
	ALONE(fork_amid_calls, "fork.threads"),
	ALONE(fork_in_callback, "fork.parent"),
	{ }
};
