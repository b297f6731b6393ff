// SPDX-License-Identifier: GPL-2.0
/*
 * field-forker: a program that forks while it uses SISCI. Its children start from scratch, or do
 * not use SISCI. The parent goes on meanwhile and afterwards.
 *
 *   field-forker server                    has a segment and an interrupt, until SIGTERM
 *   field-forker run NODE [NAME...]        uses those of that node; all ways of forking, or some
 */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "field.h"

#define SEGMENT		0x4101
#define OWN_SEGMENT	0x4102
#define BELL		0x4201
#define SIZE		(256u << 10)
#define PART		(SIZE / 4)
#define GROUP		3
#define GROUP_PAGES	16
#define PAGE		4096

/* --- The server --- */

static sci_callback_action_t ignore(void *arg, sci_local_interrupt_t interrupt, sci_error_t status)
{
	return SCI_CALLBACK_CONTINUE;
}

static int serve(void)
{
	unsigned int number = BELL;
	sci_local_interrupt_t bell;
	sci_local_segment_t segment;
	sci_desc_t device;
	sci_error_t error;
	sigset_t ends;
	int signal;

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	SCIInitialize(NO_FLAGS, &error);
	check("SCIInitialize", error);
	SCIOpen(&device, NO_FLAGS, &error);
	check("SCIOpen", error);
	SCICreateSegment(device, &segment, SEGMENT, SIZE, NO_CALLBACK, NO_ARG, NO_FLAGS, &error);
	check("SCICreateSegment", error);
	SCIPrepareSegment(segment, ADAPTER, NO_FLAGS, &error);
	check("SCIPrepareSegment", error);
	SCISetSegmentAvailable(segment, ADAPTER, NO_FLAGS, &error);
	check("SCISetSegmentAvailable", error);
	SCICreateInterrupt(device, &bell, ADAPTER, &number, ignore, NO_ARG,
			   SCI_FLAG_USE_CALLBACK | SCI_FLAG_FIXED_INTNO, &error);
	check("SCICreateInterrupt", error);
	say("serving");
	sigwait(&ends, &signal);
	SCIRemoveInterrupt(bell, NO_FLAGS, &error);
	check("SCIRemoveInterrupt", error);
	SCIRemoveSegment(segment, NO_FLAGS, &error);
	check("SCIRemoveSegment", error);
	SCIClose(device, NO_FLAGS, &error);
	check("SCIClose", error);
	SCITerminate();
	say("served");
	return WELL;
}

/* --- A user of the server; a child is another one --- */

static unsigned int node;

struct user {
	sci_desc_t device;
	sci_remote_segment_t remote;
	sci_local_segment_t local;
	sci_map_t local_map, remote_map;
	sci_sequence_t sequence;
	sci_dma_queue_t queue;
	sci_remote_interrupt_t bell;
	unsigned char *memory;
	volatile unsigned char *view;
};

/*
 * Starts to use SISCI. One segment of this process has a name, which other processes must not get.
 */
static void begin(struct user *user, unsigned int flags, unsigned int id)
{
	sci_error_t error;

	memset(user, 0, sizeof(*user));
	SCIInitialize(NO_FLAGS, &error);
	check("SCIInitialize", error);
	SCIOpen(&user->device, NO_FLAGS, &error);
	check("SCIOpen", error);
	SCICreateSegment(user->device, &user->local, id, SIZE, NO_CALLBACK, NO_ARG, flags, &error);
	check("SCICreateSegment", error);
	SCIPrepareSegment(user->local, ADAPTER, NO_FLAGS, &error);
	check("SCIPrepareSegment", error);
	if (!flags) {
		SCISetSegmentAvailable(user->local, ADAPTER, NO_FLAGS, &error);
		check("SCISetSegmentAvailable", error);
	}
	user->memory = SCIMapLocalSegment(user->local, &user->local_map, 0, SIZE, NULL, NO_FLAGS,
					  &error);
	check("SCIMapLocalSegment", error);
	do {
		SCIConnectSegment(user->device, &user->remote, node, SEGMENT, ADAPTER, NO_CALLBACK,
				  NO_ARG, SCI_INFINITE_TIMEOUT, NO_FLAGS, &error);
	} while (not_there_yet(error));
	check("SCIConnectSegment", error);
	user->view = SCIMapRemoteSegment(user->remote, &user->remote_map, 0, SIZE, NULL, NO_FLAGS,
					 &error);
	if (error != SCI_ERR_NOT_SUPPORTED) {
		check("SCIMapRemoteSegment", error);
		SCICreateMapSequence(user->remote_map, &user->sequence, NO_FLAGS, &error);
		check("SCICreateMapSequence", error);
	} else {
		user->view = NULL;
	}
	SCICreateDMAQueue(user->device, &user->queue, ADAPTER, 1, NO_FLAGS, &error);
	check("SCICreateDMAQueue", error);
	SCIConnectInterrupt(user->device, &user->bell, node, ADAPTER, BELL, SCI_INFINITE_TIMEOUT,
			    NO_FLAGS, &error);
	check("SCIConnectInterrupt", error);
}

