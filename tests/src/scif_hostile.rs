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
use anyhow::bail;
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
use crate::scif::Server;
use crate::scif_arena::ARENA_PAIR;
use crate::scif_bounce;
use crate::scif_messages_and_rma::SCIF_PAIR;
use crate::scif_mutants;
use crate::scif_star::SCIF_STAR;

/// The nodes.
const HONEST: usize = 0;
const HOSTILE: usize = 1;
const THIRD: usize = 2;

/// How much is said.
struct Attack {
    messages: u64,
    /// Seconds that it may take.
    time: u64,
    /// How many lies of each kind there are in any case.
    of_each: u64,
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
            messages: 20_000,
            time: 150,
            of_each: 1,
        }
    }

    /// Whether there has been enough of it.
    fn is_over(&self, counts: &BTreeMap<String, u64>, mode: &Mode) -> bool {
        counts["said"] >= self.messages && rare(counts, self.of_each, mode).is_empty()
    }

    fn long() -> Attack {
        let messages = from_environment("SCIF_HOSTILE_MESSAGES", 1_000_000);
        Attack {
            messages,
            time: 3300,
            of_each: 20,
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
    /// How many threads there are: workers that are idle go after five minutes.
    threads: u64,
}

/// KiB of a thread of the kernel, with its stack.
const THREAD: u64 = 32;

/// How many more there may be.
const MORE_THREADS: u64 = 1000;

impl Memory {
    fn of(lab: &Lab, node: usize) -> Result<Memory> {
        let text = lab.node(node).read("/proc/meminfo")?;
        let number = |name: &str| -> Result<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next());
            Ok(number.with_context(|| name.to_owned())?.parse()?)
        };
        let load = lab.node(node).read("/proc/loadavg")?;
        let threads = load.split([' ', '/']).nth(4).context("no threads")?;
        Ok(Memory {
            threads: threads.parse()?,
            available: number("MemAvailable:")?,
            unreclaimable: number("SUnreclaim:")?,
            vmalloc: number("VmallocUsed:")?,
            percpu: number("Percpu:")?,
        })
    }

    /// Without what can be had back.
    fn settled(lab: &Lab, node: usize) -> Result<Memory> {
        let script = "sync
            echo 3 >/proc/sys/vm/drop_caches
            for file in /sys/kernel/slab/*/shrink; do echo 1 >$file; done";
        lab.shell(node, script)?;
        Memory::of(lab, node)
    }

    /// How much more is in use now.
    fn grown(&self, now: &Memory) -> Memory {
        Memory {
            available: self.available.saturating_sub(now.available),
            unreclaimable: now.unreclaimable.saturating_sub(self.unreclaimable),
            vmalloc: now.vmalloc.saturating_sub(self.vmalloc),
            percpu: now.percpu.saturating_sub(self.percpu),
            threads: now.threads.saturating_sub(self.threads),
        }
    }

    /// The largest of the numbers, but for what threads have.
    fn largest(&self) -> u64 {
        let Memory {
            available,
            unreclaimable,
            vmalloc,
            percpu,
            threads,
        } = *self;
        let largest = available.max(unreclaimable).max(vmalloc).max(percpu);
        largest.saturating_sub(threads.min(MORE_THREADS) * THREAD)
    }
}

/// What each kind of objects of the kernel takes, in KiB.
fn slabs(lab: &Lab, node: usize) -> Result<BTreeMap<String, u64>> {
    let text = lab.node(node).read("/proc/slabinfo")?;
    let rows = text.lines().skip(2).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words.get(index)?.parse::<u64>().ok();
        // Pages of a slab, and slabs.
        Some(((*words.first()?).to_owned(), number(5)? * number(14)? * 4))
    });
    Ok(rows.collect())
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

/// What the liar has counted, but for its chances; nothing while its node does not answer.
fn said(lab: &Lab) -> Result<BTreeMap<String, u64>> {
    let text = lab.node(HOSTILE).read(&format!("{}/liar", scif::DEBUGFS))?;
    let lines = text.lines().filter(|line| !line.starts_with("chances_"));
    let pairs = lines.filter_map(|line| line.split_once(' '));
    pairs
        .map(|(name, value)| Ok((name.to_owned(), value.parse()?)))
        .collect()
}

/// How the nodes reach each other.
struct Mode {
    /// Kinds of lies for which there is no chance.
    never: &'static [&'static str],
    /// MiB of windows that are used in slots, where there are slots.
    window: &'static str,
}

/// No slots; and the liar does not say that it has let go of memory.
const FLAT: Mode = Mode {
    never: &["slot", "torn", "credit", "farewell"],
    window: "1",
};

/// Windows are in one piece, so their addresses fill no annex. This one is larger than the aperture.
const ARENA: Mode = Mode {
    never: &["annex"],
    window: "33",
};

/// Windows have no addresses.
const BOUNCE: Mode = Mode {
    never: &["annex"],
    window: "1",
};

/// The kinds of lies that were told less often than this.
fn rare(counts: &BTreeMap<String, u64>, least: u64, mode: &Mode) -> Vec<String> {
    let kinds = counts.iter().filter(|(_, count)| **count < least);
    let names = kinds.filter_map(|(name, _)| name.strip_prefix("lie_"));
    let rare = names.filter(|name| !mode.never.contains(name));
    rare.map(str::to_owned).collect()
}

/// Where programs of both nodes listen that use all there is.
const CHATTER: &str = "3200";

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
    /// On both nodes, until they are killed.
    chatter: Vec<Process>,
}

impl Load {
    /// Starts these commands on the two nodes.
    fn start(lab: &Lab, on_honest: &[String], on_hostile: &[String]) -> Result<Load> {
        for node in [HONEST, HOSTILE] {
            lab.shell(node, &format!("rm -f {OVER}"))?;
        }
        let all = |node, commands: &[String]| {
            let commands = commands.iter();
            let started = commands.map(|command| again_and_again(lab, node, command));
            started.collect::<Result<Vec<_>>>()
        };
        let hostile = all(HOSTILE, on_hostile)?;
        Ok(Load {
            honest: all(HONEST, on_honest)?,
            _hostile: hostile,
            chatter: Vec::new(),
        })
    }

    /// And programs that connect and make all calls there are, with windows of so many MiB.
    fn add_chatter(&mut self, lab: &Lab, window: &str) -> Result<()> {
        for (node, peer) in [(HONEST, "1"), (HOSTILE, "0")] {
            for arguments in [
                &["server", CHATTER, window][..],
                &["client", peer, CHATTER, window],
            ] {
                let program = scif::start_program(lab, node, "scif_chatter", arguments, 3600)?;
                self.chatter.push(program);
            }
        }
        Ok(())
    }

    /// Ends all of it.
    fn end(self, lab: &Lab) -> Result<()> {
        for node in [HONEST, HOSTILE] {
            lab.shell(node, &format!("touch {OVER}"))?;
        }
        self.chatter.iter().for_each(Process::kill);
        let honest = self.chatter.into_iter().take(2).chain(self.honest);
        for process in honest {
            // Each was killed some seconds ago at the latest.
            let ended = process.wait_timeout(lab.hang_limit(20))?;
            ended.context("a process of node 0 that was killed does not end")?;
        }
        Ok(())
    }
}

/// A command that runs the conformance suite of SISCI against a node.
fn sisci(what: &str) -> Result<String> {
    let program = scif::built("build/sisci/sisci-conformance")?;
    Ok(format!("{program} {what}"))
}

fn sisci_against(node: usize) -> Result<String> {
    sisci(&format!("run --topology two --time-limit 2 --peer {node}"))
}

/// What goes on between the hostile node and the other one, in both directions.
fn load(lab: &Lab, mode: &Mode) -> Result<Load> {
    let tool = scif::tool()?;
    let conformance = scif::built("build/conformance/conformance")?;
    scif::make_file(lab, "hostile", 300_000)?;
    let serve = |node| format!("{tool} serve --root /exchange/served-to-{node} --keep-free 0");
    lab.shell(
        HONEST,
        "mkdir -p /exchange/served-to-0 /exchange/served-to-1",
    )?;
    let run = format!("{conformance} run --topology two --time-limit 2 --peer {HONEST} --only");
    let on_hostile = [
        format!("{tool} ping {HONEST}"),
        format!("{tool} cp -q /exchange/hostile {HONEST}:copy"),
        format!("{tool} cp -q {HONEST}:copy /tmp/copy"),
        format!("{run} 'connect_*' --only 'kill_*' --only 'names_*'"),
        format!("{run} 'register_*' --only 'signal_*' --only 'mark_*' --only 'v_*'"),
        sisci_against(HONEST)?,
        serve(1),
    ];
    let on_honest = [
        serve(0),
        format!("{conformance} agent --time-limit 10"),
        sisci("agent --time-limit 10")?,
        format!("{tool} ping {HOSTILE}"),
        format!("{tool} cp -q /exchange/hostile {HOSTILE}:copy"),
    ];
    let mut load = Load::start(lab, &on_honest, &on_hostile)?;
    load.add_chatter(lab, mode.window)?;
    Ok(load)
}

/// Exchanges the module of the hostile node.
fn load_liar(lab: &Lab) -> Result<()> {
    let module = scif_mutants::build(lab, "liar")?;
    lab.rmmod(HOSTILE, "scif")?;
    let seed = from_environment("SCIF_HOSTILE_SEED", 34);
    let rate = from_environment("SCIF_HOSTILE_RATE", 1);
    let kinds = from_environment("SCIF_HOSTILE_KINDS", u64::from(u32::MAX));
    let parameters = scif::parameters(lab, HOSTILE, Loaded::LongHeartbeat)?;
    let parameters = format!("{parameters} liar_seed={seed} liar_rate={rate} liar_kinds={kinds}");
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

/// Looks at the honest node while it is attacked.
struct Watch<'a> {
    lab: &'a Lab,
    begun: Instant,
    around: Circumstances<'a>,
    bystanders: Vec<Bystander<'a>>,
    before: Memory,
    slabs: BTreeMap<String, u64>,
    /// The most that it had more in use, in KiB.
    most: u64,
}

impl<'a> Watch<'a> {
    fn start(lab: &'a Lab) -> Result<Watch<'a>> {
        let around = Circumstances::before(lab, &[HONEST])?;
        let mut bystanders = vec![Bystander::start(lab, HONEST, HONEST)?];
        if lab.nodes() > THIRD {
            bystanders.push(Bystander::start(lab, HONEST, THIRD)?);
        }
        Ok(Watch {
            lab,
            begun: Instant::now(),
            around,
            bystanders,
            before: Memory::settled(lab, HONEST)?,
            slabs: slabs(lab, HONEST)?,
            most: 0,
        })
    }

    /// A second later.
    fn look(&mut self) -> Result<()> {
        thread::sleep(Duration::from_secs(1));
        self.bystanders.iter().try_for_each(Bystander::check)?;
        let lab = self.lab;
        let grown = self.before.grown(&Memory::of(lab, HONEST)?);
        self.most = self.most.max(grown.largest());
        ensure!(
            grown.largest() <= most_while(lab),
            "node 0 has so many KiB more in use: {grown:?}"
        );
        let known = scif::nodes(lab, HONEST)?.len();
        ensure!(known <= lab.nodes() + 2, "node 0 knows {known} nodes");
        Ok(())
    }

    /// Nobody has noticed anything.
    fn end_bystanders(&mut self) -> Result<()> {
        let mut bystanders = self.bystanders.drain(..);
        bystanders.try_for_each(|bystander| bystander.end_undisturbed(&self.around))
    }

    /// How much more is in use once that does not get less, as some is given back later.
    fn given_back(&self) -> Result<Memory> {
        let mut grown = self.before.grown(&Memory::settled(self.lab, HONEST)?);
        for _ in 0..10 {
            if grown.largest() <= most_after(self.lab) {
                break;
            }
            thread::sleep(Duration::from_secs(1));
            grown = self.before.grown(&Memory::settled(self.lab, HONEST)?);
        }
        Ok(grown)
    }

    /// The hostile node dies, and all is given back.
    fn end(self) -> Result<()> {
        let lab = self.lab;
        // Without a word: no farewell, and no other nonce.
        lab.kill(HOSTILE)?;
        scif::check_idle(lab, HONEST)?;
        let after = self.given_back()?;
        if after.largest() > most_after(lab) {
            let mut slabs = slabs(lab, HONEST)?;
            slabs.retain(|name, now| *now > self.slabs.get(name).unwrap_or(&0) + 100);
            bail!("node 0 has so many KiB more in use afterwards: {after:?}; slabs: {slabs:?}");
        }
        let (ours, others) = log_lines(lab)?;
        println!(
            "      {} KiB meanwhile, afterwards {after:?}; {ours} lines of the module, {others} others",
            self.most
        );
        let most = most_lines(self.begun.elapsed());
        ensure!(
            ours + others <= most,
            "node 0 has logged {ours} lines of the module and {others} others, and may {most}"
        );
        let report = lab.kmemleak(HONEST)?;
        ensure!(report.is_empty(), "node 0 has leaked:\n{report}");
        lab.rmmod(HONEST, "scif")
    }
}

fn attack(lab: &Lab, attack: &Attack, mode: &Mode) -> Result<()> {
    let mut watch = Watch::start(lab)?;
    load_liar(lab)?;
    let running = load(lab, mode)?;
    let start = Instant::now();
    let mut counts = BTreeMap::new();
    let time = Duration::from_secs(attack.time);
    while start.elapsed() < time {
        watch.look().with_context(|| format!("after {counts:?}"))?;
        counts = said(lab)?;
        if attack.is_over(&counts, mode) {
            break;
        }
    }
    println!("      {counts:?} in {:.0} s", start.elapsed().as_secs_f64());
    running.end(lab)?;
    watch.end_bystanders()?;
    ensure!(counts["said"] >= attack.messages, "it has said no more");
    let rare = rare(&counts, attack.of_each, mode);
    ensure!(rare.is_empty(), "there were few of these lies: {rare:?}");
    watch.end()
}

// ----- services ------------------------------------------------------------------------------------

/// The file in which programs that lie count.
const LIES: &str = "/tmp/hostile-lies";

/// How many lies of each kind programs tell.
const OF_EACH_SERVICE: u64 = 2;

/// How many KiB of memory `scif serve` has, for all its clients.
const SERVER_MEMORY: u64 = 128 << 10;

/// What programs that lie have counted.
fn lies_of_programs(lab: &Lab) -> Result<BTreeMap<String, u64>> {
    let text = lab.shell(
        HOSTILE,
        &format!("{} show {LIES}", scif::program("scif_lies")?),
    )?;
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs
        .map(|(name, value)| Ok((name.to_owned(), value.parse()?)))
        .collect()
}

/// KiB that the server has.
fn memory_of_server(lab: &Lab) -> Result<u64> {
    let script = "for status in /proc/[0-9]*/status; do
            tr '\\0' ' ' <${status%status}cmdline 2>/dev/null | grep -q '^[^ ]*scif serve ' &&
                sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\) kB/\\1/p' $status
        done | sort -n | tail -n 1";
    let text = lab.shell(HONEST, script)?;
    text.trim().parse().with_context(|| format!("'{text}'"))
}

