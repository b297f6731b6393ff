// SPDX-License-Identifier: GPL-2.0
//! The kernel's own driver of AMD's NTB, and its NTB clients, over the emulated one: eight
//! scratchpads, a link that follows the drivers and not what clients want, and a doorbell that
//! the driver keeps for itself.

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::Personality;
use lab::Windows;
use lab::wait_until;

use crate::harness::Test;
use crate::in_tree;
use crate::need::Need;
use crate::need::PAIR;
use crate::ntb_client::Loaded;
use crate::ntb_client::Tool;
use crate::ntb_client::enable_links;
use crate::ntb_client::interrupts;
use crate::ntb_client::ntb_device;

/// A pair with small windows, so that clients find memory for all of one.
const AMD_PAIR: Need = Need {
    personality: Personality::Amd,
    windows: Windows::Trapped { size: 1 << 20 },
    ..PAIR
};

/// A pair for ntb_transport.
const AMD_FIXED: Need = Need {
    personality: Personality::Amd,
    ..in_tree::FIXED_PAIR
};

/// What the driver says of a node's bridge in debugfs.
fn info(lab: &Lab, node: usize, name: &str) -> Result<String> {
    let path = format!("/sys/kernel/debug/ntb_hw_amd/{}/info", ntb_device(0));
    let text = lab.node(node).read(&path)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let value = value.with_context(|| format!("{path} has no '{name}':\n{text}"))?;
    Ok(value.trim_start_matches([' ', '-', '\t']).to_owned())
}

/// ntb_tool: the link is up as soon as both drivers are there, whatever clients want, and follows the
/// cable.
fn link(lab: &Lab) -> Result<()> {
    let loaded = Loaded::new(lab, "ntb_tool", "")?;
    let (a, b) = (Tool::new(lab, 0, 0), Tool::new(lab, 1, 0));
    for (node, tool) in [(0, &a), (1, &b)] {
        ensure!(tool.number("port")? == node && tool.number("peer0/port")? == 1 - node);
        tool.write("peer0/link_event", "Y")?;
    }
    ensure!(info(lab, 0, "Connection Topology")? == "NTB_TOPO_PRI");
    ensure!(info(lab, 1, "Connection Topology")? == "NTB_TOPO_SEC");
    for state in ["Y", "N", "Y"] {
        for tool in [&a, &b] {
            tool.set_link(state)?;
            ensure!(tool.read("peer0/link")? == "Y");
        }
    }
    for state in ["N", "Y", "N", "Y"] {
        lab.set_link(0, 1, state == "Y")?;
        for tool in [&a, &b] {
            tool.write("peer0/link_event", state)?;
        }
    }
    ensure!(lab.emulator_state()?.links[0].up);
    loaded.unload()
}

/// ntb_tool: what is masked waits, and interrupts by its own vector when it no longer is; what is there
/// already does not interrupt again.
fn masks(lab: &Lab) -> Result<()> {
    let loaded = Loaded::new(lab, "ntb_tool", "")?;
    let (a, b) = (Tool::new(lab, 0, 0), Tool::new(lab, 1, 0));
    enable_links(&[&a, &b])?;
    for (here, there) in [(&a, &b), (&b, &a)] {
        there.shell("echo s 0x7fff >db_mask; echo c 0x7fff >db")?;
        let node = there.node.number();
        let mut expected = interrupts(lab, node, "ndev_vec_isr")?;
        ensure!(expected.len() == 24, "{} vectors", expected.len());
        here.write("peer_db", "s 0x4005")?;
        ensure!(there.number("db")? == 0x4005);
        for (step, vector) in [
            (there.write("db_mask", "c 0x4"), Some(2)),
            (here.write("peer_db", "s 0x4"), None),
            (there.write("db_mask", "c 0x4000"), Some(14)),
            (there.write("db", "c 0x4"), None),
        ] {
            step?;
            if let Some(vector) = vector {
                expected[vector] += 1;
            }
        }
        wait_until("the interrupts", lab.hang_limit(10), || {
            let found = interrupts(lab, node, "ndev_vec_isr")?;
            Ok((found >= expected).then_some(()))
        })?;
        let found = interrupts(lab, node, "ndev_vec_isr")?;
        ensure!(found == expected, "{found:?}, not {expected:?}");
        there.shell("echo s 0x7fff >db_mask; echo c 0x7fff >db")?;
    }
    loaded.unload()
}

