// SPDX-License-Identifier: GPL-2.0
/*
 * Parameters of the module that Rust's "module!" can't have: those that can be
 * changed while it is loaded, one that is a word, and one that can be looked at.
 * What the numbers mean is not known here.
 */

#include <linux/moduleparam.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "tunables.h"

unsigned int scif_tunable_busy_poll_us = 400;
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

unsigned int scif_tunable_user_share = 50;
module_param_named(user_share, scif_tunable_user_share, uint, 0644);
MODULE_PARM_DESC(user_share,
		 "Percent of connections with a node, ports and windows that one user may have, but with CAP_SYS_RESOURCE");

/* Those behind the first by the numbers of modes, see logic/hello.rs. */
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
		 "How peers reach this node's memory: auto (default), arena (what is registered, behind an IOMMU), bounce (staging slots), flat (all; with allow_flat=1)");

unsigned int scif_parameter_allow_flat;
module_param_named(allow_flat, scif_parameter_allow_flat, uint, 0444);
MODULE_PARM_DESC(allow_flat,
		 "1: the other hosts are trusted, and may read and write all memory of this one");
