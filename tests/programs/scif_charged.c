// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that the module allocates for a process is charged to its memory cgroup, and is no more
 * than the process can use.
 *
 *	scif_charged rings GROUP RING	run in the cgroup with the folder GROUP: connections
 *	scif_charged limit GROUP	the same, where there is little memory
 *	scif_charged listeners		what a large backlog takes before anybody asks
 *	scif_charged asker PORT		asks its client for many signals behind transfers
 *	scif_charged asked GROUP NODE PORT	run in the cgroup: what that takes here
 *
 * Only the last two need a second node. The engine of the last one's node takes half a minute for
 * its writes. Prints TAP. The program has to run as root, and no other process may be in the
 * cgroup. RING is the largest size of a ring. Each end of a connection has one ring.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "children.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"
#include "numbers.h"

#define PAIRS		200
/* Memory of two ends and a listener. */
#define IDLE		(32 * KIB)
#define BACKLOG		1024
#define KIB		1024L
#define MIB		(1024 * KIB)

/*
 * Charge that each CPU takes in advance from a cgroup, and not from the next one. This is large for
 * four CPUs.
 */
#define BATCHES		(4 * 64 * 4096L)

/* Memory that is left in the cgroup with the limit. */
#define LEFT		MIB

/* Number of signals that may wait for one end, and the least memory of each. */
#define SIGNALS		4000
#define SIGNAL_SIZE	64L
#define ENDS		8
#define WINDOW		0x10000000L
#define SHORT		(64 * KIB)
#define LONG		(3 * MIB)

#define LISTENERS	500
/* Enough for a file, an endpoint and a listener, but not for 1024 requests. */
#define LISTENER_SIZE	(8 * KIB)

static const char *group;

/* --- Numbers --- */

static int open_in_group(const char *name, int flags)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", group, name);
	fd = open(path, flags | O_CLOEXEC);
	if (fd < 0)
		die(path);
	return fd;
}

static void write_to(int fd, const char *text)
{
	ssize_t len = strlen(text);

	if (write(fd, text, len) != len)
		die(text);
}

static long charged(void)
{
	int fd = open_in_group("memory.current", O_RDONLY);
	char text[32];
	ssize_t len = read(fd, text, sizeof(text) - 1);

	if (len <= 0)
		die("memory.current");
	close(fd);
	text[len] = '\0';
	return atol(text);
}

/* Returns the bytes of kernel memory that can't be reclaimed. */
static long unreclaimable(void)
{
	refresh_counts();
	return (number_of("/proc/meminfo", "SUnreclaim") +
		number_of("/proc/meminfo", "VmallocUsed")) * KIB;
}

static void allow_files(void)
{
	struct rlimit limit = { .rlim_cur = 4096, .rlim_max = 4096 };

	if (setrlimit(RLIMIT_NOFILE, &limit))
		die("setrlimit");
}

/* --- Pairs that may fail --- */

static int open_end(void)
{
	return open("/dev/scif", O_RDWR | O_CLOEXEC);
}

/* Waits for the answer to a connect, which may be a refusal. */
static int collect(int fd, __u16 node, __u16 port)
{
	if (!wait_for(fd, POLLOUT)) {
		errno = ETIMEDOUT;
		return -1;
	}
	return scif_connect(fd, node, port);
}

/* Returns whether the connector gets an answer before the listener gets a request. */
static bool is_refused(int listener, int fd)
{
	struct pollfd either[2] = {
		{ .fd = listener, .events = POLLIN }, { .fd = fd, .events = POLLOUT },
	};

	poll(either, 2, HANG_LIMIT_SECONDS * 1000);
	return !(either[0].revents & POLLIN);
}

/*
 * Makes a pair. Returns the name of the failed call, with errno, or NULL. On failure nothing is
 * closed.
 */