/// A user of the honest node uses its service: what it stores is what it gets.
fn uses_server(lab: &Lab, server: &Server<'_>, hash: &str) -> Result<()> {
    let path = format!("{HONEST}:own");
    scif::run_tool(lab, HONEST, &["cp", "-q", "/exchange/hostile", &path])?.success()?;
    ensure!(scif::hash_of(&server.folder.join("own"))? == hash);
    Ok(())
}

/// Programs of the other node speak the protocols above SCIF, and lie: names, those of `scif serve` and of libsisci.
fn services(lab: &Lab) -> Result<()> {
    let mut watch = Watch::start(lab)?;
    let hash = scif::make_file(lab, "hostile", 300_000)?;
    let server = Server::start_with(lab, HONEST, "--keep-free 0")?;
    let tool = scif::tool()?;
    let seed = from_environment("SCIF_HOSTILE_SEED", 34);
    let lies = format!(
        "{} run $((said = said + 1 + {seed})) {LIES}",
        scif::program("scif_lies")?
    );
    lab.shell(HOSTILE, &format!("rm -f {LIES}; mkdir -p /tmp/served"))?;
    let on_hostile = [
        format!("{lies} {tool} ping {HONEST}"),
        format!("{lies} {tool} cp -q /exchange/hostile {HONEST}:copy"),
        format!("{lies} {tool} cp -q {HONEST}:own /tmp/copy"),
        format!("{lies} {tool} serve --root /tmp/served --keep-free 0"),
        format!("{lies} {}", sisci_against(HONEST)?),
        format!("{lies} {}", sisci("agent --time-limit 10")?),
    ];
    let on_honest = [
        format!("{tool} ping {HOSTILE}"),
        format!("{tool} cp -q /exchange/hostile {HOSTILE}:copy"),
        format!("{tool} cp -q {HOSTILE}:copy /tmp/copy"),
        sisci("agent --time-limit 10")?,
        sisci_against(HOSTILE)?,
    ];
    let running = Load::start(lab, &on_honest, &on_hostile)?;
    let start = Instant::now();
    let mut counts = BTreeMap::new();
    let mut memory = 0;
    loop {
        watch.look().with_context(|| format!("after {counts:?}"))?;
        uses_server(lab, &server, &hash).with_context(|| format!("after {counts:?}"))?;
        memory = memory.max(memory_of_server(lab)?);
        ensure!(memory <= SERVER_MEMORY, "scif serve has {memory} KiB");
        counts = lies_of_programs(lab)?;
        let elapsed = start.elapsed();
        if elapsed > Duration::from_secs(20)
            && counts.values().all(|count| *count >= OF_EACH_SERVICE)
        {
            break;
        }
        ensure!(
            elapsed < lab.hang_limit(90),
            "there were few lies: {counts:?}"
        );
    }
    println!("      {counts:?}, scif serve had {memory} KiB");
    running.end(lab)?;
    watch.end_bystanders()?;
    let log = server.log();
    ensure!(!log.contains("panicked"), "{log}");
    server.stop()?;
    for text in ["segfault", "traps:", "general protection"] {
        let log = lab.dmesg(HONEST)?;
        ensure!(
            !kernel_log::since_mark(&log).contains(text),
            "a program of node 0 has died:\n{log}"
        );
    }
    watch.end()
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

const fn million(name: &'static str, need: Need, run: fn(&Lab) -> Result<()>) -> Test {
    hostile(name, need, run).seconds(3600).by_name()
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    hostile("scif_hostile::flat", SCIF_STAR, |lab| {
        attack(lab, &Attack::short(), &FLAT)
    }),
    hostile("scif_hostile::arena", ARENA_PAIR, |lab| {
        attack(lab, &Attack::short(), &ARENA)
    }),
    hostile("scif_hostile::bounce", scif_bounce::USUAL, |lab| {
        attack(lab, &Attack::short(), &BOUNCE)
    }),
    hostile("scif_hostile::services", SCIF_PAIR, services),
    million("scif_hostile::million_flat", SCIF_STAR, |lab| {
        attack(lab, &Attack::long(), &FLAT)
    }),
    million("scif_hostile::million_arena", star(ARENA_PAIR), |lab| {
        attack(lab, &Attack::long(), &ARENA)
    }),
    million(
        "scif_hostile::million_bounce",
        star(scif_bounce::USUAL),
        |lab| attack(lab, &Attack::long(), &BOUNCE),
    ),
];
