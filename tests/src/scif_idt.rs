// SPDX-License-Identifier: GPL-2.0
//! SCIF over an emulated IDT switch. Hellos are sent by messages, and both sides share one doorbell
//! register. The node that uses a window sets its translation, so only the IOMMU keeps a peer out.

use anyhow::Result;
use anyhow::ensure;
use lab::Iommu;
use lab::Lab;
use lab::Personality;
use lab::Windows;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::scif;
use crate::scif_arena;
use crate::scif_arena::ARENA_PAIR;
use crate::scif_conformance;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// A pair behind IOMMUs.
pub const GUARDED: Need = Need {
    personality: Personality::Idt,
    ..ARENA_PAIR
};

/// A pair without IOMMUs, whose windows are smaller than memory, and on which nothing is loaded.
pub const UNGUARDED: Need = Need {
    iommu: Iommu::None,
    windows: Windows::Trapped { size: 1 << 20 },
    scif: Loaded::No,
    ..GUARDED
};

/// A pair behind IOMMUs without interrupt remapping, on which nothing is loaded.
const UNMAPPED_INTERRUPTS: Need = Need {
    append: &["intremap=off"],
    scif: Loaded::No,
    ..GUARDED
};

/// A pair whose windows cover all memory.
const FLAT: Need = Need {
    personality: Personality::Idt,
    ..SCIF_PAIR
};

/// Checks each node's table of links for the entry of the other node.
pub fn check_links(lab: &Lab, wanted: &[(&str, &str)]) -> Result<()> {
    for node in 0..lab.nodes() {
        scif::check_link(lab, node, wanted)?;
    }
    Ok(())
}

/// Ports 0 and 2 are nodes 0 and 1. Each side listens to half of the doorbells.
fn ports_become_node_ids(lab: &Lab) -> Result<()> {
    check_links(
        lab,
        &[
            ("state", "up"),
            ("aperture", "arena"),
            ("own_aperture", "arena"),
            ("own_guarded", "yes"),
            ("doorbells", "0xffff"),
        ],
    )
}

/// Pings node 1 from node 0.
fn ping(lab: &Lab) -> Result<()> {
    let server = scif::Server::start(lab, 1)?;
    scif::run_tool(lab, 0, &["ping", "1", "-c", "5", "-i", "0", "-s", "4095"])?.success()?;
    server.stop()
}

/// An attacker that sets the windows reaches rings and nothing else, before a program has started
/// and after it has ended.
fn attacker_reaches_only_rings(lab: &Lab) -> Result<()> {
    scif_arena::only_rings(lab, "before")?;
    ping(lab)?;
    scif_arena::only_rings(lab, "afterwards")
}

/// After the link fails and after a module is reloaded, a new session begins.
pub fn new_session_after_loss(lab: &Lab) -> Result<()> {
    lab.set_link(0, 1, false)?;
    scif::state(lab, 0, 1, "lost", lab.hang_limit(10))?;
    scif::state(lab, 1, 0, "lost", lab.hang_limit(10))?;
    lab.set_link(0, 1, true)?;
    both_online(lab)?;
    for node in [1, 0] {
        lab.rmmod(node, "scif")?;
        scif::state(lab, 1 - node, node, "lost", lab.hang_limit(10))?;
        scif::load(lab, node, Loaded::LongHeartbeat)?;
        both_online(lab)?;
    }
    ping(lab)
}

/// Waits until both nodes see each other online.
pub fn both_online(lab: &Lab) -> Result<()> {
    scif::online(lab, 0, 1)?;
    scif::online(lab, 1, 0)?;
    Ok(())
}

