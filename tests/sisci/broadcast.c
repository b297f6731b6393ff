// SPDX-License-Identifier: GPL-2.0
/*
 * Broadcast segments: a store reaches all nodes that have a segment with the group's number.
 */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "sisci_suite.h"

#define SIZE	8192
#define ALL	DIS_BROADCAST_NODEID_GROUP_ALL

/* The group of this case. Its segment exists as long as its process. */
#define GROUP	2

static void export_group(struct local *local, size_t size)
{
	*local = (struct local) { .device = new_device(), .id = GROUP, .size = size };
	good(SCICreateSegment(local->device, &local->segment, GROUP, size, NULL, NULL,
			      SCI_FLAG_BROADCAST, &error));
	good(local->memory = SCIMapLocalSegment(local->segment, &local->map, 0, size, NULL,
						SCI_FLAG_BROADCAST, &error));
	good(SCIPrepareSegment(local->segment, ADAPTER, SCI_FLAG_BROADCAST, &error));
	good(SCISetSegmentAvailable(local->segment, ADAPTER, 0, &error));
}

/* Lets a peer export the group, if its node is another one. A node has one segment of a group. */
static __s64 export_group_there(struct peer *peer, size_t size)
{
	__s64 device = there(peer, THERE_OPEN), segment, memory;

	/* The segment of the case before may still exist. */
	wait_until((segment = ask(peer, THERE_CREATE, device, GROUP, size, SCI_FLAG_BROADCAST)));
	memory = there(peer, THERE_MAP_LOCAL, segment, 0, size, 0);
	there(peer, THERE_PREPARE, segment);
	there(peer, THERE_AVAILABLE, segment);
	return memory;
}

/* The group on this node and on the peers' nodes, connected. */
struct group {
	struct local local;
	int peers;
	struct peer *peer[MAX_PEERS];
	__s64 memory[MAX_PEERS];
	sci_remote_segment_t remote;
};

static struct group new_group_of(size_t size)
{
	struct group group = { .peers = 0 };
	int i;

	export_group(&group.local, size);
	for (i = 0; i < run.peers; i++) {
		if (node_id(run.agent[i].node) == own_id())
			continue;
		group.peer[group.peers] = new_peer_on(i);
		group.memory[group.peers] = export_group_there(group.peer[group.peers], size);
		group.peers++;
	}
	good(SCIConnectSegment(group.local.device, &group.remote, ALL, GROUP, ADAPTER, NULL, NULL,
			       FOREVER, SCI_FLAG_BROADCAST, &error));
	return group;
}

static struct group new_group(void)
{
	return new_group_of(SIZE);
}

/* Waits until all members have the data. */
static void all_have(struct group *group, __u32 seed, long len)
{
	int i;

	wait_until(differs(group->local.memory, seed, len) == -1);
	for (i = 0; i < group->peers; i++)
		wait_until(ask(group->peer[i], DO_DIFFERS, group->memory[i], seed, len) == -1);
}

static void broadcast_store(void)
{
	struct group group = new_group();
	volatile unsigned char *memory;
	sci_sequence_t sequence;
	sci_map_t map;
	int i;

	good(memory = SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, SCI_FLAG_BROADCAST,
					  &error));
	sequence = new_sequence(map);
	for (i = 0; i < 5; i++) {
		fill_remote(memory, i, SIZE);
		SCIFlush(sequence, 0);
		all_have(&group, i, SIZE);
	}
	/* The store needs no flush. */
	fill_remote(memory, 77, SIZE);
	all_have(&group, 77, SIZE);
}

