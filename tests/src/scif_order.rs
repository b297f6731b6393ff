// SPDX-License-Identifier: GPL-2.0
//! All promises of SCIF, where writes across the link arrive late and out of order, as PCI Express
//! allows (Documentation/pcie-order.rst).
//!
//! Each run uses one seed of each mode. `lab-tests --weak-order 1-100 scif_order::seeds_flat` and
//! the like run with more seeds, in one lab.

use anyhow::Result;
use anyhow::ensure;
use lab::Iommu;
use lab::Lab;
use lab::WeakOrder;
use lab::WeakOrderEngines;
use lab::Windows;

use crate::harness::Test;
use crate::need::Need;
use crate::scif_amd;
use crate::scif_arena::ARENA_PAIR;
use crate::scif_conformance;
use crate::scif_idt;
use crate::scif_messages_and_rma::SCIF_PAIR;
use crate::scif_star::SCIF_STAR;

/// Returns a pair whose writes are reordered.
const fn weak(seed: u64, engines: WeakOrderEngines, windows: Windows) -> Need {
    Need {
        weak_order: Some(WeakOrder { seed, engines }),
        windows,
        ..SCIF_PAIR
    }
}

/// Returns a pair with windows that are mapped over all of the peer's memory.
pub const fn flat(seed: u64) -> Need {
    weak(seed, WeakOrderEngines::Switch, Windows::Aperture)
}

/// Returns a pair with small windows that trap.
pub const fn bounce(seed: u64, engines: WeakOrderEngines) -> Need {
    weak(seed, engines, Windows::Trapped { size: 1 << 20 })
}

/// Returns a pair with an aperture whose windows trap, so CPU stores are delayed, too.
pub const fn arena(seed: u64) -> Need {
    Need {
        weak_order: Some(WeakOrder {
            seed,
            engines: WeakOrderEngines::Switch,
        }),
        ..ARENA_PAIR
    }
}

/// Checks that some writes have overtaken others, because otherwise the run tests nothing.
fn check_overtaken(lab: &Lab) -> Result<()> {
    for (node, counters) in lab.counters()?.iter().enumerate() {
        ensure!(
            counters.total.overtaken > 0,
            "nothing of node {node} has overtaken anything"
        );
    }
    Ok(())
}

fn conformance(lab: &Lab) -> Result<()> {
    scif_conformance::run(lab, "two")?;
    check_overtaken(lab)?;
    scif_conformance::nothing_left(lab)
}

/// Runs the cases about order and about closes. The rest of the suite takes minutes where all
/// transfers are staged, and uses the same paths.
fn staged(lab: &Lab) -> Result<()> {
    let mut options = vec!["--staged", "both"];
    scif_conformance::add_cases(&mut options, "--only", PROMISES);
    scif_conformance::run_with(lab, "two", &options)?;
    check_overtaken(lab)?;
    scif_conformance::nothing_left(lab)
}

/// Cases about order and about closes.
const PROMISES: &[&str] = &[
    "access_*", "async_*", "both_*", "close_*", "copies_*", "kill*", "mark_*", "ordered",
    "signal_*", "sync_*", "wait_*",
];

/// Cases in which one end is notified of data that the other end has written, by any path. They
/// take no more than a few seconds where each store traps.
const TOLD: &[&str] = &[
    "access_*",
    "async_*",
    "both_*",
    "close_data_stays",
    "close_peers_rma_completes",
    "close_rma_completes",
    "close_windows_released",
    "copies_all_flags",
    "copies_by_threads",
    "copies_gap",
    "copies_large",
    "copies_plain",
    "copies_span",
    "kill_unpins",
    "mark_positive",
    "poll_wakes",
    "send_both_ways",
    "send_close_wakes",
    "signal_after_own_reads",
    "signal_after_peers_data",
    "signal_both",
    "signal_four_aligned",
    "signal_init_peer",
    "signal_local",
    "signal_many",
    "signal_remote",
    "sync_*",
    "unregister_pending_signal",
    "wait_peer",
    "wait_self",
];

