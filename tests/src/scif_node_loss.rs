// SPDX-License-Identifier: GPL-2.0
//! Lost nodes: a module is unloaded, a driver unbound, a device unplugged, a node hangs or dies.
//!
//! Callers that wait for the lost node get an error within two seconds, and no other process
//! suffers. When the node is back, everything works again without a reboot of the others.
//!
//! The time counts from the event, or from the end of the heartbeat timeout if the node hangs. The
//! nodes' speed is measured (`promise`) before processes wait in them, because the waiting
//! processes keep the nodes busy.

use std::fs;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::Process;
use lab::kernel_log;
use lab::wait_until;

use crate::harness::Test;
use crate::heartbeat;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::need::PAIR;
use crate::promise::Circumstances;
use crate::scif;
use crate::scif::Seen;
use crate::scif::Server;
use crate::verdict::Promise;

/// A pair with the module and the default heartbeat.
pub const USUAL_PAIR: Need = Need {
    scif: Loaded::AsUsual,
    ..PAIR
};

/// Limit from the event until the last call that waits for the lost node has returned.
pub const TOLD: Promise = Promise {
    name: "calls that wait for a lost node return",
    seconds: 2.0,
};

/// Limit from the return of the waiting calls, or from the unload, until the node is shown as lost.
const SHOWN: Promise = Promise {
    name: "a lost node is shown as lost",
    seconds: 2.0,
};

/// Limit from the end of the heartbeat timeout. With the default timeout that is two seconds after
/// the event.
const MISSED: Promise = Promise {
    name: "a node that hangs is lost, after its heartbeat",
    seconds: 0.5,
};

/// Limit from the death of the node until the program has ended.
pub const COPY_FAILS: Promise = Promise {
    name: "a copy from or to a node that dies fails",
    seconds: 2.0,
};

/// Returns the other node of a pair.
pub fn other(node: usize) -> usize {
    1 - node
}

/// Returns the two sessions of an online pair: node 1 as node 0 sees it, and the reverse.
pub fn sessions(lab: &Lab) -> Result<[Seen; 2]> {
    Ok([scif::online(lab, 0, 1)?, scif::online(lab, 1, 0)?])
}

/// Waits until each node sees the other online, after `event`.
fn reconnected(lab: &Lab, event: &str) -> Result<()> {
    sessions(lab).with_context(|| format!("after {event}"))?;
    Ok(())
}

/// Checks that a copy from node 0 to node 1 works.
pub fn copy_works(lab: &Lab) -> Result<()> {
    let server = Server::start(lab, 1)?;
    let hash = scif::make_file(lab, "afterwards", 1_234_567)?;
    scif::run_tool(lab, 0, &["cp", "-q", "/exchange/afterwards", "1:copy"])?.success()?;
    ensure!(scif::hash_of(&server.folder.join("copy"))? == hash);
    server.stop()
}

/// Fails if a node's kernel log has this text since the test began.
pub fn not_logged(lab: &Lab, node: usize, text: &str) -> Result<()> {
    let log = lab.dmesg(node)?;
    let log = kernel_log::since_mark(&log);
    ensure!(
        !log.contains(text),
        "node {node} says '{text}':\n{}",
        lab::last_lines(log, 20)
    );
    Ok(())
}

/// Processes of a node that wait for the other one in every call that can wait.
pub struct Blocked {
    /// The node on which the processes wait.
    pub node: usize,
    waiting: Process,
    /// The process on the other node, for which the processes here wait. It waits, too.
    peer: Process,
}

impl Blocked {
    const CALLS: [&'static str; 8] = [
        "recv",
        "send",
        "poll",
        "readfrom",
        "fence",
        "own_fence",
        "register",
        "connect",
    ];

