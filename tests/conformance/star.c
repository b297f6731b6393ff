// SPDX-License-Identifier: GPL-2.0
/*
 * Three nodes: this one has links to two others, which do not see each other.
 */
#include "../harness/suite.h"

static void star_nodes(void)
{
	struct peer *one = new_peer_on(0), *two = new_peer_on(1);

	expect_value(scif_get_node_ids(NULL, 0, &(__u16) { 0 }), 3);
	expect(peer_node(one) != peer_node(two));
	expect_value(ask(one, DO_NODES), 2);
	expect_value(ask(two, DO_NODES), 2);
}

static void star_not_routed(void)
{
	struct peer *one = new_peer_on(0), *two = new_peer_on(1);
	long endpoint = expect_ok(ask(one, DO_OPEN)), port;

	expect_ok(ask(two, DO_LISTENER, 1));
	port = answer(two, 0);
	expect_error(ask(one, DO_CONNECT, endpoint, peer_node(two), port), ENODEV);
}

static void star_equal_ports(void)
{
	struct peer *peer[2] = { new_peer_on(0), new_peer_on(1) };
	__s64 memory[2];
	long there[2];
	int here[2], i;

	/* Both connections use the same ports. */
	for (i = 0; i < 2; i++) {
		long listener = expect_ok(ask(peer[i], DO_OPEN));

		memory[i] = ask(peer[i], DO_PAGES, 1);
		expect_value(ask(peer[i], DO_BIND, listener, 3010), 3010);
		expect_ok(ask(peer[i], DO_LISTEN, listener, 1));
		begin(peer[i], DO_ACCEPT, listener, SCIF_ACCEPT_SYNC);
		here[i] = expect_ok(scif_open());
		expect_ok(connect_to(here[i], peer_node(peer[i]), 3010));
		there[i] = expect_ok(end(peer[i]));
	}
	expect_value(scif_send(here[0], "one", 4, SCIF_SEND_BLOCK), 4);
	expect_value(scif_send(here[1], "two", 4, SCIF_SEND_BLOCK), 4);
	for (i = 0; i < 2; i++) {
		expect_value(ask(peer[i], DO_RECV, there[i], memory[i], 4, SCIF_RECV_BLOCK), 4);
		expect_ok(ask(peer[i], DO_PEEK, memory[i]));
		expect(!memcmp(&(__s64) { answer(peer[i], 0) }, i ? "two" : "one", 4));
		expect_value(ask(peer[i], DO_RECV, there[i], memory[i], 1, 0), 0);
	}
}

struct both {
	struct pair pair[2];
	__s64 there[2];
	unsigned char *memory[2];
};

/* Makes a connection with each peer, with windows of PAGES_EACH at the same offset everywhere. */
#define PAGES_EACH	256L
#define LEN		(PAGES_EACH * PAGE)
#define AT		0x600000L

static struct both both_nodes(void)
{
	struct both both;
	int i;

	for (i = 0; i < 2; i++) {
		struct peer *peer = new_peer_on(i);

		both.pair[i] = connected_to(peer);
		both.memory[i] = pages(PAGES_EACH);
		both.there[i] = ask(peer, DO_PAGES, PAGES_EACH);
		expect_value(scif_register(both.pair[i].here, both.memory[i], LEN, AT, READ_WRITE,
					   SCIF_MAP_FIXED), AT);
		expect_value(ask(peer, DO_REGISTER, both.pair[i].there, both.there[i], LEN, AT,
				 READ_WRITE, SCIF_MAP_FIXED), AT);
	}
	return both;
}

static void star_equal_offsets(void)
{
	struct both both = both_nodes();
	int i;

	for (i = 0; i < 2; i++) {
		fill(both.memory[i], 10 + i, LEN);
		expect_value(scif_writeto(both.pair[i].here, AT, LEN, AT, SYNC), 0);
	}
	for (i = 0; i < 2; i++)
		expect_value(ask(both.pair[i].peer, DO_DIFFERS, both.there[i], 10 + i, LEN), -1);
}

static void star_parallel(void)
{
	struct both both = both_nodes();
	int round, i, mark[2];

	for (round = 1; round <= 5; round++) {
		for (i = 0; i < 2; i++) {
			fill(both.memory[i], round * 2 + i, LEN / 2);
			ask(both.pair[i].peer, DO_FILL, both.there[i] + LEN / 2, 100 + round + i,
			    LEN / 2);
		}
		for (i = 0; i < 2; i++) {
			/* The peers copy, too. */
			begin(both.pair[i].peer, DO_WRITETO, both.pair[i].there, AT + LEN / 2,
			      LEN / 2, AT + LEN / 2, SYNC);
			expect_value(scif_writeto(both.pair[i].here, AT, LEN / 2, AT, 0), 0);
			expect_value(scif_fence_mark(both.pair[i].here, SCIF_FENCE_INIT_SELF,
						     &mark[i]), 0);
		}
		for (i = 0; i < 2; i++) {
			expect_value(scif_fence_wait(both.pair[i].here, mark[i]), 0);
			expect_value(end(both.pair[i].peer), 0);
			expect_value(differs(both.memory[i] + LEN / 2, 100 + round + i, LEN / 2),
				     -1);
			expect_value(ask(both.pair[i].peer, DO_DIFFERS, both.there[i],
					 round * 2 + i, LEN / 2), -1);
		}
	}
}

