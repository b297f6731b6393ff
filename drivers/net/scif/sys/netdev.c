// SPDX-License-Identifier: GPL-2.0
/*
 * The device of a peer: its operations, queues, NAPI contexts and features.
 */

#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>

#include <net/netdev_queues.h>

#include "private.h"

/*
 * A frame that segmentation offload has not cut crosses as it is, with a header
 * that tells the peer how to cut it, and a checksum that was not computed stays
 * so. These are the kinds of frames that the header can describe. The stack
 * itself cuts all others: tunnels, SCTP, TCP with fixed IPv4 ids or AccECN.
 */
#define SCIF_NET_FEATURES (NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_RXCSUM | \
			   NETIF_F_TSO | NETIF_F_TSO6 | NETIF_F_TSO_ECN | \
			   NETIF_F_GSO_UDP_L4)

/*
 * Memory may lie anywhere. Frames of another untrusted source can be passed on
 * uncut, as the peer checks each frame.
 */
#define SCIF_NET_FIXED_FEATURES (NETIF_F_HIGHDMA | NETIF_F_GSO_ROBUST)

static const struct device_type scif_net_type = {
	.name = "scif",
};

/* Operations of the device */

static netdev_tx_t scif_net_start_xmit(struct sk_buff *skb,
				       struct net_device *dev)
{
	struct scif_net_private *private = netdev_priv(dev);

	if (scif_net_xmit(private->owner, skb_get_queue_mapping(skb), skb))
		return NETDEV_TX_BUSY;
	return NETDEV_TX_OK;
}

static void scif_net_get_stats64(struct net_device *dev,
				 struct rtnl_link_stats64 *stats)
{
	struct scif_net_private *private = netdev_priv(dev);
	struct scif_net_counts counts;
	unsigned int queue;

	for (queue = 0; queue < dev->num_tx_queues; queue++) {
		scif_net_count(private->owner, queue, true, &counts);
		stats->tx_packets += counts.packets;
		stats->tx_bytes += counts.bytes;
		stats->tx_dropped += counts.dropped;
		stats->tx_errors += counts.errors;
		scif_net_count(private->owner, queue, false, &counts);
		stats->rx_packets += counts.packets;
		stats->rx_bytes += counts.bytes;
		stats->rx_dropped += counts.dropped;
		stats->rx_errors += counts.errors;
	}
}

static int scif_net_open(struct net_device *dev)
{
	return 0;
}

static int scif_net_stop(struct net_device *dev)
{
	return 0;
}

/*
 * The device delivers all frames of the peer, whatever their address, so it is
 * always promiscuous, and has no filter to set.
 */
static void scif_net_set_rx_mode(struct net_device *dev)
{
}

/*
 * Headers may have any length, and any number of VLAN tags. If the peer asks for
 * packets, the stack cuts frames and computes checksums.
 */
static netdev_features_t scif_net_features_check(struct sk_buff *skb,
						 struct net_device *dev,
						 netdev_features_t features)
{
	struct scif_net_private *private = netdev_priv(dev);

	if (READ_ONCE(private->asked) & SCIF_NET_PACKETS)
		features &= ~(NETIF_F_CSUM_MASK | NETIF_F_GSO_MASK);
	return passthru_features_check(skb, dev, features);
}

static const struct net_device_ops scif_net_ops = {
	.ndo_open = scif_net_open,
	.ndo_stop = scif_net_stop,
	.ndo_start_xmit = scif_net_start_xmit,
	.ndo_features_check = scif_net_features_check,
	.ndo_get_stats64 = scif_net_get_stats64,
	.ndo_set_rx_mode = scif_net_set_rx_mode,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
	.ndo_bpf = scif_net_bpf,
	.ndo_xdp_xmit = scif_net_xdp_xmit,
};

/* Statistics of queues */

static void scif_net_get_queue_stats_rx(struct net_device *dev, int queue,
					struct netdev_queue_stats_rx *stats)
{
	struct scif_net_private *private = netdev_priv(dev);
	struct scif_net_counts counts;

	scif_net_count(private->owner, queue, false, &counts);
	stats->packets = counts.packets;
	stats->bytes = counts.bytes;
	stats->hw_drops = counts.dropped + counts.errors;
}

static void scif_net_get_queue_stats_tx(struct net_device *dev, int queue,
					struct netdev_queue_stats_tx *stats)
{
	struct scif_net_private *private = netdev_priv(dev);
	struct scif_net_counts counts;

	scif_net_count(private->owner, queue, true, &counts);
	stats->packets = counts.packets;
	stats->bytes = counts.bytes;
	stats->hw_drops = counts.dropped + counts.errors;
	stats->hw_drop_errors = counts.errors;
	stats->stop = atomic64_read(&private->napi[queue]->stops);
	stats->wake = atomic64_read(&private->napi[queue]->wakes);
}

