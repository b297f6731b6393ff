// SPDX-License-Identifier: GPL-2.0
/*
 * field-pipeline: video that passes through three programs.
 *
 *   field-pipeline sink FILTER                 takes filtered frames, and checks each bit
 *   field-pipeline filter CAPTURE SINK HOW     sends filtered frames by HOW, "pio" or "dma"
 *   field-pipeline capture FILTER FRAMES       makes frames; 0: until another stage is lost
 *
 * Each stage has room for some frames in a segment of the next one. Frames reach the filter by DMA
 * with callbacks. A data interrupt announces a frame, and another one that its room is free.
 */
#include "field.h"

#define ROOM		4
#define WIDTH		320
#define HEIGHT		240
#define PIXELS		(WIDTH * HEIGHT)
#define FILTER_SEGMENT	0x7101
#define SINK_SEGMENT	0x7102
#define OWN_SEGMENT	0x7103
#define TO_FILTER	0x7201
#define TO_SINK		0x7202
#define FREE_AT_CAPTURE	0x7203
#define FREE_AT_FILTER	0x7204

struct frame {
	uint64_t number, sum;
	uint16_t pixels[PIXELS];
};

#define FRAME		((sizeof(struct frame) + 4095) / 4096 * 4096)
#define SIZE		(ROOM * FRAME)

/* A notice of a frame, or of the room of one. Number 0 is the end. */
struct notice {
	uint64_t number, sum;
};

static sci_desc_t device;
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

static void make_frame(struct frame *frame, uint64_t number)
{
	frame->number = number;
	for (size_t i = 0; i < PIXELS; i += 4) {
		uint64_t four = word(number, i);

		memcpy(frame->pixels + i, &four, sizeof(four));
	}
	frame->sum = sum_of(frame->pixels, sizeof(frame->pixels));
}

/* Computes the mean of three adjacent pixels, upside down. */
static void filter_frame(struct frame *to, const struct frame *from)
{
	to->number = from->number;
	for (size_t i = 0; i < PIXELS; i++) {
		unsigned int left = from->pixels[i ? i - 1 : 0];
		unsigned int right = from->pixels[i + 1 < PIXELS ? i + 1 : i];

		to->pixels[PIXELS - 1 - i] = (left + from->pixels[i] + right) / 3;
	}
	to->sum = sum_of(to->pixels, sizeof(to->pixels));
}

/* --- Resources of the stages --- */

/* Memory of this stage, to which other stages write or from which DMA reads. */
struct own {
	sci_local_segment_t segment;
	sci_map_t map;
	unsigned char *memory;
};

/* The next stage. */
struct next {
	sci_remote_segment_t segment;
	sci_remote_data_interrupt_t notices;
	sci_local_data_interrupt_t frees;
	uint64_t freed;
	sci_map_t map;
	sci_sequence_t sequence;
	bool mapped;
	sci_dma_queue_t queue;
};

static void begin(void)
{
	sci_error_t error;

	SCIInitialize(NO_FLAGS, &error);
	check("SCIInitialize", error);
	SCIOpen(&device, NO_FLAGS, &error);
	check("SCIOpen", error);
}

static void end(void)
{
	sci_error_t error;

	SCIClose(device, NO_FLAGS, &error);
	check("SCIClose", error);
	SCITerminate();
}

static void create_own(struct own *own, unsigned int id, bool available)
{
	unsigned int flags = available ? SCI_FLAG_USE_CALLBACK : NO_FLAGS;
	sci_error_t error;

	SCICreateSegment(device, &own->segment, id, SIZE, available ? on_local : NO_CALLBACK,
			 NO_ARG, flags, &error);
	check("SCICreateSegment", error);
	SCIPrepareSegment(own->segment, ADAPTER, NO_FLAGS, &error);
	check("SCIPrepareSegment", error);
	own->memory = SCIMapLocalSegment(own->segment, &own->map, 0, SIZE, NULL, NO_FLAGS, &error);
	check("SCIMapLocalSegment", error);
	if (!available)
		return;
	SCISetSegmentAvailable(own->segment, ADAPTER, NO_FLAGS, &error);
	check("SCISetSegmentAvailable", error);
}