static void star_messages(void)
{
	struct both both = both_nodes();
	int i;

	for (i = 0; i < 2; i++)
		begin(both.pair[i].peer, DO_RECV, both.pair[i].there, both.there[i], LEN,
		      SCIF_RECV_BLOCK);
	for (i = 0; i < 2; i++) {
		fill(both.memory[i], 20 + i, LEN);
		expect_value(scif_send(both.pair[i].here, both.memory[i], LEN, SCIF_SEND_BLOCK),
			     LEN);
	}
	for (i = 0; i < 2; i++) {
		expect_value(end(both.pair[i].peer), LEN);
		expect_value(ask(both.pair[i].peer, DO_DIFFERS, both.there[i], 20 + i, LEN), -1);
	}
}

static void star_isolated_close(void)
{
	struct both both = both_nodes();
	struct pair *stays = &both.pair[1];

	/* Closes in the middle of copies by both sides. */
	expect_value(scif_writeto(both.pair[0].here, AT, LEN, AT, 0), 0);
	fill(both.memory[1], 30, LEN);
	expect_value(scif_writeto(stays->here, AT, LEN, AT, 0), 0);
	begin(both.pair[0].peer, DO_DIE);
	wait_for_hangup(both.pair[0].here);
	expect_value(scif_close(both.pair[0].here), 0);
	expect_value(poll_for(stays->here, POLLIN | POLLOUT, 0), POLLOUT);
	expect_value(scif_writeto(stays->here, AT, LEN, AT, SYNC), 0);
	expect_value(ask(stays->peer, DO_DIFFERS, both.there[1], 30, LEN), -1);
	expect_value(scif_send(stays->here, "still", 5, SCIF_SEND_BLOCK), 5);
	expect_value(ask(stays->peer, DO_RECV, stays->there, both.there[1], 5, SCIF_RECV_BLOCK), 5);
}

static void star_one_listener(void)
{
	struct peer *peer[2] = { new_peer_on(0), new_peer_on(1) };
	struct scif_port_id from;
	__u16 port = 0;
	int listener = listening(&port, 8), accepted, i;
	bool seen[2] = { false, false };

	for (i = 0; i < 2; i++) {
		long endpoint = expect_ok(ask(peer[i], DO_OPEN));

		/* Both peers connect from the same port. */
		expect_value(ask(peer[i], DO_BIND, endpoint, 3011), 3011);
		expect_ok(ask(peer[i], DO_SET_NONBLOCK, endpoint, true));
		expect_error(ask(peer[i], DO_CONNECT, endpoint, own_node(), port), EINPROGRESS);
	}
	for (i = 0; i < 2; i++) {
		expect_value(scif_accept(listener, &from, &accepted, SCIF_ACCEPT_SYNC), 0);
		expect(from.port == 3011);
		seen[0] |= from.node == peer_node(peer[0]);
		seen[1] |= from.node == peer_node(peer[1]);
	}
	expect(seen[0] && seen[1]);
}

static void star_poll(void)
{
	struct both both = both_nodes();
	struct scif_pollepd poll[2] = {
		{ .epd = both.pair[0].here, .events = POLLIN },
		{ .epd = both.pair[1].here, .events = POLLIN },
	};
	char byte;
	int i;

	for (i = 0; i < 2; i++) {
		expect_value(scif_poll(poll, 2, 0), 0);
		expect_value(ask(both.pair[i].peer, DO_SEND, both.pair[i].there, both.there[i], 1,
				 SCIF_SEND_BLOCK), 1);
		expect_value(scif_poll(poll, 2, -1), 1);
		expect(poll[i].revents == POLLIN && !poll[1 - i].revents);
		expect_value(scif_recv(both.pair[i].here, &byte, 1, 0), 1);
	}
}

const struct test_case star_cases[] = {
	STAR(star_nodes, "star.nodes"),
	STAR(star_not_routed, "star.not-routed"),
	STAR(star_equal_ports, "star.equal-ports"),
	STAR(star_equal_offsets, "star.equal-offsets"),
	STAR(star_parallel, "star.parallel"),
	STAR(star_messages, "star.messages"),
	STAR(star_isolated_close, "star.isolated-close"),
	STAR(star_one_listener, "star.one-listener"),
	STAR(star_poll, "star.poll"),
	{ }
};
