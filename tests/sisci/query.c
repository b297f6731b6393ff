// SPDX-License-Identifier: GPL-2.0
/*
 * SCIQuery and SCIProbeNode.
 */
#include "sisci_suite.h"

static void query_string(unsigned int command)
{
	char text[64], shorter[8];
	sci_query_string_t query = { .str = text, .length = sizeof(text) };

	initialize();
	memset(text, 'x', sizeof(text));
	good(SCIQuery(command, &query, 0, &error));
	expect(memchr(text, 0, sizeof(text)) && text[0]);
	/* The call writes nothing behind the end of a shorter buffer. */
	memset(shorter, 'x', sizeof(shorter));
	query.str = shorter;
	query.length = 4;
	SCIQuery(command, &query, 0, &error);
	same(differs_from_byte(shorter + 4, 'x', 4), -1);
}

static void query_api(void)
{
	query_string(SCI_Q_API);
}

static void query_vendor(void)
{
	query_string(SCI_Q_VENDORID);
}

static unsigned int of_adapter(unsigned int subcommand)
{
	unsigned int value = 0x5a5a5a5a;
	sci_query_adapter_t query = { .subcommand = subcommand, .data = &value };

	initialize();
	good(SCIQuery(SCI_Q_ADAPTER, &query, 0, &error));
	expect(value != 0x5a5a5a5a);
	return value;
}

static void query_node_id(void)
{
	unsigned int id = 0;

	same(of_adapter(SCI_Q_ADAPTER_NODEID), own_id());
	same(of_adapter(SCI_Q_ADAPTER_NODE_ID), own_id());
	good(SCIGetLocalNodeId(ADAPTER, &id, 0, &error));
	same(id, own_id());
}

static void query_adapter_numbers(void)
{
	unsigned int value, adapter;
	sci_query_adapter_t query = { .subcommand = SCI_Q_ADAPTER_NODEID, .data = &value };
	sci_desc_t device = new_device();
	sci_dma_queue_t queue;

	for (adapter = 1; adapter < 16; adapter++) {
		query.localAdapterNo = adapter;
		bad(SCI_ERR_NO_SUCH_ADAPTERNO, SCIQuery(SCI_Q_ADAPTER, &query, 0, &error));
		bad(SCI_ERR_NO_SUCH_ADAPTERNO, SCIGetLocalNodeId(adapter, &value, 0, &error));
	}
	query.localAdapterNo = 16;
	bad(SCI_ERR_ILLEGAL_ADAPTERNO, SCIQuery(SCI_Q_ADAPTER, &query, 0, &error));
	bad(SCI_ERR_ILLEGAL_ADAPTERNO, SCIGetLocalNodeId(~0u, &value, 0, &error));
	bad(SCI_ERR_NO_SUCH_ADAPTERNO, SCICreateDMAQueue(device, &queue, 15, 1, 0, &error));
	bad(SCI_ERR_ILLEGAL_ADAPTERNO, SCICreateDMAQueue(device, &queue, 16, 1, 0, &error));
}

static void query_link(void)
{
	/* The own node can always be reached, whether there is a link or not. */
	if (run.topology == TOPOLOGY_TWO || run.topology == TOPOLOGY_THREE) {
		same(of_adapter(SCI_Q_ADAPTER_LINK_OPERATIONAL), 1);
		expect(of_adapter(SCI_Q_ADAPTER_NUMBER_OF_LINKS) >= (unsigned int)run.peers);
	} else {
		expect(of_adapter(SCI_Q_ADAPTER_LINK_OPERATIONAL) <= 1);
	}
	same(of_adapter(SCI_Q_ADAPTER_CONFIGURED), 1);
}

static void query_alignments(void)
{
	struct local local = prepared(64);
	struct remote remote = new_remote(64);
	unsigned int size = of_adapter(SCI_Q_ADAPTER_DMA_SIZE_ALIGNMENT);
	unsigned int offset = of_adapter(SCI_Q_ADAPTER_DMA_OFFSET_ALIGNMENT);
	sci_dma_queue_t queue = new_queue(local.device, 1);

	expect(size && offset && size + offset <= 64);
	/* Sizes and offsets that the query returns work. */
	good(SCIStartDmaTransfer(queue, local.segment, remote.segment, offset, size, offset, NULL,
				 NULL, 0, &error));
	same(SCIWaitForDMAQueue(queue, FOREVER, 0, &error), SCI_DMAQUEUE_DONE);
}

static void query_numbers(void)
{
	expect(of_adapter(SCI_Q_ADAPTER_DMA_MTU) > 0);
	of_adapter(SCI_Q_ADAPTER_SUGGESTED_MIN_DMA_SIZE);
	of_adapter(SCI_Q_ADAPTER_SUGGESTED_MIN_BLOCK_SIZE);
	same(of_adapter(SCI_Q_ADAPTER_BROADCAST_GROUPS), 4);
}

