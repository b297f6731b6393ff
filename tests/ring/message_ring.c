// SPDX-License-Identifier: GPL-2.0
/*
 * Rings of libscif_ring between two nodes, and within one.
 *
 *	message_ring server PORT
 *	message_ring client NODE PORT mapped|slow|connection
 *	message_ring loopback PORT mapped|connection		both, on this node
 *	message_ring wait NODE PORT		calls that wait until the other node goes
 *
 * The client prints TAP. The last word names the expected carrier of the bytes. If it is not
 * "mapped", the test sends fewer bytes. The server has a process for each connection, and the first
 * byte on the connection tells this process what to do.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <scif_ring.h>

#include "checks.h"
#include "children.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"

#define BLOCK	SCIF_RING_BLOCK
#define COUNT(array)	(sizeof(array) / sizeof(*(array)))

/* Bytes of a small message. */
#define MESSAGE	64

/* Tasks of a process of the server. */
enum {
	EXCHANGE = 'x',		/* both ways at once, rings of all sizes */
	ECHO = 'e',		/* sends back each byte */
	POLL = 'p',		/* sends back each message, and never waits */
	LAST = 'l',		/* sends a word and closes the ring */
	SILENT = 's',		/* begins a ring, and sends nothing */
	TAKE = 't',		/* receives for ever */
	GIVE = 'g',		/* sends for ever */
	KILL = 'k',		/* kills the process whose number comes */
	NO_RING = 'n',		/* sends something else than a ring does */
	LEAVE = 'c',		/* closes the connection instead */
	END = 'q',		/* ends the server */
};

static const char last_word[] = "the last word";

/* ----- sent bytes ----------------------------------------------------------------------- */

static unsigned char byte_at(unsigned long at, int side)
{
	return (at * 2654435761UL + side * 97) >> 13;
}

/* Returns a pseudo-random length. */
static int length(unsigned long *state, int most)
{
	*state = *state * 6364136223846793005UL + 1442695040888963407UL;
	return 1 + (*state >> 33) % most;
}

/* One direction of a ring. */
struct way {
	struct scif_ring *ring;
	unsigned long total;
	int side;
	int most;
	/* The first fault, and its error. */
	const char *wrong;
	int error;
};

static void *send_way(void *argument)
{
	struct way *way = argument;
	unsigned long at = 0, state = way->side;
	unsigned char *bytes = malloc(way->most);

	while (at < way->total) {
		int len = length(&state, way->most), flags = state >> 40 & 3 ? BLOCK : 0, i, sent;

		if ((unsigned long)len > way->total - at)
			len = way->total - at;
		for (i = 0; i < len; i++)
			bytes[i] = byte_at(at + i, way->side);
		sent = scif_ring_send(way->ring, bytes, len, flags);
		if (sent < 0 || (flags && sent != len)) {
			way->wrong = "not sent";
			way->error = errno;
			break;
		}
		at += sent;
	}
	free(bytes);
	return NULL;
}

static void *recv_way(void *argument)
{
	struct way *way = argument;
	unsigned long at = 0, state = way->side + 50;
	unsigned char *bytes = malloc(way->most);

	while (at < way->total && !way->wrong) {
		int len = length(&state, way->most), flags = state >> 40 & 3 ? BLOCK : 0, i, got;

		if ((unsigned long)len > way->total - at)
			len = way->total - at;
		got = scif_ring_recv(way->ring, bytes, len, flags);
		if (got < 0 || (flags && got != len)) {
			way->wrong = "not received";
			way->error = errno;
		}
		for (i = 0; i < got; i++)
			if (bytes[i] != byte_at(at + i, way->side))
				way->wrong = "other bytes than were sent";
		at += got;
	}
	free(bytes);
	return NULL;
}

/* Sends and receives at the same time. Returns the fault, or NULL. */
static const char *exchange(struct scif_ring *ring, int side, unsigned long total, int most)
{
	struct way out = { .ring = ring, .total = total, .side = side, .most = most }, in = out;
	pthread_t thread;

	in.side = !side;
	if (pthread_create(&thread, NULL, send_way, &out))
		die("a thread");
	recv_way(&in);
	pthread_join(thread, NULL);
	errno = in.wrong ? in.error : out.error;
	return in.wrong ? in.wrong : out.wrong;
}

