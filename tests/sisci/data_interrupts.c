// SPDX-License-Identifier: GPL-2.0
/*
 * Interrupts that carry data.
 */
#include "sisci_suite.h"

#define MOST	4096
#define ROOM	(64 * 1024)

/* A data interrupt to which this process is connected. */
struct carrier {
	sci_desc_t device;
	sci_local_data_interrupt_t local;
	sci_remote_data_interrupt_t remote;
	unsigned int number;
};

static struct carrier new_carrier(void)
{
	struct carrier carrier = { .device = new_device() };

	carrier.local = new_data_interrupt(carrier.device, &carrier.number);
	carrier.remote = connect_data_interrupt(carrier.device, own_id(), carrier.number);
	return carrier;
}

static void sends(struct carrier *carrier, __u32 seed, unsigned int length)
{
	unsigned char data[MOST];

	fill(data, seed, length);
	good(SCITriggerDataInterrupt(carrier->remote, data, length, 0, &error));
}

static void receives(struct carrier *carrier, __u32 seed, unsigned int expected)
{
	unsigned char data[MOST];
	unsigned int length = sizeof(data);

	good(SCIWaitForDataInterrupt(carrier->local, data, &length, FOREVER, 0, &error));
	same(length, expected);
	same(differs(data, seed, length), -1);
}

static void data_lengths(void)
{
	static const unsigned int lengths[] = { 1, 2, 7, 8, 63, 100, 1024, 4095, MOST };
	struct carrier carrier = new_carrier();
	size_t i;

	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		sends(&carrier, i, lengths[i]);
		receives(&carrier, i, lengths[i]);
	}
}

static void data_too_long(void)
{
	struct carrier carrier = new_carrier();
	unsigned char *data = pages(64);

	bad(SCI_ERR_OUT_OF_RANGE,
	    SCITriggerDataInterrupt(carrier.remote, data, MOST + 1, 0, &error));
	bad(SCI_ERR_OUT_OF_RANGE,
	    SCITriggerDataInterrupt(carrier.remote, data, 64 * 4096, 0, &error));
	bad(SCI_ERR_ILLEGAL_PARAMETER,
	    SCITriggerDataInterrupt(carrier.remote, NULL, 8, 0, &error));
	/* The refused data has not arrived. */
	sends(&carrier, 1, 5);
	receives(&carrier, 1, 5);
}

static void data_from_peer(void)
{
	struct carrier carrier = new_carrier();
	struct peer *peer = new_peer();
	__s64 memory = ask(peer, DO_PAGES, 1), remote;
	int i;

	remote = there(peer, THERE_CONNECT_DATA, there(peer, THERE_OPEN), own_id(),
		       carrier.number);
	for (i = 0; i < 20; i++) {
		ask(peer, DO_FILL, memory, i, 100 + i);
		there(peer, THERE_TRIGGER_DATA, remote, memory, 100 + i);
		receives(&carrier, i, 100 + i);
	}
}

static void data_to_peer(void)
{
	struct peer *peer = new_peer();
	__s64 memory = ask(peer, DO_PAGES, 1);
	__s64 interrupt = there(peer, THERE_DATA_INTERRUPT, there(peer, THERE_OPEN), 0, 0);
	struct carrier carrier = { .device = new_device() };

	carrier.remote = connect_data_interrupt(carrier.device, peer_id(peer), answer(peer, 0));
	begin(peer, THERE_WAIT_DATA, interrupt, memory, 4096, FOREVER);
	expect_blocked(peer);
	sends(&carrier, 9, 1000);
	same(end_good(peer), 1000);
	same(ask(peer, DO_DIFFERS, memory, 9, 1000), -1);
}

static void data_order(void)
{
	struct carrier carrier = new_carrier();
	int i;

	for (i = 0; i < 100; i++)
		sends(&carrier, i, 1 + i * 3);
	for (i = 0; i < 100; i++)
		receives(&carrier, i, 1 + i * 3);
}

/* Triggers with a KiB of data, if there is room. Returns whether there was. */
static bool sends_a_kib(struct carrier *carrier, int seed)
{
	unsigned char data[1024];

	fill(data, seed, sizeof(data));
	before_call();
	SCITriggerDataInterrupt(carrier->remote, data, sizeof(data), 0, &error);
	return error == SCI_ERR_OK;
}

