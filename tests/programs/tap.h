/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tests of a C program, reported as TAP: a line for each, and in the end how
 * many there were. A test that cannot even be tried ends the program.
 */
#ifndef TAP_H
#define TAP_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "die.h"

static int tests;
static int failures;

/* A line of TAP: verdict, then the description, then what may explain a failure. */
static void verdict(bool ok)
{
	failures += !ok;
	printf("%s %d - ", ok ? "ok" : "not ok", ++tests);
}

static void explain(bool ok, long result, int error)
{
	printf("\n");
	if (!ok)
		printf("# returned %ld, errno %d (%s)\n", result, error, strerror(error));
	fflush(stdout);
}

#define test(condition, format, ...)						\
	do {									\
		bool ok_;							\
		int error_;							\
										\
		errno = 0;							\
		ok_ = (condition);						\
		error_ = errno;							\
		verdict(ok_);							\
		printf(format, ##__VA_ARGS__);					\
		explain(ok_, ok_, error_);					\
	} while (0)

/* The call must fail with this error. */
#define test_errno(call, error, format, ...)					\
	do {									\
		bool ok_;							\
		int error_;							\
		long result_;							\
										\
		errno = 0;							\
		result_ = (call);						\
		error_ = errno;							\
		ok_ = result_ == -1 && error_ == (error);			\
		verdict(ok_);							\
		printf(format ": " #error, ##__VA_ARGS__);			\
		explain(ok_, result_, error_);					\
	} while (0)

/* The last line; returns the exit status. */
static int finish_tests(void)
{
	printf("1..%d\n", tests);
	return failures ? 1 : 0;
}

#endif /* TAP_H */
