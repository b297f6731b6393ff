/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The C side of scif_net: the kernel's inline functions, its tables of
 * functions, and the structures that Rust does not know. bindgen reads this
 * file, so that Rust sees exactly these declarations.
 */

#ifndef SCIF_NET_HELPERS_H
#define SCIF_NET_HELPERS_H

#include <linux/types.h>

struct device;
struct net_device;
struct sk_buff;
struct page;
struct xdp_frame;

/* A NAPI context and the queue that it polls. */
struct scif_net_napi;

/* Counts of a queue in one direction. */
struct scif_net_counts {
	u64 packets;
	u64 bytes;
	u64 dropped;
	u64 errors;
};

/* The link that a device is for. */
struct scif_net_link {
	/* The bridge's device, or NULL. */
	struct device *parent;
	/* Maximum number of queues. */
	unsigned int queues;
	/* Mb/s of data, or 0 if that is not known. */
	u32 megabits;
	u16 own_node;
	u16 node;
};

/* The user's part of a frame's descriptor: that of virtio-net, and the flow. */
struct scif_net_meta {
	u8 bytes[16];
};

#define SCIF_NET_META 16

/* Room in a page for bytes of a frame. */
struct scif_net_room {
	u8 *address;
	unsigned int size;
};

/*
 * Bytes of a frame that are copied, so that the peer can't change them: its
 * headers are among them.
 */
#define SCIF_NET_HEADERS 256

/* Fewest and most buffers of a queue. */
#define SCIF_NET_FEWEST_SLOTS 32
#define SCIF_NET_MOST_SLOTS 4096

/*
 * A wish of one end to the other: frames of a packet each, with checksums.
 */
#define SCIF_NET_PACKETS 1

/* Functions of Rust */

int scif_net_xmit(void *owner, unsigned int queue, struct sk_buff *skb);
int scif_net_poll(void *owner, unsigned int queue, int budget);
void scif_net_count(void *owner, unsigned int queue, bool sent,
		    struct scif_net_counts *counts);
unsigned int scif_net_send_packets(void *owner, unsigned int queue,
				   struct xdp_frame **frames,
				   unsigned int count);
bool scif_net_ask(void *owner, u32 wishes);
bool scif_net_resize(void *owner, u32 slots);

/* The device */

struct net_device *scif_net_helper_alloc(void *owner,
					 const struct scif_net_link *link);
int scif_net_helper_register(struct net_device *dev);
void scif_net_helper_unregister(struct net_device *dev);
void scif_net_helper_free(struct net_device *dev);
int scif_net_helper_up(struct net_device *dev, unsigned int queues,
		       unsigned int slots);
void scif_net_helper_down(struct net_device *dev);
void scif_net_helper_asked(struct net_device *dev, u32 wishes);
bool scif_net_helper_is_running(struct net_device *dev);
bool scif_net_helper_is_stopped(struct net_device *dev, unsigned int queue);
void scif_net_helper_stop(struct net_device *dev, unsigned int queue);
void scif_net_helper_wake(struct net_device *dev, unsigned int queue);

/* NAPI */

struct scif_net_napi *scif_net_helper_napi_new(struct net_device *dev,
					       unsigned int queue);
void scif_net_helper_napi_free(struct scif_net_napi *napi);
void scif_net_helper_napi_enable(struct scif_net_napi *napi);
void scif_net_helper_napi_disable(struct scif_net_napi *napi);
void scif_net_helper_napi_schedule(struct scif_net_napi *napi);
void scif_net_helper_napi_rung(struct scif_net_napi *napi);
bool scif_net_helper_napi_complete(struct scif_net_napi *napi, int done);
void scif_net_helper_bh(bool disable);

/* Frames that are sent */

unsigned int scif_net_helper_len(const struct sk_buff *skb);
unsigned int scif_net_helper_segments(const struct sk_buff *skb);
bool scif_net_helper_more(void);
bool scif_net_helper_describe(struct sk_buff *skb, struct scif_net_meta *meta);
int scif_net_helper_copy_out(struct sk_buff *skb, unsigned int from, u8 *to,
			     unsigned int len);
void scif_net_helper_sent(struct sk_buff *skb);
void scif_net_helper_drop(struct sk_buff *skb);

/* Frames that an engine copies */

bool scif_net_helper_may_wait(const struct sk_buff *skb);
unsigned int scif_net_helper_piece(const struct sk_buff *skb,
				   unsigned int index, u64 *phys);
void scif_net_helper_began(struct net_device *dev, unsigned int queue,
			   unsigned int bytes);
void scif_net_helper_landed(struct net_device *dev, unsigned int queue,
			    unsigned int frames, unsigned int bytes);
void scif_net_helper_none_aloft(struct net_device *dev);

/* Frames that are received */

struct sk_buff *scif_net_helper_begin(struct scif_net_napi *napi);
u8 *scif_net_helper_room(struct sk_buff *skb);
unsigned int scif_net_helper_keep(struct sk_buff *skb, unsigned int copied,
				  unsigned int total);
struct page *scif_net_helper_page(struct sk_buff *skb, u8 **address);
void scif_net_helper_put_page(struct page *page);
bool scif_net_helper_add(struct sk_buff *skb, struct page *page,
			 unsigned int from, unsigned int len, bool shared);
bool scif_net_helper_finish(struct scif_net_napi *napi, struct sk_buff *skb,
			    const struct scif_net_meta *meta);
void scif_net_helper_deliver(struct scif_net_napi *napi, struct sk_buff *skb);

/* Frames for a program of XDP, and frames of such programs */

bool scif_net_helper_has_program(struct scif_net_napi *napi);
struct page *scif_net_helper_packet(const struct scif_net_meta *meta,
				    unsigned int len,
				    struct scif_net_room *room);
bool scif_net_helper_packet_grow(struct page *first, unsigned int len,
				 struct scif_net_room *room);
void scif_net_helper_packet_free(struct page *first);
void scif_net_helper_filter(struct scif_net_napi *napi, struct page *first,
			    unsigned int len);
void scif_net_helper_filter_end(struct scif_net_napi *napi);
unsigned int scif_net_helper_frame_len(const struct xdp_frame *frame);
const u8 *scif_net_helper_frame_part(const struct xdp_frame *frame,
				     unsigned int index, unsigned int *len);

#endif
