// SPDX-License-Identifier: GPL-2.0
//! No user has to wait because of the ports, connections, windows and listeners of another user,
//! however many these are (tests/programs/scif_fair.c). No user has to wait for another process
//! that opens a different device, either.

use std::thread;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::wait_until;
use serde_json::Value;

use crate::bystander;
use crate::harness::Test;
use crate::scif;
use crate::scif::Server;
use crate::scif_kernel::SCIF_ALONE;
use crate::scif_kernel::load;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Number of connections that a process only polls.
const IDLE: &str = "4000";

/// Factor by which a round trip beside these connections may be slower. If the interrupt handler
/// checked each connection, it would be slower by three or more.
const SLOWER: f64 = 1.5;

/// The user's share of all resources in percent. It is small so that the test need not take much.
const PERCENT: &str = "2";

/// Returns the microseconds of a round trip between two processes that sleep.
fn round_trip(lab: &Lab) -> Result<f64> {
    let arguments = [
        "bench",
        "send-lat",
        "1",
        "--sizes",
        "8",
        "--iterations",
        "2000",
        "--json",
    ];
    let output = scif::run_tool(lab, 0, &arguments)?.success()?;
    let report: Value = serde_json::from_str(&output.stdout())?;
    let latency = &report["results"][0]["latency"][0]["p50_us"];
    latency
        .as_f64()
        .with_context(|| format!("no median: {report}"))
}

/// An interrupt handler checks only the connections that have news.
fn idle_connections_cost_nothing(lab: &Lab) -> Result<()> {
    scif::with_parameter(lab, "busy_poll_us", "0", || beside_idle_connections(lab))
}

fn beside_idle_connections(lab: &Lab) -> Result<()> {
    let bench = Server::start(lab, 1)?;
    let alone = round_trip(lab)?;
    let server = scif::start_server(lab, 1, "scif_fair", &["server", "2350"], 240)?;
    let idle = scif::start_program(lab, 0, "scif_fair", &["idle", "1", "2350", IDLE], 240)?;
    idle.wait_for("ready", lab.hang_limit(120))?;
    let beside = round_trip(lab)?;
    bystander::beside(lab, 0, || {
        thread::sleep(Duration::from_secs(2));
        Ok(())
    })?;
    println!("      {alone} us alone, {beside} us beside {IDLE} connections");
    idle.kill();
    server.kill();
    ensure!(
        beside < SLOWER * alone,
        "a round trip takes {beside} us beside {IDLE} idle connections, and {alone} us alone"
    );
    bench.stop()
}

/// A user who takes all that the module grants leaves resources to others.
fn greedy_user_leaves_resources(lab: &Lab) -> Result<()> {
    let file = "/sys/module/scif/parameters/user_share";
    let usual = lab.node(0).read(file)?;
    lab.node(0).write(file, PERCENT)?;
    let result = bystander::beside(lab, 0, || {
        scif::run_tap(lab, 0, "scif_fair", &["shares", PERCENT], 240)
    });
    lab.node(0).write(file, usual.trim())?;
    result.map(|_| ())
}

/// A request that is given up is searched for only at its own listener.
fn one_listener_is_searched(lab: &Lab) -> Result<()> {
    bystander::beside(lab, 0, || {
        scif::run_tap(lab, 0, "scif_fair", &["listeners", "20000"], 240)
    })?;
    Ok(())
}

/// The device is opened while another process is in the open of a misc device
/// (tests/modules/scif_slow_misc.c). Neither process delays the other.
fn open_delays_no_other(lab: &Lab) -> Result<()> {
    load(lab, 0, "tests", "scif_slow_misc", "")?;
    let slow = lab.spawn(0, ["sh", "-c", "exec 3</dev/scif_slow_misc"])?;
    let file = "/sys/module/scif_slow_misc/parameters/opening";
    wait_until("a process opens the device", lab.hang_limit(20), || {
        Ok((lab.node(0).read(file)?.trim() == "1").then_some(()))
    })?;
    let other = lab.spawn(0, ["sh", "-c", "exec 3<>/dev/scif"])?;
    let opened = other.wait_timeout(lab.hang_limit(10))?;
    slow.kill();
    slow.wait()?;
    other.wait()?.success()?;
    lab.rmmod(0, "scif_slow_misc")?;
    ensure!(
        opened.is_some(),
        "/dev/scif can't be opened while a process opens a misc device"
    );
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_fair::idle_connections_cost_nothing",
        SCIF_PAIR,
        idle_connections_cost_nothing,
    )
    .seconds(240),
    Test::new(
        "scif_fair::greedy_user_leaves_resources",
        SCIF_PAIR,
        greedy_user_leaves_resources,
    )
    .seconds(240),
    Test::new(
        "scif_fair::one_listener_is_searched",
        SCIF_PAIR,
        one_listener_is_searched,
    )
    .seconds(240),
    Test::new(
        "scif_fair::open_delays_no_other",
        SCIF_ALONE,
        open_delays_no_other,
    ),
];
