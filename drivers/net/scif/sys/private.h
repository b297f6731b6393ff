/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Declarations that the C files of scif_net share. Rust does not see them.
 */

#ifndef SCIF_NET_PRIVATE_H
#define SCIF_NET_PRIVATE_H

#include <linux/atomic.h>
#include <linux/netdevice.h>

#include "helpers.h"

/* A NAPI context, the queue that it polls, and counts of the queue. */
struct scif_net_napi {
	struct napi_struct napi;
	void *ports;
	unsigned int queue;
	/* Written by the poll alone. */
	u64 pages;
	u64 copied;
	u64 large;
	/* Written in any context. */
	atomic64_t doorbells;
	atomic64_t stops;
	atomic64_t wakes;
};

/* The private part of a device. */
struct scif_net_private {
	/* The first argument of the functions of Rust. */
	void *ports;
	u32 megabits;
	/* Queues that are joined with the peer's; 0 without carrier. */
	unsigned int joined;
	/* Queues that the administrator wants; 0 for all. */
	unsigned int wanted;
	/* Queues over which the CPUs are spread; 0 if they are not. */
	unsigned int spread;
	/* Buffers of a queue. */
	unsigned int slots;
	/* For each queue of the device, once it was made. */
	struct scif_net_napi *napi[];
};

extern const struct ethtool_ops scif_net_ethtool_ops;

int scif_net_use_queues(struct net_device *dev);
void scif_net_default_address(struct net_device *dev,
			      const struct scif_net_link *link);

#endif
