// SPDX-License-Identifier: GPL-2.0
/*
 * Nothing remains of an endpoint once close(2) of its last descriptor, or the wait for its process,
 * has returned. Its port can be bound, its memory is not charged, and the module does not count it
 * any more. This holds at once, so there is no second try.
 *
 *	scif_ports listen PORT ROUNDS		listens at a port again and again
 *	scif_ports connect NODE PORT ROUNDS	connects to that as often, from another port
 *	scif_ports loopback PORT ROUNDS		both, on this node
 *
 * Print TAP. Both ends have a window, and check the same. A round ends in one of several ways, in
 * turn. Half of them check the port first, the others the rest. The counters are those of the whole
 * node, so no other process may use SCIF there. On loopback the program does not check them.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "children.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"
#include "numbers.h"

#define WINDOW		0x40000000L
#define WINDOW_SIZE	(4 * 4096L)

/* The ways to end. */
enum way {
	LISTENER_LAST,	/* the accepted end, then the listener; the other end waits for that */
	ACCEPTED_LAST,	/* the other way round */
	OTHER_FIRST,	/* the other end, then these */
	AT_ONCE,	/* no side waits for the other */
	OTHER_STAYS,	/* the other end is closed when the next connection is there */
	CHILD_LAST,	/* in a child that has the descriptors, too */
	EXITS,		/* the process that listens, by exit */
	KILLED,		/* the same, killed */
	WAYS
};

static const char * const names[WAYS] = {
	[LISTENER_LAST] = "the listener is closed last",
	[ACCEPTED_LAST] = "the accepted end is closed last",
	[OTHER_FIRST] = "the connecting end is closed first",
	[AT_ONCE] = "both ends are closed at once",
	[OTHER_STAYS] = "the connecting end stays open",
	[CHILD_LAST] = "a child closes its descriptors last",
	[EXITS] = "the listening process exits",
	[KILLED] = "the listening process is killed",
};

static int round_number;
static int rounds[WAYS], bad[WAYS];
static unsigned char *memory;
/* Whether the counters count this end alone. */
static bool counters_are_ours;

static void note(const char *what, long value)
{
	printf("# round %d, %s: %s %ld\n", round_number, names[round_number % WAYS], what, value);
	fflush(stdout);
}

/*
 * Binds a port. Returns whether the port was free. If not, waits until it is, for the sake of the
 * other side.
 */
static bool bind_at_once(int fd, __u16 port)
{
	time_t end = time(NULL) + HANG_LIMIT_SECONDS;
	__u16 bound = port;

	if (!scif_bind(fd, &bound))
		return true;
	note("bind fails with", errno);
	while (scif_bind(fd, &bound)) {
		if (errno != EINVAL || time(NULL) > end)
			die("SCIF_BIND");
		usleep(1000);
	}
	return false;
}

static bool is_zero(const char *what, long value)
{
	if (value)
		note(what, value);
	return !value;
}

/* Returns whether nothing remains, apart from the port. */
static bool nothing_left(void)
{
	bool nothing = is_zero("VmPin", own_pinned_pages());

	if (!counters_are_ours)
		return nothing;
	nothing &= is_zero("connections", counter("connections"));
	return is_zero("exported_windows", counter("exported_windows")) && nothing;
}

/* Checks the state after the last close has returned: `next`, which is fresh, gets the port. */
static bool all_gone(int next, __u16 port)
{
	bool gone;

	if (round_number & 1) {
		gone = nothing_left();
		return bind_at_once(next, port) && gone;
	}
	gone = bind_at_once(next, port);
	return nothing_left() && gone;
}

/* Waits until both ends have a window, and know that of each other. */
static void meet(int fd)
{
	char byte;

	if (scif_register(fd, memory, WINDOW_SIZE, WINDOW, SCIF_PROT_READ | SCIF_PROT_WRITE,
			  SCIF_MAP_FIXED) != WINDOW)
		die("SCIF_REG");
	if (scif_send(fd, "", 1, SCIF_SEND_BLOCK) != 1 ||
	    scif_recv(fd, &byte, 1, SCIF_RECV_BLOCK) != 1)
		die("a word with the other end");
}

static void wait_for_hangup(int fd)
{
	if (!wait_for(fd, POLLHUP)) {
		errno = ETIMEDOUT;
		die("the other end's close");
	}
}

/* --- The listening side --- */

static int accept_one(int listener)
{
	struct scif_port_id peer;
	int fd;

	if (scif_listen(listener, 4))
		die("SCIF_LISTEN");
	fd = scif_accept(listener, &peer, SCIF_ACCEPT_SYNC);
	if (fd < 0)
		die("SCIF_ACCEPTREQ");
	counters_are_ours = peer.node != own_node();
	meet(fd);
	return fd;
}

/* Closes both ends in a child. Returns the child, which has just closed them and still runs. */
static pid_t close_in_child(int listener, int fd)
{
	int to_child[2], from_child[2];
	char byte = 0;
	pid_t child;

	if (pipe(to_child) || pipe(from_child))
		die("pipe");
	child = new_child();
	if (!child) {
		if (read(to_child[0], &byte, 1) != 1)
			_exit(1);
		close(fd);
		close(listener);
		if (write(from_child[1], &byte, 1) != 1)
			_exit(1);
		pause();
		_exit(1);
	}
	close(fd);
	close(listener);
	if (write(to_child[1], &byte, 1) != 1 || read(from_child[0], &byte, 1) != 1)
		die("the child has failed");
	close(to_child[0]);
	close(to_child[1]);
	close(from_child[0]);
	close(from_child[1]);
	return child;
}

