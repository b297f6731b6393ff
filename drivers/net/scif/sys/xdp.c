// SPDX-License-Identifier: GPL-2.0
/*
 * Programs of XDP: each frame of the peer is copied to pages of its own, which
 * a program may change, send back, or give to another device.
 *
 * The first page has headroom, and the description of the other ones at its end,
 * where the kernel looks for it.
 *
 * A program sees packets as they are on a wire. So the peer is asked to cut its
 * frames and to compute checksums while there is a program.
 */

#include <linux/bpf.h>
#include <linux/bpf_trace.h>
#include <linux/etherdevice.h>
#include <linux/filter.h>
#include <linux/if_vlan.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>

#include <net/xdp.h>

#include "private.h"

/* Most bytes of a frame in its first page. */
#define SCIF_NET_FIRST_PAGE \
	SKB_WITH_OVERHEAD(PAGE_SIZE - XDP_PACKET_HEADROOM)

/* The largest MTU for a program that sees frames of one page only. */
#define SCIF_NET_ONE_PAGE_MTU (SCIF_NET_FIRST_PAGE - VLAN_ETH_HLEN)

/* The program of a device */

bool scif_net_helper_has_program(struct scif_net_napi *napi)
{
	struct scif_net_private *private = netdev_priv(napi->napi.dev);

	return rcu_access_pointer(private->program);
}

static int scif_net_set_program(struct net_device *dev, struct bpf_prog *program,
				struct netlink_ext_ack *extack)
{
	struct scif_net_private *private = netdev_priv(dev);
	bool one_page = program && !program->aux->xdp_has_frags;
	struct bpf_prog *old;

	if (one_page && dev->mtu > SCIF_NET_ONE_PAGE_MTU) {
		NL_SET_ERR_MSG_FMT(extack,
				   "the MTU is too large for an XDP program without frags: it may be %u",
				   (unsigned int)SCIF_NET_ONE_PAGE_MTU);
		return -ERANGE;
	}
	dev->max_mtu = one_page ? SCIF_NET_ONE_PAGE_MTU : SCIF_NET_MAX_MTU;
	old = rtnl_dereference(private->program);
	rcu_assign_pointer(private->program, program);
	if (old)
		bpf_prog_put(old);
	/* Without memory for it, frames that the peer has not cut are dropped. */
	if (!old != !program && !scif_net_ask(private->owner, program ? SCIF_NET_PACKETS : 0))
		NL_SET_ERR_MSG(extack,
			       "the peer was not told: there was no memory for a message");
	return 0;
}

int scif_net_bpf(struct net_device *dev, struct netdev_bpf *bpf)
{
	if (bpf->command != XDP_SETUP_PROG)
		return -EINVAL;
	return scif_net_set_program(dev, bpf->prog, bpf->extack);
}

/* Queues */

int scif_net_xdp_begin(struct scif_net_napi *napi)
{
	int err;

	err = __xdp_rxq_info_reg(&napi->rxq, napi->napi.dev, napi->queue,
				 napi->napi.napi_id, PAGE_SIZE);
	if (err)
		return err;
	err = xdp_rxq_info_reg_mem_model(&napi->rxq, MEM_TYPE_PAGE_ORDER0,
					 NULL);
	if (err)
		xdp_rxq_info_unreg(&napi->rxq);
	return err;
}

void scif_net_xdp_end(struct scif_net_napi *napi)
{
	xdp_rxq_info_unreg(&napi->rxq);
}

/* Frames of the peer */

/* Returns the description of the other pages of a frame. */
static struct skb_shared_info *scif_net_frags(struct page *first)
{
	u8 *end = (u8 *)page_address(first) + PAGE_SIZE;

	return (void *)(end - SKB_DATA_ALIGN(sizeof(struct skb_shared_info)));
}

/*
 * Returns the first page to which a frame of so many bytes is to be copied, with
 * its room. Returns NULL if there is no memory, or no program can see the frame.
 */
