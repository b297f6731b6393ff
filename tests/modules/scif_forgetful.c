// SPDX-License-Identifier: GPL-2.0
/*
 * A client that forgets all it has: two endpoints, one of which listens, a
 * registered client, and a page that is pinned. The log has to name it when it is
 * unloaded.
 *
 *	insmod scif_forgetful.ko [port=3190]
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/scif.h>

static ushort port = 3190;
module_param(port, ushort, 0444);
MODULE_PARM_DESC(port, "The port to listen on; the next one is bound");

/* Goes with the module. */
static u8 page[PAGE_SIZE] __aligned(PAGE_SIZE);

/* Not empty: they are called when the module has exited already. */
static void forgetful_probe(struct scif_peer_dev *spdev)
{
	pr_info("node %u is there\n", spdev->dnode);
}

static void forgetful_remove(struct scif_peer_dev *spdev)
{
	pr_info("node %u has gone\n", spdev->dnode);
}

static struct scif_client forgetful_client = {
	.name = "scif_forgetful",
	.probe = forgetful_probe,
	.remove = forgetful_remove,
};

static int __init forgetful_init(void)
{
	scif_pinned_pages_t pinned;
	scif_epd_t listening, bound;
	int err;

	listening = scif_open();
	bound = scif_open();
	if (!listening || !bound) {
		err = -ENOMEM;
		goto close;
	}
	err = scif_bind(listening, port);
	if (err < 0)
		goto close;
	err = scif_bind(bound, port + 1);
	if (err < 0)
		goto close;
	err = scif_listen(listening, 1);
	if (err)
		goto close;
	err = scif_client_register(&forgetful_client);
	if (err)
		goto close;
	err = scif_pin_pages(page, PAGE_SIZE, SCIF_PROT_READ, SCIF_MAP_KERNEL, &pinned);
	if (err)
		goto unregister;
	return 0;

unregister:
	scif_client_unregister(&forgetful_client);
close:
	if (bound)
		scif_close(bound);
	if (listening)
		scif_close(listening);
	return err;
}

/* What has to be done here is just what is not. */
static void __exit forgetful_exit(void)
{
}

module_init(forgetful_init);
module_exit(forgetful_exit);

MODULE_DESCRIPTION("SCIF test: leaves all open that it has");
MODULE_LICENSE("GPL");
