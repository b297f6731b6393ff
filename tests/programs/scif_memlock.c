// SPDX-License-Identifier: GPL-2.0
/*
 * RLIMIT_MEMLOCK holds for a user, not only for a process. Registered memory stays charged exactly
 * as long as any process has the descriptor.
 *
 *	scif_memlock
 *
 * Needs no second node. Prints TAP. The program has to run as root, with a device that everybody
 * may open. The users that it becomes must not have pinned memory.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "children.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"
#include "numbers.h"

#define PAGE		4096L
/* Pages: the limit of the users, and the part that one process of a chain registers. */
#define LIMIT		64
#define PIECE		48
/* More pages than the limit, for users who may exceed it. */
#define MUCH		256
/* Number of processes of a chain. */
#define LINKS		40

#define USER		65534
#define OTHER_USER	65533

#define ACCESS		(SCIF_PROT_READ | SCIF_PROT_WRITE)

static unsigned char *memory;

/* Becomes a limited user, with at most one capability. */
static void become(uid_t user, int capability)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };
	struct rlimit limit = { .rlim_cur = LIMIT * PAGE, .rlim_max = LIMIT * PAGE };

	if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgroups(0, NULL) ||
	    prctl(PR_SET_KEEPCAPS, capability >= 0) || setgid(user) || setuid(user))
		die("setuid");
	if (capability >= 0) {
		data[0].effective = 1u << capability;
		data[0].permitted = 1u << capability;
		if (syscall(SYS_capset, &header, data))
			die("capset");
	}
	/* The kernel has cleared this setting with the change of user. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL))
		die("prctl");
}

/* Makes a pair without its listener. */
static void make_ends(int fd[2])
{
	struct pair pair = make_pair();

	memcpy(fd, pair.fd, sizeof(pair.fd));
	close(pair.listener);
}

/* Registers pages. Returns 0, or the error. */
static int lock(int fd, long pages)
{
	return scif_register(fd, memory, pages * PAGE, 0, ACCESS, 0) < 0 ? errno : 0;
}

static bool charged(long pages)
{
	long now = own_pinned_pages();

	if (now == pages)
		return true;
	printf("# VmPin is %ld pages, not %ld\n", now, pages);
	fflush(stdout);
	return false;
}

/* --- Bytes and descriptors between processes --- */

static void say(int fd, char byte)
{
	if (write(fd, &byte, 1) != 1)
		die("the other process has ended");
}

/* Returns the next byte, or -1 if the other process has ended. */
static int hear(int fd)
{
	unsigned char byte;

	return read(fd, &byte, 1) == 1 ? byte : -1;
}

union rights {
	char space[CMSG_SPACE(2 * sizeof(int))];
	struct cmsghdr header;
};

static void hand_on(int socket, const int fd[2])
{
	char byte = 0;
	struct iovec data = { .iov_base = &byte, .iov_len = 1 };
	union rights rights = { .header = {
		.cmsg_len = CMSG_LEN(2 * sizeof(int)),
		.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
	} };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1,
		.msg_control = &rights, .msg_controllen = sizeof(rights),
	};

	memcpy(CMSG_DATA(&rights.header), fd, 2 * sizeof(int));
	if (sendmsg(socket, &message, 0) != 1)
		die("sendmsg");
}

static void take(int socket, int fd[2])
{
	char byte;
	struct iovec data = { .iov_base = &byte, .iov_len = 1 };
	union rights rights;
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1,
		.msg_control = &rights, .msg_controllen = sizeof(rights),
	};

	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 ||
	    message.msg_controllen < CMSG_LEN(2 * sizeof(int)))
		die("recvmsg");
	memcpy(fd, CMSG_DATA(&rights.header), 2 * sizeof(int));
}

/* --- Processes that check their limit --- */

/*
 * Checks the result of registering this many pages in a new process, which exits with 0 or the
 * error.
 */
static bool may_lock(uid_t user, long pages, int expected)
{
	pid_t child = new_child();
	int fd[2], status;

	if (!child) {
		become(user, -1);
		make_ends(fd);
		_exit(lock(fd[0], pages));
	}
	status = wait_for_child(child);
	if (status == expected << 8)
		return true;
	printf("# user %d, %ld pages: %s instead of %s\n", user, pages, strerror(status >> 8),
	       strerror(expected));
	return false;
}

