// SPDX-License-Identifier: GPL-2.0
/*
 * Checks which resources a greedy user leaves to other users.
 *
 *	scif_fair shares PERCENT	one user takes ports, windows, connections and watched nodes
 *	scif_fair listeners COUNT	one process has so many listeners, and connects and gives up
 *	scif_fair rings NODE PORT OTHER	one user connects to PORT until there is no memory for
 *					rings, another one to OTHER
 *	scif_fair server PORT [USER]	accepts for ever, as that user
 *	scif_fair idle NODE PORT COUNT	has so many connections, and polls them
 *
 * The first three print TAP. The last one prints "ready", and runs until it is killed. "shares" and
 * "rings" require root, and a device that everybody may open. "shares" also requires that the
 * module's user_share is PERCENT.
 */
#define _GNU_SOURCE
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <linux/scif_services.h>

#include "checks.h"
#include "children.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"

#define PAGE		4096L
#define GREEDY		65534
#define OTHER		65533
#define ACCESS		(SCIF_PROT_READ | SCIF_PROT_WRITE)

/* Resources of which each user has a share. */
#define PORTS		65536
#define CONNECTIONS	65536
#define WINDOWS		131072
#define WATCHED		1024

/* Number of nodes that do not exist. */
#define ABSENT		1000

static void allow(int resource, rlim_t most)
{
	struct rlimit limit = { .rlim_cur = most, .rlim_max = most };

	if (setrlimit(resource, &limit))
		die("setrlimit");
}

