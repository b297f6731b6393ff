// SPDX-License-Identifier: GPL-2.0
//! The programs that have pages and completions.

use clap::Command;
use clap::CommandFactory;

/// A program, and the further pages that its pages refer to.
pub struct Program {
    /// The command line of the program.
    pub command: Command,
    /// Further pages, as `scif(7)`.
    pub see_also: Vec<String>,
}

/// Returns the programs of this project that people type.
pub fn programs() -> Vec<Program> {
    vec![
        Program {
            command: scif::command::definition(),
            see_also: vec!["scif(4)".to_owned(), "scif(7)".to_owned()],
        },
        Program {
            command: lab::arguments::Arguments::command(),
            see_also: vec!["scif(1)".to_owned()],
        },
    ]
}
