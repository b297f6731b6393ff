/* SPDX-License-Identifier: LGPL-2.1 */
/*
 * scif_ring.h - messages between two processes that take no system call
 *
 * Programs include this and link with -lscif_ring; scif_ring(3) is where to
 * start reading. Endpoints are those of <scif.h>, or of /dev/scif without it.
 */
#ifndef __SCIF_RING_H__
#define __SCIF_RING_H__

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One end of a ring. */
struct scif_ring;

/* Flags of scif_ring_send and scif_ring_recv: wait. */
#define SCIF_RING_BLOCK	1

struct scif_ring *scif_ring_open(int epd, size_t size);
int scif_ring_is_mapped(const struct scif_ring *ring);
int scif_ring_send(struct scif_ring *ring, const void *msg, int len, int flags);
int scif_ring_recv(struct scif_ring *ring, void *msg, int len, int flags);
int scif_ring_ready(struct scif_ring *ring, short events, short *wakes);
int scif_ring_close(struct scif_ring *ring);

#ifdef __cplusplus
}
#endif

#endif /* __SCIF_RING_H__ */
