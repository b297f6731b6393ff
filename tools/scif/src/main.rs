// SPDX-License-Identifier: GPL-2.0

//! The command `scif`; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    scif::command::run()
}
