// SPDX-License-Identifier: GPL-2.0
//! DMA engines that come and go, and several engines at once. Several processes transfer data and
//! check it (tests/programs/scif_engine.c).

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::Process;
use lab::kernel_log;
use lab::wait_until;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::need::PAIR;
use crate::scif;
use crate::scif_kernel;
use crate::scif_messages_and_rma::SCIF_PAIR;
use crate::scif_mutants;

/// A pair whose nodes have the largest number of DMA engines, without the module.
pub const FOUR_ENGINES: Need = Need {
    dma_channels: 4,
    ..PAIR
};

/// A pair without DMA engines, and without the module.
pub const NO_ENGINE: Need = Need {
    dma_channels: 0,
    ..PAIR
};

/// A pair with slow engines, and with the module.
const SLOW: Need = Need {
    // The clocks of labs run slower, so this is 50 MB for each second of a node's clock.
    engine_rate: Some(1_000_000_000),
    ..SCIF_PAIR
};

/// A pair whose engines take half a minute for the transfers of the program.
pub const CRAWLING: Need = Need {
    engine_rate: Some(2_000_000),
    ..SCIF_PAIR
};

/// Port of the program.
const PORT: &str = "2340";

/// Starts the server, which has windows on node 1 for the clients on node 0.
pub fn start_server(lab: &Lab) -> Result<Process> {
    scif::start_server(lab, 1, "scif_engine", &["server", PORT], 600)
}

/// Runs the client on node 0, and returns its output.
pub fn run_client(lab: &Lab, more: &[&str]) -> Result<String> {
    let arguments = [&["client", "1", PORT], more].concat();
    scif::run_tap(lab, 0, "scif_engine", &arguments, 240)
}

/// Starts a client on node 0 that transfers until its input ends. Returns once it transfers.
pub fn start_endless_client(lab: &Lab) -> Result<Process> {
    let program = scif::program("scif_engine")?;
    let client = lab
        .command(0, [&*program, "endless", "1", PORT])?
        .stdin_piped()
        .timeout(lab.hang_limit(240))
        .spawn()?;
    client.wait_for("under way", lab.hang_limit(120))?;
    Ok(client)
}

/// Ends the server, and waits until no process uses the module.
pub fn stop(lab: &Lab, server: Process) -> Result<()> {
    server.signal(9);
    server.wait()?;
    for node in 0..2 {
        scif::check_idle(lab, node)?;
    }
    Ok(())
}

/// Returns how often node 0 has logged since the test began that it has lost an engine.
pub fn losses_said(lab: &Lab) -> Result<usize> {
    let log = lab.dmesg(0)?;
    let losses = kernel_log::since_mark(&log)
        .lines()
        .filter(|line| line.contains("scif") && line.contains("engine") && line.contains("lost"));
    Ok(losses.count())
}

/// The engine's driver is unbound under load, and bound again. No call hangs, completed transfers
/// are right, the log has one line, and the module can be unloaded. Loaded again, it uses the
/// engine.
fn unbind_under_load_hangs_no_call(lab: &Lab) -> Result<()> {
    let device = format!("0000:00:{:02x}.0", lab::dma_slot(0));
    // Sends also the client's small sizes to the engine.
    scif::set_parameter(lab, "dma_threshold", "0")?;
    let server = start_server(lab)?;
    let before = scif::dma_bytes(lab, 0)?;
    let said = run_client(lab, &[&device, "1"])?;
    let moved: u64 = said
        .lines()
        .find_map(|line| line.strip_prefix("# dma_bytes ")?.parse().ok())
        .context("the client says nothing of dma_bytes")?;
    ensure!(moved > before, "the engine had nothing to do: {said}");
    // The engine does not answer. The module may notice only after the last transfer has gone
    // another way.
    let losses = wait_until("a word of the engine's loss", lab.hang_limit(10), || {
        Ok(Some(losses_said(lab)?).filter(|losses| *losses > 0))
    })?;
    ensure!(
        losses == 1,
        "node 0 has said {losses} times, and not once, that an engine is lost"
    );
    run_client(lab, &[&device, "2"])?;
    let losses = losses_said(lab)?;
    ensure!(
        losses <= 3,
        "node 0 has said {losses} times that an engine is lost, which it was 3 times at most"
    );

    scif::check_idle(lab, 0)?;
    lab.rmmod(0, "scif")?;
    scif::load_with(lab, 0, Loaded::LongHeartbeat, "dma_threshold=0")?;
    for (node, peer) in [(0, 1), (1, 0)] {
        scif::online(lab, node, peer)?;
    }
    run_client(lab, &[])?;
    ensure!(
        scif::dma_bytes(lab, 0)? > 0,
        "the engine is not used after all"
    );
    stop(lab, server)?;
    scif::unload_everywhere(lab)
}

