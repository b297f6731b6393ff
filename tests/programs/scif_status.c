// SPDX-License-Identifier: GPL-2.0
/*
 * Follows the status of a node while it goes and comes back.
 *
 *	scif_status peer PORT		what to connect to: has a window
 *	scif_status follow NODE		says each epoch, and the boot id
 *	scif_status lose NODE PORT	has that window mapped in all ways, and looks at it when
 *					the node is lost, and when it is back
 *
 * "follow" prints a line "EPOCH BOOT_ID" at first and after each change. "lose" prints "waiting",
 * then "lost" when all is right after the loss, and "back". The first fault ends the program with
 * an error.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/scif_services.h>

#include "checks.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"

#define WINDOW		0x10000000L
#define WINDOW_SIZE	(4L << 20)
#define BYTE		0x5a

static void say(const char *text)
{
	printf("%s\n", text);
	fflush(stdout);
}

static void *map(int fd, long len, int prot, long offset)
{
	void *memory = mmap(NULL, len, prot, MAP_SHARED, fd, offset);

	if (memory == MAP_FAILED)
		die("mmap");
	return memory;
}

static void be_the_peer(__u16 port)
{
	int fd = listen_on(&port);
	char byte = 0;
	void *area = mmap(NULL, WINDOW_SIZE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (area == MAP_FAILED)
		die("mmap");
	memset(area, BYTE, WINDOW_SIZE);
	say("listening");
	for (;;) {
		/* The endpoint stays open until this process ends. */
		int accepted = accept_from(fd);

		if (scif_register(accepted, area, WINDOW_SIZE, WINDOW,
				  SCIF_PROT_READ | SCIF_PROT_WRITE, SCIF_MAP_FIXED) < 0)
			die("SCIF_REG");
		if (scif_send(accepted, &byte, 1, SCIF_SEND_BLOCK) != 1)
			die("SCIF_SEND");
	}
}

static int status_of(__u16 node)
{
	struct scif_node_status request = { .size = sizeof(request), .node = node };
	int fd = scif_open();

	if (ioctl(fd, SCIF_NODE_STATUS, &request))
		die("SCIF_NODE_STATUS");
	close(fd);
	return request.fd;
}

static __u64 taken(int status)
{
	__u64 epoch;

	if (read(status, &epoch, sizeof(epoch)) != sizeof(epoch))
		die("read of a status");
	return epoch;
}

/* Returns whether the epoch changes within `timeout` milliseconds. */
static bool changes(int status, int timeout)
{
	struct pollfd poller = { .fd = status, .events = POLLIN | POLLPRI };
	int count = poll(&poller, 1, timeout);

	if (count < 0)
		die("poll");
	expect(!count || poller.revents == (POLLIN | POLLPRI));
	return count;
}

static void follow(__u16 node)
{
	int status = status_of(node);
	const volatile struct scif_status_page *page =
		map(status, sysconf(_SC_PAGESIZE), PROT_READ, 0);
	__u64 epoch = taken(status);

	for (;;) {
		printf("%llu %016llx%016llx\n", epoch, page->boot_id[1], page->boot_id[0]);
		fflush(stdout);
		expect(changes(status, -1));
		expect(changes(status, 0));
		epoch = taken(status);
	}
}

/* --- Mappings --- */

static sigjmp_buf after_fault;
static volatile bool jumps;

static void on_fault(int signal)
{
	if (jumps)
		siglongjmp(after_fault, signal);
	fprintf(stderr, "scif_status: signal %d\n", signal);
	_exit(1);
}

static int access_signal(volatile unsigned char *address)
{
	int signal;

	jumps = true;
	signal = sigsetjmp(after_fault, 1);
	if (!signal)
		(void)*address;
	jumps = false;
	return signal;
}

static bool all_are(volatile const unsigned char *memory, int byte)
{
	long at;

	for (at = 0; at < WINDOW_SIZE; at += 509)
		if (memory[at] != byte)
			return false;
	return true;
}

struct looker {
	volatile const unsigned char *memory;
	volatile bool *stop;
	bool seen_else;
};

/* Loads all the time, so that the loss comes in the middle of a load. */
static void *look(void *data)
{
	struct looker *looker = data;
	long at = 0;

	while (!*looker->stop) {
		unsigned char value = looker->memory[at];

		if (value != BYTE && value != 0xff)
			looker->seen_else = true;
		at = (at + 4099) % WINDOW_SIZE;
	}
	return NULL;
}

static int connect_to_window(__u16 node, __u16 port)
{
	char byte;
	int fd = connected(node, port);

	if (scif_recv(fd, &byte, 1, SCIF_RECV_BLOCK) != 1)
		die("SCIF_RECV");
	return fd;
}