struct page *scif_net_helper_packet(const struct scif_net_meta *meta,
				    unsigned int len, struct scif_net_room *room)
{
	struct skb_shared_info *frags;
	struct page *page;

	if (len < ETH_HLEN || !scif_net_is_packet(meta))
		return NULL;
	page = dev_alloc_page();
	if (!page)
		return NULL;
	frags = scif_net_frags(page);
	frags->nr_frags = 0;
	frags->xdp_frags_size = 0;
	room->address = (u8 *)page_address(page) + XDP_PACKET_HEADROOM;
	room->size = min_t(unsigned int, len, SCIF_NET_FIRST_PAGE);
	return page;
}

/*
 * Adds a page to a frame, which has so many bytes more. Returns false if there
 * is no memory, or the frame is too long.
 */
bool scif_net_helper_packet_grow(struct page *first, unsigned int len,
				 struct scif_net_room *room)
{
	struct skb_shared_info *frags = scif_net_frags(first);
	struct page *page;

	if (!len || frags->nr_frags == MAX_SKB_FRAGS)
		return false;
	page = dev_alloc_page();
	if (!page)
		return false;
	room->address = page_address(page);
	room->size = min_t(unsigned int, len, PAGE_SIZE);
	skb_frag_fill_page_desc(&frags->frags[frags->nr_frags++], page, 0,
				room->size);
	frags->xdp_frags_size += room->size;
	return true;
}

void scif_net_helper_packet_free(struct page *first)
{
	struct skb_shared_info *frags = scif_net_frags(first);

	while (frags->nr_frags)
		put_page(skb_frag_page(&frags->frags[--frags->nr_frags]));
	put_page(first);
}

/* Describes a frame for a program. */
static void scif_net_make_buff(struct scif_net_napi *napi,
			       struct xdp_buff *xdp,
			       struct page *first, unsigned int len)
{
	struct skb_shared_info *frags = scif_net_frags(first);
	unsigned int i;

	xdp_init_buff(xdp, PAGE_SIZE, &napi->rxq);
	xdp_prepare_buff(xdp, page_address(first), XDP_PACKET_HEADROOM,
			 len - frags->xdp_frags_size, true);
	if (!frags->nr_frags)
		return;
	xdp_buff_set_frags_flag(xdp);
	frags->xdp_frags_truesize = frags->nr_frags * PAGE_SIZE;
	for (i = 0; i < frags->nr_frags; i++) {
		if (page_is_pfmemalloc(skb_frag_page(&frags->frags[i])))
			xdp_buff_set_frag_pfmemalloc(xdp);
	}
}

static void scif_net_pass(struct scif_net_napi *napi, struct xdp_buff *xdp)
{
	struct sk_buff *skb = xdp_build_skb_from_buff(xdp);

	if (!skb) {
		xdp_return_buff(xdp);
		return;
	}
	/* The peer may use queues that the administrator has taken away here. */
	if (napi->queue >= READ_ONCE(napi->napi.dev->real_num_rx_queues))
		skb_set_queue_mapping(skb, 0);
	napi_gro_receive(&napi->napi, skb);
}

static void scif_net_send_back(struct scif_net_napi *napi, struct xdp_buff *xdp,
			       const struct bpf_prog *program)
{
	struct xdp_frame *frame = xdp_convert_buff_to_frame(xdp);

	if (!frame) {
		trace_xdp_exception(napi->napi.dev, program, XDP_TX);
		xdp_return_buff(xdp);
		return;
	}
	napi->xdp.back[napi->xdp.waiting++] = frame;
	if (napi->xdp.waiting == ARRAY_SIZE(napi->xdp.back))
		scif_net_helper_filter_end(napi);
}

static u32 scif_net_run(const struct bpf_prog *program, struct xdp_buff *xdp)
{
	/* The program may have gone since the frame was copied. */
	if (!program)
		return XDP_PASS;
	/* The peer has a larger MTU, or the program is a new one. */
	if (xdp_buff_has_frags(xdp) && !program->aux->xdp_has_frags)
		return XDP_DROP;
	return bpf_prog_run_xdp(program, xdp);
}

