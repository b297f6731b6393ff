// SPDX-License-Identifier: GPL-2.0
/*
 * The device as ethtool shows it, and the settings that ethtool can change.
 */

#include <linux/ethtool.h>
#include <linux/ethtool_netlink.h>
#include <linux/log2.h>
#include <linux/netdevice.h>

#include "private.h"

/* The stack fills in the kernel's version, and the name of the bridge. */
static void scif_net_get_drvinfo(struct net_device *dev,
				 struct ethtool_drvinfo *info)
{
	strscpy(info->driver, KBUILD_MODNAME, sizeof(info->driver));
}

/*
 * The speed is the rate at which the bridge's link carries data. As with any
 * device, it is unknown without carrier.
 */
static int scif_net_get_link_ksettings(struct net_device *dev,
				       struct ethtool_link_ksettings *settings)
{
	struct scif_net_private *private = netdev_priv(dev);

	settings->base.port = PORT_OTHER;
	settings->base.autoneg = AUTONEG_DISABLE;
	settings->base.speed = SPEED_UNKNOWN;
	settings->base.duplex = DUPLEX_UNKNOWN;
	if (!netif_carrier_ok(dev))
		return 0;
	settings->base.duplex = DUPLEX_FULL;
	if (private->megabits)
		settings->base.speed = private->megabits;
	return 0;
}

/* Without carrier, there may be any number of queues. */
static void scif_net_get_channels(struct net_device *dev,
				  struct ethtool_channels *channels)
{
	struct scif_net_private *private = netdev_priv(dev);
	unsigned int most = private->joined ?: dev->num_tx_queues;

	channels->max_combined = most;
	channels->combined_count = min(private->wanted ?: most, most);
}

/* The number outlasts a time without carrier. */
static int scif_net_set_channels(struct net_device *dev,
				 struct ethtool_channels *channels)
{
	struct scif_net_private *private = netdev_priv(dev);
	unsigned int before = private->wanted;
	int err;

	private->wanted = channels->combined_count;
	err = scif_net_use_queues(dev);
	if (err)
		private->wanted = before;
	return err;
}

/* All rings with a peer have the same size: the smaller one of both ends. */
static void scif_net_get_ringparam(struct net_device *dev,
				   struct ethtool_ringparam *ring,
				   struct kernel_ethtool_ringparam *kernel_ring,
				   struct netlink_ext_ack *extack)
{
	struct scif_net_private *private = netdev_priv(dev);

	ring->rx_max_pending = SCIF_NET_MOST_SLOTS;
	ring->rx_pending = private->slots;
	ring->tx_max_pending = SCIF_NET_MOST_SLOTS;
	ring->tx_pending = private->slots;
	kernel_ring->rx_buf_len = PAGE_SIZE;
}

/*
 * Joins the rings with the peer anew, which takes the carrier for a moment. The
 * size outlasts the session with the peer.
 */
static int scif_net_set_ringparam(struct net_device *dev,
				  struct ethtool_ringparam *ring,
				  struct kernel_ethtool_ringparam *kernel_ring,
				  struct netlink_ext_ack *extack)
{
	struct scif_net_private *private = netdev_priv(dev);
	u32 slots = ring->rx_pending;

	/* One of both may stay as it was. */
	if (slots == private->slots) {
		slots = ring->tx_pending;
	} else if (ring->tx_pending != private->slots &&
		   ring->tx_pending != slots) {
		NL_SET_ERR_MSG(extack, "rx and tx rings have the same size");
		return -EINVAL;
	}
	if (slots < SCIF_NET_FEWEST_SLOTS) {
		NL_SET_ERR_MSG_FMT(extack, "a ring has at least %u buffers",
				   SCIF_NET_FEWEST_SLOTS);
		return -EINVAL;
	}
	slots = roundup_pow_of_two(slots);
	return scif_net_resize(private->owner, slots) ? 0 : -ENOMEM;
}

