// SPDX-License-Identifier: GPL-2.0
//! The protocol between `lab` and the process that owns a lab.
//!
//! A client connects, sends one `Control` frame with a [`Control`], and gets an `Answer`
//! frame with an [`Answer`]. For `Open` the connection then carries the frames of that
//! channel, as number 0, until `Done`; a client that hangs up kills the command.

use std::fmt;
use std::path::PathBuf;

use ntb_emulator::control::GuestCounters;
use ntb_emulator::control::LinkState;
use serde::Deserialize;
use serde::Serialize;

use crate::config::Config;
use crate::progress::Step;
use crate::wire::Request;

/// A request to the owner.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// Open a channel to a node's agent.
    Open {
        /// The node.
        node: usize,
        /// The request to the agent.
        request: Request,
    },
    /// Asks for the state of the lab: a [`Report`].
    Report,
    /// Kill a node.
    Kill {
        /// The node.
        node: usize,
    },
    /// Kill a node and boot it again.
    Restart {
        /// The node.
        node: usize,
    },
    /// Stop a node's CPUs.
    Pause {
        /// The node.
        node: usize,
    },
    /// Let a paused node go on.
    Resume {
        /// The node.
        node: usize,
    },
    /// Set the link between two nodes up or down.
    Link {
        /// One end.
        a: usize,
        /// The other end.
        b: usize,
        /// Whether the link is to be up.
        up: bool,
    },
    /// Change the seed of the order of writes.
    Reseed {
        /// The seed.
        seed: u64,
    },
    /// Asks for the emulator's counters.
    Counters,
    /// End the lab.
    Down,
}

/// The owner's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The request was carried out; the value depends on the request.
    Done(serde_json::Value),
    /// The request failed, with the reason.
    Failed(String),
}

/// The output of the owner while it starts, a JSON line each.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// A step.
    Step(Step),
    /// The lab is up.
    Up,
    /// The lab did not start, with the reason.
    Failed(String),
}

/// The state of a lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The configuration.
    pub config: Config,
    /// The process id of the owner.
    pub owner: u32,
    /// The process id of the emulator.
    pub emulator: Option<u32>,
    /// The folder of its files.
    pub folder: PathBuf,
    /// The folder that guests see as /exchange.
    pub exchange: PathBuf,
    /// The nodes.
    pub nodes: Vec<NodeReport>,
    /// The links.
    pub links: Vec<LinkState>,
}

/// The state of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeReport {
    /// The number.
    pub number: usize,
    /// "running" or "down".
    pub state: String,
    /// The reason why it is down.
    pub reason: Option<String>,
    /// The process id of its QEMU.
    pub pid: Option<u32>,
    /// The release of its kernel.
    pub kernel: Option<String>,
    /// Seconds that the node took to boot.
    pub boot_seconds: Option<f64>,
    /// Seconds since the node was switched on.
    pub up_seconds: Option<f64>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.config;
        writeln!(
            f,
            "lab '{}': {} nodes, {} kernel, {} MiB each, {:?} NTBs, {} DMA channel(s) each",
            config.name,
            config.nodes,
            config.kernel.name(),
            config.memory,
            config.personality,
            config.dma_channels
        )?;
        if let Some(model) = config.model() {
            writeln!(f, "model: {model}")?;
        }
        if let Some(order) = config.order() {
            writeln!(f, "order: {order}")?;
        }
        for link in &self.links {
            let state = match (link.plugged, link.up) {
                (_, true) => "up",
                (true, false) => "down: a driver has not enabled the link",
                (false, false) => "down: unplugged",
            };
            writeln!(f, "link {}-{}: {state}", link.upstream, link.downstream)?;
        }
        writeln!(f, "files: {}", self.folder.display())?;
        for node in &self.nodes {
            write!(f, "node {}: {}", node.number, node.state)?;
            if let (Some(kernel), Some(boot), Some(up)) =
                (&node.kernel, node.boot_seconds, node.up_seconds)
            {
                write!(f, ", Linux {kernel}, booted in {boot:.1} s, up {up:.0} s")?;
            }
            if let Some(reason) = &node.reason {
                write!(f, ": {reason}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Returns the emulator's counters for people: a table with a line for each device.
pub fn counters_table(guests: &[GuestCounters]) -> String {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for (node, guest) in guests.iter().enumerate() {
        let total = ("total".to_owned(), &guest.total);
        let functions = guest
            .functions
            .iter()
            .map(|function| (function.name.clone(), &function.counters));
        for (name, counters) in functions.chain([total]) {
            let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(counters) else {
                continue;
            };
            if lines.is_empty() {
                let names = fields.keys().map(|name| name.replace('_', " "));
                lines.push(
                    ["node", "device"]
                        .map(str::to_owned)
                        .into_iter()
                        .chain(names)
                        .collect(),
                );
            }
            let values = fields.values().map(ToString::to_string);
            lines.push([node.to_string(), name].into_iter().chain(values).collect());
        }
    }
    let columns = lines.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            lines
                .iter()
                .map(|line| line[column].len())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}