/* Adds up the queues that are not used now. */
static void scif_net_get_base_stats(struct net_device *dev,
				    struct netdev_queue_stats_rx *rx,
				    struct netdev_queue_stats_tx *tx)
{
	*rx = (struct netdev_queue_stats_rx){};
	*tx = (struct netdev_queue_stats_tx){};
	netdev_stat_queue_sum(dev, dev->real_num_rx_queues, dev->num_rx_queues,
			      rx, dev->real_num_tx_queues, dev->num_tx_queues,
			      tx);
}

static const struct netdev_stat_ops scif_net_stat_ops = {
	.get_queue_stats_rx = scif_net_get_queue_stats_rx,
	.get_queue_stats_tx = scif_net_get_queue_stats_tx,
	.get_base_stats = scif_net_get_base_stats,
};

/* Queues */

/*
 * Spreads the CPUs over the queues: each CPU sends by one queue, so that flows
 * keep theirs, and CPUs share as few as possible. Without memory for that, the
 * stack chooses by flow.
 */
static void scif_net_spread(struct net_device *dev, unsigned int queues)
{
	unsigned int queue, cpu;
	cpumask_var_t cpus;

	if (!zalloc_cpumask_var(&cpus, GFP_KERNEL))
		return;
	for (queue = 0; queue < queues; queue++) {
		cpumask_clear(cpus);
		for_each_possible_cpu(cpu) {
			if (cpu % queues == queue)
				cpumask_set_cpu(cpu, cpus);
		}
		if (netif_set_xps_queue(dev, cpus, queue))
			break;
	}
	free_cpumask_var(cpus);
}

/*
 * Uses as many queues as are joined and wanted. Frames of the peer are taken from
 * all joined queues, as the peer chooses for itself by which ones it sends.
 */
int scif_net_use_queues(struct net_device *dev)
{
	struct scif_net_private *private = netdev_priv(dev);
	unsigned int queue, queues = private->joined;
	struct napi_struct *napi;
	int err;

	ASSERT_RTNL();
	if (private->wanted)
		queues = min(queues, private->wanted);
	if (queues) {
		err = netif_set_real_num_queues(dev, queues, queues);
		if (err)
			return err;
	}
	for (queue = 0; queue < dev->num_tx_queues; queue++) {
		napi = NULL;
		if (queue < queues)
			napi = &private->napi[queue]->napi;
		netif_queue_set_napi(dev, queue, NETDEV_QUEUE_TYPE_RX, napi);
		netif_queue_set_napi(dev, queue, NETDEV_QUEUE_TYPE_TX, napi);
	}
	/* An administrator may have spread them in another way since. */
	if (queues && queues != private->spread) {
		scif_net_spread(dev, queues);
		private->spread = queues;
	}
	return 0;
}

/* The device */

/* Returns NULL if there is no memory. */
struct net_device *scif_net_helper_alloc(void *owner,
					 const struct scif_net_link *link)
{
	struct scif_net_private *private;
	struct net_device *dev;

	dev = alloc_netdev_mqs(struct_size(private, napi, link->queues),
			       "scif%d", NET_NAME_ENUM, ether_setup,
			       link->queues, link->queues);
	if (!dev)
		return NULL;
	private = netdev_priv(dev);
	private->owner = owner;
	private->megabits = link->megabits;
	SET_NETDEV_DEV(dev, link->parent);
	SET_NETDEV_DEVTYPE(dev, &scif_net_type);
	dev->dev_port = link->node;
	dev->netdev_ops = &scif_net_ops;
	dev->stat_ops = &scif_net_stat_ops;
	dev->ethtool_ops = &scif_net_ethtool_ops;
	dev->min_mtu = ETH_MIN_MTU;
	dev->max_mtu = SCIF_NET_MAX_MTU;
	dev->hw_features = SCIF_NET_FEATURES | NETIF_F_RXHASH;
	dev->features = dev->hw_features | SCIF_NET_FIXED_FEATURES;
	dev->vlan_features = SCIF_NET_FEATURES | SCIF_NET_FIXED_FEATURES;
	dev->priv_flags |= IFF_LIVE_ADDR_CHANGE | IFF_UNICAST_FLT;
	scif_net_default_address(dev, link);
	xdp_set_features_flag(dev, NETDEV_XDP_ACT_BASIC |
				   NETDEV_XDP_ACT_REDIRECT |
				   NETDEV_XDP_ACT_NDO_XMIT |
				   NETDEV_XDP_ACT_RX_SG |
				   NETDEV_XDP_ACT_NDO_XMIT_SG);
	netif_set_tso_max_size(dev, GSO_LEGACY_MAX_SIZE);
	netdev_sw_irq_coalesce_default_on(dev);
	netif_carrier_off(dev);
	return dev;
}

