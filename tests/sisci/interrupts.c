// SPDX-License-Identifier: GPL-2.0
/*
 * Interrupts: numbers, triggers, waits.
 */
#include "sisci_suite.h"

/* An interrupt of this process to which a peer is connected. */
struct incoming {
	sci_desc_t device;
	sci_local_interrupt_t local;
	struct peer *peer;
	__s64 remote;
	unsigned int number;
};

static struct incoming new_incoming(unsigned int flags)
{
	struct incoming incoming = { .device = new_device(), .peer = new_peer() };
	struct peer *peer = incoming.peer;

	incoming.local = new_interrupt(incoming.device, &incoming.number, flags);
	incoming.remote = there(peer, THERE_CONNECT_INTERRUPT, there(peer, THERE_OPEN), own_id(),
				incoming.number);
	return incoming;
}

static void trigger(struct incoming *incoming, int times)
{
	there(incoming->peer, THERE_TRIGGER, incoming->remote, times);
}

static void none_waits(sci_local_interrupt_t interrupt)
{
	bad(SCI_ERR_TIMEOUT, SCIWaitForInterrupt(interrupt, A_MOMENT, 0, &error));
}

static void number_auto(void)
{
	sci_desc_t device = new_device();
	unsigned int number[32], i, j;

	for (i = 0; i < ARRAY_SIZE(number); i++) {
		/* The call only writes to the number. */
		number[i] = 1;
		new_interrupt(device, &number[i], 0);
		for (j = 0; j < i; j++)
			expect(number[j] != number[i]);
		connect_interrupt(device, own_id(), number[i]);
	}
}

static void number_fixed(void)
{
	sci_desc_t device = new_device();
	unsigned int number = new_id(), wanted = number;
	sci_local_interrupt_t interrupt;

	interrupt = new_interrupt(device, &number, SCI_FLAG_FIXED_INTNO);
	same(number, wanted);
	bad(SCI_ERR_INTNO_USED, SCICreateInterrupt(device, &interrupt, ADAPTER, &number, NULL,
						   NULL, SCI_FLAG_FIXED_INTNO, &error));
	same(number, wanted);
	connect_interrupt(device, own_id(), wanted);
}

static void number_free_again(void)
{
	sci_desc_t device = new_device();
	unsigned int number = new_id();
	int i;

	for (i = 0; i < 10; i++)
		good(SCIRemoveInterrupt(new_interrupt(device, &number, SCI_FLAG_FIXED_INTNO), 0,
					&error));
}

static void number_used_by_process(void)
{
	struct peer *peer = new_peer();
	unsigned int number = new_id();
	__s64 device = there(peer, THERE_OPEN);
	sci_local_interrupt_t interrupt;

	there(peer, THERE_INTERRUPT, device, number, SCI_FLAG_FIXED_INTNO);
	if (peer_id(peer) == own_id())
		bad(SCI_ERR_INTNO_USED,
		    SCICreateInterrupt(new_device(), &interrupt, ADAPTER, &number, NULL, NULL,
				       SCI_FLAG_FIXED_INTNO, &error));
	else
		new_interrupt(new_device(), &number, SCI_FLAG_FIXED_INTNO);
}

static void trigger_wakes(void)
{
	struct peer *peer = new_peer();
	__s64 interrupt = there(peer, THERE_INTERRUPT, there(peer, THERE_OPEN), 0, 0);
	sci_remote_interrupt_t remote;
	int i;

	remote = connect_interrupt(new_device(), peer_id(peer), answer(peer, 0));
	for (i = 0; i < 20; i++) {
		begin(peer, THERE_WAIT_INTERRUPT, interrupt, FOREVER);
		if (!i)
			expect_blocked(peer);
		good(SCITriggerInterrupt(remote, 0, &error));
		end_good(peer);
	}
}

static void trigger_from_peer(void)
{
	struct incoming incoming = new_incoming(0);
	int i;

	for (i = 0; i < 20; i++) {
		trigger(&incoming, 1);
		good(SCIWaitForInterrupt(incoming.local, FOREVER, 0, &error));
	}
	none_waits(incoming.local);
}

static void interrupt_times_out(void)
{
	unsigned int number = 0;
	sci_local_interrupt_t interrupt = new_interrupt(new_device(), &number, 0);
	__u64 started = now();

	bad(SCI_ERR_TIMEOUT, SCIWaitForInterrupt(interrupt, 100, 0, &error));
	expect(now() - started >= 99);
	bad(SCI_ERR_TIMEOUT, SCIWaitForInterrupt(interrupt, 0, 0, &error));
}