/* ----- the server ----------------------------------------------------------------------- */

static struct scif_ring *must_open(int fd, size_t size)
{
	struct scif_ring *ring = scif_ring_open(fd, size);

	if (!ring)
		die("a ring");
	return ring;
}

static void be_exchange(int fd)
{
	struct {
		unsigned long total;
		unsigned int most, here;
	} wanted;
	struct scif_ring *ring;
	bool good;

	if (scif_recv(fd, &wanted, sizeof(wanted), SCIF_RECV_BLOCK) != sizeof(wanted))
		die("what to exchange");
	ring = must_open(fd, wanted.here);
	good = !exchange(ring, 1, wanted.total, wanted.most);
	scif_ring_send(ring, &good, 1, BLOCK);
	/* If the peer has no ring, the sent bytes are discarded with the connection. */
	scif_ring_recv(ring, &good, 1, BLOCK);
	scif_ring_close(ring);
}

static void be_echo(int fd)
{
	struct scif_ring *ring = must_open(fd, 0);
	char bytes[64];
	int len;

	/* Receives byte by byte, as the number of bytes is unknown. */
	while ((len = scif_ring_recv(ring, bytes, 1, BLOCK)) == 1)
		if (scif_ring_send(ring, bytes, 1, BLOCK) != 1)
			die("an echo");
	scif_ring_close(ring);
}

/* Moves a whole message, by calls that do not wait. */
static bool move_all(struct scif_ring *ring, char *bytes, int len, bool send)
{
	int done = 0, moved;

	while (done < len) {
		moved = send ? scif_ring_send(ring, bytes + done, len - done, 0) :
			       scif_ring_recv(ring, bytes + done, len - done, 0);
		if (moved < 0)
			return false;
		done += moved;
	}
	return true;
}

static void be_polling(int fd)
{
	struct scif_ring *ring = must_open(fd, 0);
	char bytes[MESSAGE];

	while (move_all(ring, bytes, sizeof(bytes), false) &&
	       move_all(ring, bytes, sizeof(bytes), true))
		;
	scif_ring_close(ring);
}

static void serve_one(int fd)
{
	static char bytes[65536];
	struct scif_ring *ring;
	char what;
	pid_t pid = getpid();

	if (scif_recv(fd, &what, 1, SCIF_RECV_BLOCK) != 1)
		exit(0);
	switch (what) {
	case EXCHANGE:
		be_exchange(fd);
		break;
	case ECHO:
		be_echo(fd);
		break;
	case POLL:
		be_polling(fd);
		break;
	case LAST:
		ring = must_open(fd, 0);
		if (scif_ring_send(ring, last_word, sizeof(last_word), BLOCK) != sizeof(last_word))
			die("the last word");
		scif_ring_close(ring);
		/* Waits for the client to close. */
		scif_recv(fd, bytes, 1, SCIF_RECV_BLOCK);
		break;
	case SILENT:
		ring = must_open(fd, 4096);
		scif_ring_send(ring, &pid, sizeof(pid), BLOCK);
		for (;;)
			pause();
	case TAKE:
		ring = must_open(fd, 0);
		while (scif_ring_recv(ring, bytes, 64, BLOCK) == 64)
			;
		break;
	case GIVE:
		ring = must_open(fd, 0);
		while (scif_ring_send(ring, bytes, sizeof(bytes), BLOCK) == sizeof(bytes))
			;
		break;
	case KILL:
		while (scif_recv(fd, &pid, sizeof(pid), SCIF_RECV_BLOCK) == sizeof(pid))
			kill(pid, SIGKILL);
		break;
	case NO_RING:
		scif_send(fd, bytes, 64, SCIF_SEND_BLOCK);
		scif_recv(fd, bytes, sizeof(bytes), SCIF_RECV_BLOCK);
		break;
	case LEAVE:
		break;
	case END:
		kill(getppid(), SIGTERM);
		break;
	}
	exit(0);
}

