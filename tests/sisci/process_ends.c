// SPDX-License-Identifier: GPL-2.0
/*
 * Resources of a process that ends in any way; fork and exec.
 */
#include <signal.h>
#include <sys/wait.h>

#include "sisci_suite.h"

/* Checks that all names of a peer become free, which they do when the peer has ended. */
static void names_are_free(struct peer *peer, unsigned int id)
{
	struct peer *other = new_peer();
	__s64 device = there(other, THERE_OPEN);

	wait_for_death(peer);
	wait_until(ask(other, THERE_CREATE, device, id, 4096, 0));
	wait_until(ask(other, THERE_INTERRUPT, device, id, SCI_FLAG_FIXED_INTNO));
	wait_until(ask(other, THERE_DATA_INTERRUPT, device, id, SCI_FLAG_FIXED_INTNO));
}

static unsigned int takes_names(struct peer *peer)
{
	__s64 device = there(peer, THERE_OPEN);
	unsigned int id = new_id();

	there(peer, THERE_CREATE, device, id, 4096, 0);
	there(peer, THERE_INTERRUPT, device, id, SCI_FLAG_FIXED_INTNO);
	there(peer, THERE_DATA_INTERRUPT, device, id, SCI_FLAG_FIXED_INTNO);
	return id;
}

static void exit_frees_names(void)
{
	struct peer *peer = new_peer();
	unsigned int id = takes_names(peer);

	begin(peer, DO_EXIT);
	names_are_free(peer, id);
}

static void kill_frees_names(void)
{
	struct peer *peer = new_peer();
	unsigned int id = takes_names(peer);

	begin(peer, DO_DIE);
	names_are_free(peer, id);
}

static void terminate_frees_names(void)
{
	struct peer *peer = new_peer(), *other = new_peer();
	unsigned int id = takes_names(peer);

	there(peer, THERE_TERMINATE);
	there(other, THERE_CREATE, there(other, THERE_OPEN), id, 4096, 0);
}

static void killed_exporter_leaves_memory(void)
{
	struct remote remote = new_remote(MIB);
	struct theirs *there = &remote.there;

	ask(there->peer, DO_FILL, there->memory, 3, MIB);
	begin(there->peer, DO_DIE);
	remote_event(remote.segment, SCI_CB_LOST);
	/* Loads and stores may have any result, but raise no signal. */
	expect(!load_fails(remote.memory) && !store_fails(remote.memory + MIB - 1));
	good(SCIUnmapSegment(remote.map, 0, &error));
	good(SCIDisconnectSegment(remote.segment, 0, &error));
	good(SCIClose(remote.device, 0, &error));
}

static void killed_importer_unpins(void)
{
	long before = pinned();
	struct local local = exported(MIB);
	struct peer *peer;
	int i;

	for (i = 0; i < 5; i++) {
		peer = new_peer();
		imported_by(peer, &local);
		local_event(local.segment, SCI_CB_CONNECT);
		begin(peer, DO_DIE);
		same(local_event(local.segment, SCI_CB_DISCONNECT), peer_id(peer));
	}
	good(SCIUnmapSegment(local.map, 0, &error));
	good(SCIRemoveSegment(local.segment, 0, &error));
	wait_until(pinned() <= before);
}

/* Runs in a peer: stores without end while the segment disappears. */
static __s64 store_without_end(const __s64 *argument)
{
	volatile __u32 *memory = (volatile __u32 *)argument[0];
	__u32 i;

	for (i = 0; !argument[1] || i < (__u32)argument[1]; i++)
		memory[i % 1024] = i;
	return 0;
}

static void killed_while_storing(void)
{
	struct local local = exported(8192);
	struct importer importer;
	int i;

	for (i = 0; i < 5; i++) {
		importer = imported_by(new_peer(), &local);
		local_event(local.segment, SCI_CB_CONNECT);
		begin(importer.peer, DO_RUN, importer.memory, 50000000);
		wait_until(*(volatile __u32 *)(local.memory + 4092));
		good(SCISetSegmentUnavailable(local.segment, ADAPTER, SCI_FLAG_FORCE_DISCONNECT,
					      &error));
		/* The peer is cut off, and its stores have no effect. */
		memset(local.memory, 0, 8192);
		good(SCISetSegmentAvailable(local.segment, ADAPTER, 0, &error));
		same(end(importer.peer), 0);
		do {
			before_call();
			SCIWaitForLocalSegmentEvent(local.segment, &(unsigned int) { 0 },
						    &(unsigned int) { 0 }, A_MOMENT, 0, &error);
		} while (error == SCI_ERR_OK);
		memset(local.memory, 0, 8192);
	}
}