static void broadcast_barrier(void)
{
	struct group group = new_group();
	volatile unsigned char *memory;
	sci_sequence_t sequence;
	sci_map_t map;
	int i, peer;

	good(memory = SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, 0, &error));
	sequence = new_sequence(map);
	for (i = 0; i < 5; i++) {
		good(SCIStartSequence(sequence, 0, &error));
		fill_remote(memory, i, SIZE);
		if (i % 2)
			SCIStoreBarrier(sequence, 0);
		else
			good(expect(SCICheckSequence(sequence, 0, &error) == SCI_SEQ_OK));
		/* The data has arrived already. */
		same(differs(group.local.memory, i, SIZE), -1);
		for (peer = 0; peer < group.peers; peer++)
			same(ask(group.peer[peer], DO_DIFFERS, group.memory[peer], i, SIZE), -1);
	}
}

static void broadcast_copy(void)
{
	struct group group = new_group();
	unsigned char *memory = pages(SIZE / PAGE + 1);
	sci_sequence_t sequence;
	sci_map_t map;

	good(SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, 0, &error));
	sequence = new_sequence(map);
	fill(memory, 5, SIZE);
	good(SCIMemCpy(sequence, memory, map, 0, SIZE, 0, &error));
	SCIStoreBarrier(sequence, 0);
	all_have(&group, 5, SIZE);
	before_call();
	SCIMemCpy(sequence, memory, map, 0, SIZE, SCI_FLAG_BLOCK_READ, &error);
	expect(error != SCI_ERR_OK);
}

/* A store changes only its own words, and not those beside them. */
static void broadcast_neighbours(void)
{
	struct group group = new_group();
	volatile __u32 *memory;
	sci_sequence_t sequence;
	sci_map_t map;
	__u32 i;

	if (!group.peers)
		return;
	good(memory = SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, 0, &error));
	sequence = new_sequence(map);
	for (i = 1; i < 4; i++) {
		there(group.peer[0], THERE_STORE, group.memory[0] + 4, i * 100, 4);
		memory[0] = i;
		((volatile __u8 *)memory)[9] = i;
		SCIStoreBarrier(sequence, 0);
		same(there(group.peer[0], THERE_LOAD, group.memory[0], 4), i);
		same(there(group.peer[0], THERE_LOAD, group.memory[0] + 4, 4), i * 100);
		there(group.peer[0], THERE_STORE, group.memory[0] + 8, i, 1);
		same(there(group.peer[0], THERE_LOAD, group.memory[0] + 9, 1), i);
	}
}

/* A copy is sent even if the same data was sent before. */
static void broadcast_copy_again(void)
{
	struct group group = new_group();
	unsigned char *memory = pages(1);
	sci_sequence_t sequence;
	sci_map_t map;
	int i;

	if (!group.peers)
		return;
	good(SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, 0, &error));
	sequence = new_sequence(map);
	memset(memory, 0, 13);
	for (i = 0; i < 3; i++) {
		there(group.peer[0], THERE_STORE, group.memory[0] + 5, 9, 1);
		there(group.peer[0], THERE_STORE, group.memory[0] + 16, 9, 1);
		good(SCIMemCpy(sequence, memory, map, 3, 13, 0, &error));
		SCIStoreBarrier(sequence, 0);
		same(there(group.peer[0], THERE_LOAD, group.memory[0] + 5, 1), 0);
		/* No byte beside them has changed. */
		same(there(group.peer[0], THERE_LOAD, group.memory[0] + 16, 1), 9);
	}
}

/* A node that joins the group after others have connected gets later stores. */
static void broadcast_joined(void)
{
	struct local source = prepared(64);
	sci_remote_segment_t remote;
	volatile __u32 *memory;
	sci_dma_queue_t queue;
	struct local local;
	struct peer *peer;
	sci_map_t map;
	__s64 there_is;
	__u32 i = 0;

	export_group(&local, SIZE);
	good(SCIConnectSegment(local.device, &remote, ALL, GROUP, ADAPTER, NULL, NULL, FOREVER,
			       SCI_FLAG_BROADCAST, &error));
	good(memory = SCIMapRemoteSegment(remote, &map, 0, SIZE, NULL, 0, &error));
	memory[0] = 1;
	wait_until(*(volatile __u32 *)local.memory == 1);
	peer = new_peer_on(run.peers - 1);
	if (node_id(run.agent[run.peers - 1].node) == own_id())
		return;
	there_is = export_group_there(peer, SIZE);
	wait_until((memory[2] = ++i, there(peer, THERE_LOAD, there_is + 8, 4) > 0));
	/* DMA reaches the other node's part of the group, too. */
	queue = new_queue(local.device, 1);
	fill(source.memory, 3, 64);
	good(SCIStartDmaTransfer(queue, source.segment, remote, 0, 64, 1024, NULL, NULL, 0,
				 &error));
	same(SCIWaitForDMAQueue(queue, FOREVER, 0, &error), SCI_DMAQUEUE_DONE);
	same(ask(peer, DO_DIFFERS, there_is + 1024, 3, 64), -1);
}