/* Has the program decide what becomes of a frame. Takes its pages. */
void scif_net_helper_filter(struct scif_net_napi *napi, struct page *first,
			    unsigned int len)
{
	struct scif_net_private *private = netdev_priv(napi->napi.dev);
	struct net_device *dev = napi->napi.dev;
	struct bpf_prog *program;
	struct xdp_buff xdp;
	u32 verdict;

	scif_net_make_buff(napi, &xdp, first, len);
	program = rcu_dereference_bh(private->program);
	verdict = scif_net_run(program, &xdp);
	switch (verdict) {
	case XDP_PASS:
		scif_net_pass(napi, &xdp);
		return;
	case XDP_TX:
		WRITE_ONCE(napi->xdp.sent_back, napi->xdp.sent_back + 1);
		scif_net_send_back(napi, &xdp, program);
		return;
	case XDP_REDIRECT:
		WRITE_ONCE(napi->xdp.redirected, napi->xdp.redirected + 1);
		if (xdp_do_redirect(dev, &xdp, program)) {
			trace_xdp_exception(dev, program, verdict);
			xdp_return_buff(&xdp);
			return;
		}
		napi->xdp.flush = true;
		return;
	default:
		bpf_warn_invalid_xdp_action(dev, program, verdict);
		fallthrough;
	case XDP_ABORTED:
		trace_xdp_exception(dev, program, verdict);
		fallthrough;
	case XDP_DROP:
		WRITE_ONCE(napi->xdp.dropped, napi->xdp.dropped + 1);
		xdp_return_buff(&xdp);
		return;
	}
}

/* Frees frames that were sent. */
static void scif_net_return(struct xdp_frame **frames, unsigned int count)
{
	while (count--)
		xdp_return_frame(*frames++);
}

/* Sends what the program has decided to send. */
void scif_net_helper_filter_end(struct scif_net_napi *napi)
{
	unsigned int sent, lost;

	if (napi->xdp.waiting) {
		sent = scif_net_send_packets(napi->owner, napi->queue,
					     napi->xdp.back, napi->xdp.waiting);
		lost = napi->xdp.waiting - sent;
		WRITE_ONCE(napi->xdp.dropped, napi->xdp.dropped + lost);
		trace_xdp_bulk_tx(napi->napi.dev, sent, lost, 0);
		scif_net_return(napi->xdp.back, napi->xdp.waiting);
		napi->xdp.waiting = 0;
	}
	if (napi->xdp.flush) {
		napi->xdp.flush = false;
		xdp_do_flush();
	}
}

/* Frames of other devices */

/* Copies frames to the peer. Returns how many had room: the first ones. */
int scif_net_xdp_xmit(struct net_device *dev, int count,
		      struct xdp_frame **frames, u32 flags)
{
	struct scif_net_private *private = netdev_priv(dev);
	unsigned int queue, sent;

	if (flags & ~XDP_XMIT_FLAGS_MASK)
		return -EINVAL;
	if (!netif_running(dev) || !netif_carrier_ok(dev))
		return -ENETDOWN;
	queue = smp_processor_id() % READ_ONCE(dev->real_num_tx_queues);
	sent = scif_net_send_packets(private->owner, queue, frames, count);
	scif_net_return(frames, sent);
	return sent;
}

unsigned int scif_net_helper_frame_len(const struct xdp_frame *frame)
{
	return xdp_get_frame_len(frame);
}

/* Returns a part of a frame, and its length. Returns NULL behind the last part. */
const u8 *scif_net_helper_frame_part(const struct xdp_frame *frame,
				     unsigned int index, unsigned int *len)
{
	const struct skb_shared_info *frags;
	const skb_frag_t *part;

	if (!index) {
		*len = frame->len;
		return frame->data;
	}
	if (!xdp_frame_has_frags(frame))
		return NULL;
	frags = xdp_get_shared_info_from_frame(frame);
	if (index > frags->nr_frags)
		return NULL;
	part = &frags->frags[index - 1];
	*len = skb_frag_size(part);
	return skb_frag_address(part);
}