static void become(uid_t user)
{
	if (setgroups(0, NULL) || setgid(user) || setuid(user))
		die("setuid");
	/* The kernel has cleared this setting with the change of user. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL))
		die("prctl");
}

/* --- Shares --- */

static int percent;

static int share(int all)
{
	return all / 100 * percent + all % 100 * percent / 100;
}

/* Binds ports until there are no more. Returns their number. The last descriptor stays open. */
static int take_ports(void)
{
	int count = 0;
	__u16 port = 0;

	while (!scif_bind(scif_open(), &port)) {
		port = 0;
		count++;
	}
	return count;
}

/* Makes a connection of this process with itself. Returns -1 if no more are allowed. */
static int take_pair(int listener, __u16 port)
{
	struct scifioctl_accept argument = { .flags = SCIF_ACCEPT_SYNC };
	int fd = scif_open(), accepted;

	if (start_connect(fd, port))
		return -1;
	if (ioctl(listener, SCIF_ACCEPTREQ, &argument))
		return -1;
	accepted = scif_open();
	if (ioctl(accepted, SCIF_ACCEPTREG, &argument.endpt))
		die("SCIF_ACCEPTREG");
	return finish_connect(fd, port) < 0 ? -1 : fd;
}

static int take_windows(int fd, void *page)
{
	int count = 0;

	while (scif_register(fd, page, PAGE, 0, ACCESS, 0) >= 0)
		count++;
	return count;
}

/* Returns a node status descriptor. */
static int watch(int fd, __u16 node)
{
	struct scif_node_status status = { .size = sizeof(status), .node = node };

	return ioctl(fd, SCIF_NODE_STATUS, &status) ? -1 : status.fd;
}

static int watch_nodes(void)
{
	int fd = scif_open(), count = 0;

	while (watch(fd, ABSENT + 1 + count) >= 0)
		count++;
	return count;
}

/* Checks that another user gets resources while the greedy one holds its share. */
static int use_the_rest(void)
{
	void *page = aligned_alloc(PAGE, PAGE);
	struct pair pair;

	become(OTHER);
	memset(page, 0, PAGE);
	pair = make_pair();
	if (scif_register(pair.fd[0], page, PAGE, 0, ACCESS, 0) < 0)
		return errno;
	if (scif_send(pair.fd[0], "", 1, SCIF_SEND_BLOCK) != 1)
		return errno;
	if (watch(pair.fd[0], ABSENT) < 0)
		return errno;
	return 0;
}

static void try_the_rest(int (*use)(void), const char *what)
{
	pid_t child = new_child();
	int status;

	if (!child)
		_exit(use());
	status = wait_for_child(child);
	test(!status, "a user has enough %s beside a user who has taken all: %s", what,
	     strerror(status >> 8));
}

/*
 * Runs as the greedy user, prints how much it has got, and checks that this is `wanted`, if that is
 * known. Then it holds the resources until it is killed.
 */
static void as_greedy(int (*take)(void), int wanted, int (*use)(void), const char *what)
{
	int result[2], got[2] = { -1 };
	pid_t child;

	if (pipe(result))
		die("pipe");
	child = new_child();
	if (!child) {
		become(GREEDY);
		got[0] = take();
		got[1] = errno;
		if (write(result[1], got, sizeof(got)) != sizeof(got))
			die("write");
		pause();
		_exit(1);
	}
	close(result[1]);
	if (read(result[0], got, sizeof(got)) != sizeof(got))
		die("the greedy user has ended");
	close(result[0]);
	test(wanted ? got[0] == wanted : got[0] > 0, "a user gets %d %s, of %d: %s", got[0], what,
	     wanted, strerror(got[1]));
	try_the_rest(use, what);
	kill(child, SIGKILL);
	wait_for_child(child);
}

static int greedy_for_connections(void)
{
	__u16 port = 0;
	int listener = listen_on(&port), count = 0;

	/* Both ends count. */
	while (take_pair(listener, port) >= 0)
		count += 2;
	return count;
}

static int greedy_for_windows(void)
{
	struct pair pair = make_pair();
	void *page = aligned_alloc(PAGE, PAGE);

	memset(page, 0, PAGE);
	return take_windows(pair.fd[0], page);
}

static void test_shares(void)
{
	allow(RLIMIT_NOFILE, 200000);
	allow(RLIMIT_MEMLOCK, RLIM_INFINITY);
	as_greedy(take_ports, share(PORTS), use_the_rest, "ports");
	as_greedy(greedy_for_connections, share(CONNECTIONS) / 2 * 2, use_the_rest, "connections");
	as_greedy(greedy_for_windows, share(WINDOWS), use_the_rest, "windows");
	as_greedy(watch_nodes, share(WATCHED), use_the_rest, "watched nodes");
	/* Released resources can be taken again. */
	as_greedy(take_ports, share(PORTS), use_the_rest, "ports");
}

/* --- Rings where the peer reaches little --- */

/* Ports of the processes that accept. */
static __u16 peer_node, greedy_port, other_port;

static int greedy_for_rings(void)
{
	int count = 0;

	while (scif_connect(scif_open(), peer_node, greedy_port) >= 0)
		count++;
	if (errno != ENOMEM)
		die("SCIF_CONNECT");
	return count;
}

static int connect_beside(void)
{
	int fd;

	become(OTHER);
	fd = scif_open();
	if (scif_connect(fd, peer_node, other_port) < 0)
		return errno;
	return scif_send(fd, "", 1, SCIF_SEND_BLOCK) == 1 ? 0 : errno;
}

static void test_rings(void)
{
	allow(RLIMIT_NOFILE, 200000);
	as_greedy(greedy_for_rings, 0, connect_beside, "rings");
}

/* --- Many listeners --- */

static long long nanoseconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int compare(const void *one, const void *other)
{
	long long difference = *(const long long *)one - *(const long long *)other;

	return difference < 0 ? -1 : difference > 0;
}

#define ROUNDS	101

/*
 * Returns the typical time of a connection request that is given up, until nothing of it is left.
 */
static long long time_to_give_up(int listener, __u16 port)
{
	static long long times[ROUNDS];
	int i, fd;

	for (i = 0; i < ROUNDS; i++) {
		long long before = nanoseconds();

		fd = scif_open();
		if (start_connect(fd, port))
			die("SCIF_CONNECT");
		if (!wait_for(listener, POLLIN))
			die("no request");
		close(fd);
		/* This request is refused only after all earlier ones were handled. */
		fd = scif_open();
		scif_connect(fd, own_node(), 1);
		close(fd);
		times[i] = nanoseconds() - before;
	}
	qsort(times, ROUNDS, sizeof(*times), compare);
	return times[ROUNDS / 2];
}

static void test_listeners(int count)
{
	__u16 port = 0, more;
	int listener, i;
	long long few, many;

	allow(RLIMIT_NOFILE, count + 100);
	listener = listen_on(&port);
	few = time_to_give_up(listener, port);
	for (i = 0; i < count; i++) {
		more = 0;
		listen_on(&more);
	}
	many = time_to_give_up(listener, port);
	test(many < 3 * few, "to give up takes %lld us with %d listeners, and %lld with one",
	     many / 1000, count, few / 1000);
}

/* --- Many connections --- */

static noreturn void serve(__u16 port)
{
	struct scifioctl_accept argument = { .flags = SCIF_ACCEPT_SYNC };
	int listener = listen_on(&port);

	printf("listening\n");
	fflush(stdout);
	for (;;) {
		/* If there is no memory, the other end gets a refusal. */
		if (ioctl(listener, SCIF_ACCEPTREQ, &argument))
			continue;
		if (ioctl(scif_open(), SCIF_ACCEPTREG, &argument.endpt))
			die("SCIF_ACCEPTREG");
	}
}

static noreturn void be_idle(__u16 node, __u16 port, int count)
{
	int i, all = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN };

	allow(RLIMIT_NOFILE, count + 100);
	for (i = 0; i < count; i++)
		if (epoll_ctl(all, EPOLL_CTL_ADD, connected(node, port), &event))
			die("epoll_ctl");
	printf("ready\n");
	fflush(stdout);
	for (;;)
		if (epoll_wait(all, &event, 1, -1) > 0)
			die("a connection has an unexpected event");
}

int main(int argc, char **argv)
{
	const char *role = argc > 1 ? argv[1] : "";

	/* A test that hangs has to fail. */
	alarm(PROGRAM_LIMIT_SECONDS);
	if (argc == 3 && !strcmp(role, "shares")) {
		percent = atoi(argv[2]);
		test_shares();
		return finish_tests();
	}
	if (argc == 3 && !strcmp(role, "listeners")) {
		test_listeners(atoi(argv[2]));
		return finish_tests();
	}
	if (argc == 5 && !strcmp(role, "rings")) {
		peer_node = atoi(argv[2]);
		greedy_port = atoi(argv[3]);
		other_port = atoi(argv[4]);
		test_rings();
		return finish_tests();
	}
	if (argc >= 3 && !strcmp(role, "server")) {
		allow(RLIMIT_NOFILE, 100000);
		if (argc > 3)
			become(atoi(argv[3]));
		serve(atoi(argv[2]));
	}
	if (argc == 5 && !strcmp(role, "idle"))
		be_idle(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
	fprintf(stderr, "usage: scif_fair shares PERCENT\n"
		"       scif_fair listeners COUNT\n"
		"       scif_fair rings NODE PORT OTHER\n"
		"       scif_fair server PORT [USER]\n"
		"       scif_fair idle NODE PORT COUNT\n");
	return 2;
}
