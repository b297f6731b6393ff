// SPDX-License-Identifier: GPL-2.0
/*
 * Lets each allocation, and each copy from and to user space, that a call of the interface makes
 * fail once. The first run fails the first one, the next run the second, and so on until the call
 * makes fewer.
 *
 *	scif_inject serve PORT			the peer
 *	scif_inject WHO NODE PORT [SCENARIO]	has calls fail towards a peer
 *
 * WHO is "caller" for failures in the calling thread, "workers" for failures in kernel threads on
 * this node, or "peers" for failures in kernel threads on the peer. The caller of this program sets
 * in debugfs which allocations count at all.
 *
 * Each time the call returns success or the reason of its failure. In both cases no resources
 * remain when its descriptors are closed: counters, pinned pages, descriptors. After an error the
 * same call succeeds without failures. After EFAULT a part may have been done, so the scenario
 * starts from the beginning.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/scif_services.h>

#include "checks.h"
#include "children.h"
#include "die.h"
#include "ends.h"
#include "fail_nth.h"
#include "numbers.h"
#include "window_memory.h"

#define WINDOW		0x10000000L
#define WINDOW_SIZE	(256L << 10)
/* Length of a stream that is longer than a ring. */
#define STREAM		(3L << 20)
/* Offset of signals, at the end of windows. Transfers use the bytes before it. */
#define SIGNAL_AT	(WINDOW_SIZE - 8)
#define LARGE		(WINDOW_SIZE - 4096)
#define NAME_CLASS	(SCIF_NAME_CLASS_USER + 1)
#define NAME		4711
/* If a call has more points of failure, this program is wrong. */
#define MOST_POINTS	5000
/* Seconds after which a run counts as hung. */
#define RUN_LIMIT	200

/* Requests of a client to the peer, sent over its connection. */
enum { TAKE, GIVE, CONNECT_BACK, ARM, DISARM };

struct command {
	__u32 what;
	__u32 value;
};

/* --- The peer --- */

enum way { RECEIVE, SEND };

static int move_some(enum way way, int fd, void *data, long len)
{
	return way == SEND ? scif_send(fd, data, len, SCIF_SEND_BLOCK) :
			     scif_recv(fd, data, len, SCIF_RECV_BLOCK);
}

static bool move_all(enum way way, int fd, void *data, long len)
{
	long done = 0;
	int moved;

	while (done < len) {
		moved = move_some(way, fd, (char *)data + done, len - done);
		if (moved < 0 && errno != EINTR && errno != ENOMEM)
			return false;
		done += moved > 0 ? moved : 0;
	}
	return true;
}

struct client {
	int fd;
	__u16 node;
	/* The endpoint that was connected back to the client, or -1. */
	int back;
};

/* Connects back to the client. Returns the error. */
static __s32 connect_back(struct client *client, __u16 port)
{
	client->back = scif_open();
	return scif_connect(client->back, client->node, port) < 0 ? errno : 0;
}

static bool obey(struct client *client, const struct command *command, char *stream)
{
	__s32 answer = 0;

	switch (command->what) {
	case TAKE:
		return move_all(RECEIVE, client->fd, stream, command->value);
	case GIVE:
		memset(stream, command->value & 0xff, STREAM);
		return move_all(SEND, client->fd, stream, command->value);
	case CONNECT_BACK:
		answer = connect_back(client, command->value);
		break;
	case ARM:
		fail_kernels_nth(command->value);
		break;
	case DISARM:
		answer = has_kernels_failed();
		break;
	}
	return move_all(SEND, client->fd, &answer, sizeof(answer));
}

static void *serve_one(void *argument)
{
	struct client *client = argument;
	char *window = memory_of(WINDOW_SIZE), *stream = memory_of(STREAM);
	struct command command;
	char ready = 1;

	if (scif_register(client->fd, window, WINDOW_SIZE, WINDOW,
			  SCIF_PROT_READ | SCIF_PROT_WRITE, SCIF_MAP_FIXED) >= 0 &&
	    move_all(SEND, client->fd, &ready, 1))
		while (move_all(RECEIVE, client->fd, &command, sizeof(command)) &&
		       obey(client, &command, stream))
			;
	if (client->back >= 0)
		close(client->back);
	close(client->fd);
	munmap(window, WINDOW_SIZE);
	munmap(stream, STREAM);
	free(client);
	return NULL;
}

