// SPDX-License-Identifier: GPL-2.0
//! The resources that are released when a call returns.
//!
//! For an endpoint these are its port, its pinned memory and its share of the module's counts. They
//! are released when close, or the wait for its process, has returned
//! (tests/programs/scif_ports.c).
//!
//! A connection that a process has accepted but not taken over is closed when the process ends or
//! its descriptor of the listener is closed (tests/programs/scif_accepted.c). So are the process's
//! calls that wait in accept (tests/programs/scif_flushed.c).

use anyhow::Context;
use anyhow::Result;
use lab::Flavour;
use lab::Lab;

use crate::harness::Test;
use crate::scif;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Returns how often a port is bound and released, in different ways.
fn rounds(lab: &Lab) -> &'static str {
    match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => "640",
        Flavour::Debug | Flavour::Kcsan => "160",
    }
}

/// Number of processes that accept and end. It exceeds the number of accepted connections that the
/// module keeps for a listener.
const MANY: &str = "1100";

/// Runs the two sides of a program on a node each. Both print TAP.
fn on_two_nodes(
    lab: &Lab,
    name: &str,
    (server, server_arguments): (usize, &[&str]),
    (client, client_arguments): (usize, &[&str]),
) -> Result<()> {
    let process = scif::start_server(lab, server, name, server_arguments, 240)?;
    scif::run_tap(lab, client, name, client_arguments, 240).with_context(|| {
        format!(
            "node {server} says:\n{}{}\nnode {client} says",
            process.stdout(),
            process.stderr()
        )
    })?;
    scif::check_tap(process.wait()?)
}

/// Runs the program within a node.
fn ports_loopback(lab: &Lab) -> Result<()> {
    scif::run_tap(
        lab,
        0,
        "scif_ports",
        &["loopback", "2301", rounds(lab)],
        240,
    )?;
    Ok(())
}

/// Runs the program between two nodes. The counts of each node are those of its end.
fn ports_between_nodes(lab: &Lab) -> Result<()> {
    for (listener, connector) in [(1, 0), (0, 1)] {
        let peer = listener.to_string();
        on_two_nodes(
            lab,
            "scif_ports",
            (listener, &["listen", "2304", rounds(lab)]),
            (connector, &["connect", &peer, "2304", rounds(lab)]),
        )?;
    }
    Ok(())
}

fn accepted_loopback(lab: &Lab) -> Result<()> {
    scif::run_tap(lab, 0, "scif_accepted", &["loopback", "2310", MANY], 240)?;
    Ok(())
}

fn accepted_between_nodes(lab: &Lab) -> Result<()> {
    on_two_nodes(
        lab,
        "scif_accepted",
        (1, &["server", "2311", MANY]),
        (0, &["client", "1", "2311", MANY]),
    )
}

/// Calls that wait in accept while descriptors of the listener are closed.
fn closed_listener_ends_accept(lab: &Lab) -> Result<()> {
    scif::run_tap(lab, 0, "scif_flushed", &[], 60)?;
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_lifetime::ports_loopback", SCIF_PAIR, ports_loopback)
        .seconds(240)
        .by_name(),
    Test::new(
        "scif_lifetime::ports_between_nodes",
        SCIF_PAIR,
        ports_between_nodes,
    )
    .seconds(480)
    .by_name(),
    Test::new(
        "scif_lifetime::accepted_loopback",
        SCIF_PAIR,
        accepted_loopback,
    )
    .seconds(240)
    .by_name(),
    Test::new(
        "scif_lifetime::accepted_between_nodes",
        SCIF_PAIR,
        accepted_between_nodes,
    )
    .seconds(240)
    .by_name(),
    Test::new(
        "scif_lifetime::closed_listener_ends_accept",
        SCIF_PAIR,
        closed_listener_ends_accept,
    ),
];
