// SPDX-License-Identifier: GPL-2.0
//! No process waits for long because of the actions of another process, or because a peer does
//! nothing (tests/programs/scif_patience.c). The tests run in bounce mode, where most depends on
//! the peer.

use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::kernel_log;
use lab::wait_until;

use crate::bystander;
use crate::harness::Test;
use crate::need::Need;
use crate::promise;
use crate::scif;
use crate::scif::Server;
use crate::scif_bounce;
use crate::scif_messages_and_rma::SCIF_PAIR;
use crate::scif_mutants;
use crate::scif_star::SCIF_STAR;

const PORT: &str = "2451";

/// Limit of a call: two seconds for which an exiting process waits for its peers, and a reserve for
/// everything else.
const LIMIT_MILLISECONDS: f64 = 2800.0;

/// Returns the limit of a call, or of an exit, on this machine.
fn limit(lab: &Lab) -> Result<String> {
    let factor = promise::measure(lab, 0)?.max(1.0);
    let limit = LIMIT_MILLISECONDS * factor * f64::from(lab.slowness());
    Ok(format!("{limit:.0}"))
}

/// Four threads request signals without a pause, all of which go through slots.
fn greedy_process_delays_no_other(lab: &Lab) -> Result<()> {
    let server = scif::start_server(lab, 1, "scif_patience", &["server", PORT], 600)?;
    let arguments = ["greedy", "1", PORT, &limit(lab)?];
    bystander::beside(lab, 0, || {
        scif::run_tap(lab, 0, "scif_patience", &arguments, 240)
    })?;
    server.signal(15);
    server.wait()?;
    Ok(())
}

/// A process with many operations in flight to a hanging peer exits.
fn exit_with_hanging_peer_ends(lab: &Lab) -> Result<()> {
    let server = scif::start_server(lab, 1, "scif_patience", &["server", PORT], 600)?;
    bystander::beside(lab, 0, || exit_from_a_silent_one(lab))?;
    server.signal(15);
    server.wait()?;
    Ok(())
}

fn exit_from_a_silent_one(lab: &Lab) -> Result<()> {
    let folder = "/tmp/patience";
    lab.shell(0, &format!("rm -rf {folder}; mkdir {folder}"))?;
    let arguments = ["silent", "1", PORT, &limit(lab)?, folder];
    let client = scif::start_program(lab, 0, "scif_patience", &arguments, 600)?;
    wait_until("all ends are connected", lab.hang_limit(60), || {
        let ready = lab.exec(0, ["test", "-e", &format!("{folder}/ready")])?;
        Ok((ready.code() == Some(0)).then_some(()))
    })?;
    lab.pause(1)?;
    let told = lab.shell(0, &format!("touch {folder}/silent"));
    let ended = told.and_then(|_| client.wait());
    lab.resume(1)?;
    scif::check_tap(ended?)
}

/// A star in bounce mode.
const STAR: Need = Need {
    windows: scif_bounce::USUAL.windows,
    ..SCIF_STAR
};

/// The driver of a bridge is unbound while the peer behind another bridge hangs, with many
/// operations in flight to it.
fn unbind_beside_hanging_peer_ends(lab: &Lab) -> Result<()> {
    let link = scif::online(lab, 0, 2)?.link;
    let device = link.strip_prefix("ntb:").context("no bridge")?;
    let driver = lab.shell(
        0,
        &format!("readlink -f /sys/bus/pci/devices/{device}/driver"),
    )?;
    let driver = driver.trim();
    let server = scif::start_server(lab, 0, "scif_patience", &["server", PORT], 600)?;
    let reader = scif::start_program(lab, 1, "scif_patience", &["reader", "0", PORT], 600)?;
    reader.wait_for("reading", lab.hang_limit(60))?;
    let limit: f64 = limit(lab)?.parse()?;
    lab.pause(1)?;
    let start = Instant::now();
    let unbound = lab.shell(0, &format!("echo {device} >{driver}/unbind"));
    let took = start.elapsed();
    let seen = scif::seen(lab, 0, 1);
    lab.resume(1)?;
    unbound?;
    ensure!(
        seen?.is_some_and(|seen| seen.state == "online"),
        "the silent peer was lost meanwhile"
    );
    ensure!(
        took < Duration::from_secs_f64(limit / 1000.0),
        "unbinding took {took:?}"
    );
    lab.shell(0, &format!("echo {device} >{driver}/bind"))?;
    scif::online(lab, 0, 2)?;
    for process in [reader, server] {
        process.signal(15);
        process.wait()?;
    }
    Ok(())
}