static void serve(__u16 port)
{
	int listener = scif_open();
	struct scif_bind_name name = {
		.size = sizeof(name), .name_class = NAME_CLASS, .name = NAME,
	};
	struct scif_port_id from;
	struct client *client;
	pthread_t thread;
	int fd;

	if (scif_bind(listener, &port) || ioctl(listener, SCIF_BIND_NAME, &name) ||
	    scif_listen(listener, 16))
		die("a listener");
	printf("listening\n");
	fflush(stdout);
	for (;;) {
		fd = scif_accept(listener, &from, SCIF_ACCEPT_SYNC);
		/* Memory may be short on this node itself. */
		if (fd < 0 && errno == ENOMEM)
			continue;
		if (fd < 0)
			die("SCIF_ACCEPTREQ");
		client = malloc(sizeof(*client));
		*client = (struct client){ .fd = fd, .node = from.node, .back = -1 };
		if (pthread_create(&thread, NULL, serve_one, client))
			die("pthread_create");
		pthread_detach(thread);
	}
}

/* --- State of a scenario --- */

static __u16 peer_node, peer_port;
/* Whether the peer's memory can be mapped, which is not so in bounce mode. */
static bool has_maps;

static struct state {
	/* Endpoint that is connected to the peer. */
	int fd;
	/* Another endpoint, or another descriptor that a call has made. */
	int other;
	__u16 port;
	__u64 handle;
	__s32 mark;
	char *memory, *map;
	/* Bytes of the stream that were moved. */
	long done;
} now_has;

struct scenario {
	const char *name;
	/* Makes the call. Returns 0, or -1 with errno. */
	int (*act)(const struct scenario *scenario);
	void (*prepare)(void);
	/* Checks the effect of the call, without failures. */
	void (*verify)(const struct scenario *scenario);
	/* Call and flags of transfers. */
	unsigned long call;
	int flags;
	long from, len;
	/*
	 * For calls whose state is gone after a failure: the scenario then starts from the
	 * beginning.
	 */
	bool (*is_over)(void);
};

static void tell_peer(__u32 what, __u32 value)
{
	struct command command = { what, value };

	expect(move_all(SEND, now_has.fd, &command, sizeof(command)));
}

static __s32 answer_of_peer(void)
{
	__s32 answer;

	expect(move_all(RECEIVE, now_has.fd, &answer, sizeof(answer)));
	return answer;
}

static void begin_connected(void)
{
	char ready = 0;

	now_has.fd = scif_open();
	expect_ok(scif_connect(now_has.fd, peer_node, peer_port));
	expect(move_all(RECEIVE, now_has.fd, &ready, 1));
	expect(ready == 1);
}

static void begin_with_window(void)
{
	begin_connected();
	now_has.memory = memory_of(WINDOW_SIZE);
	memset(now_has.memory, 0, WINDOW_SIZE);
	expect_ok(scif_register(now_has.fd, now_has.memory, WINDOW_SIZE, WINDOW,
				SCIF_PROT_READ | SCIF_PROT_WRITE, SCIF_MAP_FIXED));
}

static void end_all(void)
{
	if (now_has.map)
		munmap(now_has.map, WINDOW_SIZE);
	if (now_has.other >= 0)
		close(now_has.other);
	if (now_has.fd >= 0)
		close(now_has.fd);
	if (now_has.memory)
		munmap(now_has.memory, WINDOW_SIZE);
	now_has = (struct state){ .fd = -1, .other = -1 };
}

/* --- Endpoints --- */

static int act_open(const struct scenario *scenario)
{
	now_has.other = open(scif_device, O_RDWR | O_CLOEXEC);
	if (now_has.other < 0)
		return -1;
	return 0;
}

static void begin_open(void)
{
	now_has.other = scif_open();
}

static int act_bind(const struct scenario *scenario)
{
	return scif_bind(now_has.other, &now_has.port);
}

static void begin_bound(void)
{
	begin_open();
	expect_ok(scif_bind(now_has.other, &now_has.port));
}

static int act_bind_name(const struct scenario *scenario)
{
	struct scif_bind_name name = {
		.size = sizeof(name), .flags = SCIF_NAME_ANY, .name_class = NAME_CLASS,
	};

	return ioctl(now_has.other, SCIF_BIND_NAME, &name);
}

static int act_listen(const struct scenario *scenario)
{
	return scif_listen(now_has.other, 4);
}

static int act_connect(const struct scenario *scenario)
{
	return scif_connect(now_has.other, peer_node, peer_port) < 0 ? -1 : 0;
}

static int act_connect_later(const struct scenario *scenario)
{
	int result;

	expect(!fcntl(now_has.other, F_SETFL, O_NONBLOCK));
	result = scif_connect(now_has.other, peer_node, peer_port);
	if (result < 0 && errno != EINPROGRESS)
		return -1;
	while (!wait_for(now_has.other, POLLOUT))
		;
	result = scif_connect(now_has.other, peer_node, peer_port);
	return result < 0 ? -1 : 0;
}

