// SPDX-License-Identifier: GPL-2.0
/*
 * The names that other modules of the kernel see. The functions are in calls.rs
 * and peer_bus.rs. The compiler checks these against the same header.
 */

#include <linux/export.h>
#include <linux/scif.h>

EXPORT_SYMBOL_GPL(__scif_open);
EXPORT_SYMBOL_GPL(scif_close);
EXPORT_SYMBOL_GPL(scif_bind);
EXPORT_SYMBOL_GPL(scif_listen);
EXPORT_SYMBOL_GPL(scif_connect);
EXPORT_SYMBOL_GPL(scif_accept);
EXPORT_SYMBOL_GPL(scif_send);
EXPORT_SYMBOL_GPL(scif_recv);
EXPORT_SYMBOL_GPL(scif_poll);
EXPORT_SYMBOL_GPL(scif_register);
EXPORT_SYMBOL_GPL(scif_unregister);
EXPORT_SYMBOL_GPL(__scif_pin_pages);
EXPORT_SYMBOL_GPL(scif_unpin_pages);
EXPORT_SYMBOL_GPL(scif_register_pinned_pages);
EXPORT_SYMBOL_GPL(scif_get_pages);
EXPORT_SYMBOL_GPL(scif_put_pages);
EXPORT_SYMBOL_GPL(scif_readfrom);
EXPORT_SYMBOL_GPL(scif_writeto);
EXPORT_SYMBOL_GPL(scif_vreadfrom);
EXPORT_SYMBOL_GPL(scif_vwriteto);
EXPORT_SYMBOL_GPL(scif_fence_mark);
EXPORT_SYMBOL_GPL(scif_fence_wait);
EXPORT_SYMBOL_GPL(scif_fence_signal);
EXPORT_SYMBOL_GPL(scif_get_node_ids);
EXPORT_SYMBOL_GPL(__scif_client_register);
EXPORT_SYMBOL_GPL(scif_client_unregister);
