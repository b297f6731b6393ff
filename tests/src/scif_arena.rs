// SPDX-License-Identifier: GPL-2.0
//! Arena mode: the nodes have an IOMMU that translates for the bridge. Its windows lead to a range
//! of I/O addresses of 16 MiB. All features of flat mode work.
//!
//! Stores of the CPU to the windows trap, so a store takes microseconds. Engines are as fast as
//! ever.

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Flavour;
use lab::Iommu;
use lab::Lab;
use lab::Loot;
use lab::Process;
use lab::RaidWrites;
use lab::Windows;
use lab::wait_until;

use crate::bystander;
use crate::harness::Test;
use crate::need::Need;
use crate::scif;
use crate::scif_conformance;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Bytes of a memory window.
const WINDOW: u64 = 16 << 20;

/// Bytes of the aperture, which consists of two windows.
const APERTURE: u64 = 2 * WINDOW;

/// A pair in arena mode.
pub const ARENA_PAIR: Need = Need {
    iommu: Iommu::Bridges,
    windows: Windows::Trapped { size: WINDOW },
    device_memory: true,
    ..SCIF_PAIR
};

/// Both nodes see the other's aperture, and log the reason for its mode.
fn arena_is_chosen(lab: &Lab) -> Result<()> {
    for node in 0..lab.nodes() {
        let wanted = [
            ("state", "up"),
            ("aperture", "arena"),
            ("aperture_bytes", &APERTURE.to_string()),
            ("own_aperture", "arena"),
            ("own_bytes", &APERTURE.to_string()),
            ("own_windows", "0"),
            (
                "own_reason",
                r"an\040IOMMU\040translates\040for\040the\040bridge",
            ),
        ];
        scif::check_link(lab, node, &wanted)?;
    }
    Ok(())
}

/// Runs cases for each path of data and words.
fn part(lab: &Lab) -> Result<()> {
    scif_conformance::run_each_way(lab, &[])
}

/// Runs the conformance suite, without the cases of many stores.
pub fn conformance(lab: &Lab) -> Result<()> {
    scif_conformance::run_few_stores(lab, "two", &[])?;
    scif_conformance::nothing_left(lab)
}

/// Returns the number of windows that come and go while the peer searches for memory that it must
/// not see.
fn windows(lab: &Lab) -> &'static str {
    match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => "1000",
        Flavour::Debug | Flavour::Kcsan => "1500",
    }
}

/// A number of windows that takes a minute and a half.
const MANY_WINDOWS: &str = "10000";

/// The node that controls a bridge.
const ATTACKER: usize = 1;
const VICTIM: usize = 0;
/// Port on which the attacker's program listens, so that it has a connection.
const PORT: &str = "2401";

/// Checks that the attacker reaches exactly the pages of the rings.
pub fn only_rings(lab: &Lab, when: &str) -> Result<()> {
    let loot = lab.raid(ATTACKER, VICTIM, RaidWrites::Nothing)?;
    let links = scif::table(lab, VICTIM, "links")?;
    let link = links
        .iter()
        .find(|link| link["link"].starts_with("ntb:"))
        .context("there is no link")?;
    let rings: u64 = link["own_rings"].parse()?;
    ensure!(
        link["own_windows"] == "0" && loot.read * 4096 == rings && rings > 0,
        "{when}: {loot:?}, but {link:?}"
    );
    Ok(())
}

/// Starts programs that register memory on the victim's side and unregister it, `count` times.
///
/// Returns the attacker's program, which ends when it gets a signal, and the victim's program.
fn start_windows(lab: &Lab, count: &str) -> Result<(Process, Process)> {
    let server = scif::start_server(lab, ATTACKER, "scif_hidden", &["server", PORT], 600)?;
    let attacker = ATTACKER.to_string();
    let arguments = ["client", &attacker, PORT, count];
    let client = scif::start_program(lab, VICTIM, "scif_hidden", &arguments, 400)?;
    Ok((server, client))
}

/// Lets windows come and go without an attack.
fn come_and_go(lab: &Lab, count: &str) -> Result<()> {
    let (server, client) = start_windows(lab, count)?;
    let result = scif::check_tap(client.wait()?);
    server.signal(15);
    server.wait()?;
    result.map(drop)
}

/// An attacker reads all memory that it reaches, and writes to all windows that it finds, while
/// windows come and go. It never finds other memory.
fn attacker_reaches_only_aperture(lab: &Lab) -> Result<()> {
    attack_among(lab, windows(lab))
}

/// Runs a longer attack.
pub fn long_attack_reaches_only_aperture(lab: &Lab) -> Result<()> {
    attack_among(lab, MANY_WINDOWS)
}

fn attack_among(lab: &Lab, windows: &str) -> Result<()> {
    only_rings(lab, "before")?;
    let (server, client) = start_windows(lab, windows)?;
    let (mut loot, mut raids) = (Loot::default(), 0);
    bystander::beside(lab, VICTIM, || {
        while client.is_running() {
            let found = lab.raid(ATTACKER, VICTIM, RaidWrites::Public)?;
            loot = loot.plus(found);
            raids += 1;
            ensure!(
                found.secret == 0,
                "raid {raids} has found a secret: {found:?}"
            );
        }
        Ok(())
    })?;
    scif::check_tap(client.wait()?)?;
    // A working attacker sees many windows, and fails to write to read-only ones.
    ensure!(
        raids > 10 && loot.public > 100 && loot.written > 20 && loot.refused > 20,
        "{raids} raids have found too little: {loot:?}"
    );
    server.signal(15);
    server.wait()?;
    wait_until("the windows are gone", lab.hang_limit(20), || {
        Ok(only_rings(lab, "after").ok())
    })
}