static int act_connect_name(const struct scenario *scenario)
{
	struct scif_connect_name name = {
		.size = sizeof(name), .name_class = NAME_CLASS, .name = NAME, .node = peer_node,
	};

	return ioctl(now_has.other, SCIF_CONNECT_NAME, &name);
}

static void verify_connected(const struct scenario *scenario)
{
	char ready = 0;

	fcntl(now_has.other, F_SETFL, 0);
	expect(move_all(RECEIVE, now_has.other, &ready, 1));
	expect(ready == 1);
}

/* Another endpoint waits in a connect. */
static void begin_asked(void)
{
	begin_connected();
	begin_bound();
	expect_ok(scif_listen(now_has.other, 4));
	tell_peer(CONNECT_BACK, now_has.port);
	expect(wait_for(now_has.other, POLLIN));
}

static int act_accept(const struct scenario *scenario)
{
	struct scifioctl_accept argument = { };
	int accepted;

	if (!now_has.handle) {
		if (ioctl(now_has.other, scif_acceptreq, &argument) < 0)
			return -1;
		now_has.handle = argument.endpt;
	}
	accepted = open(scif_device, O_RDWR | O_CLOEXEC);
	if (accepted < 0)
		return -1;
	if (ioctl(accepted, SCIF_ACCEPTREG, &now_has.handle)) {
		int error = errno;

		close(accepted);
		errno = error;
		return -1;
	}
	close(now_has.other);
	now_has.other = accepted;
	return 0;
}

/* The connector gets a refusal, unless it still waits. */
static bool is_refused(void)
{
	if (now_has.handle || events(now_has.other, POLLIN, 0))
		return false;
	expect(answer_of_peer());
	return true;
}

static void verify_accepted(const struct scenario *scenario)
{
	expect_value(answer_of_peer(), 0);
}

/* Closing never fails, whatever the state of the endpoint. */
static int act_close(const struct scenario *scenario)
{
	int fd = now_has.other;

	now_has.other = -1;
	return close(fd);
}

static int act_close_connected(const struct scenario *scenario)
{
	int fd = now_has.fd;

	now_has.fd = -1;
	return close(fd);
}

/*
 * The endpoint has windows and a map, transfers in flight, a signal that waits for them, and bytes
 * that were not received.
 */
static void begin_busy(void)
{
	struct scifioctl_copy copy = { .loffset = WINDOW, .len = LARGE, .roffset = WINDOW };
	struct scifioctl_fence_signal signal = {
		.loff = WINDOW + SIGNAL_AT, .roff = WINDOW + SIGNAL_AT, .lval = 1, .rval = 1,
		.flags = SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL | SCIF_SIGNAL_REMOTE,
	};
	int i;

	begin_with_window();
	if (has_maps) {
		now_has.map = mmap(NULL, WINDOW_SIZE, PROT_READ, MAP_SHARED, now_has.fd, WINDOW);
		expect(now_has.map != MAP_FAILED);
	}
	tell_peer(GIVE, 4096);
	expect(wait_for(now_has.fd, POLLIN));
	for (i = 0; i < 3; i++) {
		expect_ok(ioctl(now_has.fd, SCIF_READFROM, &copy));
		expect_ok(ioctl(now_has.fd, SCIF_FENCE_SIGNAL, &signal));
	}
}

/* --- Messages --- */

static void begin_stream(void)
{
	begin_connected();
	now_has.memory = memory_of(WINDOW_SIZE);
	memset(now_has.memory, 0x11, WINDOW_SIZE);
}

static void begin_sending(void)
{
	begin_stream();
	tell_peer(TAKE, STREAM);
}

/* Continues a stream until `len` bytes of it are done. */
static int move_stream(enum way way, long len)
{
	long piece;
	int moved;

	while (now_has.done < len) {
		piece = len - now_has.done;
		piece = piece < WINDOW_SIZE ? piece : WINDOW_SIZE;
		moved = move_some(way, now_has.fd, now_has.memory, piece);
		if (moved < 0)
			return -1;
		now_has.done += moved;
	}
	return 0;
}

static int act_send(const struct scenario *scenario)
{
	return move_stream(SEND, scenario->len);
}

static int act_send_all(const struct scenario *scenario)
{
	struct scif_send_all argument = {
		.size = sizeof(argument), .flags = SCIF_SEND_ALL_BLOCK,
		.msg = (uintptr_t)now_has.memory, .len = scenario->len,
	};

	if (ioctl(now_has.fd, SCIF_SEND_ALL, &argument) < 0)
		return -1;
	now_has.done = scenario->len;
	return 0;
}

