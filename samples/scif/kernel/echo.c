// SPDX-License-Identifier: GPL-2.0
/*
 * Messages: sends all received bytes back.
 *
 *	insmod scif_echo.ko [port=3000]
 *
 * The other end may be a program, on this node or another.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/poll.h>
#include <linux/scif.h>
#include <linux/slab.h>

#include "service.h"

static ushort port = 3000;
module_param(port, ushort, 0444);
MODULE_PARM_DESC(port, "The port to listen on");

static void echo(scif_epd_t epd, const struct scif_port_id *peer)
{
	struct scif_pollepd watched = { .epd = epd, .events = POLLIN };
	char *bytes;
	int len;

	bytes = kmalloc(PAGE_SIZE, GFP_KERNEL);
	if (!bytes)
		return;
	/* Receives only the available bytes, because a blocking call would wait for a full page. */
	while (!kthread_should_stop() && scif_poll(&watched, 1, -1) >= 0) {
		len = scif_recv(epd, bytes, PAGE_SIZE, 0);
		/* If the peer has closed, the next call returns an error. */
		if (len < 0)
			break;
		if (scif_send(epd, bytes, len, SCIF_SEND_BLOCK) != len)
			break;
	}
	kfree(bytes);
	pr_info("node %u, port %u has disconnected\n", peer->node, peer->port);
}

static struct service echo_service = {
	.name = "scif_echo",
	.serve = echo,
};

static int __init echo_init(void)
{
	return service_start(&echo_service, port);
}

static void __exit echo_exit(void)
{
	service_stop(&echo_service);
}

module_init(echo_init);
module_exit(echo_exit);

MODULE_DESCRIPTION("SCIF sample: an echo server");
MODULE_LICENSE("GPL");
