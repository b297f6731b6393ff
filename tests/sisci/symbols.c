// SPDX-License-Identifier: GPL-2.0
/*
 * The interface for linking: names of functions and constants, names of errors, and headers that
 * every compiler accepts.
 */
#include <dlfcn.h>

#include "sisci_suite.h"

static const char *const functions[] = {
	"SCIInitialize",
	"SCITerminate",
	"SCIOpen",
	"SCIClose",
	"SCIGetErrorString",
	"SCIQuery",
	"SCIProbeNode",
	"SCIGetLocalNodeId",
	"SCIGetNodeIdByAdapterName",
	"SCICreateSegment",
	"SCIPrepareSegment",
	"SCISetSegmentAvailable",
	"SCISetSegmentUnavailable",
	"SCIRemoveSegment",
	"SCIWaitForLocalSegmentEvent",
	"SCIGetLocalSegmentId",
	"SCIGetLocalSegmentSize",
	"SCIShareSegment",
	"SCIAttachLocalSegment",
	"SCIRegisterSegmentMemory",
	"SCIAttachPhysicalMemory",
	"SCIConnectSegment",
	"SCIDisconnectSegment",
	"SCIGetRemoteSegmentSize",
	"SCIGetRemoteSegmentId",
	"SCIGetRemoteSegmentNodeId",
	"SCIWaitForRemoteSegmentEvent",
	"SCIMapLocalSegment",
	"SCIMapRemoteSegment",
	"SCIUnmapSegment",
	"SCICacheSync",
	"SCICreateMapSequence",
	"SCIRemoveSequence",
	"SCIStartSequence",
	"SCICheckSequence",
	"SCIFlush",
	"SCIStoreBarrier",
	"SCIMemCpy",
	"SCIMemWrite",
	"SetSciMemCopyFunction",
	"SCICreateDMAQueue",
	"SCIRemoveDMAQueue",
	"SCIStartDmaTransfer",
	"SCIStartDmaTransferVec",
	"SCIStartDmaTransferMem",
	"SCIStartDMATransfer",
	"SCIStartDMATransferVec",
	"SCIDMAQueueState",
	"SCIWaitForDMAQueue",
	"SCIAbortDMAQueue",
	"SCICreateInterrupt",
	"SCIRemoveInterrupt",
	"SCIWaitForInterrupt",
	"SCIConnectInterrupt",
	"SCIDisconnectInterrupt",
	"SCITriggerInterrupt",
	"SCICreateDataInterrupt",
	"SCIRemoveDataInterrupt",
	"SCIWaitForDataInterrupt",
	"SCIConnectDataInterrupt",
	"SCIDisconnectDataInterrupt",
	"SCITriggerDataInterrupt",
	"SCIBorrowDevice",
	"SCIReturnDevice",
	"SCIConnectDeviceMemory",
	"SCIMapLocalSegmentForDevice",
	"SCIUnmapLocalSegmentForDevice",
	"SCIMapRemoteSegmentForDevice",
	"SCIUnmapRemoteSegmentForDevice",
	"SCIRegisterPCIeRequester",
	"SCIUnregisterPCIeRequester",
};

struct constant {
	const char *name;
	unsigned int value;
};

#define CONSTANT(name)	{ #name, name }

