// SPDX-License-Identifier: GPL-2.0
/*
 * Tests the promises in the comments of <linux/scif.h>, from inside the kernel.
 *
 *	insmod scif_client_test.ko			over loopback
 *	insmod scif_client_test.ko role=server		serves until it is unloaded
 *	insmod scif_client_test.ko role=client node=1	against the server of node 1
 *
 * Each check logs a line, "ok - NAME" or "not ok - NAME: WHY", and the last line has the number of
 * each. The module stays loaded if all checks have passed.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/workqueue.h>

#include "test.h"

static int node = -1;
module_param(node, int, 0444);
MODULE_PARM_DESC(node, "The node of the server; -1, the default, is this one");

static char *role = "both";
module_param(role, charp, 0444);
MODULE_PARM_DESC(role, "both (the default), server or client");

static ushort port = 3100;
module_param(port, ushort, 0444);
MODULE_PARM_DESC(port, "The port of the server; the next port must have no listener");

u16 test_node;
u16 test_self;
u16 test_port;

static unsigned int passed;
static unsigned int failed;

bool test_verdict(bool ok, const char *name, const char *file, int line,
		  const char *why, ...)
{
	struct va_format format;
	va_list args;

	if (ok) {
		passed++;
		pr_info("ok - %s\n", name);
		return true;
	}
	failed++;
	va_start(args, why);
	format.fmt = why;
	format.va = &args;
	pr_info("not ok - %s: %pV (%s line %d)\n", name, &format, file, line);
	va_end(args);
	return false;
}

static const struct {
	const char *name;
	void (*checks)(void);
} suites[] = {
	{ "endpoints", test_endpoints },
	{ "calls that wait", test_blocked },
	{ "messages", test_messages },
	{ "poll", test_poll },
	{ "windows", test_windows },
	{ "transfers", test_transfers },
	{ "fences", test_fences },
	{ "pages", test_pages },
	{ "nodes", test_nodes },
};

static long run_suite(void *data)
{
	void (*const *checks)(void) = data;

	(*checks)();
	return 0;
}

/* Runs each suite in a thread of its own. A suite that hangs is killed, and the others go on. */
static void run_suites(void)
{
	struct worker worker;
	char name[64];
	int i;

	for (i = 0; i < ARRAY_SIZE(suites); i++) {
		unsigned int before, now = passed + failed;

		if (!test_ready(worker_start(&worker, run_suite, (void *)&suites[i].checks),
				"a thread for the checks"))
			continue;
		/* A suite does not hang as long as it makes progress. */
		do {
			before = now;
			worker_await_end(&worker);
			now = READ_ONCE(passed) + READ_ONCE(failed);
		} while (!worker_has_ended(&worker) && now != before);
		snprintf(name, sizeof(name), "the checks of %s end", suites[i].name);
		test_returns(0, worker_end(&worker), name);
	}
}

struct watchdog {
	struct delayed_work work;
	struct task_struct *task;
};

static void watchdog_bites(struct work_struct *work)
{
	struct watchdog *watchdog = container_of(to_delayed_work(work), struct watchdog, work);

	pr_info("the checks in the process hang: killing the process\n");
	send_sig(SIGKILL, watchdog->task, 1);
}

/*
 * Runs the suite of process memory in this process. If it hangs, only an administrator can end it.
 */
static void run_in_process(void)
{
	struct watchdog watchdog = { .task = current };

	INIT_DELAYED_WORK_ONSTACK(&watchdog.work, watchdog_bites);
	schedule_delayed_work(&watchdog.work, 2 * msecs_to_jiffies(TEST_LIMIT_MS));
	test_process();
	test_that(cancel_delayed_work_sync(&watchdog.work),
		  "the checks in a process end");
	destroy_delayed_work_on_stack(&watchdog.work);
}

static int __init client_test_init(void)
{
	bool server = !strcmp(role, "both") || !strcmp(role, "server");
	bool client = !strcmp(role, "both") || !strcmp(role, "client");
	int err;

	if (!server && !client) {
		pr_err("role=%s is none of both, server and client\n", role);
		return -EINVAL;
	}
	err = scif_get_node_ids(NULL, 0, &test_self);
	if (err < 0)
		return err;
	test_node = node < 0 ? test_self : node;
	test_port = port;
	if (server && !test_server_start())
		return -EINVAL;
	if (!client)
		return 0;
	run_suites();
	run_in_process();
	test_server_stop();
	pr_info("%u passed, %u failed\n", passed, failed);
	return failed ? -EINVAL : 0;
}

static void __exit client_test_exit(void)
{
	test_server_stop();
}

module_init(client_test_init);
module_exit(client_test_exit);

MODULE_DESCRIPTION("SCIF test: the interface for kernel clients");
MODULE_LICENSE("GPL");