static const char *try_pair(__u16 node, struct pair *pair)
{
	struct scifioctl_accept argument = { .flags = SCIF_ACCEPT_SYNC };
	int *fd = pair->fd;

	pair->listener = open_end();
	fd[0] = open_end();
	fd[1] = open_end();
	if (pair->listener < 0 || fd[0] < 0 || fd[1] < 0)
		return "open";
	pair->port = 0;
	if (scif_bind(pair->listener, &pair->port))
		return "bind";
	if (scif_listen(pair->listener, BACKLOG))
		return "listen";
	if (fcntl(fd[0], F_SETFL, O_NONBLOCK))
		return "fcntl";
	if (scif_connect(fd[0], node, pair->port) >= 0 || errno != EINPROGRESS)
		return "connect";
	if (is_refused(pair->listener, fd[0]))
		return collect(fd[0], node, pair->port) < 0 ? "connect" : "accept";
	if (ioctl(pair->listener, SCIF_ACCEPTREQ, &argument))
		return "ACCEPTREQ";
	if (ioctl(fd[1], SCIF_ACCEPTREG, &argument.endpt))
		return "ACCEPTREG";
	return collect(fd[0], node, pair->port) < 0 ? "the second connect" : NULL;
}

static void close_end(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void close_pairs(struct pair *pairs, int count)
{
	int i;

	for (i = 0; i < count; i++) {
		close_end(pairs[i].fd[0]);
		close_end(pairs[i].fd[1]);
		close_end(pairs[i].listener);
	}
}

/* --- Tests --- */

static struct pair pairs[PAIRS];

/* Grows both rings to their full size by sending without receiving. */
static void fill_rings(const struct pair *pair, long ring)
{
	static char data[MIB];
	int i;

	for (i = 0; i < 2; i++)
		if (scif_send(pair->fd[i], data, ring, SCIF_SEND_BLOCK) != ring)
			die("scif_send");
}

static int test_rings(long ring)
{
	long before, idle, most, rings = PAIRS * 2 * ring;
	time_t end = time(NULL) + HANG_LIMIT_SECONDS;
	const char *failed = NULL;
	__u16 node = own_node();
	int i;

	/* Makes the module allocate the memory that it allocates only once. */
	failed = try_pair(node, pairs);
	close_pairs(pairs, 1);
	before = charged();
	for (i = 0; i < PAIRS && !failed; i++)
		failed = try_pair(node, &pairs[i]);
	test(!failed, "%d connections (%s)", i, failed ?: "all calls succeed");
	if (failed)
		return finish_tests();
	idle = charged();
	test(idle - before <= i * IDLE + BATCHES, "unused connections take little: %ld KiB",
	     (idle - before) / KIB);
	while (i)
		fill_rings(&pairs[--i], ring);
	i = PAIRS;
	most = charged();
	test(most - before >= rings - BATCHES,
	     "their rings are charged: %ld KiB more for %ld KiB", (most - before) / KIB,
	     rings / KIB);
	close_pairs(pairs, i);
	while (charged() - before > rings / 4 && time(NULL) <= end)
		usleep(2000);
	test(charged() - before <= rings / 4, "closed connections cost nothing: %ld KiB are left",
	     (charged() - before) / KIB);
	return finish_tests();
}

/*
 * The kernel may not kill this process for its memory use, so the process gets an error. The kernel
 * kills other processes if a small allocation exceeds the limit, as with all kernel memory.
 */
static int test_limit(void)
{
	int adjust = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	int max = open_in_group("memory.max", O_WRONLY);
	const char *failed = NULL;
	__u16 node = own_node();
	char text[32];
	int i, error;

	if (adjust < 0)
		die("/proc/self/oom_score_adj");
	write_to(adjust, "-1000");
	/* The allocation that exceeds the limit has to be one of the module. */
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		die("mlockall");
	memset(pairs, 0xff, sizeof(pairs));
	snprintf(text, sizeof(text), "%ld", charged() + LEFT);
	write_to(max, text);
	for (i = 0; i < PAIRS && !failed; i++)
		failed = try_pair(node, &pairs[i]);
	error = errno;
	write_to(max, "max");
	errno = error;
	test(failed && error == ENOMEM && i > 1,
	     "without memory, %s fails with ENOMEM, after %d connections", failed ?: "nothing",
	     i - 1);
	close_pairs(pairs, i);
	failed = try_pair(node, pairs);
	test(!failed, "when memory is free again, connections can be made");
	close_pairs(pairs, 1);
	return finish_tests();
}

static int test_listeners(void)
{
	static int fd[LISTENERS];
	long before = 0, grown;
	__u16 port;
	int i;

	for (i = 0; i < LISTENERS; i++) {
		/* The first listeners also pay for memory that is allocated only once. */
		if (i == LISTENERS / 10)
			before = unreclaimable();
		port = 0;
		fd[i] = scif_open();
		if (scif_bind(fd[i], &port) || scif_listen(fd[i], BACKLOG))
			die("SCIF_LISTEN");
	}
	grown = (unreclaimable() - before) / (LISTENERS - LISTENERS / 10);
	test(grown <= LISTENER_SIZE, "a listener without requests takes little: %ld bytes", grown);
	for (i = 0; i < LISTENERS; i++)
		close(fd[i]);
	return finish_tests();
}

/* --- What a peer asks for --- */

static void make_window(int fd)
{
	void *memory = mmap(NULL, LONG, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	if (scif_register(fd, memory, LONG, WINDOW, SCIF_PROT_READ | SCIF_PROT_WRITE,
			  SCIF_MAP_FIXED) < 0)
		die("SCIF_REG");
}

static void say(int fd)
{
	if (scif_send(fd, "", 1, SCIF_SEND_BLOCK) != 1)
		die("SCIF_SEND");
}

static void hear(int fd)
{
	char byte;

	if (scif_recv(fd, &byte, 1, SCIF_RECV_BLOCK) != 1)
		die("SCIF_RECV");
}

static void ask(int fd)
{
	struct scifioctl_fence_signal signal = {
		.roff = WINDOW, .flags = SCIF_FENCE_INIT_PEER | SCIF_SIGNAL_REMOTE,
	};
	int i;

	make_window(fd);
	say(fd);
	hear(fd);
	for (i = 0; i < SIGNALS; i++)
		if (ioctl(fd, SCIF_FENCE_SIGNAL, &signal))
			die("SCIF_FENCE_SIGNAL");
	say(fd);
	poll(&(struct pollfd){ .fd = fd }, 1, -1);
	exit(0);
}

static void serve(__u16 port)
{
	int listener = listen_on(&port), fd;

	/* Serving processes are not waited for, so the kernel reaps them. */
	signal(SIGCHLD, SIG_IGN);
	printf("# listening\n");
	fflush(stdout);
	for (;;) {
		fd = accept_from(listener);
		if (!new_child())
			ask(fd);
		close(fd);
	}
}

static int test_asked(__u16 node, __u16 port)
{
	struct scifioctl_copy copy = { .loffset = WINDOW, .roffset = WINDOW };
	long wanted = ENDS * SIGNALS * SIGNAL_SIZE - BATCHES, before;
	int fd[ENDS], i;

	for (i = 0; i < ENDS; i++) {
		fd[i] = connected(node, port);
		make_window(fd[i]);
		hear(fd[i]);
	}
	/* All other transfers are queued behind the first one. */
	for (i = 0; i < ENDS; i++) {
		copy.len = i ? SHORT : LONG;
		if (ioctl(fd[i], SCIF_WRITETO, &copy))
			die("SCIF_WRITETO");
	}
	before = charged();
	for (i = 0; i < ENDS; i++)
		say(fd[i]);
	for (i = 0; i < ENDS; i++)
		hear(fd[i]);
	test(charged() - before >= wanted,
	     "signals requested by the peer are charged to this process: %ld KiB, of %ld",
	     (charged() - before) / KIB, wanted / KIB);
	return finish_tests();
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	/* A test that hangs has to fail. */
	alarm(PROGRAM_LIMIT_SECONDS);
	allow_files();
	group = argc > 2 ? argv[2] : NULL;
	if (argc == 4 && !strcmp(what, "rings"))
		return test_rings(atol(argv[3]));
	if (argc == 3 && !strcmp(what, "limit"))
		return test_limit();
	if (argc == 2 && !strcmp(what, "listeners"))
		return test_listeners();
	if (argc == 3 && !strcmp(what, "asker"))
		serve(atoi(argv[2]));
	if (argc == 5 && !strcmp(what, "asked"))
		return test_asked(atoi(argv[3]), atoi(argv[4]));
	fprintf(stderr, "usage: scif_charged rings GROUP RING\n"
		"       scif_charged limit GROUP\n"
		"       scif_charged listeners\n"
		"       scif_charged asker PORT\n"
		"       scif_charged asked GROUP NODE PORT\n");
	return 2;
}
