// SPDX-License-Identifier: GPL-2.0
/*
 * Connecting to segments and disconnecting, waiting and not.
 */
#include "sisci_suite.h"

static sci_error_t connects(sci_desc_t device, unsigned int node, unsigned int id,
			    unsigned int timeout)
{
	sci_remote_segment_t segment = NULL;

	before_call();
	SCIConnectSegment(device, &segment, node, id, ADAPTER, NULL, NULL, timeout, 0, &error);
	return error;
}

static void connect_tells(void)
{
	struct remote remote = new_remote(12345);

	same(SCIGetRemoteSegmentSize(remote.segment), 12352);
	same(SCIGetRemoteSegmentId(remote.segment), remote.there.id);
	same(SCIGetRemoteSegmentNodeId(remote.segment), peer_id(remote.there.peer));
}

static void connect_none(void)
{
	struct peer *peer = new_peer();
	sci_desc_t device = new_device();
	__u64 started = now();

	/* The call returns at once, whatever its timeout is. */
	same(connects(device, peer_id(peer), new_id(), FOREVER), SCI_ERR_NO_SUCH_SEGMENT);
	same(connects(device, peer_id(peer), new_id(), 0), SCI_ERR_NO_SUCH_SEGMENT);
	same(connects(device, peer_id(peer), new_id(), 1000000), SCI_ERR_NO_SUCH_SEGMENT);
	expect(now() - started < runner.limit * 500ULL);
}

static void connect_in_each_state(void)
{
	struct peer *peer = new_peer();
	sci_desc_t device = new_device();
	unsigned int node = peer_id(peer), id = new_id();
	__s64 there_device = there(peer, THERE_OPEN);
	__s64 segment = there(peer, THERE_CREATE, there_device, id, 4096, 0);

	same(connects(device, node, id, FOREVER), SCI_ERR_NO_SUCH_SEGMENT);
	there(peer, THERE_PREPARE, segment);
	same(connects(device, node, id, FOREVER), SCI_ERR_NO_SUCH_SEGMENT);
	there(peer, THERE_AVAILABLE, segment);
	same(connects(device, node, id, FOREVER), SCI_ERR_OK);
	there(peer, THERE_UNAVAILABLE, segment, 0);
	same(connects(device, node, id, FOREVER), SCI_ERR_NO_SUCH_SEGMENT);
	there(peer, THERE_AVAILABLE, segment);
	same(connects(device, node, id, FOREVER), SCI_ERR_OK);
	there(peer, THERE_REMOVE, segment, 0);
	same(connects(device, node, id, FOREVER), SCI_ERR_NO_SUCH_SEGMENT);
}

/* Retries, as programs do that may be started in any order. */
static void connect_until_there(void)
{
	struct peer *peer = new_peer();
	sci_desc_t device = new_device();
	unsigned int id = new_id();
	__s64 there_device = there(peer, THERE_OPEN), segment;
	int i;

	for (i = 0; i < 10; i++)
		same(connects(device, peer_id(peer), id, 0), SCI_ERR_NO_SUCH_SEGMENT);
	segment = there(peer, THERE_CREATE, there_device, id, 4096, 0);
	there(peer, THERE_PREPARE, segment);
	begin(peer, THERE_AVAILABLE, segment);
	wait_until(connects(device, peer_id(peer), id, 0) == SCI_ERR_OK);
	end_good(peer);
}

static void connect_timeouts(void)
{
	struct theirs there = exported_by(new_peer(), 4096);
	sci_desc_t device = new_device();

	/* A node that is online answers within the least time that the library waits. */
	same(connects(device, peer_id(there.peer), there.id, 0), SCI_ERR_OK);
	same(connects(device, peer_id(there.peer), there.id, 1), SCI_ERR_OK);
	same(connects(device, peer_id(there.peer), there.id, 5000), SCI_ERR_OK);
}

static void connect_arguments(void)
{
	struct local local = exported(8);
	sci_remote_segment_t segment;

	bad(SCI_ERR_NO_SUCH_ADAPTERNO,
	    SCIConnectSegment(local.device, &segment, own_id(), local.id, 1, NULL, NULL, 0, 0,
			      &error));
	bad(SCI_ERR_ILLEGAL_ADAPTERNO,
	    SCIConnectSegment(local.device, &segment, own_id(), local.id, 16, NULL, NULL, 0, 0,
			      &error));
	bad(SCI_ERR_ILLEGAL_PARAMETER,
	    SCIConnectSegment(local.device, &segment, own_id(), local.id, ADAPTER, NULL, NULL, 0,
			      SCI_FLAG_USE_CALLBACK, &error));
	same(connects(local.device, 0, local.id, 0), SCI_ERR_ILLEGAL_NODEID);
	same(connects(local.device, 2, local.id, 0), SCI_ERR_ILLEGAL_NODEID);
	same(connects(local.device, ~0u, local.id, 0), SCI_ERR_ILLEGAL_NODEID);
}

