/* SPDX-License-Identifier: LGPL-2.1 */
/*
 * dis_types.h - types that SISCI shares with other interfaces of Dolphin's
 */
#ifndef DIS_TYPES_H
#define DIS_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* For readers: which way an argument goes. */
#ifndef IN
#define IN
#endif
#ifndef OUT
#define OUT
#endif
#ifndef IN_OUT
#define IN_OUT
#endif

/* Entries of a vector that one DMA transfer takes. */
#define DIS_DMA_MAX_VECLEN		256

/* An entry: size in bytes, offset in the local and in the remote segment. */
typedef struct {
	size_t size;
	size_t local_offset;
	size_t remote_offset;
	unsigned int flags;
} dis_dma_vec_t;

/* In the place of a node: all nodes that have a broadcast segment of that number. */
#define DIS_BROADCAST_NODEID_GROUP_ALL	252

/* The nodes that a name stands for; the first 0 ends the list. */
#define DIS_MAX_NODEIDS			256
typedef unsigned int dis_nodeId_list_t[DIS_MAX_NODEIDS];

/* Kinds of adapters that a name can stand for. */
typedef enum {
	DIS_VIRT_ADAPTER_UNKNOWN	= 0,
	/* One adapter of one node. */
	DIS_VIRT_ADAPTER_SINGLE		= 1,
	/* Several adapters, over which traffic is spread. */
	DIS_VIRT_ADAPTER_STRIPED	= 2
} dis_virt_adapter_t;

#endif /* DIS_TYPES_H */
