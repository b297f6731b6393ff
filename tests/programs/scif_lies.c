// SPDX-License-Identifier: GPL-2.0
/*
 * Makes a liar of a program: changes the arguments of its SCIF calls now and then. So the liar
 * speaks each protocol as well as the program does, and then does not. The program itself believes
 * that all calls were made as it asked.
 *
 *	scif_lies run SEED COUNTS COMMAND [ARGUMENT...]
 *	scif_lies show COUNTS		how many lies of each kind, a line for each
 *
 * COUNTS is a file, which several liars may share. One of several calls of a run is a lie. The seed
 * decides of how many.
 *
 * The liar works as a debugger of the program, as not all programs call the C library.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/scif_ioctl.h>
#include <linux/scif_services.h>

#include "die.h"

#define REMEMBERED	32
#define LONGEST		4096
#define THREADS		256
/* Length of the instruction of a system call. */
#define INSTRUCTION	2

enum kind { MESSAGE, OLD, SILENCE, AGAIN, LATE, COPY, WINDOW, NAME, KINDS };

static const char *const names[KINDS] = {
	"message", "old", "silence", "again", "late", "copy", "window", "name",
};

/* A thread in a system call, and the action for its return, or NULL if there is none. */
struct thread {
	pid_t id;
	void (*returns)(pid_t id, struct user_regs_struct *registers);
};

static struct thread threads[THREADS];
static __u64 *counts;
static int rarity;
static char remembered[REMEMBERED][LONGEST];
static int remembered_len[REMEMBERED], said;