static volatile sig_atomic_t ended;

static void end_server(int signal)
{
	ended = 1;
}

static int be_the_server(int listener)
{
	struct sigaction action = { .sa_handler = end_server };

	sigaction(SIGTERM, &action, NULL);
	signal(SIGCHLD, SIG_IGN);
	while (!ended) {
		int came = events(listener, POLLIN, 100), fd;

		/* poll() may have returned because of the signal that ended the wait. */
		if (ended || came <= 0)
			continue;
		fd = accept_from(listener);
		if (!new_child()) {
			signal(SIGTERM, SIG_DFL);
			close(listener);
			serve_one(fd);
		}
		close(fd);
	}
	return 0;
}

/* ----- the client ----------------------------------------------------------------------- */

static __u16 node, port;
static bool mapped;
/* Whether each store may take long. */
static bool slow;

static int ask(char what)
{
	int fd = connected(node, port);

	if (scif_send(fd, &what, 1, SCIF_SEND_BLOCK) != 1)
		die("what is wanted");
	return fd;
}

static void drop(struct scif_ring *ring, int fd)
{
	scif_ring_close(ring);
	close(fd);
}

static void test_exchange(unsigned int here, unsigned int there, unsigned long total, int most)
{
	struct {
		unsigned long total;
		unsigned int most, here;
	} wanted = { total, most, there };
	int fd = ask(EXCHANGE);
	struct scif_ring *ring;
	const char *wrong;
	bool good = false;

	if (scif_send(fd, &wanted, sizeof(wanted), SCIF_SEND_BLOCK) != sizeof(wanted))
		die("what to exchange");
	ring = must_open(fd, here);
	test(scif_ring_is_mapped(ring) == mapped, "is mapped: %d", mapped);
	wrong = exchange(ring, 0, total, most);
	if (!wrong && (scif_ring_recv(ring, &good, 1, BLOCK) != 1 || !good))
		wrong = "the peer reports an error";
	test(!wrong, "%lu bytes each way, messages up to %d, rings of %u and %u: %s", total, most,
	     here, there, wrong ? wrong : "as they were sent");
	drop(ring, fd);
}

/* Waits for events in an event loop. */
static int wait_ready(struct scif_ring *ring, int fd, short wanted)
{
	short wakes;
	int ready;

	while (!(ready = scif_ring_ready(ring, wanted, &wakes)))
		if (!wait_for(fd, wakes))
			return 0;
	return ready;
}

static void test_ready(void)
{
	/* More than one ring holds. The ring of a connection may hold less. */
	const int enough = slow ? 3000 : 300000;
	int fd = ask(ECHO), i, len, sent = 0, got = 0;
	struct scif_ring *ring = must_open(fd, 0);
	static char bytes[1 << 20];
	short wakes = 0;

	test(scif_ring_ready(ring, POLLIN | POLLOUT, &wakes) == POLLOUT,
	     "room for messages, and none to receive");
	test(scif_ring_recv(ring, bytes, 8, 0) == 0,
	     "a non-blocking recv of an empty ring returns 0");
	for (i = 0; i < 50; i++) {
		char byte = i, back = -1;

		if (scif_ring_send(ring, &byte, 1, 0) != 1 ||
		    !(wait_ready(ring, fd, POLLIN) & POLLIN) ||
		    scif_ring_recv(ring, &back, 1, 0) != 1 || back != byte)
			break;
	}
	test(i == 50, "50 bytes and their echo, by poll: %d", i);
	/* The other side receives only after it has sent. */
	do {
		len = scif_ring_send(ring, bytes, sizeof(bytes), 0);
		sent += len > 0 ? len : 0;
	} while (len > 0 ||
		 (!len && sent < enough && (wait_ready(ring, fd, POLLOUT) & POLLOUT)));
	test(!len && sent >= enough, "%d bytes are sent by non-blocking calls", sent);
	while (got < sent && (wait_ready(ring, fd, POLLIN) & POLLIN)) {
		len = scif_ring_recv(ring, bytes, sizeof(bytes), 0);
		if (len <= 0)
			break;
		got += len;
	}
	test(got == sent, "%d bytes come back", got);
	drop(ring, fd);
}

