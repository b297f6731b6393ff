// SPDX-License-Identifier: GPL-2.0
//! Bounce mode: the nodes have no IOMMU, and share only some memory that is set apart. Data for
//! other memory is staged in it. Some tests are about staging in an arena that has no room.
//!
//! Stores of the CPU to the windows trap, so a store takes microseconds. Engines are as fast as
//! ever.

use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::RaidWrites;
use lab::Windows;

use crate::bystander;
use crate::harness::Test;
use crate::heartbeat;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::scif;
use crate::scif_conformance;
use crate::scif_engines;
use crate::scif_messages_and_rma::SCIF_PAIR;
use crate::scif_node_loss;

/// Returns a pair whose bridges have two windows of `size` bytes each.
const fn pair(size: u64) -> Need {
    Need {
        windows: Windows::Trapped { size },
        device_memory: true,
        ..SCIF_PAIR
    }
}

/// A pair with the smallest possible aperture.
pub const SMALL: Need = Need {
    append: &["scif.memory_windows=1"],
    ..pair(64 << 10)
};
pub const USUAL: Need = pair(1 << 20);

/// A pair with windows that lead to a fixed place and are mapped, so CPU stores to them are as fast
/// as to memory.
const MAPPED: Need = Need {
    windows: Windows::Fixed {
        base: 256 << 20,
        size: 64 << 10,
    },
    append: &["cma=64M@256M", "scif.memory_windows=1"],
    ..SCIF_PAIR
};

/// A pair with the default heartbeat.
const LIVELY: Need = Need {
    scif: Loaded::AsUsual,
    ..USUAL
};

/// Without an IOMMU, and with windows that do not cover the memory, the module chooses bounce mode
/// and logs it.
fn bounce_is_chosen(lab: &Lab) -> Result<()> {
    for node in 0..lab.nodes() {
        scif::check_link(
            lab,
            node,
            &[
                ("state", "up"),
                ("aperture", "bounce"),
                ("aperture_bytes", "2097152"),
                ("own_aperture", "bounce"),
                ("own_bytes", "2097152"),
                (
                    "own_reason",
                    r"no\040memory\040windows\040cover\040the\040memory\040of\040this\040machine",
                ),
            ],
        )?;
    }
    Ok(())
}

/// Runs cases for each path of data and words.
fn part(lab: &Lab) -> Result<()> {
    scif_conformance::run_each_way(lab, &["--staged", "both"])
}

/// Runs the conformance suite, except for mappings.
pub fn conformance(lab: &Lab) -> Result<()> {
    scif_conformance::run_few_stores(lab, "two", &["--staged", "both"])?;
    scif_conformance::nothing_left(lab)
}

/// Writes 64 KiB some times. Returns the number of bytes that the engine of node 0 has copied.
fn filled(lab: &Lab) -> Result<u64> {
    let server = scif::Server::start(lab, 1)?;
    let before = scif::dma_bytes(lab, 0)?;
    let copies = [
        "bench",
        "write-bw",
        "1",
        "--sizes",
        "64K",
        "--iterations",
        "20",
    ];
    scif::run_tool(lab, 0, &copies)?.success()?;
    server.stop()?;
    Ok(scif::dma_bytes(lab, 0)? - before)
}

/// The engine fills slots if the administrator leaves such copies to engines.
fn engine_fills_slots(lab: &Lab) -> Result<()> {
    let bytes = filled(lab)?;
    ensure!(bytes >= 20 << 16, "the engine has copied {bytes} bytes");
    Ok(())
}

/// Without this setting the CPU fills slots, as they are small, and all promises hold.
fn cpu_fills_slots_by_default(lab: &Lab) -> Result<()> {
    let bytes = filled(lab)?;
    ensure!(bytes == 0, "the engine has copied {bytes} bytes");
    small_aperture_transfers(lab)
}

