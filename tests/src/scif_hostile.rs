// SPDX-License-Identifier: GPL-2.0
//! A hostile peer: node 1 runs a module that speaks all protocols and lies (tests/hostile/liar.patch), under the
//! load of tools and test suites, session after session. Node 0 keeps what Documentation/security.rst promises:
//! what the peer makes it hold is bounded, and given back; its log is bounded; and bystanders on it, among
//! themselves and with node 2 where there is one, do not notice.
//!
//! The liar is a seed: SCIF_HOSTILE_SEED for another one. The tests by name go on for SCIF_HOSTILE_MESSAGES, a
//! million by default.

use std::collections::BTreeMap;
use std::env;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Flavour;
use lab::Lab;
use lab::Process;
use lab::kernel_log;

use crate::bystander::Bystander;
use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::promise::Circumstances;
use crate::scif;
use crate::scif_arena::ARENA_PAIR;
use crate::scif_bounce;
use crate::scif_mutants;
use crate::scif_star::SCIF_STAR;

/// The nodes.
const HONEST: usize = 0;
const HOSTILE: usize = 1;
const THIRD: usize = 2;

/// How much is said.
struct Attack {
    messages: u64,
    /// In seconds, after which it is over with fewer, if there are `least`.
    time: u64,
    least: u64,
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    let asked = env::var(name).ok();
    asked
        .and_then(|asked| asked.parse().ok())
        .unwrap_or(otherwise)
}

impl Attack {
    /// A look at it.
    fn short() -> Attack {
        Attack {
            messages: 1_000_000,
            time: 25,
            least: 3000,
        }
    }

    fn long() -> Attack {
        let messages = from_environment("SCIF_HOSTILE_MESSAGES", 1_000_000);
        Attack {
            messages,
            time: 3000,
            least: messages,
        }
    }
}

/// What the kernel of a node has in use, in KiB.
#[derive(Clone, Copy, Debug)]
struct Memory {
    available: u64,
    unreclaimable: u64,
    vmalloc: u64,
    percpu: u64,
}

impl Memory {
    fn of(lab: &Lab, node: usize) -> Result<Memory> {
        let text = lab.node(node).read("/proc/meminfo")?;
        let number = |name: &str| -> Result<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next());
            Ok(number.with_context(|| name.to_owned())?.parse()?)
        };
        Ok(Memory {
            available: number("MemAvailable:")?,
            unreclaimable: number("SUnreclaim:")?,
            vmalloc: number("VmallocUsed:")?,
            percpu: number("Percpu:")?,
        })
    }

    /// Without what can be had back.
    fn settled(lab: &Lab, node: usize) -> Result<Memory> {
        lab.shell(node, "sync; echo 3 >/proc/sys/vm/drop_caches")?;
        Memory::of(lab, node)
    }

    /// How much more is in use now.
    fn grown(&self, now: &Memory) -> Memory {
        Memory {
            available: self.available.saturating_sub(now.available),
            unreclaimable: now.unreclaimable.saturating_sub(self.unreclaimable),
            vmalloc: now.vmalloc.saturating_sub(self.vmalloc),
            percpu: now.percpu.saturating_sub(self.percpu),
        }
    }

    fn largest(&self) -> u64 {
        let Memory {
            available,
            unreclaimable,
            vmalloc,
            percpu,
        } = *self;
        available.max(unreclaimable).max(vmalloc).max(percpu)
    }
}

/// What a peer makes the kernel keep while it is there, in KiB: what security.rst promises, with the room that the
/// processes of the test take.
fn most_while(lab: &Lab) -> u64 {
    match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => 96 << 10,
        // KASAN keeps what was freed, and doubles the rest.
        Flavour::Debug | Flavour::Kcsan => 256 << 10,
    }
}

/// What may be left in caches of the kernel's own, in KiB.
fn most_after(lab: &Lab) -> u64 {
    match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => 8 << 10,
        Flavour::Debug | Flavour::Kcsan => 96 << 10,
    }
}

/// What the liar has counted; nothing while its node does not answer.
fn said(lab: &Lab) -> Result<BTreeMap<String, u64>> {
    let text = lab.node(HOSTILE).read(&format!("{}/liar", scif::DEBUGFS))?;
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs
        .map(|(name, value)| Ok((name.to_owned(), value.parse()?)))
        .collect()
}

/// Where the loops on the nodes see that it is over.
const OVER: &str = "/tmp/hostile-over";

