// SPDX-License-Identifier: GPL-2.0
//! The errors that a caller may want to tell apart. All other errors are an `anyhow::Error` with
//! its story; `downcast_ref` finds one of these in it.

use thiserror::Error;

/// An error of a lab that a test may expect.
#[derive(Debug, Error)]
pub enum Error {
    /// The guest is gone: the lab has killed it, or it died by itself.
    #[error("{reason}")]
    NodeLost {
        /// The node.
        node: usize,
        /// The reason, with the last lines of the console if it was unexpected.
        reason: String,
    },
    /// A command took too long and was killed.
    #[error("node {node}: '{command}' did not end within {seconds} s and was killed{output}")]
    Timeout {
        /// The node.
        node: usize,
        /// The command.
        command: String,
        /// The timeout.
        seconds: u64,
        /// The end of its output.
        output: String,
    },
    /// A command ended, and not with status 0.
    #[error("node {node}: '{command}' {status}{output}")]
    Command {
        /// The node.
        node: usize,
        /// The command.
        command: String,
        /// The outcome.
        status: String,
        /// The end of its output.
        output: String,
    },
    /// The kernel of a node reported something.
    #[error("node {node}: {} in the kernel log:\n{}", plural(reports.len()), reports.join("\n"))]
    KernelLog {
        /// The node.
        node: usize,
        /// The lines of the report, with some context.
        reports: Vec<String>,
    },
}

fn plural(reports: usize) -> String {
    match reports {
        1 => "1 report".to_owned(),
        more => format!("{more} reports"),
    }
}
