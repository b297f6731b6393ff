// SPDX-License-Identifier: GPL-2.0
/*
 * sisci-loss: checked stores, DMA and interrupts without end, and their results when the other side
 * is lost.
 *
 *   sisci-loss serve            has the segment and the interrupt
 *   sisci-loss run NODE HOW     uses those of that node of SCIF until it goes
 *
 * HOW is the event after "under way" was printed. "process": the process of the other side ends.
 * "node": its node ends, and starts again after "out of reach" was printed. "flap": the link fails,
 * and comes back after "out of reach" was printed. Any result that differs from the documentation
 * ends the program with status 1.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sisci_api.h>

#define SEGMENT		7001
#define INTERRUPT	7002
#define SIZE		(1024 * 1024)
/* Offset of checked words, and offset of the target of DMA. */
#define WORDS		1024
#define DMA_AT		(SIZE / 2)
/* Number of each kind after which all are in flight. */
#define SOME		20

static const char *const reasons[] = {
	[SCI_CB_CONNECT] = "connected",
	[SCI_CB_DISCONNECT] = "disconnected",
	[SCI_CB_NOT_OPERATIONAL] = "out of reach",
	[SCI_CB_OPERATIONAL] = "back",
	[SCI_CB_LOST] = "lost",
};

static __thread sci_error_t error;

static void say(const char *what)
{
	printf("%s\n", what);
	fflush(stdout);
}

static noreturn void die(const char *what)
{
	fprintf(stderr, "sisci-loss: %s: %s\n", what, SCIGetErrorString(error));
	exit(1);
}

static void check(const char *what)
{
	if (error != SCI_ERR_OK)
		die(what);
}

static void nap(void)
{
	const struct timespec millisecond = { .tv_nsec = 1000000 };

	nanosleep(&millisecond, NULL);
}

static bool is(const int *value)
{
	return __atomic_load_n(value, __ATOMIC_ACQUIRE);
}

static void set(int *value, int to)
{
	__atomic_store_n(value, to, __ATOMIC_RELEASE);
}

/* --- The side with the segment --- */

static sci_callback_action_t tell(void *arg, sci_local_segment_t segment,
				  sci_segment_cb_reason_t reason, unsigned int node,
				  unsigned int adapter, sci_error_t status)
{
	printf("%u is %s\n", node, reasons[reason]);
	fflush(stdout);
	return SCI_CALLBACK_CONTINUE;
}

static sci_callback_action_t ignore(void *arg, sci_local_interrupt_t interrupt,
				    sci_error_t status)
{
	return SCI_CALLBACK_CONTINUE;
}

static int serve(void)
{
	unsigned int number = INTERRUPT;
	sci_local_interrupt_t interrupt;
	sci_local_segment_t segment;
	sci_desc_t device;
	sigset_t ends;
	int signal;

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	SCIInitialize(0, &error);
	check("SCIInitialize");
	SCIOpen(&device, 0, &error);
	check("SCIOpen");
	SCICreateSegment(device, &segment, SEGMENT, SIZE, tell, NULL, SCI_FLAG_USE_CALLBACK,
			 &error);
	check("SCICreateSegment");
	SCIPrepareSegment(segment, 0, 0, &error);
	check("SCIPrepareSegment");
	SCISetSegmentAvailable(segment, 0, 0, &error);
	check("SCISetSegmentAvailable");
	SCICreateInterrupt(device, &interrupt, 0, &number, ignore, NULL,
			   SCI_FLAG_USE_CALLBACK | SCI_FLAG_FIXED_INTNO, &error);
	check("SCICreateInterrupt");
	say("serving");
	sigwait(&ends, &signal);
	SCIRemoveInterrupt(interrupt, 0, &error);
	check("SCIRemoveInterrupt");
	SCIRemoveSegment(segment, 0, &error);
	check("SCIRemoveSegment");
	SCIClose(device, 0, &error);
	check("SCIClose");
	SCITerminate();
	say("ended");
	return 0;
}

/* --- The side that uses the segment --- */

static sci_desc_t device;
static sci_remote_segment_t segment;
static sci_map_t map;
/* The map for stores, and another one for loads: data stored after a loss can be read there. */
static sci_map_t map_of_view;
static volatile unsigned int *memory;
static const volatile unsigned int *view;
static unsigned int node;

/* Events of the segment, and whether the threads have to end. */
static int out_of_reach, back, lost, stopping;
/* Numbers of successful operations, and of failed ones. */
static int stores, stores_lost, transfers, transfers_lost, triggers, triggers_lost;

static void count(int *counter)
{
	__atomic_add_fetch(counter, 1, __ATOMIC_ACQ_REL);
}

