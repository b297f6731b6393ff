/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The test of <linux/scif.h> from inside the kernel: verdicts, threads whose calls may wait, and
 * connections for the tests.
 *
 * Each call that may wait is made in a thread that another one watches. If the call hangs, its
 * thread is killed, so that the call returns an error and the check fails.
 */
#ifndef _SCIF_CLIENT_TEST_H
#define _SCIF_CLIENT_TEST_H

#include <linux/completion.h>
#include <linux/errno.h>
#include <linux/jiffies.h>
#include <linux/poll.h>
#include <linux/printk.h>
#include <linux/scif.h>
#include <linux/string.h>

/* Limit in milliseconds for an event to occur. */
#define TEST_LIMIT_MS	30000

extern u16 test_node;	/* where the server is */
extern u16 test_self;	/* this node */
extern u16 test_port;

/* --- Verdicts: main.c --- */

/* Prints a line, counts the verdict, and returns @ok. */
__printf(5, 6)
bool test_verdict(bool ok, const char *name, const char *file, int line,
		  const char *why, ...);

#define test_that(condition, name)					\
	test_verdict(condition, name, kbasename(__FILE__), __LINE__,	\
		     "expected %s, which came false", #condition)

/* Checks that the call returns exactly this value. */
#define test_returns(wanted, call, name)				\
({									\
	long wanted_ = (wanted);					\
	long got_ = (call);						\
									\
	test_verdict(got_ == wanted_, name, kbasename(__FILE__),	\
		     __LINE__, "expected %ld, came %ld", wanted_, got_);\
})

#define test_at_least(wanted, call, name)				\
({									\
	long wanted_ = (wanted);					\
	long got_ = (call);						\
									\
	test_verdict(got_ >= wanted_, name, kbasename(__FILE__),	\
		     __LINE__, "expected %ld at least, came %ld",	\
		     wanted_, got_);					\
})

/* Checks a condition that later checks need. Prints nothing if the condition holds. */
#define test_ready(condition, what)					\
({									\
	bool ready_ = (condition);					\
									\
	if (!ready_)							\
		test_verdict(false, what, kbasename(__FILE__),		\
			     __LINE__, "expected that it can be tried");\
	ready_;								\
})

/* --- Threads: worker.c --- */

struct worker {
	long (*work)(void *data);
	void *data;
	long result;
	struct task_struct *task;
	struct completion done;
};

/* Starts a thread. Returns false if there is none. */
bool worker_start(struct worker *worker, long (*work)(void *data), void *data);

/*
 * Waits until the thread sleeps in a call, or has ended. The next step of a check must be right in
 * both cases, but usually the check needs a sleeping thread.
 */
void worker_await_sleep(struct worker *worker);

void worker_signal(struct worker *worker);

bool worker_has_ended(struct worker *worker);

/* Waits until the thread ends, with the limit. */
bool worker_await_end(struct worker *worker);

/*
 * Returns the result of the thread. If the thread does not end by itself in time, it is killed, and
 * the result is -ETIME, which no call returns.
 */
long worker_end(struct worker *worker);

/* --- Connections: link.c --- */

/* Both ends of a loopback connection: @a has connected, @b was accepted. */
struct test_pair {
	scif_epd_t a;
	scif_epd_t b;
};

scif_epd_t test_open_listener(u16 port, int backlog, u16 *bound);
bool test_open_pair(struct test_pair *pair);
void test_close_pair(struct test_pair *pair);

/* Waits for one of @events on one endpoint. Returns the events that have occurred, or 0. */
int test_await(scif_epd_t epd, int events);

/*
 * Returns whether a ring that was full has grown by itself. Growing takes much less time than this
 * function waits.
 */
bool test_has_grown(scif_epd_t epd);

struct test_connecting {
	scif_epd_t epd;
	struct scif_port_id to;
};

/* Connects in a worker. The argument is a struct test_connecting. */
long test_connect_work(void *data);

/* Receives in a worker, which waits without a limit, unlike test_await(). */
long test_recv_work(void *data);

/* --- Distinguishable bytes: link.c --- */

void test_fill(void *bytes, size_t len, u32 seed);
bool test_filled(const void *bytes, size_t len, u32 seed);
u64 test_sum(const void *bytes, size_t len);

/* --- The server, and its requests: server.c --- */

enum test_request {
	/* args: length, offset, protection, seed; flags: of scif_register() */
	ASK_REGISTER,
	/* args: offset, length */
	ASK_UNREGISTER,
	/* args: offset, length, seed: new bytes in its window */
	ASK_FILL,
	/* args: offset, length: the checksum of its window */
	ASK_SUM,
	/* args: length: receives that much and says the checksum */
	ASK_RECEIVE,
	/* args: length, seed: sends that before the answer */
	ASK_SEND,
	/* args: length, seed: sends that and closes instead of an answer */
	ASK_SEND_AND_CLOSE,
	/* args: own offset, length, our offset, flags of enum scif_rma */
	ASK_READFROM,
	ASK_WRITETO,
	/* args: length, our offset, flags: to fresh memory, and the checksum */
	ASK_VREADFROM,
	/* args: length, our offset, flags, seed: from fresh memory */
	ASK_VWRITETO,
	/* args: own offset, value: waits until it is there */
	ASK_WORD,
	ASK_COUNT
};

struct test_question {
	u32 request;
	s32 flags;
	u64 args[4];
};

struct test_answer {
	s64 result;
	u64 sum;
};

bool test_server_start(void);
void test_server_stop(void);

/* Connects to the server. Returns NULL on failure, which is a failed check. */
scif_epd_t test_reach_server(void);

/* Sends a request without waiting for the answer. */
bool test_tell(scif_epd_t epd, const struct test_question *question);

/* Sends a request, and returns the result of the answer, or -ETIME if there is none. */
s64 test_ask(scif_epd_t epd, const struct test_question *question, u64 *sum);

#define test_question(what, how, ...)					\
	(&(const struct test_question){ .request = (what), .flags = (how),\
					.args = { __VA_ARGS__ } })

#define ask(epd, what, how, ...)					\
	test_ask(epd, test_question(what, how, __VA_ARGS__), NULL)

#define ask_sum(epd, sum, what, ...)					\
	test_ask(epd, test_question(what, 0, __VA_ARGS__), sum)

/* --- The checks --- */

void test_endpoints(void);
void test_blocked(void);
void test_messages(void);
void test_poll(void);
void test_windows(void);
void test_transfers(void);
void test_fences(void);
void test_pages(void);
void test_nodes(void);
/* Runs in the process that loads the module. The other suites run in threads. */
void test_process(void);

#endif /* _SCIF_CLIENT_TEST_H */