/* Sends the rest, and waits for the peer's answer. */
static void verify_sent(const struct scenario *scenario)
{
	memset(now_has.memory, 0, WINDOW_SIZE);
	while (now_has.done < STREAM) {
		long piece = STREAM - now_has.done;

		piece = piece < WINDOW_SIZE ? piece : WINDOW_SIZE;
		expect(move_all(SEND, now_has.fd, now_has.memory, piece));
		now_has.done += piece;
	}
	tell_peer(DISARM, 0);
	expect_value(answer_of_peer(), 0);
}

static void begin_receiving(void)
{
	begin_stream();
	tell_peer(GIVE, STREAM);
	expect(wait_for(now_has.fd, POLLIN));
}

static int act_receive(const struct scenario *scenario)
{
	return move_stream(RECEIVE, scenario->len);
}

static int act_poll(const struct scenario *scenario)
{
	struct pollfd pollfd = { .fd = now_has.fd, .events = POLLIN | POLLOUT };

	if (poll(&pollfd, 1, 0) < 0)
		return -1;
	expect(pollfd.revents == POLLOUT);
	return 0;
}

/* --- Windows --- */

static void begin_memory(void)
{
	begin_connected();
	now_has.memory = memory_of(WINDOW_SIZE);
}

static int act_register(const struct scenario *scenario)
{
	return scif_register(now_has.fd, now_has.memory, WINDOW_SIZE, WINDOW,
			  SCIF_PROT_READ | SCIF_PROT_WRITE, scenario->flags) < 0 ? -1 : 0;
}

static int act_unregister(const struct scenario *scenario)
{
	return scif_unregister(now_has.fd, WINDOW, WINDOW_SIZE);
}

static int act_create_memory(const struct scenario *scenario)
{
	struct scif_memory_create argument = {
		.size = sizeof(argument), .address = (uintptr_t)now_has.memory, .len = WINDOW_SIZE,
		.prot = SCIF_PROT_READ | SCIF_PROT_WRITE,
	};

	if (ioctl(now_has.fd, SCIF_MEMORY_CREATE, &argument) < 0)
		return -1;
	now_has.other = argument.fd;
	return 0;
}

static void begin_with_created(void)
{
	begin_memory();
	expect_value(act_create_memory(NULL), 0);
}

static int act_register_created(const struct scenario *scenario)
{
	struct scif_memory_register argument = {
		.size = sizeof(argument), .flags = SCIF_MAP_FIXED, .fd = now_has.other,
		.prot = SCIF_PROT_READ | SCIF_PROT_WRITE, .len = WINDOW_SIZE, .offset = WINDOW,
	};

	return ioctl(now_has.fd, SCIF_MEMORY_REGISTER, &argument);
}

/* --- Transfers --- */

static bool is_write(const struct scenario *scenario)
{
	return scenario->call == SCIF_WRITETO || scenario->call == SCIF_VWRITETO;
}

/* Copies the memory of the other side, in the way with the fewest points of failure. */
static void copy_peers(unsigned long call, void *memory)
{
	struct scifioctl_copy copy = {
		.addr = (uintptr_t)memory, .len = LARGE, .roffset = WINDOW, .flags = SCIF_RMA_SYNC,
	};

	expect_ok(ioctl(now_has.fd, call, &copy));
}

static void fill(char *memory, char first)
{
	long i;

	for (i = 0; i < LARGE; i++)
		memory[i] = first + i % 251;
}

static void begin_transfer(void)
{
	begin_with_window();
	fill(now_has.memory, 1);
	copy_peers(SCIF_VWRITETO, now_has.memory);
	fill(now_has.memory, 2);
}

static int act_transfer(const struct scenario *scenario)
{
	struct scifioctl_copy copy = {
		.loffset = WINDOW + scenario->from,
		.addr = (uintptr_t)now_has.memory + scenario->from,
		.len = scenario->len, .roffset = WINDOW + scenario->from, .flags = scenario->flags,
	};

	if (ioctl(now_has.fd, scenario->call, &copy) < 0)
		return -1;
	if (scenario->flags & SCIF_RMA_SYNC)
		return 0;
	if (scif_fence_mark(now_has.fd, SCIF_FENCE_INIT_SELF, &now_has.mark) < 0)
		return -1;
	return scif_fence_wait(now_has.fd, now_has.mark);
}