static void query_not_supported(void)
{
	unsigned int value;
	sci_query_adapter_t query = { .subcommand = SCI_Q_ADAPTER_SERIAL_NUMBER, .data = &value };

	initialize();
	bad(SCI_ERR_NOT_SUPPORTED, SCIQuery(SCI_Q_ADAPTER, &query, 0, &error));
	query.subcommand = SCI_Q_ADAPTER_CARD_TYPE;
	bad(SCI_ERR_NOT_SUPPORTED, SCIQuery(SCI_Q_ADAPTER, &query, 0, &error));
}

static void query_unknown(void)
{
	unsigned int value;
	sci_query_adapter_t adapter = { .subcommand = 9999, .data = &value };
	sci_query_system_t system = { .subcommand = 9999, .data = &value };
	sci_dma_capabilities_t capabilities;
	sci_query_dma_t dma = { .subcommand = 9999, .data = &capabilities };

	initialize();
	bad(SCI_ERR_ILLEGAL_QUERY, SCIQuery(9999, &adapter, 0, &error));
	bad(SCI_ERR_ILLEGAL_QUERY, SCIQuery(0, &adapter, 0, &error));
	bad(SCI_ERR_ILLEGAL_QUERY, SCIQuery(SCI_Q_ADAPTER, &adapter, 0, &error));
	bad(SCI_ERR_ILLEGAL_QUERY, SCIQuery(SCI_Q_SYSTEM, &system, 0, &error));
	bad(SCI_ERR_ILLEGAL_QUERY, SCIQuery(SCI_Q_DMA, &dma, 0, &error));
}

static void query_null(void)
{
	sci_query_adapter_t adapter = { .subcommand = SCI_Q_ADAPTER_NODEID };
	sci_query_string_t string = { .length = 64 };
	sci_query_dma_t dma = { .subcommand = SCI_Q_DMA_CAPABILITIES };

	initialize();
	bad(SCI_ERR_ILLEGAL_PARAMETER, SCIQuery(SCI_Q_ADAPTER, &adapter, 0, &error));
	bad(SCI_ERR_ILLEGAL_PARAMETER, SCIQuery(SCI_Q_API, &string, 0, &error));
	bad(SCI_ERR_ILLEGAL_PARAMETER, SCIQuery(SCI_Q_DMA, &dma, 0, &error));
	bad(SCI_ERR_ILLEGAL_PARAMETER, SCIQuery(SCI_Q_SYSTEM, NULL, 0, &error));
}

static void query_system(void)
{
	unsigned int value = 77;
	sci_query_system_t query = { .subcommand = SCI_Q_SYSTEM_ADAPTERS, .data = &value };

	initialize();
	good(SCIQuery(SCI_Q_SYSTEM, &query, 0, &error));
	same(value, 1);
	query.subcommand = SCI_Q_SYSTEM_WRITE_COMBINING_ENABLED;
	good(SCIQuery(SCI_Q_SYSTEM, &query, 0, &error));
	expect(value <= 1);
}

static void query_dma(void)
{
	sci_dma_capabilities_t capabilities;
	sci_query_dma_t query = { .subcommand = SCI_Q_DMA_CAPABILITIES, .data = &capabilities };

	initialize();
	memset(&capabilities, 0xff, sizeof(capabilities));
	good(SCIQuery(SCI_Q_DMA, &query, 0, &error));
	expect(capabilities.num_channels > 0);
	same(capabilities.max_vector_length, DIS_DMA_MAX_VECLEN);
	expect(capabilities.max_transfer_size > 0);
	expect(capabilities.min_align_bytes > 0 && capabilities.suggested_align_bytes > 0);
	same(capabilities.support_mem2io, 1);
	same(capabilities.support_io2mem, 1);
}

static void query_map_target(void)
{
	struct remote remote = new_remote(4096);
	sci_query_map_t query = {
		.map = remote.map,
		.subcommand = SCI_Q_MAP_QUERY_REMOTE_MAPPED_TO_LOCAL_TARGET,
	};

	good(SCIQuery(SCI_Q_MAP, &query, 0, &error));
	same(query.data, peer_node(remote.there.peer) == own_node());
	query.subcommand = 9999;
	bad(SCI_ERR_ILLEGAL_QUERY, SCIQuery(SCI_Q_MAP, &query, 0, &error));
	query.map = NULL;
	query.subcommand = SCI_Q_MAP_QUERY_REMOTE_MAPPED_TO_LOCAL_TARGET;
	bad(STALE, SCIQuery(SCI_Q_MAP, &query, 0, &error));
}

