// SPDX-License-Identifier: GPL-2.0
/*
 * A local segment that another process of the same node attaches.
 */
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "sisci_suite.h"

/* A process that has not initialized the library. It starts as a child of such a process. */
struct sharer {
	unsigned int id;
	bool shares;
	/* The user, if it is not that of this process. */
	uid_t user;
	int ready[2];
	int end[2];
};

static void share_until_asked(void *data)
{
	struct sharer *sharer = data;
	struct local local = { };
	char byte;

	if (sharer->user)
		act_for(sharer->user);
	local.device = new_device();
	good(SCICreateSegment(local.device, &local.segment, sharer->id, 8192, NULL, NULL, 0,
			      &error));
	good(local.memory = SCIMapLocalSegment(local.segment, &local.map, 0, 8192, NULL, 0,
					       &error));
	fill(local.memory, 11, 8192);
	if (sharer->shares)
		good(SCIShareSegment(local.segment, 0, &error));
	expect_value(write(sharer->ready[1], "x", 1), 1);
	expect_value(read(sharer->end[0], &byte, 1), 1);
	if (sharer->shares)
		same(differs(local.memory, 12, 8192), -1);
	SCITerminate();
}

static pid_t start(void (*share)(void *data), struct sharer *sharer)
{
	char byte;
	pid_t child;

	sharer->id = new_id();
	expect_value(pipe(sharer->ready), 0);
	expect_value(pipe(sharer->end), 0);
	child = in_child(share, sharer);
	/* Closed, so that the end of the child ends the wait, too. */
	close(sharer->ready[1]);
	expect_value(read(sharer->ready[0], &byte, 1), 1);
	return child;
}

static pid_t start_sharer(struct sharer *sharer)
{
	return start(share_until_asked, sharer);
}

static void end_sharer(struct sharer *sharer, pid_t child)
{
	expect_value(write(sharer->end[1], "x", 1), 1);
	child_passed(child);
}

/* Attaches the segment, checks it, and writes the data for which the sharer waits. */
static void attach_and_write(struct sharer *sharer)
{
	sci_desc_t device = new_device();
	sci_local_segment_t segment;
	unsigned char *memory;
	size_t size = 0;
	sci_map_t map;

	good(SCIAttachLocalSegment(device, &segment, sharer->id, &size, NULL, NULL, 0, &error));
	same(size, 8192);
	same(SCIGetLocalSegmentId(segment), sharer->id);
	same(SCIGetLocalSegmentSize(segment), 8192);
	good(memory = SCIMapLocalSegment(segment, &map, 0, size, NULL, 0, &error));
	same(differs(memory, 11, 8192), -1);
	fill(memory, 12, 8192);
	good(SCIUnmapSegment(map, 0, &error));
	good(SCIRemoveSegment(segment, 0, &error));
}

static void attach_shared(void)
{
	struct sharer sharer = { .shares = true };
	pid_t child = start_sharer(&sharer);

	attach_and_write(&sharer);
	end_sharer(&sharer, child);
}

/*
 * Enters namespaces in which the ids of processes and of files differ, if the kernel has such
 * namespaces.
 */
static void enter_namespaces(void)
{
	int wanted = CLONE_NEWNS;

	if (access("/proc/self/ns/pid", F_OK) == 0)
		wanted |= CLONE_NEWPID;
	if (access("/proc/self/ns/ipc", F_OK) == 0)
		wanted |= CLONE_NEWIPC;
	if (access("/proc/self/ns/uts", F_OK) == 0)
		wanted |= CLONE_NEWUTS;
	expect_value(unshare(wanted), 0);
}

static void share_in_namespaces(void *data)
{
	enter_namespaces();
	child_passed(in_child(share_until_asked, data));
}

static void attach_in_namespaces(void *data)
{
	enter_namespaces();
	child_passed(in_child((void (*)(void *))attach_and_write, data));
}

static void attach_across_namespaces(void)
{
	struct sharer inside = { .shares = true }, outside = { .shares = true };
	/* Starts all children before this process initializes the library. */
	pid_t child_inside = start(share_in_namespaces, &inside);
	pid_t child_outside = start_sharer(&outside);

	child_passed(in_child(attach_in_namespaces, &outside));
	end_sharer(&outside, child_outside);
	attach_and_write(&inside);
	end_sharer(&inside, child_inside);
}

static void attach_refused(void *data)
{
	struct sharer *sharer = data;
	sci_local_segment_t segment;
	sci_desc_t device;
	size_t size;

	if (!sharer->user)
		act_for(12345);
	device = new_device();
	bad(SCI_ERR_ACCESS, SCIAttachLocalSegment(device, &segment, sharer->id, &size, NULL, NULL,
						  0, &error));
}

/* No process can attach a segment of another user, nor can root. */
static void attach_other_user(void)
{
	struct sharer root = { .shares = true }, user = { .shares = true, .user = 12345 };
	/* Starts all children before this process initializes the library. */
	pid_t child_root = start_sharer(&root), child_user = start_sharer(&user);

	child_passed(in_child(attach_refused, &root));
	attach_and_write(&root);
	end_sharer(&root, child_root);
	attach_refused(&user);
	kill(child_user, SIGKILL);
	same(child_signal(child_user), SIGKILL);
}

/* A process that has attached the segment keeps it, and its creator may end. */
static void attached_stays(void)
{
	struct sharer sharer = { .shares = true };
	pid_t child = start_sharer(&sharer);
	sci_desc_t device = new_device();
	sci_local_segment_t segment;
	unsigned char *memory;
	size_t size = 0;
	sci_map_t map;

	good(SCIAttachLocalSegment(device, &segment, sharer.id, &size, NULL, NULL, 0, &error));
	good(memory = SCIMapLocalSegment(segment, &map, 0, size, NULL, 0, &error));
	kill(child, SIGKILL);
	same(child_signal(child), SIGKILL);
	same(differs(memory, 11, 8192), -1);
}

static void attach_not_shared(void)
{
	struct sharer sharer = { .shares = false };
	pid_t child = start_sharer(&sharer);
	sci_desc_t device = new_device();
	sci_local_segment_t segment;
	size_t size;

	before_call();
	SCIAttachLocalSegment(device, &segment, sharer.id, &size, NULL, NULL, 0, &error);
	expect(error != SCI_ERR_OK);
	bad(SCI_ERR_NO_SUCH_SEGMENT, SCIAttachLocalSegment(device, &segment, new_id(), &size,
							   NULL, NULL, 0, &error));
	end_sharer(&sharer, child);
}

const struct test_case share_cases[] = {
	ALONE(attach_shared, "share.attach"),
	ALONE(attached_stays, "share.attach"),
	ALONE(attach_across_namespaces, "share.namespaces"),
	ALONE(attach_other_user, "share.other-user"),
	ALONE(attach_not_shared, "share.refused"),
	{ }
};
