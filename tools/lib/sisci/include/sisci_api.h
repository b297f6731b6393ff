/* SPDX-License-Identifier: LGPL-2.1 */
/*
 * sisci_api.h - the SISCI API: segments, maps, DMA and interrupts between hosts that
 * PCI Express joins
 *
 * Programs include this and nothing else, and link with -lsisci; sisci(7) is where
 * to start reading. Source compatible with the API of version 2: sizes and offsets are
 * size_t. It compiles as C89 and later and as C++.
 *
 * Each function but a few has the error as its last argument, which is always set:
 * SCI_ERR_OK if all is well. Times are in milliseconds.
 */
#ifndef SISCI_API_H
#define SISCI_API_H

#include "sisci_types.h"
#include "sisci_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Functions that programs call after every few stores: the compiler calls them without
 * the procedure linkage table, where it can.
 */
#ifdef __has_attribute
#if __has_attribute(noplt)
#define SISCI_OFTEN_CALLED			__attribute__((noplt))
#endif
#endif
#ifndef SISCI_OFTEN_CALLED
#define SISCI_OFTEN_CALLED
#endif

#define SISCI_API_VERSION			2

#define SCI_INFINITE_TIMEOUT			0xffffffffu
/* As the Users Guide spells it, too. */
#ifndef INFINITE_TIMEOUT
#define INFINITE_TIMEOUT			SCI_INFINITE_TIMEOUT
#endif

/* --- Flags; each function's manual says which it takes --- */

#define SCI_FLAG_USE_CALLBACK			0x00000001

/* Segments */
#define SCI_FLAG_EMPTY				0x00000002
#define SCI_FLAG_PRIVATE			0x00000004
#define SCI_FLAG_DMA_SOURCE_ONLY		0x00000008
#define SCI_FLAG_FORCE_REMOVE			0x00000020
#define SCI_FLAG_ALLOW_UNICAST			0x00000080
#define SCI_FLAG_LOCK_USER_MEM			0x00000400
#define SCI_FLAG_PHYSICAL			0x00001000
#define SCI_FLAG_BROADCAST			0x00040000
#define SCI_FLAG_AUTO_ID			0x20000000
#define SCI_FLAG_ASYNCHRONOUS_CONNECT		0x00002000
#define SCI_FLAG_FORCE_DISCONNECT		0x01000000
#define SCI_FLAG_NOTIFY				0x02000000
#define SCI_FLAG_CUDA_BUFFER			0x04000000

/* Devices */
#define SCI_FLAG_SHARED				0x08000000
#define SCI_FLAG_BAR				0x10000000

/* DMA */
#define SCI_FLAG_DMA_WAIT			0x00000004
#define SCI_FLAG_DMA_READ			0x00000010
#define SCI_FLAG_DMA_GLOBAL			0x00000040
#define SCI_FLAG_DMA_SYSDMA			0x00000100
#define SCI_FLAG_DMA_USER_MEM			0x00000200
#define SCI_FLAG_DMA_ADAPTER			0x00000800

/* Interrupts */
#define SCI_FLAG_FIXED_INTNO			0x00000002
#define SCI_FLAG_SHARED_INT			0x00000004
#define SCI_FLAG_COUNTING_INT			0x00000020

/* Maps */
#define SCI_FLAG_FIXED_MAP_ADDR			0x00000001
#define SCI_FLAG_READONLY_MAP			0x00000002
#define SCI_FLAG_IO_MAP_IOSPACE			0x00000080

/* Sequences, barriers, copies */
#define SCI_FLAG_BLOCK_READ			0x00008000
#define SCI_FLAG_ERROR_CHECK			0x00010000
#define SCI_FLAG_NO_FLUSH			0x00020000
#define SCI_FLAG_NO_STORE_BARRIER		0x00080000
#define SCI_FLAG_CACHE_FLUSH			0x00100000
#define SCI_FLAG_CACHE_INVALIDATE		0x00200000
#define SCI_FLAG_FAST_BARRIER			0x00400000
#define SCI_FLAG_FLUSH_CPU_BUFFERS_ONLY		0x00800000

/* Virtual devices */
#define SCI_FLAG_THREAD_SAFE			0x00004000

/* --- Queries --- */

#define SCI_Q_ADAPTER				1
#define SCI_Q_SYSTEM				2
#define SCI_Q_LOCAL_SEGMENT			3
#define SCI_Q_REMOTE_SEGMENT			4
#define SCI_Q_MAP				5
#define SCI_Q_VENDORID				6
#define SCI_Q_API				7
#define SCI_Q_DMA				8

