/* SPDX-License-Identifier: GPL-2.0 */
/*
 * sample.h - functions that the samples share: error messages, and the connection to a peer
 */
#ifndef SAMPLE_H
#define SAMPLE_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sisci_api.h>

#define ADAPTER		0
#define NO_FLAGS	0

/* How long a client waits for the other side to be started. */
#define PATIENCE_MS	10000

enum exit_code {
	EXIT_USAGE	= 2,
	EXIT_NOBODY	= 3,
	EXIT_LOST	= 4
};

#define EXIT_CODES						\
	"Exit status: 0 done, 1 something failed here, 2 wrong usage, 3 the other side\n"	\
	"is not there, 4 the other side was lost.\n"

/* The name of the sample, for its messages. */
static const char *sample;

/* Returns advice about an error, or NULL, as for most errors. */
static inline const char *advice(sci_error_t error)
{
	switch (error) {
	case SCI_ERR_NO_SUCH_SEGMENT: /* and SCI_ERR_NO_SUCH_INTNO */
		return "start the other side first; both need the same numbers";
	case SCI_ERR_NO_SUCH_NODEID:
	case SCI_ERR_ILLEGAL_NODEID:
		return "sisci-info lists the nodes with their ids";
	case SCI_ERR_NODE_NOT_RESPONDING:
	case SCI_ERR_NO_LINK_ACCESS:
		return "scif doctor tells the fault of the link";
	case SCI_ERR_SEGMENTID_USED:
	case SCI_ERR_INTNO_USED:
		return "another program of this node has that number: end it";
	case SCI_ERR_NOT_INITIALIZED:
	case SCI_ERR_INCONSISTENT_VERSIONS:
	case SCI_ERR_SYSTEM:
		return "scif doctor says whether the driver is loaded, and whether you may use it";
	default:
		return NULL;
	}
}

static inline enum exit_code exit_code(sci_error_t error)
{
	switch (error) {
	case SCI_ERR_NO_SUCH_SEGMENT:
	case SCI_ERR_NO_SUCH_NODEID:
	case SCI_ERR_ILLEGAL_NODEID:
	case SCI_ERR_NODE_NOT_RESPONDING:
	case SCI_ERR_NO_LINK_ACCESS:
	case SCI_ERR_CONNECTION_REFUSED:
		return EXIT_NOBODY;
	case SCI_ERR_NOT_CONNECTED:
	case SCI_ERR_SEGMENT_NOT_CONNECTED:
	case SCI_ERR_TRANSFER_FAILED:
		return EXIT_LOST;
	default:
		return (enum exit_code)EXIT_FAILURE;
	}
}

/* Ends the program on an error: prints what was tried, the reason, and the advice. */
static inline void must(sci_error_t error, const char *what, ...)
{
	const char *hint = advice(error);
	va_list arguments;

	if (error == SCI_ERR_OK)
		return;
	fprintf(stderr, "%s: ", sample);
	va_start(arguments, what);
	vfprintf(stderr, what, arguments);
	va_end(arguments);
	fprintf(stderr, ": %s\n", SCIGetErrorString(error));
	if (hint)
		fprintf(stderr, "%s: %s\n", sample, hint);
	exit(exit_code(error));
}

static inline void end_lost(unsigned int node)
{
	fprintf(stderr, "%s: node %u, or the program on it, is lost; start both sides again\n",
		sample, node);
	exit(EXIT_LOST);
}

/* Returns a number of the command line, which is at least 1. */
static inline unsigned int number(const char *text, const char *what)
{
	char *end;
	unsigned long value = strtoul(text, &end, 0);

	if (*end || !value || value > 1000000000) {
		fprintf(stderr, "%s: '%s' is not %s; see --help\n", sample, text, what);
		exit(EXIT_USAGE);
	}
	return value;
}

static inline sci_desc_t open_device(void)
{
	sci_error_t error;
	sci_desc_t device;

	SCIInitialize(NO_FLAGS, &error);
	must(error, "cannot initialize libsisci");
	SCIOpen(&device, NO_FLAGS, &error);
	must(error, "cannot open a virtual device");
	return device;
}

static inline unsigned int own_node(void)
{
	unsigned int node;
	sci_error_t error;

	SCIGetLocalNodeId(ADAPTER, &node, NO_FLAGS, &error);
	must(error, "cannot ask for the id of this node");
	return node;
}

/* Exports zeroed memory of this node, to which others may connect. Returns its address. */
static inline void *export_segment(sci_desc_t device, unsigned int id, size_t size,
				   sci_local_segment_t *segment, sci_map_t *map)
{
	sci_error_t error;
	void *memory;

	SCICreateSegment(device, segment, id, size, NULL, NULL, NO_FLAGS, &error);
	must(error, "cannot create segment 0x%x of %zu bytes", id, size);
	memory = SCIMapLocalSegment(*segment, map, 0, size, NULL, NO_FLAGS, &error);
	must(error, "cannot map segment 0x%x", id);
	SCIPrepareSegment(*segment, ADAPTER, NO_FLAGS, &error);
	must(error, "cannot prepare segment 0x%x", id);
	SCISetSegmentAvailable(*segment, ADAPTER, NO_FLAGS, &error);
	must(error, "cannot make segment 0x%x available", id);
	return memory;
}