static void connect_many(void)
{
	struct theirs there = exported_by(new_peer(), 8192);
	struct remote remote[16];
	int i;

	for (i = 0; i < 16; i++)
		remote[i] = imported(there);
	for (i = 0; i < 16; i++) {
		there(there.peer, THERE_STORE, there.memory, 1000 + i, 4);
		same(*(volatile __u32 *)remote[i].memory, 1000 + i);
	}
	/* Each connection is independent. */
	for (i = 0; i < 16; i += 2) {
		good(SCIUnmapSegment(remote[i].map, 0, &error));
		good(SCIDisconnectSegment(remote[i].segment, 0, &error));
	}
	for (i = 1; i < 16; i += 2)
		same(*(volatile __u32 *)remote[i].memory, 1015);
}

/* A segment is pinned once, however many connections it has. */
static void connect_pins_once(void)
{
	struct local local = exported(MIB);
	long before = pinned();
	struct peer *peer[4];
	int i;

	for (i = 0; i < 4; i++) {
		peer[i] = new_peer();
		imported_by(peer[i], &local);
	}
	expect(pinned() - before < MIB / PAGE);
	for (i = 0; i < 4; i++)
		begin(peer[i], DO_EXIT);
}

static void connect_own_node(void)
{
	struct local local = exported(8192);
	struct remote remote = own_remote(&local);

	fill(local.memory, 1, 8192);
	same(remote_differs(remote.memory, 1, 8192), -1);
	fill_remote(remote.memory, 2, 8192);
	same(differs(local.memory, 2, 8192), -1);
}

static void disconnect_busy(void)
{
	struct remote remote = new_remote(8192);
	sci_map_t other;

	good(SCIMapRemoteSegment(remote.segment, &other, 0, 4096, NULL, 0, &error));
	bad(SCI_ERR_BUSY, SCIDisconnectSegment(remote.segment, 0, &error));
	good(SCIUnmapSegment(remote.map, 0, &error));
	bad(SCI_ERR_BUSY, SCIDisconnectSegment(remote.segment, 0, &error));
	good(SCIUnmapSegment(other, 0, &error));
	good(SCIDisconnectSegment(remote.segment, 0, &error));
	bad(STALE, SCIDisconnectSegment(remote.segment, 0, &error));
}

static void connect_again(void)
{
	struct theirs there = exported_by(new_peer(), 8192);
	struct remote remote;
	int i;

	for (i = 0; i < 50; i++) {
		remote = imported(there);
		*(volatile __u32 *)remote.memory = i;
		SCIStoreBarrier(new_sequence(remote.map), 0);
		same(there(there.peer, THERE_LOAD, there.memory, 4), i);
		good(SCIUnmapSegment(remote.map, 0, &error));
		good(SCIDisconnectSegment(remote.segment, 0, &error));
	}
}

/* --- Asynchronous connects --- */

static sci_remote_segment_t begin_connect(sci_desc_t device, unsigned int node, unsigned int id)
{
	sci_remote_segment_t segment = NULL;

	good(SCIConnectSegment(device, &segment, node, id, ADAPTER, NULL, NULL, FOREVER,
			       SCI_FLAG_ASYNCHRONOUS_CONNECT, &error));
	expect(segment);
	return segment;
}

static void asynchronous(void)
{
	struct theirs there = exported_by(new_peer(), 8192);
	sci_remote_segment_t segment = begin_connect(new_device(), peer_id(there.peer), there.id);
	volatile void *memory;
	sci_map_t map;

	same(remote_event(segment, SCI_CB_CONNECT), SCI_ERR_OK);
	same(SCIGetRemoteSegmentSize(segment), 8192);
	good(memory = SCIMapRemoteSegment(segment, &map, 0, 8192, NULL, 0, &error));
	ask(there.peer, DO_FILL, there.memory, 9, 8192);
	same(remote_differs(memory, 9, 8192), -1);
	good(SCIUnmapSegment(map, 0, &error));
	good(SCIDisconnectSegment(segment, 0, &error));
}

static void asynchronous_fails(void)
{
	struct peer *peer = new_peer();
	sci_desc_t device = new_device();
	sci_remote_segment_t segment = begin_connect(device, peer_id(peer), new_id());
	struct local local = prepared(8);
	sci_map_t map;

	same(remote_event(segment, SCI_CB_DISCONNECT), SCI_ERR_NO_SUCH_SEGMENT);
	bad(SCI_ERR_NOT_CONNECTED, SCIMapRemoteSegment(segment, &map, 0, 8, NULL, 0, &error));
	bad(SCI_ERR_NOT_CONNECTED,
	    SCIStartDmaTransfer(new_queue(device, 1), local.segment, segment, 0, 8, 0, NULL, NULL,
				0, &error));
	bad(SCI_ERR_BUSY, SCIClose(device, 0, &error));
	good(SCIDisconnectSegment(segment, 0, &error));
}

