// SPDX-License-Identifier: GPL-2.0
//! The evidence that is printed for a lab in which a test has failed.

use anyhow::anyhow;
use lab::Lab;

/// Adds the evidence to the error.
pub fn with_evidence(lab: &Lab, error: &anyhow::Error) -> anyhow::Error {
    anyhow!("{error:#}{}", evidence(lab))
}

/// Returns the ends of the kernel logs, or of the consoles of nodes that do not answer.
pub fn evidence(lab: &Lab) -> String {
    let mut text = String::new();
    for node in 0..lab.nodes() {
        let (title, log) = match lab.dmesg(node) {
            Ok(log) => (
                "kernel log during the test",
                lab::kernel_log::since_mark(&log).to_owned(),
            ),
            Err(_) => ("console", lab.console(node)),
        };
        if !log.trim().is_empty() {
            text.push_str(&format!(
                "\nthe end of the {title}, node {node}:\n{}",
                indent(&lab::last_lines(&log, 30))
            ));
        }
    }
    text
}

/// Indents a text that belongs to the line above it.
pub fn indent(text: &str) -> String {
    format!("      {}", text.replace('\n', "\n      "))
}
