// SPDX-License-Identifier: GPL-2.0
/*
 * The reference for the benchmark, as far as a program can measure it: the machine alone, without a
 * driver. Each line is one JSON object.
 *
 *	raw_reference aperture FILE OFFSET SECONDS SIZE...
 *		copies to and from the mapped resource of a PCI device
 *	raw_reference memory SECONDS SIZE...
 *		copies within its memory
 *	raw_reference pin small|huge COUNT SIZE...
 *		pins and unpins (raw_pin.ko)
 *	raw_reference ioctl COUNT
 *		calls of /dev/scif that do nothing
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../modules/reference/raw_pin.h"
#include "die.h"

#define MOST_SAMPLES 100000
#define PAGE 4096UL

/* Distance of the source from the destination, modulo SPAN. */
#define SPAN	(64 * PAGE)
#define APART	(13 * PAGE)
/* As many places as a transfer in flight has, with which the benchmark compares this. */
#define PLACES 8

static uint64_t samples[MOST_SAMPLES];

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;

	return one < other ? -1 : one > other;
}

static uint64_t median(size_t count)
{
	qsort(samples, count, sizeof(*samples), compare);
	return count ? samples[count / 2] : 0;
}

static void drain(void)
{
#ifdef __x86_64__
	__builtin_ia32_sfence();
#endif
	__sync_synchronize();
}

static void *allocate(size_t size, bool huge)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	if (madvise(memory, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE))
		die("madvise");
	memset(memory, 0x5a, size);
	return memory;
}

/* Copies one after the other for a time. Returns the time of one copy. */
static double stream(char *to, const char *from, size_t size, double seconds)
{
	uint64_t started = now(), end = started + seconds * 1e9, count = 0, at;
	/* Reads the clock only once for many small copies. */
	size_t batch = size < 4096 ? 256 : 4096 * 64 / size + 1;

	do {
		for (size_t i = 0; i < batch; i++) {
			memcpy(to, from, size);
			/* Keeps the compiler from removing copies. */
			__asm__ volatile("" ::: "memory");
		}
		count += batch;
		at = now();
	} while (at < end);
	drain();
	return (double)(now() - started) / count;
}

/* Measures each copy by itself. Returns the median. */
static uint64_t each(char *to, const char *from, size_t size, double seconds)
{
	uint64_t end = now() + seconds * 1e9;
	size_t count = 0;

	do {
		uint64_t started = now();

		memcpy(to, from, size);
		drain();
		samples[count++] = now() - started;
	} while (count < MOST_SAMPLES && now() < end);
	return median(count);
}

static void aperture(const char *path, off_t offset, double seconds, char **sizes)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_SYNC);
	size_t largest = 0;
	char *memory, *mapped;

	if (fd < 0)
		die(path);
	for (char **size = sizes; *size; size++)
		if (strtoul(*size, NULL, 0) > largest)
			largest = strtoul(*size, NULL, 0);
	largest = (largest + PAGE - 1) & ~(PAGE - 1);
	mapped = mmap(NULL, largest, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
	if (mapped == MAP_FAILED)
		die(path);
	/* The same distance as in the benchmark: see tools/scif/src/command/bench/placed.rs. */
	memory = allocate(largest + SPAN, false);
	memory += ((uintptr_t)mapped + APART - (uintptr_t)memory) % SPAN;
	for (; *sizes; sizes++) {
		size_t size = strtoul(*sizes, NULL, 0);

		/* Copies once before the measurement. */
		memcpy(mapped, memory, size);
		printf("{\"size\":%zu,\"write_ns\":%.1f,\"write_p50_ns\":%lu,", size,
		       stream(mapped, memory, size, seconds),
		       (unsigned long)each(mapped, memory, size, seconds));
		printf("\"read_ns\":%.1f,\"read_p50_ns\":%lu}\n",
		       stream(memory, mapped, size, seconds),
		       (unsigned long)each(memory, mapped, size, seconds));
	}
}

static void pin(bool huge, size_t count, char **sizes)
{
	int fd = open("/dev/raw_pin", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die("/dev/raw_pin");
	if (!count || count > MOST_SAMPLES / 2)
		count = MOST_SAMPLES / 2;
	for (; *sizes; sizes++) {
		size_t size = strtoul(*sizes, NULL, 0);
		void *memory = allocate(size, huge);
		uint64_t *unpins = samples + count;
		unsigned long pin_ns, unpin_ns;

		for (size_t i = 0; i < count; i++) {
			struct raw_pin what = {
				.address = (uintptr_t)memory,
				.length = size,
			};

			if (ioctl(fd, RAW_PIN, &what))
				die("RAW_PIN");
			samples[i] = what.pin_ns;
			unpins[i] = what.unpin_ns;
		}
		pin_ns = median(count);
		memcpy(samples, unpins, count * sizeof(*samples));
		unpin_ns = median(count);
		printf("{\"size\":%zu,\"pin_p50_ns\":%lu,\"unpin_p50_ns\":%lu}\n", size, pin_ns,
		       unpin_ns);
		munmap(memory, size);
	}
}

static void empty_call(size_t count)
{
	int fd = open("/dev/scif", O_RDWR | O_CLOEXEC);
	uint64_t started = now();

	if (fd < 0)
		die("/dev/scif");
	for (size_t i = 0; i < count; i++) {
		/* No call has this number. */
		if (ioctl(fd, _IO('s', 255)) == 0)
			die("the call that does nothing");
	}
	printf("{\"call_ns\":%.1f}\n", (double)(now() - started) / count);
}

/* Copies from one place to another, then between the next ones, and so on round PLACES of them. */
static void memory(double seconds, char **sizes)
{
	for (; *sizes; sizes++) {
		size_t size = strtoul(*sizes, NULL, 0), all = size * PLACES;
		char *from = allocate(all, true), *to = allocate(all, true);
		uint64_t started = now(), end = started + seconds * 1e9, count = 0, at;

		do {
			for (size_t i = 0; i < PLACES; i++)
				memcpy(to + i * size, from + i * size, size);
			count += PLACES;
			at = now();
		} while (at < end);
		printf("{\"size\":%zu,\"copy_ns\":%.1f}\n", size,
		       (double)(at - started) / count);
		munmap(from, all);
		munmap(to, all);
	}
}

int main(int argc, char **argv)
{
	if (argc > 5 && !strcmp(argv[1], "aperture")) {
		aperture(argv[2], strtoull(argv[3], NULL, 0), atof(argv[4]), argv + 5);
	} else if (argc > 3 && !strcmp(argv[1], "memory")) {
		memory(atof(argv[2]), argv + 3);
	} else if (argc > 4 && !strcmp(argv[1], "pin")) {
		pin(!strcmp(argv[2], "huge"), strtoul(argv[3], NULL, 0), argv + 4);
	} else if (argc > 2 && !strcmp(argv[1], "ioctl")) {
		empty_call(strtoul(argv[2], NULL, 0));
	} else {
		fprintf(stderr, "usage: %s aperture|memory|pin|ioctl ...\n", argv[0]);
		return 2;
	}
	return 0;
}
