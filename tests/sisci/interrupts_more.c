// SPDX-License-Identifier: GPL-2.0
/*
 * Interrupts with callbacks, shared ones, and many at a time.
 */
#include <sys/resource.h>

#include "sisci_suite.h"

static sci_local_interrupt_t with_callback(sci_desc_t device, unsigned int *number,
					   unsigned int flags, struct call_log *log)
{
	sci_local_interrupt_t interrupt;

	good(SCICreateInterrupt(device, &interrupt, ADAPTER, number, log_interrupt, log,
				flags | SCI_FLAG_USE_CALLBACK, &error));
	return interrupt;
}

/* Connects a peer to an interrupt of this node. */
static __s64 connected_there(struct peer *peer, unsigned int number)
{
	return there(peer, THERE_CONNECT_INTERRUPT, there(peer, THERE_OPEN), own_id(), number);
}

static void interrupt_callback(void)
{
	struct call_log *log = new_log();
	unsigned int number = 0;
	sci_local_interrupt_t interrupt = with_callback(new_device(), &number, 0, log);
	struct peer *peer = new_peer();
	__s64 remote = connected_there(peer, number);
	int i;

	for (i = 0; i < 10; i++) {
		there(peer, THERE_TRIGGER, remote, 1);
		wait_until(calls(log) == i + 1);
		expect(log->call[i].handle == interrupt);
		same(log->call[i].status, SCI_ERR_OK);
	}
	called_exactly(log, 10);
}

static void interrupt_callback_counts(void)
{
	struct call_log *log = new_log();
	unsigned int number = 0;
	struct peer *peer = new_peer();

	with_callback(new_device(), &number, SCI_FLAG_COUNTING_INT, log);
	there(peer, THERE_TRIGGER, connected_there(peer, number), 500);
	called_exactly(log, 500);
}

static void interrupt_callback_excludes(void)
{
	unsigned int number = 0;
	sci_local_interrupt_t interrupt = with_callback(new_device(), &number, 0, new_log());

	bad(SCI_ERR_ILLEGAL_OPERATION, SCIWaitForInterrupt(interrupt, 0, 0, &error));
	bad(SCI_ERR_ILLEGAL_OPERATION, SCIWaitForInterrupt(interrupt, FOREVER, 0, &error));
}

static void interrupt_callback_flag(void)
{
	struct call_log *log = new_log();
	sci_desc_t device = new_device();
	sci_local_interrupt_t interrupt;
	unsigned int number = 0;

	bad(SCI_ERR_ILLEGAL_PARAMETER,
	    SCICreateInterrupt(device, &interrupt, ADAPTER, &number, NULL, NULL,
			       SCI_FLAG_USE_CALLBACK, &error));
	good(SCICreateInterrupt(device, &interrupt, ADAPTER, &number, log_interrupt, log, 0,
				&error));
	good(SCITriggerInterrupt(connect_interrupt(device, own_id(), number), 0, &error));
	good(SCIWaitForInterrupt(interrupt, FOREVER, 0, &error));
	same(calls(log), 0);
}

static void interrupt_callback_cancel(void)
{
	struct call_log *log = new_log();
	sci_desc_t device = new_device();
	unsigned int number = 0;
	sci_local_interrupt_t interrupt;
	sci_remote_interrupt_t remote;

	log->action = SCI_CALLBACK_CANCEL;
	interrupt = with_callback(device, &number, SCI_FLAG_COUNTING_INT, log);
	remote = connect_interrupt(device, own_id(), number);
	good(SCITriggerInterrupt(remote, 0, &error));
	wait_until(calls(log) == 1);
	good(SCITriggerInterrupt(remote, 0, &error));
	called_exactly(log, 1);
	good(SCIRemoveInterrupt(interrupt, 0, &error));
}

static void trigger_back(struct call_log *log)
{
	sci_remote_interrupt_t remote = log->data;

	if (log->count < 99)
		good(SCITriggerInterrupt(remote, 0, &error));
}

