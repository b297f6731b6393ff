// SPDX-License-Identifier: GPL-2.0
//! Nobody waits for long because of what another process does, or a peer does not
//! (tests/programs/scif_patience.c): in bounce mode, where most is up to the peer.

use anyhow::Result;
use lab::Lab;
use lab::wait_until;

use crate::bystander;
use crate::harness::Test;
use crate::promise;
use crate::scif;
use crate::scif_bounce;

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
    bystander::beside(lab, 0, || {
        scif::run_tap(lab, 0, "scif_patience", &arguments, 240)
    })?;
    server.signal(15);
    server.wait()?;
    Ok(())
}

/// A process with much under way at a peer that stands still ends.
fn silent(lab: &Lab) -> Result<()> {
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

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_patience::greedy", scif_bounce::USUAL, greedy).seconds(120),
    Test::new("scif_patience::silent", scif_bounce::USUAL, silent).seconds(120),
];
