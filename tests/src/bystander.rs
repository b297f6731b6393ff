// SPDX-License-Identifier: GPL-2.0
//! A user who has no part in what a test does to others: connects, sends, registers and closes all the time
//! (tests/programs/scif_bystander.c). No call of his may fail, and none may take long, whatever others do.

use std::collections::BTreeMap;
use std::time::Duration;

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

/// Where servers of bystanders listen.
const PORT: u16 = 3100;

/// His slowest call where others keep all processors busy.
pub const UNDISTURBED: Promise = Promise {
    name: "a bystander's slowest call",
    seconds: 1.0,
};

/// One who runs. Dropping him kills him.
pub struct Bystander<'a> {
    lab: &'a Lab,
    node: usize,
    peer: usize,
    server: Process,
    client: Process,
}

/// How long his calls of one kind took.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// How many there were.
    pub count: u64,
    /// The slowest one.
    pub worst: Duration,
}

impl<'a> Bystander<'a> {
    /// Starts one on `node`, whose connections lead to node `peer`, which may be the same.
    pub fn start(lab: &'a Lab, node: usize, peer: usize) -> Result<Bystander<'a>> {
        for node in [node, peer] {
            // He is no more than somebody whom the administrator lets.
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
        })
    }

    /// An error if a call of his has failed.
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

    /// Ends him; returns the times of his calls by their names.
    pub fn end(self) -> Result<BTreeMap<String, Times>> {
        self.check()?;
        self.client.signal(15);
        let ended = self.client.wait_timeout(self.lab.hang_limit(20))?;
        let output = ended.context("a bystander does not end")?.success()?;
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
        parse(&text)
    }

    /// Ends him; an error if a call took too long.
    pub fn end_undisturbed(self, circumstances: &Circumstances<'_>) -> Result<()> {
        let (node, peer) = (self.node, self.peer);
        for (call, times) in self.end()? {
            ensure!(times.count > 0, "the bystander has never made a {call}");
            UNDISTURBED
                .check(circumstances, times.worst)
                .with_context(|| {
                    format!("{call} of the bystander on node {node} with node {peer}: {times:?}")
                })?;
        }
        Ok(())
    }
}

fn parse(text: &str) -> Result<BTreeMap<String, Times>> {
    let all: BTreeMap<String, BTreeMap<String, f64>> =
        serde_json::from_str(text).with_context(|| format!("in '{text}'"))?;
    let mut calls = BTreeMap::new();
    for (name, numbers) in all {
        let number = |name: &str| numbers.get(name).copied().context(name.to_owned());
        let times = Times {
            count: number("count")? as u64,
            worst: Duration::from_secs_f64(number("worst_us")? / 1e6),
        };
        calls.insert(name, times);
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_he_prints_is_read() -> Result<()> {
        let times = parse(
            r#"{"open": {"count": 3, "median_us": 5, "p99_us": 7, "worst_us": 2000000, "worst_at_s": 0.5}}"#,
        )?;
        assert_eq!(times["open"].count, 3);
        assert_eq!(times["open"].worst, Duration::from_secs(2));
        assert!(parse("{").is_err());
        Ok(())
    }
}