/* Does a round with a bound listener. Returns the next listener, which is bound, too. */
static int listen_once(int listener, __u16 port, enum way way)
{
	int next = scif_open(), fd = accept_one(listener);
	pid_t child = 0;

	if (way == OTHER_FIRST)
		wait_for_hangup(fd);
	if (way == CHILD_LAST) {
		child = close_in_child(listener, fd);
	} else if (way == ACCEPTED_LAST) {
		close(listener);
		close(fd);
	} else {
		close(fd);
		close(listener);
	}
	bad[way] += !all_gone(next, port);
	if (child) {
		kill(child, SIGKILL);
		wait_for_child(child);
	}
	return next;
}

/* Does such a round in a process that alone has both descriptors, and closes neither. */
static int listen_in_process(int listener, __u16 port, enum way way)
{
	int from_child[2], next;
	char free_at_once;
	pid_t child;

	close(listener);
	if (pipe(from_child))
		die("pipe");
	child = new_child();
	if (!child) {
		listener = scif_open();
		free_at_once = bind_at_once(listener, port);
		accept_one(listener);
		if (write(from_child[1], &free_at_once, 1) != 1)
			_exit(1);
		if (way == KILLED)
			pause();
		_exit(0);
	}
	if (read(from_child[0], &free_at_once, 1) != 1)
		die("the process that listens has failed");
	if (way == KILLED)
		kill(child, SIGKILL);
	wait_for_child(child);
	next = scif_open();
	bad[way] += !(all_gone(next, port) && free_at_once);
	close(from_child[0]);
	close(from_child[1]);
	return next;
}

static void be_the_listener(__u16 port, int count)
{
	int listener = scif_open();

	if (scif_bind(listener, &port))
		die("SCIF_BIND");
	printf("# listening\n");
	fflush(stdout);
	for (round_number = 0; round_number < count; round_number++) {
		enum way way = round_number % WAYS;

		rounds[way]++;
		listener = way == EXITS || way == KILLED ? listen_in_process(listener, port, way) :
			   listen_once(listener, port, way);
	}
	close(listener);
}

/* --- The connecting side --- */

/* Connects. The new listener may not exist yet, or the old one may still exist. */
static void connect_in_time(int fd, __u16 node, __u16 port)
{
	time_t end = time(NULL) + HANG_LIMIT_SECONDS;

	while (scif_connect(fd, node, port) < 0) {
		if (errno != ECONNREFUSED || time(NULL) > end)
			die("SCIF_CONNECT");
		usleep(500);
	}
}

static void be_the_connector(__u16 node, __u16 port, int count)
{
	__u16 own = port + 1;
	int fd = scif_open(), old = -1, next;

	counters_are_ours = node != own_node();
	if (scif_bind(fd, &own))
		die("SCIF_BIND");
	for (round_number = 0; round_number < count; round_number++) {
		enum way way = round_number % WAYS;

		rounds[way]++;
		connect_in_time(fd, node, port);
		if (old >= 0)
			close(old);
		old = -1;
		meet(fd);
		next = scif_open();
		if (way != OTHER_FIRST && way != AT_ONCE)
			wait_for_hangup(fd);
		if (way == OTHER_STAYS) {
			/* The port of the open endpoint stays in use. */
			old = fd;
			own = own == port + 1 ? port + 2 : port + 1;
			bad[way] += !bind_at_once(next, own);
		} else {
			close(fd);
			bad[way] += !all_gone(next, own);
		}
		fd = next;
	}
	close(fd);
}

/* --- Both --- */

static int report(const char *side)
{
	int i;

	for (i = 0; i < WAYS; i++)
		test(rounds[i] && !bad[i], "%s, %s: nothing is left (%d of %d rounds)", side,
		     names[i], rounds[i] - bad[i], rounds[i]);
	return finish_tests();
}

int main(int argc, char **argv)
{
	const char *role = argc > 1 ? argv[1] : "";
	pid_t child;

	/* A test that hangs has to fail. */
	alarm(PROGRAM_LIMIT_SECONDS);
	memory = mmap(NULL, WINDOW_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	if (memory == MAP_FAILED)
		die("mmap");
	if (argc == 4 && !strcmp(role, "listen")) {
		be_the_listener(atoi(argv[2]), atoi(argv[3]));
		return report("listening");
	}
	if (argc == 5 && !strcmp(role, "connect")) {
		be_the_connector(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
		return report("connecting");
	}
	if (argc == 4 && !strcmp(role, "loopback")) {
		child = new_child();
		if (!child) {
			/* The parent prints the results. */
			dup2(2, 1);
			be_the_connector(own_node(), atoi(argv[2]), atoi(argv[3]));
			return report("connecting");
		}
		be_the_listener(atoi(argv[2]), atoi(argv[3]));
		test(!wait_for_child(child), "the connecting side has found nothing left");
		return report("listening");
	}
	fprintf(stderr, "usage: scif_ports listen PORT ROUNDS\n"
		"       scif_ports connect NODE PORT ROUNDS\n"
		"       scif_ports loopback PORT ROUNDS\n");
	return 2;
}
