// SPDX-License-Identifier: GPL-2.0
//! What `lab` and the process that owns a lab say to each other.
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
        /// Which node.
        node: usize,
        /// What for.
        request: Request,
    },
    /// Say what there is: a [`Report`].
    Report,
    /// Kill a node.
    Kill {
        /// Which.
        node: usize,
    },
    /// Kill a node and boot it again.
    Restart {
        /// Which.
        node: usize,
    },
    /// Stop a node's processors.
    Pause {
        /// Which.
        node: usize,
    },
    /// Let a paused node go on.
    Resume {
        /// Which.
        node: usize,
    },
    /// Set the link between two nodes up or down.
    Link {
        /// One end.
        a: usize,
        /// The other.
        b: usize,
        /// Whether it is to be up.
        up: bool,
    },
    /// Change what the order of writes follows from.
    Reseed {
        /// The seed.
        seed: u64,
    },
    /// The emulator's counters, as it gives them.
    Counters,
    /// End the lab.
    Down,
}

/// The owner's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is done; the value depends on the request.
    Done(serde_json::Value),
    /// It failed, and why.
    Failed(String),
}

/// What the owner prints while it starts, a JSON line each.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// A step.
    Step(Step),
    /// The lab is up.
    Up,
    /// It is not, and why.
    Failed(String),
}

/// What there is and how it is doing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// What was asked for.
    pub config: Config,
    /// The process id of the owner.
    pub owner: u32,
    /// The process id of the emulator.
    pub emulator: Option<u32>,
    /// Where its files are.
    pub folder: PathBuf,
    /// The folder that guests see as /exchange.
    pub exchange: PathBuf,
    /// The nodes.
    pub nodes: Vec<NodeReport>,
    /// The links.
    pub links: Vec<LinkState>,
}

/// One node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its number.
    pub number: usize,
    /// "running" or "down".
    pub state: String,
    /// Why it is down.
    pub reason: Option<String>,
    /// The process id of its QEMU.
    pub pid: Option<u32>,
    /// The release of its kernel.
    pub kernel: Option<String>,
    /// How long it took to boot.
    pub boot_seconds: Option<f64>,
    /// How long ago it was switched on.
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
                (true, false) => "down: not both drivers want it",
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

/// The emulator's counters for people: a table, a line for each device.
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