static void query_remote_address(void)
{
	struct remote remote = new_remote(4096);
	sci_query_remote_segment_t query = {
		.segment = remote.segment,
		.subcommand = SCI_Q_REMOTE_SEGMENT_IOADDR,
	};

	/* Memory of this node is not behind a window of a bridge. */
	if (peer_node(remote.there.peer) != own_node()) {
		good(SCIQuery(SCI_Q_REMOTE_SEGMENT, &query, 0, &error));
		expect(query.data.ioaddr);
	}
	query.subcommand = 9999;
	bad(SCI_ERR_ILLEGAL_QUERY, SCIQuery(SCI_Q_REMOTE_SEGMENT, &query, 0, &error));
	query.segment = NULL;
	bad(STALE, SCIQuery(SCI_Q_REMOTE_SEGMENT, &query, 0, &error));
}

/* --- Probe --- */

static void probe_own_node(void)
{
	sci_desc_t device = new_device();

	good(expect(SCIProbeNode(device, ADAPTER, own_id(), 0, &error) == 1));
}

static void probe_peer(void)
{
	sci_desc_t device = new_device();
	struct peer *peer = new_peer();

	good(expect(SCIProbeNode(device, ADAPTER, peer_id(peer), 0, &error) == 1));
}

/* Returns the error for an absent node, which depends on whether this host has any link. */
static sci_error_t of_absent(void)
{
	return scif_get_node_ids(NULL, 0, &(__u16) { 0 }) > 1 ? SCI_ERR_NO_SUCH_NODEID :
								SCI_ERR_NO_LINK_ACCESS;
}

static void probe_absent(void)
{
	sci_desc_t device = new_device();

	bad(of_absent(),
	    expect(SCIProbeNode(device, ADAPTER, absent_id(), 0, &error) == 0));
}

static void probe_illegal(void)
{
	static const unsigned int ids[] = { 0, 1, 3, 5, 253, 256, 4096, ~0u };
	sci_desc_t device = new_device();
	size_t i;

	for (i = 0; i < ARRAY_SIZE(ids); i++)
		bad(SCI_ERR_ILLEGAL_NODEID,
		    expect(SCIProbeNode(device, ADAPTER, ids[i], 0, &error) == 0));
	bad(SCI_ERR_NO_SUCH_ADAPTERNO, SCIProbeNode(device, 1, own_id(), 0, &error));
	bad(SCI_ERR_ILLEGAL_ADAPTERNO, SCIProbeNode(device, 16, own_id(), 0, &error));
}

static void connect_absent(void)
{
	sci_desc_t device = new_device();
	sci_remote_interrupt_t interrupt;
	sci_remote_segment_t segment;

	bad(of_absent(), SCIConnectSegment(device, &segment, absent_id(), 1, ADAPTER, NULL, NULL,
					   FOREVER, 0, &error));
	bad(of_absent(), SCIConnectInterrupt(device, &interrupt, absent_id(), ADAPTER, 1, FOREVER,
					     0, &error));
}

static void probe_outer(void)
{
	struct peer *one = new_peer_on(0), *two = new_peer_on(1);
	sci_desc_t device = new_device();

	expect(peer_id(one) != peer_id(two) && peer_id(one) != own_id());
	good(expect(SCIProbeNode(device, ADAPTER, peer_id(one), 0, &error) == 1));
	good(expect(SCIProbeNode(device, ADAPTER, peer_id(two), 0, &error) == 1));
}

const struct test_case query_cases[] = {
	ALONE(query_api, "query.api"),
	ALONE(query_vendor, "query.vendor"),
	ALONE(query_node_id, "query.node-id node.ids"),
	ALONE(query_adapter_numbers, "adapter.numbers"),
	PAIR(query_link, "query.link"),
	PAIR(query_alignments, "query.alignments"),
	ALONE(query_numbers, "query.numbers"),
	ALONE(query_not_supported, "query.not-supported"),
	ALONE(query_unknown, "query.unknown"),
	ALONE(query_null, "query.null"),
	ALONE(query_system, "query.system"),
	ALONE(query_dma, "query.dma"),
	PAIR(query_map_target, "query.map"),
	PAIR_MAPPED(query_remote_address, "query.remote-address"),
	ALONE(probe_own_node, "probe.reachable node.own"),
	PAIR(probe_peer, "probe.reachable"),
	ALONE(probe_absent, "probe.absent"),
	ALONE(probe_illegal, "node.illegal adapter.numbers"),
	ALONE(connect_absent, "probe.absent connect.no-node"),
	STAR(probe_outer, "probe.reachable"),
	{ }
};
