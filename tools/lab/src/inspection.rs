// SPDX-License-Identifier: GPL-2.0
//! Reports about the guests' kernels: their logs, leaks and pinned pages, and the results of their
//! KUnit suites.

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
    /// Returns the kernel log of a node, as `dmesg --raw` prints it.
    pub fn dmesg(&self, node: usize) -> Result<String> {
        Ok(self.exec(node, ["dmesg", "--raw"])?.success()?.stdout())
    }

    /// Returns the output of a node's console since the lab was started.
    pub fn console(&self, node: usize) -> String {
        let log = fs::read(self.paths().console_log(node)).unwrap_or_default();
        printable(&String::from_utf8_lossy(&log))
    }

    /// Writes a line into a node's kernel log; [`Lab::check_kernel_log`] checks the log after the
    /// last such line.
    pub fn mark_kernel_log(&self, node: usize, text: &str) -> Result<()> {
        // Without the newline the kernel would hold the line back, for more to come.
        let line = format!("{}{text}\n", kernel_log::MARK);
        self.command(node, ["sh", "-c", "cat >/dev/kmsg"])?
            .stdin(line)
            .run()?
            .success()?;
        Ok(())
    }

    /// Returns an error if a node's kernel has reported a problem since the last mark.
    pub fn check_kernel_log(&self, node: usize) -> Result<()> {
        self.check_kernel_log_except(node, &[])
    }

    /// Checks the kernel log, without the reports whose first line contains one of `expected`.
    pub fn check_kernel_log_except(&self, node: usize, expected: &[&str]) -> Result<()> {
        let log = self.dmesg(node)?;
        let reports = kernel_log::scan(kernel_log::since_mark(&log), expected);
        if reports.is_empty() {
            return Ok(());
        }
        Err(anyhow!(Error::KernelLog { node, reports }))
    }

    /// Forgets the known leaks. Does nothing on the plain kernel.
    pub fn clear_kmemleak(&self, node: usize) -> Result<()> {
        if self.config().kernel == Flavour::Debug {
            self.shell(node, "echo clear >/sys/kernel/debug/kmemleak")?;
        }
        Ok(())
    }

    /// Makes the kernel search for leaked memory, and returns its report; empty on the plain
    /// kernel. It takes more than ten seconds: kmemleak ignores memory younger than five seconds,
    /// and reports a leak only when it has seen it twice.
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

    /// Returns how many pages were pinned for long, and released again, since boot.
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

    /// Returns the results of a node's KUnit suites whose name begins with `prefix`.
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
    /// Number of pages pinned.
    pub acquired: u64,
    /// Number of pages released.
    pub released: u64,
}

impl Pins {
    /// Returns how many pages are pinned now.
    pub fn held(&self) -> u64 {
        self.acquired.saturating_sub(self.released)
    }
}