/* Checks that exactly the requested bytes were copied. */
static void verify_transfer(const struct scenario *scenario)
{
	char *found = memory_of(WINDOW_SIZE), first, other;
	long i, inside;

	if (is_write(scenario))
		copy_peers(SCIF_VREADFROM, found);
	else
		memcpy(found, now_has.memory, LARGE);
	first = is_write(scenario) ? 2 : 1;
	other = is_write(scenario) ? 1 : 2;
	for (i = 0; i < LARGE; i++) {
		inside = i >= scenario->from && i < scenario->from + scenario->len;
		if (found[i] != (char)((inside ? first : other) + i % 251))
			fail("byte %ld is %d", i, found[i]);
	}
	munmap(found, WINDOW_SIZE);
}

static void begin_under_way(void)
{
	struct scifioctl_copy copy = { .loffset = WINDOW, .len = LARGE, .roffset = WINDOW };

	begin_transfer();
	expect_ok(ioctl(now_has.fd, SCIF_READFROM, &copy));
}

static int act_fence(const struct scenario *scenario)
{
	if (scif_fence_mark(now_has.fd, scenario->flags, &now_has.mark) < 0)
		return -1;
	return scif_fence_wait(now_has.fd, now_has.mark);
}

static __u64 *signal_word(void)
{
	return (__u64 *)(now_has.memory + SIGNAL_AT);
}

static int act_signal(const struct scenario *scenario)
{
	struct scifioctl_fence_signal argument = {
		.loff = WINDOW + SIGNAL_AT, .roff = WINDOW + SIGNAL_AT, .lval = 77, .rval = 78,
		.flags = scenario->flags,
	};

	if (ioctl(now_has.fd, SCIF_FENCE_SIGNAL, &argument) < 0)
		return -1;
	/* A failed transfer stores no signal, so this waits for a mark. */
	if (scif_fence_mark(now_has.fd, SCIF_FENCE_INIT_SELF, &now_has.mark) < 0)
		return -1;
	return scif_fence_wait(now_has.fd, now_has.mark);
}

static void verify_signal(const struct scenario *scenario)
{
	struct scifioctl_copy copy = {
		.len = 8, .roffset = WINDOW + SIGNAL_AT, .flags = SCIF_RMA_SYNC | SCIF_RMA_USECPU,
	};
	volatile __u64 remote = 0;

	if (scenario->flags & SCIF_SIGNAL_LOCAL)
		wait_until(__atomic_load_n(signal_word(), __ATOMIC_RELAXED) == 77);
	if (!(scenario->flags & SCIF_SIGNAL_REMOTE))
		return;
	copy.addr = (uintptr_t)&remote;
	do
		expect_ok(ioctl(now_has.fd, SCIF_VREADFROM, &copy));
	while (remote != 78 && !usleep(1000));
}

/* --- Maps --- */

static int act_map(const struct scenario *scenario)
{
	char *map = mmap(NULL, WINDOW_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, now_has.fd, WINDOW);

	if (map == MAP_FAILED)
		return -1;
	now_has.map = map;
	return 0;
}

static void begin_mapped(void)
{
	begin_connected();
	expect_value(act_map(NULL), 0);
}

static bool can_map(void)
{
	int result;

	begin_connected();
	result = act_map(NULL);
	expect(!result || errno == EOPNOTSUPP);
	end_all();
	return !result;
}

static sigjmp_buf hit;

static void on_bus_error(int number)
{
	siglongjmp(hit, 1);
}

static int act_touch(const struct scenario *scenario)
{
	volatile char *map = now_has.map;
	long i;

	if (sigsetjmp(hit, 1)) {
		errno = EIO;
		return -1;
	}
	for (i = 0; i < WINDOW_SIZE; i += 4096) {
		(void)map[i];
		map[i] = 5;
	}
	return 0;
}

static int act_unmap(const struct scenario *scenario)
{
	if (munmap(now_has.map, WINDOW_SIZE) < 0)
		return -1;
	now_has.map = NULL;
	return 0;
}

static void verify_map(const struct scenario *scenario)
{
	expect_value(act_touch(scenario), 0);
}

/* --- Nodes --- */

static int act_nodes(const struct scenario *scenario)
{
	__u16 nodes[8], self;
	int count;

	count = scif_nodes(now_has.other, nodes, 8, &self);
	if (count < 0)
		return -1;
	expect(count >= 1 && nodes[0] == self);
	return 0;
}

static int act_status(const struct scenario *scenario)
{
	struct scif_node_status argument = { .size = sizeof(argument), .node = peer_node };

	if (ioctl(now_has.fd, SCIF_NODE_STATUS, &argument) < 0)
		return -1;
	now_has.other = argument.fd;
	return 0;
}

static void begin_status(void)
{
	begin_connected();
	expect_value(act_status(NULL), 0);
}

