// SPDX-License-Identifier: GPL-2.0
/*
 * Helpers of the cases (suite.h).
 */
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "suite.h"

/* --- Memory and its content --- */

static __u64 mix(__u64 value)
{
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
	return value ^ (value >> 31);
}

/* Returns the word of a seed's pattern that begins at this byte, a multiple of 8. */
static __u64 word_at(__u32 seed, long at)
{
	return mix(((__u64)seed << 32) + at + 0x9e3779b97f4a7c15ULL);
}

void fill(void *to, __u32 seed, long len)
{
	unsigned char *byte = to;
	__u64 word;
	long i;

	for (i = 0; i + 8 <= len; i += 8) {
		word = word_at(seed, i);
		memcpy(byte + i, &word, 8);
	}
	word = word_at(seed, i);
	memcpy(byte + i, &word, len - i);
}

long differs(const void *from, __u32 seed, long len)
{
	const unsigned char *byte = from;
	__u64 word;
	long i, j;

	for (i = 0; i < len; i += sizeof(word)) {
		word = word_at(seed, i);
		/* The compiler turns a comparison of constant size into one instruction. */
		if (len - i >= 8 && !memcmp(byte + i, &word, 8))
			continue;
		for (j = 0; j < 8 && i + j < len; j++) {
			if (byte[i + j] != (unsigned char)(word >> (8 * j)))
				return i + j;
		}
	}
	return -1;
}

long differs_from_byte(const void *from, int byte, long len)
{
	const unsigned char *at = from;
	long i;

	/* All bytes are equal if the first one is right and each equals the next one. */
	if (len > 0 && at[0] == (unsigned char)byte && !memcmp(at, at + 1, len - 1))
		return -1;
	for (i = 0; i < len; i++) {
		if (at[i] != (unsigned char)byte)
			return i;
	}
	return -1;
}

void *pages(long count)
{
	void *memory = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED || madvise(memory, count * PAGE, MADV_DONTFORK))
		fail("no memory for so much: %ld", count);
	return memory;
}

/* --- Endpoints --- */

int poll_for(int endpoint, int events, int timeout)
{
	struct scif_pollepd poll = { .epd = endpoint, .events = events };

	return scif_poll(&poll, 1, timeout) < 0 ? -1 : poll.revents;
}

void wait_for_hangup(int endpoint)
{
	int events;

	do {
		events = poll_for(endpoint, 0, -1);
	} while (events >= 0 && !(events & POLLHUP));
}

long stuff(int endpoint)
{
	static unsigned char block[64 * 1024];
	long total = 0;
	int count;

	/*
	 * Sent data may flow on into the peer's memory, where no call reads it. A full queue may
	 * have grown by itself a moment later.
	 */
	do {
		count = expect_ok(scif_send(endpoint, block, sizeof(block), 0));
		total += count;
	} while (count || poll_for(endpoint, POLLOUT, GROWTH_MILLISECONDS) == POLLOUT);
	return total;
}

int listening(__u16 *port, int backlog)
{
	int endpoint = expect_ok(scif_open());

	*port = expect_ok(scif_bind(endpoint, *port));
	expect_value(scif_listen(endpoint, backlog), 0);
	return endpoint;
}

__u16 own_node(void)
{
	__u16 self = 0xffff;

	expect_ok(scif_get_node_ids(NULL, 0, &self));
	return self;
}

__u16 absent_node_up_to(__u16 id)
{
	__u16 nodes[64], self;
	int count = expect_ok(scif_get_node_ids(nodes, 64, &self));
	int i;

	for (i = 0; i < count && i < 64; i++) {
		if (nodes[i] == id) {
			id--;
			i = -1;
		}
	}
	return id;
}

__u16 absent_node(void)
{
	return absent_node_up_to(65000);
}

void set_nonblock(int endpoint, bool on)
{
	int fd = scif_get_fd(endpoint);
	int flags = fcntl(fd, F_GETFL);

	fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

int connect_to(int endpoint, __u16 node, __u16 port)
{
	struct scif_port_id to = { .node = node, .port = port };

	return scif_connect(endpoint, &to);
}

void expect_blocked(struct peer *peer)
{
	__u64 end_of_moment = now() + A_MOMENT;

	while (now() < end_of_moment) {
		if (has_ended(peer))
			fail("the peer's call has returned %ld", end(peer));
		poll(NULL, 0, 2);
	}
}

/* --- Signals and threads --- */

static int interruption_count;

static void count_interruption(int signal)
{
	__atomic_add_fetch(&interruption_count, 1, __ATOMIC_SEQ_CST);
}

void interrupt_repeatedly(bool restart)
{
	const struct sigaction action = {
		.sa_handler = count_interruption,
		.sa_flags = restart ? SA_RESTART : 0,
	};
	const struct itimerval often = {
		.it_value.tv_usec = 20000,
		.it_interval.tv_usec = 20000,
	};

	interruption_count = 0;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
}

void stop_interrupting(void)
{
	const struct itimerval never = { };

	setitimer(ITIMER_REAL, &never, NULL);
}

int interruptions(void)
{
	return __atomic_load_n(&interruption_count, __ATOMIC_SEQ_CST);
}

pthread_t in_thread(void *(*function)(void *data), void *data)
{
	sigset_t all, before;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	errno = pthread_create(&thread, NULL, function, data);
	if (errno)
		fail("no thread: %s", strerror(errno));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return thread;
}

void *thread_result(pthread_t thread)
{
	void *result = NULL;

	pthread_join(thread, &result);
	return result;
}

/* --- Processes --- */

long locked(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];
	long kib = -1;

	while (status && fgets(line, sizeof(line), status)) {
		if (sscanf(line, "VmPin: %ld kB", &kib) == 1)
			break;
	}
	if (status)
		fclose(status);
	return kib * 1024;
}

long pinned(void)
{
	int refresh = open("/proc/sys/vm/stat_refresh", O_RDONLY);
	FILE *file = fopen("/proc/vmstat", "r");
	char line[128], *name;
	long balance = 0;

	/* Each CPU counts for itself. A read of this file adds the counts up. */
	if (refresh >= 0) {
		expect(read(refresh, line, 1) >= 0);
		close(refresh);
	}
	expect(file);
	rewind(file);
	while (fgets(line, sizeof(line), file)) {
		name = strtok(line, " ");
		if (!strcmp(name, "nr_foll_pin_acquired"))
			balance += atol(strtok(NULL, " "));
		if (!strcmp(name, "nr_foll_pin_released"))
			balance -= atol(strtok(NULL, " "));
	}
	fclose(file);
	return balance;
}

void become(unsigned int user, long locked_limit)
{
	struct rlimit limit = { .rlim_cur = locked_limit, .rlim_max = locked_limit };

	if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgroups(0, NULL) ||
	    setresgid(user, user, user) || setresuid(user, user, user))
		fail("the suite has to be run by root: %s", strerror(errno));
	/*
	 * After a change of user the process is undumpable, so its /proc files would belong to
	 * root.
	 */
	prctl(PR_SET_DUMPABLE, 1);
}

void drop_privileges(long locked_limit)
{
	become(NOBODY, locked_limit);
}

pid_t in_child(void (*function)(void *data), void *data)
{
	pid_t child = fork();

	if (child < 0)
		fail("fork: %s", strerror(errno));
	if (!child) {
		function(data);
		_exit(0);
	}
	return child;
}

void child_passed(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) != child)
		fail("waitpid: %s", strerror(errno));
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail("a process of the case failed, status %#x", status);
}

int child_signal(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) != child)
		fail("waitpid: %s", strerror(errno));
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}
