// SPDX-License-Identifier: GPL-2.0
/*
 * A client that releases nothing: two endpoints, one of which listens, a registered client, and a
 * pinned page. When it is unloaded, the log has to name it.
 *
 *	insmod scif_forgetful.ko [port=3190]
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/scif.h>

static ushort port = 3190;
module_param(port, ushort, 0444);
MODULE_PARM_DESC(port, "The port to listen on; the next one is bound");

/* The page is freed with the module. */
static u8 page[PAGE_SIZE] __aligned(PAGE_SIZE);

/*
 * The callbacks are not empty, because the module under test calls them after this module has
 * exited.
 */
static void forgetful_probe(struct scif_peer_dev *spdev)
{
	pr_info("probe of node %u\n", spdev->dnode);
}

static void forgetful_remove(struct scif_peer_dev *spdev)
{
	pr_info("remove of node %u\n", spdev->dnode);
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

/* Releases nothing, which is the purpose of this module. */
static void __exit forgetful_exit(void)
{
}

module_init(forgetful_init);
module_exit(forgetful_exit);

MODULE_DESCRIPTION("SCIF test: a client that releases nothing");
MODULE_LICENSE("GPL");