/* Checks that a new process may register exactly the limit, again and again. */
static bool has_all(uid_t user)
{
	pid_t child = new_child();
	int fd[2], i;
	__s64 offset;
	bool ok = true;

	if (child)
		return !wait_for_child(child);
	become(user, -1);
	make_ends(fd);
	for (i = 0; i < 3 && ok; i++) {
		offset = scif_register(fd[0], memory, LIMIT * PAGE, 0, ACCESS, 0);
		ok = offset >= 0 && charged(LIMIT) && lock(fd[0], 1) == EAGAIN &&
		     lock(fd[1], 1) == EAGAIN && charged(LIMIT) &&
		     !scif_unregister(fd[0], offset, LIMIT * PAGE) && charged(0);
	}
	_exit(!ok);
}

/* Checks the limit while another process holds the descriptors of a chain. */
static void test_held(const char *how)
{
	test(may_lock(USER, PIECE, EAGAIN) && may_lock(USER, LIMIT - PIECE, 0),
	     "%s: exactly the rest of the user's limit can be locked", how);
	test(may_lock(OTHER_USER, LIMIT, 0), "%s: another user has a limit of their own", how);
}

/* --- Chains --- */

/* Checks the results of the links: the first link has its pages, and no other link has. */
static void test_links(const char *how, const int *result)
{
	int i, locked = 0, refused = 0;

	for (i = 0; i < LINKS; i++) {
		locked += result[i] == 0;
		refused += result[i] == EAGAIN;
	}
	test(result[0] == 0 && locked == 1 && refused == LINKS - 1,
	     "%s: of %d processes %d have locked %ld KiB each, %d are told EAGAIN", how, LINKS,
	     locked, PIECE * PAGE / 1024, refused);
}

/* Passes descriptors back as messages, while the processes end. */
static void test_messages(void)
{
	int sockets[2], held[LINKS][2], result[LINKS], fd[2], i;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
		die("socketpair");
	for (i = 0; i < LINKS; i++) {
		child = new_child();
		if (!child) {
			become(USER, -1);
			make_ends(fd);
			result[i] = lock(fd[0], PIECE);
			hand_on(sockets[1], fd);
			_exit(result[i]);
		}
		take(sockets[0], held[i]);
		result[i] = wait_for_child(child) >> 8;
	}
	test_links("SCM_RIGHTS", result);
	test_held("SCM_RIGHTS");
	for (i = 0; i < LINKS; i++) {
		close(held[i][0]);
		close(held[i][1]);
	}
	close(sockets[0]);
	close(sockets[1]);
	test(has_all(USER), "SCM_RIGHTS: the whole charge is given back");
}

/* Runs as the last link, which has all descriptors until it is told to end. */
static void end_of_chain(int from)
{
	hear(from);
	_exit(0);
}

/* Makes a chain in which each link is a child of the one before, which ends. */
static void fork_links(int to, int from)
{
	int fd[2], i;
	pid_t child;

	for (i = 0; i < LINKS; i++) {
		make_ends(fd);
		say(to, lock(fd[0], PIECE));
		if (i == LINKS - 1)
			break;
		child = fork();
		if (child)
			_exit(child < 0);
	}
	end_of_chain(from);
}

/* Makes a chain in which each link is the same process with another program. */
static void execute_link(int number, int to, int from)
{
	char argument[3][12];
	int fd[2];

	make_ends(fd);
	say(to, lock(fd[0], PIECE));
	if (number == LINKS - 1)
		end_of_chain(from);
	if (fcntl(fd[0], F_SETFD, 0) || fcntl(fd[1], F_SETFD, 0))
		die("fcntl");
	snprintf(argument[0], sizeof(argument[0]), "%d", number + 1);
	snprintf(argument[1], sizeof(argument[1]), "%d", to);
	snprintf(argument[2], sizeof(argument[2]), "%d", from);
	execl("/proc/self/exe", "scif_memlock", "link", argument[0], argument[1], argument[2],
	      NULL);
	die("exec");
}

static void execute_links(int to, int from)
{
	execute_link(0, to, from);
}

static void test_chain(const char *how, void (*links)(int to, int from))
{
	int to[2], from[2], result[LINKS], i;
	pid_t child;

	/* These descriptors stay open on exec. */
	if (pipe(to) || pipe(from))
		die("pipe");
	child = new_child();
	if (!child) {
		close(to[1]);
		close(from[0]);
		become(USER, -1);
		links(from[1], to[0]);
	}
	close(to[0]);
	close(from[1]);
	for (i = 0; i < LINKS; i++)
		result[i] = hear(from[0]);
	test_links(how, result);
	test_held(how);
	close(to[1]);
	close(from[0]);
	/* This process inherits links whose parent has ended. */
	while (wait(NULL) > 0)
		;
	test(has_all(USER), "%s: the whole charge is given back", how);
}

/* --- Other rules --- */

