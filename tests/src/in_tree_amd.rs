// SPDX-License-Identifier: GPL-2.0
//! The kernel's own driver of AMD's NTB, and its NTB clients, over the emulated bridge. It has
//! eight scratchpads. The link follows the drivers and not the clients' wishes. The driver keeps a
//! doorbell for itself.

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

/// A pair with windows so small that clients find memory for a whole window.
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

/// Returns a value that the driver shows of a node's bridge in debugfs.
fn info(lab: &Lab, node: usize, name: &str) -> Result<String> {
    let path = format!("/sys/kernel/debug/ntb_hw_amd/{}/info", ntb_device(0));
    let text = lab.node(node).read(&path)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let value = value.with_context(|| format!("{path} has no '{name}':\n{text}"))?;
    Ok(value.trim_start_matches([' ', '-', '\t']).to_owned())
}

/// ntb_tool: the link is up as soon as both drivers are loaded, whatever the clients wish, and
/// follows the cable.
fn link_needs_both_drivers(lab: &Lab) -> Result<()> {
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

/// ntb_tool: a masked doorbell waits, and interrupts by its own vector when its mask is lifted. A
/// doorbell that is already set does not interrupt again.
fn masked_doorbell_waits(lab: &Lab) -> Result<()> {
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

/// A driver that is removed notifies the other driver, which finds it when it is back.
///
/// Its masks match those of the hardware only after a client has set all of them. Before that,
/// lifting one mask lifts all.
fn peer_sees_driver_removed(lab: &Lab) -> Result<()> {
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

/// Number of times that a driver reads registers of its bridge while it is loaded.
const READS_OF_LOADING: u64 = 4;

/// Waits in a new lab until neither driver will report the link again by itself.
///
/// A driver polls its link each second until the link is up. Then it reports the link, even if its
/// client knows of it. ntb_transport then lays out its rings anew, under packets in flight, and no
/// packet arrives afterwards.
fn settle(lab: &Lab) -> Result<()> {
    // The driver that was loaded last polls for the first time a second later. By then the other
    // driver has polled again.
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

/// ntb_transport and ntb_netdev.
///
/// The scratchpads of a link that was always up are never cleared, so the cable stays in. The
/// driver would poll the link again after the cable was out.
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
    Test::new(
        "in_tree_amd::link_needs_both_drivers",
        AMD_PAIR,
        link_needs_both_drivers,
    )
    .by_name(),
    Test::new("in_tree_amd::pingpong", AMD_PAIR, in_tree::pingpong).by_name(),
    Test::new(
        "in_tree_amd::scratchpads_arrive",
        AMD_PAIR,
        in_tree::scratchpads_arrive,
    )
    .by_name(),
    Test::new(
        "in_tree_amd::doorbells_arrive",
        AMD_PAIR,
        in_tree::doorbells_arrive,
    )
    .by_name(),
    Test::new(
        "in_tree_amd::masked_doorbell_waits",
        AMD_PAIR,
        masked_doorbell_waits,
    )
    .by_name(),
    Test::new(
        "in_tree_amd::window_data_arrives",
        AMD_PAIR,
        in_tree::window_data_arrives,
    )
    .by_name(),
    Test::new("in_tree_amd::perf", AMD_PAIR, in_tree::perf)
        .leaves_disorder()
        .by_name(),
    Test::new(
        "in_tree_amd::peer_sees_driver_removed",
        AMD_PAIR,
        peer_sees_driver_removed,
    )
    .by_name(),
    Test::new(
        "in_tree_amd::link_follows_peer_death",
        AMD_PAIR,
        in_tree::link_follows_peer_death,
    )
    .seconds(120)
    .by_name(),
    Test::new("in_tree_amd::netdev", AMD_FIXED, netdev)
        .seconds(120)
        .destroys()
        .by_name(),
];
