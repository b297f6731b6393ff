/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The checks of all test programs in user space, and their output in TAP, the Test Anything
 * Protocol.
 *
 * expect...() ends the process if a result is wrong. In a suite (suite.h) this is the process of a
 * case, whose end the runner reports. test...() prints a line of TAP, and the program goes on. Both
 * print their place in the source and the result.
 *
 * These checks are not for the kernel: its client has ../modules/client_test/test.h.
 */
#ifndef CHECKS_H
#define CHECKS_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <string.h>

#include <linux/types.h>

/*
 * The arguments are those of the kernel's macro: the number of the format, and of the first
 * formatted argument.
 */
#define __printf(format, first)	__attribute__((__format__(printf, format, first)))

/* --- The runner of a case --- */

/* The check that a process is at. */
struct progress {
	const char *file;
	int line;
	const char *text;
};

/* Settings that a runner passes to the process of a case. */
struct runner {
	/* The record of the process's progress, in memory that the runner sees; or NULL. */
	struct progress *progress;
	/* Descriptor to which the process writes the reason of its failure. */
	int report;
	/* Seconds that the case may take. */
	int limit;
};

extern struct runner runner;

/* --- Checks that end the process; each evaluates its call once --- */

/* Records the check that this thread makes, and clears errno. */
void step(const char *file, int line, const char *text);
__printf(1, 2)
noreturn void fail(const char *format, ...);
void check_true(bool holds);
long check_ok(long result);
void check_value(long result, long value);
void check_error(long result, int error);
/* Fails unless the call has returned one of these errors. */
void check_errors(long result, int error, int other);

#define expect(condition) \
	check_true((step(__FILE__, __LINE__, #condition), (condition)))
/* The call must not fail. Returns its result. */
#define expect_ok(call) \
	check_ok((step(__FILE__, __LINE__, #call), (call)))
#define expect_value(call, value) \
	check_value((step(__FILE__, __LINE__, #call), (call)), (value))
/* The call must fail with this error. Returns -1, with errno. */
#define expect_error(call, error) \
	check_error((step(__FILE__, __LINE__, #call), (call)), (error))
#define expect_errors(call, error, other) \
	check_errors((step(__FILE__, __LINE__, #call), (call)), (error), (other))
/* Waits for a condition that another process or the driver brings about. */
#define wait_until(condition) \
	do { \
		struct waiting waiting_ = start_waiting(); \
		step(__FILE__, __LINE__, #condition); \
		while (!(condition)) \
			go_on_waiting(&waiting_); \
	} while (0)

struct waiting {
	__u64 deadline;
};

struct waiting start_waiting(void);
void go_on_waiting(struct waiting *waiting);
/* Returns the milliseconds of a monotonic clock. */
__u64 now(void);

/* --- Checks that print a line --- */

/* Number of lines so far, and of those that are "not ok". */
extern int tests, failures;

/* Return the reason why a result is wrong, with errno, or NULL if it is right. */
const char *why_untrue(bool holds);
const char *why_not_error(long result, int error, int other);

/* Prints "ok" or "not ok", the number, and the description. */
__printf(2, 3)
void tap_line(bool ok, const char *format, ...);
/* Prints such a line for a check. If it is not ok, the reason follows below. */
__printf(2, 3)
void test_line(const char *why, const char *format, ...);

/* Checks a condition. The description is evaluated after the condition, and may use its results. */
#define test(condition, format, ...) \
	do { \
		const char *why_ = \
			why_untrue((step(__FILE__, __LINE__, #condition), (condition))); \
		test_line(why_, format, ##__VA_ARGS__); \
	} while (0)

/* Checks that the call returns -1 with this error. */
#define test_errno(call, error, format, ...) \
	do { \
		int error_ = (error); \
		const char *why_ = why_not_error((step(__FILE__, __LINE__, #call), (call)), \
						 error_, error_); \
		test_line(why_, format ": " #error, ##__VA_ARGS__); \
	} while (0)

/* Prints the number of lines. Returns the exit status. */
int finish_tests(void);

#endif /* CHECKS_H */
