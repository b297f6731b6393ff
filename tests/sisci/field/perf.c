// SPDX-License-Identifier: GPL-2.0
/*
 * field-perf: a performance suite like those that come with adapters, except that it checks the
 * data that has arrived instead of measuring times.
 *
 *   field-perf server                     serves one client
 *   field-perf client NODE [NAME...]      does the experiments of those names, or all
 *   field-perf client NODE loop NAME      does one until the server is lost
 *
 * The client orders the server's work by data interrupts, and the server answers by data
 * interrupts. The experiments that store to maps print "no map" where remote memory can't be
 * mapped.
 */
#include "field.h"

#define SERVER_SEGMENT	0x5101
#define CLIENT_SEGMENT	0x5102
#define SIZE		(4u << 20)
/* The words of the ping-pong are behind the area of copies. */
#define PLAIN		(SIZE - 4096)
#define ORDERS		0x5201
#define ANSWERS		0x5202
#define SERVER_BELL	0x5203
#define CLIENT_BELL	0x5204
#define STREAM		0x5205
/* Performance suites use this number, whatever vectors they send. */
#define QUEUE_ENTRIES	4
#define ROUNDS		200
#define BURST		40000

enum kind { HELLO, SUM, FILL, PINGPONG, BELLS, SOME_BELL, KEPT, STREAMED, BYE };

struct order {
	uint64_t kind, offset, size, seed;
};

struct answer {
	uint64_t value;
};

static sci_desc_t device;
static sci_local_segment_t local;
static sci_map_t local_map;
static unsigned char *memory;
static sci_remote_segment_t remote;
static sci_map_t remote_map;
static volatile unsigned char *view;
static sci_sequence_t sequence;
static sci_local_data_interrupt_t heard, stream_in;
static sci_remote_data_interrupt_t told, stream_out;
static sci_local_interrupt_t own_bell;
static sci_remote_interrupt_t other_bell;
/* Whether the other side is lost. */
static int gone;

static sci_callback_action_t on_local(void *arg, sci_local_segment_t segment,
				      sci_segment_cb_reason_t reason, unsigned int node,
				      unsigned int adapter, sci_error_t status)
{
	if (reason != SCI_CB_CONNECT && reason != SCI_CB_OPERATIONAL)
		set(&gone, 1);
	return SCI_CALLBACK_CONTINUE;
}

static sci_callback_action_t on_remote(void *arg, sci_remote_segment_t segment,
				       sci_segment_cb_reason_t reason, sci_error_t status)
{
	if (reason != SCI_CB_CONNECT && reason != SCI_CB_OPERATIONAL)
		set(&gone, 1);
	return SCI_CALLBACK_CONTINUE;
}

/* --- Resources of both sides --- */

static void create_own(unsigned int id, unsigned int bell, unsigned int messages)
{
	sci_error_t error;

	SCIInitialize(NO_FLAGS, &error);
	check("SCIInitialize", error);
	SCIOpen(&device, NO_FLAGS, &error);
	check("SCIOpen", error);
	SCICreateSegment(device, &local, id, SIZE, on_local, NO_ARG,
			 SCI_FLAG_USE_CALLBACK | SCI_FLAG_DMA_GLOBAL, &error);
	check("SCICreateSegment with SCI_FLAG_DMA_GLOBAL", error);
	SCIPrepareSegment(local, ADAPTER, SCI_FLAG_DMA_GLOBAL, &error);
	check("SCIPrepareSegment with SCI_FLAG_DMA_GLOBAL", error);
	memory = SCIMapLocalSegment(local, &local_map, 0, SIZE, NULL, NO_FLAGS, &error);
	check("SCIMapLocalSegment", error);
	memset(memory, 0, SIZE);
	create_data(device, &heard, messages);
	SCICreateInterrupt(device, &own_bell, ADAPTER, &bell, NO_CALLBACK, NO_ARG,
			   SCI_FLAG_FIXED_INTNO, &error);
	check("SCICreateInterrupt", error);
	SCISetSegmentAvailable(local, ADAPTER, NO_FLAGS, &error);
	check("SCISetSegmentAvailable", error);
}

