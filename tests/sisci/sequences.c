// SPDX-License-Identifier: GPL-2.0
/*
 * Sequences while no link fails. The tests of the lab check their results when a link fails.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "sisci_suite.h"

static void sequence_start_check(void)
{
	struct remote remote = new_remote(4096);
	sci_sequence_t sequence = new_sequence(remote.map);
	sci_sequence_status_t status;
	int i;

	for (i = 0; i < 100; i++) {
		good(status = SCIStartSequence(sequence, 0, &error));
		same(status, SCI_SEQ_OK);
		*(volatile __u32 *)remote.memory = i;
		good(status = SCICheckSequence(sequence, 0, &error));
		same(status, SCI_SEQ_OK);
	}
	good(SCIRemoveSequence(sequence, 0, &error));
}

static void sequence_check_again(void)
{
	struct remote remote = new_remote(4096);
	sci_sequence_t sequence = new_sequence(remote.map);
	int i;

	/*
	 * Nothing has happened since the last successful check, however often the program checks.
	 */
	good(SCIStartSequence(sequence, 0, &error));
	for (i = 0; i < 100; i++)
		good(expect(SCICheckSequence(sequence, 0, &error) == SCI_SEQ_OK));
}

static void sequence_flags(void)
{
	static const unsigned int flags[] = {
		SCI_FLAG_NO_FLUSH,
		SCI_FLAG_NO_STORE_BARRIER,
		SCI_FLAG_NO_FLUSH | SCI_FLAG_NO_STORE_BARRIER,
		SCI_FLAG_FLUSH_CPU_BUFFERS_ONLY,
	};
	struct remote remote = new_remote(4096);
	sci_sequence_t sequence = new_sequence(remote.map);
	size_t i;

	good(SCIStartSequence(sequence, 0, &error));
	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		*(volatile __u32 *)remote.memory = i + 1;
		good(expect(SCICheckSequence(sequence, flags[i], &error) == SCI_SEQ_OK));
		there(remote.there.peer, THERE_AWAIT, remote.there.memory, i + 1);
	}
	bad(SCI_ERR_ILLEGAL_FLAG, SCICheckSequence(sequence, SCI_FLAG_USE_CALLBACK, &error));
	good(SCICreateMapSequence(remote.map, &sequence, SCI_FLAG_FAST_BARRIER, &error));
	good(SCIStartSequence(sequence, 0, &error));
	good(SCICheckSequence(sequence, 0, &error));
}

static void sequence_many(void)
{
	struct remote remote = new_remote(4096);
	sci_sequence_t sequence[16];
	int i;

	for (i = 0; i < 16; i++) {
		sequence[i] = new_sequence(remote.map);
		good(SCIStartSequence(sequence[i], 0, &error));
	}
	for (i = 0; i < 16; i += 2)
		good(SCIRemoveSequence(sequence[i], 0, &error));
	for (i = 1; i < 16; i += 2)
		good(expect(SCICheckSequence(sequence[i], 0, &error) == SCI_SEQ_OK));
}

static void sequence_after_unmap(void)
{
	struct remote remote = new_remote(4096);
	sci_sequence_t sequence = new_sequence(remote.map);

	good(SCIStartSequence(sequence, 0, &error));
	/* Programs release the map first. */
	good(SCIUnmapSegment(remote.map, 0, &error));
	bad(STALE, SCIStartSequence(sequence, 0, &error));
	bad(STALE, SCICheckSequence(sequence, 0, &error));
	SCIFlush(sequence, 0);
	SCIStoreBarrier(sequence, 0);
	/* The sequence can be removed then, once. */
	good(SCIRemoveSequence(sequence, 0, &error));
	bad(STALE, SCIRemoveSequence(sequence, 0, &error));
	good(SCIDisconnectSegment(remote.segment, 0, &error));
	good(SCIClose(remote.device, 0, &error));
}

/* The sequence of a removed map can be removed once, even if another sequence has its place now. */
static void sequence_unmap_taken(void)
{
	struct remote remote = new_remote(4096);
	sci_sequence_t before[3][16], other;
	sci_map_t map = remote.map;
	size_t round, i;

	for (round = 0; round < 3; round++) {
		for (i = 0; i < 16; i++)
			before[round][i] = new_sequence(map);
		good(SCIUnmapSegment(map, 0, &error));
		good(SCIMapRemoteSegment(remote.segment, &map, 0, 4096, NULL, 0, &error));
	}
	other = new_sequence(map);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 16; i++) {
			good(SCIRemoveSequence(before[round][i], 0, &error));
			bad(STALE, SCIRemoveSequence(before[round][i], 0, &error));
		}
	}
	good(expect(SCIStartSequence(other, 0, &error) == SCI_SEQ_OK));
	good(expect(SCICheckSequence(other, 0, &error) == SCI_SEQ_OK));
	good(SCIRemoveSequence(other, 0, &error));
}

/* The node is online, but the segment is gone, so stores have no effect. */
static void sequence_exporter_dies(void)
{
	struct remote remote = new_remote(4096);
	sci_sequence_t sequence = new_sequence(remote.map);

	good(expect(SCIStartSequence(sequence, 0, &error) == SCI_SEQ_OK));
	good(expect(SCICheckSequence(sequence, 0, &error) == SCI_SEQ_OK));
	begin(remote.there.peer, DO_DIE);
	remote_event(remote.segment, SCI_CB_LOST);
	*(volatile __u32 *)remote.memory = 1;
	good(expect(SCICheckSequence(sequence, 0, &error) == SCI_SEQ_NOT_RETRIABLE));
	bad(SCI_ERR_SEGMENT_NOT_CONNECTED, SCIStartSequence(sequence, 0, &error));
	good(expect(SCICheckSequence(sequence, 0, &error) == SCI_SEQ_NOT_RETRIABLE));
	good(SCIRemoveSequence(sequence, 0, &error));
}