static int act_read_status(const struct scenario *scenario)
{
	struct scif_status_page *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, now_has.other, 0);
	__u64 epoch;

	if (page == MAP_FAILED)
		return -1;
	epoch = page->epoch;
	munmap(page, 4096);
	expect(epoch & 1);
	return read(now_has.other, &epoch, sizeof(epoch)) < 0 ? -1 : 0;
}

static int act_policy(const struct scenario *scenario)
{
	struct scif_map_policy argument = {
		.size = sizeof(argument), .flags = SCIF_MAP_ONES_AFTER_LOSS,
	};

	return ioctl(now_has.other, SCIF_MAP_POLICY, &argument);
}

static int act_address(const struct scenario *scenario)
{
	struct scif_remote_address argument = {
		.size = sizeof(argument), .offset = WINDOW, .len = 4096,
	};

	/* EOPNOTSUPP is right if no device reaches the memory. */
	if (ioctl(now_has.fd, SCIF_REMOTE_ADDRESS, &argument) && errno != EOPNOTSUPP)
		return -1;
	return 0;
}

/* --- All scenarios --- */

#define BOTH	(SCIF_SIGNAL_LOCAL | SCIF_SIGNAL_REMOTE)
#define TRANSFER(NAME, CALL, FLAGS, FROM, LEN) \
	{ .name = NAME, .act = act_transfer, .prepare = begin_transfer, .verify = verify_transfer, \
	  .call = CALL, .flags = FLAGS, .from = FROM, .len = LEN }