/* SCI_Q_ADAPTER: each gives an unsigned int. */
#define SCI_Q_ADAPTER_SERIAL_NUMBER		1
#define SCI_Q_ADAPTER_CARD_TYPE			2
#define SCI_Q_ADAPTER_NODEID			3
#define SCI_Q_ADAPTER_NODE_ID			SCI_Q_ADAPTER_NODEID
#define SCI_Q_ADAPTER_LINK_OPERATIONAL		4
#define SCI_Q_ADAPTER_CONFIGURED		5
#define SCI_Q_ADAPTER_NUMBER_OF_LINKS		6
#define SCI_Q_ADAPTER_LINK_WIDTH		7
#define SCI_Q_ADAPTER_LINK_SPEED		8
#define SCI_Q_ADAPTER_LINK_UPTIME		9
#define SCI_Q_ADAPTER_BDF			10
#define SCI_Q_ADAPTER_DMA_SIZE_ALIGNMENT	11
#define SCI_Q_ADAPTER_DMA_OFFSET_ALIGNMENT	12
#define SCI_Q_ADAPTER_DMA_MTU			13
#define SCI_Q_ADAPTER_SUGGESTED_MIN_DMA_SIZE	14
#define SCI_Q_ADAPTER_SUGGESTED_MIN_BLOCK_SIZE	15
#define SCI_Q_ADAPTER_BROADCAST_GROUPS		16

/* SCI_Q_SYSTEM: each gives an unsigned int. */
#define SCI_Q_SYSTEM_HOSTBRIDGE			1
#define SCI_Q_SYSTEM_WRITE_POSTING_ENABLED	2
#define SCI_Q_SYSTEM_WRITE_COMBINING_ENABLED	3
#define SCI_Q_SYSTEM_ADAPTERS			4

/* SCI_Q_LOCAL_SEGMENT, SCI_Q_REMOTE_SEGMENT, SCI_Q_MAP */
#define SCI_Q_LOCAL_SEGMENT_IOADDR		1
#define SCI_Q_LOCAL_SEGMENT_PHYS_ADDR		2
#define SCI_Q_LOCAL_SEGMENT_VIRTUAL_ADDR	3
#define SCI_Q_REMOTE_SEGMENT_IOADDR		1
#define SCI_Q_MAP_MAPPED_TO_LOCAL_TARGET	1
#define SCI_Q_MAP_QUERY_REMOTE_MAPPED_TO_LOCAL_TARGET	2
#define SCI_Q_MAP_IOADDR			3

/* SCI_Q_DMA */
#define SCI_Q_DMA_CAPABILITIES			1

/* --- The library --- */

void SCIInitialize(unsigned int flags, sci_error_t *error);
void SCITerminate(void);
void SCIOpen(sci_desc_t *sd, unsigned int flags, sci_error_t *error);
void SCIClose(sci_desc_t sd, unsigned int flags, sci_error_t *error);
const char *SCIGetErrorString(sci_error_t code);

/* --- What there is --- */

void SCIQuery(unsigned int command, void *data, unsigned int flags, sci_error_t *error);
int SCIProbeNode(sci_desc_t sd, unsigned int localAdapterNo, unsigned int nodeId,
		unsigned int flags, sci_error_t *error);
void SCIGetLocalNodeId(unsigned int localAdapterNo, unsigned int *nodeId, unsigned int flags,
		sci_error_t *error);
void SCIGetNodeIdByAdapterName(char *adapterName, dis_nodeId_list_t *nodeIds,
		dis_virt_adapter_t *type, unsigned int flags, sci_error_t *error);

/* --- Local segments --- */

void SCICreateSegment(sci_desc_t sd, sci_local_segment_t *segment, unsigned int segmentId,
		size_t size, sci_cb_local_segment_t callback, void *callbackArg,
		unsigned int flags, sci_error_t *error);
void SCIPrepareSegment(sci_local_segment_t segment, unsigned int localAdapterNo,
		unsigned int flags, sci_error_t *error);
void SCISetSegmentAvailable(sci_local_segment_t segment, unsigned int localAdapterNo,
		unsigned int flags, sci_error_t *error);
void SCISetSegmentUnavailable(sci_local_segment_t segment, unsigned int localAdapterNo,
		unsigned int flags, sci_error_t *error);
void SCIRemoveSegment(sci_local_segment_t segment, unsigned int flags, sci_error_t *error);
sci_segment_cb_reason_t SCIWaitForLocalSegmentEvent(sci_local_segment_t segment,
		unsigned int *sourcenodeId, unsigned int *localAdapterNo, unsigned int timeout,
		unsigned int flags, sci_error_t *error);
unsigned int SCIGetLocalSegmentId(sci_local_segment_t segment);
size_t SCIGetLocalSegmentSize(sci_local_segment_t segment);
void SCIShareSegment(sci_local_segment_t segment, unsigned int flags, sci_error_t *error);
void SCIAttachLocalSegment(sci_desc_t sd, sci_local_segment_t *segment, unsigned int segmentId,
		size_t *size, sci_cb_local_segment_t callback, void *callbackArg,
		unsigned int flags, sci_error_t *error);