static void connect_other(unsigned int node, unsigned int id, unsigned int bell,
			  unsigned int messages)
{
	sci_error_t error;

	do {
		SCIConnectSegment(device, &remote, node, id, ADAPTER, on_remote, NO_ARG,
				  SCI_INFINITE_TIMEOUT, SCI_FLAG_USE_CALLBACK, &error);
	} while (not_there_yet(error));
	check("SCIConnectSegment", error);
	if (SCIGetRemoteSegmentSize(remote) != SIZE)
		die("the segment has %zu bytes", SCIGetRemoteSegmentSize(remote));
	SCIConnectInterrupt(device, &other_bell, node, ADAPTER, bell, SCI_INFINITE_TIMEOUT,
			    NO_FLAGS, &error);
	check("SCIConnectInterrupt", error);
	connect_data(device, &told, node, messages);
	view = SCIMapRemoteSegment(remote, &remote_map, 0, SIZE, NULL,
				   SCI_FLAG_IO_MAP_IOSPACE, &error);
	if (error == SCI_ERR_NOT_SUPPORTED) {
		/* The map fails either because of the flag, or because nothing can be mapped. */
		sci_error_t plain;

		SCIMapRemoteSegment(remote, &remote_map, 0, SIZE, NULL, NO_FLAGS, &plain);
		if (plain == SCI_ERR_OK)
			check("SCIMapRemoteSegment with SCI_FLAG_IO_MAP_IOSPACE", error);
		view = NULL;
		return;
	}
	check("SCIMapRemoteSegment", error);
	SCICreateMapSequence(remote_map, &sequence, NO_FLAGS, &error);
	check("SCICreateMapSequence", error);
}

/* Releases all resources, after a loss as well. */
static void release(void)
{
	sci_error_t error;

	if (view) {
		SCIRemoveSequence(sequence, NO_FLAGS, &error);
		check("SCIRemoveSequence", error);
		SCIUnmapSegment(remote_map, NO_FLAGS, &error);
		check("SCIUnmapSegment of the remote map", error);
	}
	SCIDisconnectSegment(remote, NO_FLAGS, &error);
	check("SCIDisconnectSegment", error);
	SCIDisconnectInterrupt(other_bell, NO_FLAGS, &error);
	check("SCIDisconnectInterrupt", error);
	SCIDisconnectDataInterrupt(told, NO_FLAGS, &error);
	check("SCIDisconnectDataInterrupt", error);
	if (stream_out) {
		SCIDisconnectDataInterrupt(stream_out, NO_FLAGS, &error);
		check("SCIDisconnectDataInterrupt of the stream", error);
	}
	if (stream_in) {
		SCIRemoveDataInterrupt(stream_in, NO_FLAGS, &error);
		check("SCIRemoveDataInterrupt of the stream", error);
	}
	SCIRemoveInterrupt(own_bell, NO_FLAGS, &error);
	check("SCIRemoveInterrupt", error);
	SCIRemoveDataInterrupt(heard, NO_FLAGS, &error);
	check("SCIRemoveDataInterrupt", error);
	SCIUnmapSegment(local_map, NO_FLAGS, &error);
	check("SCIUnmapSegment", error);
	SCIRemoveSegment(local, NO_FLAGS, &error);
	check("SCIRemoveSegment", error);
	SCIClose(device, NO_FLAGS, &error);
	check("SCIClose", error);
	SCITerminate();
}

/* Sends a message. Returns false if the other side is lost. */
static bool tell(void *message, unsigned int size)
{
	sci_error_t error;

	for (;;) {
		SCITriggerDataInterrupt(told, message, size, NO_FLAGS, &error);
		if (error == SCI_ERR_OK)
			return true;
		if (error != SCI_ERR_NOSPC || is(&gone))
			return false;
		nap();
	}
}

