// SPDX-License-Identifier: GPL-2.0
/*
 * Module parameters that Rust's "module!" can't have: parameters that can be
 * changed at run time, one whose value is a word, and one that sysfs shows.
 * This file does not know what the numbers mean.
 */

#include <linux/moduleparam.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "tunables.h"

unsigned int scif_tunable_busy_poll_us = 400;
module_param_named(busy_poll_us, scif_tunable_busy_poll_us, uint, 0644);
MODULE_PARM_DESC(busy_poll_us,
		 "Most microseconds for which a call that waits for messages or copies polls before it sleeps");

int scif_tunable_dma_threshold = -1;
module_param_named(dma_threshold, scif_tunable_dma_threshold, int, 0644);
MODULE_PARM_DESC(dma_threshold,
		 "Bytes up to which the CPU copies, and not a DMA engine; -1: up to where the CPU is faster");

int scif_tunable_push_threshold = -1;
module_param_named(push_threshold, scif_tunable_push_threshold, int, 0644);
MODULE_PARM_DESC(push_threshold,
		 "Bytes up to which this node's engine makes a read; the peer's engine makes larger ones; -1: 64 KiB");

unsigned int scif_tunable_user_share = 50;
module_param_named(user_share, scif_tunable_user_share, uint, 0644);
MODULE_PARM_DESC(user_share,
		 "Percent of connections with a node, ports, windows and ring memory that a user without CAP_SYS_RESOURCE may have");

/* Behind "auto", the index is the number of a mode in logic/hello.rs. */
static const char * const aperture_names[] = { "auto", "flat", "arena", "bounce" };

static int set_aperture(const char *word, const struct kernel_param *param)
{
	int number = sysfs_match_string(aperture_names, word);

	if (number < 0) {
		pr_err("scif: aperture=%s is none of auto, arena, bounce and flat\n", word);
		return number;
	}
	*(int *)param->arg = number;
	return 0;
}

static int show_aperture(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%s\n", aperture_names[*(int *)param->arg]);
}

static const struct kernel_param_ops aperture_ops = {
	.set = set_aperture,
	.get = show_aperture,
};

int scif_parameter_aperture;
module_param_cb(aperture, &aperture_ops, &scif_parameter_aperture, 0444);
__MODULE_PARM_TYPE(aperture, "word");
MODULE_PARM_DESC(aperture,
		 "How peers reach this node's memory: auto (default), arena (registered memory, behind an IOMMU), bounce (staging slots), flat (all memory, with allow_flat=1)");

unsigned int scif_parameter_allow_flat;
module_param_named(allow_flat, scif_parameter_allow_flat, uint, 0444);
MODULE_PARM_DESC(allow_flat,
		 "1: the other hosts are trusted, and may read and write all memory of this one");
