// SPDX-License-Identifier: GPL-2.0
/*
 * The checks of the test programs (checks.h). A process of a case records its progress in memory
 * that the runner sees, so that the runner can print where a case hangs.
 */
#include <poll.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"

struct runner runner = { .report = STDERR_FILENO, .limit = 200 };

int tests, failures;

/* The check that this thread makes, and the reason why it fails. */
static __thread struct progress current;
static __thread char reason[512];

void step(const char *file, int line, const char *text)
{
	current.file = file;
	current.line = line;
	current.text = text;
	if (runner.progress)
		*runner.progress = current;
	errno = 0;
}

/* --- Verdicts --- */

__printf(1, 2)
static const char *because(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	return reason;
}

const char *why_untrue(bool holds)
{
	int error = errno;

	if (holds)
		return NULL;
	return because("is not so (errno %d, %s)", error, strerror(error));
}

const char *why_not_error(long result, int error, int other)
{
	int found = errno;

	if (result != -1)
		return because("returned %ld instead of failing with %s", result, strerror(error));
	if (found != error && found != other)
		return because("failed with %s instead of %s", strerror(found), strerror(error));
	return NULL;
}

/* --- Checks that end the process --- */

void fail(const char *format, ...)
{
	va_list arguments;
	char text[sizeof(reason)];

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	dprintf(runner.report, "%s:%d: %s: %s\n", current.file ? current.file : "?", current.line,
		current.text ? current.text : "", text);
	_exit(1);
}

void check_true(bool holds)
{
	const char *why = why_untrue(holds);

	if (why)
		fail("%s", why);
}

long check_ok(long result)
{
	int error = errno;

	if (result < 0)
		fail("returned %ld, %s", result, strerror(error));
	return result;
}

void check_value(long result, long value)
{
	int error = errno;

	if (result != value)
		fail("returned %ld instead of %ld (errno %d, %s)", result, value, error,
		     strerror(error));
}

void check_error(long result, int error)
{
	check_errors(result, error, error);
}

void check_errors(long result, int error, int other)
{
	const char *why = why_not_error(result, error, other);

	if (why)
		fail("%s", why);
}

__u64 now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000ULL + time.tv_nsec / 1000000;
}

struct waiting start_waiting(void)
{
	/*
	 * Ends the wait before the runner's limit, so that the process can print the missing
	 * condition.
	 */
	return (struct waiting) { .deadline = now() + runner.limit * 1000ULL * 3 / 4 };
}

void go_on_waiting(struct waiting *waiting)
{
	if (now() > waiting->deadline)
		fail("has not become so");
	poll(NULL, 0, 1);
}

/* --- TAP --- */

static void print_line(bool ok, const char *format, va_list arguments)
{
	tests++;
	failures += !ok;
	printf("%s %d - ", ok ? "ok" : "not ok", tests);
	vprintf(format, arguments);
	putchar('\n');
}

void tap_line(bool ok, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	print_line(ok, format, arguments);
	va_end(arguments);
	fflush(stdout);
}

void test_line(const char *why, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	print_line(!why, format, arguments);
	va_end(arguments);
	if (why)
		printf("# %s:%d: %s: %s\n", current.file, current.line, current.text, why);
	fflush(stdout);
}

int finish_tests(void)
{
	printf("1..%d\n# %d passed, %d failed\n", tests, tests - failures, failures);
	return failures ? 1 : 0;
}
