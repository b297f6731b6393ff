// SPDX-License-Identifier: GPL-2.0
/*
 * Connections that were accepted (ACCEPTREQ) and not taken over (ACCEPTREG), if several processes
 * share the listener. They are closed with the process that accepted them, or with its descriptor
 * of the listener, and not with that of another process.
 *
 *	scif_accepted server PORT MANY		accepts in several processes
 *	scif_accepted client NODE PORT MANY	connects, and sees what becomes of that
 *	scif_accepted loopback PORT MANY	both, on this node
 *
 * Both print TAP. MANY processes accept one after the other, and end.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "checks.h"
#include "children.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"

static int listener;

/* --- The server's processes --- */

/* Does the first half of accept. Ends the process if it fails. */
static __u64 first_half(void)
{
	struct scifioctl_accept argument = { .flags = SCIF_ACCEPT_SYNC };

	if (ioctl(listener, SCIF_ACCEPTREQ, &argument))
		_exit(errno);
	return argument.endpt;
}

/* Does the second half of accept, and sends a byte to the client. Returns 0 on success. */
static int second_half(__u64 handle)
{
	int fd = scif_open();

	if (ioctl(fd, SCIF_ACCEPTREG, &handle))
		return errno;
	if (scif_send(fd, "", 1, SCIF_SEND_BLOCK) != 1)
		return errno;
	wait_for(fd, POLLHUP);
	close(fd);
	return 0;
}

/* A child process that exchanges bytes with its parent. */
struct process {
	pid_t pid;
	int to, from;
};

static void hear(int fd)
{
	char byte;

	if (read(fd, &byte, 1) != 1)
		die("a process of the server has failed");
}

static void say(int fd)
{
	if (write(fd, "", 1) != 1)
		die("a process of the server has failed");
}

/* Starts a child that runs `run` with its two pipes, and exits with its result. */
static struct process start(int (*run)(int from, int to))
{
	int to[2], from[2];
	struct process process;

	if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		die("pipe");
	process.pid = new_child();
	if (!process.pid) {
		close(to[1]);
		close(from[0]);
		_exit(run(to[0], from[1]));
	}
	close(to[0]);
	close(from[1]);
	process.to = to[1];
	process.from = from[0];
	return process;
}

/* Waits for a child, and returns its status. */
static int finish(struct process *process)
{
	int status = wait_for_child(process->pid);

	close(process->to);
	close(process->from);
	return status;
}

static int accept_and_end(int from, int to)
{
	first_half();
	return 0;
}

static int accept_and_stay(int from, int to)
{
	first_half();
	say(to);
	pause();
	return 1;
}

/* The handle is invalid once the descriptor is closed. */
static int accept_and_close(int from, int to)
{
	__u64 handle = first_half();
	int fd = scif_open();

	close(listener);
	say(to);
	hear(from);
	return !ioctl(fd, SCIF_ACCEPTREG, &handle) || errno != EINVAL;
}

/*
 * The program becomes another one, which keeps the listener as long as it runs, and cannot take
 * over.
 */
static int accept_and_execute(int from, int to)
{
	first_half();
	if (fcntl(listener, F_SETFD, 0))
		return 1;
	execl("/bin/true", "true", NULL);
	return 1;
}

static int accept_and_take_over(int from, int to)
{
	__u64 handle = first_half();

	say(to);
	hear(from);
	return second_half(handle);
}

/* A child inherits the listener and ends, while its parent has a connection to take over. */
static int accept_and_fork(int from, int to)
{
	__u64 handle = first_half();
	pid_t child = new_child();

	if (!child)
		_exit(0);
	if (wait_for_child(child))
		return 1;
	return second_half(handle);
}

