// SPDX-License-Identifier: GPL-2.0
//! The kernel's own NTB and DMA drivers over the emulated devices. Functions that fail here would
//! fail for every user.

use anyhow::Result;
use anyhow::ensure;
use lab::Iommu;
use lab::Lab;
use lab::Personality;
use lab::Windows;
use lab::wait_until;

use crate::harness::Test;
use crate::need::Need;
use crate::need::PAIR;
use crate::need::STAR;
use crate::ntb_client::Loaded;
use crate::ntb_client::Tool;
use crate::ntb_client::check_link;
use crate::ntb_client::enable_links;
use crate::ntb_client::ntb_device;

/// A pair of the older NTB, whose windows are aligned to their size.
const GEN3_PAIR: Need = Need {
    personality: Personality::Gen3,
    ..PAIR
};

/// A pair whose nodes have as many DMA engines as there can be.
const FOUR_CHANNELS: Need = Need {
    dma_channels: 4,
    ..PAIR
};

/// A pair whose nodes have an IOMMU.
const IOMMU_PAIR: Need = Need {
    iommu: Iommu::All,
    ..PAIR
};

/// A pair each of whose windows is mapped onto one fixed range, which holds the only buffers that
/// are large enough. ntb_transport needs such windows to run at the speed of memory.
pub const FIXED_PAIR: Need = Need {
    windows: Windows::Fixed {
        base: 256 << 20,
        size: 2 << 20,
    },
    append: &["cma=64M@256M"],
    ..PAIR
};

/// ntb_pingpong: scratchpads or messages, and doorbells, bounce between all pairs of nodes.
pub fn pingpong(lab: &Lab) -> Result<()> {
    let loaded = Loaded::new(lab, "ntb_pingpong", "delay_ms=5")?;
    for (node, devices) in [(0, lab.nodes() - 1), (1, 1)] {
        for device in 0..devices {
            let file = format!(
                "/sys/kernel/debug/ntb_pingpong/{}/count",
                ntb_device(device)
            );
            wait_until("ten rounds of ntb_pingpong", lab.hang_limit(30), || {
                let count: u64 = lab.node(node).read(&file)?.trim().parse()?;
                Ok((count >= 10).then_some(()))
            })?;
        }
    }
    loaded.unload()
}

/// ntb_tool: both ends know their ports, and the link follows the wishes of both clients.
fn link_needs_both_clients(lab: &Lab) -> Result<()> {
    let loaded = Loaded::new(lab, "ntb_tool", "")?;
    let (a, b) = (Tool::new(lab, 0, 0), Tool::new(lab, 1, 0));
    check_link(lab, [&a, &b], [0, 1])?;
    ensure!(lab.set_link(0, 5, true).is_err());
    a.write("link", "N")?;
    b.write("link", "N")?;
    loaded.unload()
}

/// ntb_tool: values written to a scratchpad arrive at the peer.
pub fn scratchpads_arrive(lab: &Lab) -> Result<()> {
    let loaded = Loaded::new(lab, "ntb_tool", "")?;
    let (a, b) = (Tool::new(lab, 0, 0), Tool::new(lab, 1, 0));
    enable_links(&[&a, &b])?;
    let count: u32 = match lab.config().personality {
        Personality::Amd => 8,
        _ => 16,
    };
    ensure!(b.shell("ls -d spad* | wc -l")?.trim() == count.to_string());
    // One command for each step: a command for each register takes long on the debug kernel.
    let fill = |base: u32| {
        let pads: Vec<String> = (0..count)
            .map(|pad| format!("echo {:#x} >peer0/spad{pad}", base + pad))
            .collect();
        pads.join("; ")
    };
    let print = |folder: &str| {
        let pads: Vec<String> = (0..count).map(|pad| format!("{folder}spad{pad}")).collect();
        format!("cat {}", pads.join(" "))
    };
    a.shell(&fill(0x1234_0000))?;
    b.shell(&fill(0xfeed_0000))?;
    let expected = |base: u64| -> String {
        let lines: Vec<String> = (base..base + u64::from(count))
            .map(|n| format!("{n:#x}"))
            .collect();
        lines.join(
            "
",
        ) + "
"
    };
    ensure!(b.shell(&print(""))? == expected(0x1234_0000));
    ensure!(a.shell(&print(""))? == expected(0xfeed_0000));
    ensure!(a.shell(&print("peer0/"))? == expected(0x1234_0000));
    loaded.unload()
}

