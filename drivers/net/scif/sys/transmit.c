// SPDX-License-Identifier: GPL-2.0
/*
 * Frames that an engine copies to the peer: their memory, and the limit of
 * bytes that wait for the engine. See helpers.h.
 */

#include <linux/io.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>

#include "helpers.h"

/*
 * Returns whether a frame may wait for an engine. The console's messages by
 * netpoll come with interrupts off, where no engine may be called.
 */
bool scif_net_helper_may_wait(const struct sk_buff *skb)
{
	return !irqs_disabled() && skb_frags_readable(skb) &&
	       !skb_has_frag_list(skb);
}

/*
 * Tells where a piece of a frame lies. Returns its length, or 0 behind the last
 * piece. The frame has no list of other frames.
 */
unsigned int scif_net_helper_piece(const struct sk_buff *skb,
				   unsigned int index, u64 *phys)
{
	const skb_frag_t *frag;

	if (skb_headlen(skb)) {
		if (!index) {
			*phys = virt_to_phys(skb->data);
			return skb_headlen(skb);
		}
		index--;
	}
	if (index >= skb_shinfo(skb)->nr_frags)
		return 0;
	frag = &skb_shinfo(skb)->frags[index];
	*phys = page_to_phys(skb_frag_page(frag)) + skb_frag_off(frag);
	return skb_frag_size(frag);
}

/* An engine has begun to copy a frame of "bytes" bytes. */
void scif_net_helper_began(struct net_device *dev, unsigned int queue,
			   unsigned int bytes)
{
	netdev_tx_sent_queue(netdev_get_tx_queue(dev, queue), bytes);
}

/* An engine has copied "frames" frames of "bytes" bytes in all. */
void scif_net_helper_landed(struct net_device *dev, unsigned int queue,
			    unsigned int frames, unsigned int bytes)
{
	netdev_tx_completed_queue(netdev_get_tx_queue(dev, queue), frames,
				  bytes);
}

/* No frame of the device is with an engine. */
void scif_net_helper_none_aloft(struct net_device *dev)
{
	unsigned int queue;

	for (queue = 0; queue < dev->num_tx_queues; queue++)
		netdev_tx_reset_queue(netdev_get_tx_queue(dev, queue));
}