static const struct scenario scenarios[] = {
	{ .name = "open", .act = act_open },
	{ .name = "bind", .act = act_bind, .prepare = begin_open },
	{ .name = "bind_name", .act = act_bind_name, .prepare = begin_bound },
	{ .name = "listen", .act = act_listen, .prepare = begin_bound },
	{ .name = "connect", .act = act_connect, .prepare = begin_open,
	  .verify = verify_connected },
	{ .name = "connect_later", .act = act_connect_later, .prepare = begin_open,
	  .verify = verify_connected },
	{ .name = "connect_name", .act = act_connect_name, .prepare = begin_open,
	  .verify = verify_connected },
	{ .name = "accept", .act = act_accept, .prepare = begin_asked, .verify = verify_accepted,
	  .is_over = is_refused },
	{ .name = "close", .act = act_close, .prepare = begin_bound },
	{ .name = "close_asked", .act = act_close, .prepare = begin_asked },
	{ .name = "close_connected", .act = act_close_connected, .prepare = begin_connected },
	{ .name = "close_busy", .act = act_close_connected, .prepare = begin_busy },
	{ .name = "send", .act = act_send, .prepare = begin_sending, .verify = verify_sent,
	  .len = 1 },
	{ .name = "send_stream", .act = act_send, .prepare = begin_sending,
	  .verify = verify_sent, .len = STREAM },
	{ .name = "send_all", .act = act_send_all, .prepare = begin_sending,
	  .verify = verify_sent, .len = 65536 },
	{ .name = "receive", .act = act_receive, .prepare = begin_receiving, .len = 1 },
	{ .name = "receive_stream", .act = act_receive, .prepare = begin_receiving, .len = STREAM },
	{ .name = "poll", .act = act_poll, .prepare = begin_connected },
	{ .name = "register", .act = act_register, .prepare = begin_memory,
	  .flags = SCIF_MAP_FIXED },
	{ .name = "register_anywhere", .act = act_register, .prepare = begin_memory },
	{ .name = "unregister", .act = act_unregister, .prepare = begin_with_window },
	{ .name = "create_memory", .act = act_create_memory, .prepare = begin_memory },
	{ .name = "register_created", .act = act_register_created, .prepare = begin_with_created },
	{ .name = "close_memory", .act = act_close, .prepare = begin_with_created },
	TRANSFER("readfrom_64", SCIF_READFROM, SCIF_RMA_SYNC, 0, 64),
	TRANSFER("writeto_64", SCIF_WRITETO, SCIF_RMA_SYNC, 0, 64),
	TRANSFER("vreadfrom_64", SCIF_VREADFROM, SCIF_RMA_SYNC, 0, 64),
	TRANSFER("vwriteto_64", SCIF_VWRITETO, SCIF_RMA_SYNC, 0, 64),
	TRANSFER("readfrom_large", SCIF_READFROM, SCIF_RMA_SYNC, 0, LARGE),
	TRANSFER("writeto_large", SCIF_WRITETO, SCIF_RMA_SYNC, 0, LARGE),
	TRANSFER("vreadfrom_large", SCIF_VREADFROM, SCIF_RMA_SYNC, 0, LARGE),
	TRANSFER("vwriteto_large", SCIF_VWRITETO, SCIF_RMA_SYNC, 0, LARGE),
	TRANSFER("readfrom_later", SCIF_READFROM, 0, 0, LARGE),
	TRANSFER("writeto_later", SCIF_WRITETO, 0, 0, LARGE),
	TRANSFER("vreadfrom_later", SCIF_VREADFROM, 0, 0, LARGE),
	TRANSFER("vwriteto_later", SCIF_VWRITETO, 0, 0, LARGE),
	TRANSFER("readfrom_odd", SCIF_READFROM, 0, 3, LARGE - 10),
	TRANSFER("writeto_odd", SCIF_WRITETO, 0, 3, LARGE - 10),
	TRANSFER("vreadfrom_odd", SCIF_VREADFROM, 0, 3, LARGE - 10),
	TRANSFER("vwriteto_odd", SCIF_VWRITETO, 0, 3, LARGE - 10),
	TRANSFER("readfrom_cpu", SCIF_READFROM, SCIF_RMA_SYNC | SCIF_RMA_USECPU, 0, LARGE),
	TRANSFER("writeto_cpu", SCIF_WRITETO, SCIF_RMA_SYNC | SCIF_RMA_USECPU, 0, LARGE),
	TRANSFER("vreadfrom_cpu", SCIF_VREADFROM, SCIF_RMA_SYNC | SCIF_RMA_USECPU, 0, LARGE),
	TRANSFER("vwriteto_cpu", SCIF_VWRITETO, SCIF_RMA_SYNC | SCIF_RMA_USECPU, 0, LARGE),
	TRANSFER("readfrom_ordered", SCIF_READFROM, SCIF_RMA_ORDERED, 0, LARGE),
	TRANSFER("writeto_ordered", SCIF_WRITETO, SCIF_RMA_ORDERED, 0, LARGE),
	TRANSFER("vreadfrom_ordered", SCIF_VREADFROM, SCIF_RMA_ORDERED, 0, LARGE),
	TRANSFER("vwriteto_ordered", SCIF_VWRITETO, SCIF_RMA_ORDERED, 0, LARGE),
	TRANSFER("vreadfrom_cached", SCIF_VREADFROM, SCIF_RMA_USECACHE, 0, LARGE),
	TRANSFER("vwriteto_cached", SCIF_VWRITETO, SCIF_RMA_USECACHE, 0, LARGE),
	{ .name = "fence", .act = act_fence, .prepare = begin_under_way,
	  .flags = SCIF_FENCE_INIT_SELF },
	{ .name = "fence_peer", .act = act_fence, .prepare = begin_under_way,
	  .flags = SCIF_FENCE_INIT_PEER },
	{ .name = "signal", .act = act_signal, .prepare = begin_under_way,
	  .verify = verify_signal, .flags = SCIF_FENCE_INIT_SELF | BOTH },
	{ .name = "signal_at_rest", .act = act_signal, .prepare = begin_with_window,
	  .verify = verify_signal, .flags = SCIF_FENCE_INIT_SELF | BOTH },
	{ .name = "signal_peer", .act = act_signal, .prepare = begin_under_way,
	  .verify = verify_signal, .flags = SCIF_FENCE_INIT_PEER | BOTH },
	{ .name = "map", .act = act_map, .prepare = begin_connected, .verify = verify_map },
	{ .name = "touch", .act = act_touch, .prepare = begin_mapped },
	{ .name = "unmap", .act = act_unmap, .prepare = begin_mapped },
	{ .name = "nodes", .act = act_nodes, .prepare = begin_open },
	{ .name = "status", .act = act_status, .prepare = begin_connected },
	{ .name = "read_status", .act = act_read_status, .prepare = begin_status },
	{ .name = "map_policy", .act = act_policy, .prepare = begin_open },
	{ .name = "remote_address", .act = act_address, .prepare = begin_connected },
	{ }
};

/* --- Runs --- */

enum side { CALLER, WORKERS, PEERS };

static enum side failing;
static long n;

/* The connection over which the peer learns which allocation has to fail on its node. */
static struct state control;

static void begin_failures(void)
{
	struct state mine = now_has;

	switch (failing) {
	case CALLER:
		return fail_own_nth(n);
	case WORKERS:
		return fail_kernels_nth(n);
	case PEERS:
		now_has = control;
		tell_peer(ARM, n);
		expect_value(answer_of_peer(), 0);
		now_has = mine;
	}
}

static bool end_failures(void)
{
	struct state mine = now_has;
	bool failed;

	switch (failing) {
	case CALLER:
		return has_own_failed();
	case WORKERS:
		return has_kernels_failed();
	case PEERS:
		break;
	}
	now_has = control;
	tell_peer(DISARM, 0);
	failed = answer_of_peer();
	now_has = mine;
	return failed;
}