/* Uses all features, again and again. */
static void live_without_end(void *data)
{
	unsigned int number = 0, length;
	sci_remote_data_interrupt_t remote_data;
	sci_remote_interrupt_t interrupt;
	struct local local, source;
	struct remote remote;
	sci_dma_queue_t queue;
	char byte;

	for (;;) {
		local = exported(64 * 1024);
		source = prepared(64 * 1024);
		remote = own_remote(&local);
		queue = new_queue(local.device, 1);
		SCIStartDmaTransfer(queue, source.segment, remote.segment, 0, 65536, 0, NULL,
				    NULL, 0, &error);
		new_interrupt(local.device, &number, 0);
		interrupt = connect_interrupt(local.device, own_id(), number);
		SCITriggerInterrupt(interrupt, 0, &error);
		length = 1;
		remote_data = connect_data_interrupt(local.device, own_id(),
						     (new_data_interrupt(local.device, &number),
						      number));
		SCITriggerDataInterrupt(remote_data, &byte, length, 0, &error);
		SCITerminate();
		good(SCIInitialize(0, &error));
	}
}

static void kill_anywhere(void)
{
	long before = pinned();
	struct local local;
	pid_t child;
	int i;

	for (i = 0; i < 15; i++) {
		child = in_child(live_without_end, NULL);
		poll(NULL, 0, 3 * i);
		kill(child, SIGKILL);
		same(child_signal(child), SIGKILL);
	}
	wait_until(pinned() <= before);
	local = exported(4096);
	own_remote(&local);
}

/* --- fork, exec --- */

static void do_nothing(void *data)
{
}

static void fork_leaves_parent(void)
{
	struct remote remote = new_remote(8192);
	struct theirs *there = &remote.there;
	unsigned int number = 0;
	sci_local_interrupt_t interrupt = new_interrupt(remote.device, &number, 0);

	child_passed(in_child(do_nothing, NULL));
	/* The resources have not changed. */
	ask(there->peer, DO_FILL, there->memory, 5, 8192);
	same(remote_differs(remote.memory, 5, 8192), -1);
	good(SCITriggerInterrupt(connect_interrupt(remote.device, own_id(), number), 0, &error));
	good(SCIWaitForInterrupt(interrupt, FOREVER, 0, &error));
	no_remote_event(remote.segment);
}

static void wait_for_signal(void *data)
{
	for (;;)
		pause();
}

/* A child that closes nothing keeps no name of its parent. */
static void fork_keeps_no_names(void)
{
	struct local local = created(4096);
	unsigned int number = local.id;
	sci_local_interrupt_t interrupt =
		new_interrupt(local.device, &number, SCI_FLAG_FIXED_INTNO);
	pid_t child = in_child(wait_for_signal, NULL);

	good(SCIUnmapSegment(local.map, 0, &error));
	good(SCIRemoveSegment(local.segment, 0, &error));
	good(SCIRemoveInterrupt(interrupt, 0, &error));
	new_interrupt(local.device, &number, SCI_FLAG_FIXED_INTNO);
	wait_until((before_call(),
		    SCICreateSegment(local.device, &local.segment, local.id, 4096, NULL, NULL, 0,
				     &error), error == SCI_ERR_OK));
	kill(child, SIGKILL);
	same(child_signal(child), SIGKILL);
}

static void take_and_exec(void *data)
{
	char *const argv[] = { "sleep", "1000", NULL };
	unsigned int id = *(unsigned int *)data;
	sci_local_segment_t segment;
	sci_desc_t device = new_device();

	good(SCICreateSegment(device, &segment, id, 4096, NULL, NULL, 0, &error));
	execv("/bin/sleep", argv);
	fail("/bin/sleep: %s", strerror(errno));
}

/* The program started by exec inherits no resources. */
static void exec_closes(void)
{
	unsigned int id = new_id();
	pid_t child = in_child(take_and_exec, &id);
	sci_local_segment_t segment;
	sci_desc_t device = new_device();
	char path[64], name[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/comm", child);
	do {
		poll(NULL, 0, 1);
		file = fopen(path, "r");
		expect(file && fgets(name, sizeof(name), file));
		fclose(file);
	} while (strcmp(name, "sleep\n"));
	wait_until((before_call(),
		    SCICreateSegment(device, &segment, id, 4096, NULL, NULL, 0, &error),
		    error == SCI_ERR_OK));
	kill(child, SIGKILL);
	same(child_signal(child), SIGKILL);
}

static void child_of_its_own(void *data)
{
	struct local local = exported(4096);

	own_remote(&local);
	SCITerminate();
}

/* Forks before the parent uses the library. */
static void fork_first(void)
{
	pid_t one = in_child(child_of_its_own, NULL), two = in_child(child_of_its_own, NULL);

	child_of_its_own(NULL);
	child_passed(one);
	child_passed(two);
}

const struct test_case process_end_cases[] = {
	PAIR(exit_frees_names, "process.names-freed"),
	PAIR(kill_frees_names, "process.names-freed"),
	PAIR(terminate_frees_names, "init.terminate-releases"),
	PAIR_MAPPED(killed_exporter_leaves_memory, "event.remote-lost event.clean-up"),
	PAIR(killed_importer_unpins, "process.unpins event.local-disconnect"),
	PAIR_MAPPED_WITH(killed_while_storing, store_without_end, "event.force-disconnect"),
	ALONE(kill_anywhere, "process.unpins"),
	PAIR_MAPPED(fork_leaves_parent, "process.fork"),
	ALONE(fork_keeps_no_names, "process.fork"),
	ALONE(exec_closes, "process.exec"),
	ALONE(fork_first, "process.fork"),
	{ }
};
