/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Arguments of the events in trace.h, in structures that trace.rs fills in.
 * "node" and "channel" identify a connection by the peer's node and the id of
 * this end. "result" is 0 or a negative errno.
 */
#ifndef SCIF_SYS_TRACE_FIELDS_H
#define SCIF_SYS_TRACE_FIELDS_H

#include <linux/types.h>

struct scif_trace_connection {
	u16 node;
	u32 channel;
	u16 own_port;
	u16 peer_port;
	int result;
};

/* Bytes through a ring. "fill" is the number of bytes in the ring afterwards. */
struct scif_trace_message {
	u16 node;
	u32 channel;
	u64 wanted;
	u64 moved;
	u32 fill;
	bool blocks;
	int result;
};

struct scif_trace_window {
	u16 node;
	u32 channel;
	s64 offset;
	u64 len;
	u32 protection;
	int result;
};

/* "local" is an offset in the windows of this end, or -1 for other memory. */
struct scif_trace_rma {
	u16 node;
	u32 channel;
	u64 number;
	bool write;
	bool engine;
	s64 local;
	s64 remote;
	u64 len;
	u32 flags;
};

struct scif_trace_rma_end {
	u16 node;
	u32 channel;
	u64 number;
	bool write;
	u64 len;
	int result;
};

/* "peer": the fence waits for transfers of the peer, not of this end. */
struct scif_trace_fence {
	u16 node;
	u32 channel;
	bool peer;
	s32 mark;
	int result;
};

/* "local" and "remote" are the offsets to store a value at, or -1. */
struct scif_trace_signal {
	u16 node;
	u32 channel;
	bool peer;
	s64 local;
	s64 remote;
	int result;
};

/* A signal whose transfers have completed. "failed": one failed, so no signal. */
struct scif_trace_signal_end {
	u16 node;
	u32 channel;
	u64 number;
	bool failed;
};

/* Texts are not terminated. "said" is the mode of the aperture, or a reason. */
struct scif_trace_link {
	const char *link;
	size_t link_len;
	u16 node;
	u64 generation;
	const char *said;
	size_t said_len;
};

#endif /* SCIF_SYS_TRACE_FIELDS_H */