static void remove_own(struct own *own)
{
	sci_error_t error;

	SCIUnmapSegment(own->map, NO_FLAGS, &error);
	check("SCIUnmapSegment", error);
	SCIRemoveSegment(own->segment, NO_FLAGS, &error);
	check("SCIRemoveSegment", error);
}

static void connect_next(struct next *next, unsigned int node, unsigned int id,
			 unsigned int notices, unsigned int frees, bool map)
{
	sci_error_t error;

	memset(next, 0, sizeof(*next));
	create_data(device, &next->frees, frees);
	SCICreateDMAQueue(device, &next->queue, ADAPTER, 1, NO_FLAGS, &error);
	check("SCICreateDMAQueue", error);
	for (;;) {
		SCIConnectSegment(device, &next->segment, node, id, ADAPTER, on_remote, NO_ARG,
				  SCI_INFINITE_TIMEOUT, SCI_FLAG_USE_CALLBACK, &error);
		if (!not_there_yet(error))
			break;
		nap();
	}
	check("SCIConnectSegment", error);
	connect_data(device, &next->notices, node, notices);
	if (!map)
		return;
	SCIMapRemoteSegment(next->segment, &next->map, 0, SIZE, NULL, NO_FLAGS, &error);
	if (error != SCI_ERR_OK) {
		say("no map (%s): by DMA", SCIGetErrorString(error));
		return;
	}
	next->mapped = true;
	SCICreateMapSequence(next->map, &next->sequence, NO_FLAGS, &error);
	check("SCICreateMapSequence", error);
}

static void disconnect_next(struct next *next)
{
	sci_error_t error;

	if (next->mapped) {
		SCIUnmapSegment(next->map, NO_FLAGS, &error);
		check("SCIUnmapSegment", error);
		SCIRemoveSequence(next->sequence, NO_FLAGS, &error);
		check("SCIRemoveSequence after its map", error);
	}
	SCIRemoveDMAQueue(next->queue, NO_FLAGS, &error);
	check("SCIRemoveDMAQueue", error);
	SCIDisconnectDataInterrupt(next->notices, NO_FLAGS, &error);
	check("SCIDisconnectDataInterrupt", error);
	SCIDisconnectSegment(next->segment, NO_FLAGS, &error);
	check("SCIDisconnectSegment", error);
	SCIRemoveDataInterrupt(next->frees, NO_FLAGS, &error);
	check("SCIRemoveDataInterrupt", error);
}

static bool tell(sci_remote_data_interrupt_t interrupt, uint64_t number, uint64_t sum)
{
	struct notice notice = { number, sum };
	sci_error_t error;

	do {
		SCITriggerDataInterrupt(interrupt, &notice, sizeof(notice), NO_FLAGS, &error);
	} while (error == SCI_ERR_NOSPC && !is(&gone));
	return error == SCI_ERR_OK;
}

static bool hear(sci_local_data_interrupt_t interrupt, struct notice *notice)
{
	unsigned int length;
	sci_error_t error;

	do {
		length = sizeof(*notice);
		SCIWaitForDataInterrupt(interrupt, notice, &length, 200, NO_FLAGS, &error);
	} while (error == SCI_ERR_TIMEOUT && !is(&gone));
	if (error != SCI_ERR_OK && error != SCI_ERR_TIMEOUT)
		check("SCIWaitForDataInterrupt", error);
	return error == SCI_ERR_OK;
}

/* Waits until that frame's room in the next stage is free. */
static bool has_room(struct next *next, uint64_t number)
{
	struct notice notice;

	while (number > next->freed + ROOM) {
		if (!hear(next->frees, &notice))
			return false;
		if (notice.number != next->freed + 1)
			die("frame %llu is free after %llu", (unsigned long long)notice.number,
			    (unsigned long long)next->freed);
		next->freed = notice.number;
	}
	return true;
}

static size_t place(uint64_t number)
{
	return number % ROOM * FRAME;
}

/* --- DMA with a callback, which notifies the next stage and releases the next frame --- */

struct under_way {
	struct next *next;
	uint64_t number, sum;
	int done, failed;
};