/*
 * The peer rings when this node sleeps, without any delay. The delay here is the
 * time for which the stack still looks for frames after the last one, before the
 * device asks the peer to ring.
 */
static int scif_net_get_coalesce(struct net_device *dev,
				 struct ethtool_coalesce *coalesce,
				 struct kernel_ethtool_coalesce *kernel_coalesce,
				 struct netlink_ext_ack *extack)
{
	if (READ_ONCE(dev->napi_defer_hard_irqs))
		coalesce->rx_coalesce_usecs =
			READ_ONCE(dev->gro_flush_timeout) / NSEC_PER_USEC;
	return 0;
}

static int scif_net_set_coalesce(struct net_device *dev,
				 struct ethtool_coalesce *coalesce,
				 struct kernel_ethtool_coalesce *kernel_coalesce,
				 struct netlink_ext_ack *extack)
{
	struct ethtool_coalesce present = {};

	scif_net_get_coalesce(dev, &present, kernel_coalesce, extack);
	if (coalesce->rx_coalesce_usecs == present.rx_coalesce_usecs)
		return 0;
	NL_SET_ERR_MSG(extack,
		       "set gro_flush_timeout and napi_defer_hard_irqs of the device in sysfs instead");
	return -EOPNOTSUPP;
}

/* Statistics */

/* The counts of one queue, which are also added up for the device. */
enum {
	SCIF_NET_TX_PACKETS,
	SCIF_NET_TX_BYTES,
	SCIF_NET_TX_DROPPED,
	SCIF_NET_TX_REFUSED,
	SCIF_NET_TX_STOPPED,
	SCIF_NET_TX_WOKEN,
	SCIF_NET_RX_PACKETS,
	SCIF_NET_RX_BYTES,
	SCIF_NET_RX_DROPPED,
	SCIF_NET_RX_REFUSED,
	SCIF_NET_RX_LARGE,
	SCIF_NET_RX_PAGES,
	SCIF_NET_RX_PAGES_COPIED,
	SCIF_NET_RX_XDP_DROPS,
	SCIF_NET_RX_XDP_TX,
	SCIF_NET_RX_XDP_REDIRECTS,
	SCIF_NET_DOORBELLS,
	SCIF_NET_NAMES
};

static const char *const scif_net_names[SCIF_NET_NAMES] = {
	[SCIF_NET_TX_PACKETS] = "tx_packets",
	[SCIF_NET_TX_BYTES] = "tx_bytes",
	[SCIF_NET_TX_DROPPED] = "tx_dropped",
	/* Frames that can't be described to the peer, or be read. */
	[SCIF_NET_TX_REFUSED] = "tx_refused",
	[SCIF_NET_TX_STOPPED] = "tx_stopped",
	[SCIF_NET_TX_WOKEN] = "tx_woken",
	[SCIF_NET_RX_PACKETS] = "rx_packets",
	[SCIF_NET_RX_BYTES] = "rx_bytes",
	[SCIF_NET_RX_DROPPED] = "rx_dropped",
	/* Frames that the peer has described in a wrong way. */
	[SCIF_NET_RX_REFUSED] = "rx_refused",
	/* Frames that segmentation offload of the peer has not cut. */
	[SCIF_NET_RX_LARGE] = "rx_large",
	/* Pages of frames: those of the rings themselves, and copies. */
	[SCIF_NET_RX_PAGES] = "rx_pages",
	[SCIF_NET_RX_PAGES_COPIED] = "rx_pages_copied",
	/* Verdicts of a program of XDP. */
	[SCIF_NET_RX_XDP_DROPS] = "rx_xdp_drops",
	[SCIF_NET_RX_XDP_TX] = "rx_xdp_tx",
	[SCIF_NET_RX_XDP_REDIRECTS] = "rx_xdp_redirects",
	/* Wake-ups by the peer, for frames or for room. */
	[SCIF_NET_DOORBELLS] = "doorbells",
};

