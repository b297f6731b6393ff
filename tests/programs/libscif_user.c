// SPDX-License-Identifier: GPL-2.0
/*
 * A user of libscif, built against an installed tree by the test that runs it:
 * <scif.h> and -lscif, and no other interface of this project.
 *
 *	libscif_user server PORT	serves one client
 *	libscif_user client NODE PORT	tests against it
 *
 * Both print TAP. All 22 functions are called.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <scif.h>

#include "checks.h"
#include "die.h"

#define SIZE		(256 * 1024L)
#define ROUND		"round trip"
/* The server's window. Its last 8-byte word is for signals. */
#define FIXED		0x40000000L
#define SIGNAL		(FIXED + SIZE - 8)
#define DONE		0x0123456789abcdefULL

#define refused(call, error)	test_errno(call, error, "%s", #call)

static char *pages(size_t len)
{
	char *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	return memory;
}

static void fill(char *memory, size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		memory[i] = (i * 2654435761u + seed) >> 13;
}

static bool is_filled(const char *memory, size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (memory[i] != (char)((i * 2654435761u + seed) >> 13))
			return false;
	return true;
}

static scif_epd_t open_endpoint(void)
{
	scif_epd_t epd = scif_open();

	if (epd == SCIF_OPEN_FAILED)
		die("scif_open");
	return epd;
}

static bool close_on_exec(scif_epd_t epd)
{
	return fcntl(scif_get_fd(epd), F_GETFD) & FD_CLOEXEC;
}

static scif_epd_t accept_one(uint16_t port)
{
	struct scif_pollepd watched = { .events = POLLIN };
	scif_epd_t listener = open_endpoint();
	struct scif_portID peer = { 0, 0 };
	scif_epd_t epd = -1;

	test(!close_on_exec(listener), "the descriptor of scif_open survives exec");
	refused(scif_listen(listener, 1), EINVAL);
	test(scif_bind(listener, port) == port, "bind");
	refused(scif_listen(listener, 0), EINVAL);
	test(scif_listen(listener, 4) == 0, "listen");
	refused(scif_accept(listener, &peer, &epd, 0), EAGAIN);
	printf("# listening\n");
	fflush(stdout);

	watched.epd = listener;
	test(scif_poll(&watched, 1, -1) == 1 && watched.revents == POLLIN, "poll the listener");
	refused(scif_accept(listener, NULL, &epd, SCIF_ACCEPT_SYNC), EINVAL);
	refused(scif_accept(listener, &peer, NULL, SCIF_ACCEPT_SYNC), EINVAL);
	test(scif_accept(listener, &peer, &epd, SCIF_ACCEPT_SYNC) == 0, "accept");
	test(close_on_exec(epd), "the descriptor of scif_accept is closed on exec");
	test(peer.port >= SCIF_PORT_RSVD, "the client's port is not reserved");
	scif_close(listener);
	return epd;
}

static void serve(uint16_t port)
{
	scif_epd_t epd = accept_one(port);
	char *memory = pages(SIZE);
	char text[sizeof(ROUND)];
	int mark;

	test(scif_recv(epd, text, sizeof(text), SCIF_RECV_BLOCK) == sizeof(text), "receive");
	test(scif_send(epd, text, sizeof(text), SCIF_SEND_BLOCK) == sizeof(text), "send back");

	test(scif_register(epd, memory, SIZE, FIXED, SCIF_PROT_READ | SCIF_PROT_WRITE,
			   SCIF_MAP_FIXED) == FIXED, "register at an offset");
	test(scif_register(epd, memory, SIZE, FIXED, SCIF_PROT_READ, SCIF_MAP_FIXED) ==
	     SCIF_REGISTER_FAILED && errno == EADDRINUSE, "register at a used offset");
	test(scif_send(epd, text, 1, SCIF_SEND_BLOCK) == 1, "tell the client of the window");

	while (__atomic_load_n((uint64_t *)(memory + SIZE - 8), __ATOMIC_ACQUIRE) != DONE)
		sched_yield();
	test(is_filled(memory, SIZE - 8, 2), "the data was there before the signal");

	test(scif_fence_mark(epd, SCIF_FENCE_INIT_PEER, &mark) == 0, "mark the peer's transfers");
	test(scif_fence_wait(epd, mark) == 0, "wait for the peer's transfers");
	test(scif_send(epd, text, 1, SCIF_SEND_BLOCK) == 1, "tell the client of the signal");
	refused(scif_recv(epd, text, 1, SCIF_RECV_BLOCK), ECONNRESET);
	test(scif_close(epd) == 0, "close");
}