static sci_callback_action_t note(void *arg, sci_remote_segment_t changed,
				  sci_segment_cb_reason_t reason, sci_error_t status)
{
	if (reason == SCI_CB_NOT_OPERATIONAL)
		set(&out_of_reach, 1);
	if (reason == SCI_CB_OPERATIONAL)
		set(&back, 1);
	if (reason == SCI_CB_LOST)
		set(&lost, 1);
	return SCI_CALLBACK_CONTINUE;
}

static void wait_for(const int *value)
{
	while (!is(value))
		nap();
}

/* Stores a block, and once more if the check fails. Checked data has arrived. */
static void *store(void *data)
{
	sci_sequence_t sequence;
	sci_sequence_status_t status;
	unsigned int round, i;

	SCICreateMapSequence(map, &sequence, 0, &error);
	check("SCICreateMapSequence");
	status = SCI_SEQ_NOT_RETRIABLE;
	for (round = 0; !is(&stopping); round++) {
		if (status != SCI_SEQ_OK) {
			status = SCIStartSequence(sequence, 0, &error);
			/*
			 * A sequence to a lost segment never starts again. The callback reports the
			 * loss, too.
			 */
			if (error == SCI_ERR_SEGMENT_NOT_CONNECTED)
				wait_for(&lost);
			else
				check("SCIStartSequence");
		}
		if (status != SCI_SEQ_OK) {
			count(&stores_lost);
			nap();
			continue;
		}
		for (i = 0; i < WORDS; i++)
			memory[i] = round;
		status = SCICheckSequence(sequence, 0, &error);
		check("SCICheckSequence");
		count(status == SCI_SEQ_OK ? &stores : &stores_lost);
	}
	SCIRemoveSequence(sequence, 0, &error);
	check("SCIRemoveSequence");
	return NULL;
}

struct ending {
	int ended;
	sci_error_t status;
};

static sci_callback_action_t transferred(void *arg, sci_dma_queue_t queue, sci_error_t status)
{
	struct ending *ending = arg;

	ending->status = status;
	set(&ending->ended, 1);
	return SCI_CALLBACK_CONTINUE;
}

static void *transfer(void *data)
{
	sci_local_segment_t source;
	sci_dma_queue_t queue;
	struct ending ending;
	bool good;

	SCICreateSegment(device, &source, 0, SIZE / 2, NULL, NULL, SCI_FLAG_PRIVATE, &error);
	check("SCICreateSegment");
	SCIPrepareSegment(source, 0, 0, &error);
	check("SCIPrepareSegment");
	SCICreateDMAQueue(device, &queue, 0, 1, 0, &error);
	check("SCICreateDMAQueue");
	while (!is(&stopping)) {
		ending = (struct ending) { .ended = 0 };
		SCIStartDmaTransfer(queue, source, segment, 0, SIZE / 2, DMA_AT, transferred,
				    &ending, SCI_FLAG_USE_CALLBACK, &error);
		if (error != SCI_ERR_OK) {
			count(&transfers_lost);
			nap();
			continue;
		}
		/*
		 * The callback comes in any case. If it does not, the test regards this as a hang.
		 */
		while (!is(&ending.ended))
			nap();
		good = ending.status == SCI_ERR_OK;
		count(good ? &transfers : &transfers_lost);
		if (good != (SCIDMAQueueState(queue) == SCI_DMAQUEUE_DONE))
			die("the callback says what the state does not");
	}
	SCIRemoveDMAQueue(queue, 0, &error);
	check("SCIRemoveDMAQueue");
	SCIRemoveSegment(source, 0, &error);
	check("SCIRemoveSegment");
	return NULL;
}

static void *trigger(void *data)
{
	sci_remote_interrupt_t interrupt = NULL;

	while (!is(&stopping)) {
		if (!interrupt) {
			SCIConnectInterrupt(device, &interrupt, node, 0, INTERRUPT, 0, 0, &error);
			if (error != SCI_ERR_OK) {
				interrupt = NULL;
				count(&triggers_lost);
				nap();
				continue;
			}
		}
		SCITriggerInterrupt(interrupt, 0, &error);
		if (error == SCI_ERR_OK) {
			count(&triggers);
			continue;
		}
		count(&triggers_lost);
		/*
		 * Connects anew, because the old connection may belong to an earlier life of the
		 * node.
		 */
		SCIDisconnectInterrupt(interrupt, 0, &error);
		check("SCIDisconnectInterrupt");
		interrupt = NULL;
	}
	if (interrupt) {
		SCIDisconnectInterrupt(interrupt, 0, &error);
		check("SCIDisconnectInterrupt");
	}
	return NULL;
}