/// Runs a command of a shell again and again on a node; it is killed after some seconds each time.
fn again_and_again(lab: &Lab, node: usize, command: &str) -> Result<Process> {
    let seconds = 3 * lab.slowness();
    let script = format!(
        "while [ ! -e {OVER} ]; do timeout -s KILL {seconds} {command}; done >/dev/null 2>&1"
    );
    let limit = Duration::from_secs(3600);
    lab.command(node, ["sh", "-c", &script])?
        .timeout(limit)
        .spawn()
}

/// What runs on the nodes until [`OVER`] is there.
struct Load {
    honest: Vec<Process>,
    _hostile: Vec<Process>,
}

/// What goes on between the hostile node and the other one, in both directions.
fn load(lab: &Lab) -> Result<Load> {
    let tool = scif::tool()?;
    let conformance = scif::built("build/conformance/conformance")?;
    let sisci = scif::built("build/sisci/sisci-conformance")?;
    scif::make_file(lab, "hostile", 300_000)?;
    let serve = |node| format!("{tool} serve --root /exchange/served-to-{node} --keep-free 0");
    lab.shell(
        HONEST,
        "mkdir -p /exchange/served-to-0 /exchange/served-to-1",
    )?;
    for node in [HONEST, HOSTILE] {
        lab.shell(node, &format!("rm -f {OVER}"))?;
    }
    let run = format!("{conformance} run --topology two --time-limit 2 --peer {HONEST} --only");
    let on_hostile = [
        format!("{tool} ping {HONEST}"),
        format!("{tool} cp -q /exchange/hostile {HONEST}:copy"),
        format!("{tool} cp -q {HONEST}:copy /tmp/copy"),
        format!("{run} 'connect_*'"),
        format!("{run} 'register_*' --only 'unregister_*'"),
        format!("{run} 'send_*' --only 'close_*'"),
        format!(
            "{run} 'signal_*' --only 'mark_*' --only 'wait_*' --only 'v_*' --only 'copies_plain'"
        ),
        format!("{run} 'kill_*' --only 'names_*'"),
        format!("{sisci} run --topology two --time-limit 2 --peer {HONEST}"),
        serve(1),
    ];
    let on_honest = [
        serve(0),
        format!("{conformance} agent --time-limit 10"),
        format!("{sisci} agent --time-limit 10"),
        format!("{tool} ping {HOSTILE}"),
        format!("{tool} cp -q /exchange/hostile {HOSTILE}:copy"),
    ];
    let hostile = on_hostile
        .iter()
        .map(|command| again_and_again(lab, HOSTILE, command));
    let honest = on_honest
        .iter()
        .map(|command| again_and_again(lab, HONEST, command));
    let hostile = hostile.collect::<Result<_>>()?;
    Ok(Load {
        honest: honest.collect::<Result<_>>()?,
        _hostile: hostile,
    })
}

/// Exchanges the module of the hostile node.
fn load_liar(lab: &Lab, attack: &Attack) -> Result<()> {
    let module = scif_mutants::build(lab, "liar")?;
    lab.rmmod(HOSTILE, "scif")?;
    let seed = from_environment("SCIF_HOSTILE_SEED", 34);
    let rate = from_environment("SCIF_HOSTILE_RATE", 16);
    let kinds = from_environment("SCIF_HOSTILE_KINDS", u64::from(u32::MAX));
    let parameters = scif::parameters(lab, HOSTILE, Loaded::LongHeartbeat)?;
    let messages = attack.messages;
    let parameters = format!(
        "{parameters} liar_seed={seed} liar_rate={rate} liar_kinds={kinds} liar_messages={messages}"
    );
    lab.insmod(HOSTILE, &module, &parameters)
}

/// How many lines there may be in the log after so much time: what security.rst promises for each link, 100 and one
/// each two seconds, and a hundred for what is said once, by the module or others.
fn most_lines(time: Duration) -> usize {
    200 + time.as_secs() as usize / 2
}

/// Warnings that a lying peer causes. Each is the end of a session, or why there is none; or what it has refused.
/// "is lost" by itself would be an engine's, too.
const CAUSED: &[&str] = &[
    "is lost: it ",
    "is lost: its ",
    "is lost: a message ",
    "is lost: no sign of life",
    "about its peer were kept back",
    "no session with node ",
    "no session: the peer's pages have ",
    "the peer speaks version ",
    "asks for service ",
    "has lost a window of this node, for lack of memory",
    "no room for what it takes to write where node ",
    "the aperture over this node's memory is full",
];

