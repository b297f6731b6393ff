// SPDX-License-Identifier: GPL-2.0
/*
 * Failures of the n-th allocation or user copy (fail_nth.h).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "die.h"
#include "fail_nth.h"

/* The kernel thread whose children are all other kernel threads. */
#define KTHREADD	2

static void write_number(int fd, const char *path, long n)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%ld", n);

	if (pwrite(fd, text, len, 0) != len)
		die(path);
}

/* Returns the rest of n, or 0 once the failure has occurred. */
static long number_left(int fd, const char *path)
{
	char text[32] = "";

	if (pread(fd, text, sizeof(text) - 1, 0) > 0)
		return atol(text);
	/* Reading the file is a user copy, which may be the one that fails. */
	if (errno != EFAULT)
		die(path);
	return 1;
}

/* Opens the file of this thread. Each thread has its own. */
static int own_file(void)
{
	static __thread int fd = -1;

	if (fd < 0)
		fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		die("fail-nth");
	return fd;
}

void fail_own_nth(long n)
{
	write_number(own_file(), "fail-nth", n);
}

bool has_own_failed(void)
{
	bool failed = !number_left(own_file(), "fail-nth");

	fail_own_nth(0);
	return failed;
}

static bool is_of_kernel(const char *pid)
{
	char path[300], text[256] = "";
	const char *rest;
	int parent, fd;

	if (pid[0] < '1' || pid[0] > '9')
		return false;
	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	/* The thread may have ended. */
	if (fd < 0)
		return false;
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = '\0';
	close(fd);
	rest = strrchr(text, ')');
	return rest && sscanf(rest, ") %*c %d", &parent) == 1 && parent == KTHREADD;
}

/* The kernel threads with a pending failure. */
static pid_t armed[1024];
static int armed_count;

/* Opens the file of a thread. Returns -1 if the thread has ended. */
static int file_of(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fail-nth", pid);
	return open(path, O_RDWR | O_CLOEXEC);
}

void fail_kernels_nth(long n)
{
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	int fd;

	if (!folder)
		die("/proc");
	armed_count = 0;
	while ((entry = readdir(folder)) && armed_count < 1024) {
		if (!is_of_kernel(entry->d_name))
			continue;
		fd = file_of(atoi(entry->d_name));
		if (fd < 0)
			continue;
		write_number(fd, "fail-nth", n);
		close(fd);
		armed[armed_count++] = atoi(entry->d_name);
	}
	closedir(folder);
}

bool has_kernels_failed(void)
{
	bool failed = false;
	int i, fd;

	for (i = 0; i < armed_count; i++) {
		fd = file_of(armed[i]);
		if (fd < 0)
			continue;
		failed |= !number_left(fd, "fail-nth");
		write_number(fd, "fail-nth", 0);
		close(fd);
	}
	armed_count = 0;
	return failed;
}
