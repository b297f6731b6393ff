// SPDX-License-Identifier: GPL-2.0
//! A user process that takes no part in what a test does to others
//! (tests/programs/scif_bystander.c).
//!
//! The bystander connects, sends, registers and closes all the time. None of its calls may fail or
//! take long, whatever other processes do.

use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use anyhow::ensure;
use lab::Lab;
use lab::Process;

use crate::promise::Circumstances;
use crate::scif;
use crate::verdict::Promise;

const PROGRAM: &str = "scif_bystander";

/// Port of the bystanders' servers. It lies beyond the ports that a bind to any port gets, however
/// many are in use.
const PORT: u16 = 60_000;

/// Limit for the bystander's slowest call while other processes keep all CPUs busy.
pub const UNDISTURBED: Promise = Promise {
    name: "a bystander's slowest call",
    seconds: 1.0,
};

/// Limit for the bystander's slowest call while processes of its node use all that the module lets
/// them use.
const CROWDED: Promise = Promise {
    name: "a bystander's slowest call among greedy ones",
    seconds: 3.0,
};

/// Limit for the median of the bystander's calls.
const MOSTLY: Promise = Promise {
    name: "most calls of a bystander",
    seconds: 0.1,
};

/// A running bystander. Dropping the value kills its processes.
pub struct Bystander<'a> {
    lab: &'a Lab,
    node: usize,
    peer: usize,
    server: Process,
    client: Process,
    started: Instant,
}

/// Times of the bystander's calls of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Number of calls.
    pub count: u64,
    /// Median time of a call.
    pub median: Duration,
    /// Time of the slowest call.
    pub worst: Duration,
}

/// Does work that must be no burden for a bystander on `node`, and checks the bystander's times
/// afterwards.
pub fn beside<T>(lab: &Lab, node: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let around = Circumstances::before(lab, &[node])?;
    let bystander = Bystander::start(lab, node, node)?;
    let done = work()?;
    bystander.end_within(CROWDED, &around)?;
    lab.shell(node, "chmod 600 /dev/scif")?;
    Ok(done)
}

impl<'a> Bystander<'a> {
    /// Starts a bystander on `node` that connects to node `peer`, which may be the same node.
    pub fn start(lab: &'a Lab, node: usize, peer: usize) -> Result<Bystander<'a>> {
        for node in [node, peer] {
            // The bystander is an ordinary user whom the administrator gives access to the device.
            lab.shell(node, "chmod 666 /dev/scif")?;
        }
        let port = (PORT + node as u16).to_string();
        let server = scif::start_server(lab, peer, PROGRAM, &["server", &port], 600)?;
        let arguments = ["client", &peer.to_string(), &port];
        let client = scif::start_program(lab, node, PROGRAM, &arguments, 600)?;
        Ok(Bystander {
            lab,
            node,
            peer,
            server,
            client,
            started: Instant::now(),
        })
    }

    /// Returns an error if a call of the bystander has failed.
    pub fn check(&self) -> Result<()> {
        if !self.client.is_running() {
            bail!(
                "the bystander on node {} with node {} has ended: {}{}",
                self.node,
                self.peer,
                self.client.stderr(),
                self.server.stderr()
            );
        }
        Ok(())
    }

    /// Ends the bystander, and returns the times of its calls by their names.
    pub fn end(self) -> Result<BTreeMap<String, Times>> {
        self.check()?;
        self.client.signal(15);
        let ended = self.client.wait_timeout(self.lab.hang_limit(20))?;
        let output = ended.context("a bystander does not end")?.success()?;
        let lasted = self.started.elapsed();
        self.server.kill();
        let ended = self.server.wait_timeout(self.lab.hang_limit(20))?;
        ended.context("the server of a bystander does not end")?;
        let text = output.stdout();
        println!(
            "      bystander on node {} with node {}: {}",
            self.node,
            self.peer,
            text.trim()
        );
        parse(&text, lasted)
    }

    /// Ends the bystander, and returns an error if a call took too long.
    pub fn end_undisturbed(self, circumstances: &Circumstances<'_>) -> Result<()> {
        self.end_within(UNDISTURBED, circumstances)
    }

    fn end_within(self, slowest: Promise, circumstances: &Circumstances<'_>) -> Result<()> {
        let (node, peer) = (self.node, self.peer);
        for (call, times) in self.end()? {
            ensure!(times.count > 0, "the bystander has never made a {call}");
            for (promise, took) in [(slowest, times.worst), (MOSTLY, times.median)] {
                promise.check(circumstances, took).with_context(|| {
                    format!("{call} of the bystander on node {node} with node {peer}: {times:?}")
                })?;
            }
        }
        Ok(())
    }
}

/// Parses the output of a bystander that has run for `lasted`.
fn parse(text: &str, lasted: Duration) -> Result<BTreeMap<String, Times>> {
    let mut all: BTreeMap<String, BTreeMap<String, f64>> =
        serde_json::from_str(text).with_context(|| format!("in '{text}'"))?;
    let seconds = all
        .remove("all")
        .and_then(|all| all.get("seconds").copied());
    // The clock of a guest that has booted on a busy machine may be many times too fast.
    let speed = (seconds.context("seconds")? / lasted.as_secs_f64()).max(1.0);
    let mut calls = BTreeMap::new();
    for (name, numbers) in all {
        let number = |name: &str| numbers.get(name).copied().context(name.to_owned());
        let time = |name: &str| -> Result<Duration> {
            Ok(Duration::from_secs_f64(number(name)? / speed / 1e6))
        };
        let times = Times {
            count: number("count")? as u64,
            median: time("median_us")?,
            worst: time("worst_us")?,
        };
        calls.insert(name, times);
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bystander_output_is_parsed() -> Result<()> {
        let text = r#"{"open": {"count": 3, "median_us": 5, "p99_us": 7, "worst_us": 2000000, "worst_at_s": 0.5},
            "all": {"seconds": 9.0}}"#;
        let times = parse(text, Duration::from_secs(10))?;
        assert_eq!(times["open"].count, 3);
        assert_eq!(times["open"].median, Duration::from_micros(5));
        assert_eq!(times["open"].worst, Duration::from_secs(2));
        let times = parse(text, Duration::from_secs(3))?;
        assert_eq!(times["open"].worst.as_millis(), 666);
        assert!(parse("{", Duration::from_secs(1)).is_err());
        Ok(())
    }
}