void SCIRegisterSegmentMemory(void *address, size_t size, sci_local_segment_t segment,
		unsigned int flags, sci_error_t *error);
void SCIAttachPhysicalMemory(sci_ioaddr_t ioaddress, void *address, unsigned int busNo,
		size_t size, sci_local_segment_t segment, unsigned int flags,
		sci_error_t *error);

/* --- Remote segments --- */

void SCIConnectSegment(sci_desc_t sd, sci_remote_segment_t *segment, unsigned int nodeId,
		unsigned int segmentId, unsigned int localAdapterNo,
		sci_cb_remote_segment_t callback, void *callbackArg, unsigned int timeout,
		unsigned int flags, sci_error_t *error);
void SCIDisconnectSegment(sci_remote_segment_t segment, unsigned int flags, sci_error_t *error);
size_t SCIGetRemoteSegmentSize(sci_remote_segment_t segment);
unsigned int SCIGetRemoteSegmentId(sci_remote_segment_t segment);
unsigned int SCIGetRemoteSegmentNodeId(sci_remote_segment_t segment);
sci_segment_cb_reason_t SCIWaitForRemoteSegmentEvent(sci_remote_segment_t segment,
		sci_error_t *status, unsigned int timeout, unsigned int flags,
		sci_error_t *error);

/* --- Maps --- */

void *SCIMapLocalSegment(sci_local_segment_t segment, sci_map_t *map, size_t offset,
		size_t size, void *address, unsigned int flags, sci_error_t *error);
volatile void *SCIMapRemoteSegment(sci_remote_segment_t segment, sci_map_t *map, size_t offset,
		size_t size, void *address, unsigned int flags, sci_error_t *error);
void SCIUnmapSegment(sci_map_t map, unsigned int flags, sci_error_t *error);
void SCICacheSync(sci_map_t map, void *address, size_t size, unsigned int flags,
		sci_error_t *error);

/* --- Sequences, and stores that are checked --- */

void SCICreateMapSequence(sci_map_t map, sci_sequence_t *sequence, unsigned int flags,
		sci_error_t *error);
void SCIRemoveSequence(sci_sequence_t sequence, unsigned int flags, sci_error_t *error);
sci_sequence_status_t SCIStartSequence(sci_sequence_t sequence, unsigned int flags,
		sci_error_t *error);
SISCI_OFTEN_CALLED
sci_sequence_status_t SCICheckSequence(sci_sequence_t sequence, unsigned int flags,
		sci_error_t *error);
SISCI_OFTEN_CALLED
void SCIFlush(sci_sequence_t sequence, unsigned int flags);
SISCI_OFTEN_CALLED
void SCIStoreBarrier(sci_sequence_t sequence, unsigned int flags);
void SCIMemCpy(sci_sequence_t sequence, void *memory, sci_map_t remoteMap, size_t remoteOffset,
		size_t size, unsigned int flags, sci_error_t *error);
void SCIMemWrite(void *memory, volatile void *remote, size_t size, unsigned int flags,
		sci_error_t *error);
void SetSciMemCopyFunction(int choice);

/* --- DMA --- */

void SCICreateDMAQueue(sci_desc_t sd, sci_dma_queue_t *queue, unsigned int localAdapterNo,
		unsigned int maxEntries, unsigned int flags, sci_error_t *error);
void SCIRemoveDMAQueue(sci_dma_queue_t queue, unsigned int flags, sci_error_t *error);
void SCIStartDmaTransfer(sci_dma_queue_t queue, sci_local_segment_t localSegment,
		sci_remote_segment_t remoteSegment, size_t localOffset, size_t size,
		size_t remoteOffset, sci_cb_dma_t callback, void *callbackArg,
		unsigned int flags, sci_error_t *error);
void SCIStartDmaTransferVec(sci_dma_queue_t queue, sci_local_segment_t localSegment,
		sci_remote_segment_t remoteSegment, size_t entries, dis_dma_vec_t *vector,
		sci_cb_dma_t callback, void *callbackArg, unsigned int flags,
		sci_error_t *error);
void SCIStartDmaTransferMem(sci_dma_queue_t queue, void *memory,
		sci_remote_segment_t remoteSegment, size_t size, size_t remoteOffset,
		sci_cb_dma_t callback, void *callbackArg, unsigned int flags,
		sci_error_t *error);
/* The same under another spelling. */
void SCIStartDMATransfer(sci_dma_queue_t queue, sci_local_segment_t localSegment,
		sci_remote_segment_t remoteSegment, size_t localOffset, size_t size,
		size_t remoteOffset, sci_cb_dma_t callback, void *callbackArg,
		unsigned int flags, sci_error_t *error);
