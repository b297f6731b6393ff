// SPDX-License-Identifier: GPL-2.0
/*
 * Calls that wait, and a transfer that takes long. Each thread makes one call, and at the end its
 * endpoint is closed under the call.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/vmalloc.h>

#include "churn.h"

/*
 * Number of checks whether a thread sleeps. A thread that never seems to sleep is in no call, or
 * need not be.
 */
#define TRIES	1000

struct waiting {
	long (*call)(struct waiting *waiting);
	struct task_struct *task;
	struct completion ended;
	bool begun;
	scif_epd_t epd;
};

static long wait_for_bytes(struct waiting *waiting)
{
	char bytes[16];

	return scif_recv(waiting->epd, bytes, sizeof(bytes), SCIF_RECV_BLOCK);
}

static long wait_for_request(struct waiting *waiting)
{
	struct scif_port_id peer;
	scif_epd_t epd;
	long err;

	err = scif_accept(waiting->epd, &peer, &epd, SCIF_ACCEPT_SYNC);
	if (!err)
		scif_close(epd);
	return err;
}

static long wait_for_event(struct waiting *waiting)
{
	struct scif_pollepd entry = { .epd = waiting->epd, .events = POLLIN };

	return scif_poll(&entry, 1, -1);
}

static long wait_for_transfer(struct waiting *waiting)
{
	return scif_readfrom(waiting->epd, CHURN_WINDOW, CHURN_SIZE, CHURN_WINDOW, SCIF_RMA_SYNC);
}

static struct waiting listening = { .call = wait_for_request };
static struct waiting receiving = { .call = wait_for_bytes };
static struct waiting polling = { .call = wait_for_event };
static struct waiting transferring = { .call = wait_for_transfer };

/*
 * Memory of the last window. It belongs to the module, so it is valid even if the window is
 * forgotten.
 */
static u8 memory[CHURN_MEMORY] __aligned(PAGE_SIZE);
static struct churn_client connection = { .memory = memory };

static int waiting_thread(void *data)
{
	struct waiting *waiting = data;

	WRITE_ONCE(waiting->begun, true);
	waiting->call(waiting);
	complete_all(&waiting->ended);
	return 0;
}

/* Starts a thread. The thread owns the endpoint from now on, also on failure. */
static int waiting_start(struct waiting *waiting, scif_epd_t epd)
{
	struct task_struct *task;

	waiting->epd = epd;
	init_completion(&waiting->ended);
	task = kthread_create(waiting_thread, waiting, "scif_churn_w");
	if (IS_ERR(task))
		return PTR_ERR(task);
	waiting->task = get_task_struct(task);
	wake_up_process(task);
	return 0;
}

/*
 * Returns whether the thread is in its call, or has returned. No call may begin when the endpoint
 * is closed.
 */
static bool is_in_call(struct waiting *waiting)
{
	return completion_done(&waiting->ended) ||
	       (READ_ONCE(waiting->begun) &&
		READ_ONCE(waiting->task->__state) & (TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE));
}

static void waiting_stop(struct waiting *waiting)
{
	int i;

	if (waiting->task && !churn_forgets) {
		for (i = 0; i < TRIES && !is_in_call(waiting); i++)
			usleep_range(100, 500);
		if (i < TRIES) {
			scif_close(waiting->epd);
			waiting->epd = NULL;
		}
	}
	if (waiting->task)
		kthread_stop_put(waiting->task);
	waiting->task = NULL;
	if (waiting->epd && !churn_forgets)
		scif_close(waiting->epd);
	waiting->epd = NULL;
}

static int start_listening(void)
{
	scif_epd_t epd = scif_open();
	int err;

	if (!epd)
		return -ENOMEM;
	err = scif_bind(epd, churn_port + 1);
	if (err >= 0)
		err = scif_listen(epd, 1);
	if (err >= 0)
		return waiting_start(&listening, epd);
	scif_close(epd);
	return err;
}

/* Starts the calls that need a connection. If there is no server, it does not wait for one. */
static int start_connected(struct waiting *waiting)
{
	struct scif_port_id server = { .node = churn_node, .port = churn_port };
	scif_epd_t epd = scif_open();
	char hello;

	if (!epd)
		return -ENOMEM;
	if (!scif_connect(epd, &server) && scif_recv(epd, &hello, 1, SCIF_RECV_BLOCK) == 1)
		return waiting_start(waiting, epd);
	scif_close(epd);
	return 0;
}

int churn_waiting_start(void)
{
	int err;

	err = start_listening();
	if (!err)
		err = start_connected(&receiving);
	if (!err)
		err = start_connected(&polling);
	if (err) {
		churn_waiting_stop();
		return err;
	}
	prandom_seed_state(&connection.random, 0);
	churn_client_open(&connection);
	return 0;
}

void churn_waiting_stop(void)
{
	if (connection.epd) {
		waiting_start(&transferring, connection.epd);
		waiting_stop(&transferring);
		if (connection.pinned && !churn_forgets)
			scif_unpin_pages(connection.pinned);
		connection.epd = NULL;
	}
	waiting_stop(&polling);
	waiting_stop(&receiving);
	waiting_stop(&listening);
}