static sci_callback_action_t on_dma(void *arg, sci_dma_queue_t queue, sci_error_t status)
{
	struct under_way *way = arg;

	if (status != SCI_ERR_OK || !tell(way->next->notices, way->number, way->sum))
		set(&way->failed, 1);
	set(&way->done, 1);
	return SCI_CALLBACK_CONTINUE;
}

static bool send_by_dma(struct next *next, struct own *own, uint64_t number, uint64_t sum)
{
	struct under_way way = { next, number, sum };
	sci_error_t error;

	SCIStartDmaTransfer(next->queue, own->segment, next->segment, place(number), FRAME,
			    place(number), on_dma, &way, SCI_FLAG_USE_CALLBACK, &error);
	if (error != SCI_ERR_OK)
		return false;
	while (!is(&way.done))
		nap();
	/* The callback may be returning. The queue is free when its state is final. */
	while (SCIDMAQueueState(next->queue) == SCI_DMAQUEUE_POSTED)
		;
	return !is(&way.failed);
}

/* Sends a frame by checked stores, and repeats them where this can help. */
static bool send_by_pio(struct next *next, struct own *own, uint64_t number, uint64_t sum)
{
	sci_sequence_status_t status;
	sci_error_t error;

	do {
		do {
			status = SCIStartSequence(next->sequence, NO_FLAGS, &error);
			if (error != SCI_ERR_OK)
				return false;
		} while (status != SCI_SEQ_OK && !is(&gone));
		SCIMemCpy(next->sequence, own->memory + place(number), next->map, place(number),
			  FRAME, NO_FLAGS, &error);
		if (error != SCI_ERR_OK)
			return false;
		status = SCICheckSequence(next->sequence, NO_FLAGS, &error);
		if (error != SCI_ERR_OK)
			return false;
	} while (status != SCI_SEQ_OK && !is(&gone));
	return status == SCI_SEQ_OK && tell(next->notices, number, sum);
}

/* --- The stages --- */

static int capture(unsigned int filter, uint64_t frames)
{
	struct next next;
	struct own own;
	bool well = true;
	uint64_t number;

	begin();
	create_own(&own, OWN_SEGMENT, false);
	connect_next(&next, filter, FILTER_SEGMENT, TO_FILTER, FREE_AT_CAPTURE, false);
	for (number = 1; well && (!frames || number <= frames); number++) {
		struct frame *frame = (struct frame *)(own.memory + place(number));

		well = has_room(&next, number);
		if (!well)
			break;
		make_frame(frame, number);
		well = send_by_dma(&next, &own, number, frame->sum);
		if (number == 20)
			say("under way");
	}
	/* The next stage has to take all frames before this stage may end. */
	well = well && has_room(&next, number - 1 + ROOM) && tell(next.notices, 0, 0);
	disconnect_next(&next);
	remove_own(&own);
	end();
	say(well ? "captured" : "another stage is lost");
	return well ? WELL : PARTY_LOST;
}

static int filter(unsigned int source, unsigned int sink, bool by_pio)
{
	sci_local_data_interrupt_t notices;
	sci_remote_data_interrupt_t frees;
	struct own in, out;
	struct notice notice = { 1 };
	struct next next;
	uint64_t number;
	sci_error_t error;
	bool well = true;

	begin();
	create_data(device, &notices, TO_FILTER);
	create_own(&in, FILTER_SEGMENT, true);
	create_own(&out, OWN_SEGMENT + 1, false);
	connect_next(&next, sink, SINK_SEGMENT, TO_SINK, FREE_AT_FILTER, by_pio);
	connect_data(device, &frees, source, FREE_AT_CAPTURE);
	for (number = 1; well; number++) {
		struct frame *from = (struct frame *)(in.memory + place(number));
		struct frame *to = (struct frame *)(out.memory + place(number));

		well = hear(notices, &notice);
		if (!well || notice.number == 0)
			break;
		if (notice.number != number || from->number != number || from->sum != notice.sum ||
		    sum_of(from->pixels, sizeof(from->pixels)) != notice.sum)
			die("frame %llu came changed", (unsigned long long)number);
		well = has_room(&next, number);
		if (!well)
			break;
		filter_frame(to, from);
		well = tell(frees, number, 0) &&
		       (next.mapped ? send_by_pio : send_by_dma)(&next, &out, number, to->sum);
	}
	well = well && has_room(&next, number - 1 + ROOM) && tell(next.notices, 0, 0);
	SCIDisconnectDataInterrupt(frees, NO_FLAGS, &error);
	check("SCIDisconnectDataInterrupt", error);
	disconnect_next(&next);
	remove_own(&out);
	remove_own(&in);
	SCIRemoveDataInterrupt(notices, NO_FLAGS, &error);
	check("SCIRemoveDataInterrupt", error);
	end();
	say(well ? "filtered %llu" : "another stage is lost", (unsigned long long)(number - 1));
	return well ? WELL : PARTY_LOST;
}

