/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Input for sys/bindings_generated.rs. Only bindgen reads this file; it is
 * never compiled. sys/bindgen_parameters lists the items that bindgen takes.
 */

#include <kunit/device.h>
#include <linux/anon_inodes.h>
#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/mman.h>
#include <linux/mmu_notifier.h>
#include <linux/ntb.h>
#include <linux/reboot.h>
#include <linux/scif.h>
#include <linux/suspend.h>

#include <uapi/linux/scif_ioctl.h>
#include <uapi/linux/scif_services.h>

#include "helpers.h"
#include "tunables.h"
#include "../trace.h"

/*
 * bindgen does not evaluate _IOWR(). The prefix separates these constants from
 * the macros. The build removes it from the generated bindings.
 */
const unsigned int RUST_CONST_HELPER_SCIF_BIND = SCIF_BIND;
const unsigned int RUST_CONST_HELPER_SCIF_LISTEN = SCIF_LISTEN;
const unsigned int RUST_CONST_HELPER_SCIF_CONNECT = SCIF_CONNECT;
const unsigned int RUST_CONST_HELPER_SCIF_ACCEPTREQ = SCIF_ACCEPTREQ;
const unsigned int RUST_CONST_HELPER_SCIF_ACCEPTREG = SCIF_ACCEPTREG;
const unsigned int RUST_CONST_HELPER_SCIF_SEND = SCIF_SEND;
const unsigned int RUST_CONST_HELPER_SCIF_RECV = SCIF_RECV;
const unsigned int RUST_CONST_HELPER_SCIF_REG = SCIF_REG;
const unsigned int RUST_CONST_HELPER_SCIF_UNREG = SCIF_UNREG;
const unsigned int RUST_CONST_HELPER_SCIF_READFROM = SCIF_READFROM;
const unsigned int RUST_CONST_HELPER_SCIF_WRITETO = SCIF_WRITETO;
const unsigned int RUST_CONST_HELPER_SCIF_VREADFROM = SCIF_VREADFROM;
const unsigned int RUST_CONST_HELPER_SCIF_VWRITETO = SCIF_VWRITETO;
const unsigned int RUST_CONST_HELPER_SCIF_GET_NODEIDS = SCIF_GET_NODEIDS;
const unsigned int RUST_CONST_HELPER_SCIF_FENCE_MARK = SCIF_FENCE_MARK;
const unsigned int RUST_CONST_HELPER_SCIF_FENCE_WAIT = SCIF_FENCE_WAIT;
const unsigned int RUST_CONST_HELPER_SCIF_FENCE_SIGNAL = SCIF_FENCE_SIGNAL;
const unsigned int RUST_CONST_HELPER_SCIF_BIND_NAME = SCIF_BIND_NAME;
const unsigned int RUST_CONST_HELPER_SCIF_CONNECT_NAME = SCIF_CONNECT_NAME;
const unsigned int RUST_CONST_HELPER_SCIF_SEND_ALL = SCIF_SEND_ALL;
const unsigned int RUST_CONST_HELPER_SCIF_NODE_STATUS = SCIF_NODE_STATUS;
const unsigned int RUST_CONST_HELPER_SCIF_MAP_POLICY = SCIF_MAP_POLICY;
const unsigned int RUST_CONST_HELPER_SCIF_MEMORY_CREATE = SCIF_MEMORY_CREATE;
const unsigned int RUST_CONST_HELPER_SCIF_MEMORY_REGISTER = SCIF_MEMORY_REGISTER;
const unsigned int RUST_CONST_HELPER_SCIF_REMOTE_ADDRESS = SCIF_REMOTE_ADDRESS;