/// ntb_tool: each doorbell arrives, alone, and can be cleared and masked.
pub fn doorbells_arrive(lab: &Lab) -> Result<()> {
    let loaded = Loaded::new(lab, "ntb_tool", "")?;
    let (a, b) = (Tool::new(lab, 0, 0), Tool::new(lab, 1, 0));
    enable_links(&[&a, &b])?;
    let valid = a.number("db_valid_mask")?;
    // AMD's driver keeps the last doorbell for itself.
    ensure!(valid.count_ones() >= 15, "only these doorbells: {valid:#x}");
    for tool in [&a, &b] {
        // An earlier client may have left doorbells set or masked.
        tool.write("db", &format!("c {valid:#x}"))?;
        tool.write("db_mask", &format!("c {valid:#x}"))?;
    }
    // Each bit goes there and comes back. Writing db_event blocks until exactly that bit is
    // set, so a doorbell that does not arrive, or not alone, shows as a timeout.
    let bits: Vec<String> = (0..64)
        .map(|bit| 1_u64 << bit)
        .filter(|bit| valid & bit != 0)
        .map(|bit| format!("{bit:#x}"))
        .collect();
    let bits = bits.join(" ");
    let answer = "echo $bit >db_event; echo c $bit >db; echo s $bit >peer_db; echo $bit";
    let ask = "echo s $bit >peer_db; echo $bit >db_event; echo c $bit >db";
    let answers = b.node.spawn([
        "sh",
        "-e",
        "-c",
        &format!("cd {}; for bit in {bits}; do {answer}; done", b.folder),
    ])?;
    a.shell(&format!("for bit in {bits}; do {ask}; done"))?;
    ensure!(answers.wait()?.success()?.stdout() == bits.replace(' ', "\n") + "\n");
    ensure!(b.number("db")? == 0);
    for tool in [&a, &b] {
        tool.write("db_mask", &format!("s {valid:#x}"))?;
    }
    ensure!(a.number("db")? == 0);
    loaded.unload()
}

/// ntb_tool: data written into a window is in the peer's memory, and the reverse.
pub fn window_data_arrives(lab: &Lab) -> Result<()> {
    let loaded = Loaded::new(lab, "ntb_tool", "")?;
    let (a, b) = (Tool::new(lab, 0, 0), Tool::new(lab, 1, 0));
    enable_links(&[&a, &b])?;
    for (here, there) in [(&a, &b), (&b, &a)] {
        here.write("peer0/mw_trans0", "65536")?;
        let size = here.field("peer0/mw_trans0", "Window Size")?;
        let alignment = here.field("peer0/mw_trans0", "Alignment")?;
        ensure!(size >= 65536, "the window has {size} bytes");
        match lab.config().personality {
            Personality::Gen5 | Personality::Amd => {
                ensure!(alignment == 4096, "alignment {alignment:#x}")
            }
            Personality::Idt => ensure!(alignment == 4, "alignment {alignment:#x}"),
            Personality::Gen3 => ensure!(
                alignment == here.field("peer0/mw_trans0", "Size Max")?,
                "alignment {alignment:#x} is not the size of the window"
            ),
        }
        // With outbound translation, the node that uses the window sets its translation.
        let address = here.field("peer0/mw_trans0", "DMA Address")?;
        there.write("peer0/peer_mw_trans0", &format!("{address}:{size}"))?;
        let text = format!("to node {}\n", here.node.number());
        there.write("peer0/peer_mw0", &text)?;
        let head = |tool: &Tool<'_>, file: &str| {
            let path = format!("{}/{file}", tool.folder);
            Ok::<_, anyhow::Error>(
                tool.node
                    .exec(["head", "-c", &text.len().to_string(), &path])?
                    .success()?
                    .stdout(),
            )
        };
        ensure!(head(here, "peer0/mw0")? == text);
        ensure!(head(there, "peer0/peer_mw0")? == text);
        here.write("peer0/mw0", &text.to_uppercase())?;
        ensure!(head(there, "peer0/peer_mw0")? == text.to_uppercase());
    }
    // Trapped accesses are counted.
    let counters = lab.counters()?;
    ensure!(counters.iter().all(|node| node.total.trapped_writes > 0));
    ensure!(counters.iter().all(|node| node.total.trapped_reads > 0));
    for tool in [&a, &b] {
        tool.write("peer0/peer_mw_trans0", "0:0")?;
        tool.write("peer0/mw_trans0", "0")?;
    }
    loaded.unload()
}

/// ntb_perf: the driver finds its peer by scratchpads, and copies through windows by CPU and by the
/// engine.
pub fn perf(lab: &Lab) -> Result<()> {
    perf_after(lab, |_| Ok(()))
}