static void trigger_kept(void)
{
	struct incoming incoming = new_incoming(0);

	/* No thread waits, so all triggers count as one. */
	trigger(&incoming, 5);
	good(SCIWaitForInterrupt(incoming.local, FOREVER, 0, &error));
	/* The last trigger may have arrived a moment later. */
	before_call();
	SCIWaitForInterrupt(incoming.local, A_MOMENT, 0, &error);
	none_waits(incoming.local);
	trigger(&incoming, 1);
	good(SCIWaitForInterrupt(incoming.local, FOREVER, 0, &error));
	none_waits(incoming.local);
}

static void trigger_counted(void)
{
	struct incoming incoming = new_incoming(SCI_FLAG_COUNTING_INT);
	int i;

	trigger(&incoming, 100);
	for (i = 0; i < 100; i++)
		good(SCIWaitForInterrupt(incoming.local, FOREVER, 0, &error));
	none_waits(incoming.local);
}

static void connectors_many(void)
{
	unsigned int number = 0;
	sci_local_interrupt_t interrupt =
		new_interrupt(new_device(), &number, SCI_FLAG_COUNTING_INT);
	struct peer *peer[4];
	__s64 remote[4];
	int i;

	for (i = 0; i < 4; i++) {
		peer[i] = new_peer();
		remote[i] = there(peer[i], THERE_CONNECT_INTERRUPT, there(peer[i], THERE_OPEN),
				  own_id(), number);
	}
	for (i = 0; i < 4; i++)
		begin(peer[i], THERE_TRIGGER, remote[i], 25);
	for (i = 0; i < 100; i++)
		good(SCIWaitForInterrupt(interrupt, FOREVER, 0, &error));
	for (i = 0; i < 4; i++)
		end_good(peer[i]);
	none_waits(interrupt);
	/* The end of one connection does not affect the others. */
	there(peer[0], THERE_DISCONNECT_INTERRUPT, remote[0]);
	begin(peer[1], DO_DIE);
	wait_for_death(peer[1]);
	there(peer[2], THERE_TRIGGER, remote[2], 1);
	good(SCIWaitForInterrupt(interrupt, FOREVER, 0, &error));
}

static void interrupt_connect_none(void)
{
	struct peer *peer = new_peer();
	sci_remote_interrupt_t interrupt;
	sci_desc_t device = new_device();
	__u64 started = now();

	bad(SCI_ERR_NO_SUCH_INTNO, SCIConnectInterrupt(device, &interrupt, peer_id(peer), ADAPTER,
						       new_id(), FOREVER, 0, &error));
	bad(SCI_ERR_NO_SUCH_INTNO, SCIConnectInterrupt(device, &interrupt, peer_id(peer), ADAPTER,
						       new_id(), 0, 0, &error));
	expect(now() - started < runner.limit * 500ULL);
}

static void interrupt_connect_arguments(void)
{
	sci_desc_t device = new_device();
	sci_remote_interrupt_t interrupt;
	unsigned int number = 0;

	new_interrupt(device, &number, 0);
	bad(SCI_ERR_ILLEGAL_NODEID,
	    SCIConnectInterrupt(device, &interrupt, 0, ADAPTER, number, 0, 0, &error));
	bad(SCI_ERR_NO_SUCH_ADAPTERNO,
	    SCIConnectInterrupt(device, &interrupt, own_id(), 3, number, 0, 0, &error));
	bad(SCI_ERR_ILLEGAL_ADAPTERNO,
	    SCIConnectInterrupt(device, &interrupt, own_id(), 16, number, 0, 0, &error));
	good(SCIConnectInterrupt(device, &interrupt, own_id(), ADAPTER, number, 0, 0, &error));
}

static void interrupt_disconnect(void)
{
	struct peer *peer = new_peer();
	__s64 interrupt = there(peer, THERE_INTERRUPT, there(peer, THERE_OPEN), 0, 0);
	unsigned int number = answer(peer, 0);
	sci_desc_t device = new_device();
	sci_remote_interrupt_t remote;
	int i;

	for (i = 0; i < 20; i++) {
		remote = connect_interrupt(device, peer_id(peer), number);
		good(SCIDisconnectInterrupt(remote, 0, &error));
		bad(STALE, SCITriggerInterrupt(remote, 0, &error));
	}
	there_bad(peer, SCI_ERR_TIMEOUT, THERE_WAIT_INTERRUPT, interrupt, A_MOMENT);
}

static void removed_is_gone(void)
{
	struct incoming incoming = new_incoming(0);

	/* The interrupt has a connection. */
	good(SCIRemoveInterrupt(incoming.local, 0, &error));
	wait_until((ask(incoming.peer, THERE_TRIGGER, incoming.remote, 1), errno != SCI_ERR_OK));
	there_bad(incoming.peer, SCI_ERR_NOT_CONNECTED, THERE_TRIGGER, incoming.remote, 1);
	there_bad(incoming.peer, SCI_ERR_NO_SUCH_INTNO, THERE_CONNECT_INTERRUPT,
		  there(incoming.peer, THERE_OPEN), own_id(), incoming.number);
	there(incoming.peer, THERE_DISCONNECT_INTERRUPT, incoming.remote);
}

