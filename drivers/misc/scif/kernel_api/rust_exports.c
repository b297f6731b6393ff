// SPDX-License-Identifier: GPL-2.0
/*
 * The names that Rust modules of the same tree see, see client.rs. The build
 * makes the list from scif_main.o (Kbuild). C does not know the types.
 */

#include <linux/export.h>

#define EXPORT_SYMBOL_RUST_GPL(symbol) extern int symbol; EXPORT_SYMBOL_GPL(symbol)

#include "rust_exports_generated.h"