/// Runs ntb_perf after `prepare` has prepared each node.
pub fn perf_after(lab: &Lab, prepare: impl Fn(usize) -> Result<()>) -> Result<()> {
    let loaded = Loaded::new(lab, "ntb_perf", "chunk_order=16 total_order=16")?;
    let file = format!("/sys/kernel/debug/ntb_perf/{}/run", ntb_device(0));
    for node in 0..2 {
        // Retries until both nodes have told each other where their buffers are.
        wait_until("a run of ntb_perf", lab.hang_limit(30), || {
            let started = lab
                .node(node)
                .exec(["sh", "-c", &format!("echo 0 >{file}")])?;
            Ok((started.code() == Some(0)).then_some(()))
        })?;
        prepare(node)?;
        for (engine, order) in [(0, 16), (1, 26)] {
            lab.reset_counters()?;
            lab.shell(
                node,
                &format!(
                    "cd /sys/module/ntb_perf/parameters
                     echo {engine} >use_dma; echo {order} >total_order; echo 0 >{file}"
                ),
            )?;
            let (said, bytes) = (lab.node(node).read(&file)?, 1 << order);
            ensure!(said.contains(&format!("copied {bytes} bytes")), "{said}");
            let counted = lab.counters()?[node].total;
            let as_expected = match engine {
                0 => counted.trapped_writes >= bytes / 8,
                _ => counted.dma_bytes == bytes && counted.trapped_writes < 10_000,
            };
            let lost = counted.dma_errors + counted.dropped;
            ensure!(as_expected && lost == 0, "{counted:?}");
        }
        let back = "cd /sys/module/ntb_perf/parameters; echo 0 >use_dma; echo 16 >total_order";
        lab.shell(node, back)?;
    }
    loaded.unload()
}

/// dmatest: every channel copies random pieces, and all arrive.
///
/// There is one thread for each channel. plx_dma_tx_status() of a second thread takes the ring's
/// lock with softirqs enabled, so the channel's tasklet can deadlock.
fn dmatest(lab: &Lab) -> Result<()> {
    let channels = lab.config().dma_channels;
    for node in 0..lab.nodes() {
        let found = lab.shell(node, "ls /sys/class/dma")?.lines().count();
        ensure!(found == channels, "node {node} has {found} DMA channels");
        lab.reset_counters()?;
        lab.load_with(
            node,
            "dmatest",
            "iterations=1000 timeout=200000 threads_per_chan=1 run=1",
        )?;
        // A read of "wait" blocks until the test is done.
        lab.node(node).read("/sys/module/dmatest/parameters/wait")?;
        let log = lab.dmesg(node)?;
        let summaries: Vec<&str> = lab::kernel_log::since_mark(&log)
            .lines()
            .filter(|line| line.contains("dmatest") && line.contains("summary"))
            .collect();
        ensure!(
            summaries.len() == channels
                && summaries
                    .iter()
                    .all(|line| line.contains("summary 1000 tests, 0 failures")),
            "node {node}: {summaries:#?}"
        );
        let counted = lab.counters()?[node].total;
        ensure!(
            counted.dma_descriptors >= 1000 && counted.dma_bytes > 0 && counted.dma_errors == 0
        );
        lab.rmmod(node, "dmatest")?;
    }
    Ok(())
}

/// The bridge and the engine are behind the IOMMU, each in a group of its own. Their addresses are
/// translated, and the engine copies with translated addresses.
fn iommu_translates(lab: &Lab) -> Result<()> {
    for node in 0..lab.nodes() {
        let group = |device: &str| -> Result<String> {
            let folder = format!("/sys/bus/pci/devices/{device}/iommu_group");
            let kind = lab.node(node).read(&format!("{folder}/type"))?;
            ensure!(
                kind.starts_with("DMA"),
                "node {node}: {device} is in a group of the type {kind}"
            );
            lab.shell(node, &format!("readlink -f {folder}"))
        };
        let bridge = group(&ntb_device(0))?;
        let engine = group(&format!("0000:00:{:02x}.0", lab::dma_slot(0)))?;
        ensure!(
            bridge != engine,
            "node {node}: the bridge and the engine are both in {bridge}"
        );
    }
    dmatest(lab)
}

/// A peer that dies takes the link down; when it is back, the link comes up again.
pub fn link_follows_peer_death(lab: &Lab) -> Result<()> {
    for node in 0..2 {
        lab.load_with(node, "ntb_tool", "")?;
    }
    let (a, b) = (Tool::new(lab, 0, 0), Tool::new(lab, 1, 0));
    enable_links(&[&a, &b])?;
    lab.kill(1)?;
    a.write("peer0/link_event", "N")?;
    lab.restart(1)?;
    lab.load_with(1, "ntb_tool", "")?;
    b.set_link("Y")?;
    a.write("peer0/link_event", "Y")?;
    a.write("peer0/spad7", "0x77")?;
    ensure!(b.number("spad7")? == 0x77);
    for node in 0..2 {
        lab.rmmod(node, "ntb_tool")?;
    }
    Ok(())
}