static void broadcast_dma(void)
{
	struct group group = new_group();
	struct local source = prepared(SIZE);
	sci_dma_queue_t queue = new_queue(group.local.device, 1);
	sci_dma_queue_state_t state = SCI_DMAQUEUE_ERROR;

	fill(source.memory, 6, SIZE);
	good(SCIStartDmaTransfer(queue, source.segment, group.remote, 0, SIZE, 0, NULL, NULL, 0,
				 &error));
	same(SCIWaitForDMAQueue(queue, FOREVER, 0, &error), SCI_DMAQUEUE_DONE);
	all_have(&group, 6, SIZE);
	/* A group can't be read. */
	before_call();
	SCIStartDmaTransfer(queue, source.segment, group.remote, 0, SIZE, 0, NULL, NULL,
			    SCI_FLAG_DMA_READ, &error);
	if (error == SCI_ERR_OK)
		state = SCIWaitForDMAQueue(queue, FOREVER, 0, &error);
	same(state, SCI_DMAQUEUE_ERROR);
}

static void broadcast_groups(void)
{
	sci_desc_t device = new_device();
	sci_local_segment_t segment;
	unsigned int id;

	for (id = 0; id < 4; id++)
		good(SCICreateSegment(device, &segment, id, SIZE, NULL, NULL, SCI_FLAG_BROADCAST,
				      &error));
	before_call();
	SCICreateSegment(device, &segment, 4, SIZE, NULL, NULL, SCI_FLAG_BROADCAST, &error);
	expect(error != SCI_ERR_OK);
	good(SCICreateSegment(device, &segment, 4, SIZE, NULL, NULL, 0, &error));
}

static void broadcast_none(void)
{
	sci_desc_t device = new_device();
	sci_remote_segment_t remote;

	bad(SCI_ERR_NO_SUCH_SEGMENT,
	    SCIConnectSegment(device, &remote, ALL, 3, ADAPTER, NULL, NULL, FOREVER,
			      SCI_FLAG_BROADCAST, &error));
}

/* The own node is a member like the others, and each member can be reached by its own id, too. */
static void broadcast_one(void)
{
	struct group group = new_group();
	sci_remote_segment_t one;
	volatile unsigned char *memory;
	sci_map_t map;
	__u32 before = 0;
	int i;

	good(SCIConnectSegment(group.local.device, &one, own_id(), GROUP, ADAPTER, NULL, NULL,
			       FOREVER, SCI_FLAG_BROADCAST, &error));
	good(memory = SCIMapRemoteSegment(one, &map, 0, SIZE, NULL, 0, &error));
	*(volatile __u32 *)memory = 4712;
	wait_until(*(volatile __u32 *)group.local.memory == 4712);
	for (i = 0; i < group.peers; i++)
		same(there(group.peer[i], THERE_LOAD, group.memory[i], 4), before);
}

