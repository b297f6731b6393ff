// SPDX-License-Identifier: GPL-2.0
/*
 * Test module: loaded, unloaded and killed in the middle of transfers.
 *
 *	insmod scif_churn.ko role=server		serves until it is unloaded
 *	insmod scif_churn.ko role=client node=1 seed=7	transfers until then
 *	insmod scif_churn.ko role=both			within this node
 *
 * With in_init=1 the process that loads the module is the client: init returns only when that
 * process is killed, with -EINTR. With forgets=1 the exit function stops the threads, and leaves
 * everything open: endpoints with transfers in flight, windows, pinned pages, a registered client.
 *
 * /sys/module/scif_churn/parameters/transfers is the number of successful transfers. The test fails
 * if the log has a line with "not ok".
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/vmalloc.h>

#include "churn.h"

static char *role = "both";
module_param(role, charp, 0444);
MODULE_PARM_DESC(role, "both (the default), server or client");

static int node = -1;
module_param(node, int, 0444);
MODULE_PARM_DESC(node, "The node of the server; -1, the default, is this one");

static uint seed;
module_param(seed, uint, 0444);
MODULE_PARM_DESC(seed, "Seed of the random transfers");

static bool in_init;
module_param(in_init, bool, 0444);
MODULE_PARM_DESC(in_init, "The process that loads the module transfers until it is killed");

ushort churn_port = 3300;
module_param_named(port, churn_port, ushort, 0444);
MODULE_PARM_DESC(port, "The port of the server; a waiting client listens on the next one");

bool churn_forgets;
module_param_named(forgets, churn_forgets, bool, 0444);
MODULE_PARM_DESC(forgets, "Whether clients leave all open at their end");

atomic_t churn_transfers;
module_param_named(transfers, churn_transfers.counter, int, 0444);
MODULE_PARM_DESC(transfers, "Number of successful transfers");

u16 churn_node;

static struct churn_client clients[CHURN_CLIENTS];

/*
 * The memory belongs to the module, so that forgotten endpoints are closed before the memory is
 * freed.
 */
static u8 forgotten[CHURN_CLIENTS][CHURN_MEMORY] __aligned(PAGE_SIZE);

bool churn_must_stop(void)
{
	return signal_pending(current) ||
	       (current->flags & PF_KTHREAD && kthread_should_stop());
}

bool churn_goes_on(long result, const char *what)
{
	if (result >= 0)
		return true;
	switch (result) {
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -ENODEV:
		break;
	case -EINTR:
		if (churn_must_stop())
			break;
		fallthrough;
	default:
		pr_err("not ok - %s: %ld\n", what, result);
	}
	return false;
}

void churn_pause(void)
{
	msleep_interruptible(10);
}

struct churn_piece churn_piece(struct rnd_state *random)
{
	struct churn_piece piece;

	piece.at = prandom_u32_state(random) % CHURN_PART;
	piece.len = prandom_u32_state(random) % (CHURN_PART - piece.at) + 1;
	return piece;
}

int churn_flags(struct rnd_state *random)
{
	return prandom_u32_state(random) &
	       (SCIF_RMA_USECPU | SCIF_RMA_USECACHE | SCIF_RMA_SYNC | SCIF_RMA_ORDERED);
}

static int client_thread(void *data)
{
	struct churn_client *client = data;

	churn_client(client, forgotten[client - clients]);
	return 0;
}

static void stop_clients(void)
{
	int i;

	for (i = 0; i < CHURN_CLIENTS; i++) {
		if (clients[i].task)
			kthread_stop_put(clients[i].task);
		clients[i].task = NULL;
	}
}

static int start_clients(void)
{
	int i;

	for (i = 0; i < CHURN_CLIENTS; i++) {
		struct task_struct *task;

		prandom_seed_state(&clients[i].random, seed * CHURN_CLIENTS + i);
		task = kthread_create(client_thread, &clients[i], "scif_churn/%d", i);
		if (IS_ERR(task)) {
			stop_clients();
			return PTR_ERR(task);
		}
		clients[i].task = get_task_struct(task);
		wake_up_process(task);
	}
	return 0;
}

static void node_comes(struct scif_peer_dev *spdev)
{
	pr_debug("probe of node %u\n", spdev->dnode);
}

static void node_goes(struct scif_peer_dev *spdev)
{
	pr_debug("remove of node %u\n", spdev->dnode);
}

static struct scif_client bus_client = {
	.name = KBUILD_MODNAME,
	.probe = node_comes,
	.remove = node_goes,
};

static int start_client(void)
{
	int err;

	if (in_init) {
		prandom_seed_state(&clients[0].random, seed);
		churn_client(&clients[0], forgotten[0]);
		return -EINTR;
	}
	err = scif_client_register(&bus_client);
	if (err)
		return err;
	err = start_clients();
	if (err)
		goto unregister;
	err = churn_waiting_start();
	if (err)
		goto stop;
	return 0;

stop:
	stop_clients();
unregister:
	scif_client_unregister(&bus_client);
	return err;
}

static int __init churn_init(void)
{
	bool server = strcmp(role, "client");
	bool client = strcmp(role, "server");
	u16 self;
	int err;

	err = scif_get_node_ids(NULL, 0, &self);
	if (err < 0)
		return err;
	churn_node = node < 0 ? self : node;
	if (server) {
		err = churn_server_start();
		if (err)
			return err;
	}
	if (!client)
		return 0;
	err = start_client();
	if (err && server)
		churn_server_stop();
	return err;
}

static void __exit churn_exit(void)
{
	bool client = strcmp(role, "server");

	/* The order depends on the seed. */
	if (client && !churn_forgets && seed & 1)
		scif_client_unregister(&bus_client);
	if (seed & 2)
		churn_server_stop();
	if (client)
		churn_waiting_stop();
	stop_clients();
	churn_server_stop();
	if (client && !churn_forgets && !(seed & 1))
		scif_client_unregister(&bus_client);
}

module_init(churn_init);
module_exit(churn_exit);

MODULE_DESCRIPTION("SCIF test: a client that is stopped at any point");
MODULE_LICENSE("GPL");