/// Gives the nodes TCP/IP by ntb_transport and ntb_netdev: 10.0.0.1 and 10.0.0.2.
///
/// The modules stay loaded: a link event while they are unloaded leaves queued work of an unloaded
/// driver.
pub fn network(lab: &Lab) -> Result<()> {
    // The cable stays out until both nodes have loaded the driver. The driver clears its
    // scratchpads in a work item that it queues when it is loaded, so earlier writes of the peer
    // would be lost.
    lab.set_link(0, 1, false)?;
    for node in 0..2 {
        lab.load(node, "ntb_transport")?;
    }
    lab.set_link(0, 1, true)?;
    addresses(lab)
}

/// Loads ntb_netdev in nodes that have ntb_transport, sets their addresses, and waits until they
/// reach each other.
pub fn addresses(lab: &Lab) -> Result<()> {
    for node in 0..2 {
        lab.load(node, "ntb_netdev")?;
    }
    for node in 0..2 {
        let setup = format!(
            "d=$(ls /sys/class/net | grep -v '^lo$' | head -n 1); test -n \"$d\"
             ip addr add 10.0.0.{}/24 dev $d; ip link set $d up",
            node + 1
        );
        lab.shell(node, &setup)?;
    }
    let ping = "ping=$(command -v ping || echo busybox ping); $ping -c 1 -W 1 10.0.0.2";
    wait_until("a ping over ntb_netdev", lab.hang_limit(10), || {
        Ok((lab.exec(0, ["sh", "-c", ping])?.code() == Some(0)).then_some(()))
    })?;
    Ok(())
}

/// ntb_transport and ntb_netdev: TCP/IP between the nodes, as users have it today.
pub fn netdev(lab: &Lab) -> Result<()> {
    network(lab)?;
    iperf(lab)
}

/// TCP between nodes that have addresses carries data.
pub fn iperf(lab: &Lab) -> Result<()> {
    let server = lab.spawn(1, ["iperf3", "-s", "-1", "--forceflush"])?;
    server.wait_for("Server listening", lab.hang_limit(30))?;
    let report = lab.shell(0, "iperf3 -c 10.0.0.2 -n 32M -J")?;
    let report: serde_json::Value = serde_json::from_str(&report)?;
    let received = report["end"]["sum_received"]["bytes"].as_u64();
    ensure!(
        received.is_some_and(|bytes| bytes >= 30 << 20),
        "iperf3: {report}"
    );
    server.wait()?.success()?;
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("in_tree::pingpong", PAIR, pingpong),
    Test::new(
        "in_tree::link_needs_both_clients",
        PAIR,
        link_needs_both_clients,
    ),
    Test::new("in_tree::scratchpads_arrive", PAIR, scratchpads_arrive).by_name(),
    Test::new("in_tree::doorbells_arrive", PAIR, doorbells_arrive).by_name(),
    Test::new("in_tree::window_data_arrives", PAIR, window_data_arrives).by_name(),
    Test::new("in_tree::dmatest", PAIR, dmatest)
        .seconds(120)
        .leaves_disorder()
        .by_name(),
    Test::new(
        "in_tree::link_follows_peer_death",
        PAIR,
        link_follows_peer_death,
    )
    .seconds(120)
    .by_name(),
    Test::new("in_tree::star_pingpong", STAR, pingpong).by_name(),
    Test::new("in_tree::gen3_pingpong", GEN3_PAIR, pingpong).by_name(),
    Test::new(
        "in_tree::gen3_doorbells_arrive",
        GEN3_PAIR,
        doorbells_arrive,
    )
    .by_name(),
    Test::new(
        "in_tree::gen3_window_data_arrives",
        GEN3_PAIR,
        window_data_arrives,
    )
    .by_name(),
    Test::new("in_tree::netdev", FIXED_PAIR, netdev)
        .seconds(120)
        .destroys()
        .by_name(),
    Test::new("in_tree::iommu_translates", IOMMU_PAIR, iommu_translates)
        .seconds(120)
        .leaves_disorder()
        .by_name(),
    Test::new("in_tree::dmatest_four_channels", FOUR_CHANNELS, dmatest)
        .seconds(240)
        .leaves_disorder()
        .by_name(),
];