/// Loads the module in both nodes with a parameter, lets node 0 transfer, and checks that `used`
/// engines have copied.
fn engines_used(lab: &Lab, parameter: &str, used: usize) -> Result<()> {
    for node in 0..2 {
        let parameters = format!("dma_threshold=0 {parameter}");
        scif::load_with(lab, node, Loaded::LongHeartbeat, &parameters)?;
    }
    for (node, peer) in [(0, 1), (1, 0)] {
        scif::online(lab, node, peer)?;
    }
    let server = start_server(lab)?;
    run_client(lab, &[])?;
    stop(lab, server)?;
    let counters = scif::counters(lab, 0)?;
    let count = |name: &str| counters.get(name).copied();
    let engines: Vec<u64> = (0..)
        .map_while(|engine| count(&format!("engine_{engine}_bytes")))
        .collect();
    ensure!(
        count("dma_channels") == Some(used as u64) && engines.len() == used,
        "'{parameter}': {counters:#?}"
    );
    ensure!(
        engines.iter().all(|&bytes| bytes > 0),
        "'{parameter}': not all engines were used: {engines:?}"
    );
    ensure!(
        count("dma_bytes") == Some(engines.iter().sum()),
        "'{parameter}': dma_bytes is not the sum of {engines:?}"
    );
    scif::unload_everywhere(lab)
}

/// Four connections at once use as many engines as the parameter allows, and as the node has.
fn connections_share_engines(lab: &Lab) -> Result<()> {
    engines_used(lab, "", 1)?;
    engines_used(lab, "dma_channels=2", 2)?;
    engines_used(lab, "dma_channels=4", 4)?;
    engines_used(lab, "dma_channels=16", 4)?;
    for bad in ["dma_channels=17", "dma_channels=-1"] {
        ensure!(
            scif::load_with(lab, 0, Loaded::LongHeartbeat, bad).is_err(),
            "{bad} is accepted"
        );
    }
    Ok(())
}

/// Runs `scif_slow` on node 0, which gives an engine much slow work.
fn run_slow(lab: &Lab, role: &str, more: &[&str]) -> Result<()> {
    let server = scif::start_server(lab, 1, "scif_slow", &["server", PORT], 600)?;
    let arguments = [&[role, "1", PORT], more].concat();
    scif::run_tap(lab, 0, "scif_slow", &arguments, 240)?;
    stop(lab, server)
}

/// An engine that moves 50 MB/s is not lost, whatever is queued. If too many signals are pending,
/// further ones wait for room.
fn slow_engine_is_not_lost(lab: &Lab) -> Result<()> {
    run_slow(lab, "slow", &[])?;
    let losses = losses_said(lab)?;
    ensure!(
        losses == 0,
        "an engine that is only slow was said to be lost"
    );
    Ok(())
}

/// No signal is stored behind a failed transfer, and every mark that stands for the transfer
/// reports the failure.
fn failed_copy_stores_no_signal(lab: &Lab) -> Result<()> {
    let device = format!("0000:00:{:02x}.0", lab::dma_slot(0));
    run_slow(lab, "fail", &[&device])
}

/// A caller that waits for room for a signal can be interrupted.
fn wait_for_room_is_interruptible(lab: &Lab) -> Result<()> {
    let device = format!("0000:00:{:02x}.0", lab::dma_slot(0));
    run_slow(lab, "interrupted", &[&device])
}

/// Lets a node "bind" or "unbind" the driver of its first engine.
pub fn engine_driver(lab: &Lab, node: usize, action: &str) -> Result<()> {
    let device = format!("0000:00:{:02x}.0", lab::dma_slot(0));
    let script = format!("echo {device} >/sys/bus/pci/drivers/plx_dma/{action}");
    lab.shell(node, &script).map(drop)
}

