// SPDX-License-Identifier: GPL-2.0
//! What a lab finds out about its guests' kernels: what they log, leak and pin, and what
//! their KUnit suites say.

use std::fs;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;

use crate::config::Flavour;
use crate::error::Error;
use crate::kernel_log;
use crate::kunit::KunitResults;
use crate::lab::Lab;
use crate::text::printable;

impl Lab {
    /// The kernel log of a node, as `dmesg --raw` prints it.
    pub fn dmesg(&self, node: usize) -> Result<String> {
        Ok(self.exec(node, ["dmesg", "--raw"])?.success()?.stdout())
    }

    /// What a node's console printed since the lab was started.
    pub fn console(&self, node: usize) -> String {
        let log = fs::read(self.paths().console_log(node)).unwrap_or_default();
        printable(&String::from_utf8_lossy(&log))
    }

    /// Writes a line into a node's kernel log; [`Lab::check_kernel_log`] looks at what
    /// follows the last one.
    pub fn mark_kernel_log(&self, node: usize, text: &str) -> Result<()> {
        // Without the newline the kernel would hold the line back, for more to come.
        let line = format!("{}{text}\n", kernel_log::MARK);
        self.command(node, ["sh", "-c", "cat >/dev/kmsg"])?
            .stdin(line)
            .run()?
            .success()?;
        Ok(())
    }

    /// An error if a node's kernel reported anything since the last mark.
    pub fn check_kernel_log(&self, node: usize) -> Result<()> {
        self.check_kernel_log_except(node, &[])
    }

    /// The same, where reports whose first line contains one of `expected` do not count.
    pub fn check_kernel_log_except(&self, node: usize, expected: &[&str]) -> Result<()> {
        let log = self.dmesg(node)?;
        let reports = kernel_log::scan(kernel_log::since_mark(&log), expected);
        if reports.is_empty() {
            return Ok(());
        }
        Err(anyhow!(Error::KernelLog { node, reports }))
    }

    /// Forgets the leaks that are known. Nothing on the plain kernel.
    pub fn clear_kmemleak(&self, node: usize) -> Result<()> {
        if self.config().kernel == Flavour::Debug {
            self.shell(node, "echo clear >/sys/kernel/debug/kmemleak")?;
        }
        Ok(())
    }

    /// Lets the kernel look for leaked memory and returns its report; empty on the plain
    /// kernel. Takes ten seconds and more: kmemleak ignores what is younger than five, and
    /// believes in a leak only when it sees it twice.
    pub fn kmemleak(&self, node: usize) -> Result<String> {
        if self.config().kernel != Flavour::Debug {
            return Ok(String::new());
        }
        let file = "/sys/kernel/debug/kmemleak";
        let script = format!("sleep 6; echo scan >{file}; sleep 6; echo scan >{file}; cat {file}");
        Ok(self
            .command(node, ["sh", "-e", "-c", &script])?
            .timeout(self.hang_limit(75))
            .run()?
            .success()?
            .stdout())
    }

    /// How many pages were pinned for long and released again since boot.
    pub fn pins(&self, node: usize) -> Result<Pins> {
        let text = self
            .exec(node, ["cat", "/proc/vmstat"])?
            .success()?
            .stdout();
        let counter = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
                .with_context(|| format!("node {node}: /proc/vmstat has no {name}"))
        };
        Ok(Pins {
            acquired: counter("nr_foll_pin_acquired ")?,
            released: counter("nr_foll_pin_released ")?,
        })
    }

    /// The results of a node's KUnit suites whose name begins with `prefix`.
    pub fn kunit(&self, node: usize, prefix: &str) -> Result<KunitResults> {
        let folder = "/sys/kernel/debug/kunit";
        let mut results = KunitResults::default();
        for suite in self.exec(node, ["ls", folder])?.success()?.stdout().lines() {
            if suite.starts_with(prefix) {
                results.add(&self.node(node).read(&format!("{folder}/{suite}/results"))?);
            }
        }
        Ok(results)
    }
}

/// Pages pinned for long (FOLL_PIN), counted since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pins {
    /// Pinned.
    pub acquired: u64,
    /// Released.
    pub released: u64,
}

impl Pins {
    /// How many are pinned now.
    pub fn held(&self) -> u64 {
        self.acquired.saturating_sub(self.released)
    }
}
