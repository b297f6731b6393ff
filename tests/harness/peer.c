// SPDX-License-Identifier: GPL-2.0
/*
 * Peers: helpers on another node (or this one) that make calls on request.
 *
 * A case reaches the agent of the node over a connection of its own. The agent forks a process for
 * the case, which takes requests from that connection one after the other, and answers with the
 * result and errno. When the case ends in any way, the connection breaks. Then the process ends,
 * whatever call it is in.
 *
 * Addresses in requests are addresses of the peer's own memory, which the peer has returned before.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "suite.h"

#define NAME_LENGTH	64

struct request {
	__u32 operation;
	__u32 unused;
	__s64 argument[8];
};

struct response {
	__s64 result;
	__s64 error;
	__s64 answer[2];
};

struct peer {
	int control;
	__u16 node;
	struct response response;
};

/* --- The side of the case --- */

struct peer *new_peer_on(int index)
{
	struct scif_port_id agent = run.agent[index];
	char name[NAME_LENGTH] = "";
	struct peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		fail("no memory");
	snprintf(name, sizeof(name), "%s", run.test->name);
	peer->node = agent.node;
	peer->control = expect_ok(scif_open());
	expect_ok(scif_connect(peer->control, &agent));
	expect_value(scif_send(peer->control, name, sizeof(name), SCIF_SEND_BLOCK), sizeof(name));
	return peer;
}

struct peer *new_peer(void)
{
	return new_peer_on(run.current_peer);
}

__u16 peer_node(const struct peer *peer)
{
	return peer->node;
}

__s64 answer(const struct peer *peer, int index)
{
	return peer->response.answer[index];
}

void begin_operation(struct peer *peer, __u32 operation, const __s64 *argument)
{
	struct request request = { .operation = operation };

	memcpy(request.argument, argument, sizeof(request.argument));
	if (scif_send(peer->control, &request, sizeof(request), SCIF_SEND_BLOCK) !=
	    sizeof(request))
		fail("cannot ask the peer: %s", strerror(errno));
}

long end(struct peer *peer)
{
	struct response *response = &peer->response;
	int count = scif_recv(peer->control, response, sizeof(*response), SCIF_RECV_BLOCK);

	if (count != sizeof(*response))
		fail("the peer does not answer: %s", count < 0 ? strerror(errno) : "short");
	errno = response->error;
	return response->result;
}

long ask_operation(struct peer *peer, __u32 operation, const __s64 *argument)
{
	begin_operation(peer, operation, argument);
	return end(peer);
}

bool has_ended(struct peer *peer)
{
	return poll_for(peer->control, POLLIN, 0) & POLLIN;
}

void wait_for_death(struct peer *peer)
{
	wait_for_hangup(peer->control);
}

/* --- The side of the peer --- */

static long do_listener(struct response *response, int backlog)
{
	__u16 port = 0;
	int endpoint = listening(&port, backlog);

	response->answer[0] = port;
	return endpoint;
}

static long do_accept(struct response *response, int listener, int flags)
{
	struct scif_port_id from;
	scif_epd_t endpoint;

	if (scif_accept(listener, &from, &endpoint, flags))
		return -1;
	response->answer[0] = from.node;
	response->answer[1] = from.port;
	return endpoint;
}

static long do_mmap(int endpoint, off_t offset, size_t len, int prot)
{
	void *address = scif_mmap(NULL, len, prot, 0, endpoint, offset);

	return address == SCIF_MMAP_FAILED ? -1 : (long)address;
}

static long do_mark(int endpoint, int flags)
{
	int mark = -1;

	return scif_fence_mark(endpoint, flags, &mark) ? -1 : mark;
}

static long do_nodes(struct response *response)
{
	__u16 nodes[16] = { 0 }, self = 0xffff;
	int count = scif_get_node_ids(nodes, 16, &self);
	int i;

	response->answer[0] = self;
	for (i = 0; i < count && i < 4; i++)
		response->answer[1] |= (__s64)nodes[i] << (16 * i);
	return count;
}

static long do_spin(__s64 address, __s64 value)
{
	const __s64 *word = (const __s64 *)address;

	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value)
		;
	return 0;
}

