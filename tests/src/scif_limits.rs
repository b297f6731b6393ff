// SPDX-License-Identifier: GPL-2.0
//! What a process can make the kernel hold for it: pinned memory by RLIMIT_MEMLOCK of its user
//! (tests/programs/scif_memlock.c), by the huge page as well (scif_huge.c), everything else by its
//! memory cgroup (scif_charged.c), and what a peer that does not receive lets it send, by the
//! module's parameter ring_size (scif_ring.c).

use anyhow::Result;
use anyhow::ensure;
use lab::Lab;

use crate::bystander;
use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::need::ONE;
use crate::need::PAIR;
use crate::scif;
use crate::scif_engines;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// A node with neither NTB nor DMA engine, and the module not loaded.
const ALONE: Need = Need {
    dma_channels: 0,
    ..ONE
};

/// Bytes of a ring if nobody says otherwise.
const DEFAULT_RING: &str = "1048576";

/// More questions than a peer that hangs has room for can be interrupted, and hurt nobody.
fn interrupted(lab: &Lab) -> Result<()> {
    let before = scif::online(lab, 0, 1)?;
    let program = scif::program("scif_interrupted")?;
    let peer = lab.spawn(1, [&program, "peer", "2400"])?;
    peer.wait_for("listening", lab.hang_limit(20))?;
    let asker = lab.command(0, [&program, "ask", "1", "2400"])?;
    let asker = asker.stdin_piped().spawn()?;
    asker.wait_for("connected", lab.hang_limit(20))?;
    bystander::beside(lab, 0, || {
        lab.pause(1)?;
        let asked = asker
            .write(b"\n")
            .and_then(|()| asker.wait_for("done", lab.hang_limit(60)));
        lab.resume(1)?;
        asked
    })?;
    asker.write(b"\n")?;
    asker.wait()?.success()?;
    drop(peer);
    let after = scif::online(lab, 0, 1)?;
    ensure!(after == before, "{before:?}, then {after:?}");
    Ok(())
}

/// Runs a test with the module loaded in node 0.
fn with_module(lab: &Lab, test: impl Fn() -> Result<()>) -> Result<()> {
    with_module_and_rings(lab, DEFAULT_RING, test)
}

/// Runs a test with the module loaded in node 0, with rings of this size.
fn with_module_and_rings(lab: &Lab, size: &str, test: impl Fn() -> Result<()>) -> Result<()> {
    load_with_ring(lab, 0, size)?;
    test()?;
    scif::check_idle(lab, 0)?;
    lab.rmmod(0, "scif")
}

/// The limit is the user's, whoever has the descriptors.
fn memlock(lab: &Lab) -> Result<()> {
    with_module(lab, || {
        // A device that everybody may use, as they may here.
        bystander::beside(lab, 0, || scif::run_tap(lab, 0, "scif_memlock", &[], 120))?;
        Ok(())
    })
}

/// What is pinned by the huge page is the process's memory, and is given back.
fn huge_pages(lab: &Lab) -> Result<()> {
    with_module(lab, || {
        // A kernel with little memory has none otherwise.
        let folder = "/sys/kernel/mm/transparent_hugepage";
        for file in ["enabled", "defrag"] {
            lab.node(0).write(&format!("{folder}/{file}"), "madvise")?;
        }
        scif::run_tap(lab, 0, "scif_huge", &[], 60)?;
        Ok(())
    })
}

/// A cgroup of its own for processes of node 0; removed when dropped.
struct Group<'a> {
    lab: &'a Lab,
}

impl<'a> Group<'a> {
    const FOLDER: &'static str = "/sys/fs/cgroup/scif";