/// An attacker that overwrites all memory that it reaches, while it is in use, ends sessions, and
/// does nothing else.
fn overwriting_ends_only_sessions(lab: &Lab) -> Result<()> {
    let (server, client) = start_windows(lab, windows(lab))?;
    let mut loot = Loot::default();
    bystander::beside(lab, VICTIM, || {
        while client.is_running() {
            loot = loot.plus(lab.raid(ATTACKER, VICTIM, RaidWrites::Everything)?);
        }
        Ok(())
    })?;
    server.signal(15);
    server.wait()?;
    // The client has lost its peer, and has no other error.
    let said = client.wait()?;
    ensure!(
        !said.stdout().contains("not ok") && said.success().is_err(),
        "it was not disturbed: {loot:?}"
    );
    ensure!(loot.written > 0 && loot.secret == 0, "{loot:?}");
    let condition = "the nodes talk to each other again";
    wait_until(condition, lab.hang_limit(60), || {
        Ok(come_and_go(lab, "20").ok())
    })
}

/// If there is no room in the aperture, the module logs this, and a window is reached by staging.
/// Everything else goes on.
fn full_aperture_falls_back(lab: &Lab) -> Result<()> {
    let server = scif::start_server(lab, ATTACKER, "scif_full", &["server", PORT], 600)?;
    let attacker = ATTACKER.to_string();
    let arguments = ["client", &attacker, PORT];
    bystander::beside(lab, VICTIM, || {
        scif::run_tap(lab, VICTIM, "scif_full", &arguments, 120)
    })?;
    server.signal(15);
    server.wait()?;
    let log = lab.dmesg(VICTIM)?;
    let words = "is full: no 1024 KiB in one piece are left of 32768 KiB, of which windows hold";
    ensure!(
        log.contains(words),
        "the log does not say how full it is:\n{log}"
    );
    Ok(())
}

/// The device is removed, with its group and its I/O addresses. A process still has a connection
/// whose ring was there, and closes it later.
fn device_removed_while_connected(lab: &Lab) -> Result<()> {
    let server = scif::start_server(lab, ATTACKER, "scif_hidden", &["server", PORT], 600)?;
    let attacker = ATTACKER.to_string();
    let holder = scif::start_program(lab, VICTIM, "scif_hidden", &["hold", &attacker, PORT], 120)?;
    holder.wait_for("holding", lab.hang_limit(20))?;
    let device = "0000:00:05.0";
    let unbind = format!("echo {device} >/sys/bus/pci/drivers/ntb_hw_intel/unbind");
    lab.shell(VICTIM, &unbind)?;
    lab.shell(
        VICTIM,
        &format!("echo 1 >/sys/bus/pci/devices/{device}/remove"),
    )?;
    holder.signal(9);
    holder.wait()?;
    server.signal(15);
    server.wait()?;
    scif::check_idle(lab, VICTIM)
}

/// A pair whose node 0 has an IOMMU, and node 1 has none. Each direction of the link has its own
/// mode.
const MIXED_PAIR: Need = Need {
    iommu: Iommu::First,
    windows: Windows::Mixed,
    ..SCIF_PAIR
};

/// Both nodes show the mode in which they are reached, and the mode in which they reach the other.
fn mixed_modes_are_shown(lab: &Lab) -> Result<()> {
    for (node, theirs, own) in [(0, "flat", "arena"), (1, "arena", "flat")] {
        let links = scif::table(lab, node, "links")?;
        ensure!(
            links
                .iter()
                .any(|link| link["aperture"] == theirs && link["own_aperture"] == own),
            "node {node}: {links:#?}"
        );
    }
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_arena::arena_is_chosen", ARENA_PAIR, arena_is_chosen),
    Test::new(
        "scif_arena::attacker_reaches_only_aperture",
        ARENA_PAIR,
        attacker_reaches_only_aperture,
    )
    .seconds(400),
    Test::new(
        "scif_arena::long_attack_reaches_only_aperture",
        ARENA_PAIR,
        long_attack_reaches_only_aperture,
    )
    .seconds(400)
    .by_name(),
    Test::new(
        "scif_arena::overwriting_ends_only_sessions",
        ARENA_PAIR,
        overwriting_ends_only_sessions,
    )
    .seconds(60)
    .expects(&["is lost: "]),
    Test::new(
        "scif_arena::full_aperture_falls_back",
        ARENA_PAIR,
        full_aperture_falls_back,
    )
    .expects(&["is full: no 1024 KiB"]),
    Test::new("scif_arena::part", ARENA_PAIR, part)
        .seconds(120)
        .leaves_disorder(),
    Test::new("scif_arena::conformance", ARENA_PAIR, conformance)
        .seconds(300)
        .leaves_disorder()
        .by_name(),
    Test::new("scif_arena::whole", ARENA_PAIR, scif_conformance::two)
        .seconds(900)
        .leaves_disorder()
        .by_name(),
    Test::new(
        "scif_arena::device_removed_while_connected",
        ARENA_PAIR,
        device_removed_while_connected,
    )
    .destroys(),
    Test::new(
        "scif_arena::mixed_modes_are_shown",
        MIXED_PAIR,
        mixed_modes_are_shown,
    )
    .by_name(),
    Test::new("scif_arena::mixed_conformance", MIXED_PAIR, conformance)
        .seconds(300)
        .leaves_disorder()
        .by_name(),
    Test::new("scif_arena::mixed_whole", MIXED_PAIR, scif_conformance::two)
        .seconds(900)
        .leaves_disorder()
        .by_name(),
];
