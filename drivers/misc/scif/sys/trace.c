// SPDX-License-Identifier: GPL-2.0
/*
 * Definitions of the tracepoints in trace.h, and the functions that Rust calls
 * when a static branch is enabled.
 */

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "trace.h"
