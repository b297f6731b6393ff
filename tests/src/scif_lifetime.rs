// SPDX-License-Identifier: GPL-2.0
//! What is over when a call says so: of an endpoint, its port, its pinned memory and what the
//! module counts, when close or the wait for its process has returned (tests/programs/scif_ports.c);
//! of what a process has accepted and not taken over, the connection, when the process or its
//! descriptor of the listener is gone (tests/programs/scif_accepted.c), and the process's calls that wait in accept
//! (tests/programs/scif_flushed.c).

use anyhow::Context;
use anyhow::Result;
use lab::Flavour;
use lab::Lab;

use crate::harness::Test;
use crate::scif;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// How often a port is taken and given back, in ways that differ.
fn rounds(lab: &Lab) -> &'static str {
    match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => "640",
        Flavour::Debug | Flavour::Kcsan => "160",
    }
}

/// Processes that accept and end: more than the module keeps accepted connections for a listener.
const MANY: &str = "1100";

/// Runs both sides of a program on a node each; both print TAP.
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

/// Within a node.
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

/// The same between two, where the counts of each node are those of its end.
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
fn flushed(lab: &Lab) -> Result<()> {
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
    Test::new("scif_lifetime::flushed", SCIF_PAIR, flushed),
];