int scif_net_helper_register(struct net_device *dev)
{
	return register_netdev(dev);
}

void scif_net_helper_unregister(struct net_device *dev)
{
	unregister_netdev(dev);
}

void scif_net_helper_free(struct net_device *dev)
{
	free_netdev(dev);
}

/* Frames can be sent by "queues" queues, of "slots" buffers, from now on. */
int scif_net_helper_up(struct net_device *dev, unsigned int queues,
		       unsigned int slots)
{
	struct scif_net_private *private = netdev_priv(dev);
	int err;

	rtnl_lock();
	private->joined = queues;
	private->slots = slots;
	err = scif_net_use_queues(dev);
	if (err)
		private->joined = 0;
	rtnl_unlock();
	if (err)
		return err;
	netif_carrier_on(dev);
	netif_tx_wake_all_queues(dev);
	return 0;
}

/* No frames are being sent when this returns. */
void scif_net_helper_down(struct net_device *dev)
{
	struct scif_net_private *private = netdev_priv(dev);

	netif_carrier_off(dev);
	netif_tx_disable(dev);
	rtnl_lock();
	private->joined = 0;
	scif_net_use_queues(dev);
	rtnl_unlock();
	scif_net_helper_asked(dev, 0);
}

/* The peer asks for these things now, and for no others any more. */
void scif_net_helper_asked(struct net_device *dev, u32 wishes)
{
	struct scif_net_private *private = netdev_priv(dev);

	WRITE_ONCE(private->asked, wishes);
}

bool scif_net_helper_is_running(struct net_device *dev)
{
	return netif_running(dev);
}

/* Without carrier, queues are stopped for another reason than lack of room. */
bool scif_net_helper_is_stopped(struct net_device *dev, unsigned int queue)
{
	return netif_carrier_ok(dev) &&
	       netif_tx_queue_stopped(netdev_get_tx_queue(dev, queue));
}

void scif_net_helper_stop(struct net_device *dev, unsigned int queue)
{
	struct scif_net_private *private = netdev_priv(dev);

	netif_tx_stop_queue(netdev_get_tx_queue(dev, queue));
	atomic64_inc(&private->napi[queue]->stops);
}

void scif_net_helper_wake(struct net_device *dev, unsigned int queue)
{
	struct scif_net_private *private = netdev_priv(dev);

	netif_tx_wake_queue(netdev_get_tx_queue(dev, queue));
	atomic64_inc(&private->napi[queue]->wakes);
}

/* NAPI */

static int scif_net_napi_poll(struct napi_struct *napi, int budget)
{
	struct scif_net_napi *own = container_of(napi, struct scif_net_napi, napi);

	return scif_net_poll(own->owner, own->queue, budget);
}

/* The settings of the context outlast a time in which it is disabled. */
struct scif_net_napi *scif_net_helper_napi_new(struct net_device *dev,
					       unsigned int queue)
{
	struct scif_net_private *private = netdev_priv(dev);
	struct scif_net_napi *napi;

	napi = kzalloc_obj(*napi);
	if (!napi)
		return NULL;
	napi->owner = private->owner;
	napi->queue = queue;
	netif_napi_add_config(dev, &napi->napi, scif_net_napi_poll, queue);
	if (scif_net_xdp_begin(napi)) {
		netif_napi_del(&napi->napi);
		kfree(napi);
		return NULL;
	}
	private->napi[queue] = napi;
	return napi;
}

void scif_net_helper_napi_free(struct scif_net_napi *napi)
{
	scif_net_xdp_end(napi);
	netif_napi_del(&napi->napi);
	kfree(napi);
}

void scif_net_helper_napi_enable(struct scif_net_napi *napi)
{
	napi_enable(&napi->napi);
}

void scif_net_helper_napi_disable(struct scif_net_napi *napi)
{
	napi_disable(&napi->napi);
}

/* Schedules a poll, from any context. */
void scif_net_helper_napi_schedule(struct scif_net_napi *napi)
{
	if (in_hardirq() || irqs_disabled()) {
		napi_schedule(&napi->napi);
		return;
	}
	/* The soft interrupt begins when bottom halves are enabled. */
	local_bh_disable();
	napi_schedule(&napi->napi);
	local_bh_enable();
}

/* The peer has rung. */
void scif_net_helper_napi_rung(struct scif_net_napi *napi)
{
	atomic64_inc(&napi->doorbells);
	napi_schedule(&napi->napi);
}

bool scif_net_helper_napi_complete(struct scif_net_napi *napi, int done)
{
	return napi_complete_done(&napi->napi, done);
}

void scif_net_helper_bh(bool disable)
{
	if (disable)
		local_bh_disable();
	else
		local_bh_enable();
}