/* Two callbacks trigger each other. */
static void interrupt_ping_pong(void)
{
	struct call_log *one = new_log(), *two = new_log();
	unsigned int number_one = 0, number_two = 0;
	sci_desc_t device = new_device();

	with_callback(device, &number_one, 0, one);
	with_callback(device, &number_two, 0, two);
	one->also = trigger_back;
	one->data = connect_interrupt(device, own_id(), number_two);
	two->also = trigger_back;
	two->data = connect_interrupt(device, own_id(), number_one);
	good(SCITriggerInterrupt(two->data, 0, &error));
	wait_until(calls(one) == 100);
	wait_until(calls(two) == 99);
}

static void remove_itself(struct call_log *log)
{
	good(SCIRemoveInterrupt(log->call[log->count].handle, 0, &error));
}

static void callback_removes_interrupt(void)
{
	struct call_log *log = new_log();
	sci_desc_t device = new_device();
	unsigned int number = 0;
	sci_local_interrupt_t interrupt;

	log->also = remove_itself;
	interrupt = with_callback(device, &number, 0, log);
	good(SCITriggerInterrupt(connect_interrupt(device, own_id(), number), 0, &error));
	called_exactly(log, 1);
	bad(STALE, SCIRemoveInterrupt(interrupt, 0, &error));
}

static void interrupt_removed_no_callback(void)
{
	sci_desc_t device = new_device();
	sci_remote_interrupt_t remote;
	sci_local_interrupt_t interrupt;
	struct call_log *log;
	unsigned int number = 0;
	int i, found;

	for (i = 0; i < 30; i++) {
		log = new_log();
		interrupt = with_callback(device, &number, SCI_FLAG_COUNTING_INT, log);
		remote = connect_interrupt(device, own_id(), number);
		good(SCITriggerInterrupt(remote, 0, &error));
		good(SCITriggerInterrupt(remote, 0, &error));
		good(SCIRemoveInterrupt(interrupt, 0, &error));
		found = calls(log);
		poll(NULL, 0, 2);
		same(calls(log), found);
		good(SCIDisconnectInterrupt(remote, 0, &error));
	}
}

/* --- Shared interrupts --- */

#define SHARED	(SCI_FLAG_SHARED_INT | SCI_FLAG_FIXED_INTNO)

static void shared_reaches_all(void)
{
	sci_desc_t device = new_device();
	unsigned int number = new_id();
	sci_local_interrupt_t interrupt[3];
	sci_remote_interrupt_t remote;
	int i, round;

	for (i = 0; i < 3; i++)
		interrupt[i] = new_interrupt(device, &number, SHARED);
	remote = connect_interrupt(device, own_id(), number);
	for (round = 0; round < 10; round++) {
		good(SCITriggerInterrupt(remote, 0, &error));
		for (i = 0; i < 3; i++)
			good(SCIWaitForInterrupt(interrupt[i], FOREVER, 0, &error));
	}
	for (i = 0; i < 3; i++)
		bad(SCI_ERR_TIMEOUT, SCIWaitForInterrupt(interrupt[i], 0, 0, &error));
}

/* A shared interrupt of several processes of one node. */
static void shared_by_processes(void)
{
	struct peer *one = new_peer(), *two = new_peer();
	unsigned int number = new_id();
	__s64 of_one, of_two;
	sci_remote_interrupt_t remote;

	of_one = there(one, THERE_INTERRUPT, there(one, THERE_OPEN), number, SHARED);
	of_two = there(two, THERE_INTERRUPT, there(two, THERE_OPEN), number, SHARED);
	remote = connect_interrupt(new_device(), peer_id(one), number);
	good(SCITriggerInterrupt(remote, 0, &error));
	there(one, THERE_WAIT_INTERRUPT, of_one, FOREVER);
	there(two, THERE_WAIT_INTERRUPT, of_two, FOREVER);
	/* If one process removes it, the other still has it. */
	there(one, THERE_REMOVE_INTERRUPT, of_one);
	good(SCITriggerInterrupt(remote, 0, &error));
	there(two, THERE_WAIT_INTERRUPT, of_two, FOREVER);
}