static void sequence_own_node(void)
{
	struct local local = exported(4096);
	struct remote remote = own_remote(&local);
	sci_sequence_t sequence = new_sequence(remote.map);

	good(expect(SCIStartSequence(sequence, 0, &error) == SCI_SEQ_OK));
	*(volatile __u32 *)remote.memory = 1;
	good(expect(SCICheckSequence(sequence, 0, &error) == SCI_SEQ_OK));
}

/* --- Without system calls --- */

static volatile int trapped;

static void trap(int number, siginfo_t *info, void *context)
{
	trapped = info->si_syscall + 1;
}

/* Traps all system calls from here on, except those by which the process ends. */
static void allow_no_system_call(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_write, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_exit_group, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_rt_sigreturn, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { .len = ARRAY_SIZE(filter), .filter = filter };
	struct sigaction action = { .sa_sigaction = trap, .sa_flags = SA_SIGINFO };
	int why_not;

	sigaction(SIGSYS, &action, NULL);
	expect_value(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	/* The debug kernel has no filters, so it can't trap the calls. */
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		why_not = errno;
		expect_value(why_not, EINVAL);
	}
}

static void sequence_no_system_call(void)
{
	struct remote remote = new_remote(4096);
	sci_sequence_t sequence = new_sequence(remote.map);
	sci_sequence_status_t started, checked;

	/* These calls do work that is done only once. */
	good(SCIStartSequence(sequence, 0, &error));
	good(SCICheckSequence(sequence, 0, &error));
	allow_no_system_call();
	started = SCIStartSequence(sequence, 0, &error);
	*(volatile __u32 *)remote.memory = 1;
	SCIFlush(sequence, 0);
	SCIFlush(NULL, 0);
	checked = SCICheckSequence(sequence, SCI_FLAG_NO_STORE_BARRIER, &error);
	if (trapped)
		fail("the call %d of the system was made", trapped - 1);
	same(started, SCI_SEQ_OK);
	same(checked, SCI_SEQ_OK);
}

/* --- In a signal handler --- */

static volatile int flushes;

static void flush_in_handler(int number)
{
	SCIFlush(NULL, 0);
	flushes++;
}

static void flush_async_safe(void)
{
	struct remote remote = new_remote(4096);
	sci_sequence_t sequence = new_sequence(remote.map);
	struct sigaction action = { .sa_handler = flush_in_handler };
	sci_sequence_t other;

	interrupt_repeatedly(true);
	sigaction(SIGALRM, &action, NULL);
	while (flushes < 20) {
		/* The signal may arrive anywhere in these calls. */
		good(SCICreateMapSequence(remote.map, &other, 0, &error));
		good(SCIRemoveSequence(other, 0, &error));
		SCIFlush(sequence, 0);
	}
	stop_interrupting();
}

/* --- In a cancelled thread --- */

static void *flush_for_ever(void *data)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (;;) {
		flushes++;
		SCIFlush(data, 0);
		SCIFlush(NULL, 0);
	}
	return NULL;
}

/* Waits in a call. The thread is cancelled when the call has returned. */
static void *wait_for_ever(void *data)
{
	sci_error_t of_thread;

	for (;;) {
		flushes++;
		SCIWaitForInterrupt(data, 1, 0, &of_thread);
		pthread_testcancel();
	}
	return NULL;
}

static void cancel(void *(*body)(void *data), void *data, int after)
{
	pthread_t thread;
	void *ended;

	flushes = 0;
	thread = in_thread(body, data);
	while (flushes < after)
		sched_yield();
	same(pthread_cancel(thread), 0);
	same(pthread_join(thread, &ended), 0);
	expect(ended == PTHREAD_CANCELED);
}

static void flush_cancelled(void)
{
	struct remote remote = new_remote(4096);
	sci_sequence_t sequence = new_sequence(remote.map);
	sci_local_interrupt_t interrupt;
	unsigned int number = 0;
	int i;

	interrupt = new_interrupt(remote.device, &number, 0);
	for (i = 0; i < 10; i++) {
		cancel(flush_for_ever, sequence, 100);
		cancel(wait_for_ever, interrupt, 2);
	}
	/* The cancelled thread holds no lock. */
	good(expect(SCIStartSequence(sequence, 0, &error) == SCI_SEQ_OK));
	good(expect(SCICheckSequence(sequence, 0, &error) == SCI_SEQ_OK));
	good(SCIRemoveInterrupt(interrupt, 0, &error));
}

const struct test_case sequence_cases[] = {
	PAIR_MAPPED(sequence_start_check, "sequence.start sequence.check"),
	PAIR_MAPPED(sequence_check_again, "sequence.check"),
	PAIR_MAPPED(sequence_flags, "sequence.flags"),
	PAIR_MAPPED(sequence_many, "sequence.many"),
	PAIR_MAPPED(sequence_after_unmap, "sequence.unmap"),
	PAIR_MAPPED(sequence_unmap_taken, "sequence.unmap-taken"),
	PAIR_MAPPED(sequence_exporter_dies, "sequence.lost"),
	ALONE(sequence_own_node, "sequence.start node.own"),
	PAIR_MAPPED(sequence_no_system_call, "sequence.no-system-call"),
	PAIR_MAPPED(flush_async_safe, "flush.signals"),
	PAIR_MAPPED(flush_cancelled, "flush.cancelled"),
	{ }
};
