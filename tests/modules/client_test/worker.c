// SPDX-License-Identifier: GPL-2.0
/*
 * Threads that make a few calls, and for which the tests wait with a limit.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/sched/signal.h>

#include "test.h"

static int worker_main(void *data)
{
	struct worker *worker = data;

	allow_kernel_signal(SIGTERM);
	/* SIGKILL ends calls that no other signal ends. */
	allow_kernel_signal(SIGKILL);
	worker->result = worker->work(worker->data);
	complete_all(&worker->done);
	return 0;
}

bool worker_start(struct worker *worker, long (*work)(void *data), void *data)
{
	worker->work = work;
	worker->data = data;
	worker->result = -ETIME;
	init_completion(&worker->done);
	worker->task = kthread_create(worker_main, worker, "scif_test");
	if (IS_ERR(worker->task))
		return false;
	get_task_struct(worker->task);
	wake_up_process(worker->task);
	return true;
}

bool worker_has_ended(struct worker *worker)
{
	return completion_done(&worker->done);
}

void worker_await_sleep(struct worker *worker)
{
	unsigned long limit = jiffies + msecs_to_jiffies(TEST_LIMIT_MS);

	while (!worker_has_ended(worker) && time_before(jiffies, limit)) {
		if (READ_ONCE(worker->task->__state) & TASK_INTERRUPTIBLE)
			break;
		usleep_range(100, 500);
	}
}

void worker_signal(struct worker *worker)
{
	send_sig(SIGTERM, worker->task, 1);
}

bool worker_await_end(struct worker *worker)
{
	return wait_for_completion_timeout(&worker->done,
					   msecs_to_jiffies(TEST_LIMIT_MS));
}

long worker_end(struct worker *worker)
{
	long result = -ETIME;

	if (worker_await_end(worker)) {
		result = worker->result;
		goto reap;
	}
	send_sig(SIGKILL, worker->task, 1);
	if (worker_await_end(worker))
		goto reap;
	/* The module can't free the code and the stack of a thread that still runs. */
	test_verdict(false, "a thread that hangs can be killed",
		     kbasename(__FILE__), __LINE__, "expected its end, came nothing");
	pr_err("thread %d hangs for good: this module waits for it for ever\n",
	       task_pid_nr(worker->task));
	while (!worker_await_end(worker))
		;
reap:
	/* Waits until the thread has left the code of this module. */
	kthread_stop_put(worker->task);
	return result;
}