static void shared_or_not(void)
{
	sci_desc_t device = new_device();
	unsigned int number = new_id(), other = new_id();
	sci_local_interrupt_t interrupt;

	new_interrupt(device, &number, SHARED);
	bad(SCI_ERR_INTNO_USED, SCICreateInterrupt(device, &interrupt, ADAPTER, &number, NULL,
						   NULL, SCI_FLAG_FIXED_INTNO, &error));
	new_interrupt(device, &other, SCI_FLAG_FIXED_INTNO);
	bad(SCI_ERR_INTNO_USED, SCICreateInterrupt(device, &interrupt, ADAPTER, &other, NULL,
						   NULL, SHARED, &error));
}

static void shared_all_gone(void)
{
	sci_desc_t device = new_device();
	unsigned int number = new_id();
	sci_local_interrupt_t one = new_interrupt(device, &number, SHARED);
	sci_local_interrupt_t two = new_interrupt(device, &number, SHARED);
	sci_remote_interrupt_t remote = connect_interrupt(device, own_id(), number);

	good(SCIRemoveInterrupt(one, 0, &error));
	good(SCITriggerInterrupt(remote, 0, &error));
	good(SCIWaitForInterrupt(two, FOREVER, 0, &error));
	good(SCIRemoveInterrupt(two, 0, &error));
	wait_until((before_call(), SCITriggerInterrupt(remote, 0, &error), error != SCI_ERR_OK));
	same(error, SCI_ERR_NOT_CONNECTED);
}

/* --- Many waits and connections --- */

static void *wait_for_ten(void *data)
{
	int i;

	for (i = 0; i < 10; i++)
		good(SCIWaitForInterrupt(data, FOREVER, 0, &error));
	return NULL;
}

/* Each trigger of a counting interrupt wakes one of the waiting threads. */
static void waiters_share(void)
{
	unsigned int number = 0, i;
	sci_desc_t device = new_device();
	sci_local_interrupt_t interrupt = new_interrupt(device, &number, SCI_FLAG_COUNTING_INT);
	sci_remote_interrupt_t remote = connect_interrupt(device, own_id(), number);
	pthread_t thread[4];

	for (i = 0; i < 4; i++)
		thread[i] = in_thread(wait_for_ten, interrupt);
	for (i = 0; i < 40; i++)
		good(SCITriggerInterrupt(remote, 0, &error));
	for (i = 0; i < 4; i++)
		thread_result(thread[i]);
	bad(SCI_ERR_TIMEOUT, SCIWaitForInterrupt(interrupt, 0, 0, &error));
}

static void *wait_until_removed(void *data)
{
	SCIWaitForInterrupt(data, FOREVER, 0, &error);
	return (void *)(long)(error == SCI_ERR_CANCELLED || error == STALE);
}

/* A waiting thread may be returning from its wait when all is released. */
static void removed_and_closed(void)
{
	sci_local_interrupt_t interrupt;
	unsigned int number, i;
	sci_desc_t device;
	pthread_t thread;

	initialize();
	for (i = 0; i < 50; i++) {
		device = new_device();
		number = 0;
		interrupt = new_interrupt(device, &number, 0);
		thread = in_thread(wait_until_removed, interrupt);
		if (i % 2)
			poll(NULL, 0, 1);
		good(SCIRemoveInterrupt(interrupt, 0, &error));
		good(SCIClose(device, 0, &error));
		expect(thread_result(thread));
	}
}