/* VmPin counts for the process that has registered, also if another process closes. */
static void test_last_close(void)
{
	int sockets[2], fd[2];
	pid_t child;
	bool going;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
		die("socketpair");
	child = new_child();
	if (!child) {
		close(sockets[0]);
		become(USER, -1);
		make_ends(fd);
		if (lock(fd[0], PIECE))
			_exit(1);
		hand_on(sockets[1], fd);
		close(fd[0]);
		close(fd[1]);
		if (!charged(PIECE))
			_exit(2);
		say(sockets[1], 0);
		if (hear(sockets[1]) < 0 || !charged(0))
			_exit(3);
		make_ends(fd);
		_exit(lock(fd[0], LIMIT));
	}
	close(sockets[1]);
	take(sockets[0], fd);
	going = hear(sockets[0]) >= 0;
	close(fd[0]);
	close(fd[1]);
	if (going)
		say(sockets[0], 0);
	test(!wait_for_child(child), "the last descriptor is closed by another process");
	close(sockets[0]);
}

/* Failed registrations are not charged. */
static void test_errors(void)
{
	unsigned char *half;
	pid_t child = new_child();
	__s64 offset;
	int fd[2], i;

	if (!child) {
		become(USER, -1);
		make_ends(fd);
		half = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
		if (half == MAP_FAILED || munmap(half + 4 * PAGE, 4 * PAGE))
			die("mmap");
		offset = scif_register(fd[0], memory, PAGE, 0, ACCESS, 0);
		for (i = 0; i < 20; i++) {
			if (scif_register(fd[0], half, 8 * PAGE, 0, ACCESS, 0) != -1 ||
			    errno != EFAULT)
				_exit(1);
			if (scif_register(fd[0], memory, PIECE * PAGE, offset, ACCESS,
					  SCIF_MAP_FIXED) != -1 || errno != EADDRINUSE)
				_exit(2);
		}
		_exit(!charged(1) || lock(fd[0], LIMIT - 1) || lock(fd[0], 1) != EAGAIN);
	}
	test(!wait_for_child(child) && has_all(USER),
	     "a failed register is not charged");
}

/* Memory is charged to the user who was current when it was registered. */
static void test_other_user(void)
{
	int sockets[2], fd[2];
	pid_t child;
	bool ok;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
		die("socketpair");
	child = new_child();
	if (!child) {
		close(sockets[0]);
		become(USER, CAP_SETUID);
		make_ends(fd);
		if (lock(fd[0], PIECE) || setresuid(OTHER_USER, OTHER_USER, OTHER_USER))
			_exit(1);
		say(sockets[1], 0);
		hear(sockets[1]);
		close(fd[0]);
		close(fd[1]);
		_exit(!charged(0));
	}
	close(sockets[1]);
	ok = hear(sockets[0]) >= 0 && may_lock(USER, PIECE, EAGAIN) &&
	     may_lock(OTHER_USER, LIMIT, 0);
	test(ok, "a process that becomes another user does not take the charge along");
	/* The child continues, if it has come this far. */
	close(sockets[0]);
	ok = !wait_for_child(child) && has_all(USER) && has_all(OTHER_USER);
	test(ok, "the charge is given back to the former user");
}

static void test_privileged(void)
{
	pid_t child = new_child();
	struct rlimit limit = { .rlim_cur = LIMIT * PAGE, .rlim_max = LIMIT * PAGE };
	int fd[2];

	if (!child) {
		if (setrlimit(RLIMIT_MEMLOCK, &limit))
			die("setrlimit");
		make_ends(fd);
		_exit(lock(fd[0], MUCH) || !charged(MUCH));
	}
	test(!wait_for_child(child), "root is not limited");
	child = new_child();
	if (!child) {
		become(USER, CAP_IPC_LOCK);
		make_ends(fd);
		_exit(lock(fd[0], MUCH) || !charged(MUCH));
	}
	test(!wait_for_child(child), "a process with CAP_IPC_LOCK is not limited");
	test(has_all(USER), "a process with CAP_IPC_LOCK leaves nothing charged");
}

int main(int argc, char **argv)
{
	/* A test that hangs has to fail. */
	alarm(PROGRAM_LIMIT_SECONDS);
	memory = mmap(NULL, MUCH * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	if (memory == MAP_FAILED)
		die("mmap");
	if (argc == 5 && !strcmp(argv[1], "link"))
		execute_link(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
	if (argc != 1) {
		fprintf(stderr, "usage: scif_memlock\n");
		return 2;
	}
	if (prctl(PR_SET_CHILD_SUBREAPER, 1))
		die("prctl");
	test(has_all(USER) && has_all(OTHER_USER), "nothing is locked yet");
	test_messages();
	test_chain("fork", fork_links);
	test_chain("exec", execute_links);
	test_last_close();
	test_errors();
	test_other_user();
	test_privileged();
	return finish_tests();
}