/* A ring for which the peer had no memory stays small for ever. */
static bool is_for_ever(int error)
{
	return failing != CALLER && error == EMSGSIZE;
}

/*
 * Returns whether this error is allowed: no memory or a bad address. For failures elsewhere, their
 * effects on others are allowed as well.
 */
static bool is_clean(int error)
{
	if (error == ENOMEM)
		return true;
	if (failing == CALLER)
		return error == EFAULT;
	return error == EIO || error == ECONNREFUSED || is_for_ever(error);
}

static int next_descriptor(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}

static long held(void)
{
	return counter("connections") + counter("closing_connections") +
	       counter("exported_windows") + counter("mappings") + own_pinned_pages() +
	       pinned_pages();
}

static void do_once(const struct scenario *scenario, bool *failed, int *error)
{
	if (scenario->prepare)
		scenario->prepare();
	begin_failures();
	*error = scenario->act(scenario) ? errno : 0;
	*failed = end_failures();
}

/* Runs a scenario with a failure. Returns whether a point has failed. */
static bool run_with_failure(const struct scenario *scenario, int *error)
{
	bool failed, again;

	do_once(scenario, &failed, error);
	if (*error && !failed)
		fail("at point %ld the scenario fails by itself: %s", n, strerror(*error));
	if (*error && !is_clean(*error))
		fail("the program gets %s when point %ld fails", strerror(*error), n);
	again = *error == EFAULT || is_for_ever(*error) ||
		(*error && scenario->is_over && scenario->is_over());
	if (again) {
		end_all();
		if (scenario->prepare)
			scenario->prepare();
	}
	if (*error) {
		const char *first = strerrorname_np(*error);

		if (scenario->act(scenario))
			fail("%s after %s at point %ld", strerrorname_np(errno), first, n);
	}
	if (scenario->verify)
		scenario->verify(scenario);
	end_all();
	return failed;
}

static void on_alarm(int number)
{
	fail("the scenario hangs when point %ld fails", n);
}

/* Runs a scenario, and ends the process if its state is wrong afterwards. */
static void run(const struct scenario *scenario)
{
	int descriptor, error, errors = 0, masked = 0;
	bool failed = true;
	long idle;

	if (failing == PEERS) {
		begin_connected();
		control = now_has;
		now_has = (struct state){ .fd = -1, .other = -1 };
	}
	/* Opens files that stay open, so that the idle counts include them. */
	fail_own_nth(0);
	idle = held();
	descriptor = next_descriptor();
	for (n = 1; failed; n++) {
		alarm(RUN_LIMIT);
		if (n > MOST_POINTS)
			fail("the scenario has too many points");
		failed = run_with_failure(scenario, &error);
		errors += error != 0;
		masked += failed && !error;
		if (!comes_to(held, idle))
			fail("objects are left when point %ld has failed", n);
		if (next_descriptor() != descriptor)
			fail("a descriptor is left when point %ld has failed", n);
	}
	printf("# %ld points: %d errors, %d without an error\n", n - 2, errors, masked);
	fflush(stdout);
}

static void run_all(const char *wanted)
{
	const struct scenario *scenario;
	int status;
	pid_t child;

	signal(SIGALRM, on_alarm);
	signal(SIGBUS, on_bus_error);
	signal(SIGPIPE, SIG_IGN);
	now_has = (struct state){ .fd = -1, .other = -1 };
	has_maps = can_map();
	for (scenario = scenarios; scenario->name; scenario++) {
		if (wanted && !strstr(scenario->name, wanted))
			continue;
		if (!has_maps && (scenario->act == act_map || scenario->prepare == begin_mapped))
			continue;
		/*
		 * A scenario that has gone wrong is over, and the next one begins in a new process.
		 */
		child = new_child();
		if (!child) {
			run(scenario);
			_exit(0);
		}
		status = wait_for_child(child);
		tap_line(!status, "%s", scenario->name);
	}
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "caller", "workers", "peers" };

	if (argc == 3 && !strcmp(argv[1], "serve"))
		serve(atoi(argv[2]));
	for (failing = CALLER; argc >= 4 && failing <= PEERS; failing++) {
		if (strcmp(argv[1], names[failing]))
			continue;
		peer_node = atoi(argv[2]);
		peer_port = atoi(argv[3]);
		run_all(argv[4]);
		return finish_tests();
	}
	fprintf(stderr, "usage: scif_inject serve PORT\n"
		"       scif_inject caller|workers|peers NODE PORT [SCENARIO]\n");
	return 2;
}
