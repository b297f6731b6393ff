// SPDX-License-Identifier: GPL-2.0
/*
 * Kernel memory as a window: the memory of a block device, for scif_blk.ko on
 * another node or this one.
 *
 *	insmod scif_blk_server.ko [port=3002] [size_mb=64]
 *
 * Data of clients stays until the module is unloaded. All clients see the same data, so the
 * administrator has to ensure that only one of them mounts it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/scif.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/vmalloc.h>

#include "scif_blk.h"
#include "service.h"

static ushort port = 3002;
module_param(port, ushort, 0444);
MODULE_PARM_DESC(port, "The port to listen on");

static uint size_mb = 64;
module_param(size_mb, uint, 0444);
MODULE_PARM_DESC(size_mb, "Size of the offered memory in MiB");

static void *memory;
static size_t size;

static bool zero(const struct scif_blk_zero *request)
{
	u64 offset = le64_to_cpu(request->offset);
	u64 len = le64_to_cpu(request->len);

	/* The client could send any range. */
	if (offset > size || len > size - offset)
		return false;
	while (len) {
		size_t part = min_t(u64, len, SZ_1M);

		memset(memory + offset, 0, part);
		offset += part;
		len -= part;
		cond_resched();
	}
	return true;
}

static void serve_disk(scif_epd_t epd, const struct scif_port_id *peer)
{
	struct scif_blk_hello hello = {
		.magic = cpu_to_le32(SCIF_BLK_MAGIC),
		.version = cpu_to_le32(SCIF_BLK_VERSION),
		.size = cpu_to_le64(size),
	};
	struct scif_blk_zero request;
	struct scif_blk_zeroed answer;
	off_t offset;

	/* The window ends with the connection, so this need not unregister it. */
	offset = scif_register(epd, memory, size, 0, SCIF_PROT_READ | SCIF_PROT_WRITE,
			       SCIF_MAP_KERNEL);
	if (offset < 0) {
		pr_warn("node %u: closing the connection, as scif_register() has failed (%ld)\n",
			peer->node, offset);
		return;
	}
	hello.offset = cpu_to_le64(offset);
	if (scif_send(epd, &hello, sizeof(hello), SCIF_SEND_BLOCK) != sizeof(hello))
		return;
	pr_info("node %u, port %u uses the memory\n", peer->node, peer->port);
	while (!kthread_should_stop() &&
	       scif_recv(epd, &request, sizeof(request), SCIF_RECV_BLOCK) == sizeof(request)) {
		answer.failed = cpu_to_le32(!zero(&request));
		if (scif_send(epd, &answer, sizeof(answer), SCIF_SEND_BLOCK) != sizeof(answer))
			break;
	}
	pr_info("node %u, port %u has disconnected\n", peer->node, peer->port);
}

static struct service disk_service = {
	.name = "scif_blk_server",
	.serve = serve_disk,
};

static int __init server_init(void)
{
	int err;

	if (!size_mb)
		return -EINVAL;
	size = (size_t)size_mb * SZ_1M;
	memory = vzalloc(size);
	if (!memory)
		return -ENOMEM;
	err = service_start(&disk_service, port);
	if (err)
		vfree(memory);
	return err;
}

static void __exit server_exit(void)
{
	/* When the last endpoint is closed, the memory has no users any more. */
	service_stop(&disk_service);
	vfree(memory);
}

module_init(server_init);
module_exit(server_exit);

MODULE_DESCRIPTION("SCIF sample: memory for scif_blk");
MODULE_LICENSE("GPL");