static const struct constant constants[] = {
	CONSTANT(SCI_FLAG_USE_CALLBACK),
	CONSTANT(SCI_FLAG_EMPTY),
	CONSTANT(SCI_FLAG_PRIVATE),
	CONSTANT(SCI_FLAG_DMA_SOURCE_ONLY),
	CONSTANT(SCI_FLAG_FORCE_REMOVE),
	CONSTANT(SCI_FLAG_ALLOW_UNICAST),
	CONSTANT(SCI_FLAG_LOCK_USER_MEM),
	CONSTANT(SCI_FLAG_PHYSICAL),
	CONSTANT(SCI_FLAG_BROADCAST),
	CONSTANT(SCI_FLAG_AUTO_ID),
	CONSTANT(SCI_FLAG_ASYNCHRONOUS_CONNECT),
	CONSTANT(SCI_FLAG_FORCE_DISCONNECT),
	CONSTANT(SCI_FLAG_NOTIFY),
	CONSTANT(SCI_FLAG_CUDA_BUFFER),
	CONSTANT(SCI_FLAG_SHARED),
	CONSTANT(SCI_FLAG_BAR),
	CONSTANT(SCI_FLAG_DMA_WAIT),
	CONSTANT(SCI_FLAG_DMA_READ),
	CONSTANT(SCI_FLAG_DMA_GLOBAL),
	CONSTANT(SCI_FLAG_DMA_SYSDMA),
	CONSTANT(SCI_FLAG_DMA_USER_MEM),
	CONSTANT(SCI_FLAG_DMA_ADAPTER),
	CONSTANT(SCI_FLAG_FIXED_INTNO),
	CONSTANT(SCI_FLAG_SHARED_INT),
	CONSTANT(SCI_FLAG_COUNTING_INT),
	CONSTANT(SCI_FLAG_FIXED_MAP_ADDR),
	CONSTANT(SCI_FLAG_READONLY_MAP),
	CONSTANT(SCI_FLAG_IO_MAP_IOSPACE),
	CONSTANT(SCI_FLAG_BLOCK_READ),
	CONSTANT(SCI_FLAG_ERROR_CHECK),
	CONSTANT(SCI_FLAG_NO_FLUSH),
	CONSTANT(SCI_FLAG_NO_STORE_BARRIER),
	CONSTANT(SCI_FLAG_CACHE_FLUSH),
	CONSTANT(SCI_FLAG_CACHE_INVALIDATE),
	CONSTANT(SCI_FLAG_FAST_BARRIER),
	CONSTANT(SCI_FLAG_FLUSH_CPU_BUFFERS_ONLY),
	CONSTANT(SCI_FLAG_THREAD_SAFE),
	CONSTANT(SCI_Q_ADAPTER),
	CONSTANT(SCI_Q_SYSTEM),
	CONSTANT(SCI_Q_LOCAL_SEGMENT),
	CONSTANT(SCI_Q_REMOTE_SEGMENT),
	CONSTANT(SCI_Q_MAP),
	CONSTANT(SCI_Q_VENDORID),
	CONSTANT(SCI_Q_API),
	CONSTANT(SCI_Q_DMA),
	CONSTANT(SCI_Q_ADAPTER_SERIAL_NUMBER),
	CONSTANT(SCI_Q_ADAPTER_CARD_TYPE),
	CONSTANT(SCI_Q_ADAPTER_NODEID),
	CONSTANT(SCI_Q_ADAPTER_NODE_ID),
	CONSTANT(SCI_Q_ADAPTER_LINK_OPERATIONAL),
	CONSTANT(SCI_Q_ADAPTER_CONFIGURED),
	CONSTANT(SCI_Q_ADAPTER_NUMBER_OF_LINKS),
	CONSTANT(SCI_Q_ADAPTER_LINK_WIDTH),
	CONSTANT(SCI_Q_ADAPTER_LINK_SPEED),
	CONSTANT(SCI_Q_ADAPTER_LINK_UPTIME),
	CONSTANT(SCI_Q_ADAPTER_BDF),
	CONSTANT(SCI_Q_ADAPTER_DMA_SIZE_ALIGNMENT),
	CONSTANT(SCI_Q_ADAPTER_DMA_OFFSET_ALIGNMENT),
	CONSTANT(SCI_Q_ADAPTER_DMA_MTU),
	CONSTANT(SCI_Q_ADAPTER_SUGGESTED_MIN_DMA_SIZE),
	CONSTANT(SCI_Q_ADAPTER_SUGGESTED_MIN_BLOCK_SIZE),
	CONSTANT(SCI_Q_ADAPTER_BROADCAST_GROUPS),
	CONSTANT(SCI_Q_SYSTEM_HOSTBRIDGE),
	CONSTANT(SCI_Q_SYSTEM_WRITE_POSTING_ENABLED),
	CONSTANT(SCI_Q_SYSTEM_WRITE_COMBINING_ENABLED),
	CONSTANT(SCI_Q_SYSTEM_ADAPTERS),
	CONSTANT(SCI_Q_LOCAL_SEGMENT_IOADDR),
	CONSTANT(SCI_Q_LOCAL_SEGMENT_PHYS_ADDR),
	CONSTANT(SCI_Q_LOCAL_SEGMENT_VIRTUAL_ADDR),
	CONSTANT(SCI_Q_REMOTE_SEGMENT_IOADDR),
	CONSTANT(SCI_Q_MAP_MAPPED_TO_LOCAL_TARGET),
	CONSTANT(SCI_Q_MAP_QUERY_REMOTE_MAPPED_TO_LOCAL_TARGET),
	CONSTANT(SCI_Q_MAP_IOADDR),
	CONSTANT(SCI_Q_DMA_CAPABILITIES),
	CONSTANT(SCI_INFINITE_TIMEOUT),
};