/// A driver that goes tells the other one, which finds it when it is back. Its masks are those of the
/// hardware only after a client has set all: before, lifting one lifts all.
fn driver_death(lab: &Lab) -> Result<()> {
    let loaded = Loaded::new(lab, "ntb_tool", "")?;
    let (a, b) = (Tool::new(lab, 0, 0), Tool::new(lab, 1, 0));
    enable_links(&[&a, &b])?;
    for (stays, goes) in [(&a, &b), (&b, &a)] {
        let node = goes.node.number();
        lab.rmmod(node, "ntb_hw_amd")?;
        stays.write("peer0/link_event", "N")?;
        ensure!(!lab.emulator_state()?.links[0].up);
        lab.load(node, "ntb_hw_amd")?;
        stays.write("peer0/link_event", "Y")?;
        goes.write("peer0/link_event", "Y")?;
        ensure!(info(lab, node, "Doorbell Mask")? == "0x7fff");
        goes.write("db_mask", "c 0x1")?;
        ensure!(info(lab, node, "Doorbell Mask")? == "0x0000");
        goes.write("db_mask", "s 0x7fff")?;
        goes.write("db_mask", "c 0x1")?;
        ensure!(info(lab, node, "Doorbell Mask")? == "0x7ffe");
        goes.write("db_mask", "s 0x7fff")?;
    }
    loaded.unload()
}

/// How often a driver reads registers of its bridge while it is loaded.
const READS_OF_LOADING: u64 = 4;

/// Waits, in a lab that nobody has used, until neither driver will report the link once more by itself.
/// A driver looks after its link each second until there is one, and reports that one, even if its
/// client has been told. ntb_transport then lays out its rings anew, under packets that are on their
/// way, after which none arrives.
fn settle(lab: &Lab) -> Result<()> {
    // The driver that was loaded last looks first a second later, and until then the other one has
    // looked again.
    let limit = lab.hang_limit(10);
    wait_until("the drivers' look at their link", limit, || {
        let guests = lab.counters()?;
        let reads = guests
            .iter()
            .map(|guest| guest.sum("ntb", |c| c.trapped_reads));
        let mut looked = reads.map(|reads| reads > READS_OF_LOADING);
        Ok(looked.all(|looked| looked).then_some(()))
    })
}

/// ntb_transport and ntb_netdev. Nobody clears the scratchpads of a link that has always been there, so
/// the cable stays in: the driver would look after it again.
fn netdev(lab: &Lab) -> Result<()> {
    settle(lab)?;
    for node in 0..2 {
        lab.load(node, "ntb_transport")?;
    }
    in_tree::addresses(lab)?;
    in_tree::iperf(lab)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("in_tree_amd::link", AMD_PAIR, link).by_name(),
    Test::new("in_tree_amd::pingpong", AMD_PAIR, in_tree::pingpong).by_name(),
    Test::new("in_tree_amd::scratchpads", AMD_PAIR, in_tree::scratchpads).by_name(),
    Test::new("in_tree_amd::doorbells", AMD_PAIR, in_tree::doorbells).by_name(),
    Test::new("in_tree_amd::masks", AMD_PAIR, masks).by_name(),
    Test::new("in_tree_amd::windows", AMD_PAIR, in_tree::windows).by_name(),
    Test::new("in_tree_amd::perf", AMD_PAIR, in_tree::perf)
        .leaves_disorder()
        .by_name(),
    Test::new("in_tree_amd::driver_death", AMD_PAIR, driver_death).by_name(),
    Test::new("in_tree_amd::peer_death", AMD_PAIR, in_tree::peer_death)
        .seconds(120)
        .by_name(),
    Test::new("in_tree_amd::netdev", AMD_FIXED, netdev)
        .seconds(120)
        .destroys()
        .by_name(),
];
