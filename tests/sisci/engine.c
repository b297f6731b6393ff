// SPDX-License-Identifier: GPL-2.0
/*
 * sisci-engine: transfers of two queues that fail because their engine is lost.
 *
 *   sisci-engine NODE DEVICE polled|waited
 *
 * NODE of SCIF has the segment of "sisci-loss serve". DEVICE is the PCI device of this node's
 * engine. Its driver is unbound while both queues are posted, and bound again. Either queue has to
 * report SCI_DMAQUEUE_ERROR: to a program that only polls, and to one that waits for the second
 * queue first. Any fault ends the program with status 1.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <string.h>
#include <unistd.h>

#include <sisci_api.h>

#include "../programs/engine_driver.h"

#define SEGMENT		7001
#define SIZE		(1024 * 1024)
#define QUEUES		2
/* The library gives up an engine after 5 s, so a program that has not ended by then hangs. */
#define LIMIT_SECONDS	60

static sci_desc_t device;
static sci_local_segment_t source;
static sci_remote_segment_t segment;
static sci_dma_queue_t queue[QUEUES];
static sci_error_t error;

static noreturn void die(const char *what)
{
	fprintf(stderr, "sisci-engine: %s: %s\n", what, SCIGetErrorString(error));
	exit(1);
}

static void check(const char *what)
{
	if (error != SCI_ERR_OK)
		die(what);
}

static void open_all(unsigned int node)
{
	int i;

	SCIInitialize(0, &error);
	check("SCIInitialize");
	SCIOpen(&device, 0, &error);
	check("SCIOpen");
	SCICreateSegment(device, &source, 0, SIZE, NULL, NULL, SCI_FLAG_PRIVATE, &error);
	check("SCICreateSegment");
	SCIPrepareSegment(source, 0, 0, &error);
	check("SCIPrepareSegment");
	SCIConnectSegment(device, &segment, node, SEGMENT, 0, NULL, NULL, SCI_INFINITE_TIMEOUT, 0,
			  &error);
	check("SCIConnectSegment");
	for (i = 0; i < QUEUES; i++) {
		SCICreateDMAQueue(device, &queue[i], 0, 1, 0, &error);
		check("SCICreateDMAQueue");
	}
}

static void close_all(void)
{
	int i;

	for (i = 0; i < QUEUES; i++) {
		SCIRemoveDMAQueue(queue[i], 0, &error);
		check("SCIRemoveDMAQueue");
	}
	SCIDisconnectSegment(segment, 0, &error);
	check("SCIDisconnectSegment");
	SCIRemoveSegment(source, 0, &error);
	check("SCIRemoveSegment");
	SCIClose(device, 0, &error);
	check("SCIClose");
	SCITerminate();
}

static void start_all(void)
{
	int i;

	for (i = 0; i < QUEUES; i++) {
		SCIStartDmaTransfer(queue[i], source, segment, 0, SIZE, 0, NULL, NULL, 0, &error);
		check("SCIStartDmaTransfer");
	}
}

static sci_dma_queue_state_t poll_queue(int i)
{
	sci_dma_queue_state_t state;

	do {
		state = SCIDMAQueueState(queue[i]);
	} while (state == SCI_DMAQUEUE_POSTED);
	return state;
}

static sci_dma_queue_state_t wait_for_queue(int i)
{
	sci_dma_queue_state_t state;

	state = SCIWaitForDMAQueue(queue[i], SCI_INFINITE_TIMEOUT, 0, &error);
	check("SCIWaitForDMAQueue");
	return state;
}

/* Checks that all queues have ended in this state. Asks the last queue first. */
static void expect_all(sci_dma_queue_state_t (*ask)(int i), sci_dma_queue_state_t expected)
{
	int i;

	for (i = QUEUES - 1; i >= 0; i--) {
		sci_dma_queue_state_t state = ask(i);

		if (state == expected && SCIDMAQueueState(queue[i]) == expected)
			continue;
		fprintf(stderr, "sisci-engine: queue %d ended in state %d, not %d\n", i, state,
			expected);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	sci_dma_queue_state_t (*ask)(int i);
	int i;

	if (argc != 4 || (strcmp(argv[3], "polled") && strcmp(argv[3], "waited"))) {
		fprintf(stderr, "Usage: sisci-engine NODE DEVICE polled|waited\n");
		return 2;
	}
	alarm(LIMIT_SECONDS);
	ask = strcmp(argv[3], "polled") ? wait_for_queue : poll_queue;
	open_all(4 * (atoi(argv[1]) + 1));
	start_all();
	for (i = 0; i < QUEUES; i++) {
		sci_dma_queue_state_t state = SCIDMAQueueState(queue[i]);

		if (state == SCI_DMAQUEUE_POSTED)
			continue;
		fprintf(stderr, "sisci-engine: queue %d is in state %d at once\n", i,
			state);
		return 1;
	}
	if (!tell_driver("unbind", argv[2]))
		die("unbind");
	expect_all(ask, SCI_DMAQUEUE_ERROR);
	/* The engine is gone, and the failures were reported before. */
	start_all();
	expect_all(ask, SCI_DMAQUEUE_DONE);
	close_all();
	if (!tell_driver("bind", argv[2]))
		die("bind");
	printf("%s\n", argv[3]);
	return 0;
}
