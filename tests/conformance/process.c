// SPDX-License-Identifier: GPL-2.0
/*
 * fork, exec, kill and threads.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../harness/suite.h"

static void send_as_child(void *data)
{
	struct pair *pair = data;

	expect_value(scif_send(pair->here, "child", 5, SCIF_SEND_BLOCK), 5);
}

static void fork_shares(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1);

	child_passed(in_child(send_as_child, &pair));
	/* The child has ended, but the connection has not. */
	expect_value(ask(pair.peer, DO_RECV, pair.there, memory, 5, SCIF_RECV_BLOCK), 5);
	expect_value(scif_send(pair.here, "parent", 6, SCIF_SEND_BLOCK), 6);
	expect_value(ask(pair.peer, DO_RECV, pair.there, memory, 6, SCIF_RECV_BLOCK), 6);
	expect_value(ask(pair.peer, DO_POLL, pair.there, POLLIN | POLLOUT, 0), POLLOUT);
}

static void wait_for_signal(void *data)
{
	for (;;)
		pause();
}

static void fork_close(void)
{
	struct pair pair = connected();
	pid_t child = in_child(wait_for_signal, NULL);

	expect_value(scif_close(pair.here), 0);
	/* The child still has the endpoint. */
	expect_value(ask(pair.peer, DO_POLL, pair.there, POLLIN | POLLOUT, 0), POLLOUT);
	kill(child, SIGKILL);
	expect_value(child_signal(child), SIGKILL);
	expect(ask(pair.peer, DO_POLL, pair.there, 0, -1) & POLLHUP);
}

static void accept_as_child(void *data)
{
	int listener = *(int *)data, accepted;
	struct scif_port_id from;

	expect_value(scif_accept(listener, &from, &accepted, SCIF_ACCEPT_SYNC), 0);
	expect_value(scif_send(accepted, "child", 5, SCIF_SEND_BLOCK), 5);
}

static void fork_listener(void)
{
	struct peer *peer = new_peer();
	__u16 port = 0;
	int listener = listening(&port, 4);
	long endpoint = expect_ok(ask(peer, DO_OPEN));
	__s64 memory = ask(peer, DO_PAGES, 1);
	pid_t child = in_child(accept_as_child, &listener);

	expect_ok(ask(peer, DO_CONNECT, endpoint, own_node(), port));
	expect_value(ask(peer, DO_RECV, endpoint, memory, 5, SCIF_RECV_BLOCK), 5);
	child_passed(child);
	expect(ask(peer, DO_POLL, endpoint, 0, -1) & POLLHUP);
}

static void fork_windows(void)
{
	struct windows windows = connected_windows(4);
	struct pair *pair = &windows.pair;
	pid_t child = in_child(wait_for_signal, NULL);

	/* The pages are MADV_DONTFORK, so the peer sees what this process writes. */
	fill(windows.memory, 5, windows.len);
	expect_value(ask(pair->peer, DO_READFROM, pair->there, windows.peer_offset, windows.len,
			 windows.offset, SYNC), 0);
	expect_value(ask(pair->peer, DO_DIFFERS, windows.peer_memory, 5, windows.len), -1);
	ask(pair->peer, DO_FILL, windows.peer_memory, 6, windows.len);
	expect_value(ask(pair->peer, DO_WRITETO, pair->there, windows.peer_offset, windows.len,
			 windows.offset, SYNC), 0);
	expect_value(differs(windows.memory, 6, windows.len), -1);
	kill(child, SIGKILL);
	expect_value(child_signal(child), SIGKILL);
	/* Only the parent is charged for locked memory, before and after. */
	expect_value(locked(), windows.len);
}

static void register_as_child(void *data)
{
	struct pair *pair = data;

	expect_ok(scif_register(pair->here, pages(4), 4 * PAGE, 0x90000, READ_WRITE,
				SCIF_MAP_FIXED));
	expect_value(locked(), 4 * PAGE);
}