static void broadcast_member_dies(void)
{
	struct group group = new_group();
	struct local source = prepared(SIZE);
	sci_dma_queue_t queue = new_queue(group.local.device, 1);
	volatile unsigned char *memory;
	sci_sequence_t sequence;
	sci_map_t map;

	good(memory = SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, 0, &error));
	sequence = new_sequence(map);
	good(expect(SCIStartSequence(sequence, 0, &error) == SCI_SEQ_OK));
	begin(group.peer[0], DO_DIE);
	remote_event(group.remote, SCI_CB_LOST);
	/* The loss is reported once. */
	good(expect(SCICheckSequence(sequence, 0, &error) == SCI_SEQ_NOT_RETRIABLE));
	good(expect(SCIStartSequence(sequence, 0, &error) == SCI_SEQ_OK));
	good(expect(SCICheckSequence(sequence, 0, &error) == SCI_SEQ_OK));
	fill_remote(memory, 8, SIZE);
	SCIFlush(sequence, 0);
	/* The other members still get stores. */
	wait_until(differs(group.local.memory, 8, SIZE) == -1);
	wait_until(ask(group.peer[1], DO_DIFFERS, group.memory[1], 8, SIZE) == -1);
	fill(source.memory, 9, SIZE);
	good(SCIStartDmaTransfer(queue, source.segment, group.remote, 0, SIZE, 0, NULL, NULL, 0,
				 &error));
	same(SCIWaitForDMAQueue(queue, FOREVER, 0, &error), SCI_DMAQUEUE_DONE);
	same(differs(group.local.memory, 9, SIZE), -1);
	same(ask(group.peer[1], DO_DIFFERS, group.memory[1], 9, SIZE), -1);
	good(SCIRemoveSequence(sequence, 0, &error));
	good(SCIUnmapSegment(map, 0, &error));
	good(SCIDisconnectSegment(group.remote, 0, &error));
}

/* --- The order in which members see stores --- */

#define LARGE		MIB
#define HALF		(LARGE / 2)
/* Offset at which a member stores the last round that it has seen. */
#define SEEN		(LARGE - 64)
#define ROUNDS		100
#define LINE		8

/* Waits for a flag. Returns whether the data stored before it has arrived. */
static bool is_in_order(const unsigned char *memory, __s64 payload, __s64 flag, __u64 round)
{
	__u64 line[LINE];
	int i;

	while (__atomic_load_n((__u64 *)(memory + flag), __ATOMIC_ACQUIRE) != round)
		sched_yield();
	memcpy(line, memory + payload, sizeof(line));
	for (i = 0; i < LINE; i++) {
		if (line[i] != round)
			return false;
	}
	return true;
}

/*
 * Runs in a peer, with the arguments: memory, offset of the payload, offset of the flag, first
 * round, first round not to check.
 */
static __s64 follow(const __s64 *argument)
{
	unsigned char *memory = (unsigned char *)argument[0];
	__s64 violations = 0, round;

	for (round = argument[3]; round < argument[4]; round++) {
		violations += !is_in_order(memory, argument[1], argument[2], round);
		__atomic_store_n((__u64 *)(memory + SEEN), round, __ATOMIC_RELEASE);
	}
	return violations;
}

/* State of a program that stores a payload and a flag. */
struct writer {
	struct group group;
	volatile unsigned char *memory;
	/* A second map of the same memory. */
	volatile unsigned char *again;
	sci_map_t map;
	sci_sequence_t sequence;
	/* The rounds that the members have seen. */
	volatile unsigned char *seen[MAX_PEERS];
	__u64 round;
	__s64 payload;
	__s64 flag;
	/* State of a thread that stores flags. */
	__u64 flag_wanted;
	__u64 flag_stored;
};

static struct writer new_writer(void)
{
	struct writer writer = { .group = new_group_of(LARGE), .round = 1 };
	sci_remote_segment_t one;
	sci_map_t map;
	int i;