void SCIStartDMATransferVec(sci_dma_queue_t queue, sci_local_segment_t localSegment,
		sci_remote_segment_t remoteSegment, size_t entries, dis_dma_vec_t *vector,
		sci_cb_dma_t callback, void *callbackArg, unsigned int flags,
		sci_error_t *error);
sci_dma_queue_state_t SCIDMAQueueState(sci_dma_queue_t queue);
sci_dma_queue_state_t SCIWaitForDMAQueue(sci_dma_queue_t queue, unsigned int timeout,
		unsigned int flags, sci_error_t *error);
void SCIAbortDMAQueue(sci_dma_queue_t queue, unsigned int flags, sci_error_t *error);

/* --- Interrupts --- */

void SCICreateInterrupt(sci_desc_t sd, sci_local_interrupt_t *interrupt,
		unsigned int localAdapterNo, unsigned int *interruptNo,
		sci_cb_interrupt_t callback, void *callbackArg, unsigned int flags,
		sci_error_t *error);
void SCIRemoveInterrupt(sci_local_interrupt_t interrupt, unsigned int flags,
		sci_error_t *error);
void SCIWaitForInterrupt(sci_local_interrupt_t interrupt, unsigned int timeout,
		unsigned int flags, sci_error_t *error);
void SCIConnectInterrupt(sci_desc_t sd, sci_remote_interrupt_t *interrupt, unsigned int nodeId,
		unsigned int localAdapterNo, unsigned int interruptNo, unsigned int timeout,
		unsigned int flags, sci_error_t *error);
void SCIDisconnectInterrupt(sci_remote_interrupt_t interrupt, unsigned int flags,
		sci_error_t *error);
void SCITriggerInterrupt(sci_remote_interrupt_t interrupt, unsigned int flags,
		sci_error_t *error);

/* --- Interrupts that carry data --- */

void SCICreateDataInterrupt(sci_desc_t sd, sci_local_data_interrupt_t *interrupt,
		unsigned int localAdapterNo, unsigned int *interruptNo,
		sci_cb_data_interrupt_t callback, void *callbackArg, unsigned int flags,
		sci_error_t *error);
void SCIRemoveDataInterrupt(sci_local_data_interrupt_t interrupt, unsigned int flags,
		sci_error_t *error);
void SCIWaitForDataInterrupt(sci_local_data_interrupt_t interrupt, void *data,
		unsigned int *length, unsigned int timeout, unsigned int flags,
		sci_error_t *error);
void SCIConnectDataInterrupt(sci_desc_t sd, sci_remote_data_interrupt_t *interrupt,
		unsigned int nodeId, unsigned int localAdapterNo, unsigned int interruptNo,
		unsigned int timeout, unsigned int flags, sci_error_t *error);
void SCIDisconnectDataInterrupt(sci_remote_data_interrupt_t interrupt, unsigned int flags,
		sci_error_t *error);
void SCITriggerDataInterrupt(sci_remote_data_interrupt_t interrupt, void *data,
		unsigned int length, unsigned int flags, sci_error_t *error);

/* --- Devices of GPUs and of other hosts: all of these are SCI_ERR_NOT_SUPPORTED --- */

void SCIBorrowDevice(sci_desc_t sd, sci_device_t *device, unsigned int fdid,
		unsigned int flags, sci_error_t *error);
void SCIReturnDevice(sci_device_t device, unsigned int flags, sci_error_t *error);
void SCIConnectDeviceMemory(sci_desc_t sd, sci_remote_segment_t *segment, sci_device_t device,
		unsigned int localAdapterNo, unsigned int segmentId, unsigned int bar,
		unsigned int flags, sci_error_t *error);
void SCIMapLocalSegmentForDevice(sci_local_segment_t segment, unsigned int localAdapterNo,
		sci_device_t device, sci_ioaddr_t *ioaddress, unsigned int flags,
		sci_error_t *error);
void SCIUnmapLocalSegmentForDevice(sci_local_segment_t segment, unsigned int localAdapterNo,
		sci_device_t device, unsigned int flags, sci_error_t *error);
void SCIMapRemoteSegmentForDevice(sci_remote_segment_t segment, sci_device_t device,
		sci_ioaddr_t *ioaddress, unsigned int flags, sci_error_t *error);
void SCIUnmapRemoteSegmentForDevice(sci_remote_segment_t segment, sci_device_t device,
		unsigned int flags, sci_error_t *error);
void SCIRegisterPCIeRequester(sci_desc_t sd, unsigned int localAdapterNo, unsigned int busNo,
		unsigned int devfn, unsigned int flags, sci_error_t *error);
void SCIUnregisterPCIeRequester(sci_desc_t sd, unsigned int localAdapterNo, unsigned int busNo,
		unsigned int devfn, unsigned int flags, sci_error_t *error);

#ifdef __cplusplus
}
#endif

#endif /* SISCI_API_H */
