// SPDX-License-Identifier: GPL-2.0
//! Nodes that go, whatever the reason: unloaded, unbound, unplugged, hanging, dead. Whoever
//! waits for them is told within two seconds, nobody is hurt, and when they are back
//! everything works again without a reboot of the others.
//!
//! The time counts from the event, for a node that hangs from the end of the heartbeat. Nodes
//! are measured (`promise`) before anything waits in them: what waits here keeps them busy.

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

/// A pair with the module and the heartbeat that users have.
pub const USUAL_PAIR: Need = Need {
    scif: Loaded::AsUsual,
    ..PAIR
};

/// From the event until the last call that waits for the lost node has returned.
pub const TOLD: Promise = Promise {
    name: "calls that wait for a lost node return",
    seconds: 2.0,
};

/// From when others have been told, or the module is unloaded.
const SHOWN: Promise = Promise {
    name: "a lost node is shown as lost",
    seconds: 2.0,
};

/// From the end of the heartbeat: with the usual one that is two seconds after the event.
const MISSED: Promise = Promise {
    name: "a node that hangs is lost, after its heartbeat",
    seconds: 0.5,
};

/// From the death of the node until the program has ended.
pub const COPY_FAILS: Promise = Promise {
    name: "a copy from or to a node that dies fails",
    seconds: 2.0,
};

/// The other node of a pair.
pub fn other(node: usize) -> usize {
    1 - node
}

/// The two sessions of a pair that is online: node 1 as node 0 sees it, and the reverse.
pub fn sessions(lab: &Lab) -> Result<[Seen; 2]> {
    Ok([scif::online(lab, 0, 1)?, scif::online(lab, 1, 0)?])
}

/// Waits until each node sees the other online, after `what`.
fn reconnected(lab: &Lab, what: &str) -> Result<()> {
    sessions(lab).with_context(|| format!("after {what}"))?;
    Ok(())
}

/// A copy from node 0 to node 1 works.
pub fn copy_works(lab: &Lab) -> Result<()> {
    let server = Server::start(lab, 1)?;
    let hash = scif::make_file(lab, "afterwards", 1_234_567)?;
    scif::run_tool(lab, 0, &["cp", "-q", "/exchange/afterwards", "1:copy"])?.success()?;
    ensure!(scif::hash_of(&server.folder.join("copy"))? == hash);
    server.stop()
}

/// What a node's kernel log says since the test began must not contain this.
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
    /// On which it waits.
    pub node: usize,
    waiting: Process,
    /// What the processes of the other node wait for; it waits, too.
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

    /// Those that load from the peer's memory and get SIGBUS.
    const MAPPINGS: [&'static str; 2] = ["mapping", "orphan"];

    /// On both nodes, each for the other.
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
            // Copies that end soon would not show much; the first goes by now.
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

    /// All calls must return, with an error that says that the peer is gone. Returns how long
    /// after `event` the last one has.
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

    /// Likewise those of both nodes, within the promised time.
    fn all_told(
        lab: &Lab,
        blocked: [Blocked; 2],
        around: &Circumstances<'_>,
        event: Instant,
    ) -> Result<()> {
        // Judged when none is left that keeps a node busy.
        for took in blocked.map(|blocked| blocked.told(lab, event)) {
            TOLD.check(around, took?)?;
        }
        Ok(())
    }
}

/// `node` must show `id` as lost within the promised time from now on.
fn shown_as_lost(lab: &Lab, node: usize, id: usize, around: &Circumstances<'_>) -> Result<()> {
    let started = Instant::now();
    scif::state(lab, node, id, "lost", lab.hang_limit(20))?;
    SHOWN.check(around, started.elapsed())
}

/// A node that unloads the module is lost at once, not by its silence, and is back as
/// another session when it loads it again.
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
        not_logged(lab, node, "no sign of life")?;
    }
    copy_works(lab)
}

/// Both at once, so that neither answers the other's farewell.
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

/// One after the other: the second part needs a lab of its own as well on the debug kernel.
fn unload(lab: &Lab) -> Result<()> {
    reload(lab)?;
    unload_both(lab)
}

