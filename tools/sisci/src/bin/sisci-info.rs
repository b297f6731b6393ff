// SPDX-License-Identifier: GPL-2.0

//! The command `sisci-info`; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    sisci_tools::info::main()
}