static void check_nodes(uint16_t there)
{
	uint16_t nodes[8] = { 0 }, self = 0xffff;
	int i, count = scif_get_nodeIDs(nodes, 8, &self);
	bool found_self = false, found_there = false;

	for (i = 0; i < count && i < 8; i++) {
		found_self |= nodes[i] == self;
		found_there |= nodes[i] == there;
	}
	test(count >= 1 && found_self && found_there, "both nodes are online");
	test(scif_get_nodeIDs(NULL, 0, &self) == count, "count the nodes that are online");
	refused(scif_get_nodeIDs(nodes, -1, &self), EINVAL);
}

/* Without a free descriptor, accept leaves the request in the queue. */
static void check_accept_without_descriptors(void)
{
	scif_epd_t listener = open_endpoint(), caller = open_endpoint(), epd = -1;
	struct scif_pollepd watched = { .events = POLLOUT };
	struct scif_portID own = { 0, 0 }, peer;
	struct rlimit old, none;

	scif_get_nodeIDs(NULL, 0, &own.node);
	own.port = scif_bind(listener, 0);
	fcntl(caller, F_SETFL, O_NONBLOCK);
	test(scif_listen(listener, 1) == 0, "listen on an assigned port");
	refused(scif_connect(caller, &own), EINPROGRESS);
	getrlimit(RLIMIT_NOFILE, &old);
	none = old;
	none.rlim_cur = 3;
	setrlimit(RLIMIT_NOFILE, &none);
	refused(scif_accept(listener, &peer, &epd, SCIF_ACCEPT_SYNC), EMFILE);
	refused(scif_accept(listener, &peer, &epd, SCIF_ACCEPT_SYNC), EMFILE);
	setrlimit(RLIMIT_NOFILE, &old);
	test(scif_accept(listener, &peer, &epd, SCIF_ACCEPT_SYNC) == 0,
	     "a request outlives a lack of descriptors");
	/* The news reaches the caller a moment later. */
	watched.epd = caller;
	test(scif_poll(&watched, 1, -1) == 1 && watched.revents == POLLOUT,
	     "poll reports the accept to the caller");
	test(scif_connect(caller, &own) == peer.port, "the caller is connected");
	scif_close(caller);
	scif_close(epd);
	scif_close(listener);
}

static void check_misuse(uint16_t node, uint16_t port)
{
	struct scif_portID there = { node, 0 };
	scif_epd_t epd = open_endpoint(), other;
	char byte = 0;

	refused(scif_connect(epd, NULL), EINVAL);
	refused(scif_connect(epd, &there), EINVAL);
	refused(scif_send(epd, &byte, 1, 0), ENOTCONN);
	refused(scif_send(epd, &byte, -1, 0), EINVAL);
	refused(scif_recv(epd, &byte, 1, 2), EINVAL);
	refused(scif_writeto(epd, 0, 4096, 0, 0), ENOTCONN);
	test(scif_mmap(NULL, 4096, PROT_EXEC, 0, epd, 0) == SCIF_MMAP_FAILED && errno == EINVAL,
	     "scif_mmap to execute: EINVAL");
	refused(scif_bind(STDIN_FILENO, port), ENOTTY);
	refused(scif_accept(STDIN_FILENO, &there, &other, 0), ENOTTY);
	refused(scif_accept(epd, &there, &other, 0), EINVAL);
	test(scif_close(epd) == 0, "close");
	refused(scif_accept(epd, &there, &other, 0), EBADF);
	refused(scif_listen(epd, 1), EBADF);
	refused(scif_close(epd), EBADF);
}