/// A driver is bound after the module was loaded and the link was up. Its engine copies, too.
fn late_engine_copies(lab: &Lab) -> Result<()> {
    engine_driver(lab, 0, "unbind")?;
    for node in 0..2 {
        scif::load_with(lab, node, Loaded::LongHeartbeat, "dma_threshold=0")?;
    }
    for (node, peer) in [(0, 1), (1, 0)] {
        scif::online(lab, node, peer)?;
    }
    ensure!(channels(lab)? == 0, "there is an engine already");
    engine_driver(lab, 0, "bind")?;
    wait_until("the engine", lab.hang_limit(10), || {
        Ok(Some(()).filter(|()| channels(lab).is_ok_and(|count| count == 1)))
    })?;
    let server = start_server(lab)?;
    run_client(lab, &[])?;
    stop(lab, server)?;
    ensure!(
        scif::dma_bytes(lab, 0)? > 0,
        "the engine that came later is not used"
    );
    scif::unload_everywhere(lab)
}

/// Folder of the software engine's parameters.
const TOY_PARAMETERS: &str = "/sys/module/scif_toy_engine/parameters";

/// Loads a software engine into node 0, which has no other (tests/modules/scif_toy_engine.c).
fn load_toy(lab: &Lab, parameters: &str) -> Result<()> {
    scif_kernel::load(lab, 0, "tests", "scif_toy_engine", parameters)
}

/// Returns the value of a parameter of the software engine.
fn toy_says(lab: &Lab, parameter: &str) -> Result<String> {
    let said = lab.shell(0, &format!("cat {TOY_PARAMETERS}/{parameter}"))?;
    Ok(said.trim().to_owned())
}

/// Lets the software engine reach only little memory from now on.
fn narrow_toy(lab: &Lab) -> Result<()> {
    let script = format!("echo 1 >{TOY_PARAMETERS}/narrow");
    lab.shell(0, &script).map(drop)
}

/// Loads the module with a threshold that gives engines as many copies as possible.
fn load_scif(lab: &Lab) -> Result<()> {
    for node in 0..2 {
        scif::load_with(lab, node, Loaded::LongHeartbeat, "dma_threshold=0")?;
    }
    for (node, peer) in [(0, 1), (1, 0)] {
        scif::online(lab, node, peer)?;
    }
    Ok(())
}

/// Unloads the module and the software engine.
fn unload_toy(lab: &Lab) -> Result<()> {
    scif::unload_everywhere(lab)?;
    lab.rmmod(0, "scif_toy_engine")
}

/// Returns the number of lines with a text in node 0's log since the test began.
fn lines_with(lab: &Lab, text: &str) -> Result<usize> {
    let log = lab.dmesg(0)?;
    let lines = kernel_log::since_mark(&log).lines();
    Ok(lines.filter(|line| line.contains(text)).count())
}

/// Returns the number of engines of node 0.
fn channels(lab: &Lab) -> Result<u64> {
    // The counter does not exist before the first engine.
    let counters = scif::counters(lab, 0)?;
    Ok(counters.get("dma_channels").copied().unwrap_or(0))
}

/// The module refuses a driver that reports completions falsely, and logs it.
fn false_completions_are_refused(lab: &Lab) -> Result<()> {
    for driver in ["ptdma", "ae4dma"] {
        load_toy(lab, &format!("driver={driver}"))?;
        load_scif(lab)?;
        let said = format!("DMA engines of the driver {driver} are not used");
        let count = lines_with(lab, &said)?;
        ensure!(count == 1, "{count} lines of the log have '{said}'");
        let doctor = scif::run_tool(lab, 0, &["doctor"])?.stdout();
        let said = format!("the DMA engines of {driver} are not used");
        ensure!(doctor.contains(&said), "{doctor}");
        ensure!(channels(lab)? == 0, "its channel was taken");
        unload_toy(lab)?;
    }
    Ok(())
}

/// The module does not use an engine for which it can't map memory, and logs that once.
fn unmappable_engine_is_not_used(lab: &Lab) -> Result<()> {
    load_toy(lab, "")?;
    narrow_toy(lab)?;
    load_scif(lab)?;
    let said =
        "is not used: this host's memory can't be mapped for it (ENOMEM); switch the IOMMU on";
    wait_until(said, lab.hang_limit(10), || {
        Ok(Some(()).filter(|()| lines_with(lab, said).is_ok_and(|count| count == 1)))
    })?;
    let server = start_server(lab)?;
    run_client(lab, &[])?;
    stop(lab, server)?;
    // A new session requests engines again.
    lab.rmmod(1, "scif")?;
    scif::load_with(lab, 1, Loaded::LongHeartbeat, "dma_threshold=0")?;
    scif::online(lab, 0, 1)?;
    let count = lines_with(lab, said)?;
    ensure!(count == 1, "{count} lines of the log have '{said}'");
    ensure!(channels(lab)? == 0, "its channel was taken");
    unload_toy(lab)
}