static void end(struct user *user)
{
	sci_error_t error;

	SCIDisconnectInterrupt(user->bell, NO_FLAGS, &error);
	check("SCIDisconnectInterrupt", error);
	SCIRemoveDMAQueue(user->queue, NO_FLAGS, &error);
	check("SCIRemoveDMAQueue", error);
	if (user->view) {
		SCIRemoveSequence(user->sequence, NO_FLAGS, &error);
		check("SCIRemoveSequence", error);
		SCIUnmapSegment(user->remote_map, NO_FLAGS, &error);
		check("SCIUnmapSegment of the remote map", error);
	}
	SCIDisconnectSegment(user->remote, NO_FLAGS, &error);
	check("SCIDisconnectSegment", error);
	SCIUnmapSegment(user->local_map, NO_FLAGS, &error);
	check("SCIUnmapSegment", error);
	SCIRemoveSegment(user->local, NO_FLAGS, &error);
	check("SCIRemoveSegment", error);
	SCIClose(user->device, NO_FLAGS, &error);
	check("SCIClose", error);
	SCITerminate();
}

static void wait_for_dma(struct user *user, size_t from, size_t to, unsigned int flags)
{
	sci_error_t error;

	SCIStartDmaTransfer(user->queue, user->local, user->remote, from, PART / 2, to,
			    NO_CALLBACK, NO_ARG, flags, &error);
	check("SCIStartDmaTransfer", error);
	if (SCIWaitForDMAQueue(user->queue, SCI_INFINITE_TIMEOUT, NO_FLAGS, &error) !=
	    SCI_DMAQUEUE_DONE)
		die("SCIWaitForDMAQueue: %s", SCIGetErrorString(error));
}

/* Uses all features, in a part of the segment of its own. */
static void use(struct user *user, unsigned int part, uint64_t seed)
{
	const size_t at = part * PART;
	sci_sequence_status_t status;
	sci_error_t error;

	fill(user->memory, PART / 2, seed);
	wait_for_dma(user, 0, at, NO_FLAGS);
	wait_for_dma(user, PART, at, SCI_FLAG_DMA_READ);
	if (memcmp(user->memory, user->memory + PART, PART / 2) != 0)
		die("DMA has brought back something else");
	SCITriggerInterrupt(user->bell, NO_FLAGS, &error);
	check("SCITriggerInterrupt", error);
	if (!user->view)
		return;
	status = SCIStartSequence(user->sequence, NO_FLAGS, &error);
	check("SCIStartSequence", error);
	for (size_t i = 0; i < 4096; i++)
		user->view[at + PART / 2 + i] = byte(seed + 1, i);
	SCIFlush(NULL, NO_FLAGS);
	SCIStoreBarrier(user->sequence, NO_FLAGS);
	if (status == SCI_SEQ_OK)
		status = SCICheckSequence(user->sequence, NO_FLAGS, &error);
	check("SCICheckSequence", error);
	if (status != SCI_SEQ_OK)
		die("a sequence is in state %d", status);
	for (size_t i = 0; i < 4096; i++) {
		if (user->view[at + PART / 2 + i] != byte(seed + 1, i))
			die("byte %zu of those that were stored", i);
	}
}

