/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Current values of the module parameters that can be changed at run time, and
 * of two that are set at load. Context: any.
 */
#ifndef SCIF_SYS_TUNABLES_H
#define SCIF_SYS_TUNABLES_H

extern unsigned int scif_tunable_busy_poll_us;
extern int scif_tunable_dma_threshold;
extern int scif_tunable_push_threshold;
extern unsigned int scif_tunable_user_share;
extern int scif_parameter_aperture;
extern unsigned int scif_parameter_allow_flat;

#endif /* SCIF_SYS_TUNABLES_H */
