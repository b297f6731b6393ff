/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The checks of all test programs of user space, and what they print: TAP, the Test Anything
 * Protocol.
 *
 * expect...() ends the process if a result is not as expected: in a suite (suite.h) the process
 * of a case, whose end the runner reports. test...() prints a line of TAP, and the program goes
 * on. Both say where they are in the source and what came instead.
 *
 * Not for the kernel: its client has ../modules/client_test/test.h.
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

/* As in the kernel: which argument is a format, and which is the first that it formats. */
#define __printf(format, first)	__attribute__((__format__(printf, format, first)))

/* --- The runner of a case --- */

/* Where a process is. */
struct progress {
	const char *file;
	int line;
	const char *text;
};

/* What a runner tells the process of a case. */
struct runner {
	/* Where the process says where it is, in memory that the runner sees; or NULL. */
	struct progress *progress;
	/* Where it says why it fails. */
	int report;
	/* Seconds that it may take. */
	int limit;
};

extern struct runner runner;

/* --- Checks that end the process; each evaluates its call once --- */

/* Notes which check this thread makes, and clears errno. */
void step(const char *file, int line, const char *text);
__printf(1, 2)
noreturn void fail(const char *format, ...);
void check_true(bool holds);
long check_ok(long result);
void check_value(long result, long value);
void check_error(long result, int error);
/* Either error is right. */
void check_errors(long result, int error, int other);

#define expect(condition) \
	check_true((step(__FILE__, __LINE__, #condition), (condition)))
/* Does not fail; gives the result. */
#define expect_ok(call) \
	check_ok((step(__FILE__, __LINE__, #call), (call)))
#define expect_value(call, value) \
	check_value((step(__FILE__, __LINE__, #call), (call)), (value))
/* Returns -1, with errno. */
#define expect_error(call, error) \
	check_error((step(__FILE__, __LINE__, #call), (call)), (error))
#define expect_errors(call, error, other) \
	check_errors((step(__FILE__, __LINE__, #call), (call)), (error), (other))
/* For a condition that another process or the driver brings about. */
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
/* Milliseconds of a monotonic clock. */
__u64 now(void);

/* --- Checks that print a line --- */

/* Lines so far, and those of them that are "not ok". */
extern int tests, failures;

/* Why a result is not as expected, with errno; NULL if it is. */
const char *why_untrue(bool holds);
const char *why_not_error(long result, int error, int other);

/* Prints "ok" or "not ok", the number, and the description. */
__printf(2, 3)
void tap_line(bool ok, const char *format, ...);
/* The same for a check; below the line, why it is not ok. */
__printf(2, 3)
void test_line(const char *why, const char *format, ...);

/* The description is evaluated after the condition, and may have its results. */
#define test(condition, format, ...) \
	do { \
		const char *why_ = \
			why_untrue((step(__FILE__, __LINE__, #condition), (condition))); \
		test_line(why_, format, ##__VA_ARGS__); \
	} while (0)

/* The call must return -1, with this error. */
#define test_errno(call, error, format, ...) \
	do { \
		int error_ = (error); \
		const char *why_ = why_not_error((step(__FILE__, __LINE__, #call), (call)), \
						 error_, error_); \
		test_line(why_, format ": " #error, ##__VA_ARGS__); \
	} while (0)

/* Prints how many lines there were; returns the exit status. */
int finish_tests(void);

#endif /* CHECKS_H */