/// If an engine interrupts when it begins a copy, the module polls its status. Otherwise each copy
/// would take a second.
fn early_interrupt_is_polled(lab: &Lab) -> Result<()> {
    load_toy(lab, "early=1")?;
    load_scif(lab)?;
    let server = start_server(lab)?;
    run_client(lab, &[])?;
    stop(lab, server)?;
    ensure!(scif::dma_bytes(lab, 0)? > 0, "the toy engine is not used");
    let said = "it is polled from now on";
    let count = lines_with(lab, said)?;
    ensure!(count == 1, "{count} lines of the log have '{said}'");
    unload_toy(lab)
}

/// Lets the software engine copy much for several processes. Returns how often two of them have
/// polled its status at once.
fn ask_toy(lab: &Lab) -> Result<u64> {
    let server = start_server(lab)?;
    run_client(lab, &[])?;
    stop(lab, server)?;
    ensure!(scif::dma_bytes(lab, 0)? > 0, "the toy engine is not used");
    Ok(toy_says(lab, "overlaps")?.parse()?)
}

/// No two processes poll the status of an engine at the same time. Data in memory that the engine
/// does not reach is copied, too.
fn one_poller_for_each_engine(lab: &Lab) -> Result<()> {
    load_toy(lab, "")?;
    load_scif(lab)?;
    let overlaps = ask_toy(lab)?;
    ensure!(
        overlaps == 0,
        "two pollers have asked the engine for its status at once, {overlaps} times"
    );
    let moved = scif::dma_bytes(lab, 0)?;
    narrow_toy(lab)?;
    let server = start_server(lab)?;
    run_client(lab, &[])?;
    stop(lab, server)?;
    let more = scif::dma_bytes(lab, 0)?;
    ensure!(
        more == moved,
        "the engine has copied memory that it does not reach"
    );
    unload_toy(lab)
}

/// With a module that has several pollers for an engine, two processes poll at the same time.
pub fn several_pollers(lab: &Lab) -> Result<()> {
    load_toy(lab, "")?;
    load_scif(lab)?;
    scif_mutants::replace(lab, scif_mutants::build(lab, "several-pollers")?)?;
    scif::set_parameter(lab, "dma_threshold", "0")?;
    let overlaps = ask_toy(lab)?;
    ensure!(
        overlaps > 0,
        "pollers never ask at once with tests/mutants/several-pollers.patch, either"
    );
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_engines::unbind_under_load_hangs_no_call",
        SCIF_PAIR,
        unbind_under_load_hangs_no_call,
    )
    .seconds(480)
    .loses_engine(),
    Test::new(
        "scif_engines::slow_engine_is_not_lost",
        SLOW,
        slow_engine_is_not_lost,
    )
    .seconds(480)
    .by_name(),
    Test::new(
        "scif_engines::failed_copy_stores_no_signal",
        SLOW,
        failed_copy_stores_no_signal,
    )
    .seconds(480)
    .loses_engine()
    .by_name(),
    Test::new(
        "scif_engines::wait_for_room_is_interruptible",
        CRAWLING,
        wait_for_room_is_interruptible,
    )
    .seconds(120)
    .loses_engine()
    .by_name(),
    Test::new("scif_engines::late_engine_copies", PAIR, late_engine_copies)
        .seconds(480)
        .leaves_disorder()
        .by_name(),
    Test::new(
        "scif_engines::false_completions_are_refused",
        NO_ENGINE,
        false_completions_are_refused,
    )
    .seconds(120)
    .expects(&["are not used"])
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_engines::one_poller_for_each_engine",
        NO_ENGINE,
        one_poller_for_each_engine,
    )
    .seconds(480)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_engines::early_interrupt_is_polled",
        NO_ENGINE,
        early_interrupt_is_polled,
    )
    .seconds(480)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_engines::unmappable_engine_is_not_used",
        NO_ENGINE,
        unmappable_engine_is_not_used,
    )
    .seconds(480)
    .expects(&["is not used"])
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_engines::connections_share_engines",
        FOUR_ENGINES,
        connections_share_engines,
    )
    .seconds(480)
    .expects(&["dma_channels", "invalid for parameter"])
    .leaves_disorder()
    .by_name(),
];