/// Without an IOMMU all modes are as open as flat mode, so the administrator has to allow them.
fn unguarded_needs_permission(lab: &Lab) -> Result<()> {
    for (node, mode) in [(0, "auto"), (1, "bounce")] {
        let parameters = format!("allow_flat=0 aperture={mode}");
        scif::load_with(lab, node, Loaded::LongHeartbeat, &parameters)?;
    }
    for node in 0..2 {
        lab::wait_until("the reason in the log", lab.hang_limit(20), || {
            let log = lab.dmesg(node)?;
            let reason = "sets where the windows of this bridge lead";
            Ok(lab::kernel_log::since_mark(&log)
                .contains(reason)
                .then_some(()))
        })?;
    }
    let output = scif::run_tool(lab, 0, &["doctor"])?.stdout();
    ensure!(
        output.contains("the other host sets where its windows lead")
            && output.contains("allow_flat=1"),
        "{output}"
    );
    scif::unload_everywhere(lab)?;
    scif::load_everywhere(lab, Loaded::LongHeartbeat)?;
    check_links(lab, &[("own_aperture", "bounce"), ("own_guarded", "no")])?;
    let text = scif::run_tool(lab, 0, &["nodes", "--verbose"])?
        .success()?
        .stdout();
    ensure!(
        text.contains("node 1 reaches all memory of this machine, as it sets the targets"),
        "{text}"
    );
    ping(lab)?;
    scif::unload_everywhere(lab)
}

/// An IOMMU that lets the bridge raise any interrupt does not protect a node, so the module needs
/// permission.
fn open_interrupts_need_permission(lab: &Lab) -> Result<()> {
    for node in 0..2 {
        scif::load_with(lab, node, Loaded::LongHeartbeat, "allow_flat=0")?;
    }
    for node in 0..2 {
        lab::wait_until("the reason in the log", lab.hang_limit(20), || {
            let log = lab.dmesg(node)?;
            let reason = "nothing keeps it from raising any interrupt of this machine";
            Ok(lab::kernel_log::since_mark(&log)
                .contains(reason)
                .then_some(()))
        })?;
    }
    let output = scif::run_tool(lab, 0, &["doctor"])?.stdout();
    ensure!(output.contains("switch interrupt remapping on"), "{output}");
    scif::unload_everywhere(lab)?;
    scif::load_everywhere(lab, Loaded::LongHeartbeat)?;
    check_links(lab, &[("own_aperture", "arena"), ("own_guarded", "no")])?;
    ping(lab)?;
    scif::unload_everywhere(lab)
}

/// With windows over all memory the module chooses flat mode.
fn flat_is_chosen(lab: &Lab) -> Result<()> {
    check_links(
        lab,
        &[
            ("aperture", "flat"),
            ("own_aperture", "flat"),
            ("own_guarded", "no"),
        ],
    )?;
    ping(lab)
}

/// Runs cases for each path through the bridge: messages, copies, fences, signals, closes. The
/// whole suite would take minutes, as every store traps.
pub fn part(lab: &Lab) -> Result<()> {
    let mut options = Vec::new();
    for cases in [
        "async_*",
        "close_*",
        "connect_*",
        "copies_*",
        "kill*",
        "mark_*",
        "ordered",
        "signal_*",
        "sync_*",
        "wait_*",
    ] {
        options.extend(["--only", cases]);
    }
    scif_conformance::run_with(lab, "two", &options)?;
    scif_conformance::nothing_left(lab)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_idt::ports_become_node_ids",
        GUARDED,
        ports_become_node_ids,
    ),
    Test::new(
        "scif_idt::attacker_reaches_only_rings",
        GUARDED,
        attacker_reaches_only_rings,
    )
    .seconds(60),
    Test::new(
        "scif_idt::long_attack_reaches_only_aperture",
        GUARDED,
        scif_arena::long_attack_reaches_only_aperture,
    )
    .seconds(400)
    .by_name(),
    Test::new(
        "scif_idt::new_session_after_loss",
        GUARDED,
        new_session_after_loss,
    )
    .seconds(60)
    .expects(&["is lost: "])
    .leaves_disorder(),
    Test::new("scif_idt::part", GUARDED, part)
        .seconds(120)
        .leaves_disorder()
        .by_name(),
    Test::new("scif_idt::conformance", GUARDED, scif_conformance::two)
        .seconds(300)
        .leaves_disorder()
        .by_name(),
    Test::new(
        "scif_idt::unguarded_needs_permission",
        UNGUARDED,
        unguarded_needs_permission,
    )
    .seconds(60)
    .expects(&["sets where the windows of this bridge lead"])
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_idt::open_interrupts_need_permission",
        UNMAPPED_INTERRUPTS,
        open_interrupts_need_permission,
    )
    .seconds(60)
    .expects(&["sets where the windows of this bridge lead"])
    .leaves_disorder()
    .by_name(),
    Test::new("scif_idt::flat_is_chosen", FLAT, flat_is_chosen)
        .seconds(60)
        .by_name(),
];
