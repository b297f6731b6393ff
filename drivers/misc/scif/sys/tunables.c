// SPDX-License-Identifier: GPL-2.0
/*
 * Parameters of the module that can be changed while it is loaded: Rust's
 * "module!" reads its own once. What the numbers mean is not known here.
 */

#include <linux/moduleparam.h>

#include "tunables.h"

unsigned int scif_tunable_busy_poll_us = 200;
module_param_named(busy_poll_us, scif_tunable_busy_poll_us, uint, 0644);
MODULE_PARM_DESC(busy_poll_us,
		 "Microseconds that a call for messages or copies stays awake at most before it sleeps");

int scif_tunable_dma_threshold = -1;
module_param_named(dma_threshold, scif_tunable_dma_threshold, int, 0644);
MODULE_PARM_DESC(dma_threshold,
		 "Bytes up to which transfers go by CPU; -1: as many as it copies faster");

int scif_tunable_push_threshold = -1;
module_param_named(push_threshold, scif_tunable_push_threshold, int, 0644);
MODULE_PARM_DESC(push_threshold,
		 "Bytes up to which this node's engine reads; what is more, the peer's writes; -1: as is faster");