/* Waits for further successes of each kind. */
static void wait_for_more(const int *one, const int *two, const int *three)
{
	int of_one = *one, of_two = *two, of_three = *three;

	while (__atomic_load_n(one, __ATOMIC_ACQUIRE) < of_one + SOME ||
	       __atomic_load_n(two, __ATOMIC_ACQUIRE) < of_two + SOME ||
	       __atomic_load_n(three, __ATOMIC_ACQUIRE) < of_three + SOME)
		nap();
}

/* Checks the rules that hold as long as the node is out of reach. */
static void check_out_of_reach(void)
{
	sci_remote_segment_t other;
	sci_sequence_status_t status;
	sci_sequence_t sequence;
	int reachable;

	wait_for(&out_of_reach);
	wait_for_more(&stores_lost, &transfers_lost, &triggers_lost);
	if (view[0] != ~0u || view[WORDS - 1] != ~0u)
		die("the map does not read as ones");
	SCICreateMapSequence(map, &sequence, 0, &error);
	check("SCICreateMapSequence");
	status = SCIStartSequence(sequence, 0, &error);
	check("SCIStartSequence");
	if (status != SCI_SEQ_PENDING)
		die("a sequence starts although the link is away");
	SCIRemoveSequence(sequence, 0, &error);
	check("SCIRemoveSequence");
	reachable = SCIProbeNode(device, 0, node, 0, &error);
	if (reachable || (error != SCI_ERR_NODE_NOT_RESPONDING && error != SCI_ERR_NO_LINK_ACCESS))
		die("SCIProbeNode of a lost node");
	SCIConnectSegment(device, &other, node, SEGMENT, 0, NULL, NULL, 0, 0, &error);
	if (error != SCI_ERR_NODE_NOT_RESPONDING && error != SCI_ERR_NO_LINK_ACCESS)
		die("SCIConnectSegment to a lost node");
}

static void after_flap(void)
{
	wait_for(&back);
	if (is(&lost))
		die("the segment is lost after all");
	wait_for_more(&stores, &transfers, &triggers);
	say("back");
}

static int run(unsigned int scif_node, const char *how)
{
	void *(*const uses[])(void *data) = { store, transfer, trigger };
	pthread_t thread[3];
	int i;

	node = 4 * (scif_node + 1);
	SCIInitialize(0, &error);
	check("SCIInitialize");
	SCIOpen(&device, 0, &error);
	check("SCIOpen");
	SCIConnectSegment(device, &segment, node, SEGMENT, 0, note, NULL, SCI_INFINITE_TIMEOUT,
			  SCI_FLAG_USE_CALLBACK, &error);
	check("SCIConnectSegment");
	view = SCIMapRemoteSegment(segment, &map_of_view, 0, SIZE, NULL, SCI_FLAG_READONLY_MAP,
				   &error);
	check("SCIMapRemoteSegment");
	memory = SCIMapRemoteSegment(segment, &map, 0, SIZE, NULL, 0, &error);
	check("SCIMapRemoteSegment");
	for (i = 0; i < 3; i++)
		pthread_create(&thread[i], NULL, uses[i], NULL);
	wait_for_more(&stores, &transfers, &triggers);
	say("under way");
	if (!strcmp(how, "process")) {
		wait_for(&lost);
		wait_for_more(&transfers_lost, &transfers_lost, &triggers_lost);
	} else {
		check_out_of_reach();
		say("out of reach");
		if (!strcmp(how, "flap"))
			after_flap();
		else
			wait_for(&lost);
	}
	if (is(&lost))
		say("lost");
	set(&stopping, 1);
	for (i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	SCIUnmapSegment(map, 0, &error);
	check("SCIUnmapSegment");
	SCIUnmapSegment(map_of_view, 0, &error);
	check("SCIUnmapSegment");
	SCIDisconnectSegment(segment, 0, &error);
	check("SCIDisconnectSegment");
	SCIClose(device, 0, &error);
	check("SCIClose");
	SCITerminate();
	printf("%d stores, %d transfers, %d triggers; lost: %d, %d, %d\n", stores, transfers,
	       triggers, stores_lost, transfers_lost, triggers_lost);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "serve"))
		return serve();
	if (argc == 4 && !strcmp(argv[1], "run") &&
	    (!strcmp(argv[3], "process") || !strcmp(argv[3], "node") || !strcmp(argv[3], "flap")))
		return run(atoi(argv[2]), argv[3]);
	fprintf(stderr, "Usage: sisci-loss serve\n"
			"       sisci-loss run NODE process|node|flap\n");
	return 2;
}