/* Finds the function of this name. */
static void *behind(const char *before, const char *name)
{
	char whole[128];

	snprintf(whole, sizeof(whole), "%s%s", before, name);
	return dlsym(RTLD_DEFAULT, whole);
}

static void symbols_of_functions(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(functions); i++) {
		step(__FILE__, __LINE__, functions[i]);
		check_true(behind("", functions[i]));
		check_true(behind("_SISCI_PUBLIC_FUNC_MT_", functions[i]));
		check_true(behind("_SISCI_PUBLIC_FUNC_ST_", functions[i]));
	}
}

static void symbols_work(void)
{
	void (*initialize_mt)(unsigned int flags, sci_error_t *error);
	void (*open_st)(sci_desc_t *device, unsigned int flags, sci_error_t *error);
	sci_desc_t device = NULL;

	*(void **)&initialize_mt = behind("_SISCI_PUBLIC_FUNC_MT_", "SCIInitialize");
	*(void **)&open_st = behind("_SISCI_PUBLIC_FUNC_ST_", "SCIOpen");
	expect(initialize_mt && open_st);
	good(initialize_mt(0, &error));
	good(open_st(&device, 0, &error));
	good(SCIClose(device, 0, &error));
}

/*
 * Programs for GPUs and for devices of other hosts can be built, and get an error that there are
 * none.
 */
static void devices_not_supported(void)
{
	struct local local = exported(4096);
	struct remote remote = own_remote(&local);
	sci_local_segment_t empty;
	sci_remote_segment_t bar;
	sci_ioaddr_t address;
	sci_device_t device;

	bad(SCI_ERR_NOT_SUPPORTED, SCIBorrowDevice(local.device, &device, 1, 0, &error));
	bad(SCI_ERR_NOT_SUPPORTED,
	    SCIBorrowDevice(local.device, &device, 1, SCI_FLAG_SHARED, &error));
	same(device, NULL);
	bad(SCI_ERR_NOT_SUPPORTED,
	    SCIConnectDeviceMemory(local.device, &bar, device, ADAPTER, 0, 0, SCI_FLAG_BAR,
				   &error));
	same(bar, NULL);
	bad(SCI_ERR_NOT_SUPPORTED,
	    SCIMapLocalSegmentForDevice(local.segment, ADAPTER, device, &address, 0, &error));
	bad(SCI_ERR_NOT_SUPPORTED,
	    SCIUnmapLocalSegmentForDevice(local.segment, ADAPTER, device, 0, &error));
	bad(SCI_ERR_NOT_SUPPORTED,
	    SCIMapRemoteSegmentForDevice(remote.segment, device, &address, 0, &error));
	bad(SCI_ERR_NOT_SUPPORTED,
	    SCIUnmapRemoteSegmentForDevice(remote.segment, device, 0, &error));
	bad(SCI_ERR_NOT_SUPPORTED, SCIReturnDevice(device, 0, &error));
	bad(SCI_ERR_NOT_SUPPORTED,
	    SCIRegisterPCIeRequester(local.device, ADAPTER, 1, 0, 0, &error));
	bad(SCI_ERR_NOT_SUPPORTED,
	    SCIUnregisterPCIeRequester(local.device, ADAPTER, 1, 0, 0, &error));
	good(SCICreateSegment(local.device, &empty, new_id(), 4096, NULL, NULL, SCI_FLAG_EMPTY,
			      &error));
	bad(SCI_ERR_NOT_SUPPORTED,
	    SCIAttachPhysicalMemory(0x1000, NULL, 0, 4096, empty, SCI_FLAG_CUDA_BUFFER, &error));
	bad(SCI_ERR_ILLEGAL_FLAG,
	    SCIAttachPhysicalMemory(0x1000, NULL, 0, 4096, empty,
				    SCI_FLAG_CUDA_BUFFER | SCI_FLAG_BAR, &error));
}

static void symbols_of_constants(void)
{
	const unsigned int *value;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(constants); i++) {
		step(__FILE__, __LINE__, constants[i].name);
		value = behind("_SISCI_PUBLIC_CONST_", constants[i].name);
		check_true(value);
		check_value(*value, constants[i].value);
	}
}

/* --- Errors --- */