/* A window of memory of a process that has ended, on an endpoint that is still open. */
static void child_window(void)
{
	struct pair pair = connected();
	__s64 there = ask(pair.peer, DO_PAGES, 4);

	child_passed(in_child(register_as_child, &pair));
	expect_value(locked(), 0);
	expect_value(ask(pair.peer, DO_VREADFROM, pair.there, there, 4 * PAGE, 0x90000, SYNC), 0);
	expect_value(ask(pair.peer, DO_DIFFERS_FROM_BYTE, there, 0, 4 * PAGE), -1);
	expect_value(scif_unregister(pair.here, 0x90000, 4 * PAGE), 0);
	expect_error(ask(pair.peer, DO_VREADFROM, pair.there, there, 1, 0x90000, SYNC), ENXIO);
}

/* --- exec --- */

static void exec_sleep(void *data)
{
	char *const argv[] = { "sleep", "1000", NULL };

	execv("/bin/sleep", argv);
	fail("/bin/sleep: %s", strerror(errno));
}

/* Returns whether the process runs another program by now. */
static bool has_executed(pid_t child)
{
	char path[64], name[64] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/comm", child);
	file = fopen(path, "r");
	if (!file)
		return false;
	if (!fgets(name, sizeof(name), file))
		name[0] = 0;
	fclose(file);
	return !strcmp(name, "sleep\n");
}

static void exec_survives(void)
{
	struct pair kept = connected(), closed = connected();
	pid_t child;

	fcntl(scif_get_fd(kept.here), F_SETFD, 0);
	fcntl(scif_get_fd(closed.here), F_SETFD, FD_CLOEXEC);
	child = in_child(exec_sleep, NULL);
	wait_until(has_executed(child));
	scif_close(kept.here);
	scif_close(closed.here);
	/* The other program has one of the endpoints, and no process has the other one. */
	expect(ask(closed.peer, DO_POLL, closed.there, 0, -1) & POLLHUP);
	expect_value(ask(kept.peer, DO_POLL, kept.there, POLLIN | POLLOUT, 0), POLLOUT);
	kill(child, SIGKILL);
	expect_value(child_signal(child), SIGKILL);
	expect(ask(kept.peer, DO_POLL, kept.there, 0, -1) & POLLHUP);
}

static void register_and_exec(void *data)
{
	struct pair *pair = data;
	unsigned char *memory = pages(4);

	fill(memory, 33, 4 * PAGE);
	expect_ok(scif_register(pair->here, memory, 4 * PAGE, 0xa00000, READ_WRITE,
				SCIF_MAP_FIXED));
	fcntl(scif_get_fd(pair->here), F_SETFD, 0);
	exec_sleep(NULL);
}

static void exec_windows(void)
{
	struct pair pair = connected();
	__s64 there = ask(pair.peer, DO_PAGES, 4);
	pid_t child = in_child(register_and_exec, &pair);

	wait_until(has_executed(child));
	/* The address space of the memory is gone, but its pages are not. */
	expect_value(ask(pair.peer, DO_VREADFROM, pair.there, there, 4 * PAGE, 0xa00000, SYNC), 0);
	expect_value(ask(pair.peer, DO_DIFFERS, there, 33, 4 * PAGE), -1);
	kill(child, SIGKILL);
	expect_value(child_signal(child), SIGKILL);
	expect_value(ask(pair.peer, DO_VREADFROM, pair.there, there, 4 * PAGE, 0xa00000, SYNC), 0);
	expect_value(scif_close(pair.here), 0);
	expect(ask(pair.peer, DO_POLL, pair.there, 0, -1) & POLLHUP);
}

/* --- kill --- */

/*
 * Runs in a peer that is killed in the middle of any kind of call: sends, copies and fences until
 * that fails.
 */