static pid_t forks(void)
{
	pid_t child = fork();

	if (child < 0)
		die("fork");
	/* Ends a child that hangs. */
	if (child == 0)
		alarm(30);
	return child;
}

static void ends_with(pid_t child, int expected)
{
	int status;

	if (waitpid(child, &status, 0) != child)
		die("waitpid");
	if (status != expected)
		die("a child has ended with %#x", status);
}

/* Runs a child that uses SISCI from start to end. */
static void lives(unsigned int part, uint64_t seed)
{
	struct user own;

	begin(&own, SCI_FLAG_PRIVATE, 0);
	use(&own, part, seed);
	end(&own);
}

/* --- Ways of forking; each has a parent that goes on with all its resources --- */

/* The child ends what it has inherited, and starts from scratch. */
static void terminates(struct user *parent)
{
	pid_t child = forks();

	if (child == 0) {
		SCITerminate();
		lives(1, 10);
		exit(0);
	}
	for (int i = 0; i < 20; i++)
		use(parent, 0, i);
	ends_with(child, 0);
}

/* The child does not know what its parent has done. */
static void begins(struct user *parent)
{
	pid_t child = forks();

	if (child == 0) {
		lives(1, 20);
		/* Uses SISCI once more. */
		lives(1, 21);
		exit(0);
	}
	for (int i = 0; i < 20; i++)
		use(parent, 0, i);
	ends_with(child, 0);
}

/* The child does not use SISCI, and exits normally. */
static void ignores(struct user *parent)
{
	pid_t children[8];

	for (int i = 0; i < 8; i++) {
		children[i] = forks();
		if (children[i] == 0)
			exit(0);
		use(parent, 0, i);
	}
	for (int i = 0; i < 8; i++)
		ends_with(children[i], 0);
}

/* A child uses inherited resources: it gets errors, and its parent notices nothing. */
static void inherits(struct user *parent)
{
	pid_t child = forks();
	sci_error_t error;

	if (child == 0) {
		SCIFlush(NULL, NO_FLAGS);
		if (parent->view) {
			SCICheckSequence(parent->sequence, NO_FLAGS, &error);
			if (error == SCI_ERR_OK)
				die("a child has checked a sequence of its parent");
			SCIStartSequence(parent->sequence, NO_FLAGS, &error);
			if (error == SCI_ERR_OK)
				die("a child has started a sequence of its parent");
			SCIFlush(parent->sequence, NO_FLAGS);
			SCIStoreBarrier(parent->sequence, NO_FLAGS);
		}
		SCITriggerInterrupt(parent->bell, NO_FLAGS, &error);
		if (error == SCI_ERR_OK)
			die("a child has triggered an interrupt of its parent");
		SCIStartDmaTransfer(parent->queue, parent->local, parent->remote, 0, 64, 0,
				    NO_CALLBACK, NO_ARG, NO_FLAGS, &error);
		if (error == SCI_ERR_OK)
			die("a child has started a transfer of its parent");
		SCIRemoveSegment(parent->local, NO_FLAGS, &error);
		if (error == SCI_ERR_OK)
			die("a child has removed a segment of its parent");
		SCIClose(parent->device, NO_FLAGS, &error);
		SCITerminate();
		exit(0);
	}
	ends_with(child, 0);
	use(parent, 0, 30);
}

