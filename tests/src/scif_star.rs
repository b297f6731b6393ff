// SPDX-License-Identifier: GPL-2.0
//! Three nodes: node 0 has a link to each of the others, which do not see each other. Events of one
//! link do not affect the other.

use std::fs;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Flavour;
use lab::Lab;
use lab::kernel_log;
use lab::wait_until;

use crate::harness::Test;
use crate::heartbeat;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::need::STAR;
use crate::promise::Circumstances;
use crate::scif;
use crate::scif::Server;
use crate::scif_node_loss::COPY_FAILS;

/// A star with the module.
pub const SCIF_STAR: Need = Need {
    scif: Loaded::LongHeartbeat,
    ..STAR
};

/// Returns the ids of the nodes that a node sees online.
fn online_from(lab: &Lab, node: usize) -> Result<Vec<u16>> {
    let mut ids: Vec<u16> = scif::nodes(lab, node)?
        .into_iter()
        .filter(|seen| seen.state == "online")
        .map(|seen| seen.id)
        .collect();
    ids.sort_unstable();
    Ok(ids)
}

/// The centre sees both other nodes, each through a device. They see the centre.
fn centre_sees_both_nodes(lab: &Lab) -> Result<()> {
    for (node, expected) in [(0, &[1, 2][..]), (1, &[0]), (2, &[0])] {
        let ids = online_from(lab, node)?;
        ensure!(ids == expected, "node {node} sees {ids:?}");
    }
    let links = [1, 2].map(|id| scif::online(lab, 0, id));
    let [one, two] = links;
    ensure!(one?.link != two?.link, "two nodes behind one device");
    let output = scif::run_tool(lab, 1, &["ping", "2"])?.status(3)?;
    ensure!(output.stderr().contains("no such node online"), "{output}");
    Ok(())
}

/// Copies to both at once, and from both at once.
fn copies_run_at_once(lab: &Lab) -> Result<()> {
    let size = match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => 4 << 20,
        Flavour::Debug | Flavour::Kcsan => 2 << 20,
    } + 321;
    let hash = scif::make_file(lab, "sent", size)?;
    let servers = [Server::start(lab, 1)?, Server::start(lab, 2)?];
    let copies = [
        ["cp", "-q", "/exchange/sent", "1:copy"],
        ["cp", "-q", "/exchange/sent", "2:copy"],
    ];
    let running = copies.map(|arguments| scif::start_tool(lab, 0, &arguments));
    for process in running {
        process?.wait()?.success()?;
    }
    let back = lab.paths().exchange().join("back");
    let _ = fs::remove_dir_all(&back);
    fs::create_dir(&back)?;
    let copies = [
        ["cp", "-q", "1:copy", "/exchange/back/1"],
        ["cp", "-q", "2:copy", "/exchange/back/2"],
    ];
    let running = copies.map(|arguments| scif::start_tool(lab, 0, &arguments));
    for process in running {
        process?.wait()?.success()?;
    }
    let [one, two] = &servers;
    for path in [
        one.folder.join("copy"),
        two.folder.join("copy"),
        back.join("1"),
        back.join("2"),
    ] {
        ensure!(scif::hash_of(&path)? == hash, "{} differs", path.display());
    }
    servers.into_iter().try_for_each(Server::stop)
}

/// One node dies while node 0 copies to both: the other copy does not notice.
fn others_survive_a_lost_node(lab: &Lab) -> Result<()> {
    let (size, some) = match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => (64 << 20, 8 << 20),
        Flavour::Debug | Flavour::Kcsan => (12 << 20, 2 << 20),
    };
    let around = Circumstances::before(lab, &[0, 1])?;
    let hash = scif::make_file(lab, "sent", size)?;
    let endless = lab.paths().exchange().join("endless");
    scif::make_endless_file(&endless)?;
    let (server, doomed) = (Server::start(lab, 1)?, Server::start(lab, 2)?);
    let generation = scif::online(lab, 0, 2)?.generation;
    let start = scif::dma_bytes(lab, 0)?;
    let lost = scif::start_tool(lab, 0, &["cp", "-q", "/exchange/endless", "2:copy"])?;
    let moved = |bytes| {
        wait_until(
            "a part of the files has arrived",
            lab.hang_limit(60),
            || {
                ensure!(lost.is_running(), "it has ended: {}", lost.stderr());
                Ok((scif::dma_bytes(lab, 0)? >= start + bytes).then_some(()))
            },
        )
    };
    moved(some)?;
    let unharmed = scif::start_tool(lab, 0, &["cp", "-q", "/exchange/sent", "1:copy"])?;
    moved(3 * some)?;
    ensure!(unharmed.is_running(), "the file is too small for this test");
    let event = Instant::now();
    lab.kill(2)?;
    let output = lost
        .wait_timeout(lab.hang_limit(20))?
        .context("the copy to the dead node goes on")?;
    let took = event.elapsed();
    ensure!(
        output.stderr().contains("node 2 was lost during the copy"),
        "{output}"
    );
    output.status(4)?;
    unharmed.wait()?.success()?;
    // Judged only now, because the nodes were busy before.
    COPY_FAILS.check(&around, took)?;
    ensure!(scif::hash_of(&server.folder.join("copy"))? == hash);
    ensure!(online_from(lab, 0)? == [1] && online_from(lab, 1)? == [0]);
    ensure!(scif::names_in(&doomed.folder)?.is_empty());
    fs::remove_file(&endless)?;
    drop(doomed);

    lab.restart(2)?;
    scif::load(lab, 2, Loaded::LongHeartbeat)?;
    ensure!(scif::online(lab, 0, 2)?.generation != generation);
    scif::online(lab, 2, 0)?;
    let second = Server::start(lab, 2)?;
    let hash = scif::make_file(lab, "sent", 54321)?;
    scif::run_tool(lab, 0, &["cp", "-q", "/exchange/sent", "2:copy"])?.success()?;
    ensure!(scif::hash_of(&second.folder.join("copy"))? == hash);
    second.stop()?;
    server.stop()
}