static void error_strings(void)
{
	const struct error_name *one, *other;
	const char *text;

	for (one = error_names; one->name; one++) {
		step(__FILE__, __LINE__, one->name);
		text = SCIGetErrorString(one->code);
		check_true(text && strstr(text, one->name));
		for (other = error_names; other != one; other++)
			check_true(strcmp(text, SCIGetErrorString(other->code)));
	}
}

static void error_strings_unknown(void)
{
	expect(SCIGetErrorString((sci_error_t)1));
	expect(*SCIGetErrorString((sci_error_t)0x40000fff));
	expect(*SCIGetErrorString((sci_error_t)-1));
}

/* Numbers of errors are fixed, because they are in logs and in compiled programs. */
static void error_numbers(void)
{
	same(SCI_ERR_OK, 0);
	same(SCI_ERR_BUSY, 0x40000900);
	same(SCI_ERR_TIMEOUT, 0x4000090A);
	same(SCI_ERR_NO_SUCH_SEGMENT, 0x4000090C);
	same(SCI_ERR_NO_SUCH_INTNO, 0x4000090C);
	same(SCI_ERR_ILLEGAL_PARAMETER, 0x40000912);
	same(SCI_ERR_CANCELLED, 0x4000091A);
	same(SCI_ERR_NOT_INITIALIZED, 0x40000920);
	same(SCI_ERR_ACCESS, 0x40000921);
	same(SCI_ERR_NO_SUCH_NODEID, 0x40000A00);
	same(SCI_ERR_TRANSFER_FAILED, 0x40000A06);
	same(SCI_ERR_EWOULD_BLOCK, SCI_ERR_REMOTE_BUSY);
}

static void error_numbers_distinct(void)
{
	const struct error_name *one, *other;

	for (one = error_names; one->name; one++) {
		step(__FILE__, __LINE__, one->name);
		for (other = error_names; other != one; other++)
			check_true(one->code != other->code);
	}
}

static void values_of_flags(void)
{
	same(SCI_FLAG_USE_CALLBACK, 1);
	same(SCI_FLAG_EMPTY, 2);
	same(SCI_FLAG_PRIVATE, 4);
	same(SCI_FLAG_DMA_SOURCE_ONLY, 8);
	same(SCI_FLAG_FORCE_REMOVE, 0x20);
	same(SCI_FLAG_BROADCAST, 0x40000);
	same(SCI_FLAG_AUTO_ID, 0x20000000);
	same(SCI_FLAG_DMA_WAIT, 4);
	same(SCI_FLAG_DMA_READ, 0x10);
	same(SCI_FLAG_DMA_USER_MEM, 0x200);
	same(SCI_FLAG_FIXED_INTNO, 2);
	same(SCI_FLAG_SHARED_INT, 4);
	same(SCI_FLAG_COUNTING_INT, 0x20);
	same(SCI_FLAG_FIXED_MAP_ADDR, 1);
	same(SCI_FLAG_READONLY_MAP, 2);
	same(SCI_INFINITE_TIMEOUT, 0xffffffff);
	same(DIS_BROADCAST_NODEID_GROUP_ALL, 252);
	same(DIS_DMA_MAX_VECLEN, 256);
}

static void values_of_enums(void)
{
	same(SCI_CB_CONNECT, 1);
	same(SCI_CB_LOST, 5);
	same(SCI_DMAQUEUE_IDLE, 0);
	same(SCI_DMAQUEUE_POSTED, 2);
	same(SCI_DMAQUEUE_ERROR, 5);
	same(SCI_SEQ_OK, 0);
	same(SCI_SEQ_PENDING, 3);
	same(SCI_CALLBACK_CANCEL, 1);
	same(SCI_CALLBACK_CONTINUE, 2);
}

/* --- Headers --- */

static void header_alone(void)
{
	same(in_c89(), SCI_ERR_OK);
}

static void header_cpp(void)
{
	same(in_cpp(), SCI_ERR_OK);
}

const struct test_case symbol_cases[] = {
	ALONE(symbols_of_functions, "binary.functions"),
	ALONE(symbols_work, "binary.functions"),
	ALONE(symbols_of_constants, "binary.constants"),
	ALONE(devices_not_supported, "not-supported.devices"),
	ALONE(error_strings, "error.strings"),
	ALONE(error_strings_unknown, "error.strings"),
	ALONE(error_numbers, "error.numbers"),
	ALONE(error_numbers_distinct, "error.numbers"),
	ALONE(values_of_flags, "binary.values"),
	ALONE(values_of_enums, "binary.values"),
	ALONE(header_alone, "header.alone"),
	ALONE(header_cpp, "header.cpp"),
	{ }
};
