// SPDX-License-Identifier: GPL-2.0
//! The status of a node as programs see it (SCIF_NODE_STATUS), and the content of mappings once the
//! node is lost (SCIF_MAP_POLICY), while the node goes and comes back.

use std::thread;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::Process;
use lab::wait_until;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::scif;
use crate::scif_node_loss::USUAL_PAIR;

const PROGRAM: &str = "scif_status";

/// An epoch, and the boot id of that epoch.
#[derive(Clone, Debug, PartialEq)]
struct Shown {
    epoch: u64,
    boot_id: String,
}

impl Shown {
    fn is_online(&self) -> bool {
        self.epoch % 2 == 1
    }
}

/// A program on node 0 that follows the status of node 1.
struct Follower(Process);

impl Follower {
    fn start(lab: &Lab) -> Result<Follower> {
        let follower = Follower(lab.spawn(0, [&scif::program(PROGRAM)?, "follow", "1"])?);
        follower.nth(lab, 0)?;
        Ok(follower)
    }

    /// Waits for the program's report number `number`, counted from 0, and returns it.
    fn nth(&self, lab: &Lab, number: usize) -> Result<Shown> {
        let line = wait_until(
            "the status of node 1 changes",
            lab.hang_limit(60),
            || -> Result<Option<String>> {
                ensure!(self.0.is_running(), "it has ended: {}", self.0.stderr());
                let text = self.0.stdout();
                let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
                Ok(whole.lines().nth(number).map(str::to_owned))
            },
        )?;
        let (epoch, boot_id) = line.split_once(' ').with_context(|| line.clone())?;
        Ok(Shown {
            epoch: epoch.parse()?,
            boot_id: boot_id.to_owned(),
        })
    }

    /// Waits for the next two reports, which are a loss and a return.
    fn loss_and_return(&self, lab: &Lab, number: usize, before: &Shown) -> Result<Shown> {
        let lost = self.nth(lab, number)?;
        ensure!(
            lost.epoch == before.epoch + 1 && lost.boot_id == before.boot_id,
            "{before:?}, then {lost:?}"
        );
        let back = self.nth(lab, number + 1)?;
        ensure!(back.epoch == before.epoch + 2, "{before:?}, then {back:?}");
        Ok(back)
    }
}

/// If the other node reloads the module, its boot id changes. If the link goes and comes back, the
/// boot id stays the same.
fn reload_changes_boot_id(lab: &Lab) -> Result<()> {
    scif::online(lab, 0, 1)?;
    let follower = Follower::start(lab)?;
    let first = follower.nth(lab, 0)?;
    ensure!(
        first.is_online() && !first.boot_id.trim_matches('0').is_empty(),
        "{first:?}"
    );
    lab.rmmod(1, "scif")?;
    scif::state(lab, 0, 1, "lost", lab.hang_limit(20))?;
    scif::load(lab, 1, Loaded::AsUsual)?;
    let second = follower.loss_and_return(lab, 1, &first)?;
    ensure!(
        second.boot_id != first.boot_id,
        "the same life: {first:?}, {second:?}"
    );
    lab.set_link(0, 1, false)?;
    follower.nth(lab, 3)?;
    lab.set_link(0, 1, true)?;
    let third = follower.loss_and_return(lab, 3, &second)?;
    ensure!(
        third.boot_id == second.boot_id,
        "another life: {second:?}, {third:?}"
    );
    drop(follower);
    Ok(())
}

/// The link goes and comes back under a program that has mapped the peer's memory.
fn mapping_sees_link_flap(lab: &Lab) -> Result<()> {
    scif::online(lab, 0, 1)?;
    let program = scif::program(PROGRAM)?;
    // Each program has its own port, because the port of a dropped process may not be free yet.
    for port in ["2300", "2301", "2302"] {
        let peer = lab.spawn(1, [&program, "peer", port])?;
        peer.wait_for("listening", lab.hang_limit(20))?;
        let loser = lab.spawn(0, [&program, "lose", "1", port])?;
        loser.wait_for("waiting", lab.hang_limit(20))?;
        lab.set_link(0, 1, false)?;
        loser.wait_for("lost", lab.hang_limit(60))?;
        lab.set_link(0, 1, true)?;
        loser.wait_for("back", lab.hang_limit(60))?;
        loser.wait()?.success()?;
        drop(peer);
        scif::online(lab, 0, 1)?;
    }
    Ok(())
}

/// The link goes and comes back while no work item runs on either side. The interrupt handler
/// records it.
fn flap_without_work_is_seen(lab: &Lab) -> Result<()> {
    const NODES: [usize; 2] = [0, 1];
    scif::online(lab, 0, 1)?;
    let follower = Follower::start(lab)?;
    let first = follower.nth(lab, 0)?;
    let program = scif::program("scif_hog")?;
    let mut hogs = Vec::new();
    for node in NODES {
        let hog = lab.spawn(node, [&program, "2000"])?;
        hog.wait_for("soon", lab.hang_limit(20))?;
        hogs.push(hog);
    }
    // The test can't find out when the loops have begun. If they have not begun or are done, the
    // work item of the link sees the link go down, as in `mapping_sees_link_flap`.
    thread::sleep(Duration::from_millis(500));
    let reads = |lab: &Lab| -> Result<[u64; 2]> {
        let counters = lab.counters()?;
        Ok(NODES.map(|node| counters[node].total.trapped_reads))
    };
    let before = reads(lab)?;
    lab.set_link(0, 1, false)?;
    wait_until("both are interrupted", lab.hang_limit(20), || {
        let now = reads(lab)?;
        let all = NODES.iter().all(|node| now[*node] > before[*node]);
        Ok(all.then_some(()))
    })?;
    lab.set_link(0, 1, true)?;
    for hog in hogs {
        hog.wait()?.success()?;
    }
    let mut shown = follower.nth(lab, 1)?;
    if !shown.is_online() {
        shown = follower.nth(lab, 2)?;
    }
    ensure!(
        shown.epoch == first.epoch + 2 && shown.boot_id == first.boot_id,
        "{first:?}, then {shown:?}"
    );
    drop(follower);
    scif::online(lab, 1, 0)?;
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_status::reload_changes_boot_id",
        USUAL_PAIR,
        reload_changes_boot_id,
    )
    .loses_nodes()
    .seconds(120)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_status::mapping_sees_link_flap",
        USUAL_PAIR,
        mapping_sees_link_flap,
    )
    .loses_nodes()
    .seconds(120),
    Test::new(
        "scif_status::flap_without_work_is_seen",
        USUAL_PAIR,
        flap_without_work_is_seen,
    )
    .loses_nodes()
    .seconds(120),
];