/* State of the sink's callback. */
struct sink {
	struct own in;
	sci_remote_data_interrupt_t frees;
	uint64_t taken;
	int connected, ended;
};

static sci_callback_action_t on_notice(void *arg, sci_local_data_interrupt_t interrupt, void *data,
				       unsigned int length, sci_error_t status)
{
	static struct frame made, expected;
	struct sink *sink = arg;
	struct notice notice;
	const struct frame *frame;

	if (status != SCI_ERR_OK || length != sizeof(notice))
		die("a notice of %u bytes: %s", length, SCIGetErrorString(status));
	memcpy(&notice, data, sizeof(notice));
	if (notice.number == 0) {
		set(&sink->ended, 1);
		return SCI_CALLBACK_CONTINUE;
	}
	if (notice.number != ++sink->taken)
		die("frame %llu comes instead of %llu", (unsigned long long)notice.number,
		    (unsigned long long)sink->taken);
	frame = (const struct frame *)(sink->in.memory + place(notice.number));
	make_frame(&made, notice.number);
	filter_frame(&expected, &made);
	if (memcmp(frame, &expected, sizeof(expected)) != 0 || frame->sum != notice.sum)
		die("frame %llu is not as it has to be", (unsigned long long)notice.number);
	while (!is(&sink->connected))
		nap();
	tell(sink->frees, notice.number, 0);
	return SCI_CALLBACK_CONTINUE;
}

static int take_frames(unsigned int filter)
{
	struct sink sink = { 0 };
	sci_local_data_interrupt_t notices;
	unsigned int number = TO_SINK;
	sci_error_t error;

	begin();
	create_own(&sink.in, SINK_SEGMENT, true);
	SCICreateDataInterrupt(device, &notices, ADAPTER, &number, on_notice, &sink,
			       SCI_FLAG_FIXED_INTNO | SCI_FLAG_USE_CALLBACK, &error);
	check("SCICreateDataInterrupt", error);
	connect_data(device, &sink.frees, filter, FREE_AT_FILTER);
	set(&sink.connected, 1);
	while (!is(&sink.ended) && !is(&gone))
		nap();
	/* The end was announced before the connection ended, so its callback may still come. */
	for (int i = 0; i < 1000 && !is(&sink.ended); i++)
		nap();
	SCIDisconnectDataInterrupt(sink.frees, NO_FLAGS, &error);
	check("SCIDisconnectDataInterrupt", error);
	SCIRemoveDataInterrupt(notices, NO_FLAGS, &error);
	check("SCIRemoveDataInterrupt", error);
	remove_own(&sink.in);
	end();
	say(sink.ended ? "%llu frames, bit by bit" : "another stage is lost",
	    (unsigned long long)sink.taken);
	return sink.ended ? WELL : PARTY_LOST;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "sink") == 0)
		return take_frames(number_of(argv[2]));
	if (argc == 5 && strcmp(argv[1], "filter") == 0)
		return filter(number_of(argv[2]), number_of(argv[3]), strcmp(argv[4], "pio") == 0);
	if (argc == 4 && strcmp(argv[1], "capture") == 0)
		return capture(number_of(argv[2]), number_of(argv[3]));
	fprintf(stderr, "usage: field-pipeline sink FILTER | filter CAPTURE SINK pio|dma |\n"
		"       capture FILTER FRAMES\n");
	return USAGE;
}
