// SPDX-License-Identifier: GPL-2.0
//! The errors a caller may want to tell apart. Everything else is an `anyhow::Error` with
//! its story; these can be found in one with `downcast_ref`.

use thiserror::Error;

/// What went wrong in a lab, as far as a test may expect it.
#[derive(Debug, Error)]
pub enum Error {
    /// The guest is not there: killed by us, or dead for a reason of its own.
    #[error("{reason}")]
    NodeLost {
        /// Which node.
        node: usize,
        /// What happened, with the last lines of the console if it was unexpected.
        reason: String,
    },
    /// A command took too long and was killed.
    #[error("node {node}: '{command}' did not end within {seconds} s and was killed{output}")]
    Timeout {
        /// Which node.
        node: usize,
        /// The command.
        command: String,
        /// How long it had.
        seconds: u64,
        /// The end of what it printed.
        output: String,
    },
    /// A command ended, and not with status 0.
    #[error("node {node}: '{command}' {status}{output}")]
    Command {
        /// Which node.
        node: usize,
        /// The command.
        command: String,
        /// How it ended.
        status: String,
        /// The end of what it printed.
        output: String,
    },
    /// The kernel of a node reported something.
    #[error("node {node}: {} in the kernel log:\n{}", plural(reports.len()), reports.join("\n"))]
    KernelLog {
        /// Which node.
        node: usize,
        /// The lines that gave it away, with some context.
        reports: Vec<String>,
    },
}

fn plural(reports: usize) -> String {
    match reports {
        1 => "1 report".to_owned(),
        more => format!("{more} reports"),
    }
}
