// SPDX-License-Identifier: GPL-2.0
/*
 * Transfers by several processes at once, each with a connection of its own, while the driver of
 * the DMA engine is unbound and bound again.
 *
 *	scif_engine server PORT				has a window for each client
 *	scif_engine client NODE PORT			transfers for a while
 *	scif_engine client NODE PORT DEVICE CYCLES	meanwhile unbinds and binds the driver
 *	scif_engine endless NODE PORT			transfers until its input ends
 *
 * The clients print TAP. The endless one prints "under way" when all its processes transfer. DEVICE
 * is the engine's PCI device on the client's node. A transfer may fail with EIO. A successful
 * transfer has to be right, and sooner or later transfers succeed again.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "children.h"
#include "die.h"
#include "ends.h"
#include "engine_driver.h"
#include "hang_limits.h"
#include "numbers.h"

#define WORKERS		4
/* Number of rounds of each worker that show that transfers work. */
#define SOME		8

#define WINDOW		0x10000000L
#define SIZE		(256 * 1024L)
/* A round without waiting consists of this many transfers. */
#define PIECES		16
#define PIECE		(SIZE / PIECES)

struct worker {
	pid_t pid;
	/* Rounds whose data was right, and rounds that ended with EIO. */
	long rounds, failed;
};

/* State that the program shares with its workers. */
static struct {
	struct worker worker[WORKERS];
	bool stop;
} *shared;

static void *map(int flags)
{
	void *area = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED)
		die("mmap");
	return area;
}

/* --- Server --- */

static void make_window(int fd)
{
	if (scif_register(fd, map(MAP_PRIVATE), SIZE, WINDOW, SCIF_PROT_READ | SCIF_PROT_WRITE,
			  SCIF_MAP_FIXED) < 0)
		die("SCIF_REG");
}

/* --- Worker --- */

static int epd;

/* Returns whether a transfer has succeeded. Any error but EIO ends the process. */
static bool succeeds(int result)
{
	if (result && errno != EIO)
		die("a transfer");
	return !result;
}

/* Copies between the windows, or between memory and the peer's window. */
static int copy(unsigned long call, void *memory, long offset, long len, int flags)
{
	struct scifioctl_copy argument = {
		.loffset = WINDOW + offset, .len = len, .roffset = WINDOW + offset,
		.addr = (uintptr_t)memory + offset, .flags = flags,
	};

	return ioctl(epd, call, &argument);
}

/*
 * Starts transfers without waiting for each, and then waits for all. It waits also if one has
 * failed, as the others go on.
 */
static bool put_in_pieces(unsigned long call, void *memory)
{
	bool ok = true;
	__s32 mark;
	long i;

	for (i = 0; i < PIECES && ok; i++)
		ok = succeeds(copy(call, memory, i * PIECE, PIECE, 0));
	if (scif_fence_mark(epd, SCIF_FENCE_INIT_SELF, &mark))
		die("SCIF_FENCE_MARK");
	return succeeds(scif_fence_wait(epd, mark)) && ok;
}

static bool put(long round, void *memory)
{
	switch (round % 4) {
	case 0:
		return succeeds(copy(SCIF_WRITETO, memory, 0, SIZE, SCIF_RMA_SYNC));
	case 1:
		return put_in_pieces(SCIF_WRITETO, memory);
	case 2:
		return succeeds(copy(SCIF_VWRITETO, memory, 0, SIZE, SCIF_RMA_SYNC));
	default:
		return put_in_pieces(SCIF_VWRITETO, memory);
	}
}

static void work(struct worker *self)
{
	__u32 *memory = map(MAP_PRIVATE), *back = map(MAP_PRIVATE);
	long round, i;
	char ready;

	if (scif_recv(epd, &ready, 1, SCIF_RECV_BLOCK) != 1)
		die("no server");
	if (scif_register(epd, memory, SIZE, WINDOW, SCIF_PROT_READ | SCIF_PROT_WRITE,
			  SCIF_MAP_FIXED) < 0)
		die("SCIF_REG");
	for (round = 1; !__atomic_load_n(&shared->stop, __ATOMIC_RELAXED); round++) {
		for (i = 0; i < SIZE / (long)sizeof(*memory); i++)
			memory[i] = i * 2654435761u + round * 40503u + getpid();
		memset(back, 0, SIZE);
		if (!put(round, memory) ||
		    !succeeds(copy(SCIF_VREADFROM, back, 0, SIZE, SCIF_RMA_SYNC))) {
			__atomic_add_fetch(&self->failed, 1, __ATOMIC_RELAXED);
			continue;
		}
		if (memcmp(memory, back, SIZE)) {
			errno = EILSEQ;
			die("a transfer that was said to have succeeded");
		}
		__atomic_add_fetch(&self->rounds, 1, __ATOMIC_RELAXED);
	}
	exit(0);
}