static void owner_killed(void)
{
	struct peer *peer = new_peer();
	unsigned int number;
	sci_remote_interrupt_t remote;
	sci_desc_t device = new_device();

	there(peer, THERE_INTERRUPT, there(peer, THERE_OPEN), 0, 0);
	number = answer(peer, 0);
	remote = connect_interrupt(device, peer_id(peer), number);
	begin(peer, DO_DIE);
	wait_until((before_call(), SCITriggerInterrupt(remote, 0, &error), error != SCI_ERR_OK));
	bad(SCI_ERR_NOT_CONNECTED, SCITriggerInterrupt(remote, 0, &error));
	good(SCIDisconnectInterrupt(remote, 0, &error));
}

static void *wait_until_removed(void *data)
{
	bad(SCI_ERR_CANCELLED, SCIWaitForInterrupt(data, FOREVER, 0, &error));
	return NULL;
}

static void interrupt_cancelled(void)
{
	unsigned int number = 0;
	sci_local_interrupt_t interrupt = new_interrupt(new_device(), &number, 0);
	pthread_t one = in_thread(wait_until_removed, interrupt);
	pthread_t two = in_thread(wait_until_removed, interrupt);

	poll(NULL, 0, A_MOMENT);
	good(SCIRemoveInterrupt(interrupt, 0, &error));
	thread_result(one);
	thread_result(two);
}

/* Data stored before the trigger has arrived. */
static void after_stores(void)
{
	struct remote remote = new_remote(8192);
	struct theirs *there = &remote.there;
	__s64 interrupt = there(there->peer, THERE_INTERRUPT, there->device, 0, 0);
	sci_remote_interrupt_t trigger;
	int i;

	trigger = connect_interrupt(remote.device, peer_id(there->peer), answer(there->peer, 0));
	for (i = 0; i < 50; i++) {
		fill_remote(remote.memory, i, 8192);
		SCIFlush(NULL, 0);
		good(SCITriggerInterrupt(trigger, 0, &error));
		there(there->peer, THERE_WAIT_INTERRUPT, interrupt, FOREVER);
		same(ask(there->peer, DO_DIFFERS, there->memory, i, 8192), -1);
	}
}

static void interrupt_waits_restart(void)
{
	unsigned int number = 0;
	sci_local_interrupt_t interrupt = new_interrupt(new_device(), &number, 0);

	interrupt_repeatedly(false);
	bad(SCI_ERR_TIMEOUT, SCIWaitForInterrupt(interrupt, 300, 0, &error));
	expect(interruptions() > 0);
	stop_interrupting();
}

static void both_directions(void)
{
	struct incoming incoming = new_incoming(0);
	struct peer *peer = incoming.peer;
	__s64 interrupt = there(peer, THERE_INTERRUPT, there(peer, THERE_OPEN), 0, 0);
	sci_remote_interrupt_t remote;
	int i;

	remote = connect_interrupt(incoming.device, peer_id(peer), answer(peer, 0));
	for (i = 0; i < 100; i++) {
		good(SCITriggerInterrupt(remote, 0, &error));
		there(peer, THERE_WAIT_INTERRUPT, interrupt, FOREVER);
		trigger(&incoming, 1);
		good(SCIWaitForInterrupt(incoming.local, FOREVER, 0, &error));
	}
}

const struct test_case interrupt_cases[] = {
	ALONE(number_auto, "interrupt.auto"),
	ALONE(number_fixed, "interrupt.fixed interrupt.used"),
	ALONE(number_free_again, "interrupt.free"),
	PAIR(number_used_by_process, "interrupt.used"),
	PAIR(trigger_wakes, "interrupt.wait"),
	PAIR(trigger_from_peer, "interrupt.wait"),
	ALONE(interrupt_times_out, "interrupt.timeout"),
	PAIR(trigger_kept, "interrupt.kept"),
	PAIR(trigger_counted, "interrupt.counting"),
	PAIR(connectors_many, "interrupt.connectors"),
	PAIR(interrupt_connect_none, "interrupt.none-at-once"),
	ALONE(interrupt_connect_arguments, "node.illegal adapter.numbers"),
	PAIR(interrupt_disconnect, "interrupt.disconnect handle.stale"),
	PAIR(removed_is_gone, "interrupt.gone"),
	PAIR(owner_killed, "interrupt.gone"),
	ALONE(interrupt_cancelled, "interrupt.cancelled"),
	PAIR_MAPPED(after_stores, "interrupt.order"),
	ALONE(interrupt_waits_restart, "wait.restarts"),
	PAIR(both_directions, "interrupt.wait"),
	{ }
};