/* Takes a message of exactly this size. Returns false if the other side is lost. */
static bool hear(void *message, unsigned int size)
{
	unsigned int length;
	sci_error_t error;

	do {
		length = size;
		SCIWaitForDataInterrupt(heard, message, &length, 200, NO_FLAGS, &error);
	} while (error == SCI_ERR_TIMEOUT && !is(&gone));
	if (error == SCI_ERR_OK && length != size)
		die("a message of %u bytes, not %u", length, size);
	if (error != SCI_ERR_OK && error != SCI_ERR_TIMEOUT)
		check("SCIWaitForDataInterrupt", error);
	return error == SCI_ERR_OK;
}

/* Waits for the own interrupt. Returns false if the other side is lost. */
static bool rung(void)
{
	sci_error_t error;

	do {
		SCIWaitForInterrupt(own_bell, 200, NO_FLAGS, &error);
	} while (error == SCI_ERR_TIMEOUT && !is(&gone));
	if (error != SCI_ERR_OK && error != SCI_ERR_TIMEOUT)
		check("SCIWaitForInterrupt", error);
	return error == SCI_ERR_OK;
}

/* Returns the word of the ping-pong. */
static volatile uint32_t *word_in(volatile unsigned char *base)
{
	return (volatile uint32_t *)(base + PLAIN);
}

static bool seen(uint32_t number)
{
	while (*word_in(memory) != number) {
		if (is(&gone))
			return false;
	}
	return true;
}

/* --- The server --- */

static uint64_t take_stream(uint64_t count, bool all)
{
	uint64_t number, last = 0;
	unsigned int length;
	sci_error_t error;

	for (uint64_t i = 0; i < count && !is(&gone); i++) {
		length = sizeof(number);
		SCIWaitForDataInterrupt(stream_in, &number, &length, 20000, NO_FLAGS, &error);
		if (error != SCI_ERR_OK || length != sizeof(number))
			return i;
		if (number <= last || (all && number != last + 1))
			return i;
		last = number;
	}
	return count;
}

static uint64_t obey(const struct order *order)
{
	uint64_t i;
	sci_error_t error;

	switch (order->kind) {
	case HELLO:
		connect_other(order->seed, CLIENT_SEGMENT, CLIENT_BELL, ANSWERS);
		return !!view;
	case SUM:
		return sum_of(memory + order->offset, order->size);
	case FILL:
		fill(memory + order->offset, order->size, order->seed);
		return 0;
	case PINGPONG:
		for (i = 1; i <= order->size && seen(order->seed + i); i++)
			*word_in(view) = order->seed + i;
		return i - 1;
	case BELLS:
		for (i = 0; i < order->size && rung(); i++) {
			SCITriggerInterrupt(other_bell, NO_FLAGS, &error);
			if (error != SCI_ERR_OK)
				break;
		}
		return i;
	case SOME_BELL:
		if (!rung())
			return 0;
		do {
			SCIWaitForInterrupt(own_bell, 0, NO_FLAGS, &error);
		} while (error == SCI_ERR_OK);
		return 1;
	case KEPT:
		return take_stream(order->size, false);
	case STREAMED:
		return take_stream(order->size, true);
	default:
		return 0;
	}
}

static int serve(void)
{
	struct order order;
	struct answer answer;

	create_own(SERVER_SEGMENT, SERVER_BELL, ORDERS);
	create_data(device, &stream_in, STREAM);
	say("serving");
	do {
		if (!hear(&order, sizeof(order)))
			break;
		answer.value = obey(&order);
		/* Some orders need no answer, or come in the same moment as the end. */
		if (order.kind != BYE && !tell(&answer, sizeof(answer)))
			break;
	} while (order.kind != BYE);
	if (!remote) {
		say("no client came");
		return PARTY_LOST;
	}
	release();
	say(order.kind == BYE ? "served" : "client lost");
	return order.kind == BYE ? WELL : PARTY_LOST;
}

/* --- The client --- */

static bool give(enum kind kind, uint64_t offset, uint64_t size, uint64_t seed)
{
	struct order order = { kind, offset, size, seed };

	return tell(&order, sizeof(order));
}

