/* SPDX-License-Identifier: LGPL-2.1 */
/*
 * sisci_types.h - the types of SISCI, see sisci_api.h
 */
#ifndef SISCI_TYPES_H
#define SISCI_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "dis_types.h"
#include "sisci_error.h"

/*
 * Resources. Only the library knows what a handle stands for. The library recognises
 * the handle of a released resource, and returns an error.
 */
typedef struct sci_desc *sci_desc_t;
typedef struct sci_local_segment *sci_local_segment_t;
typedef struct sci_remote_segment *sci_remote_segment_t;
typedef struct sci_map *sci_map_t;
typedef struct sci_sequence *sci_sequence_t;
typedef struct sci_dma_queue *sci_dma_queue_t;
typedef struct sci_local_interrupt *sci_local_interrupt_t;
typedef struct sci_remote_interrupt *sci_remote_interrupt_t;
typedef struct sci_local_data_interrupt *sci_local_data_interrupt_t;
typedef struct sci_remote_data_interrupt *sci_remote_data_interrupt_t;
/* A device that another host lends. */
typedef struct sci_device *sci_device_t;

/* An address as devices of this host see it. */
typedef uint64_t sci_ioaddr_t;

/* Why a segment's callback was called, or its wait ended. */
typedef enum {
	SCI_CB_CONNECT			= 1,
	SCI_CB_DISCONNECT		= 2,
	SCI_CB_NOT_OPERATIONAL		= 3,
	SCI_CB_OPERATIONAL		= 4,
	SCI_CB_LOST			= 5
} sci_segment_cb_reason_t;

typedef enum {
	SCI_DMAQUEUE_IDLE		= 0,
	SCI_DMAQUEUE_GATHER		= 1,
	SCI_DMAQUEUE_POSTED		= 2,
	SCI_DMAQUEUE_DONE		= 3,
	SCI_DMAQUEUE_ABORTED		= 4,
	SCI_DMAQUEUE_ERROR		= 5
} sci_dma_queue_state_t;

typedef enum {
	SCI_SEQ_OK			= 0,
	SCI_SEQ_RETRIABLE		= 1,
	SCI_SEQ_NOT_RETRIABLE		= 2,
	SCI_SEQ_PENDING			= 3
} sci_sequence_status_t;

/* The result of a callback: whether it is to be called again. */
typedef enum {
	SCI_CALLBACK_CANCEL		= 1,
	SCI_CALLBACK_CONTINUE		= 2
} sci_callback_action_t;

/*
 * Callbacks. Each resource has a thread of its own for them, which blocks all signals.
 * A callback may call any function of SISCI.
 */
typedef sci_callback_action_t (*sci_cb_local_segment_t)(void *arg,
		sci_local_segment_t segment, sci_segment_cb_reason_t reason,
		unsigned int nodeId, unsigned int localAdapterNo, sci_error_t error);
typedef sci_callback_action_t (*sci_cb_remote_segment_t)(void *arg,
		sci_remote_segment_t segment, sci_segment_cb_reason_t reason,
		sci_error_t status);
typedef sci_callback_action_t (*sci_cb_dma_t)(void *arg, sci_dma_queue_t queue,
		sci_error_t status);
typedef sci_callback_action_t (*sci_cb_interrupt_t)(void *arg,
		sci_local_interrupt_t interrupt, sci_error_t status);
typedef sci_callback_action_t (*sci_cb_data_interrupt_t)(void *arg,
		sci_local_data_interrupt_t interrupt, void *data, unsigned int length,
		sci_error_t status);

/* --- Queries: what SCIQuery() takes for each command --- */

/* SCI_Q_API, SCI_Q_VENDORID: room for a string, and how many bytes that is. */
typedef struct {
	char *str;
	unsigned int length;
} sci_query_string_t;

/* SCI_Q_ADAPTER */
typedef struct {
	unsigned int localAdapterNo;
	unsigned int portNo;
	unsigned int subcommand;
	void *data;
} sci_query_adapter_t;

/* SCI_Q_SYSTEM */
typedef struct {
	unsigned int subcommand;
	void *data;
} sci_query_system_t;

/* SCI_Q_LOCAL_SEGMENT */
typedef struct {
	sci_local_segment_t segment;
	unsigned int subcommand;
	union {
		sci_ioaddr_t ioaddr;
	} data;
} sci_query_local_segment_t;

/* SCI_Q_REMOTE_SEGMENT */
typedef struct {
	sci_remote_segment_t segment;
	unsigned int subcommand;
	union {
		sci_ioaddr_t ioaddr;
	} data;
} sci_query_remote_segment_t;

/* SCI_Q_MAP */
typedef struct {
	sci_map_t map;
	unsigned int subcommand;
	uint64_t data;
} sci_query_map_t;

/* SCI_Q_DMA: data is a sci_dma_capabilities_t. */
typedef struct {
	unsigned int localAdapterNo;
	unsigned int subcommand;
	void *data;
} sci_query_dma_t;

typedef struct {
	unsigned int num_channels;
	unsigned int max_transfer_size;
	unsigned int max_vector_length;
	unsigned int support_mem2io;
	unsigned int support_io2mem;
	unsigned int support_io2io;
	unsigned int min_align_bytes;
	unsigned int suggested_align_bytes;
} sci_dma_capabilities_t;

#endif /* SISCI_TYPES_H */
