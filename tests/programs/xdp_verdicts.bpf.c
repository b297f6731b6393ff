// SPDX-License-Identifier: GPL-2.0
/*
 * A program of XDP whose verdict depends on the port that a datagram is for: see
 * scif_net_xdp.rs. Everything else passes.
 */

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#define IN_NETWORK_ORDER(number) __builtin_bswap16(number)

enum {
	PORT_DROP = 9001,
	PORT_SEND_BACK = 9002,
	PORT_REDIRECT = 9003,
	PORT_ABORT = 9004,
};

static long (*const redirect)(__u32 device, __u64 flags) =
	(void *)BPF_FUNC_redirect;

/* Exchanges sender and receiver. Checksums stay as they are. */
static __always_inline void
turn_round(struct ethhdr *ethernet, struct iphdr *ip, struct udphdr *udp)
{
	__u8 address[ETH_ALEN];
	__be32 node = ip->saddr;
	__be16 port = udp->source;

	__builtin_memcpy(address, ethernet->h_source, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, ethernet->h_dest, ETH_ALEN);
	__builtin_memcpy(ethernet->h_dest, address, ETH_ALEN);
	ip->saddr = ip->daddr;
	ip->daddr = node;
	udp->source = udp->dest;
	udp->dest = port;
}

static __always_inline int
decide(struct xdp_md *context)
{
	void *end = (void *)(long)context->data_end;
	struct ethhdr *ethernet = (void *)(long)context->data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct udphdr *udp = (void *)(ip + 1);

	if ((void *)(udp + 1) > end ||
	    ethernet->h_proto != IN_NETWORK_ORDER(ETH_P_IP) || ip->ihl != 5 ||
	    ip->protocol != IPPROTO_UDP)
		return XDP_PASS;
	switch (IN_NETWORK_ORDER(udp->dest)) {
	case PORT_DROP:
		return XDP_DROP;
	case PORT_SEND_BACK:
		turn_round(ethernet, ip, udp);
		return XDP_TX;
	case PORT_REDIRECT:
		turn_round(ethernet, ip, udp);
		return redirect(context->ingress_ifindex, 0);
	case PORT_ABORT:
		return XDP_ABORTED;
	}
	return XDP_PASS;
}

#pragma clang section text = "xdp"

int verdict(struct xdp_md *context)
{
	return decide(context);
}

/* For frames of several pages, too. */
#pragma clang section text = "xdp.frags"

int verdict_with_frags(struct xdp_md *context)
{
	return decide(context);
}

#pragma clang section data = "license"

char _license[] = "GPL";