/// The module stays while somebody uses it.
fn unload_in_use(lab: &Lab) -> Result<()> {
    let server = Server::start(lab, 1)?;
    let output = lab.exec(1, ["rmmod", "scif"])?;
    ensure!(
        output.code() != Some(0) && output.stderr().contains("in use"),
        "{output}"
    );
    scif::run_tool(lab, 0, &["ping", "1", "-c", "3", "-i", "0"])?.success()?;
    server.stop()
}

/// The driver of the NTB is taken away under open connections, and given back.
fn unbind(lab: &Lab) -> Result<()> {
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

/// A process that keeps its end of a connection keeps nothing of a bridge whose driver has gone.
fn kept(lab: &Lab) -> Result<()> {
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
fn link(lab: &Lab) -> Result<()> {
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

/// The same while all that is read is written by the peer.
fn link_while_pushing(lab: &Lab) -> Result<()> {
    scif::all_by_peer(lab, || link(lab))
}

/// A node that hangs is lost, and everybody waiting for it told. If it goes on after all, it
/// is online again, but what there was before is dead on its side, too.
fn hang(lab: &Lab) -> Result<()> {
    let heartbeat = heartbeat::of(lab, 0)?;
    // One by one, as a node that is paused cannot be measured.
    let around_0 = Circumstances::before(lab, &[0])?;
    let around_1 = Circumstances::before(lab, &[1])?;
    let [of_0, of_1] = Blocked::on_both(lab)?;
    let event = Instant::now();
    lab.pause(1)?;
    // When it was asked what found it lost: the answer takes its time where so many wait.
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
    // When those that wait have gone, the node is as busy as it was when it was measured.
    let told = of_0.told(lab, lost)?;
    MISSED.check(
        &around_0,
        asked.duration_since(event).saturating_sub(heartbeat),
    )?;
    TOLD.check(&around_0, told)?;
    let event = Instant::now();
    lab.resume(1)?;
    // From its own point of view, no time has passed.
    let told = of_1.told(lab, event)?;
    TOLD.check(&around_1, told)?;
    reconnected(lab, "node 1 went on")?;
    copy_works(lab)
}

/// Kills node 1 when a copy between the two, run on node 0, is under way. Checks what
/// the copy says, and when.
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
pub fn kill_receiver(lab: &Lab) -> Result<()> {
    kill_during_copy(lab, &["cp", "/exchange/endless", "1:copy"])
}

/// The sender of a copy dies.
pub fn kill_sender(lab: &Lab) -> Result<()> {
    kill_during_copy(lab, &["cp", "1:endless", "/exchange/received/copy"])
}

/// A node dies in the middle of everything that can wait; a server on the other outlives it.
fn kill_client(lab: &Lab) -> Result<()> {
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
    Test::new("scif_node_loss::unload_in_use", USUAL_PAIR, unload_in_use).loses_nodes(),
    Test::new("scif_node_loss::link", USUAL_PAIR, link)
        .loses_nodes()
        .seconds(120),
    Test::new(
        "scif_node_loss::link_while_pushing",
        USUAL_PAIR,
        link_while_pushing,
    )
    .loses_nodes()
    .seconds(120)
    .by_name(),
    Test::new("scif_node_loss::unbind", USUAL_PAIR, unbind)
        .loses_nodes()
        .seconds(120),
    Test::new("scif_node_loss::kept", USUAL_PAIR, kept)
        .loses_nodes()
        .seconds(120)
        .by_name(),
    Test::new("scif_node_loss::hang", USUAL_PAIR, hang)
        .loses_nodes()
        .seconds(120)
        .expects(&["is lost: no sign of life"]),
    Test::new("scif_node_loss::kill_receiver", USUAL_PAIR, kill_receiver)
        .loses_nodes()
        .seconds(180)
        .by_name(),
    Test::new("scif_node_loss::kill_sender", USUAL_PAIR, kill_sender)
        .loses_nodes()
        .seconds(180)
        .by_name(),
    Test::new("scif_node_loss::kill_client", USUAL_PAIR, kill_client)
        .loses_nodes()
        .seconds(180),
    Test::new("scif_node_loss::unload", USUAL_PAIR, unload)
        .loses_nodes()
        .seconds(240)
        .leaves_disorder()
        .by_name(),
];
