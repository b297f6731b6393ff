// SPDX-License-Identifier: GPL-2.0
//! Nobody waits for long because of what another process does, or a peer does not
//! (tests/programs/scif_patience.c): in bounce mode, where most is up to the peer.

use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::wait_until;

use crate::harness::Test;
use crate::need::Need;
use crate::promise;
use crate::scif;
use crate::scif_bounce;
use crate::scif_star::SCIF_STAR;

const PORT: &str = "2451";

/// Two seconds, in which a process that exits waits for its peers, and some for all else.
const LIMIT_MILLISECONDS: f64 = 2800.0;

/// What a call, or an exit, may take on this machine.
fn limit(lab: &Lab) -> Result<String> {
    let factor = promise::measure(lab, 0)?.max(1.0);
    let limit = LIMIT_MILLISECONDS * factor * f64::from(lab.slowness());
    Ok(format!("{limit:.0}"))
}

/// Four threads give signals without a pause, all of which go through slots.
fn greedy(lab: &Lab) -> Result<()> {
    let server = scif::start_server(lab, 1, "scif_patience", &["server", PORT], 600)?;
    let arguments = ["greedy", "1", PORT, &limit(lab)?];
    scif::run_tap(lab, 0, "scif_patience", &arguments, 240)?;
    server.signal(15);
    server.wait()?;
    Ok(())
}

/// A process with much under way at a peer that stands still ends.
fn silent(lab: &Lab) -> Result<()> {
    let server = scif::start_server(lab, 1, "scif_patience", &["server", PORT], 600)?;
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
    scif::check_tap(ended?)?;
    server.signal(15);
    server.wait()?;
    Ok(())
}

/// In bounce mode, too.
const STAR: Need = Need {
    windows: scif_bounce::USUAL.windows,
    ..SCIF_STAR
};

/// The driver of a bridge goes while the peer behind another one stands still, and much is under way to it.
fn others_bridge(lab: &Lab) -> Result<()> {
    let link = scif::online(lab, 0, 2)?.link;
    let device = link.strip_prefix("ntb:").context("no bridge")?;
    let driver = lab.shell(0, &format!("readlink -f /sys/bus/pci/devices/{device}/driver"))?;
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

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_patience::greedy", scif_bounce::USUAL, greedy).seconds(120),
    Test::new("scif_patience::silent", scif_bounce::USUAL, silent).seconds(120),
    Test::new("scif_patience::others_bridge", STAR, others_bridge).seconds(120),
];