/* Connects to a segment of another node, once it exists. */
static inline void connect_segment(sci_desc_t device, unsigned int node, unsigned int id,
				   sci_remote_segment_t *segment)
{
	unsigned int waited = 0;
	sci_error_t error;

	for (;; waited += 50) {
		SCIConnectSegment(device, segment, node, id, ADAPTER, NULL, NULL,
				  SCI_INFINITE_TIMEOUT, NO_FLAGS, &error);
		/* This error comes at once. The timeout is for nodes that take long to answer. */
		if (error != SCI_ERR_NO_SUCH_SEGMENT || waited >= PATIENCE_MS)
			break;
		usleep(50000);
	}
	must(error, "cannot connect to segment 0x%x of node %u", id, node);
}

/* Maps the whole segment, with a sequence that tells whether stores to it have arrived. */
static inline volatile void *map_segment(sci_remote_segment_t segment, sci_map_t *map,
					 sci_sequence_t *sequence)
{
	unsigned int node = SCIGetRemoteSegmentNodeId(segment);
	volatile void *memory;
	sci_error_t error;

	memory = SCIMapRemoteSegment(segment, map, 0, SCIGetRemoteSegmentSize(segment), NULL,
				     NO_FLAGS, &error);
	must(error, "cannot map the segment of node %u", node);
	SCICreateMapSequence(*map, sequence, NO_FLAGS, &error);
	must(error, "cannot make a sequence for the segment of node %u", node);
	return memory;
}

/* Returns the node of the next client that connects to a segment. */
static inline unsigned int wait_for_client(sci_local_segment_t segment)
{
	sci_segment_cb_reason_t reason;
	unsigned int node, adapter;
	sci_error_t error;

	do {
		reason = SCIWaitForLocalSegmentEvent(segment, &node, &adapter,
						     SCI_INFINITE_TIMEOUT, NO_FLAGS, &error);
		must(error, "cannot wait for a client");
	} while (reason != SCI_CB_CONNECT);
	return node;
}

/* Returns whether a segment is lost for ever, which is not so if its link can come back. */
static inline int is_lost(sci_remote_segment_t segment)
{
	sci_segment_cb_reason_t reason;
	sci_error_t status, error;

	for (;;) {
		reason = SCIWaitForRemoteSegmentEvent(segment, &status, 0, NO_FLAGS, &error);
		if (error == SCI_ERR_TIMEOUT)
			return 0;
		must(error, "cannot ask for events of the segment");
		if (reason == SCI_CB_LOST || reason == SCI_CB_DISCONNECT)
			return 1;
		fprintf(stderr, "%s: node %u is %s\n", sample, SCIGetRemoteSegmentNodeId(segment),
			reason == SCI_CB_OPERATIONAL ? "back" : "out of reach; waiting");
	}
}

/* Starts a sequence as soon as the link is up. */
static inline void start_sequence(sci_sequence_t sequence, sci_remote_segment_t segment)
{
	sci_error_t error;

	while (SCIStartSequence(sequence, NO_FLAGS, &error) != SCI_SEQ_OK) {
		/* A sequence to a lost segment never starts again. */
		if (error != SCI_ERR_SEGMENT_NOT_CONNECTED)
			must(error, "cannot start a sequence");
		if (error != SCI_ERR_OK || is_lost(segment))
			end_lost(SCIGetRemoteSegmentNodeId(segment));
		usleep(1000);
	}
}

/* Returns whether all stores since the last check, or since the start, have arrived. */
static inline int has_arrived(sci_sequence_t sequence, sci_remote_segment_t segment)
{
	sci_sequence_status_t status;
	sci_error_t error;

	status = SCICheckSequence(sequence, NO_FLAGS, &error);
	must(error, "cannot check the sequence");
	/* When the error is over, stores may be repeated at once. */
	if (status == SCI_SEQ_NOT_RETRIABLE || status == SCI_SEQ_PENDING)
		start_sequence(sequence, segment);
	return status == SCI_SEQ_OK;
}

/* Waits until the client has disconnected, because it still reads the last message of this side. */
static inline void wait_for_end(sci_local_segment_t segment)
{
	sci_segment_cb_reason_t reason;
	unsigned int node, adapter;
	sci_error_t error;

	do {
		reason = SCIWaitForLocalSegmentEvent(segment, &node, &adapter, PATIENCE_MS,
						     NO_FLAGS, &error);
	} while (error == SCI_ERR_OK && reason != SCI_CB_DISCONNECT && reason != SCI_CB_LOST);
}

#endif /* SAMPLE_H */