static void start_worker(int number, __u16 node, __u16 port)
{
	struct worker *worker = &shared->worker[number];
	pid_t child;

	/*
	 * Every other connection stays idle until this process ends. Connections that transfer have
	 * to find unused engines nevertheless.
	 */
	connected(node, port);
	epd = connected(node, port);
	child = new_child();
	if (!child)
		work(worker);
	worker->pid = child;
	close(epd);
}

/* --- Client --- */

static long rounds_of(int number)
{
	return __atomic_load_n(&shared->worker[number].rounds, __ATOMIC_RELAXED);
}

/* Returns whether each worker, from `first` on, does some more rounds within the hang limit. */
static bool go_on(int first)
{
	time_t end = time(NULL) + HANG_LIMIT_SECONDS;
	long wanted[WORKERS];
	int i, status;

	for (i = first; i < WORKERS; i++)
		wanted[i] = rounds_of(i) + SOME;
	for (i = first; i < WORKERS; i++) {
		while (rounds_of(i) < wanted[i]) {
			if (waitpid(shared->worker[i].pid, &status, WNOHANG)) {
				printf("# worker %d has ended\n", i);
				shared->worker[i].pid = 0;
				return false;
			}
			if (time(NULL) > end) {
				printf("# worker %d hangs\n", i);
				return false;
			}
			usleep(5000);
		}
	}
	return true;
}

static bool is_killed(int number)
{
	int status;

	kill(shared->worker[number].pid, SIGKILL);
	if (!ends(shared->worker[number].pid, &status))
		return false;
	shared->worker[number].pid = 0;
	return status == SIGKILL;
}

static bool cycle(const char *device, __u16 node, __u16 port)
{
	bool ok;

	printf("# dma_bytes %ld\n", counter_or("dma_bytes", -1));
	if (!tell_driver("unbind", device))
		die("unbind");
	ok = is_killed(0);
	test(ok, "without the engine, a process that transfers can be killed");
	if (!ok)
		return false;
	ok = go_on(1);
	test(ok, "without the engine, transfers succeed");
	if (!ok)
		return false;
	if (!tell_driver("bind", device))
		die("bind");
	start_worker(0, node, port);
	ok = go_on(0);
	test(ok, "with the driver bound again, transfers succeed");
	return ok;
}

static bool run_cycles(const char *device, int cycles, __u16 node, __u16 port)
{
	bool ok;
	int i;

	for (i = 0; i < WORKERS; i++)
		start_worker(i, node, port);
	ok = go_on(0);
	test(ok, "%d processes transfer", WORKERS);
	for (i = 0; i < cycles && ok; i++)
		ok = cycle(device, node, port);
	return ok;
}

/* Transfers until the input ends. The test takes an engine away meanwhile. */
static bool run_to_end_of_input(__u16 node, __u16 port)
{
	bool ok = run_cycles(NULL, 0, node, port);

	if (!ok)
		return false;
	printf("# under way\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	ok = go_on(0);
	test(ok, "%d processes go on", WORKERS);
	return ok;
}

/* Ends the workers, or kills them unless all was well so far. Returns the exit status. */
static int end_workers(bool ok)
{
	bool all_end = true;
	long failed = 0;
	int i, status;

	__atomic_store_n(&shared->stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < WORKERS; i++) {
		failed += shared->worker[i].failed;
		if (!shared->worker[i].pid)
			continue;
		if (ok) {
			test(ends(shared->worker[i].pid, &status) && !status, "worker %d ends", i);
			continue;
		}
		/* If one worker can't be killed, the program does not wait for the others. */
		all_end = all_end && is_killed(i);
		test(all_end, "worker %d can be killed", i);
	}
	printf("# %ld rounds ended with EIO\n", failed);
	return finish_tests();
}

int main(int argc, char **argv)
{
	const char *role = argc > 1 ? argv[1] : "";

	/* A test that hangs has to fail. */
	alarm(PROGRAM_LIMIT_SECONDS);
	if (argc == 3 && !strcmp(role, "server"))
		serve_clients_at(atoi(argv[2]), make_window);
	if ((argc == 4 || argc == 6) && !strcmp(role, "client")) {
		shared = map(MAP_SHARED);
		return end_workers(run_cycles(argc == 6 ? argv[4] : NULL,
					      argc == 6 ? atoi(argv[5]) : 0, atoi(argv[2]),
					      atoi(argv[3])));
	}
	if (argc == 4 && !strcmp(role, "endless")) {
		shared = map(MAP_SHARED);
		return end_workers(run_to_end_of_input(atoi(argv[2]), atoi(argv[3])));
	}
	fprintf(stderr, "usage: scif_engine server PORT\n"
		"       scif_engine client NODE PORT [DEVICE CYCLES]\n"
		"       scif_engine endless NODE PORT\n");
	return 2;
}
