// SPDX-License-Identifier: GPL-2.0
/*
 * Frames of the network stack: how those that are sent are described to the
 * peer and copied, and how those of the peer are made and checked.
 */

#include <linux/etherdevice.h>
#include <linux/io.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <linux/virtio_net.h>

#include <uapi/linux/virtio_net.h>

#include "private.h"

/* Bytes of a frame of which the place of a checksum is one. */
#define SCIF_NET_MOST_HEADERS 4096

/* The layout of struct scif_net_meta. */
struct scif_net_header {
	struct virtio_net_hdr virtio;
	__le16 zero;
	/* A number that all frames of a flow share, or 0. */
	__le32 flow;
};

/* Frames that are sent */

unsigned int scif_net_helper_len(const struct sk_buff *skb)
{
	return skb->len;
}

/*
 * Returns the number of packets that a frame would be on a wire. The stack has
 * not counted them in a frame that the peer has described.
 */
unsigned int scif_net_helper_segments(const struct sk_buff *skb)
{
	const struct skb_shared_info *info = skb_shinfo(skb);
	unsigned int headers;

	if (!skb_is_gso(skb))
		return 1;
	if (info->gso_segs)
		return info->gso_segs;
	headers = skb_transport_offset(skb);
	if (info->gso_type & (SKB_GSO_TCPV4 | SKB_GSO_TCPV6))
		headers += tcp_hdrlen(skb);
	else
		headers += sizeof(struct udphdr);
	/* The peer may have written any length of the headers. */
	if (headers >= skb->len)
		return 1;
	return DIV_ROUND_UP(skb->len - headers, info->gso_size);
}

bool scif_net_helper_more(void)
{
	return netdev_xmit_more();
}

/* Returns false if the frame can't be described. */
bool scif_net_helper_describe(struct sk_buff *skb, struct scif_net_meta *meta)
{
	struct scif_net_header *header = (struct scif_net_header *)meta->bytes;

	BUILD_BUG_ON(sizeof(*header) != sizeof(meta->bytes));
	memset(meta, 0, sizeof(*meta));
	/* Known for most frames of this node, at no cost. */
	if (skb->l4_hash)
		header->flow = cpu_to_le32(skb_get_hash_raw(skb));
	return !virtio_net_hdr_from_skb(skb, &header->virtio, true, true, 0);
}

/*
 * Copies bytes of a frame to memory of the peer, which may be mapped write-
 * combining. On x86, plain copies reach such memory well.
 */
int scif_net_helper_copy_out(struct sk_buff *skb, unsigned int from, u8 *to,
			     unsigned int len)
{
	struct skb_seq_state state;
	const u8 *data;
	unsigned int done = 0, count;

	if (IS_ENABLED(CONFIG_X86_64))
		return skb_copy_bits(skb, from, to, len);
	skb_prepare_seq_read(skb, from, from + len, &state);
	while ((count = skb_seq_read(done, &data, &state))) {
		memcpy_toio((void __iomem __force *)(to + done), data, count);
		done += count;
	}
	return done == len ? 0 : -EFAULT;
}

void scif_net_helper_sent(struct sk_buff *skb)
{
	dev_consume_skb_any(skb);
}

void scif_net_helper_drop(struct sk_buff *skb)
{
	dev_kfree_skb_any(skb);
}

/* Frames that are received */

/*
 * Returns whether the peer says that a frame is one packet, whose checksums are
 * all there.
 */
bool scif_net_is_packet(const struct scif_net_meta *meta)
{
	const struct scif_net_header *header =
		(const struct scif_net_header *)meta->bytes;

	return header->virtio.gso_type == VIRTIO_NET_HDR_GSO_NONE &&
	       !(header->virtio.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM);
}

/* Returns a frame with room for SCIF_NET_HEADERS bytes, or NULL. */
struct sk_buff *scif_net_helper_begin(struct scif_net_napi *napi)
{
	struct sk_buff *skb = napi_alloc_skb(&napi->napi, SCIF_NET_HEADERS);