static bool answered(uint64_t value, const char *what)
{
	struct answer answer;

	if (!hear(&answer, sizeof(answer)))
		return false;
	if (answer.value != value && !is(&gone))
		die("%s: %#llx instead of %#llx", what, (unsigned long long)answer.value,
		    (unsigned long long)value);
	return answer.value == value;
}

static bool ordered(enum kind kind, uint64_t offset, uint64_t size, uint64_t seed,
		    uint64_t value, const char *what)
{
	return give(kind, offset, size, seed) && answered(value, what);
}

/* Checks that the data in this memory has arrived at the server. */
static bool arrived(const volatile void *sent, size_t offset, size_t size, const char *what)
{
	return ordered(SUM, offset, size, 0, sum_of(sent, size), what);
}

/* Starts checked stores. Returns false if the segment is lost. */
static bool started(void)
{
	sci_sequence_status_t status;
	sci_error_t error;

	do {
		status = SCIStartSequence(sequence, NO_FLAGS, &error);
		if (error != SCI_ERR_OK)
			return false;
	} while (status != SCI_SEQ_OK && !is(&gone));
	return status == SCI_SEQ_OK;
}

static bool checked(unsigned int flags, bool *again)
{
	sci_sequence_status_t status;
	sci_error_t error;

	*again = false;
	status = SCICheckSequence(sequence, flags, &error);
	if (error != SCI_ERR_OK)
		return false;
	if (status == SCI_SEQ_OK)
		return true;
	*again = status == SCI_SEQ_RETRIABLE || started();
	return *again;
}

/* Stores as the guide shows it: with checks, and again where this can help. */
static bool stores(size_t size, uint64_t seed)
{
	volatile uint32_t *to = (volatile uint32_t *)(view + size % 4096 / 8 * 8);
	const uint32_t *from = (const uint32_t *)memory;
	bool again;

	fill(memory, size, seed);
	if (!started())
		return false;
	do {
		for (size_t i = 0; i < size / 4; i++)
			to[i] = from[i];
		if (!checked(seed % 2 ? NO_FLAGS : SCI_FLAG_NO_FLUSH, &again))
			return false;
	} while (again);
	SCIStoreBarrier(sequence, NO_FLAGS);
	return arrived(memory, (volatile unsigned char *)to - view, size, "stores");
}

static bool pio(void)
{
	for (size_t size = 4, seed = 1; size <= 64 << 10; size *= 2, seed++) {
		if (!stores(size, seed))
			return false;
	}
	return true;
}

static bool reads(void)
{
	const size_t size = 16 << 10;
	bool again;

	for (uint64_t seed = 1; seed < 5; seed++) {
		if (!ordered(FILL, 64, size, seed, 0, "fill") || !started())
			return false;
		do {
			for (size_t i = 0; i < size; i += 8)
				*(uint64_t *)(memory + i) = *(volatile uint64_t *)(view + 64 + i);
			if (!checked(NO_FLAGS, &again))
				return false;
		} while (again);
		for (size_t i = 0; i < size && !is(&gone); i++) {
			if (memory[i] != byte(seed, i))
				die("byte %zu of what was read", i);
		}
	}
	return !is(&gone);
}

/*
 * Copies a block from the local to the remote segment, whole or not at all, as performance suites
 * do.
 */
static bool transfer_block(size_t from, size_t to, size_t size, unsigned int flags)
{
	sci_error_t error;
	bool again = true;

	do {
		SCIMemCpy(sequence, memory + from, remote_map, to, size, flags, &error);
		if (error == SCI_ERR_TRANSFER_FAILED && started())
			continue;
		if (error != SCI_ERR_OK) {
			if (!is(&gone) && error != SCI_ERR_TRANSFER_FAILED)
				check("SCIMemCpy", error);
			return false;
		}
		if (!checked(NO_FLAGS, &again))
			return false;
	} while (error != SCI_ERR_OK || again);
	return true;
}