/// Loads the module in a node, with this id.
fn load_as(lab: &Lab, node: usize, id: usize) -> Result<()> {
    let heartbeat = heartbeat::parameter(lab, node, Loaded::LongHeartbeat)?;
    let parameters = format!("node_id={id} allow_flat=1 {heartbeat}");
    lab.insmod(node, scif::module(lab)?, &parameters)
}

/// A node whose id is taken gets no session, and the log says how to fix this.
fn taken_node_id_is_refused(lab: &Lab) -> Result<()> {
    let load = |node, id| load_as(lab, node, id);
    load(0, 0)?;
    load(1, 1)?;
    let first = scif::online(lab, 0, 1)?;
    for taken in [1, 0] {
        load(2, taken)?;
        let said = format!("no session with node {taken}: its node id is taken by another");
        wait_until("the clash is logged", lab.hang_limit(20), || {
            let log = lab.dmesg(0)?;
            Ok(kernel_log::since_mark(&log).contains(&said).then_some(()))
        })?;
        ensure!(
            scif::nodes(lab, 0)?.len() == 2 && scif::seen(lab, 0, 1)?.as_ref() == Some(&first),
            "node 0 sees {:?}",
            scif::nodes(lab, 0)?
        );
        let there = online_from(lab, 2)?;
        ensure!(there.is_empty(), "node 2 sees {there:?}");
        lab.rmmod(2, "scif")?;
    }
    load(2, 2)?;
    scif::online(lab, 0, 2)?;
    scif::unload_everywhere(lab)
}

/// A node whose id is taken comes online by itself when the node with that id is lost. A second
/// link to a node takes over in the same way.
fn spare_link_takes_over(lab: &Lab) -> Result<()> {
    let load = |node, id| load_as(lab, node, id);
    load(0, 0)?;
    load(1, 1)?;
    let first = scif::online(lab, 0, 1)?;
    load(2, 1)?;
    wait_until("the clash is logged", lab.hang_limit(20), || {
        let log = lab.dmesg(0)?;
        let said = "no session with node 1: its node id is taken by another";
        Ok(kernel_log::since_mark(&log).contains(said).then_some(()))
    })?;
    for (gone, next) in [(1, 2), (2, 1)] {
        lab.rmmod(gone, "scif")?;
        wait_until("the next one takes its place", lab.hang_limit(20), || {
            let seen = scif::seen(lab, 0, 1)?.filter(|seen| seen.state == "online");
            Ok(seen.filter(|seen| (seen.link == first.link) == (next == 1)))
        })?;
        ensure!(online_from(lab, next)? == [0]);
        load(gone, 1)?;
    }
    scif::unload_everywhere(lab)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_star::centre_sees_both_nodes",
        SCIF_STAR,
        centre_sees_both_nodes,
    ),
    Test::new(
        "scif_star::copies_run_at_once",
        SCIF_STAR,
        copies_run_at_once,
    )
    .seconds(180),
    Test::new(
        "scif_star::others_survive_a_lost_node",
        SCIF_STAR,
        others_survive_a_lost_node,
    )
    .loses_nodes()
    .seconds(180)
    .by_name(),
    Test::new(
        "scif_star::taken_node_id_is_refused",
        STAR,
        taken_node_id_is_refused,
    )
    .expects(&["its node id is taken by another"])
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_star::spare_link_takes_over",
        STAR,
        spare_link_takes_over,
    )
    .expects(&["its node id is taken by another"])
    .leaves_disorder(),
];