static __s64 busy(const __s64 *argument)
{
	int endpoint = argument[0], mark;
	char byte = 0;

	while (scif_send(endpoint, &byte, 1, 0) >= 0) {
		scif_writeto(endpoint, argument[1], argument[2], argument[3], 0);
		scif_fence_mark(endpoint, SCIF_FENCE_INIT_SELF, &mark);
		scif_readfrom(endpoint, argument[1], argument[2], argument[3], 0);
		scif_fence_wait(endpoint, mark);
	}
	return errno;
}

static void killed_peer(void)
{
	struct windows windows;
	unsigned char data[100];
	struct pair *pair;
	int round;
	long i;

	for (round = 0; round < 10; round++) {
		windows = connected_windows(256);
		pair = &windows.pair;
		begin(pair->peer, DO_DIE);
		wait_for_hangup(pair->here);
		expect_error(scif_writeto(pair->here, windows.offset, 8, windows.peer_offset, 0),
			     ECONNRESET);
		scif_close(pair->here);
		munmap(windows.memory, windows.len);

		windows = connected_windows(256);
		pair = &windows.pair;
		expect_ok(ask(pair->peer, DO_PID));
		begin(pair->peer, DO_RUN, pair->there, windows.peer_offset, windows.len,
		      windows.offset);
		/* The peer is in the middle of its calls. */
		expect_value(scif_recv(pair->here, data, 1, SCIF_RECV_BLOCK), 1);
		for (i = 0; i < 20; i++)
			scif_writeto(pair->here, windows.offset, windows.len, windows.peer_offset,
				     0);
		/* This end is closed in the middle of the peer's calls, which return. */
		expect_value(scif_close(pair->here), 0);
		expect_value(end(pair->peer), ECONNRESET);
		memset(windows.memory, 0x44, windows.len);
		expect_value(differs_from_byte(windows.memory, 0x44, windows.len), -1);
		munmap(windows.memory, windows.len);
	}
	expect_value(locked(), 0);
}

static void copy_without_end(void *data)
{
	struct windows *windows = data;
	unsigned char *memory = pages(256);
	off_t offset = expect_ok(scif_register(windows->pair.here, memory, 256 * PAGE, 0,
					       READ_WRITE, 0));

	expect_value(scif_send(windows->pair.here, "x", 1, SCIF_SEND_BLOCK), 1);
	for (;;) {
		scif_writeto(windows->pair.here, offset, 256 * PAGE, windows->peer_offset, 0);
		scif_vwriteto(windows->pair.here, memory, 256 * PAGE, windows->peer_offset, 0);
	}
}

static void kill_unpins(void)
{
	struct windows windows;
	struct pair *pair = &windows.pair;
	long before = pinned();
	__s64 there;
	pid_t child;
	int i;

	for (i = 0; i < 5; i++) {
		memset(&windows, 0, sizeof(windows));
		*pair = connected();
		there = ask(pair->peer, DO_PAGES, 256);
		windows.peer_offset = expect_ok(ask(pair->peer, DO_REGISTER, pair->there, there,
						    256 * PAGE, 0, READ_WRITE, 0));
		child = in_child(copy_without_end, &windows);
		expect_value(scif_close(pair->here), 0);
		expect_value(ask(pair->peer, DO_RECV, pair->there, there, 1, SCIF_RECV_BLOCK), 1);
		kill(child, SIGKILL);
		expect_value(child_signal(child), SIGKILL);
		expect(ask(pair->peer, DO_POLL, pair->there, 0, -1) & POLLHUP);
		expect_ok(ask(pair->peer, DO_CLOSE, pair->there));
		wait_until(!ask(pair->peer, DO_LOCKED));
	}
	/* Pages that an earlier case had pinned may be released meanwhile. */
	wait_until(pinned() <= before);
}