/*
 * Forbids this thread all system calls but those that end it, and those that check the peer from
 * time to time.
 */
static bool forbid_calls(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ppoll, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { COUNT(filter), filter };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static volatile int echoes;
static volatile bool forbidden;

static void *without_calls(void *ring)
{
	char bytes[MESSAGE], back[MESSAGE];

	forbidden = forbid_calls();
	/* The debug kernel has no seccomp, but Debian's kernel has. */
	if (!forbidden && errno != EINVAL)
		die("seccomp");
	while (echoes < 10000) {
		memset(bytes, echoes, sizeof(bytes));
		if (!move_all(ring, bytes, sizeof(bytes), true) ||
		    !move_all(ring, back, sizeof(back), false) || memcmp(bytes, back, sizeof(back)))
			break;
		echoes++;
	}
	/* Any other way to end would make another system call. */
	syscall(SYS_exit, 0);
	return NULL;
}

static void test_calls(void)
{
	int fd = ask(POLL);
	struct scif_ring *ring = must_open(fd, 0);
	pthread_t thread;

	if (pthread_create(&thread, NULL, without_calls, ring))
		die("a thread");
	pthread_join(thread, NULL);
	test(echoes == 10000, "10000 messages and their echoes, system calls are %s: %d",
	     forbidden ? "forbidden" : "possible", echoes);
	drop(ring, fd);
}

static void test_end(void)
{
	int fd = ask(LAST);
	struct scif_ring *ring = must_open(fd, 0);
	char word[sizeof(last_word) + 1] = "";

	test(scif_ring_recv(ring, word, sizeof(last_word), BLOCK) == sizeof(last_word) &&
	     !strcmp(word, last_word), "the message before the close: %s", word);
	if (mapped) {
		test_errno(scif_ring_recv(ring, word, 1, BLOCK), ECONNRESET,
			   "recv after the close");
		test_errno(scif_ring_send(ring, word, 1, BLOCK), ECONNRESET,
			   "send after the close");
		test(scif_ring_ready(ring, POLLIN | POLLOUT, NULL) & POLLHUP,
		     "ready reports the close");
	}
	drop(ring, fd);
}

/* A call that runs in a thread of its own. */
struct call {
	struct scif_ring *ring;
	int (*function)(struct scif_ring *ring);
	pthread_t thread;
	volatile pid_t tid;
	int result, error;
};

static int call_recv(struct scif_ring *ring)
{
	char byte;

	return scif_ring_recv(ring, &byte, 1, BLOCK);
}

static int call_send(struct scif_ring *ring)
{
	static char bytes[1 << 20];
	int result;

	do
		result = scif_ring_send(ring, bytes, sizeof(bytes), BLOCK);
	while (result >= 0);
	return result;
}

static void *do_call(void *argument)
{
	struct call *call = argument;

	call->tid = syscall(SYS_gettid);
	call->result = call->function(call->ring);
	call->error = errno;
	return NULL;
}

/* Returns whether the call's thread sleeps, or will soon. */
static bool sleeps(const struct call *call)
{
	char name[64], state = 0;
	FILE *file;

	snprintf(name, sizeof(name), "/proc/self/task/%d/stat", call->tid);
	file = fopen(name, "r");
	if (!file)
		return false;
	if (fscanf(file, "%*d %*s %c", &state) != 1)
		state = 0;
	fclose(file);
	return state == 'S';
}

static void start_awake(struct call *call)
{
	if (pthread_create(&call->thread, NULL, do_call, call))
		die("a thread");
}

static void start(struct call *call)
{
	int asleep = 0, looks = 0;

	start_awake(call);
	/*
	 * Waits until the thread sleeps for good, because it may sleep shortly for other reasons.
	 */
	while (asleep < 20 && looks++ < HANG_LIMIT_SECONDS * 1000) {
		asleep = call->tid && sleeps(call) ? asleep + 1 : 0;
		usleep(1000);
	}
	if (asleep < 20)
		die("a call that waits");
}

static void test_kill(void)
{
	int killer = ask(KILL);
	int (*functions[])(struct scif_ring *ring) = { call_recv, call_send };
	unsigned int i;

	for (i = 0; i < 2; i++) {
		int fd = ask(SILENT);
		struct scif_ring *ring = must_open(fd, 4096);
		struct call call = { .ring = ring, .function = functions[i] };
		pid_t pid = 0;

		if (scif_ring_recv(ring, &pid, sizeof(pid), BLOCK) != sizeof(pid))
			die("the number of the other process");
		start(&call);
		if (scif_send(killer, &pid, sizeof(pid), SCIF_SEND_BLOCK) != sizeof(pid))
			die("the killer");
		pthread_join(call.thread, NULL);
		test(call.result == -1 && call.error == ECONNRESET, "%s of a killed peer: %d, %s",
		     i ? "send" : "recv", call.result, strerror(call.error));
		drop(ring, fd);
	}
	close(killer);
}

static void nothing(int signal)
{
}

static void test_signal(void)
{
	struct sigaction action = { .sa_handler = nothing };
	int fd = ask(SILENT);
	struct scif_ring *ring = must_open(fd, 0);
	struct call call = { .ring = ring, .function = call_recv };
	pid_t pid;

	if (scif_ring_recv(ring, &pid, sizeof(pid), BLOCK) != sizeof(pid))
		die("the number of the other process");
	sigaction(SIGUSR1, &action, NULL);
	start(&call);
	pthread_kill(call.thread, SIGUSR1);
	pthread_join(call.thread, NULL);
	test(call.result == -1 && call.error == EINTR, "a signal ends a call: %d, %s", call.result,
	     strerror(call.error));
	drop(ring, fd);
	fd = ask(KILL);
	scif_send(fd, &pid, sizeof(pid), SCIF_SEND_BLOCK);
	close(fd);
}

static void test_no_ring(void)
{
	int fd = ask(NO_RING);

	test(!scif_ring_open(fd, 0) && errno == EPROTO, "a peer that makes no ring: EPROTO");
	close(fd);
	fd = ask(LEAVE);
	test(!scif_ring_open(fd, 0) && errno == ECONNRESET, "a peer that leaves: ECONNRESET");
	close(fd);
	fd = scif_open();
	test(!scif_ring_open(fd, 0) && errno == ENOTCONN, "no connection: ENOTCONN");
	close(fd);
	test(!scif_ring_open(fd, 0) && errno == EBADF, "no descriptor: EBADF");
	test(!scif_ring_open(-1, 0) && errno == EBADF, "a negative descriptor: EBADF");
}

static void test_arguments(void)
{
	int fd = ask(ECHO);
	struct scif_ring *ring = must_open(fd, 0);
	char byte = 'a';

	test_errno(scif_ring_send(ring, &byte, -1, 0), EINVAL, "a negative length");
	test_errno(scif_ring_recv(ring, &byte, -1, BLOCK), EINVAL, "a negative length");
	test_errno(scif_ring_send(ring, &byte, 1, 2), EINVAL, "an unknown flag");
	test_errno(scif_ring_recv(ring, &byte, 1, -1), EINVAL, "unknown flags");
	test_errno(scif_ring_send(ring, NULL, 1, 0), EFAULT, "no memory");
	test_errno(scif_ring_send(NULL, &byte, 1, 0), EINVAL, "no ring");
	test_errno(scif_ring_ready(NULL, POLLIN, NULL), EINVAL, "no ring");
	test_errno(scif_ring_close(NULL), EINVAL, "no ring");
	test(!scif_ring_send(ring, NULL, 0, BLOCK) && !scif_ring_recv(ring, NULL, 0, BLOCK),
	     "no byte is sent or received");
	test(scif_ring_send(ring, &byte, 1, BLOCK) == 1 &&
	     scif_ring_recv(ring, &byte, 1, BLOCK) == 1 && byte == 'a',
	     "the ring works after errors");
	drop(ring, fd);
}

static int be_the_client(void)
{
	static const unsigned int sizes[][2] = { { 4096, 4096 }, { 4096, 65536 }, { 0, 0 } };
	const unsigned long scale = slow ? 100 : 1;
	unsigned int i;

	for (i = 0; i < 3; i++) {
		test_exchange(sizes[i][0], sizes[i][1], 300000 / scale, 100);
		test_exchange(sizes[i][0], sizes[i][1], 3000000 / scale, 9000);
		test_exchange(sizes[i][0], sizes[i][1], 8000000 / scale, 1000000);
	}
	test_ready();
	if (mapped)
		test_calls();
	test_end();
	test_kill();
	test_signal();
	test_no_ring();
	test_arguments();
	close(ask(END));
	return finish_tests();
}

/* ----- waiting until the other node is lost ---------------------------------------------- */

static int call_polling(struct scif_ring *ring)
{
	char byte;
	int result;

	while (!(result = scif_ring_recv(ring, &byte, 1, 0)))
		;
	return result;
}

static int call_take(struct scif_ring *ring)
{
	static char bytes[65536];
	int result;

	do
		result = scif_ring_recv(ring, bytes, sizeof(bytes), BLOCK);
	while (result >= 0);
	return result;
}

static int be_waiting(void)
{
	static const struct {
		const char *name;
		char what;
		int (*function)(struct scif_ring *ring);
		/* Starts the call, and returns when the call sleeps or has just begun. */
		void (*start)(struct call *call);
	} calls[] = {
		{ "recv", SILENT, call_recv, start },
		{ "send", SILENT, call_send, start },
		{ "poll", SILENT, call_polling, start_awake },
		{ "stream", TAKE, call_send, start_awake },
		{ "take", GIVE, call_take, start_awake },
	};
	struct call started[COUNT(calls)] = { };
	unsigned int i;

	for (i = 0; i < COUNT(calls); i++) {
		int fd = ask(calls[i].what);
		pid_t pid;

		started[i].ring = must_open(fd, 0);
		started[i].function = calls[i].function;
		if (calls[i].what == SILENT &&
		    scif_ring_recv(started[i].ring, &pid, sizeof(pid), BLOCK) != sizeof(pid))
			die("the number of the other process");
		calls[i].start(&started[i]);
	}
	printf("waiting\n");
	fflush(stdout);
	for (i = 0; i < COUNT(calls); i++) {
		pthread_join(started[i].thread, NULL);
		printf("%s %d %s\n", calls[i].name, started[i].result,
		       started[i].result < 0 ? strerrorname_np(started[i].error) : "-");
		fflush(stdout);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *role = argc > 1 ? argv[1] : "";
	int listener, status;
	pid_t child;

	/* A test that hangs has to fail. */
	alarm(PROGRAM_LIMIT_SECONDS);
	if (argc == 3 && !strcmp(role, "server")) {
		port = atoi(argv[2]);
		listener = listen_on(&port);
		printf("# listening\n");
		fflush(stdout);
		return be_the_server(listener);
	}
	if (argc == 5 && !strcmp(role, "client")) {
		node = atoi(argv[2]);
		port = atoi(argv[3]);
		mapped = strcmp(argv[4], "connection");
		slow = strcmp(argv[4], "mapped");
		return be_the_client();
	}
	if (argc == 4 && !strcmp(role, "wait")) {
		node = atoi(argv[2]);
		port = atoi(argv[3]);
		return be_waiting();
	}
	if (argc == 4 && !strcmp(role, "loopback")) {
		port = atoi(argv[2]);
		listener = listen_on(&port);
		child = new_child();
		if (!child)
			return be_the_server(listener);
		node = own_node();
		mapped = !strcmp(argv[3], "mapped");
		status = be_the_client();
		return wait_for_child(child) ? 1 : status;
	}
	fprintf(stderr, "usage: message_ring server PORT\n"
		"       message_ring client NODE PORT mapped|slow|connection\n"
		"       message_ring loopback PORT mapped|connection\n"
		"       message_ring wait NODE PORT\n");
	return 2;
}