/// Further such cases, which take longer where each store traps.
const TOLD_AT_LENGTH: &[&str] = &[
    "close_churn",
    "close_process_ends",
    "close_simultaneous",
    "killed_peer",
    // This is a pattern, because a plain name matches all names that contain it.
    "[o]rdered",
    "poll_closed_data",
    "recv_*",
    "register_untouched",
    "register_visible_after",
    "send_all_sizes",
    "send_block_all",
    "send_largest",
    "signal_after_data",
    "unregister_in_use",
    "usecache",
    "wait_many",
    "wait_threads",
];

/// Returns the topology and the options with which the suite runs in this lab.
pub fn topology(lab: &Lab) -> (&'static str, Vec<&'static str>) {
    let topology = match lab.nodes() {
        3 => "three",
        _ => "two",
    };
    let is_bounce = lab.config().iommu == Iommu::None
        && matches!(lab.config().windows, Windows::Trapped { .. });
    match is_bounce {
        true => (topology, vec!["--staged", "both"]),
        false => (topology, Vec::new()),
    }
}

fn run_once(lab: &Lab, cases: &[&str]) -> Result<()> {
    ensure!(
        lab.config().weak_order.is_some(),
        "this is a test for orders of writes: say which, with --weak-order SEED or --weak-order 1-100"
    );
    let (topology, mut options) = topology(lab);
    scif_conformance::add_cases(&mut options, "--only", cases);
    lab.reset_counters()?;
    scif_conformance::run_with(lab, topology, &options)?;
    check_overtaken(lab)
}

/// Runs the cases that depend on the order of writes, with the lab's seed. The module stays loaded
/// for the next seed.
fn seeds(lab: &Lab) -> Result<()> {
    run_once(lab, &[TOLD, TOLD_AT_LENGTH].concat())
}

/// Runs the shorter cases, where a CPU store takes tens of microseconds.
fn seeds_trapped(lab: &Lab) -> Result<()> {
    run_once(lab, TOLD)
}

/// Runs the whole suite.
fn whole(lab: &Lab) -> Result<()> {
    run_once(lab, &[])
}

/// A pair with small windows, in any order of writes that the user chooses.
const BOUNCE: Need = Need {
    windows: Windows::Trapped { size: 1 << 20 },
    ..SCIF_PAIR
};

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_order::flat_seed_1", flat(1), conformance)
        .seconds(300)
        .leaves_disorder()
        .by_name(),
    Test::new(
        "scif_order::bounce_seed_1",
        bounce(1, WeakOrderEngines::Switch),
        staged,
    )
    .seconds(300)
    .leaves_disorder()
    .by_name(),
    Test::new("scif_order::arena_seed_1", arena(1), seeds_trapped)
        .seconds(300)
        .by_name(),
    Test::new("scif_order::seeds_flat", SCIF_PAIR, seeds)
        .seconds(300)
        .by_name(),
    Test::new("scif_order::seeds_bounce", BOUNCE, seeds_trapped)
        .seconds(300)
        .by_name(),
    Test::new("scif_order::seeds_arena", ARENA_PAIR, seeds_trapped)
        .seconds(300)
        .by_name(),
    Test::new("scif_order::seeds_idt", scif_idt::GUARDED, seeds_trapped)
        .seconds(300)
        .by_name(),
    Test::new("scif_order::seeds_amd", scif_amd::ARENA, seeds_trapped)
        .seconds(300)
        .by_name(),
    Test::new("scif_order::seeds_star", SCIF_STAR, seeds)
        .seconds(300)
        .by_name(),
    Test::new("scif_order::whole_flat", SCIF_PAIR, whole)
        .seconds(300)
        .by_name(),
    Test::new("scif_order::whole_bounce", BOUNCE, whole)
        .seconds(300)
        .by_name(),
];