	good(writer.memory = SCIMapRemoteSegment(writer.group.remote, &writer.map, 0, LARGE, NULL,
						 0, &error));
	good(writer.again = SCIMapRemoteSegment(writer.group.remote, &map, 0, LARGE, NULL, 0,
						&error));
	writer.sequence = new_sequence(writer.map);
	for (i = 0; i < writer.group.peers; i++) {
		good(SCIConnectSegment(writer.group.local.device, &one,
				       node_id(peer_node(writer.group.peer[i])), GROUP, ADAPTER,
				       NULL, NULL, FOREVER, SCI_FLAG_BROADCAST, &error));
		good(writer.seen[i] = SCIMapRemoteSegment(one, &map, SEEN, 8, NULL, 0, &error));
	}
	return writer;
}

static void store_payload(struct writer *writer)
{
	int i;

	for (i = 0; i < LINE; i++)
		((volatile __u64 *)(writer->memory + writer->payload))[i] = writer->round;
}

static void store_flag(struct writer *writer)
{
	*(volatile __u64 *)(writer->memory + writer->flag) = writer->round;
}

static void sfence(void)
{
#ifdef __x86_64__
	asm volatile("sfence" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

static void by_sfence(struct writer *writer)
{
	store_payload(writer);
	sfence();
	store_flag(writer);
}

static void by_nothing(struct writer *writer)
{
	store_payload(writer);
#ifndef __x86_64__
	sfence();
#endif
	store_flag(writer);
}

static void by_flush_of_all(struct writer *writer)
{
	store_payload(writer);
	SCIFlush(NULL, 0);
	store_flag(writer);
}

static void by_flush(struct writer *writer)
{
	store_payload(writer);
	SCIFlush(writer->sequence, 0);
	store_flag(writer);
}

static void by_barrier(struct writer *writer)
{
	store_payload(writer);
	SCIStoreBarrier(writer->sequence, 0);
	store_flag(writer);
}

static void by_another_map(struct writer *writer)
{
	store_payload(writer);
	sfence();
	*(volatile __u64 *)(writer->again + writer->flag) = writer->round;
}

/* A store that crosses the border of two pages. */
static void by_store_across(struct writer *writer)
{
	int i;

	/* The compiler makes this one instruction, as the size is constant. */
	for (i = 0; i < LINE; i++)
		memcpy((void *)(writer->memory + writer->payload + 8 * i), &writer->round, 8);
	sfence();
	store_flag(writer);
}

static void by_copied_payload(struct writer *writer)
{
	__u64 line[LINE];
	int i;

	for (i = 0; i < LINE; i++)
		line[i] = writer->round;
	good(SCIMemCpy(writer->sequence, line, writer->map, writer->payload, sizeof(line), 0,
		       &error));
	store_flag(writer);
}

static void by_copied_flag(struct writer *writer)
{
	store_payload(writer);
	good(SCIMemCpy(writer->sequence, &writer->round, writer->map, writer->flag, 8, 0,
		       &error));
}

static void *flag_thread(void *data)
{
	struct writer *writer = data;
	__u64 wanted;

	for (;;) {
		wanted = __atomic_load_n(&writer->flag_wanted, __ATOMIC_ACQUIRE);
		if (wanted == ~0ULL)
			return NULL;
		if (wanted != writer->flag_stored) {
			store_flag(writer);
			__atomic_store_n(&writer->flag_stored, wanted, __ATOMIC_RELEASE);
		}
		sched_yield();
	}
}

static void by_two_threads(struct writer *writer)
{
	store_payload(writer);
	sfence();
	__atomic_store_n(&writer->flag_wanted, writer->round, __ATOMIC_RELEASE);
	while (__atomic_load_n(&writer->flag_stored, __ATOMIC_ACQUIRE) != writer->round)
		sched_yield();
}

/* Checks that no member ever sees the flag of a round without its payload. */
static void in_order(struct writer *writer, void (*store)(struct writer *writer), __s64 payload,
		     __s64 flag)
{
	__u64 last = writer->round + ROUNDS;
	struct group *group = &writer->group;
	long violations = 0;
	int i;

	writer->payload = payload;
	writer->flag = flag;
	for (i = 0; i < group->peers; i++)
		begin(group->peer[i], DO_RUN, group->memory[i], payload, flag, writer->round, last);
	for (; writer->round < last; writer->round++) {
		store(writer);
		violations += !is_in_order(group->local.memory, payload, flag, writer->round);
		for (i = 0; i < group->peers; i++) {
			while (*(volatile __u64 *)writer->seen[i] != writer->round)
				poll(NULL, 0, 1);
		}
	}
	same(violations, 0);
	for (i = 0; i < group->peers; i++)
		expect_value(end(group->peer[i]), 0);
}

static void broadcast_order(void)
{
	struct writer writer = new_writer();

	in_order(&writer, by_sfence, HALF, 0);
	in_order(&writer, by_sfence, 64, HALF);
	in_order(&writer, by_nothing, HALF, 0);
	in_order(&writer, by_nothing, PAGE, PAGE - 8);
}

static void broadcast_order_by_barriers(void)
{
	struct writer writer = new_writer();

	in_order(&writer, by_flush_of_all, HALF, 0);
	in_order(&writer, by_flush, HALF, 0);
	in_order(&writer, by_barrier, HALF, 0);
	/* The rule holds within a page, too. */
	in_order(&writer, by_flush_of_all, 1024, 0);
}

static void broadcast_order_of_two(void)
{
	struct writer writer = new_writer();
	pthread_t thread = in_thread(flag_thread, &writer);

	in_order(&writer, by_two_threads, HALF, 0);
	__atomic_store_n(&writer.flag_wanted, ~0ULL, __ATOMIC_RELEASE);
	thread_result(thread);
	in_order(&writer, by_another_map, HALF, 0);
}

static void broadcast_order_across(void)
{
	struct writer writer = new_writer();

	in_order(&writer, by_store_across, HALF - 28, 0);
}

static void broadcast_order_of_copies(void)
{
	struct writer writer = new_writer();

	in_order(&writer, by_copied_payload, HALF, 0);
	in_order(&writer, by_copied_flag, HALF, 0);
	in_order(&writer, by_copied_flag, 1024, 0);
}

/* --- Stores by the kernel, and signal handlers --- */

/* Makes a file with this content. */
static int file_of(__u32 seed, size_t size)
{
	int file = memfd_create("contents", MFD_CLOEXEC);
	void *memory;

	expect(file >= 0);
	expect_value(ftruncate(file, size), 0);
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	expect(memory != MAP_FAILED);
	fill(memory, seed, size);
	munmap(memory, size);
	return file;
}

/* Root may let the library intercept stores of the kernel, too. */
static void broadcast_read(void)
{
	struct group group = new_group();
	int file = file_of(31, SIZE);
	volatile unsigned char *memory;
	sci_map_t map;

	good(memory = SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, 0, &error));
	same(pread(file, (void *)memory, SIZE, 0), SIZE);
	SCIFlush(NULL, 0);
	all_have(&group, 31, SIZE);
}

/* For other users the read fails. Nothing is lost, and nothing hangs. */
static void broadcast_read_unprivileged(void)
{
	struct group group = new_group();
	int file = file_of(32, SIZE), why_not;
	unsigned char *buffer = pages(SIZE / PAGE + 1);
	volatile unsigned char *memory;
	sci_map_t map;
	long result;

	drop_privileges(RLIM_INFINITY);
	good(memory = SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, 0, &error));
	result = pread(file, (void *)memory, SIZE, 0);
	why_not = errno;
	same(result, -1);
	same(why_not, EFAULT);
	fill_remote(memory, 33, SIZE);
	SCIFlush(NULL, 0);
	all_have(&group, 33, SIZE);
	same(pread(file, buffer, SIZE, 0), SIZE);
	good(SCIMemCpy(NULL, buffer, map, 0, SIZE, 0, &error));
	all_have(&group, 32, SIZE);
}

