// SPDX-License-Identifier: GPL-2.0
//! What `lab` and the process that owns a lab say to each other.
//!
//! A client connects, sends one `Control` frame with a [`Control`], and gets an `Answer`
//! frame with an [`Answer`]. For `Open` the connection then carries the frames of that
//! channel, as number 0, until `Done`; a client that hangs up kills the command.

use std::fmt;
use std::path::PathBuf;

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
    /// Set the link between two nodes up or down.
    Link {
        /// One end.
        a: usize,
        /// The other.
        b: usize,
        /// Whether it is to be up.
        up: bool,
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
    /// The links as (upstream, downstream).
    pub links: Vec<(usize, usize)>,
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
        let links: Vec<String> = self
            .links
            .iter()
            .map(|(up, down)| format!("{up}-{down}"))
            .collect();
        if !links.is_empty() {
            writeln!(f, "links: {}", links.join(", "))?;
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

/// The emulator's counters for people: a line for each device.
pub fn counters_table(counters: &serde_json::Value) -> String {
    let mut text = String::new();
    table_lines("", counters, &mut text);
    text
}

fn table_lines(path: &str, value: &serde_json::Value, text: &mut String) {
    let mut plain = Vec::new();
    let mut inner = Vec::new();
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                if value.is_object() || value.is_array() {
                    inner.push((format!("{path}{name} "), value));
                } else {
                    plain.push(format!("{name} {value}"));
                }
            }
        }
        serde_json::Value::Array(values) => {
            for (number, value) in values.iter().enumerate() {
                inner.push((format!("{path}{number} "), value));
            }
        }
        other => plain.push(other.to_string()),
    }
    if !plain.is_empty() {
        text.push_str(&format!("{path:<20} {}\n", plain.join(", ")));
    }
    for (path, value) in inner {
        table_lines(&path, value, text);
    }
}
