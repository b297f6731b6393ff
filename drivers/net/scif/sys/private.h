/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Declarations that the C files of scif_net share. Rust does not see them.
 */

#ifndef SCIF_NET_PRIVATE_H
#define SCIF_NET_PRIVATE_H

#include <linux/atomic.h>
#include <linux/netdevice.h>

#include <net/xdp.h>

#include "helpers.h"

/* The largest MTU: with headers, a frame stays below 64 KiB. */
#define SCIF_NET_MAX_MTU 65521

/* The frames of a queue that a program of XDP has seen. */
struct scif_net_xdp {
	/* Frames to be sent back at the end of the poll. */
	struct xdp_frame *back[16];
	unsigned int waiting;
	/* Frames were given to other devices. */
	bool flush;
	/* Counts, written by the poll alone. */
	u64 dropped;
	u64 sent_back;
	u64 redirected;
};

/* A NAPI context, the queue that it polls, and counts of the queue. */
struct scif_net_napi {
	struct napi_struct napi;
	void *owner;
	unsigned int queue;
	/* Written by the poll alone. */
	u64 pages;
	u64 copied;
	u64 large;
	struct xdp_rxq_info rxq;
	struct scif_net_xdp xdp;
	/* Written in any context. */
	atomic64_t doorbells;
	atomic64_t stops;
	atomic64_t wakes;
};

/* The private part of a device. */
struct scif_net_private {
	/* The first argument of the functions of Rust. */
	void *owner;
	u32 megabits;
	/* Queues that are joined with the peer's; 0 without carrier. */
	unsigned int joined;
	/* Queues that the administrator wants; 0 for all. */
	unsigned int wanted;
	/* Queues over which the CPUs are spread; 0 if they are not. */
	unsigned int spread;
	/* Buffers of a queue. */
	unsigned int slots;
	/* The peer's wishes, such as SCIF_NET_PACKETS. */
	u32 asked;
	/* The program of XDP, or NULL. */
	struct bpf_prog __rcu *program;
	/* For each queue of the device, once it was made. */
	struct scif_net_napi *napi[];
};

extern const struct ethtool_ops scif_net_ethtool_ops;

int scif_net_use_queues(struct net_device *dev);
void scif_net_default_address(struct net_device *dev,
			      const struct scif_net_link *link);

bool scif_net_is_packet(const struct scif_net_meta *meta);

int scif_net_bpf(struct net_device *dev, struct netdev_bpf *bpf);
int scif_net_xdp_xmit(struct net_device *dev, int count,
		      struct xdp_frame **frames, u32 flags);
int scif_net_xdp_begin(struct scif_net_napi *napi);
void scif_net_xdp_end(struct scif_net_napi *napi);

#endif