    /// Processes that load from the peer's memory and get SIGBUS.
    const MAPPINGS: [&'static str; 2] = ["mapping", "orphan"];

    /// Starts the processes on both nodes, each waiting for the other node.
    pub fn on_both(lab: &Lab) -> Result<[Blocked; 2]> {
        let program = scif::program("scif_blocked")?;
        let peers = [0, 1].map(|node| -> Result<Process> {
            let peer = lab.spawn(node, [&program, "peer", "2200"])?;
            peer.wait_for("listening", lab.hang_limit(20))?;
            Ok(peer)
        });
        let [peer_0, peer_1] = peers;
        let start = |node: usize, peer: Process| -> Result<Blocked> {
            let other = other(node).to_string();
            let waiting = lab.spawn(node, [&program, "wait", &other, "2200"])?;
            waiting.wait_for("waiting", lab.hang_limit(20))?;
            // Waits for a transfer in flight, because copies that end soon would show little. The
            // first copy has ended by now.
            let moved = || anyhow::Ok(scif::dma_bytes(lab, 0)? + scif::dma_bytes(lab, 1)?);
            let before = moved()?;
            wait_until("a transfer goes on", lab.hang_limit(20), || {
                Ok((moved()? > before).then_some(()))
            })?;
            ensure!(waiting.stdout() == "waiting\n", "{}", waiting.stdout());
            Ok(Blocked {
                node,
                waiting,
                peer,
            })
        };
        Ok([start(0, peer_0?)?, start(1, peer_1?)?])
    }

    /// Waits until all calls have returned with an error that says that the peer is gone. Returns
    /// the time from `event` to the last return.
    pub fn told(self, lab: &Lab, event: Instant) -> Result<Duration> {
        let Some(output) = self.waiting.wait_timeout(lab.hang_limit(20))? else {
            anyhow::bail!(
                "node {}: not all calls have returned after {:.1} s, only:\n{}",
                self.node,
                event.elapsed().as_secs_f64(),
                self.waiting.stdout()
            );
        };
        let took = event.elapsed();
        let text = output.success()?.stdout();
        for call in Self::CALLS {
            let told = ["ECONNRESET", "ENODEV", "ENXIO", "ECONNREFUSED", "ENOTCONN"]
                .iter()
                .any(|error| text.lines().any(|line| line == format!("{call} {error}")));
            ensure!(told, "node {}: {call} was not told:\n{text}", self.node);
        }
        for mapping in Self::MAPPINGS {
            let told = text.lines().any(|line| line == format!("{mapping} EFAULT"));
            ensure!(told, "node {}: {mapping} got no SIGBUS:\n{text}", self.node);
        }
        drop(self.peer);
        Ok(took)
    }

    /// Waits for the calls of both nodes, and checks the promised time.
    fn all_told(
        lab: &Lab,
        blocked: [Blocked; 2],
        around: &Circumstances<'_>,
        event: Instant,
    ) -> Result<()> {
        // Judges the times only after all processes have ended, because they keep a node busy.
        for took in blocked.map(|blocked| blocked.told(lab, event)) {
            TOLD.check(around, took?)?;
        }
        Ok(())
    }
}

/// Checks that `node` shows `id` as lost within the promised time from now on.
fn shown_as_lost(lab: &Lab, node: usize, id: usize, around: &Circumstances<'_>) -> Result<()> {
    let started = Instant::now();
    scif::state(lab, node, id, "lost", lab.hang_limit(20))?;
    SHOWN.check(around, started.elapsed())
}

/// A node that unloads the module is lost at once, not after the heartbeat timeout. It comes back
/// with another session when it loads the module again.
fn reload(lab: &Lab) -> Result<()> {
    let mut before = sessions(lab)?;
    for round in 0..2 {
        for node in [1, 0] {
            let context = || format!("round {round}, unloading node {node}");
            let peer = other(node);
            let around = Circumstances::before(lab, &[peer])?;
            lab.rmmod(node, "scif").with_context(context)?;
            shown_as_lost(lab, peer, node, &around).with_context(context)?;
            let nodes = scif::run_tool(lab, peer, &["nodes"])?.success()?.stdout();
            ensure!(nodes.contains("lost"), "scif nodes: {nodes}");
            scif::load(lab, node, Loaded::AsUsual)?;
            let now = sessions(lab).with_context(context)?;
            ensure!(
                now[peer].generation != before[peer].generation
                    && now[node].generation == before[node].generation,
                "generations after {}: {before:?}, then {now:?}",
                context()
            );
            before = now;
        }
    }
    for node in 0..2 {
        not_logged(lab, node, "no heartbeat")?;
    }
    copy_works(lab)
}

/// Unloads the module on both nodes at once, so that neither answers the other's farewell.
fn unload_both(lab: &Lab) -> Result<()> {
    for _ in 0..2 {
        let before = sessions(lab)?;
        let unloading = [0, 1].map(|node| lab.spawn(node, ["rmmod", "scif"]));
        for process in unloading {
            process?.wait()?.success()?;
        }
        scif::load_everywhere(lab, Loaded::AsUsual)?;
        scif::pair_online_anew(lab, &before)?;
    }
    copy_works(lab)
}

/// Runs both parts. On the debug kernel the second part needs a lab of its own.
fn unload_shows_node_lost(lab: &Lab) -> Result<()> {
    reload(lab)?;
    unload_both(lab)
}

/// The module can't be unloaded while a process uses it.
fn use_prevents_unload(lab: &Lab) -> Result<()> {
    let server = Server::start(lab, 1)?;
    let output = lab.exec(1, ["rmmod", "scif"])?;
    ensure!(
        output.code() != Some(0) && output.stderr().contains("in use"),
        "{output}"
    );
    scif::run_tool(lab, 0, &["ping", "1", "-c", "3", "-i", "0"])?.success()?;
    server.stop()
}

/// The driver of the NTB is unbound under open connections, and bound again.
fn unbind_ends_waits(lab: &Lab) -> Result<()> {
    const DEVICE: &str = "0000:00:05.0";
    let driver = format!("/sys/bus/pci/devices/{DEVICE}/driver");
    for node in [0, 1] {
        let driver = lab.shell(node, &format!("readlink -f {driver}"))?;
        let driver = driver.trim();
        let around = Circumstances::before(lab, &[0, 1])?;
        let blocked = Blocked::on_both(lab)?;
        let unbind = lab.spawn(
            node,
            ["sh", "-c", &format!("echo {DEVICE} >'{driver}/unbind'")],
        )?;
        let event = Instant::now();
        Blocked::all_told(lab, blocked, &around, event)?;
        unbind.wait()?.success()?;
        for node in 0..2 {
            shown_as_lost(lab, node, other(node), &around)?;
        }
        lab.shell(node, &format!("echo {DEVICE} >'{driver}/bind'"))?;
        reconnected(lab, "binding the driver again")?;
    }
    copy_works(lab)
}

/// A process that keeps its end of a connection keeps no resources of a bridge whose driver is
/// gone.
fn open_endpoint_keeps_no_bridge(lab: &Lab) -> Result<()> {
    const DEVICE: &str = "0000:00:05.0";
    const PORT: &str = "2350";
    let driver = format!("/sys/bus/pci/devices/{DEVICE}/driver");
    let driver = lab.shell(0, &format!("readlink -f {driver}"))?;
    let driver = driver.trim();
    let mappings = || -> Result<usize> {
        let all = lab.shell(0, "cat /proc/vmallocinfo")?;
        let is_ours = |line: &&str| line.contains("scif") && line.contains("ioremap");
        Ok(all.lines().filter(is_ours).count())
    };
    let server = scif::start_server(lab, 1, "scif_keeps", &["server", PORT], 120)?;
    let client = lab
        .command(0, [&*scif::program("scif_keeps")?, "client", "1", PORT])?
        .timeout(lab.hang_limit(120))
        .spawn()?;
    client.wait_for("connected", lab.hang_limit(20))?;
    ensure!(mappings()? > 0, "the bridge's memory is not mapped");
    lab.shell(0, &format!("echo {DEVICE} >'{driver}/unbind'"))?;
    let left = mappings()?;
    ensure!(left == 0, "{left} mappings of the bridge's memory are left");
    lab.shell(0, &format!("echo {DEVICE} >'{driver}/bind'"))?;
    reconnected(lab, "binding the driver again")?;
    for process in [client, server] {
        process.signal(9);
        process.wait()?;
    }
    copy_works(lab)
}

/// The link goes down, and comes up again.
fn link_failure_ends_waits(lab: &Lab) -> Result<()> {
    for _ in 0..2 {
        let around = Circumstances::before(lab, &[0, 1])?;
        let blocked = Blocked::on_both(lab)?;
        let event = Instant::now();
        lab.set_link(0, 1, false)?;
        Blocked::all_told(lab, blocked, &around, event)?;
        for node in 0..2 {
            shown_as_lost(lab, node, other(node), &around)?;
        }
        lab.set_link(0, 1, true)?;
        reconnected(lab, "the link came up")?;
    }
    copy_works(lab)
}

/// Runs the test of the link while the peer writes all data that is read.
fn link_failure_during_peer_writes(lab: &Lab) -> Result<()> {
    scif::all_by_peer(lab, || link_failure_ends_waits(lab))
}

/// A node that hangs is lost, and all calls that wait for it return. If the node goes on after all,
/// it is online again, but its old connections are dead on its side, too.
fn hanging_node_is_lost(lab: &Lab) -> Result<()> {
    let heartbeat = heartbeat::of(lab, 0)?;
    // Measures the nodes one by one, because a paused node can't be measured.
    let around_0 = Circumstances::before(lab, &[0])?;
    let around_1 = Circumstances::before(lab, &[1])?;
    let [of_0, of_1] = Blocked::on_both(lab)?;
    let event = Instant::now();
    lab.pause(1)?;
    // Takes the time at which the successful query was sent. The answer takes long where so many
    // processes wait.
    let asked = wait_until(
        "node 0 sees node 1 lost",
        heartbeat + lab.hang_limit(20),
        || {
            let asked = Instant::now();
            let seen = scif::seen(lab, 0, 1)?;
            Ok(seen.filter(|seen| seen.state == "lost").map(|_| asked))
        },
    )?;
    let lost = Instant::now();
    // When the waiting processes are gone, the node is as busy as it was when it was measured.
    let told = of_0.told(lab, lost)?;
    MISSED.check(
        &around_0,
        asked.duration_since(event).saturating_sub(heartbeat),
    )?;
    TOLD.check(&around_0, told)?;
    let event = Instant::now();
    lab.resume(1)?;
    // By its own clock, no time has passed on node 1.
    let told = of_1.told(lab, event)?;
    TOLD.check(&around_1, told)?;
    reconnected(lab, "node 1 went on")?;
    copy_works(lab)
}

/// Kills node 1 while a copy between the nodes is in flight, which runs on node 0. Checks the
/// message and the time of the failure.
fn kill_during_copy(lab: &Lab, arguments: &[&str]) -> Result<()> {
    let before = sessions(lab)?;
    let around = Circumstances::before(lab, &[0, 1])?;
    let server = Server::start(lab, 1)?;
    let exchange = lab.paths().exchange();
    let received = exchange.join("received");
    let _ = fs::remove_dir_all(&received);
    fs::create_dir(&received)?;
    let endless = match arguments[1].starts_with("1:") {
        true => server.folder.join("endless"),
        false => exchange.join("endless"),
    };
    scif::make_endless_file(&endless)?;

    let moved = || -> Result<u64> { Ok(scif::dma_bytes(lab, 0)? + scif::dma_bytes(lab, 1)?) };
    let start = moved()?;
    let copy = scif::start_tool(lab, 0, arguments)?;
    let some = match lab.kernel().flavour() {
        lab::Flavour::Stock | lab::Flavour::Plain => 32 << 20,
        lab::Flavour::Debug | lab::Flavour::Kcsan => 4 << 20,
    };
    wait_until("a part of the file has arrived", lab.hang_limit(60), || {
        ensure!(copy.is_running(), "it has ended: {}", copy.stderr());
        Ok((moved()? >= start + some).then_some(()))
    })?;

    let event = Instant::now();
    lab.kill(1)?;
    let output = copy
        .wait_timeout(lab.hang_limit(20))?
        .with_context(|| format!("the copy goes on: {}", copy.stderr()))?;
    let took = event.elapsed();
    let said = output.stderr();
    ensure!(
        output.code() == Some(4)
            && said.contains("node 1 was lost during the copy")
            && said.contains(&format!("nothing was written to '{}'", arguments[2])),
        "{output}"
    );
    COPY_FAILS.check(&around, took)?;
    let nodes = scif::run_tool(lab, 0, &["nodes"])?.success()?.stdout();
    ensure!(
        nodes
            .lines()
            .any(|line| line.split_whitespace().take(2).eq(["1", "lost"])),
        "scif nodes: {nodes}"
    );
    for folder in [&received, &server.folder] {
        let mut names = scif::names_in(folder)?;
        names.remove("endless");
        ensure!(names.is_empty(), "{} has {names:?}", folder.display());
    }
    drop(server);
    fs::remove_file(&endless)?;

    lab.restart(1)?;
    scif::load(lab, 1, Loaded::AsUsual)?;
    let now = sessions(lab)?;
    ensure!(
        now[0].generation != before[0].generation && now[1].generation == before[1].generation,
        "generations: {before:?}, then {now:?}"
    );
    copy_works(lab)?;
    let errors = scif::kernel_errors(lab, 0)?;
    ensure!(
        errors.is_empty(),
        "node 0's kernel log:\n{}",
        errors.join("\n")
    );
    Ok(())
}

/// The receiver of a copy dies.
pub fn copy_fails_if_receiver_dies(lab: &Lab) -> Result<()> {
    kill_during_copy(lab, &["cp", "/exchange/endless", "1:copy"])
}

/// The sender of a copy dies.
pub fn copy_fails_if_sender_dies(lab: &Lab) -> Result<()> {
    kill_during_copy(lab, &["cp", "1:endless", "/exchange/received/copy"])
}

/// A node dies in the middle of all calls that can wait. A server on the other node outlives it.
fn server_outlives_client_node(lab: &Lab) -> Result<()> {
    let around = Circumstances::before(lab, &[0, 1])?;
    let server = Server::start(lab, 0)?;
    scif::make_endless_file(&lab.paths().exchange().join("endless"))?;
    let copy = scif::start_tool(lab, 1, &["cp", "/exchange/endless", "0:copy"])?;
    let start = scif::dma_bytes(lab, 1)?;
    wait_until("a part of the file has arrived", lab.hang_limit(60), || {
        ensure!(copy.is_running(), "it has ended: {}", copy.stderr());
        Ok((scif::dma_bytes(lab, 1)? > start).then_some(()))
    })?;
    let [of_0, of_1] = Blocked::on_both(lab)?;
    let event = Instant::now();
    lab.kill(1)?;
    let told = of_0.told(lab, event)?;
    drop((of_1, copy));
    TOLD.check(&around, told)?;
    lab.restart(1)?;
    scif::load(lab, 1, Loaded::AsUsual)?;
    reconnected(lab, "the restart")?;
    wait_until(
        "the server says what has become of it",
        lab.hang_limit(20),
        || Ok(server.log().contains("nothing was written").then_some(())),
    )?;
    let hash = scif::make_file(lab, "afterwards", 100_000)?;
    scif::run_tool(lab, 1, &["cp", "-q", "/exchange/afterwards", "0:copy"])?.success()?;
    ensure!(scif::hash_of(&server.folder.join("copy"))? == hash);
    server.stop()
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_node_loss::use_prevents_unload",
        USUAL_PAIR,
        use_prevents_unload,
    )
    .loses_nodes(),
    Test::new(
        "scif_node_loss::link_failure_ends_waits",
        USUAL_PAIR,
        link_failure_ends_waits,
    )
    .loses_nodes()
    .seconds(120),
    Test::new(
        "scif_node_loss::link_failure_during_peer_writes",
        USUAL_PAIR,
        link_failure_during_peer_writes,
    )
    .loses_nodes()
    .seconds(120)
    .by_name(),
    Test::new(
        "scif_node_loss::unbind_ends_waits",
        USUAL_PAIR,
        unbind_ends_waits,
    )
    .loses_nodes()
    .seconds(120),
    Test::new(
        "scif_node_loss::open_endpoint_keeps_no_bridge",
        USUAL_PAIR,
        open_endpoint_keeps_no_bridge,
    )
    .loses_nodes()
    .seconds(120)
    .by_name(),
    Test::new(
        "scif_node_loss::hanging_node_is_lost",
        USUAL_PAIR,
        hanging_node_is_lost,
    )
    .loses_nodes()
    .seconds(120)
    .expects(&["is lost: no heartbeat"]),
    Test::new(
        "scif_node_loss::copy_fails_if_receiver_dies",
        USUAL_PAIR,
        copy_fails_if_receiver_dies,
    )
    .loses_nodes()
    .seconds(180)
    .by_name(),
    Test::new(
        "scif_node_loss::copy_fails_if_sender_dies",
        USUAL_PAIR,
        copy_fails_if_sender_dies,
    )
    .loses_nodes()
    .seconds(180)
    .by_name(),
    Test::new(
        "scif_node_loss::server_outlives_client_node",
        USUAL_PAIR,
        server_outlives_client_node,
    )
    .loses_nodes()
    .seconds(180),
    Test::new(
        "scif_node_loss::unload_shows_node_lost",
        USUAL_PAIR,
        unload_shows_node_lost,
    )
    .loses_nodes()
    .seconds(240)
    .leaves_disorder()
    .by_name(),
];
