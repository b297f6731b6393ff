// SPDX-License-Identifier: GPL-2.0

//! The command `sisci-bench`; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    sisci_tools::bench::main()
}