/* Until the result is known, either the segment is connected or calls refuse it. */
static void asynchronous_use(void)
{
	struct theirs there = exported_by(new_peer(), 8192);
	sci_remote_segment_t segment = begin_connect(new_device(), peer_id(there.peer), there.id);
	sci_map_t map;

	bad_either(SCI_ERR_NOT_CONNECTED, SCI_ERR_OK,
		   SCIMapRemoteSegment(segment, &map, 0, 8, NULL, 0, &error));
	same(remote_event(segment, SCI_CB_CONNECT), SCI_ERR_OK);
	good(SCIMapRemoteSegment(segment, &map, 0, 8, NULL, 0, &error));
}

static void asynchronous_callback(void)
{
	struct theirs there = exported_by(new_peer(), 8192);
	sci_desc_t device = new_device();
	sci_remote_segment_t segment;
	struct call_log *log = new_log(), *none = new_log();

	good(SCIConnectSegment(device, &segment, peer_id(there.peer), there.id, ADAPTER,
			       log_remote, log, FOREVER,
			       SCI_FLAG_USE_CALLBACK | SCI_FLAG_ASYNCHRONOUS_CONNECT, &error));
	called_exactly(log, 1);
	same(log->call[0].reason, SCI_CB_CONNECT);
	same(log->call[0].status, SCI_ERR_OK);
	expect(log->call[0].handle == segment);
	good(SCIConnectSegment(device, &segment, peer_id(there.peer), new_id(), ADAPTER,
			       log_remote, none, FOREVER,
			       SCI_FLAG_USE_CALLBACK | SCI_FLAG_ASYNCHRONOUS_CONNECT, &error));
	called_exactly(none, 1);
	same(none->call[0].reason, SCI_CB_DISCONNECT);
	same(none->call[0].status, SCI_ERR_NO_SUCH_SEGMENT);
	good(SCIDisconnectSegment(segment, 0, &error));
}

static void asynchronous_given_up(void)
{
	struct theirs there = exported_by(new_peer(), 8192);
	sci_desc_t device = new_device();
	int i;

	/* Disconnects, no matter whether the connect has completed. */
	for (i = 0; i < 30; i++)
		good(SCIDisconnectSegment(begin_connect(device, peer_id(there.peer),
							i % 2 ? there.id : new_id()), 0,
					  &error));
	good(SCIClose(device, 0, &error));
	connect_segment(new_device(), peer_id(there.peer), there.id);
}

static void connect_star(void)
{
	struct remote one = imported_from(new_peer_on(0), 8192);
	struct remote two = imported_from(new_peer_on(1), 8192);

	fill_remote(one.memory, 1, 8192);
	fill_remote(two.memory, 2, 8192);
	SCIStoreBarrier(new_sequence(one.map), 0);
	SCIStoreBarrier(new_sequence(two.map), 0);
	same(ask(one.there.peer, DO_DIFFERS, one.there.memory, 1, 8192), -1);
	same(ask(two.there.peer, DO_DIFFERS, two.there.memory, 2, 8192), -1);
}

/* Two nodes that do not see each other exchange data through the memory of this one. */
static void connect_star_meet(void)
{
	struct local local = exported(8192);
	struct importer one = imported_by(new_peer_on(0), &local);
	struct importer two = imported_by(new_peer_on(1), &local);

	there(one.peer, THERE_STORE, one.memory, 77, 4);
	there(two.peer, THERE_AWAIT, two.memory, 77);
	there(two.peer, THERE_STORE, two.memory + 8, 78, 4);
	there(one.peer, THERE_AWAIT, one.memory + 8, 78);
}

const struct test_case connect_segment_cases[] = {
	PAIR(connect_tells, "connect.tells segment.size-rounded"),
	PAIR(connect_none, "connect.none-at-once"),
	PAIR(connect_in_each_state, "connect.not-available segment.unavailable"),
	PAIR(connect_until_there, "connect.none-at-once connect.timeout"),
	PAIR(connect_timeouts, "connect.timeout"),
	ALONE(connect_arguments, "adapter.numbers node.illegal callback.flag"),
	PAIR_MAPPED(connect_many, "connect.many"),
	PAIR_MAPPING_US(connect_pins_once, "connect.pins-once"),
	ALONE(connect_own_node, "node.own"),
	PAIR_MAPPED(disconnect_busy, "connect.busy"),
	PAIR_MAPPED(connect_again, "connect.again"),
	PAIR_MAPPED(asynchronous, "async.connect"),
	PAIR(asynchronous_fails, "async.fails async.not-connected"),
	PAIR_MAPPED(asynchronous_use, "async.not-connected"),
	PAIR(asynchronous_callback, "async.connect async.fails callback.remote"),
	PAIR(asynchronous_given_up, "async.given-up"),
	STAR(connect_star, "star.both"),
	STAR(connect_star_meet, "star.both"),
	{ }
};
