// SPDX-License-Identifier: GPL-2.0
/*
 * Opening endpoints, and the list of nodes.
 */
#include "../harness/suite.h"

static void open_independent(void)
{
	int endpoint[64];
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(endpoint); i++) {
		endpoint[i] = expect_ok(scif_open());
		for (j = 0; j < i; j++)
			expect(endpoint[j] != endpoint[i]);
	}
	expect_ok(scif_bind(endpoint[0], 0));
	/* A bind of one endpoint does not affect the others. */
	expect_error(scif_listen(endpoint[1], 1), EINVAL);
	expect_ok(scif_bind(endpoint[1], 0));
	expect_value(scif_listen(endpoint[0], 1), 0);
	for (i = 0; i < ARRAY_SIZE(endpoint); i++)
		expect_value(scif_close(endpoint[i]), 0);
}

static void nodes_count_and_self(void)
{
	static const int nodes_of[] = {
		[TOPOLOGY_LOOPBACK] = 1,
		[TOPOLOGY_TWO] = 2,
		[TOPOLOGY_THREE] = 3,
	};
	__u16 nodes[64], self = 0xffff;
	int count, i, found = 0;

	count = expect_ok(scif_get_node_ids(nodes, 64, &self));
	for (i = 0; i < count; i++)
		found += nodes[i] == self;
	expect_value(found, 1);
	/* One node may be part of a larger lab. */
	expect(run.topology == TOPOLOGY_LOOPBACK || count == nodes_of[run.topology]);
}

static void nodes_null_array(void)
{
	__u16 nodes[64], self = 0xffff, other;
	int count = expect_ok(scif_get_node_ids(NULL, 0, &self));

	expect_value(scif_get_node_ids(nodes, 64, &other), count);
	expect(self == other);
}

static void nodes_short_array(void)
{
	__u16 all[64], nodes[64], self;
	int count = expect_ok(scif_get_node_ids(all, 64, &self));
	int room, i;

	for (room = 0; room <= count; room++) {
		memset(nodes, 0xa5, sizeof(nodes));
		expect_value(scif_get_node_ids(nodes, room, &self), count);
		for (i = 0; i < room; i++)
			expect(nodes[i] == all[i]);
		expect_value(differs_from_byte(nodes + room, 0xa5, sizeof(nodes) - 2 * room), -1);
	}
}

static void nodes_long_array(void)
{
	__u16 nodes[64], self;
	int count;

	memset(nodes, 0xa5, sizeof(nodes));
	count = expect_ok(scif_get_node_ids(nodes, 64, &self));
	expect_value(differs_from_byte(nodes + count, 0xa5, sizeof(nodes) - 2 * count), -1);
}

static void nodes_invalid(void)
{
	__u16 nodes[64], self;

	expect_error(scif_get_node_ids(nodes, -1, &self), EINVAL);
	expect_error(scif_get_node_ids(nodes, INT32_MIN, &self), EINVAL);
	expect_error(scif_get_node_ids((__u16 *)1, 64, &self), EFAULT);
	expect_error(scif_get_node_ids(nodes, 64, (__u16 *)1), EFAULT);
	/*
	 * A length for which there is no memory does no harm: the driver allocates for the existing
	 * nodes only.
	 */
	expect_ok(scif_get_node_ids(nodes, INT32_MAX, &self));
}

static void nodes_peer_listed(void)
{
	struct peer *peer = new_peer();
	__u16 nodes[64], self;
	int count = expect_ok(scif_get_node_ids(nodes, 64, &self));
	int i, found = 0;

	for (i = 0; i < count; i++)
		found += nodes[i] == peer_node(peer);
	expect_value(found, 1);
	expect_ok(ask(peer, DO_NODES));
	expect(answer(peer, 0) == peer_node(peer));
}

const struct test_case nodes_cases[] = {
	ALONE(open_independent, "open.endpoint"),
	ALONE(nodes_count_and_self, "nodes.count-includes-self nodes.self"),
	ALONE(nodes_null_array, "nodes.null-array"),
	ALONE(nodes_short_array, "nodes.short-array"),
	ALONE(nodes_long_array, "nodes.no-uninitialised"),
	ALONE(nodes_invalid, "nodes.invalid"),
	PAIR(nodes_peer_listed, "nodes.connected-listed nodes.self"),
	{ }
};