/// The engine that fills slots is lost meanwhile. Its pending copy fails, and the CPU makes the
/// next copy.
fn cpu_fills_after_engine_loss(lab: &Lab) -> Result<()> {
    let server = scif::Server::start(lab, 1)?;
    let hash = scif::make_file(lab, "large", 64 << 20)?;
    let start = scif::dma_bytes(lab, 0)?;
    let copy = scif::start_tool(lab, 0, &["cp", "-q", "/exchange/large", "1:copy"])?;
    lab::wait_until("a part of the file has arrived", lab.hang_limit(60), || {
        ensure!(copy.is_running(), "it has ended: {}", copy.stderr());
        Ok((scif::dma_bytes(lab, 0)? > start).then_some(()))
    })?;
    scif_engines::engine_driver(lab, 0, "unbind")?;
    ensure!(
        copy.is_running(),
        "the copy was over before: {}",
        copy.stderr()
    );
    copy.wait()?;
    let small = scif::make_file(lab, "small", 1 << 20)?;
    scif::run_tool(lab, 0, &["cp", "-q", "/exchange/small", "1:small"])?.success()?;
    ensure!(scif::hash_of(&server.folder.join("small"))? == small);
    scif_engines::engine_driver(lab, 0, "bind")?;
    scif::run_tool(lab, 0, &["cp", "-q", "/exchange/large", "1:again"])?.success()?;
    ensure!(scif::hash_of(&server.folder.join("again"))? == hash);
    server.stop()
}

/// Runs the whole conformance suite.
fn whole(lab: &Lab) -> Result<()> {
    scif_conformance::run_with(lab, "two", &["--staged", "both"])?;
    scif_conformance::nothing_left(lab)
}

/// In an aperture of 64 KiB rings begin with 64 bytes, which is too small for cases that send much
/// before the peer receives. So this runs the cases that use slots: windows, transfers, fences.
fn small_aperture_transfers(lab: &Lab) -> Result<()> {
    run_small(lab, scif_conformance::EACH_WAY)
}

/// Runs the other cases, too: connections and processes.
fn small_aperture_whole(lab: &Lab) -> Result<()> {
    run_small(
        lab,
        &[
            "accept_*",
            "connect_*",
            "nonblock_*",
            "register_*",
            "memlock_*",
            "unregister_*",
            "copies_*",
            "access_*",
            "v_*",
            "ordered",
            "async_*",
            "sync_*",
            "usecache*",
            "both_*",
            "mark_*",
            "wait_*",
            "signal_[!a]*",
            "mmap_*",
            "fork_*",
            "exec_*",
            "kill*",
            "child_*",
            "poll_*",
            "recv_nonblock",
            "send_both_ways",
            "send_reset*",
        ],
    )
}

fn run_small(lab: &Lab, cases: &[&str]) -> Result<()> {
    let mut options = vec!["--staged", "both"];
    scif_conformance::add_cases(&mut options, "--only", cases);
    scif_conformance::run_few_stores(lab, "two", &options)?;
    scif_conformance::nothing_left(lab)
}

/// The node that controls a bridge.
const ATTACKER: usize = 1;
const VICTIM: usize = 0;
const PORT: &str = "2402";

/// The attacker reaches only the memory that is set apart, while windows come and go.
fn attacker_reaches_only_aperture(lab: &Lab) -> Result<()> {
    let server = scif::start_server(lab, ATTACKER, "scif_hidden", &["server", PORT], 600)?;
    let attacker = ATTACKER.to_string();
    let rounds = ["client", &attacker, PORT, "300"];
    let client = scif::start_program(lab, VICTIM, "scif_hidden", &rounds, 400)?;
    let mut raids = 0;
    bystander::beside(lab, VICTIM, || {
        while client.is_running() {
            let found = lab.raid(ATTACKER, VICTIM, RaidWrites::Public)?;
            raids += 1;
            ensure!(
                found.read * 4096 == 2 << 20 && found.secret == 0 && found.public == 0,
                "raid {raids}: {found:?}"
            );
        }
        Ok(())
    })?;
    scif::check_tap(client.wait()?)?;
    ensure!(raids > 3, "there was no time for more than {raids} raids");
    server.signal(15);
    server.wait()?;
    Ok(())
}

