// SPDX-License-Identifier: GPL-2.0
/*
 * Programs of XDP: each frame of the peer is copied to a page of its own, which
 * a program may change, send back, or give to another device.
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

/* Most bytes of a frame that a program can see. */
#define SCIF_NET_MAX_XDP_FRAME \
	SKB_WITH_OVERHEAD(PAGE_SIZE - XDP_PACKET_HEADROOM)

#define SCIF_NET_MAX_XDP_MTU (SCIF_NET_MAX_XDP_FRAME - VLAN_ETH_HLEN)

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
	struct bpf_prog *old;

	if (program && dev->mtu > SCIF_NET_MAX_XDP_MTU) {
		NL_SET_ERR_MSG_FMT(extack,
				   "the MTU is too large for an XDP program: it may be %u",
				   (unsigned int)SCIF_NET_MAX_XDP_MTU);
		return -ERANGE;
	}
	dev->max_mtu = program ? SCIF_NET_MAX_XDP_MTU : SCIF_NET_MAX_MTU;
	old = rtnl_dereference(private->program);
	rcu_assign_pointer(private->program, program);
	if (old)
		bpf_prog_put(old);
	/* Without memory for it, frames that the peer has not cut are dropped. */
	if (!old != !program && !scif_net_ask(private->ports, program ? SCIF_NET_PACKETS : 0))
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

	err = xdp_rxq_info_reg(&napi->rxq, napi->napi.dev, napi->queue,
			       napi->napi.napi_id);
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

/*
 * Returns a page to which a frame of so many bytes is to be copied, or NULL if
 * there is no memory, or a program can't see such a frame.
 */
struct page *scif_net_helper_packet(const struct scif_net_meta *meta,
				    unsigned int len, u8 **address)
{
	struct page *page;

	if (len < ETH_HLEN || len > SCIF_NET_MAX_XDP_FRAME ||
	    !scif_net_is_packet(meta))
		return NULL;
	page = dev_alloc_page();
	if (page)
		*address = page_address(page) + XDP_PACKET_HEADROOM;
	return page;
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

/* Has the program decide what becomes of a page with a frame. Takes the page. */
void scif_net_helper_filter(struct scif_net_napi *napi, struct page *page,
			    unsigned int len)
{
	struct scif_net_private *private = netdev_priv(napi->napi.dev);
	struct net_device *dev = napi->napi.dev;
	struct bpf_prog *program;
	struct xdp_buff xdp;
	u32 verdict;

	xdp_init_buff(&xdp, PAGE_SIZE, &napi->rxq);
	xdp_prepare_buff(&xdp, page_address(page), XDP_PACKET_HEADROOM, len,
			 true);
	program = rcu_dereference_bh(private->program);
	/* The program may have gone since the frame was copied. */
	verdict = program ? bpf_prog_run_xdp(program, &xdp) : XDP_PASS;
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
		sent = scif_net_send_packets(napi->ports, napi->queue,
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
	sent = scif_net_send_packets(private->ports, queue, frames, count);
	scif_net_return(frames, sent);
	return sent;
}

/* Returns the bytes of a frame, which has no parts elsewhere. */
const u8 *scif_net_helper_bytes(const struct xdp_frame *frame, unsigned int *len)
{
	*len = frame->len;
	return frame->data;
}