/* The parent keeps its segment, and other processes see it, whatever a child does. */
static void named(struct user *parent)
{
	pid_t child = forks();
	sci_remote_segment_t remote;
	sci_local_segment_t local;
	sci_desc_t device;
	sci_error_t error;

	if (child == 0) {
		SCITerminate();
		SCIInitialize(NO_FLAGS, &error);
		check("SCIInitialize", error);
		SCIOpen(&device, NO_FLAGS, &error);
		check("SCIOpen", error);
		SCICreateSegment(device, &local, OWN_SEGMENT, SIZE, NO_CALLBACK, NO_ARG, NO_FLAGS,
				 &error);
		if (error != SCI_ERR_SEGMENTID_USED)
			die("the segment of the parent is not there: %s",
			    SCIGetErrorString(error));
		SCIConnectSegment(device, &remote, own_node(), OWN_SEGMENT, ADAPTER, NO_CALLBACK,
				  NO_ARG, SCI_INFINITE_TIMEOUT, NO_FLAGS, &error);
		check("SCIConnectSegment to the parent", error);
		SCIDisconnectSegment(remote, NO_FLAGS, &error);
		check("SCIDisconnectSegment", error);
		SCIClose(device, NO_FLAGS, &error);
		check("SCIClose", error);
		SCITerminate();
		exit(0);
	}
	ends_with(child, 0);
	use(parent, 0, 40);
}

/* A child is killed in the middle of its own use. */
static void killed(struct user *parent)
{
	int ends[2];
	char one;
	pid_t child;

	if (pipe(ends) < 0)
		die("pipe");
	child = forks();
	if (child == 0) {
		struct user own;

		begin(&own, SCI_FLAG_PRIVATE, 0);
		for (uint64_t i = 0;; i++) {
			use(&own, 1, i);
			if (i == 3 && write(ends[1], "x", 1) != 1)
				exit(1);
		}
	}
	if (read(ends[0], &one, 1) != 1)
		die("a child has not begun");
	close(ends[0]);
	close(ends[1]);
	kill(child, SIGKILL);
	ends_with(child, SIGKILL);
	for (int i = 0; i < 5; i++)
		use(parent, 0, i);
}

/* A thread forks while other threads are in the middle of calls. */
static int stopping;

static void *uses(void *parent)
{
	for (uint64_t i = 0; !is(&stopping); i++)
		use(parent, 0, i);
	return NULL;
}

static void threaded(struct user *parent)
{
	pthread_t thread;

	set(&stopping, 0);
	if (pthread_create(&thread, NULL, uses, parent) != 0)
		die("pthread_create");
	for (int i = 0; i < 15; i++) {
		pid_t child = forks();

		if (child == 0) {
			if (i % 3 == 0)
				SCITerminate();
			if (i % 3 != 2)
				lives(1, i);
			exit(0);
		}
		ends_with(child, 0);
	}
	set(&stopping, 1);
	pthread_join(thread, NULL);
}

/* A lock that the program holds over each fork, so that children find consistent data. */
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static void take_guard(void)
{
	pthread_mutex_lock(&guard);
}

static void give_guard(void)
{
	pthread_mutex_unlock(&guard);
}

static void *stores(void *arg)
{
	volatile unsigned char *memory = arg;

	for (unsigned int i = 0; !is(&stopping); i++) {
		take_guard();
		memory[i % GROUP_PAGES * PAGE] = i;
		give_guard();
	}
	return NULL;
}

/* A thread stores to all members of a group under that lock. */
static void guarded(struct user *parent)
{
	sci_remote_segment_t group;
	sci_local_segment_t member;
	sci_error_t error;
	pthread_t thread;
	sci_map_t map;
	volatile void *memory;

	SCICreateSegment(parent->device, &member, GROUP, GROUP_PAGES * PAGE, NO_CALLBACK, NO_ARG,
			 SCI_FLAG_BROADCAST, &error);
	check("SCICreateSegment of a group", error);
	SCIPrepareSegment(member, ADAPTER, SCI_FLAG_BROADCAST, &error);
	check("SCIPrepareSegment of a group", error);
	SCISetSegmentAvailable(member, ADAPTER, SCI_FLAG_BROADCAST, &error);
	check("SCISetSegmentAvailable of a group", error);
	SCIConnectSegment(parent->device, &group, BROADCAST, GROUP, ADAPTER, NO_CALLBACK, NO_ARG,
			  SCI_INFINITE_TIMEOUT, SCI_FLAG_BROADCAST, &error);
	check("SCIConnectSegment to a group", error);
	memory = SCIMapRemoteSegment(group, &map, 0, GROUP_PAGES * PAGE, NULL, SCI_FLAG_BROADCAST,
				     &error);
	check("SCIMapRemoteSegment of a group", error);
	set(&stopping, 0);
	if (pthread_create(&thread, NULL, stores, (void *)memory) != 0)
		die("pthread_create");
	for (int i = 0; i < 40; i++) {
		pid_t child = forks();

		if (child == 0)
			_exit(0);
		ends_with(child, 0);
	}
	set(&stopping, 1);
	pthread_join(thread, NULL);
	SCIUnmapSegment(map, NO_FLAGS, &error);
	check("SCIUnmapSegment of a group", error);
	SCIDisconnectSegment(group, NO_FLAGS, &error);
	check("SCIDisconnectSegment of a group", error);
	SCIRemoveSegment(member, NO_FLAGS, &error);
	check("SCIRemoveSegment of a group", error);
}