/// Without a statement that the peer is trusted, the module does not choose flat mode, though it
/// could. With a statement on one side, one direction is flat.
fn flat_one_way(lab: &Lab) -> Result<()> {
    let heartbeat = heartbeat::parameter(lab, 0, Loaded::LongHeartbeat)?;
    lab.insmod(0, scif::module(lab)?, &heartbeat)?;
    scif::load(lab, 1, Loaded::LongHeartbeat)?;
    scif::online(lab, 0, 1)?;
    scif::online(lab, 1, 0)?;
    scif::check_link(lab, 0, &[("own_aperture", "bounce"), ("aperture", "flat")])?;
    scif::check_link(lab, 1, &[("own_aperture", "flat"), ("aperture", "bounce")])?;
    // Node 0 reaches the windows of node 1, which its cases map.
    scif_conformance::run_few_stores(lab, "two", &["--staged", "here"])?;
    scif_conformance::nothing_left(lab)
}

/// Signals interrupt no copy that waits for room to ask its peer, nor one that waits behind it.
fn signals_interrupt_no_copy(lab: &Lab) -> Result<()> {
    let server = scif::start_server(lab, 1, "scif_copy_signals", &["server", "2353"], 240)?;
    let program = scif::program("scif_copy_signals")?;
    let client = lab.command(0, [&program, "client", "1", "2353"])?;
    let client = client.stdin_piped().spawn()?;
    client.wait_for("connected", lab.hang_limit(20))?;
    lab.pause(1)?;
    let copies = client
        .write(b"\n")
        .and_then(|()| client.wait_for("done", lab.hang_limit(60)));
    lab.resume(1)?;
    client.wait()?.success()?;
    copies?;
    server.kill();
    Ok(())
}

/// A process with many connections leaves room for the rings of others, at both ends.
fn rings_remain_for_others(lab: &Lab) -> Result<()> {
    for node in 0..lab.nodes() {
        lab.shell(node, "chmod 666 /dev/scif")?;
    }
    let serve = |port, user| {
        let arguments = ["server", port, user];
        scif::start_server(lab, 1, "scif_fair", &arguments, 240)
    };
    // The program runs as these users.
    let servers = [serve("2351", "65534")?, serve("2352", "65533")?];
    scif::run_tap(lab, 0, "scif_fair", &["rings", "1", "2351", "2352"], 240)?;
    servers.iter().for_each(|server| server.kill());
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_bounce::bounce_is_chosen", USUAL, bounce_is_chosen),
    Test::new("scif_bounce::engine_fills_slots", USUAL, engine_fills_slots),
    Test::new(
        "scif_bounce::cpu_fills_slots_by_default",
        MAPPED,
        cpu_fills_slots_by_default,
    )
    .seconds(300)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_bounce::cpu_fills_after_engine_loss",
        USUAL,
        cpu_fills_after_engine_loss,
    )
    .seconds(180)
    .loses_engine()
    .by_name(),
    Test::new(
        "scif_bounce::rings_remain_for_others",
        USUAL,
        rings_remain_for_others,
    )
    .seconds(240),
    Test::new(
        "scif_bounce::signals_interrupt_no_copy",
        USUAL,
        signals_interrupt_no_copy,
    ),
    Test::new(
        "scif_bounce::attacker_reaches_only_aperture",
        USUAL,
        attacker_reaches_only_aperture,
    )
    .seconds(120),
    Test::new("scif_bounce::part", USUAL, part)
        .seconds(120)
        .leaves_disorder(),
    Test::new("scif_bounce::conformance", USUAL, conformance)
        .seconds(300)
        .leaves_disorder()
        .by_name(),
    Test::new("scif_bounce::whole", USUAL, whole)
        .seconds(900)
        .leaves_disorder()
        .by_name(),
    Test::new(
        "scif_bounce::small_aperture_transfers",
        SMALL,
        small_aperture_transfers,
    )
    .seconds(300)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_bounce::small_aperture_whole",
        SMALL,
        small_aperture_whole,
    )
    .seconds(300)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_bounce::flat_one_way",
        Need {
            windows: Windows::Mixed,
            scif: Loaded::No,
            ..SCIF_PAIR
        },
        flat_one_way,
    )
    .seconds(300)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_bounce::copy_fails_if_receiver_dies",
        LIVELY,
        scif_node_loss::copy_fails_if_receiver_dies,
    )
    .loses_nodes()
    .seconds(180)
    .by_name(),
    Test::new(
        "scif_bounce::copy_fails_if_sender_dies",
        LIVELY,
        scif_node_loss::copy_fails_if_sender_dies,
    )
    .loses_nodes()
    .seconds(180)
    .by_name(),
];