/* Makes all calls, from open to close, again and again. */
static void live_without_end(void *data)
{
	unsigned char *memory = pages(8);
	struct pair pair;
	off_t offset;
	int mark;

	for (;;) {
		pair = connected_here();
		offset = scif_register(pair.here, memory, 8 * PAGE, 0, READ_WRITE, 0);
		scif_send(pair.there, memory, 100, 0);
		scif_vwriteto(pair.there, memory, 4 * PAGE, offset, 0);
		scif_vreadfrom(pair.there, memory, 4 * PAGE, offset, SCIF_RMA_USECACHE);
		scif_fence_mark(pair.there, SCIF_FENCE_INIT_SELF, &mark);
		scif_munmap(scif_mmap(NULL, PAGE, READ_WRITE, 0, pair.there, offset), PAGE);
		scif_fence_wait(pair.there, mark);
		scif_unregister(pair.here, offset, 8 * PAGE);
		scif_close(pair.here);
		scif_close(pair.there);
	}
}

static void kill_anywhere(void)
{
	long before = pinned();
	pid_t child;
	int i;

	for (i = 0; i < 20; i++) {
		child = in_child(live_without_end, NULL);
		/* The child is killed at a different point each time. */
		poll(NULL, 0, 2 * i);
		kill(child, SIGKILL);
		expect_value(child_signal(child), SIGKILL);
	}
	wait_until(pinned() <= before);
	connected();
}

/* --- Threads --- */

static void *wait_for_message(void *data)
{
	struct pair *pair = data;
	char byte = 0;

	expect_value(scif_recv(pair->here, &byte, 1, SCIF_RECV_BLOCK), 1);
	return (void *)(long)byte;
}

static void different_calls(void)
{
	struct windows windows = connected_windows(4);
	struct pair *pair = &windows.pair;
	__s64 memory = ask(pair->peer, DO_PAGES, 1);
	pthread_t thread = in_thread(wait_for_message, pair);
	char data[100];
	int mark;

	/* One thread waits for a message. All other calls work meanwhile. */
	fill(data, 1, 100);
	expect_value(scif_send(pair->here, data, 100, SCIF_SEND_BLOCK), 100);
	expect_value(ask(pair->peer, DO_RECV, pair->there, memory, 100, SCIF_RECV_BLOCK), 100);
	expect_value(scif_recv(pair->here, data, 1, 0), 0);
	fill(windows.memory, 2, windows.len);
	expect_value(scif_writeto(pair->here, windows.offset, windows.len, windows.peer_offset, 0),
		     0);
	expect_value(scif_fence_mark(pair->here, SCIF_FENCE_INIT_SELF, &mark), 0);
	expect_value(scif_fence_wait(pair->here, mark), 0);
	expect_value(scif_unregister(pair->here, windows.offset, windows.len), 0);
	expect_ok(scif_register(pair->here, windows.memory, windows.len, 0, READ_WRITE, 0));
	expect_value(poll_for(pair->here, POLLIN | POLLOUT, 0), POLLOUT);
	ask(pair->peer, DO_POKE, memory, 'z');
	expect_value(ask(pair->peer, DO_SEND, pair->there, memory, 1, SCIF_SEND_BLOCK), 1);
	expect((long)thread_result(thread) == 'z');
}

const struct test_case process_cases[] = {
	PAIR(fork_shares, "process.fork-shares"),
	PAIR(fork_close, "process.fork-close"),
	PAIR(fork_listener, "process.fork-shares close.process-ends"),
	PAIR(fork_windows, "process.fork-windows"),
	PAIR(child_window, "process.fork-shares process.exec-unpins"),
	PAIR(exec_survives, "process.exec"),
	PAIR(exec_windows, "process.exec-unpins"),
	PAIR_WITH(killed_peer, busy, "process.killed-peer close.rma-completes"),
	PAIR(kill_unpins, "process.kill-unpins close.unpins"),
	PAIR(kill_anywhere, "process.kill-unpins"),
	PAIR(different_calls, "process.threads"),
	{ }
};