static void serve(int many)
{
	struct process one, other;
	int i, status = 0;

	for (i = 0; i < many && !status; i++) {
		one = start(accept_and_end);
		status = finish(&one);
	}
	if (status)
		printf("# process %d: %s\n", i, strerror(status >> 8));
	test(!status, "%d processes accept and exit, one after the other", many);

	one = start(accept_and_stay);
	hear(one.from);
	kill(one.pid, SIGKILL);
	test(finish(&one) == SIGKILL, "a process accepts and is killed");

	one = start(accept_and_close);
	hear(one.from);
	/* The client asks for the next connection only after it has seen the end of this one. */
	other = start(accept_and_end);
	test(!finish(&other), "a process accepts beside a process that has closed its descriptor");
	say(one.to);
	test(!finish(&one), "the handle went with the descriptor of the listener");

	one = start(accept_and_execute);
	test(!finish(&one), "a process accepts and runs another program");

	one = start(accept_and_take_over);
	hear(one.from);
	other = start(accept_and_end);
	test(!finish(&other), "a process accepts and exits beside a process that has accepted");
	say(one.to);
	test(!finish(&one), "the connection of the other process is still there");

	one = start(accept_and_fork);
	test(!finish(&one), "the exit of a child takes nothing from its parent");
	test(!second_half(first_half()), "the listener goes on");
}

/* --- The client --- */

static __u16 node, port;

/* Returns whether the server has given up the connection without sending a byte. */
static bool is_given_up(int fd)
{
	char byte;

	return wait_for(fd, POLLHUP) && scif_recv(fd, &byte, 1, 0) == -1 && errno == ECONNRESET;
}

static bool is_taken_over(int fd)
{
	char byte;

	return wait_for(fd, POLLIN) && scif_recv(fd, &byte, 1, 0) == 1;
}

static bool given_up(void)
{
	int fd = connected(node, port);
	bool result = is_given_up(fd);

	close(fd);
	return result;
}

static bool taken_over(void)
{
	int fd = connected(node, port);
	bool result = is_taken_over(fd);

	close(fd);
	return result;
}

/* Runs the client. The server continues only after the client has seen the same. */
static void be_the_client(int many)
{
	int i, fd;
	bool ok = true;

	for (i = 0; i < many && ok; i++)
		ok = given_up();
	test(ok, "%d connections end with the processes that accepted them", i);
	/* The server waits for the other clients. */
	if (!ok)
		return;
	test(given_up(), "killed: the connection ends with the process");
	test(given_up(), "closed: the connection ends with the descriptor");
	test(given_up(), "the next connection ends, too");
	test(given_up(), "executed: the connection ends");
	fd = connected(node, port);
	test(given_up(), "the connection of one process ends");
	test(is_taken_over(fd), "the connection of another process stays");
	close(fd);
	test(taken_over(), "the connection of the parent of an exited process stays");
	test(taken_over(), "the listener goes on");
}

/* --- Both --- */

int main(int argc, char **argv)
{
	const char *role = argc > 1 ? argv[1] : "";
	pid_t child;

	/* A test that hangs has to fail. */
	alarm(PROGRAM_LIMIT_SECONDS);
	if (argc == 4 && (!strcmp(role, "server") || !strcmp(role, "loopback"))) {
		port = atoi(argv[2]);
		listener = listen_on(&port);
		if (!strcmp(role, "server")) {
			printf("# listening\n");
			fflush(stdout);
			serve(atoi(argv[3]));
			return finish_tests();
		}
		child = new_child();
		if (!child) {
			/* The client prints the results. */
			dup2(2, 1);
			serve(atoi(argv[3]));
			return finish_tests();
		}
		close(listener);
		node = own_node();
		be_the_client(atoi(argv[3]));
		if (failures)
			kill(child, SIGKILL);
		test(!wait_for_child(child), "no check of the server has failed");
		return finish_tests();
	}
	if (argc == 5 && !strcmp(role, "client")) {
		node = atoi(argv[2]);
		port = atoi(argv[3]);
		be_the_client(atoi(argv[4]));
		return finish_tests();
	}
	fprintf(stderr, "usage: scif_accepted server PORT MANY\n"
		"       scif_accepted client NODE PORT MANY\n"
		"       scif_accepted loopback PORT MANY\n");
	return 2;
}
