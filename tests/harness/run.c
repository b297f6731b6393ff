// SPDX-License-Identifier: GPL-2.0
/*
 * Runs cases and reports them as TAP, the Test Anything Protocol.
 *
 * Each case runs in a process that leads a group of its own. The runner waits for the end of the
 * process, at most for the time limit, and then kills the rest of the group. A case passes if its
 * process exits with status 0 and no other process of its group is left.
 */
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "suite.h"

struct run run;

static bool matches_one(const char *name, const char *pattern)
{
	return strstr(name, pattern) || !fnmatch(pattern, name, 0);
}

static bool matches(const char *name, const struct patterns *patterns)
{
	int i;

	for (i = 0; i < patterns->count; i++) {
		if (matches_one(name, patterns->pattern[i]))
			return true;
	}
	return false;
}

/* Refuses a pattern that matches no case, because the case may have been renamed. */
static void check_patterns(const struct patterns *patterns)
{
	const struct test_case *const *file, *test;
	bool found;
	int i;

	for (i = 0; i < patterns->count; i++) {
		found = false;
		for (file = suite.cases; *file; file++) {
			for (test = *file; test->name; test++)
				found |= matches_one(test->name, patterns->pattern[i]);
		}
		if (!found) {
			fprintf(stderr, "%s: no case has such a name: %s\n", suite.name,
				patterns->pattern[i]);
			exit(2);
		}
	}
}

static bool is_wanted(const struct test_case *test, const struct patterns *only,
		      const struct patterns *except)
{
	if (test->kind == CASE_STAR && run.peers < 2)
		return false;
	if (test->kind == (run.staged_peers ? CASE_PAIR_MAPPED : CASE_PAIR_STAGED))
		return false;
	if (test->kind == CASE_PAIR_MAPPING_US && run.staged_here)
		return false;
	if (test->kind == CASE_PAIR_DEVICE && !run.device_memory)
		return false;
	if (test->kind == CASE_ALONE_LONG && run.topology != TOPOLOGY_LOOPBACK)
		return false;
	return (!only->count || matches(test->name, only)) && !matches(test->name, except);
}

/* Waits for the end of the process. Returns false if it takes too long. */
static bool wait_for_end(pid_t child)
{
	struct pollfd end = { .events = POLLIN };
	int result;

	end.fd = syscall(SYS_pidfd_open, child, 0);
	if (end.fd < 0) {
		perror("conformance: pidfd_open");
		exit(2);
	}
	do {
		result = poll(&end, 1, runner.limit * 1000);
	} while (result < 0 && errno == EINTR);
	close(end.fd);
	return result > 0;
}

static pid_t start(const struct test_case *test, int report[2])
{
	pid_t child;

	if (pipe2(report, O_CLOEXEC)) {
		perror("conformance: pipe");
		exit(2);
	}
	memset(runner.progress, 0, sizeof(*runner.progress));
	fflush(stdout);
	child = fork();
	if (child < 0) {
		perror("conformance: fork");
		exit(2);
	}
	if (!child) {
		setpgid(0, 0);
		close(report[0]);
		runner.report = report[1];
		test->run();
		_exit(0);
	}
	setpgid(child, child);
	close(report[1]);
	fcntl(report[0], F_SETFL, O_NONBLOCK);
	return child;
}

/* Prints the messages of the case as comments. */
static void print_report(int from)
{
	bool at_start = true;
	char text[4096];
	ssize_t count, i;

	while ((count = read(from, text, sizeof(text))) > 0) {
		for (i = 0; i < count; i++) {
			if (at_start)
				fputs("# ", stdout);
			at_start = text[i] == '\n';
			putchar(text[i]);
		}
	}
	if (!at_start)
		putchar('\n');
}

/* Prints the check that the case was at when it was ended. */
static void print_place(void)
{
	const struct progress *at = runner.progress;

	printf(" %s:%d: %s\n", at->file ? at->file : "?", at->line, at->text ? at->text : "?");
}

static void run_case(const struct test_case *test)
{
	__u64 started = now();
	bool ended, left, passed;
	int report[2], status;
	pid_t child;

	run.test = test;
	child = start(test, report);
	ended = wait_for_end(child);
	if (!ended)
		kill(-child, SIGKILL);
	/*
	 * The process id becomes free here, that of the group only when its other processes have
	 * ended.
	 */
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	left = ended && !kill(-child, SIGKILL);
	passed = ended && WIFEXITED(status) && !WEXITSTATUS(status) && !left;
	tap_line(passed, "%s [%s] # %llu ms", test->name, test->rules,
		 (unsigned long long)(now() - started));
	if (!ended) {
		printf("# hung:");
		print_place();
	} else if (WIFSIGNALED(status)) {
		printf("# killed by signal %d after", WTERMSIG(status));
		print_place();
	} else if (left) {
		printf("# processes of the case were left\n");
	}
	print_report(report[0]);
	close(report[0]);
	fflush(stdout);
}

int run_cases(const struct patterns *only, const struct patterns *except)
{
	const struct test_case *const *file, *test;
	int status;

	runner.progress = mmap(NULL, sizeof(*runner.progress), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (runner.progress == MAP_FAILED) {
		perror("conformance: mmap");
		exit(2);
	}
	check_patterns(only);
	check_patterns(except);
	printf("TAP version 13\n");
	for (file = suite.cases; *file; file++) {
		for (test = *file; test->name; test++) {
			if (!is_wanted(test, only, except))
				continue;
			/* With several peers, the cases use them in turn. */
			run.current_peer = run.peers ? tests % run.peers : 0;
			run_case(test);
		}
	}
	status = finish_tests();
	if (!tests) {
		fprintf(stderr, "%s: no such case is for this topology\n", suite.name);
		exit(2);
	}
	return status;
}