/* A child forks a child. Both start from scratch. */
static void deeper(struct user *parent)
{
	pid_t child = forks();

	if (child == 0) {
		struct user own;
		pid_t grandchild;

		begin(&own, SCI_FLAG_PRIVATE, 0);
		grandchild = forks();
		if (grandchild == 0) {
			SCITerminate();
			lives(2, 60);
			exit(0);
		}
		use(&own, 1, 61);
		ends_with(grandchild, 0);
		use(&own, 1, 62);
		end(&own);
		exit(0);
	}
	use(parent, 0, 63);
	ends_with(child, 0);
}

/* A program started by exec inherits no open resources. */
static void executes(struct user *parent)
{
	int status = system("! readlink /proc/self/fd/* | grep -q -e scif -e memfd");

	if (status != 0)
		die("a program has inherited files: %#x", status);
	use(parent, 0, 70);
}

/* After all of this, a sleeping parent uses no CPU. */
static void rests(struct user *parent)
{
	struct rusage before, after;
	long used;

	getrusage(RUSAGE_SELF, &before);
	for (int i = 0; i < 500; i++)
		nap();
	getrusage(RUSAGE_SELF, &after);
	used = (after.ru_utime.tv_sec - before.ru_utime.tv_sec +
		after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000 +
	       (after.ru_utime.tv_usec - before.ru_utime.tv_usec +
		after.ru_stime.tv_usec - before.ru_stime.tv_usec) / 1000;
	if (used > 250)
		die("a program that sleeps for half a second has used the CPU for %ld ms", used);
	use(parent, 0, 80);
}

static const struct way {
	const char *name;
	void (*run)(struct user *parent);
} ways[] = {
	{ "begins", begins },
	{ "ignores", ignores },
	{ "terminates", terminates },
	{ "inherits", inherits },
	{ "named", named },
	{ "killed", killed },
	{ "threaded", threaded },
	{ "guarded", guarded },
	{ "deeper", deeper },
	{ "executes", executes },
	{ "rests", rests },
};

static int run(int count, char **names)
{
	struct user parent;

	/* Registers these functions before the library registers its own. */
	pthread_atfork(take_guard, give_guard, give_guard);
	begin(&parent, NO_FLAGS, OWN_SEGMENT);
	use(&parent, 0, 1);
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		bool wanted = count == 0;

		for (int n = 0; n < count; n++)
			wanted = wanted || strcmp(names[n], ways[i].name) == 0;
		if (!wanted)
			continue;
		ways[i].run(&parent);
		say("%s: ok", ways[i].name);
	}
	use(&parent, 0, 2);
	end(&parent);
	/* A parent that has ended SISCI, too, has children that start from scratch. */
	if (count == 0) {
		pid_t child = forks();

		if (child == 0) {
			lives(1, 90);
			exit(0);
		}
		ends_with(child, 0);
	}
	say("all well");
	return WELL;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "server") == 0)
		return serve();
	if (argc >= 3 && strcmp(argv[1], "run") == 0) {
		node = number_of(argv[2]);
		return run(argc - 3, argv + 3);
	}
	fprintf(stderr, "usage: field-forker server | run NODE [NAME...]\n");
	return USAGE;
}
