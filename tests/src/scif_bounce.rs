// SPDX-License-Identifier: GPL-2.0
//! Bounce mode: the nodes have no IOMMU and trust each other with nothing but some memory that is set
//! apart; what is for other memory is staged there. And staging where an arena has no room.
//!
//! The windows trap for processors, which makes a store take microseconds; engines are as fast as ever.

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

/// A pair whose bridges have two windows of so many bytes each.
const fn pair(size: u64) -> Need {
    Need {
        windows: Windows::Trapped { size },
        device_memory: true,
        ..SCIF_PAIR
    }
}

/// The smallest aperture that there is.
pub const SMALL: Need = Need {
    append: &["scif.memory_windows=1"],
    ..pair(64 << 10)
};
pub const USUAL: Need = pair(1 << 20);

/// Windows that lead to a fixed place and are mapped, so that the processor stores there as fast as anywhere.
const MAPPED: Need = Need {
    windows: Windows::Fixed {
        base: 256 << 20,
        size: 64 << 10,
    },
    append: &["cma=64M@256M", "scif.memory_windows=1"],
    ..SCIF_PAIR
};

/// With the heartbeat that users have.
const LIVELY: Need = Need {
    scif: Loaded::AsUsual,
    ..USUAL
};

/// Without an IOMMU, and with windows that do not cover the memory, it is bounce; and it says so.
fn chosen(lab: &Lab) -> Result<()> {
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

/// Each way that data and words of it go.
fn part(lab: &Lab) -> Result<()> {
    scif_conformance::run_each_way(lab, &["--staged", "both"])
}

/// What SCIF promises, but for mappings.
pub fn conformance(lab: &Lab) -> Result<()> {
    scif_conformance::run_few_stores(lab, "two", &["--staged", "both"])?;
    scif_conformance::nothing_left(lab)
}

/// Writes 64 KiB some times; returns how many bytes of that the engine of node 0 has copied.
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

/// The engine fills slots where the administrator leaves it to engines.
fn filled_by_engine(lab: &Lab) -> Result<()> {
    let bytes = filled(lab)?;
    ensure!(bytes >= 20 << 16, "the engine has copied {bytes} bytes");
    Ok(())
}

/// The processor fills them otherwise, as they are small; and all promises hold.
fn filled_by_processor(lab: &Lab) -> Result<()> {
    let bytes = filled(lab)?;
    ensure!(bytes == 0, "the engine has copied {bytes} bytes");
    small(lab)
}

/// The engine that fills slots goes meanwhile: what it was about to copy fails, and the processor makes the next copy.
fn filled_without_engine(lab: &Lab) -> Result<()> {
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

/// All of it.
fn whole(lab: &Lab) -> Result<()> {
    scif_conformance::run_with(lab, "two", &["--staged", "both"])?;
    scif_conformance::nothing_left(lab)
}

/// In 64 KiB rings begin with 64 bytes, too few for cases in which much is sent before anybody
/// receives. What goes through slots is there: windows, transfers, fences.
fn small(lab: &Lab) -> Result<()> {
    run_small(lab, scif_conformance::EACH_WAY)
}

/// All else, too: connections, processes.
fn small_whole(lab: &Lab) -> Result<()> {
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

/// Who has a bridge in his hands.
const ATTACKER: usize = 1;
const VICTIM: usize = 0;
const PORT: &str = "2402";

/// It reaches what is set apart and nothing else, while windows come and go.
fn attack(lab: &Lab) -> Result<()> {
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

/// Nobody has said that the peer is trusted: it is not flat, though it could be. One way it is.
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

/// Who has many connections leaves room for the rings of others, at both ends.
fn fair(lab: &Lab) -> Result<()> {
    for node in 0..lab.nodes() {
        lab.shell(node, "chmod 666 /dev/scif")?;
    }
    let serve = |port, user| {
        let arguments = ["server", port, user];
        scif::start_server(lab, 1, "scif_fair", &arguments, 240)
    };
    // The users of the program.
    let servers = [serve("2351", "65534")?, serve("2352", "65533")?];
    scif::run_tap(lab, 0, "scif_fair", &["rings", "1", "2351", "2352"], 240)?;
    servers.iter().for_each(|server| server.kill());
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_bounce::chosen", USUAL, chosen),
    Test::new("scif_bounce::filled_by_engine", USUAL, filled_by_engine),
    Test::new(
        "scif_bounce::filled_by_processor",
        MAPPED,
        filled_by_processor,
    )
    .seconds(300)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_bounce::filled_without_engine",
        USUAL,
        filled_without_engine,
    )
    .seconds(180)
    .loses_engine()
    .by_name(),
    Test::new("scif_bounce::fair", USUAL, fair).seconds(240),
    Test::new("scif_bounce::attack", USUAL, attack).seconds(120),
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
    Test::new("scif_bounce::small", SMALL, small)
        .seconds(300)
        .leaves_disorder()
        .by_name(),
    Test::new("scif_bounce::small_whole", SMALL, small_whole)
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
        "scif_bounce::kill_receiver",
        LIVELY,
        scif_node_loss::kill_receiver,
    )
    .loses_nodes()
    .seconds(180)
    .by_name(),
    Test::new(
        "scif_bounce::kill_sender",
        LIVELY,
        scif_node_loss::kill_sender,
    )
    .loses_nodes()
    .seconds(180)
    .by_name(),
];
