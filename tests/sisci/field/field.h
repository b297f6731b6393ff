/* SPDX-License-Identifier: GPL-2.0 */
/*
 * field.h - functions that the programs of this folder share
 *
 * The programs are written as users of SISCI write theirs: by the header and the Users Guide,
 * without regard to how the library works. Each program exits with one of these statuses.
 */
#ifndef FIELD_H
#define FIELD_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sisci_api.h>
#include <sisci_error.h>
#include <sisci_types.h>

#define NO_FLAGS	0
#define NO_CALLBACK	NULL
#define NO_ARG		NULL
#define ADAPTER		0
#define BROADCAST	DIS_BROADCAST_NODEID_GROUP_ALL

enum status {
	WELL,
	/* A result is wrong. */
	WRONG,
	USAGE,
	/* Another party is lost, and this one has cleaned up. */
	PARTY_LOST = 4
};

static inline void say(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	putchar('\n');
	fflush(stdout);
}

static inline noreturn void die(const char *format, ...)
{
	va_list list;

	fflush(stdout);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	_exit(WRONG);
}

static inline void check(const char *what, sci_error_t error)
{
	if (error != SCI_ERR_OK)
		die("%s: %s", what, SCIGetErrorString(error));
}

static inline void nap(void)
{
	const struct timespec millisecond = { .tv_nsec = 1000000 };

	nanosleep(&millisecond, NULL);
}

static inline bool is(const int *value)
{
	return __atomic_load_n(value, __ATOMIC_ACQUIRE);
}

static inline void set(int *value, int to)
{
	__atomic_store_n(value, to, __ATOMIC_RELEASE);
}

/* Returns the word at this index of a sequence of random words. */
static inline uint64_t word(uint64_t seed, uint64_t at)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ull + at * 0xbf58476d1ce4e5b9ull + 1;

	x ^= x >> 30;
	x *= 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static inline unsigned char byte(uint64_t seed, uint64_t at)
{
	return word(seed, at / 8) >> 8 * (at % 8);
}

static inline void fill(unsigned char *memory, size_t size, uint64_t seed)
{
	for (size_t i = 0; i < size; i++)
		memory[i] = byte(seed, i);
}

/* Adds memory to a sum in which each byte and its place count (FNV-1a). */
static inline uint64_t sum_on(uint64_t sum, const volatile void *memory, size_t size)
{
	const volatile unsigned char *bytes = memory;

	for (size_t i = 0; i < size; i++)
		sum = (sum ^ bytes[i]) * 0x100000001b3ull;
	return sum;
}

static inline uint64_t sum_of(const volatile void *memory, size_t size)
{
	return sum_on(0xcbf29ce484222325ull, memory, size);
}

static inline unsigned int number_of(const char *text)
{
	char *end;
	unsigned long number = strtoul(text, &end, 0);

	if (*text == '\0' || *end != '\0' || number > 0x7fffffff)
		die("'%s' is no number", text);
	return number;
}

static inline unsigned int own_node(void)
{
	sci_query_adapter_t query;
	unsigned int node = 0;
	sci_error_t error;

	memset(&query, 0, sizeof(query));
	query.subcommand = SCI_Q_ADAPTER_NODEID;
	query.localAdapterNo = ADAPTER;
	query.data = &node;
	SCIQuery(SCI_Q_ADAPTER, &query, NO_FLAGS, &error);
	check("SCIQuery", error);
	return node;
}

/* Returns whether to retry a request for a resource of a party that may start later. */
static inline bool not_there_yet(sci_error_t error)
{
	return error == SCI_ERR_NO_SUCH_SEGMENT || error == SCI_ERR_TIMEOUT ||
	       error == SCI_ERR_CONNECTION_REFUSED || error == SCI_ERR_NODE_NOT_RESPONDING;
}

static inline void connect_data(sci_desc_t device, sci_remote_data_interrupt_t *interrupt,
				unsigned int node, unsigned int number)
{
	sci_error_t error;

	for (;;) {
		SCIConnectDataInterrupt(device, interrupt, node, ADAPTER, number,
					SCI_INFINITE_TIMEOUT, NO_FLAGS, &error);
		if (!not_there_yet(error))
			break;
		nap();
	}
	check("SCIConnectDataInterrupt", error);
}

static inline void create_data(sci_desc_t device, sci_local_data_interrupt_t *interrupt,
			       unsigned int number)
{
	sci_error_t error;

	SCICreateDataInterrupt(device, interrupt, ADAPTER, &number, NO_CALLBACK, NO_ARG,
			       SCI_FLAG_FIXED_INTNO, &error);
	check("SCICreateDataInterrupt", error);
}

#endif /* FIELD_H */
