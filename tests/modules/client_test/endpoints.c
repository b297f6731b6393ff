// SPDX-License-Identifier: GPL-2.0
/*
 * Endpoints: from open to close, without waiting.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/gfp.h>

#include "test.h"

/* A privileged port that no other endpoint has. */
#define LOW_PORT	1000

static void check_open(void)
{
	scif_epd_t a = scif_open(), b = scif_open();

	test_that(a && b && a != b, "open gives an endpoint, each time another");
	test_returns(0, scif_close(a), "close of an endpoint");
	test_returns(-EBADF, scif_close(a), "close of a closed endpoint");
	test_returns(-EBADF, scif_close(NULL), "close of NULL");
	test_returns(-EBADF, scif_close(SCIF_OPEN_FAILED), "close of SCIF_OPEN_FAILED");
	test_returns(-EBADF, scif_close((scif_epd_t)&test_self),
		     "close of a pointer to no endpoint");
	test_returns(-EBADF, scif_close((scif_epd_t)0x1000), "close of a pointer to no memory");
	test_at_least(SCIF_PORT_RSVD, scif_bind(b, 0),
		      "close of what is none leaves the others alone");
	scif_close(b);
}

static void check_bind(void)
{
	scif_epd_t a = scif_open(), b = scif_open();
	int pn;

	if (!test_ready(a && b, "two endpoints"))
		goto close;
	pn = scif_bind(a, 0);
	test_at_least(SCIF_PORT_RSVD, pn, "bind to any port");
	test_returns(-EINVAL, scif_bind(a, 0), "bind of a bound endpoint");
	test_returns(-EINVAL, scif_bind(b, pn), "bind to a taken port");
	test_at_least(SCIF_PORT_RSVD, scif_bind(b, 0),
		      "bind to any port after one that was taken");
	scif_close(a);
	a = scif_open();
	test_returns(pn, scif_bind(a, pn), "bind to the port of a closed endpoint");
	scif_close(a);
	a = scif_open();
	test_returns(LOW_PORT, scif_bind(a, LOW_PORT), "bind to a low port from a kernel thread");
	scif_close(a);
	a = scif_open();
	test_returns(65535, scif_bind(a, 65535), "bind to the highest port");
close:
	if (a)
		scif_close(a);
	if (b)
		scif_close(b);
}

static void check_listen(void)
{
	struct scif_port_id to = { .node = test_self };
	struct scif_port_id peer;
	scif_epd_t epd = scif_open();
	scif_epd_t new = NULL;

	if (!test_ready(epd, "an endpoint"))
		return;
	test_returns(-EINVAL, scif_listen(epd, 1), "listen of an unbound endpoint");
	test_returns(-EINVAL, scif_accept(epd, &peer, &new, 0), "accept without a port");
	to.port = scif_bind(epd, 0);
	test_returns(-EINVAL, scif_accept(epd, &peer, &new, 0), "accept without listen");
	test_returns(-EINVAL, scif_listen(epd, 0), "listen with a backlog of 0");
	test_returns(-EINVAL, scif_listen(epd, -1), "listen with a backlog of -1");
	test_returns(0, scif_listen(epd, INT_MAX), "listen with a huge backlog");
	test_returns(-EISCONN, scif_listen(epd, 1), "listen of a listener");
	test_returns(-EISCONN, scif_bind(epd, 0), "bind of a listener");
	test_returns(-EOPNOTSUPP, scif_connect(epd, &to), "connect of a listener");
	test_returns(-EAGAIN, scif_accept(epd, &peer, &new, 0), "accept without a request");
	test_returns(-EINVAL, scif_accept(epd, NULL, &new, 0),
		     "accept with NULL for the peer");
	test_returns(-EINVAL, scif_accept(epd, &peer, NULL, 0),
		     "accept with NULL for the endpoint");
	test_returns(-EINVAL, scif_accept(epd, &peer, &new, 2), "accept with an unknown flag");
	test_that(!new, "a failed accept stores no endpoint");
	scif_close(epd);
}

/* Returns the id of a node that does not exist. */
static u16 absent_node(void)
{
	u16 nodes[64];
	int count = min_t(int, scif_get_node_ids(nodes, ARRAY_SIZE(nodes), NULL),
			  ARRAY_SIZE(nodes));
	u16 absent = 65535;
	int i;

	for (i = 0; i < count; i++) {
		if (nodes[i] == absent) {
			absent--;
			i = -1;
		}
	}
	return absent;
}