static bool copies(void)
{
	static const unsigned int flags[] = { NO_FLAGS, SCI_FLAG_ERROR_CHECK };
	static const size_t sizes[] = { 1, 7, 8, 63, 64, 65, 4096, 5003, 65536, 1 << 20 };
	uint64_t seed = 1;

	for (size_t f = 0; f < 2; f++) {
		for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++, seed++) {
			fill(memory + seed, sizes[s], seed);
			if (!started() ||
			    !transfer_block(seed, 3 * seed, sizes[s], flags[f]) ||
			    !arrived(memory + seed, 3 * seed, sizes[s], "SCIMemCpy"))
				return false;
		}
	}
	return true;
}

static bool block_reads(void)
{
	const size_t size = 20011;
	sci_error_t error;

	for (uint64_t seed = 7; seed < 10; seed++) {
		if (!ordered(FILL, seed, size, seed, 0, "fill") || !started())
			return false;
		SCIMemCpy(sequence, memory, remote_map, seed, size,
			  SCI_FLAG_BLOCK_READ | SCI_FLAG_ERROR_CHECK, &error);
		if (error != SCI_ERR_OK)
			return false;
		for (size_t i = 0; i < size && !is(&gone); i++) {
			if (memory[i] != byte(seed, i))
				die("block reads: byte %zu", i);
		}
	}
	return !is(&gone);
}

static bool writes(void)
{
	sci_error_t error;

	for (size_t size = 16; size <= 128 << 10; size *= 8) {
		fill(memory, size, size);
		SCIMemWrite(memory, view + 256, size, NO_FLAGS, &error);
		if (error != SCI_ERR_OK) {
			if (!is(&gone))
				check("SCIMemWrite", error);
			return false;
		}
		SCIFlush(sequence, NO_FLAGS);
		if (!arrived(memory, 256, size, "SCIMemWrite"))
			return false;
	}
	return true;
}

static bool pingpong(void)
{
	static uint32_t base;

	*word_in(memory) = base;
	if (!give(PINGPONG, 0, ROUNDS, base))
		return false;
	for (uint32_t i = 1; i <= ROUNDS; i++) {
		*word_in(view) = base + i;
		SCIFlush(NULL, NO_FLAGS);
		if (!seen(base + i))
			return false;
	}
	base += ROUNDS;
	return answered(ROUNDS, "ping-pong");
}

/* --- DMA --- */

enum how { WAIT, POLL, CALL, HOWS };

static int called;
static sci_error_t called_with;

static sci_callback_action_t on_dma(void *arg, sci_dma_queue_t queue, sci_error_t status)
{
	called_with = status;
	set(&called, 1);
	return SCI_CALLBACK_CONTINUE;
}

static sci_dma_queue_t create_queue(void)
{
	sci_dma_queue_t queue;
	sci_error_t error;

	SCICreateDMAQueue(device, &queue, ADAPTER, QUEUE_ENTRIES, SCI_FLAG_DMA_GLOBAL, &error);
	check("SCICreateDMAQueue with SCI_FLAG_DMA_GLOBAL", error);
	if (SCIDMAQueueState(queue) != SCI_DMAQUEUE_IDLE)
		die("a new queue is in state %d", SCIDMAQueueState(queue));
	return queue;
}

static void remove_queue(sci_dma_queue_t queue)
{
	sci_error_t error;

	SCIRemoveDMAQueue(queue, NO_FLAGS, &error);
	check("SCIRemoveDMAQueue", error);
}

static bool refused(const char *what, sci_error_t error)
{
	if (error != SCI_ERR_TRANSFER_FAILED && error != SCI_ERR_NOT_CONNECTED &&
	    error != SCI_ERR_NODE_NOT_RESPONDING && error != SCI_ERR_SEGMENT_NOT_CONNECTED &&
	    error != SCI_ERR_NO_LINK_ACCESS)
		check(what, error);
	return false;
}