/// A read of some MiB, and the milliseconds for which a peer waits now and then
/// (tests/hostile/slow.patch).
struct Read {
    megabytes: u32,
    waits: u32,
}

impl Read {
    /// Returns the time for which a peer may do nothing for this read.
    fn limit(&self) -> Duration {
        BASE + Duration::from_millis(250 * u64::from(self.megabytes))
    }

    /// Reads. Returns whether the read succeeded, and its time.
    fn run(&self, lab: &Lab) -> Result<(bool, Duration)> {
        let waits = self.waits.to_string();
        lab.node(1)
            .write("/sys/module/scif/parameters/push_threshold", &waits)?;
        let size = format!("{}M", self.megabytes);
        let command = ["bench", "read-bw", "1", "--dma", "--sizes", &size];
        let how = ["--warm-up", "0", "--iterations", "1", "--depth", "1"];
        let start = Instant::now();
        let output = scif::run_tool(lab, 0, &[command, how].concat())?;
        Ok((output.code() == Some(0), start.elapsed()))
    }
}

/// Log message about a peer that does nothing.
const GIVEN_UP: &str = "node 1 is lost: it has not made requested copies or emptied slots in time";

/// Time for which a peer may do nothing if no data is requested.
const BASE: Duration = Duration::from_secs(3);

/// A peer is not lost if its read takes longer than it may do nothing. A peer that does nothing is
/// lost.
fn slow(lab: &Lab, steady: &Read, least: Duration) -> Result<()> {
    let module = scif_mutants::build(lab, "slow")?;
    scif_mutants::replace(lab, module)?;
    let server = Server::start(lab, 1)?;
    let (is_read, took) = steady.run(lab)?;
    ensure!(is_read, "a slow peer was given up after {took:?}");
    ensure!(took >= least, "it was not slow: {took:?}");
    let idle = Read {
        waits: 600_000,
        ..*steady
    };
    let (is_read, took) = idle.run(lab)?;
    let log = lab.dmesg(0)?;
    ensure!(
        !is_read && kernel_log::since_mark(&log).contains(GIVEN_UP),
        "a peer that does nothing was not given up in {took:?}"
    );
    ensure!(
        took >= idle.limit() && took < idle.limit() + lab.hang_limit(5),
        "a peer that does nothing was given up after {took:?}"
    );
    drop(server);
    scif::unload_everywhere(lab)
}

/// The engine reports progress only at the end, so the limit grows with each byte.
fn slow_engine_keeps_session(lab: &Lab) -> Result<()> {
    let steady = Read {
        megabytes: 16,
        waits: 5000,
    };
    slow(lab, &steady, BASE)
}

/// Data goes through slots, and the time begins anew with each of them.
fn slow_slots_keep_session(lab: &Lab) -> Result<()> {
    let steady = Read {
        megabytes: 4,
        waits: 600,
    };
    slow(lab, &steady, steady.limit())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_patience::greedy_process_delays_no_other",
        scif_bounce::USUAL,
        greedy_process_delays_no_other,
    )
    .seconds(120),
    Test::new(
        "scif_patience::exit_with_hanging_peer_ends",
        scif_bounce::USUAL,
        exit_with_hanging_peer_ends,
    )
    .seconds(120),
    Test::new(
        "scif_patience::unbind_beside_hanging_peer_ends",
        STAR,
        unbind_beside_hanging_peer_ends,
    )
    .seconds(120)
    .by_name(),
    Test::new(
        "scif_patience::slow_engine_keeps_session",
        SCIF_PAIR,
        slow_engine_keeps_session,
    )
    .seconds(240)
    .expects(&[GIVEN_UP])
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_patience::slow_slots_keep_session",
        scif_bounce::USUAL,
        slow_slots_keep_session,
    )
    .seconds(240)
    .expects(&[GIVEN_UP])
    .leaves_disorder()
    .by_name(),
];