static void check_connect_errors(void)
{
	struct scif_port_id nowhere = { .node = absent_node(), .port = test_port };
	struct scif_port_id port_0 = { .node = test_node };
	struct scif_port_id silent = { .node = test_node, .port = test_port + 1 };
	struct scif_port_id server = { .node = test_node, .port = test_port };
	scif_epd_t epd = scif_open();
	scif_epd_t fresh = scif_open();

	if (!test_ready(epd && fresh, "two endpoints"))
		goto close;
	test_returns(-EINVAL, scif_connect(epd, &port_0), "connect to port 0");
	test_returns(-ENODEV, scif_connect(epd, &nowhere), "connect to an absent node");
	test_returns(-ECONNREFUSED, scif_connect(epd, &silent),
		     "connect to a port without a listener");
	test_returns(-ECONNREFUSED, scif_connect(fresh, &silent),
		     "connect of a fresh endpoint to a port without a listener");
	test_returns(-EINVAL, scif_bind(fresh, 0), "after a refusal the endpoint is bound");
	test_returns(-ECONNREFUSED, scif_connect(epd, &silent),
		     "a second connect to a port without a listener");
	test_returns(0, scif_connect(epd, &server), "connect after failed connects returns 0");
	test_returns(-EISCONN, scif_connect(epd, &server), "connect of a connected endpoint");
	test_returns(-EISCONN, scif_bind(epd, 0), "bind of a connected endpoint");
	test_returns(-EISCONN, scif_listen(epd, 1), "listen of a connected endpoint");
close:
	if (epd)
		scif_close(epd);
	if (fresh)
		scif_close(fresh);
}

/*
 * Checks the peer of an accepted endpoint, and that its port stays in use as long as any endpoint
 * has it.
 */
static void check_accept(void)
{
	struct test_connecting connecting = { .epd = scif_open(), .to.node = test_self };
	scif_epd_t listener, accepted = NULL, other = NULL;
	struct scif_port_id peer = { 0 };
	struct worker worker;
	int own;

	listener = test_open_listener(0, 1, &connecting.to.port);
	if (!test_ready(listener && connecting.epd, "a listener"))
		goto close;
	own = scif_bind(connecting.epd, 0);
	if (!test_ready(worker_start(&worker, test_connect_work, &connecting), "a thread"))
		goto close;
	test_returns(POLLIN, test_await(listener, POLLIN), "a request makes a listener readable");
	test_that(!worker_has_ended(&worker), "connect waits for accept");
	test_returns(0, scif_accept(listener, &peer, &accepted, SCIF_ACCEPT_SYNC),
		     "accept of a request");
	test_returns(0, worker_end(&worker), "an accepted connect returns 0");
	test_returns(own, peer.port, "accept says which port has connected");
	test_returns(test_self, peer.node, "accept says which node has connected");
	test_that(accepted && accepted != listener, "accept stores an endpoint");
	test_returns(-EAGAIN, scif_accept(listener, &peer, &other, 0),
		     "a request is accepted once");

	scif_close(listener);
	listener = scif_open();
	test_returns(-EINVAL, scif_bind(listener, connecting.to.port),
		     "an accepted endpoint keeps the port of its listener");
	test_returns(1, scif_send(accepted, "x", 1, SCIF_SEND_BLOCK),
		     "an accepted endpoint outlives its listener");
	scif_close(accepted);
	accepted = NULL;
	test_returns(connecting.to.port, scif_bind(listener, connecting.to.port),
		     "the port is free after its last endpoint was closed");
close:
	if (accepted)
		scif_close(accepted);
	if (listener)
		scif_close(listener);
	if (connecting.epd)
		scif_close(connecting.epd);
}