/* Waits in one of three ways until the transfer has ended. Returns false if it has failed. */
static bool ended(sci_dma_queue_t queue, enum how how)
{
	sci_dma_queue_state_t state;
	sci_error_t error;

	switch (how) {
	case WAIT:
		SCIWaitForDMAQueue(queue, SCI_INFINITE_TIMEOUT, NO_FLAGS, &error);
		if (error != SCI_ERR_OK && error != SCI_ERR_TRANSFER_FAILED)
			check("SCIWaitForDMAQueue", error);
		break;
	case CALL:
		while (!is(&called))
			nap();
		state = SCIDMAQueueState(queue);
		if (state != (called_with ? SCI_DMAQUEUE_ERROR : SCI_DMAQUEUE_DONE))
			die("the callback says %s, the queue is in state %d",
			    SCIGetErrorString(called_with), state);
		break;
	default:
		/* Polls until there is a final state, as the guide does. */
		while (SCIDMAQueueState(queue) == SCI_DMAQUEUE_POSTED)
			;
	}
	state = SCIDMAQueueState(queue);
	if (state != SCI_DMAQUEUE_DONE && state != SCI_DMAQUEUE_ERROR)
		die("a transfer comes to state %d", state);
	return state == SCI_DMAQUEUE_DONE;
}

static bool transfer(sci_dma_queue_t queue, size_t from, size_t size, size_t to,
		     unsigned int flags, enum how how)
{
	sci_error_t error;

	set(&called, 0);
	flags |= SCI_FLAG_DMA_GLOBAL | (how == CALL ? SCI_FLAG_USE_CALLBACK : 0);
	SCIStartDmaTransfer(queue, local, remote, from, size, to,
			    how == CALL ? on_dma : NO_CALLBACK, NO_ARG, flags, &error);
	if (error != SCI_ERR_OK)
		return refused("SCIStartDmaTransfer", error);
	return ended(queue, how);
}

static bool push(sci_dma_queue_t queue, size_t size, uint64_t seed, enum how how)
{
	const size_t from = 8 * seed, to = 24 * seed;

	fill(memory + from, size, seed);
	return transfer(queue, from, size, to, NO_FLAGS, how) &&
	       arrived(memory + from, to, size, "DMA");
}

static bool pull(sci_dma_queue_t queue, size_t size, uint64_t seed, enum how how)
{
	const size_t from = 40 * seed, to = 16 * seed;

	if (!ordered(FILL, from, size, seed, 0, "fill") ||
	    !transfer(queue, to, size, from, SCI_FLAG_DMA_READ, how))
		return false;
	for (size_t i = 0; i < size; i++) {
		if (memory[to + i] != byte(seed, i))
			die("DMA has read byte %zu of %zu wrongly", i, size);
	}
	return true;
}

static bool dma_as(enum how how)
{
	static const size_t sizes[] = { 8, 64, 104, 4096, 65536, 65544, 1 << 20 };
	sci_dma_queue_t queue = create_queue();
	bool well = true;

	for (size_t i = 0; well && i < sizeof(sizes) / sizeof(*sizes); i++)
		well = push(queue, sizes[i], i + 1, how) && pull(queue, sizes[i], i + 50, how);
	remove_queue(queue);
	return well;
}

static bool dma_wait(void)
{
	return dma_as(WAIT);
}

static bool dma_poll(void)
{
	return dma_as(POLL);
}

static bool dma_call(void)
{
	return dma_as(CALL);
}

/* Transfers a vector. Each part goes to another offset, and the space between parts stays. */
static bool vector_of(sci_dma_queue_t queue, size_t count, size_t size, enum how how)
{
	static dis_dma_vec_t vector[DIS_DMA_MAX_VECLEN];
	unsigned char *expected = memory + SIZE / 2;
	const size_t stride = size + 64;
	sci_error_t error;

	memset(vector, 0, sizeof(vector));
	fill(memory, count * stride, count);
	fill(expected, count * stride, ~count);
	for (size_t i = 0; i < count; i++) {
		vector[i].size = size;
		vector[i].local_offset = i * stride;
		vector[i].remote_offset = (count - 1 - i) * stride;
		memcpy(expected + vector[i].remote_offset, memory + i * stride, size);
	}
	if (!ordered(FILL, 0, count * stride, ~count, 0, "fill"))
		return false;
	set(&called, 0);
	SCIStartDmaTransferVec(queue, local, remote, count, vector,
			       how == CALL ? on_dma : NO_CALLBACK, NO_ARG,
			       how == CALL ? SCI_FLAG_USE_CALLBACK : NO_FLAGS, &error);
	if (error == SCI_ERR_MAX_ENTRIES)
		die("a queue of %d refuses a vector of %zu", QUEUE_ENTRIES, count);
	if (error != SCI_ERR_OK)
		return refused("SCIStartDmaTransferVec", error);
	return ended(queue, how) && arrived(expected, 0, count * stride, "a vector");
}