static void scif_net_count_queue(struct net_device *dev, unsigned int queue,
				 u64 *values)
{
	struct scif_net_private *private = netdev_priv(dev);
	struct scif_net_napi *napi = private->napi[queue];
	struct scif_net_counts counts;

	scif_net_count(private->owner, queue, true, &counts);
	values[SCIF_NET_TX_PACKETS] = counts.packets;
	values[SCIF_NET_TX_BYTES] = counts.bytes;
	values[SCIF_NET_TX_DROPPED] = counts.dropped;
	values[SCIF_NET_TX_REFUSED] = counts.errors;
	values[SCIF_NET_TX_STOPPED] = atomic64_read(&napi->stops);
	values[SCIF_NET_TX_WOKEN] = atomic64_read(&napi->wakes);
	scif_net_count(private->owner, queue, false, &counts);
	values[SCIF_NET_RX_PACKETS] = counts.packets;
	values[SCIF_NET_RX_BYTES] = counts.bytes;
	values[SCIF_NET_RX_DROPPED] = counts.dropped;
	values[SCIF_NET_RX_REFUSED] = counts.errors;
	values[SCIF_NET_RX_LARGE] = READ_ONCE(napi->large);
	values[SCIF_NET_RX_PAGES] = READ_ONCE(napi->pages);
	values[SCIF_NET_RX_PAGES_COPIED] = READ_ONCE(napi->copied);
	values[SCIF_NET_RX_XDP_DROPS] = READ_ONCE(napi->xdp.dropped);
	values[SCIF_NET_RX_XDP_TX] = READ_ONCE(napi->xdp.sent_back);
	values[SCIF_NET_RX_XDP_REDIRECTS] = READ_ONCE(napi->xdp.redirected);
	values[SCIF_NET_DOORBELLS] = atomic64_read(&napi->doorbells);
}

static int scif_net_get_sset_count(struct net_device *dev, int set)
{
	if (set != ETH_SS_STATS)
		return -EOPNOTSUPP;
	return SCIF_NET_NAMES * (1 + dev->num_tx_queues);
}

static void scif_net_get_strings(struct net_device *dev, u32 set, u8 *text)
{
	unsigned int queue, name;

	if (set != ETH_SS_STATS)
		return;
	for (name = 0; name < SCIF_NET_NAMES; name++)
		ethtool_puts(&text, scif_net_names[name]);
	for (queue = 0; queue < dev->num_tx_queues; queue++) {
		for (name = 0; name < SCIF_NET_NAMES; name++)
			ethtool_sprintf(&text, "queue_%u_%s", queue,
					scif_net_names[name]);
	}
}

static void scif_net_get_ethtool_stats(struct net_device *dev,
				       struct ethtool_stats *stats,
				       u64 *values)
{
	u64 *of_queue = values + SCIF_NET_NAMES;
	unsigned int queue, name;

	memset(values, 0, SCIF_NET_NAMES * sizeof(*values));
	for (queue = 0; queue < dev->num_tx_queues; queue++) {
		scif_net_count_queue(dev, queue, of_queue);
		for (name = 0; name < SCIF_NET_NAMES; name++)
			values[name] += of_queue[name];
		of_queue += SCIF_NET_NAMES;
	}
}

const struct ethtool_ops scif_net_ethtool_ops = {
	.supported_coalesce_params = ETHTOOL_COALESCE_RX_USECS,
	.get_drvinfo = scif_net_get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = scif_net_get_link_ksettings,
	.get_channels = scif_net_get_channels,
	.set_channels = scif_net_set_channels,
	.get_ringparam = scif_net_get_ringparam,
	.set_ringparam = scif_net_set_ringparam,
	.get_coalesce = scif_net_get_coalesce,
	.set_coalesce = scif_net_set_coalesce,
	.get_sset_count = scif_net_get_sset_count,
	.get_strings = scif_net_get_strings,
	.get_ethtool_stats = scif_net_get_ethtool_stats,
};