static void data_no_room(void)
{
	struct carrier carrier = new_carrier();
	int sent = 0, taken = 0;
	bool has_room;

	while (sent < 4000 && sends_a_kib(&carrier, sent))
		sent++;
	same(error, SCI_ERR_NOSPC);
	/* There is at least the promised room, and some for data in flight. */
	expect(sent >= ROOM / 1024);
	/*
	 * Exactly the accepted data arrives. Later there is room again, as the receiver may have
	 * fetched the first data already.
	 */
	do {
		receives(&carrier, taken++, 1024);
		has_room = sends_a_kib(&carrier, sent);
	} while (!has_room && taken < sent);
	if (!has_room)
		wait_until(sends_a_kib(&carrier, sent));
	while (taken <= sent)
		receives(&carrier, taken++, 1024);
}

static void data_overflow(void)
{
	struct carrier carrier = new_carrier();
	unsigned char data[64];
	unsigned int length = 10;

	sends(&carrier, 1, 50);
	sends(&carrier, 2, 5);
	memset(data, 0x77, sizeof(data));
	bad(SCI_ERR_OVERFLOW,
	    SCIWaitForDataInterrupt(carrier.local, data, &length, FOREVER, 0, &error));
	same(length, 50);
	/* The data stays the first in the queue. */
	length = 49;
	bad(SCI_ERR_OVERFLOW,
	    SCIWaitForDataInterrupt(carrier.local, data, &length, 0, 0, &error));
	receives(&carrier, 1, 50);
	receives(&carrier, 2, 5);
}

static void data_times_out(void)
{
	struct carrier carrier = new_carrier();
	unsigned char data[8];
	unsigned int length = 8;
	__u64 started = now();

	bad(SCI_ERR_TIMEOUT,
	    SCIWaitForDataInterrupt(carrier.local, data, &length, 100, 0, &error));
	expect(now() - started >= 99);
	bad(SCI_ERR_TIMEOUT, SCIWaitForDataInterrupt(carrier.local, data, &length, 0, 0, &error));
	bad(SCI_ERR_ILLEGAL_PARAMETER,
	    SCIWaitForDataInterrupt(carrier.local, data, NULL, 0, 0, &error));
	bad(SCI_ERR_ILLEGAL_PARAMETER,
	    SCIWaitForDataInterrupt(carrier.local, NULL, &length, 0, 0, &error));
}

static void *wait_until_removed(void *data)
{
	unsigned char bytes[8];
	unsigned int length = 8;

	bad(SCI_ERR_CANCELLED,
	    SCIWaitForDataInterrupt(data, bytes, &length, FOREVER, 0, &error));
	return NULL;
}

static void data_cancelled(void)
{
	struct carrier carrier = new_carrier();
	pthread_t thread = in_thread(wait_until_removed, carrier.local);

	poll(NULL, 0, A_MOMENT);
	good(SCIRemoveDataInterrupt(carrier.local, 0, &error));
	thread_result(thread);
	wait_until((before_call(), SCITriggerDataInterrupt(carrier.remote, "x", 1, 0, &error),
		    error != SCI_ERR_OK));
	same(error, SCI_ERR_NOT_CONNECTED);
	good(SCIDisconnectDataInterrupt(carrier.remote, 0, &error));
}

static void data_callback(void)
{
	struct carrier carrier = { .device = new_device() };
	struct call_log *log = new_log();
	unsigned char first;
	unsigned int length = 8;
	int i;

	good(SCICreateDataInterrupt(carrier.device, &carrier.local, ADAPTER, &carrier.number,
				    log_data, log, SCI_FLAG_USE_CALLBACK, &error));
	carrier.remote = connect_data_interrupt(carrier.device, own_id(), carrier.number);
	for (i = 0; i < 20; i++)
		sends(&carrier, i, 10 + i);
	called_exactly(log, 20);
	for (i = 0; i < 20; i++) {
		fill(&first, i, 1);
		expect(log->call[i].handle == carrier.local);
		same(log->call[i].length, 10 + i);
		same(log->call[i].first_byte, first);
		same(log->call[i].status, SCI_ERR_OK);
	}
	bad(SCI_ERR_ILLEGAL_OPERATION,
	    SCIWaitForDataInterrupt(carrier.local, &first, &length, 0, 0, &error));
}

static void data_callback_cancel(void)
{
	struct carrier carrier = { .device = new_device() };
	struct call_log *log = new_log();

	log->action = SCI_CALLBACK_CANCEL;
	good(SCICreateDataInterrupt(carrier.device, &carrier.local, ADAPTER, &carrier.number,
				    log_data, log, SCI_FLAG_USE_CALLBACK, &error));
	carrier.remote = connect_data_interrupt(carrier.device, own_id(), carrier.number);
	sends(&carrier, 1, 8);
	sends(&carrier, 2, 8);
	called_exactly(log, 1);
	good(SCIRemoveDataInterrupt(carrier.local, 0, &error));
}

