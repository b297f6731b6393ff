// SPDX-License-Identifier: GPL-2.0
/*
 * The tracepoints of trace.h themselves, and the functions by which Rust gets
 * behind their static branches.
 */

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "trace.h"