static long do_operation(const struct request *request, struct response *response)
{
	const __s64 *a = request->argument;
	struct scif_port_id to;
	void *memory;

	if (request->operation >= DO_OTHERS && suite.operation)
		return suite.operation(request->operation, a, response->answer);
	switch (request->operation) {
	case DO_OPEN:
		return scif_open();
	case DO_CLOSE:
		return scif_close(a[0]);
	case DO_BIND:
		return scif_bind(a[0], a[1]);
	case DO_LISTEN:
		return scif_listen(a[0], a[1]);
	case DO_LISTENER:
		return do_listener(response, a[0]);
	case DO_CONNECT:
		to.node = a[1];
		to.port = a[2];
		return scif_connect(a[0], &to);
	case DO_ACCEPT:
		return do_accept(response, a[0], a[1]);
	case DO_SEND:
		return scif_send(a[0], (void *)a[1], a[2], a[3]);
	case DO_RECV:
		return scif_recv(a[0], (void *)a[1], a[2], a[3]);
	case DO_REGISTER:
		return scif_register(a[0], (void *)a[1], a[2], a[3], a[4], a[5]);
	case DO_UNREGISTER:
		return scif_unregister(a[0], a[1], a[2]);
	case DO_READFROM:
		return scif_readfrom(a[0], a[1], a[2], a[3], a[4]);
	case DO_WRITETO:
		return scif_writeto(a[0], a[1], a[2], a[3], a[4]);
	case DO_VREADFROM:
		return scif_vreadfrom(a[0], (void *)a[1], a[2], a[3], a[4]);
	case DO_VWRITETO:
		return scif_vwriteto(a[0], (void *)a[1], a[2], a[3], a[4]);
	case DO_MMAP:
		return do_mmap(a[0], a[1], a[2], a[3]);
	case DO_MUNMAP:
		return scif_munmap((void *)a[0], a[1]);
	case DO_MARK:
		return do_mark(a[0], a[1]);
	case DO_WAIT:
		return scif_fence_wait(a[0], a[1]);
	case DO_SIGNAL:
		return scif_fence_signal(a[0], a[1], a[2], a[3], a[4], a[5]);
	case DO_POLL:
		return poll_for(a[0], a[1], a[2]);
	case DO_NODES:
		return do_nodes(response);
	case DO_PAGES:
		return (long)pages(a[0]);
	case DO_FILL:
		fill((void *)a[0], a[1], a[2]);
		return 0;
	case DO_DIFFERS:
		return differs((void *)a[0], a[1], a[2]);
	case DO_DIFFERS_FROM_BYTE:
		return differs_from_byte((void *)a[0], a[1], a[2]);
	case DO_PEEK:
		memory = (void *)a[0];
		memcpy(&response->answer[0], memory, sizeof(__s64));
		return 0;
	case DO_POKE:
		memory = (void *)a[0];
		memcpy(memory, &a[1], sizeof(__s64));
		return 0;
	case DO_SPIN:
		return do_spin(a[0], a[1]);
	case DO_SET_NONBLOCK:
		set_nonblock(a[0], a[1]);
		return 0;
	case DO_LOCKED:
		return locked();
	case DO_PID:
		return getpid();
	case DO_RUN:
		return run.test->there(a);
	case DO_EXIT:
		_exit(0);
	case DO_DIE:
		raise(SIGKILL);
	}
	errno = EINVAL;
	return -1;
}

void serve(int control)
{
	char name[NAME_LENGTH];
	struct request request;
	struct response response;

	if (scif_recv(control, name, sizeof(name), SCIF_RECV_BLOCK) != sizeof(name))
		_exit(1);
	name[NAME_LENGTH - 1] = 0;
	run.test = find_case(name);
	if (!run.test)
		_exit(1);
	while (scif_recv(control, &request, sizeof(request), SCIF_RECV_BLOCK) == sizeof(request)) {
		memset(&response, 0, sizeof(response));
		errno = 0;
		response.result = do_operation(&request, &response);
		response.error = errno;
		if (scif_send(control, &response, sizeof(response), SCIF_SEND_BLOCK) !=
		    sizeof(response))
			break;
	}
	_exit(0);
}

/* Ends the peer with its case, whatever call the peer is in. */
static void *end_with_case(void *data)
{
	wait_for_hangup((int)(long)data);
	_exit(0);
}

static void start_peer(int control)
{
	pid_t child = fork();

	if (child)
		return;
	signal(SIGCHLD, SIG_DFL);
	in_thread(end_with_case, (void *)(long)control);
	serve(control);
}

void run_agent(int listener)
{
	struct scif_port_id from;
	scif_epd_t control;

	/* The children are not waited for, so the kernel reaps them. */
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		if (scif_accept(listener, &from, &control, SCIF_ACCEPT_SYNC)) {
			if (errno == EINTR || errno == EAGAIN || errno == ENODEV)
				continue;
			perror("conformance: accept");
			exit(2);
		}
		start_peer(control);
		scif_close(control);
	}
}

/* --- Pairs --- */

struct pair connected_to(struct peer *peer)
{
	struct scif_port_id to = { .node = peer->node };
	struct pair pair = { .peer = peer };
	int listener = expect_ok(ask(peer, DO_LISTENER, 1));

	pair.peer_port = answer(peer, 0);
	to.port = pair.peer_port;
	begin(peer, DO_ACCEPT, listener, SCIF_ACCEPT_SYNC);
	pair.here = expect_ok(scif_open());
	pair.own_port = expect_ok(scif_connect(pair.here, &to));
	pair.there = expect_ok(end(peer));
	expect_ok(ask(peer, DO_CLOSE, listener));
	return pair;
}

struct pair connected(void)
{
	return connected_to(new_peer());
}

struct pair connected_here(void)
{
	struct pair pair = { 0 };
	struct scif_port_id from;
	int listener = listening(&pair.peer_port, 1);

	pair.here = expect_ok(scif_open());
	set_nonblock(pair.here, true);
	expect_error(connect_to(pair.here, own_node(), pair.peer_port), EINPROGRESS);
	expect_ok(scif_accept(listener, &from, &pair.there, SCIF_ACCEPT_SYNC));
	expect(poll_for(pair.here, POLLOUT, -1) & POLLOUT);
	pair.own_port = expect_ok(connect_to(pair.here, own_node(), pair.peer_port));
	set_nonblock(pair.here, false);
	expect_ok(scif_close(listener));
	return pair;
}

struct windows connected_windows(long page_count)
{
	struct windows windows = { .pair = connected(), .len = page_count * PAGE };
	struct peer *peer = windows.pair.peer;

	windows.memory = pages(page_count);
	windows.offset = expect_ok(scif_register(windows.pair.here, windows.memory, windows.len,
						 0, READ_WRITE, 0));
	windows.peer_memory = ask(peer, DO_PAGES, page_count);
	windows.peer_offset = expect_ok(ask(peer, DO_REGISTER, windows.pair.there,
					    windows.peer_memory, windows.len, 0, READ_WRITE, 0));
	return windows;
}
