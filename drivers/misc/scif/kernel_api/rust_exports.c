// SPDX-License-Identifier: GPL-2.0
/*
 * The names that Rust modules of the same tree see, see client.rs. The list is
 * made of scif_main.o when the module is built (Kbuild); C knows no types of it.
 */

#include <linux/export.h>

#define EXPORT_SYMBOL_RUST_GPL(symbol) extern int symbol; EXPORT_SYMBOL_GPL(symbol)

#include "rust_exports_generated.h"