static bool vectors(void)
{
	static const size_t counts[] = { 1, 2, 4, 5, 8, 64, 255, 256 };
	static const size_t sizes[] = { 8, 1000, 4096 };
	sci_dma_queue_t queue = create_queue();
	bool well = true;
	int how = 0;

	for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
		for (size_t s = 0; well && s < 3; s++)
			well = vector_of(queue, counts[c], sizes[s], how++ % HOWS);
	}
	remove_queue(queue);
	return well;
}

/* Uses two queues at once for one segment. */
static bool two_queues(void)
{
	sci_dma_queue_t queues[2] = { create_queue(), create_queue() };
	bool well = true, posted[2];
	sci_error_t error;

	fill(memory, 1 << 20, 77);
	fill(memory + (1 << 20), 1 << 20, 78);
	for (int i = 0; i < 2; i++) {
		SCIStartDmaTransfer(queues[i], local, remote, i << 20, 1 << 20, (1 - i) << 20,
				    NO_CALLBACK, NO_ARG, NO_FLAGS, &error);
		posted[i] = error == SCI_ERR_OK || refused("SCIStartDmaTransfer", error);
	}
	for (int i = 1; i >= 0; i--) {
		well = posted[i] && ended(queues[i], i ? WAIT : POLL) && well;
		remove_queue(queues[i]);
	}
	return well && arrived(memory, 1 << 20, 1 << 20, "the first queue") &&
	       arrived(memory + (1 << 20), 0, 1 << 20, "the second queue");
}

static bool aborted(void)
{
	sci_dma_queue_t queue = create_queue();
	sci_dma_queue_state_t state;
	sci_error_t error;
	bool well = true;

	for (int i = 0; well && i < 10; i++) {
		SCIStartDmaTransfer(queue, local, remote, 0, 2 << 20, 0, NO_CALLBACK, NO_ARG,
				    NO_FLAGS, &error);
		if (error != SCI_ERR_OK) {
			well = refused("SCIStartDmaTransfer", error);
			break;
		}
		SCIAbortDMAQueue(queue, NO_FLAGS, &error);
		check("SCIAbortDMAQueue", error);
		state = SCIDMAQueueState(queue);
		if (state == SCI_DMAQUEUE_IDLE || state == SCI_DMAQUEUE_POSTED)
			die("after an abort a queue is in state %d", state);
		well = push(queue, 4096, i + 1, i % HOWS);
	}
	remove_queue(queue);
	return well;
}

/* --- Interrupts --- */

static bool rings(void)
{
	sci_error_t error;

	SCITriggerInterrupt(other_bell, NO_FLAGS, &error);
	if (error == SCI_ERR_OK)
		return true;
	return refused("SCITriggerInterrupt", error);
}

static bool bells(void)
{
	if (!give(BELLS, 0, ROUNDS, 0))
		return false;
	for (int i = 0; i < ROUNDS; i++) {
		if (!rings() || !rung())
			return false;
	}
	return answered(ROUNDS, "interrupts");
}

/* Triggers without a pause. Several triggers may count as one. */
static bool bell_burst(void)
{
	for (int i = 0; i < 5000; i++) {
		if (!rings())
			return false;
	}
	return ordered(SOME_BELL, 0, 0, 0, 1, "interrupts without pause");
}

/* Sends a number. If there is no room, counts this or retries. */
static bool streams(uint64_t number, bool again, uint64_t *sent)
{
	sci_error_t error;

	do {
		SCITriggerDataInterrupt(stream_out, &number, sizeof(number), NO_FLAGS, &error);
		if (error == SCI_ERR_OK) {
			++*sent;
			return true;
		}
		if (error != SCI_ERR_NOSPC)
			return refused("SCITriggerDataInterrupt", error);
	} while (again && !is(&gone));
	return !is(&gone);
}