static void data_numbers(void)
{
	sci_desc_t device = new_device();
	sci_local_data_interrupt_t interrupt, other;
	sci_remote_data_interrupt_t remote;
	unsigned int number = new_id(), wanted = number;

	good(SCICreateDataInterrupt(device, &interrupt, ADAPTER, &number, NULL, NULL,
				    SCI_FLAG_FIXED_INTNO, &error));
	same(number, wanted);
	bad(SCI_ERR_INTNO_USED, SCICreateDataInterrupt(device, &other, ADAPTER, &number, NULL,
						       NULL, SCI_FLAG_FIXED_INTNO, &error));
	good(SCIRemoveDataInterrupt(interrupt, 0, &error));
	bad(SCI_ERR_NO_SUCH_INTNO, SCIConnectDataInterrupt(device, &remote, own_id(), ADAPTER,
							   number, FOREVER, 0, &error));
	good(SCICreateDataInterrupt(device, &interrupt, ADAPTER, &number, NULL, NULL,
				    SCI_FLAG_FIXED_INTNO, &error));
}

/* Interrupts without data have numbers of their own. */
static void data_class(void)
{
	struct carrier carrier = new_carrier();
	sci_remote_data_interrupt_t data;
	sci_remote_interrupt_t plain;
	unsigned int number = new_id();

	bad(SCI_ERR_NO_SUCH_INTNO, SCIConnectInterrupt(carrier.device, &plain, own_id(), ADAPTER,
						       carrier.number, FOREVER, 0, &error));
	new_interrupt(carrier.device, &number, SCI_FLAG_FIXED_INTNO);
	if (number != carrier.number)
		bad(SCI_ERR_NO_SUCH_INTNO,
		    SCIConnectDataInterrupt(carrier.device, &data, own_id(), ADAPTER, number,
					    FOREVER, 0, &error));
}

/* Messages of several senders are not mixed. */
static void data_connectors(void)
{
	struct carrier carrier = new_carrier();
	struct peer *peer[3];
	__s64 memory[3], remote[3];
	unsigned char data[MOST];
	unsigned int length;
	int i, found[3] = { 0 };

	for (i = 0; i < 3; i++) {
		peer[i] = new_peer();
		memory[i] = ask(peer[i], DO_PAGES, 1);
		ask(peer[i], DO_FILL, memory[i], i, 1000 + i);
		remote[i] = there(peer[i], THERE_CONNECT_DATA, there(peer[i], THERE_OPEN),
				  own_id(), carrier.number);
	}
	for (i = 0; i < 12; i++)
		there(peer[i % 3], THERE_TRIGGER_DATA, remote[i % 3], memory[i % 3],
		      1000 + i % 3);
	for (i = 0; i < 12; i++) {
		length = sizeof(data);
		good(SCIWaitForDataInterrupt(carrier.local, data, &length, FOREVER, 0, &error));
		expect(length >= 1000 && length < 1003);
		same(differs(data, length - 1000, length), -1);
		found[length - 1000]++;
	}
	for (i = 0; i < 3; i++)
		same(found[i], 4);
}

static void data_owner_killed(void)
{
	struct peer *peer = new_peer();
	struct carrier carrier = { .device = new_device() };

	there(peer, THERE_DATA_INTERRUPT, there(peer, THERE_OPEN), 0, 0);
	carrier.remote = connect_data_interrupt(carrier.device, peer_id(peer), answer(peer, 0));
	begin(peer, DO_DIE);
	wait_until((before_call(), SCITriggerDataInterrupt(carrier.remote, "x", 1, 0, &error),
		    error != SCI_ERR_OK && error != SCI_ERR_NOSPC));
	same(error, SCI_ERR_NOT_CONNECTED);
}

const struct test_case data_interrupt_cases[] = {
	ALONE(data_lengths, "data.lengths"),
	ALONE(data_too_long, "data.too-long"),
	PAIR(data_from_peer, "data.lengths"),
	PAIR(data_to_peer, "data.wait"),
	ALONE(data_order, "data.order"),
	ALONE(data_no_room, "data.no-room data.order"),
	ALONE(data_overflow, "data.overflow"),
	ALONE(data_times_out, "data.wait handle.places"),
	ALONE(data_cancelled, "interrupt.cancelled interrupt.gone"),
	ALONE(data_callback, "data.callback callback.excludes-wait"),
	ALONE(data_callback_cancel, "callback.cancel"),
	ALONE(data_numbers, "interrupt.fixed interrupt.used interrupt.none-at-once"),
	ALONE(data_class, "segment.id-class"),
	PAIR(data_connectors, "interrupt.connectors data.order"),
	PAIR(data_owner_killed, "interrupt.gone"),
	{ }
};