/* Forbids userfaultfd from here on. Returns whether the kernel has system call filters. */
static bool forbid_userfaultfd(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_userfaultfd, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_ioctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, USERFAULTFD_IOC_NEW, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { .len = ARRAY_SIZE(filter), .filter = filter };

	expect_value(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	return !syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

static void broadcast_forbidden(void)
{
	struct group group = new_group();
	struct local source = prepared(SIZE);
	sci_dma_queue_t queue = new_queue(group.local.device, 1);
	sci_map_t map;

	/* The debug kernel has no filters, so it can't forbid the call. */
	if (!forbid_userfaultfd())
		return;
	bad(SCI_ERR_NOT_SUPPORTED,
	    SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, 0, &error));
	fill(source.memory, 34, SIZE);
	good(SCIStartDmaTransfer(queue, source.segment, group.remote, 0, SIZE, 0, NULL, NULL, 0,
				 &error));
	same(SCIWaitForDMAQueue(queue, FOREVER, 0, &error), SCI_DMAQUEUE_DONE);
	all_have(&group, 34, SIZE);
}

static volatile int flushes;

static void flush_in_handler(int number)
{
	SCIFlush(NULL, 0);
	flushes++;
}

/* The signal handler runs while the thread waits at a store, flushes, copies, or maps. */
static void broadcast_flush_in_handler(void)
{
	struct sigaction action = { .sa_handler = flush_in_handler };
	struct group group = new_group();
	unsigned char *buffer = pages(SIZE / PAGE + 1);
	volatile unsigned char *memory;
	sci_sequence_t sequence;
	sci_map_t map, other;
	__u32 round = 0;

	good(memory = SCIMapRemoteSegment(group.remote, &map, 0, SIZE, NULL, 0, &error));
	sequence = new_sequence(map);
	interrupt_repeatedly(true);
	sigaction(SIGALRM, &action, NULL);
	while (flushes < 40) {
		fill_remote(memory, ++round, SIZE);
		SCIFlush(sequence, 0);
		fill(buffer, ++round, SIZE);
		good(SCIMemCpy(sequence, buffer, map, 0, SIZE, 0, &error));
		good(SCIMapRemoteSegment(group.remote, &other, 0, SIZE, NULL, 0, &error));
		good(SCIUnmapSegment(other, 0, &error));
	}
	stop_interrupting();
	all_have(&group, round, SIZE);
}

const struct test_case broadcast_cases[] = {
	PAIR_MAPPED_WITH(broadcast_order, follow, "broadcast.order"),
	PAIR_MAPPED_WITH(broadcast_order_by_barriers, follow,
			 "broadcast.order broadcast.order-in-page"),
	PAIR_MAPPED_WITH(broadcast_order_of_two, follow, "broadcast.order"),
	PAIR_MAPPED_WITH(broadcast_order_across, follow, "broadcast.order"),
	PAIR_MAPPED_WITH(broadcast_order_of_copies, follow, "broadcast.order-of-copies"),
	PAIR(broadcast_store, "broadcast.store broadcast.own"),
	PAIR(broadcast_barrier, "broadcast.barrier"),
	PAIR(broadcast_copy, "broadcast.copy broadcast.no-read"),
	PAIR(broadcast_copy_again, "broadcast.copy-again"),
	PAIR_MAPPED(broadcast_neighbours, "broadcast.neighbours"),
	PAIR_MAPPED(broadcast_joined, "broadcast.joined"),
	PAIR_MAPPED(broadcast_read, "broadcast.read"),
	PAIR_MAPPED(broadcast_read_unprivileged, "broadcast.read"),
	PAIR(broadcast_forbidden, "broadcast.forbidden"),
	PAIR_MAPPED(broadcast_flush_in_handler, "broadcast.handler"),
	PAIR(broadcast_dma, "broadcast.dma broadcast.no-read"),
	ALONE(broadcast_groups, "broadcast.groups"),
	ALONE(broadcast_none, "broadcast.none"),
	PAIR_MAPPED(broadcast_one, "broadcast.own"),
	STAR(broadcast_member_dies, "broadcast.member-lost"),
	{ }
};
