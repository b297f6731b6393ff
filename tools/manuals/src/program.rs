// SPDX-License-Identifier: GPL-2.0
//! The programs that have pages and completions.

use clap::Command;
use clap::CommandFactory;

/// A program, and what its pages refer to beside each other.
pub struct Program {
    /// Its command line.
    pub command: Command,
    /// Pages of others, as `scif(7)`.
    pub see_also: Vec<String>,
}

/// The programs of this project that people type.
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