/* Checks the server's window, which holds pattern 1. */
static void check_mapping(scif_epd_t epd)
{
	char *mapped = scif_mmap(NULL, 8192, SCIF_PROT_READ | SCIF_PROT_WRITE, 0, epd,
				 FIXED + 4096);
	char *place = pages(8192);
	char expected[SIZE];

	fill(expected, sizeof(expected), 1);
	test(mapped != SCIF_MMAP_FAILED && !memcmp(mapped, expected + 4096, 8192), "map");
	mapped[4097] = 99;
	/* The CPU combines stores. The fence sends them off. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	expected[8193] = 99;
	test(scif_vreadfrom(epd, place, 2, FIXED + 8192, SCIF_RMA_SYNC) == 0 &&
	     !memcmp(place, expected + 8192, 2), "a store reaches the window");
	test(scif_mmap(place, 4096, SCIF_PROT_READ, SCIF_MAP_FIXED, epd, FIXED) == place &&
	     !memcmp(place, expected, 4096) && !place[4096], "map at a given address");
	test(scif_munmap(place, 4096) == 0 && scif_munmap(mapped, 8192) == 0, "unmap");
	test(scif_mmap(NULL, 4096, SCIF_PROT_READ, 0, epd, -4096) == SCIF_MMAP_FAILED &&
	     errno == ENXIO, "map at a negative offset: ENXIO");
	test(scif_mmap(NULL, 4096, SCIF_PROT_READ, 0, epd, FIXED + SIZE) == SCIF_MMAP_FAILED &&
	     errno == ENXIO, "map outside of all windows: ENXIO");
}

static void check_transfers(scif_epd_t epd)
{
	char *memory = pages(SIZE), *other = pages(SIZE);
	off_t own = scif_register(epd, memory, SIZE, 0, SCIF_PROT_READ | SCIF_PROT_WRITE, 0);
	int mark = 0;

	test(own != SCIF_REGISTER_FAILED && own % 4096 == 0, "register anywhere");
	fill(memory, SIZE, 1);
	test(scif_writeto(epd, own, SIZE, FIXED, SCIF_RMA_SYNC) == 0, "write from a window");
	test(scif_vreadfrom(epd, other + 3, SIZE - 3, FIXED, SCIF_RMA_SYNC) == 0 &&
	     is_filled(other + 3, SIZE - 3, 1), "read to memory, at another alignment");
	check_mapping(epd);
	test(scif_writeto(epd, own, SIZE, FIXED, SCIF_RMA_SYNC) == 0, "write from a window again");
	memset(memory, 0, SIZE);
	test(scif_readfrom(epd, own, SIZE, FIXED, SCIF_RMA_USECPU | SCIF_RMA_SYNC) == 0 &&
	     is_filled(memory, SIZE, 1), "read to a window, by CPU");

	fill(memory, SIZE, 2);
	test(scif_vwriteto(epd, memory, SIZE - 8, FIXED, 0) == 0, "write from memory");
	test(scif_fence_mark(epd, SCIF_FENCE_INIT_SELF, &mark) == 0 && mark > 0, "mark");
	test(scif_fence_wait(epd, mark) == 0, "wait");
	refused(scif_fence_mark(epd, SCIF_FENCE_INIT_SELF | SCIF_FENCE_INIT_PEER, &mark), EINVAL);
	refused(scif_writeto(epd, own, SIZE, FIXED + 4096, 0), ENXIO);
	test(scif_writeto(epd, own, SIZE - 8, FIXED, SCIF_RMA_ORDERED) == 0,
	     "write with SCIF_RMA_ORDERED");
	memset(memory + SIZE - 8, 0, 8);
	test(scif_fence_signal(epd, own + SIZE - 8, 77, SIGNAL, DONE, SCIF_FENCE_INIT_SELF |
			       SCIF_SIGNAL_LOCAL | SCIF_SIGNAL_REMOTE) == 0, "signal");
	test(scif_recv(epd, other, 1, SCIF_RECV_BLOCK) == 1, "the server has seen the signal");
	while (__atomic_load_n((uint64_t *)(memory + SIZE - 8), __ATOMIC_ACQUIRE) != 77)
		sched_yield();
	test(is_filled(memory, SIZE - 8, 2), "the local signal changes no other byte");
	refused(scif_unregister(epd, own, SIZE - 4096), EINVAL);
	test(scif_unregister(epd, own, SIZE) == 0, "unregister");
	refused(scif_writeto(epd, own, SIZE, FIXED, 0), ENXIO);
}

static void be_client(uint16_t node, uint16_t port)
{
	struct scif_portID there = { node, port };
	struct scif_pollepd watched = { .events = POLLIN | POLLOUT };
	char text[sizeof(ROUND)] = "";
	scif_epd_t epd;

	check_nodes(node);
	check_misuse(node, port);
	check_accept_without_descriptors();

	epd = open_endpoint();
	test(scif_connect(epd, &there) >= SCIF_PORT_RSVD, "connect");
	watched.epd = epd;
	test(scif_poll(&watched, 1, -1) == 1 && watched.revents == POLLOUT, "there is room");
	test(scif_send(epd, ROUND, sizeof(text), SCIF_SEND_BLOCK) == sizeof(text), "send");
	test(scif_recv(epd, text, sizeof(text), SCIF_RECV_BLOCK) == sizeof(text) &&
	     !strcmp(text, ROUND), "receive");
	test(scif_recv(epd, text, 1, SCIF_RECV_BLOCK) == 1, "the server has a window");
	check_transfers(epd);
	test(scif_close(epd) == 0, "close");
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "server")) {
		serve(atoi(argv[2]));
	} else if (argc == 4 && !strcmp(argv[1], "client")) {
		be_client(atoi(argv[2]), atoi(argv[3]));
	} else {
		fprintf(stderr, "usage: libscif_user server PORT | client NODE PORT\n");
		return 2;
	}
	return finish_tests();
}
