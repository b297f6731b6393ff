// SPDX-License-Identifier: GPL-2.0
/*
 * Numbers of kernel files and module counters (numbers.h).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <time.h>
#include <unistd.h>

#include "die.h"
#include "hang_limits.h"
#include "numbers.h"

#define PAGE		sysconf(_SC_PAGESIZE)
#define COUNTERS	"/sys/kernel/debug/scif/counters"

static char text[65536];

/* Reads a file from its beginning. */
static void read_text(int fd, const char *path)
{
	ssize_t len = 0, piece;

	while ((piece = pread(fd, text + len, sizeof(text) - 1 - len, len)) > 0)
		len += piece;
	if (piece < 0)
		die(path);
	text[len] = '\0';
}

static long number_in_text(const char *name, long otherwise)
{
	const char *line = text;
	size_t len = strlen(name);

	while (line) {
		if (!strncmp(line, name, len) && (line[len] == ' ' || line[len] == ':'))
			return atol(line + len + 1);
		line = strchr(line, '\n');
		line += line ? 1 : 0;
	}
	return otherwise;
}

static long checked(long number, const char *path, const char *name)
{
	if (number != LONG_MIN)
		return number;
	fprintf(stderr, "%s: there is no %s in %s\n", program_invocation_short_name, name, path);
	exit(1);
}

long number_or(const char *path, const char *name, long otherwise)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		die(path);
	read_text(fd, path);
	close(fd);
	return number_in_text(name, otherwise);
}

long number_of(const char *path, const char *name)
{
	return checked(number_or(path, name, LONG_MIN), path, name);
}

long counter_or(const char *name, long otherwise)
{
	static int counters = -1;

	if (counters < 0)
		counters = open(COUNTERS, O_RDONLY | O_CLOEXEC);
	if (counters < 0)
		die(COUNTERS);
	read_text(counters, COUNTERS);
	return number_in_text(name, otherwise);
}

long counter(const char *name)
{
	return checked(counter_or(name, LONG_MIN), COUNTERS, name);
}

void refresh_counts(void)
{
	/* A read of this file does the work. */
	int fd = open("/proc/sys/vm/stat_refresh", O_RDONLY | O_CLOEXEC);
	char nothing;

	if (fd < 0 || read(fd, &nothing, 1) < 0)
		die("/proc/sys/vm/stat_refresh");
	close(fd);
}

long pinned_pages(void)
{
	refresh_counts();
	return number_of("/proc/vmstat", "nr_foll_pin_acquired") -
	       number_of("/proc/vmstat", "nr_foll_pin_released");
}

long own_pinned_pages(void)
{
	return number_of("/proc/self/status", "VmPin") * 1024 / PAGE;
}

bool comes_to(long (*number)(void), long wanted)
{
	time_t end = time(NULL) + HANG_LIMIT_SECONDS;
	long now;

	while ((now = number()) != wanted) {
		if (time(NULL) > end) {
			printf("# it is %ld, not %ld\n", now, wanted);
			return false;
		}
		usleep(2000);
	}
	return true;
}