/* Checks that calls that need a connection return @wanted without one. */
static void check_every_call(scif_epd_t epd, long wanted, const char *when)
{
	void *page = (void *)get_zeroed_page(GFP_KERNEL);
	scif_pinned_pages_t pinned = NULL;
	struct scif_range *range = NULL;
	char name[96];
	int mark = 0;

	if (!test_ready(page, "a page"))
		return;
	if (!test_ready(!scif_pin_pages(page, PAGE_SIZE, SCIF_PROT_READ, SCIF_MAP_KERNEL, &pinned),
			"a pinned page"))
		goto free;

#define check_call(call)						\
	do {								\
		snprintf(name, sizeof(name), "%s, %s", when, #call);	\
		*strchrnul(name, '(') = '\0';				\
		test_returns(wanted, call, name);			\
	} while (0)

	check_call(scif_send(epd, page, 1, 0));
	check_call(scif_send(epd, page, 1, SCIF_SEND_BLOCK));
	check_call(scif_recv(epd, page, 1, 0));
	check_call(scif_recv(epd, page, 1, SCIF_RECV_BLOCK));
	check_call(scif_register(epd, page, PAGE_SIZE, 0, SCIF_PROT_READ, SCIF_MAP_KERNEL));
	check_call(scif_register_pinned_pages(epd, pinned, 0, 0));
	check_call(scif_unregister(epd, 0, PAGE_SIZE));
	check_call(scif_readfrom(epd, 0, PAGE_SIZE, 0, 0));
	check_call(scif_writeto(epd, 0, PAGE_SIZE, 0, 0));
	check_call(scif_vreadfrom(epd, page, PAGE_SIZE, 0, 0));
	check_call(scif_vwriteto(epd, page, PAGE_SIZE, 0, 0));
	check_call(scif_fence_mark(epd, SCIF_FENCE_INIT_SELF, &mark));
	check_call(scif_fence_mark(epd, SCIF_FENCE_INIT_PEER, &mark));
	check_call(scif_fence_wait(epd, 1));
	check_call(scif_fence_signal(epd, 0, 1, 0, 1, SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL));
	check_call(scif_get_pages(epd, 0, PAGE_SIZE, &range));
#undef check_call

	scif_unpin_pages(pinned);
free:
	free_page((unsigned long)page);
}

static void check_states(void)
{
	scif_epd_t epd = scif_open();
	struct test_pair pair;
	u16 port;

	if (!test_ready(epd, "an endpoint"))
		return;
	check_every_call(epd, -ENOTCONN, "fresh");
	scif_bind(epd, 0);
	check_every_call(epd, -ENOTCONN, "bound");
	scif_close(epd);
	epd = test_open_listener(0, 1, &port);
	if (test_ready(epd, "a listener")) {
		check_every_call(epd, -ENOTCONN, "listening");
		scif_close(epd);
	}

	if (!test_open_pair(&pair))
		return;
	scif_close(pair.b);
	pair.b = NULL;
	test_that(test_await(pair.a, 0) & POLLHUP, "close of the peer hangs up");
	check_every_call(pair.a, -ECONNRESET, "after the peer has closed");
	test_returns(-EISCONN, scif_bind(pair.a, 0), "bind after the peer has closed");
	test_close_pair(&pair);
}

/* Makes two requests with a backlog of one. Then the listener is closed. */
static void check_backlog(void)
{
	struct test_connecting first = { .epd = scif_open(), .to.node = test_self };
	struct test_connecting second = { .epd = scif_open(), .to.node = test_self };
	struct worker worker, other;
	scif_epd_t listener;

	listener = test_open_listener(0, 1, &first.to.port);
	second.to.port = first.to.port;
	if (!test_ready(listener && first.epd && second.epd, "a listener") ||
	    !test_ready(worker_start(&worker, test_connect_work, &first), "a thread"))
		goto close;
	test_await(listener, POLLIN);
	if (test_ready(worker_start(&other, test_connect_work, &second), "a thread"))
		test_returns(-ECONNREFUSED, worker_end(&other), "a request beyond the backlog");
	test_that(!worker_has_ended(&worker), "the request in the backlog still waits");
	scif_close(listener);
	listener = NULL;
	test_returns(-ECONNREFUSED, worker_end(&worker), "close of a listener refuses the waiter");
	test_returns(-EINVAL, scif_bind(first.epd, 0), "a refused endpoint is bound");
close:
	if (listener)
		scif_close(listener);
	if (first.epd)
		scif_close(first.epd);
	if (second.epd)
		scif_close(second.epd);
}

void test_endpoints(void)
{
	check_open();
	check_bind();
	check_listen();
	check_connect_errors();
	check_accept();
	check_states();
	check_backlog();
}
