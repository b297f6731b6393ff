// SPDX-License-Identifier: GPL-2.0
//! Limits of the resources that a process can make the kernel hold.
//!
//! Pinned memory is limited by the RLIMIT_MEMLOCK of its user (tests/programs/scif_memlock.c), for
//! huge pages as well (scif_huge.c). Everything else is charged to its memory cgroup
//! (scif_charged.c). Data in flight to a peer that does not receive is limited by the module
//! parameter ring_size (scif_ring.c).

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

/// Default size of a ring in bytes.
const DEFAULT_RING: &str = "1048576";

/// Interrupts more requests than a hanging peer has room for. No other process suffers.
fn interrupted_requests_harm_no_other(lab: &Lab) -> Result<()> {
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

/// The limit is that of the user, whichever process has the descriptors.
fn memlock_counts_for_user(lab: &Lab) -> Result<()> {
    with_module(lab, || {
        // Everybody may use the device, as users may in this test.
        bystander::beside(lab, 0, || scif::run_tap(lab, 0, "scif_memlock", &[], 120))?;
        Ok(())
    })
}

/// Memory pinned by huge pages counts as the process's memory, and is released.
fn huge_pages_are_charged(lab: &Lab) -> Result<()> {
    with_module(lab, || {
        // A kernel with little memory has no huge pages by default.
        let folder = "/sys/kernel/mm/transparent_hugepage";
        for file in ["enabled", "defrag"] {
            lab.node(0).write(&format!("{folder}/{file}"), "madvise")?;
        }
        scif::run_tap(lab, 0, "scif_huge", &[], 60)?;
        Ok(())
    })
}

/// A cgroup of its own for processes of node 0. Dropping the value removes it.
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

    /// Runs scif_charged in the cgroup.
    fn run(&self, command: &str, more: &str) -> Result<()> {
        let folder = Self::FOLDER;
        let program = scif::program("scif_charged")?;
        let script =
            format!("echo $$ >{folder}/cgroup.procs; exec {program} {command} {folder} {more}");
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

/// A process that connects pays for the rings, and gets an error if there is no memory for them.
fn rings_are_charged_to_cgroup(lab: &Lab) -> Result<()> {
    // The rings of many connections have to be in the memory of the node at the same time.
    let ring = "65536";
    with_module_and_rings(lab, ring, || {
        let group = Group::new(lab)?;
        group.run("rings", ring)?;
        group.run("limit", "")
    })
}

/// Requests of a peer that are deferred until transfers complete are charged to the process whose
/// transfers they wait for.
fn deferred_requests_are_charged(lab: &Lab) -> Result<()> {
    let server = scif::start_server(lab, 1, "scif_charged", &["asker", "2333"], 240)?;
    Group::new(lab)?.run("asked", "1 2333")?;
    server.kill();
    Ok(())
}

/// The module allocates memory for requests as they arrive.
fn backlog_grows_with_requests(lab: &Lab) -> Result<()> {
    with_module(lab, || {
        scif::run_tap(lab, 0, "scif_charged", &["listeners"], 60)?;
        Ok(())
    })
}

/// A process that gets hardly any CPU time delays no other process.
fn starved_process_delays_no_other(lab: &Lab) -> Result<()> {
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

/// Loads the module with the smallest ring, another one, and the default, which is the largest.
/// Other sizes are refused.
fn invalid_ring_size_is_refused(lab: &Lab) -> Result<()> {
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

/// Each node has rings of its own size. The size of the receiver's ring counts.
fn receivers_ring_size_counts(lab: &Lab) -> Result<()> {
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
    Test::new(
        "scif_limits::memlock_counts_for_user",
        ALONE,
        memlock_counts_for_user,
    )
    .seconds(120),
    Test::new(
        "scif_limits::huge_pages_are_charged",
        ALONE,
        huge_pages_are_charged,
    ),
    Test::new(
        "scif_limits::rings_are_charged_to_cgroup",
        ALONE,
        rings_are_charged_to_cgroup,
    )
    .seconds(120)
    // The other kernels have no memory cgroups.
    .on_stock(),
    Test::new(
        "scif_limits::deferred_requests_are_charged",
        scif_engines::CRAWLING,
        deferred_requests_are_charged,
    )
    .seconds(240)
    .on_stock()
    .by_name(),
    Test::new(
        "scif_limits::backlog_grows_with_requests",
        ALONE,
        backlog_grows_with_requests,
    ),
    Test::new(
        "scif_limits::starved_process_delays_no_other",
        ALONE,
        starved_process_delays_no_other,
    )
    .seconds(120),
    Test::new(
        "scif_limits::interrupted_requests_harm_no_other",
        SCIF_PAIR,
        interrupted_requests_harm_no_other,
    )
    .seconds(120),
    Test::new(
        "scif_limits::invalid_ring_size_is_refused",
        ALONE,
        invalid_ring_size_is_refused,
    )
    .seconds(120)
    .expects(&["ring_size", "invalid for parameter"]),
    Test::new(
        "scif_limits::receivers_ring_size_counts",
        PAIR,
        receivers_ring_size_counts,
    )
    .seconds(120)
    .leaves_disorder()
    .by_name(),
];