/// Lines of the log, of the module and of others.
fn log_lines(lab: &Lab) -> Result<(usize, usize)> {
    let log = lab.dmesg(HONEST)?;
    let lines = kernel_log::since_mark(&log).lines();
    let (ours, others): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.contains("scif: "));
    Ok((ours.len(), others.len()))
}

fn attack(lab: &Lab, attack: &Attack) -> Result<()> {
    let begun = Instant::now();
    let around = Circumstances::before(lab, &[HONEST])?;
    let mut bystanders = vec![Bystander::start(lab, HONEST, HONEST)?];
    if lab.nodes() > THIRD {
        bystanders.push(Bystander::start(lab, HONEST, THIRD)?);
    }
    let before = Memory::settled(lab, HONEST)?;
    load_liar(lab, attack)?;
    let running = load(lab)?;
    let start = Instant::now();
    let mut counts = BTreeMap::new();
    let mut most = 0;
    let time = Duration::from_secs(attack.time);
    while start.elapsed() < time {
        thread::sleep(Duration::from_secs(1));
        bystanders.iter().try_for_each(Bystander::check)?;
        let grown = before.grown(&Memory::of(lab, HONEST)?);
        most = most.max(grown.largest());
        ensure!(
            grown.largest() <= most_while(lab),
            "after {} s and {counts:?} node 0 has so many KiB more in use: {grown:?}",
            start.elapsed().as_secs()
        );
        let known = scif::nodes(lab, HONEST)?.len();
        ensure!(known <= lab.nodes() + 2, "node 0 knows {known} nodes");
        counts = said(lab)?;
        if counts["said"] >= attack.messages {
            break;
        }
    }
    let took = start.elapsed();
    for node in [HONEST, HOSTILE] {
        lab.shell(node, &format!("touch {OVER}"))?;
    }
    for bystander in bystanders {
        bystander.end_undisturbed(&around)?;
    }
    for process in running.honest {
        // Each was killed some seconds ago at the latest.
        let ended = process.wait_timeout(lab.hang_limit(20))?;
        ended.context("a process of node 0 that was killed does not end")?;
    }
    println!(
        "      {counts:?} in {:.0} s, {most} KiB",
        took.as_secs_f64()
    );
    ensure!(counts["said"] >= attack.least, "it has said no more");
    // Without a word: no farewell, and no other nonce.
    lab.kill(HOSTILE)?;
    scif::check_idle(lab, HONEST)?;
    let after = before.grown(&Memory::settled(lab, HONEST)?);
    ensure!(
        after.largest() <= most_after(lab),
        "node 0 has so many KiB more in use afterwards: {after:?}"
    );
    let (ours, others) = log_lines(lab)?;
    println!("      {ours} lines of the module, {others} others; afterwards {after:?}");
    let most = most_lines(begun.elapsed());
    ensure!(
        ours + others <= most,
        "node 0 has logged {ours} lines of the module and {others} others, and may {most}"
    );
    let report = lab.kmemleak(HONEST)?;
    ensure!(report.is_empty(), "node 0 has leaked:\n{report}");
    lab.rmmod(HONEST, "scif")
}

fn short(lab: &Lab) -> Result<()> {
    attack(lab, &Attack::short())
}

fn long(lab: &Lab) -> Result<()> {
    attack(lab, &Attack::long())
}

/// A third node, where a lab has it for this only.
const fn star(need: Need) -> Need {
    Need {
        nodes: SCIF_STAR.nodes,
        topology: SCIF_STAR.topology,
        device_memory: false,
        ..need
    }
}

const fn hostile(name: &'static str, need: Need, run: fn(&Lab) -> Result<()>) -> Test {
    Test::new(name, need, run)
        .seconds(180)
        .loses_nodes()
        .leaves_disorder()
        .expects(CAUSED)
}

const fn million(name: &'static str, need: Need) -> Test {
    hostile(name, need, long).seconds(3600).by_name()
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    hostile("scif_hostile::flat", SCIF_STAR, short),
    hostile("scif_hostile::arena", ARENA_PAIR, short),
    hostile("scif_hostile::bounce", scif_bounce::USUAL, short),
    million("scif_hostile::million_flat", SCIF_STAR),
    million("scif_hostile::million_arena", star(ARENA_PAIR)),
    million("scif_hostile::million_bounce", star(scif_bounce::USUAL)),
];
