// SPDX-License-Identifier: GPL-2.0
//! The lab that tests with the same machines share, and how the runner puts it in order between two
//! of them.
//!
//! The next test may want the module loaded with other parameters. The last test may have left a
//! node dead, a driver unbound or a module loaded (`Leaves::Disorder`). In these cases the runner
//! boots dead nodes again, binds drivers and unloads modules, until each node is as it was after
//! its boot. Then it loads the module under test anew. This takes a few seconds. A boot takes four
//! times as long.
//!
//! # Invariants
//! - A module that can't be unloaded is a failure. If anything else can't be put in order, the
//!   runner boots another lab.
//! - On the debug kernel the module is not unloaded between tests. A bug in the kernel's own
//!   plx_dma switches lockdep off when a user of its engine goes (see `lab::kernel_log`), and the
//!   later tests of the lab would run without lockdep.

use std::collections::BTreeSet;

use anyhow::Context;
use anyhow::Result;
use lab::Flavour;
use lab::Lab;

use crate::evidence::with_evidence;
use crate::heartbeat;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::nodes::for_each_node;
use crate::scif;
use crate::scif::Glance;

/// A lab and its state.
pub struct SharedLab {
    /// The machines of the lab.
    machines: Need,
    lab: Lab,
    /// The parameters with which the module is loaded, or `None` if a test has left disorder.
    module: Option<Loaded>,
    /// The state of each node after its boot.
    booted: Vec<NodeState>,
}

impl SharedLab {
    /// Takes a lab that was just booted for `need`.
    pub fn new(need: &Need, lab: Lab) -> Result<SharedLab> {
        let booted = for_each_node(&lab, |node| NodeState::read(&lab, node))?;
        Ok(SharedLab {
            machines: need.machines(),
            lab,
            module: Some(Loaded::No),
            booted,
        })
    }

    /// Returns the lab itself.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Records that a test has left disorder.
    pub fn leave_disorder(&mut self) {
        self.module = None;
    }

    /// Prepares the lab for a test with this need. Returns false if the test needs another lab.
    pub fn prepare(&mut self, need: &Need, loses_nodes: bool) -> Result<bool> {
        if self.machines != need.machines() {
            return Ok(false);
        }
        if self.module == Some(need.scif) {
            // The machine may have become too slow for the default heartbeat, which would declare
            // living nodes dead.
            let is_outpaced =
                loses_nodes && need.scif == Loaded::AsUsual && heartbeat::is_too_short(&self.lab)?;
            if !is_outpaced {
                return Ok(true);
            }
        }
        if self.module != Some(Loaded::No) {
            if self.lab.kernel().flavour() == Flavour::Debug {
                return Ok(false);
            }
            if !self.put_in_order()? {
                println!("      the last test has left what takes another lab");
                return Ok(false);
            }
        }
        if need.scif != Loaded::No {
            scif::load_everywhere(&self.lab, need.scif)
                .map_err(|error| with_evidence(&self.lab, &error.context("loading scif.ko")))?;
        }
        self.module = Some(need.scif);
        Ok(true)
    }

    /// Restores each node to its state after its boot. Returns false if a node still differs from
    /// that state.
    fn put_in_order(&self) -> Result<bool> {
        let lab = &self.lab;
        for node in 0..lab.nodes() {
            if !lab.is_running(node) {
                lab.restart(node)?;
            }
        }
        for node in 0..lab.nodes() {
            if scif::is_loaded(lab, node)? {
                lab.rmmod(node, "scif")
                    .context("scif.ko can't be unloaded after the last test")?;
            }
        }
        let restored = for_each_node(lab, |node| {
            // Each buffer of a bridge is contiguous and as large as one of its windows.
            let compact = "/proc/sys/vm/compact_memory";
            lab.shell(node, &format!("[ ! -e {compact} ] || echo 1 >{compact}"))?;
            let booted = &self.booted[node];
            Ok(NodeState::read(lab, node)? == *booted || {
                booted.restore(lab, node)?;
                NodeState::read(lab, node)? == *booted
            })
        })?;
        Ok(restored.into_iter().all(|restored| restored))
    }
}

/// The modules that a node has loaded, and the drivers of its devices.
#[derive(PartialEq, Eq)]
struct NodeState {
    modules: BTreeSet<String>,
    /// Pairs of a PCI device and the name of its driver.
    drivers: BTreeSet<(String, String)>,
}

impl NodeState {
    fn read(lab: &Lab, node: usize) -> Result<NodeState> {
        let links = lab.shell(node, "cd /sys/bus/pci/drivers && ls -d */*:*")?;
        let pairs = links.lines().filter_map(|line| line.split_once('/'));
        Ok(NodeState {
            modules: Glance::at(lab, node)?.modules,
            drivers: pairs
                .map(|(driver, device)| (device.to_owned(), driver.to_owned()))
                .collect(),
        })
    }

    /// Unloads added modules, loads missing ones, and binds drivers. Commands may fail: the caller
    /// checks the result.
    fn restore(&self, lab: &Lab, node: usize) -> Result<()> {
        let now = NodeState::read(lab, node)?;
        let mut script = String::new();
        let more: Vec<&str> = now
            .modules
            .difference(&self.modules)
            .map(|s| &**s)
            .collect();
        if !more.is_empty() {
            // A module can go only after its users. Repeating the command covers each order of
            // dependencies.
            let names = more.join(" ");
            script += &format!("for i in 1 2 3 4; do rmmod {names} 2>/dev/null; done\n");
        }
        for name in self.modules.difference(&now.modules) {
            script += &format!("modprobe {name}\n");
        }
        for (device, driver) in self.drivers.difference(&now.drivers) {
            script += &format!("echo {device} >/sys/bus/pci/drivers/{driver}/bind\n");
        }
        lab.exec(node, ["sh", "-c", &script])?;
        Ok(())
    }
}