static __u64 *open_counts(const char *path)
{
	int file = open(path, O_RDWR | O_CREAT, 0600);
	void *mapped;

	if (file < 0 || ftruncate(file, KINDS * sizeof(*counts)))
		die(path);
	mapped = mmap(NULL, KINDS * sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (mapped == MAP_FAILED)
		die("mmap");
	return mapped;
}

static bool lies(enum kind kind)
{
	if (rand() % rarity)
		return false;
	__atomic_fetch_add(&counts[kind], 1, __ATOMIC_RELAXED);
	return true;
}

static __u64 any(void)
{
	return ((__u64)rand() << 40) ^ ((__u64)rand() << 20) ^ rand();
}

/* Returns a number near this one, one at an edge, or any. */
static __u64 other(__u64 number)
{
	switch (rand() % 9) {
	case 0:
		return 0;
	case 1:
		return 1;
	case 2:
		return -1;
	case 3:
		return number + 1;
	case 4:
		return number - 1;
	case 5:
		return number ^ 1ULL << rand() % 64;
	case 6:
		return number * 2;
	case 7:
		return number + rand() % 4096;
	default:
		return any();
	}
}

static bool get(pid_t id, __u64 from, void *to, size_t len)
{
	struct iovec local = { to, len }, remote = { (void *)from, len };

	return process_vm_readv(id, &local, 1, &remote, 1, 0) == (ssize_t)len;
}

static void put(pid_t id, __u64 to, const void *from, size_t len)
{
	struct iovec local = { (void *)from, len }, remote = { (void *)to, len };

	process_vm_writev(id, &local, 1, &remote, 1, 0);
}

/* Changes a number of `len` bytes in the thread's memory. */
static void change(pid_t id, __u64 at, size_t len)
{
	__u64 number = 0;

	if (!get(id, at, &number, len))
		return;
	number = other(number);
	put(id, at, &number, len);
}

/* Lets a call return success, though it was not made. */
static void not_done(pid_t id, struct user_regs_struct *registers)
{
	registers->rax = 0;
	ptrace(PTRACE_SETREGS, id, NULL, registers);
}

static void once_more(pid_t id, struct user_regs_struct *registers)
{
	registers->rip -= INSTRUCTION;
	registers->rax = SYS_ioctl;
	ptrace(PTRACE_SETREGS, id, NULL, registers);
}

/* Lets the program announce a false offset of its window. */
static void elsewhere(pid_t id, struct user_regs_struct *registers)
{
	if (!registers->rax)
		change(id, registers->rdx + offsetof(struct scifioctl_reg, out_offset), 8);
}

static void nothing(pid_t id, struct user_regs_struct *registers)
{
}

static void sends(struct thread *thread, struct user_regs_struct *registers)
{
	struct scifioctl_msg message;
	int len, index;

	if (!get(thread->id, registers->rdx, &message, offsetof(typeof(message), out_len) + 4) ||
	    message.len <= 0)
		return;
	len = message.len < LONGEST ? message.len : LONGEST;
	index = said++ % REMEMBERED;
	remembered_len[index] = get(thread->id, message.msg, remembered[index], len) ? len : 0;
	if (lies(MESSAGE)) {
		/*
		 * Prefers the heads of messages, as lies there have more effect than in the data
		 * behind.
		 */
		int most = rand() % 2 && len > 32 ? 32 : len;
		int size = most >= 8 && rand() % 2 ? 8 : most >= 4 ? 4 : 1;

		change(thread->id, message.msg + rand() % (most - size + 1) / size * size, size);
	} else if (lies(OLD)) {
		index = rand() % REMEMBERED;
		put(thread->id, message.msg, remembered[index],
		    remembered_len[index] < len ? remembered_len[index] : len);
	} else if (lies(SILENCE)) {
		put(thread->id, registers->rdx + offsetof(typeof(message), out_len), &message.len,
		    sizeof(message.len));
		registers->orig_rax = -1;
		ptrace(PTRACE_SETREGS, thread->id, NULL, registers);
		thread->returns = not_done;
	} else if (lies(AGAIN)) {
		thread->returns = once_more;
	} else if (lies(LATE)) {
		usleep(rand() % 100000);
	}
}

static void copies(struct thread *thread, struct user_regs_struct *registers)
{
	static const int places[] = {
		offsetof(struct scifioctl_copy, roffset), offsetof(struct scifioctl_copy, len),
	};

	if (lies(COPY))
		change(thread->id, registers->rdx + places[rand() % 2], 8);
}

static void names_peer(struct thread *thread, struct user_regs_struct *registers)
{
	static const int places[] = {
		offsetof(struct scif_connect_name, name_class),
		offsetof(struct scif_connect_name, name),
	};

	if (lies(NAME))
		change(thread->id, registers->rdx + places[rand() % 2], 4);
}

static void enters(struct thread *thread, struct user_regs_struct *registers)
{
	thread->returns = nothing;
	if (registers->orig_rax != SYS_ioctl)
		return;
	switch ((unsigned int)registers->rsi) {
	case SCIF_SEND:
		return sends(thread, registers);
	case SCIF_WRITETO:
	case SCIF_VWRITETO:
	case SCIF_READFROM:
	case SCIF_VREADFROM:
		return copies(thread, registers);
	case SCIF_REG:
		if (lies(WINDOW))
			thread->returns = elsewhere;
		return;
	case SCIF_CONNECT_NAME:
		return names_peer(thread, registers);
	}
}

static struct thread *thread_of(pid_t id)
{
	struct thread *thread, *free = NULL;

	for (thread = threads; thread < threads + THREADS; thread++) {
		if (thread->id == id)
			return thread;
		if (!thread->id && !free)
			free = thread;
	}
	if (!free)
		die("threads");
	*free = (struct thread) { .id = id };
	return free;
}

/* Handles the entry to a system call, or the return from it. */
static void stops_at_call(pid_t id)
{
	struct thread *thread = thread_of(id);
	struct user_regs_struct registers;

	if (ptrace(PTRACE_GETREGS, id, NULL, &registers))
		return;
	if (!thread->returns) {
		enters(thread, &registers);
	} else {
		thread->returns(id, &registers);
		thread->returns = NULL;
	}
}

/* Follows the program to its end. Returns its status. */
static int follow(pid_t program)
{
	int status, sig;
	pid_t id;

	for (;;) {
		id = waitpid(-1, &status, __WALL);
		if (id < 0)
			die("waitpid");
		if (!WIFSTOPPED(status)) {
			thread_of(id)->id = 0;
			if (id == program)
				return status;
			continue;
		}
		sig = WSTOPSIG(status);
		if (sig == (SIGTRAP | 0x80))
			stops_at_call(id);
		if (sig == (SIGTRAP | 0x80) || status >> 16)
			sig = 0;
		ptrace(PTRACE_SYSCALL, id, NULL, (void *)(long)sig);
	}
}

static int run(char **command)
{
	const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE |
			     PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK;
	int go[2], status;
	pid_t program;
	char byte;

	if (pipe2(go, O_CLOEXEC))
		die("pipe");
	program = fork();
	if (program < 0)
		die("fork");
	if (!program) {
		close(go[1]);
		if (read(go[0], &byte, 1) < 0)
			die("read");
		execvp(command[0], command);
		die(command[0]);
	}
	if (ptrace(PTRACE_SEIZE, program, NULL, (void *)options) ||
	    ptrace(PTRACE_INTERRUPT, program, NULL, NULL))
		die("ptrace");
	close(go[1]);
	status = follow(program);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int show(void)
{
	enum kind kind;

	for (kind = 0; kind < KINDS; kind++)
		printf("lie_%s %llu\n", names[kind], (unsigned long long)counts[kind]);
	return 0;
}

int main(int count, char **arguments)
{
	if (count == 3 && !strcmp(arguments[1], "show")) {
		counts = open_counts(arguments[2]);
		return show();
	}
	if (count > 4 && !strcmp(arguments[1], "run")) {
		srand(atoi(arguments[2]));
		/* Some liars tell much truth before the first lie. */
		rarity = 2 << rand() % 6;
		counts = open_counts(arguments[3]);
		return run(arguments + 4);
	}
	fprintf(stderr, "usage: scif_lies run SEED COUNTS COMMAND [ARGUMENT...] | show COUNTS\n");
	return 2;
}