    fn new(lab: &'a Lab) -> Result<Group<'a>> {
        let script = format!(
            "root=/sys/fs/cgroup
             grep -q \" $root cgroup2 \" /proc/mounts || mount -t cgroup2 cgroup2 $root
             echo +memory >$root/cgroup.subtree_control
             mkdir {}",
            Self::FOLDER
        );
        lab.shell(0, &script)?;
        Ok(Group { lab })
    }

    /// Runs scif_charged in it.
    fn run(&self, what: &str, more: &str) -> Result<()> {
        let folder = Self::FOLDER;
        let program = scif::program("scif_charged")?;
        let script =
            format!("echo $$ >{folder}/cgroup.procs; exec {program} {what} {folder} {more}");
        let output = self
            .lab
            .command(0, ["sh", "-e", "-c", &script])?
            .timeout(self.lab.hang_limit(60))
            .run()?;
        scif::check_tap(output)
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        let _ = self.lab.exec(0, ["rmdir", Self::FOLDER]);
    }
}

/// Who connects pays for the rings, and is told when there is no memory for them.
fn cgroup(lab: &Lab) -> Result<()> {
    // Many connections, whose rings have to be in the memory of the node all at once.
    let ring = "65536";
    with_module_and_rings(lab, ring, || {
        let group = Group::new(lab)?;
        group.run("rings", ring)?;
        group.run("limit", "")
    })
}

/// What a peer asks to be done behind transfers is paid for by whom it waits for.
fn asked(lab: &Lab) -> Result<()> {
    let server = scif::start_server(lab, 1, "scif_charged", &["asker", "2333"], 240)?;
    Group::new(lab)?.run("asked", "1 2333")?;
    server.kill();
    Ok(())
}

/// Memory for requests is taken as they come.
fn backlog(lab: &Lab) -> Result<()> {
    with_module(lab, || {
        scif::run_tap(lab, 0, "scif_charged", &["listeners"], 60)?;
        Ok(())
    })
}

/// Who has next to nothing of the processors holds nobody up.
fn idle(lab: &Lab) -> Result<()> {
    with_module(lab, || {
        let program = lab.spawn(0, [&scif::program("scif_idle")?])?;
        program.wait()?.success()?;
        Ok(())
    })
}

/// Loads the module in a node, with rings of another size unless that is the default.
fn load_with_ring(lab: &Lab, node: usize, size: &str) -> Result<()> {
    let parameter = match size {
        DEFAULT_RING => String::new(),
        size => format!("ring_size={size}"),
    };
    scif::load_with(lab, node, Loaded::LongHeartbeat, &parameter)
}

/// The smallest, another one, and the default, which is the largest; others are refused.
fn ring_size(lab: &Lab) -> Result<()> {
    for size in ["4096", "65536", DEFAULT_RING] {
        load_with_ring(lab, 0, size)?;
        scif::run_tap(lab, 0, "scif_ring", &["loopback", "2331", size], 60)?;
        scif::check_idle(lab, 0)?;
        lab.rmmod(0, "scif")?;
    }
    for bad in ["0", "1", "2048", "4095", "12288", "65537", "2097152", "-1"] {
        ensure!(
            load_with_ring(lab, 0, bad).is_err(),
            "ring_size={bad} is accepted"
        );
    }
    ensure!(!scif::is_loaded(lab, 0)?);
    Ok(())
}

/// Each node has rings of its own size: what counts is the receiver's.
fn ring_size_of_peer(lab: &Lab) -> Result<()> {
    let sizes = ["4096", DEFAULT_RING];
    for (node, size) in sizes.iter().enumerate() {
        load_with_ring(lab, node, size)?;
    }
    for (node, peer) in [(0, 1), (1, 0)] {
        scif::online(lab, node, peer)?;
    }
    for (server, client) in [(0, 1), (1, 0)] {
        let arguments = ["server", "2332", sizes[server], sizes[client]];
        let process = scif::start_server(lab, server, "scif_ring", &arguments, 60)?;
        let peer = server.to_string();
        let arguments = ["client", &peer, "2332", sizes[client], sizes[server]];
        scif::run_tap(lab, client, "scif_ring", &arguments, 60)?;
        scif::check_tap(process.wait()?)?;
    }
    for node in 0..2 {
        scif::check_idle(lab, node)?;
    }
    scif::unload_everywhere(lab)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_limits::memlock", ALONE, memlock).seconds(120),
    Test::new("scif_limits::huge_pages", ALONE, huge_pages),
    Test::new("scif_limits::cgroup", ALONE, cgroup)
        .seconds(120)
        // Others have no memory cgroups.
        .on_stock(),
    Test::new("scif_limits::asked", scif_engines::CRAWLING, asked)
        .seconds(240)
        .on_stock()
        .by_name(),
    Test::new("scif_limits::backlog", ALONE, backlog),
    Test::new("scif_limits::idle", ALONE, idle).seconds(120),
    Test::new("scif_limits::interrupted", SCIF_PAIR, interrupted).seconds(120),
    Test::new("scif_limits::ring_size", ALONE, ring_size)
        .seconds(120)
        .expects(&["ring_size", "invalid for parameter"]),
    Test::new("scif_limits::ring_size_of_peer", PAIR, ring_size_of_peer)
        .seconds(120)
        .leaves_disorder()
        .by_name(),
];