/* Connections that come and go leave nothing behind, though no thread waits. */
static void connectors_go(void)
{
	struct rlimit limit = { .rlim_cur = 128, .rlim_max = 128 };
	unsigned int number = 0, i;
	sci_desc_t device = new_device();
	sci_local_interrupt_t interrupt = new_interrupt(device, &number, SCI_FLAG_COUNTING_INT);
	sci_remote_interrupt_t remote;

	same(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (i = 0; i < 300; i++) {
		remote = connect_interrupt(device, own_id(), number);
		good(SCITriggerInterrupt(remote, 0, &error));
		good(SCIDisconnectInterrupt(remote, 0, &error));
	}
	/* None of their triggers is lost. */
	for (i = 0; i < 300; i++)
		good(SCIWaitForInterrupt(interrupt, FOREVER, 0, &error));
	bad(SCI_ERR_TIMEOUT, SCIWaitForInterrupt(interrupt, 0, 0, &error));
}

static void interrupts_many(void)
{
	struct peer *peer = new_peer();
	__s64 device = there(peer, THERE_OPEN), interrupt[64];
	sci_remote_interrupt_t remote[64];
	sci_desc_t own = new_device();
	int i;

	for (i = 0; i < 64; i++) {
		interrupt[i] = there(peer, THERE_INTERRUPT, device, 0, 0);
		remote[i] = connect_interrupt(own, peer_id(peer), answer(peer, 0));
	}
	for (i = 0; i < 64; i += 2)
		good(SCITriggerInterrupt(remote[i], 0, &error));
	/* Each trigger reaches its own interrupt. */
	for (i = 0; i < 64; i += 2) {
		there(peer, THERE_WAIT_INTERRUPT, interrupt[i], FOREVER);
		there_bad(peer, SCI_ERR_TIMEOUT, THERE_WAIT_INTERRUPT, interrupt[i + 1], 0);
	}
}

static void star_interrupts(void)
{
	unsigned int number = 0;
	sci_local_interrupt_t interrupt =
		new_interrupt(new_device(), &number, SCI_FLAG_COUNTING_INT);
	struct peer *one = new_peer_on(0), *two = new_peer_on(1);
	__s64 remote_one = connected_there(one, number), remote_two = connected_there(two, number);
	int i;

	begin(one, THERE_TRIGGER, remote_one, 20);
	begin(two, THERE_TRIGGER, remote_two, 20);
	for (i = 0; i < 40; i++)
		good(SCIWaitForInterrupt(interrupt, FOREVER, 0, &error));
	end_good(one);
	end_good(two);
	begin(one, DO_DIE);
	wait_for_death(one);
	there(two, THERE_TRIGGER, remote_two, 1);
	good(SCIWaitForInterrupt(interrupt, FOREVER, 0, &error));
}

const struct test_case interrupt_more_cases[] = {
	PAIR(interrupt_callback, "interrupt.callback"),
	PAIR(interrupt_callback_counts, "interrupt.callback interrupt.counting"),
	ALONE(interrupt_callback_excludes, "callback.excludes-wait"),
	ALONE(interrupt_callback_flag, "callback.flag"),
	ALONE(interrupt_callback_cancel, "callback.cancel"),
	ALONE(interrupt_ping_pong, "interrupt.callback callback.may-call"),
	ALONE(callback_removes_interrupt, "callback.may-call"),
	ALONE(interrupt_removed_no_callback, "callback.removed"),
	ALONE(shared_reaches_all, "interrupt.shared"),
	PAIR(shared_by_processes, "interrupt.shared"),
	ALONE(shared_or_not, "interrupt.used interrupt.shared"),
	ALONE(shared_all_gone, "interrupt.shared interrupt.gone"),
	ALONE(waiters_share, "interrupt.counting thread.many"),
	ALONE(removed_and_closed, "interrupt.cancelled device.busy"),
	ALONE(connectors_go, "interrupt.connectors"),
	PAIR(interrupts_many, "interrupt.connectors"),
	STAR(star_interrupts, "star.both"),
	{ }
};