/* No thread waits for the data meanwhile. */
static bool data_kept(void)
{
	uint64_t sent = 0;

	for (uint64_t i = 1; i <= BURST; i++) {
		if (!streams(i, false, &sent))
			return false;
	}
	say("%llu of %d were taken", (unsigned long long)sent, BURST);
	return ordered(KEPT, 0, sent, 0, sent, "data interrupts while nobody waits");
}

static bool data_stream(void)
{
	uint64_t sent = 0;

	if (!give(STREAMED, 0, BURST, 0))
		return false;
	for (uint64_t i = 1; i <= BURST; i++) {
		if (!streams(i, true, &sent))
			return false;
	}
	return answered(BURST, "data interrupts without pause");
}

static const struct experiment {
	const char *name;
	bool (*run)(void);
	bool by_map;
} experiments[] = {
	{ "pio", pio, true },
	{ "reads", reads, true },
	{ "copies", copies, true },
	{ "block_reads", block_reads, true },
	{ "writes", writes, true },
	{ "pingpong", pingpong, true },
	{ "dma_wait", dma_wait },
	{ "dma_poll", dma_poll },
	{ "dma_call", dma_call },
	{ "vectors", vectors },
	{ "two_queues", two_queues },
	{ "aborted", aborted },
	{ "bells", bells },
	{ "bell_burst", bell_burst },
	{ "data_kept", data_kept },
	{ "data_stream", data_stream },
};

#define EXPERIMENTS (sizeof(experiments) / sizeof(*experiments))

static const struct experiment *named(const char *name)
{
	for (size_t i = 0; i < EXPERIMENTS; i++) {
		if (strcmp(experiments[i].name, name) == 0)
			return &experiments[i];
	}
	die("there is no experiment '%s'", name);
}

static bool does(const struct experiment *experiment)
{
	if (experiment->by_map && !view) {
		say("%s: no map", experiment->name);
		return true;
	}
	if (!experiment->run())
		return false;
	say("%s: ok", experiment->name);
	return true;
}

/* Repeats one experiment until it fails. It may fail only if the server is lost. */
static void loop(const struct experiment *experiment)
{
	if (experiment->by_map && !view)
		die("%s: no map", experiment->name);
	for (int i = 0; experiment->run(); i++) {
		if (i == 1)
			say("under way");
	}
	for (int i = 0; i < 30000 && !is(&gone); i++)
		nap();
	if (!is(&gone))
		die("%s has failed, and nothing was lost", experiment->name);
}

static int client(unsigned int node, int count, char **names)
{
	bool well = true;

	create_own(CLIENT_SEGMENT, CLIENT_BELL, ANSWERS);
	connect_other(node, SERVER_SEGMENT, SERVER_BELL, ORDERS);
	connect_data(device, &stream_out, node, STREAM);
	if (!ordered(HELLO, 0, 0, own_node(), !!view, "hello"))
		die("the server has gone at once");
	if (count == 2 && strcmp(names[0], "loop") == 0) {
		loop(named(names[1]));
		well = false;
	} else if (count) {
		for (int i = 0; well && i < count; i++)
			well = does(named(names[i]));
	} else {
		for (size_t i = 0; well && i < EXPERIMENTS; i++)
			well = does(&experiments[i]);
	}
	if (!well && !is(&gone))
		die("an experiment has failed, and nothing was lost");
	if (well && !give(BYE, 0, 0, 0))
		die("the server is not told of the end");
	release();
	say(well ? "all well" : "server lost");
	return well ? WELL : PARTY_LOST;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "server") == 0)
		return serve();
	if (argc >= 3 && strcmp(argv[1], "client") == 0)
		return client(number_of(argv[2]), argc - 3, argv + 3);
	fprintf(stderr, "usage: field-perf server | client NODE [NAME...] |\n"
		"       client NODE loop NAME\n");
	return USAGE;
}