static void set_policy(int fd, __u32 flags)
{
	struct scif_map_policy policy = { .size = sizeof(policy), .flags = flags };

	if (ioctl(fd, SCIF_MAP_POLICY, &policy))
		die("SCIF_MAP_POLICY");
}

static int read_all(int fd)
{
	static char to[1 << 16];
	struct scifioctl_copy copy = {
		.addr = (__u64)to,
		.len = sizeof(to),
		.roffset = WINDOW,
		.flags = SCIF_RMA_SYNC,
	};

	return ioctl(fd, SCIF_VREADFROM, &copy);
}

struct mapped {
	volatile unsigned char *before, *read, *untouched, *both, *other;
};

static struct mapped map_in_all_ways(int fd)
{
	struct mapped mapped;

	mapped.before = map(fd, WINDOW_SIZE, PROT_READ, WINDOW);
	set_policy(fd, SCIF_MAP_ONES_AFTER_LOSS);
	mapped.read = map(fd, WINDOW_SIZE, PROT_READ, WINDOW);
	mapped.untouched = map(fd, WINDOW_SIZE, PROT_READ, WINDOW);
	mapped.both = map(fd, WINDOW_SIZE, PROT_READ | PROT_WRITE, WINDOW);
	mapped.other = map(fd, WINDOW_SIZE, PROT_READ | PROT_WRITE, WINDOW);
	set_policy(fd, 0);
	expect(all_are(mapped.before, BYTE) && all_are(mapped.read, BYTE));
	expect(all_are(mapped.both, BYTE) && all_are(mapped.other, BYTE));
	return mapped;
}

static void check_ones(const struct mapped *mapped)
{
	expect(access_signal(mapped->before) == SIGBUS);
	expect(all_are(mapped->read, 0xff) && all_are(mapped->untouched, 0xff));
	expect(all_are(mapped->other, 0xff));
}

static void lose(__u16 node, __u16 port)
{
	int status = status_of(node);
	const volatile struct scif_status_page *page =
		map(status, sysconf(_SC_PAGESIZE), PROT_READ, 0);
	int fd = connect_to_window(node, port);
	struct mapped mapped = map_in_all_ways(fd);
	volatile bool stop = false;
	struct looker looker = { .memory = mapped.read, .stop = &stop };
	pthread_t thread;
	__u64 epoch = taken(status), boot_id[2] = { page->boot_id[0], page->boot_id[1] };
	__u64 errors = page->errors;

	signal(SIGBUS, on_fault);
	expect(epoch % 2 == 1 && epoch == page->epoch && (boot_id[0] || boot_id[1]));
	expect(!changes(status, 0) && !read_all(fd) && page->errors == errors);
	if (pthread_create(&thread, NULL, look, &looker))
		die("pthread_create");
	say("waiting");

	expect(wait_for(fd, POLLHUP) & POLLHUP);
	expect(page->epoch == epoch + 1);
	expect(changes(status, 0) && taken(status) == epoch + 1 && !changes(status, 0));
	expect(page->boot_id[0] == boot_id[0] && page->boot_id[1] == boot_id[1]);
	/* The kernel unmaps pages after it has woken waiters, one mapping after the other. */
	while (!access_signal(mapped.before))
		usleep(1000);
	while (!all_are(mapped.read, 0xff) || !all_are(mapped.untouched, 0xff) ||
	       !all_are(mapped.both, 0xff) || !all_are(mapped.other, 0xff))
		usleep(1000);
	stop = true;
	if (pthread_join(thread, NULL))
		die("pthread_join");
	expect(!looker.seen_else);
	expect(all_are(mapped.both, 0xff));
	check_ones(&mapped);
	errors = page->errors;
	expect(errors > 0);
	expect(read_all(fd) && errno == ENODEV && page->errors > errors);

	/* These stores go to a page that no other process reads. */
	memset((void *)mapped.both, 0x11, WINDOW_SIZE);
	check_ones(&mapped);
	expect(mprotect((void *)mapped.read, WINDOW_SIZE, PROT_READ | PROT_WRITE));
	say("lost");

	expect(changes(status, -1));
	expect(taken(status) == epoch + 2);
	expect(page->boot_id[0] == boot_id[0] && page->boot_id[1] == boot_id[1]);
	/* The return of the node does not restore the old mappings. */
	check_ones(&mapped);
	close(fd);
	check_ones(&mapped);
	say("back");
}

int main(int argc, char **argv)
{
	alarm(PROGRAM_LIMIT_SECONDS);
	if (argc == 3 && !strcmp(argv[1], "peer"))
		be_the_peer(atoi(argv[2]));
	else if (argc == 3 && !strcmp(argv[1], "follow"))
		follow(atoi(argv[2]));
	else if (argc == 4 && !strcmp(argv[1], "lose"))
		lose(atoi(argv[2]), atoi(argv[3]));
	else
		return 2;
	return 0;
}