	if (skb)
		skb_record_rx_queue(skb, napi->queue);
	return skb;
}

u8 *scif_net_helper_room(struct sk_buff *skb)
{
	return skb->data;
}

/*
 * "copied" bytes of a frame of "total" bytes were copied to its room. Returns
 * how many of them stay there: all of a small frame, else its headers.
 */
unsigned int scif_net_helper_keep(struct sk_buff *skb, unsigned int copied,
				  unsigned int total)
{
	unsigned int len = copied;

	if (copied < total)
		len = eth_get_headlen(skb->dev, skb->data, copied);
	skb_put(skb, len);
	return len;
}

/* Returns a page to copy a part of a frame to, or NULL. */
struct page *scif_net_helper_page(struct sk_buff *skb, u8 **address)
{
	struct scif_net_private *private = netdev_priv(skb->dev);
	struct scif_net_napi *napi = private->napi[skb_get_rx_queue(skb)];
	struct page *page = dev_alloc_page();

	if (!page)
		return NULL;
	*address = page_address(page);
	WRITE_ONCE(napi->copied, napi->copied + 1);
	return page;
}

void scif_net_helper_put_page(struct page *page)
{
	put_page(page);
}

/*
 * Adds a part of a page, and takes the reference to it. "shared": the peer may
 * still write to the page, and read it. Then the stack must not decrypt there,
 * nor expect that a checksum stays right.
 */
bool scif_net_helper_add(struct sk_buff *skb, struct page *page,
			 unsigned int from, unsigned int len, bool shared)
{
	unsigned int count = skb_shinfo(skb)->nr_frags;

	if (count >= MAX_SKB_FRAGS) {
		put_page(page);
		return false;
	}
	skb_add_rx_frag(skb, count, page, from, len, PAGE_SIZE);
	if (shared)
		skb_shinfo(skb)->flags |= SKBFL_SHARED_FRAG;
	return true;
}

/*
 * Checks what the peer says of a frame. Returns false if that is wrong: the
 * frame is dropped then.
 */
bool scif_net_helper_finish(struct scif_net_napi *napi, struct sk_buff *skb,
			    const struct scif_net_meta *meta)
{
	const struct scif_net_header *header =
		(const struct scif_net_header *)meta->bytes;
	struct net_device *dev = skb->dev;
	unsigned int checksum;

	if (skb_headlen(skb) < ETH_HLEN)
		return false;
	/* The kernel would copy all bytes before a checksum, or log a line. */
	checksum = __virtio16_to_cpu(true, header->virtio.csum_start) +
		   __virtio16_to_cpu(true, header->virtio.csum_offset);
	if (header->virtio.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM &&
	    checksum > SCIF_NET_MOST_HEADERS)
		return false;
	if (header->virtio.flags & VIRTIO_NET_HDR_F_DATA_VALID &&
	    dev->features & NETIF_F_RXCSUM)
		skb->ip_summed = CHECKSUM_UNNECESSARY;
	if (virtio_net_hdr_to_skb(skb, &header->virtio, true))
		return false;
	if (header->flow && dev->features & NETIF_F_RXHASH)
		skb_set_hash(skb, le32_to_cpu(header->flow), PKT_HASH_TYPE_L4);
	/* The peer may use queues that the administrator has taken away here. */
	if (napi->queue >= READ_ONCE(dev->real_num_rx_queues))
		skb_set_queue_mapping(skb, 0);
	skb->protocol = eth_type_trans(skb, dev);
	WRITE_ONCE(napi->pages, napi->pages + skb_shinfo(skb)->nr_frags);
	if (skb_is_gso(skb))
		WRITE_ONCE(napi->large, napi->large + 1);
	return true;
}

void scif_net_helper_deliver(struct scif_net_napi *napi, struct sk_buff *skb)
{
	napi_gro_receive(&napi->napi, skb);
}
