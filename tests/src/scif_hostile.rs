// SPDX-License-Identifier: GPL-2.0
//! A hostile peer: node 1 runs a module that speaks all protocols and lies
//! (tests/hostile/liar.patch).
//!
//! The node runs tools and test suites as load, session after session. Node 0 keeps what
//! Documentation/security.rst promises:
//! - What the peer makes node 0 hold is bounded, and node 0 releases all of it.
//! - The log of node 0 is bounded.
//! - Bystanders on node 0 do not notice the attack, whether they talk among themselves or with node
//!   2 (where the lab has one).
//!
//! A seed determines the decisions of the liar. `SCIF_HOSTILE_SEED` chooses another seed. The tests
//! that run only by name go on for `SCIF_HOSTILE_MESSAGES` messages, a million by default.

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

/// The nodes: the node under attack, the node that lies, and a node that takes no part.
const HONEST: usize = 0;
const HOSTILE: usize = 1;
const THIRD: usize = 2;

/// Interval at which a long attack reports its progress.
const PROGRESS: Duration = Duration::from_secs(60);

/// The extent of an attack.
struct Attack {
    messages: u64,
    /// Seconds that the attack may take.
    time: u64,
    /// The least number of lies of each kind that the liar has to tell.
    of_each: u64,
}

pub fn from_environment(name: &str, otherwise: u64) -> u64 {
    let asked = env::var(name).ok();
    asked
        .and_then(|asked| asked.parse().ok())
        .unwrap_or(otherwise)
}

impl Attack {
    /// Returns the short attack, which runs for every change.
    fn short(lab: &Lab) -> Attack {
        let slowness = u64::from(lab.slowness());
        Attack {
            messages: 20_000 / slowness,
            time: 150 * slowness,
            of_each: 1,
        }
    }

    /// Returns whether the liar has sent enough messages and told enough lies of each kind.
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

/// Memory that the kernel of a node has in use, in KiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    available: u64,
    unreclaimable: u64,
    vmalloc: u64,
    percpu: u64,
    /// Number of threads. The kernel removes an idle worker after five minutes.
    threads: u64,
}

/// KiB of a kernel thread, with its stack.
const THREAD: u64 = 32;

/// Number of additional threads for which [`Memory::largest`] makes an allowance.
const MORE_THREADS: u64 = 1000;

impl Memory {
    pub fn of(lab: &Lab, node: usize) -> Result<Memory> {
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

    /// Reads the memory in use, after the node has dropped its caches.
    pub fn settled(lab: &Lab, node: usize) -> Result<Memory> {
        let script = "sync
            echo 3 >/proc/sys/vm/drop_caches
            for file in /sys/kernel/slab/*/shrink; do echo 1 >$file; done";
        lab.shell(node, script)?;
        Memory::of(lab, node)
    }

    /// Returns the growth from `self` to `now`.
    pub fn grown(&self, now: &Memory) -> Memory {
        Memory {
            available: self.available.saturating_sub(now.available),
            unreclaimable: now.unreclaimable.saturating_sub(self.unreclaimable),
            vmalloc: now.vmalloc.saturating_sub(self.vmalloc),
            percpu: now.percpu.saturating_sub(self.percpu),
            threads: now.threads.saturating_sub(self.threads),
        }
    }

    /// Returns the largest of the numbers, less an allowance for the memory of threads.
    pub fn largest(&self) -> u64 {
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

/// Returns the size of each slab cache of a node's kernel, in KiB.
fn slabs(lab: &Lab, node: usize) -> Result<BTreeMap<String, u64>> {
    let text = lab.node(node).read("/proc/slabinfo")?;
    let rows = text.lines().skip(2).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words.get(index)?.parse::<u64>().ok();
        // Pages of a slab (column 5) times slabs (column 14).
        Some(((*words.first()?).to_owned(), number(5)? * number(14)? * 4))
    });
    Ok(rows.collect())
}

/// Returns the memory that a peer may make the kernel hold during an attack, in KiB.
///
/// The limit is the one of security.rst, with room for the processes of the test.
pub fn most_while(lab: &Lab) -> u64 {
    match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => 96 << 10,
        // KASAN keeps freed memory in quarantine and doubles the rest.
        Flavour::Debug | Flavour::Kcsan => 256 << 10,
    }
}

/// Returns the memory that may remain in the kernel's own caches after the attack, in KiB.
pub fn most_after(lab: &Lab) -> u64 {
    match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => 8 << 10,
        Flavour::Debug | Flavour::Kcsan => 96 << 10,
    }
}

/// Returns by how much the memory in use on node 0 has grown since a measurement.
///
/// Retries for some seconds, because the kernel frees some memory late.
pub fn given_back(lab: &Lab, before: &Memory) -> Result<Memory> {
    let mut grown = before.grown(&Memory::settled(lab, HONEST)?);
    for _ in 0..10 {
        if grown.largest() <= most_after(lab) {
            break;
        }
        thread::sleep(Duration::from_secs(1));
        grown = before.grown(&Memory::settled(lab, HONEST)?);
    }
    Ok(grown)
}

/// Reads the counters of the liar, except those of its chances. Returns an empty map while its node
/// does not answer.
fn said(lab: &Lab) -> Result<BTreeMap<String, u64>> {
    let text = lab.node(HOSTILE).read(&format!("{}/liar", scif::DEBUGFS))?;
    let lines = text.lines().filter(|line| !line.starts_with("chances_"));
    let pairs = lines.filter_map(|line| line.split_once(' '));
    pairs
        .map(|(name, value)| Ok((name.to_owned(), value.parse()?)))
        .collect()
}

/// The properties of a path between the nodes that matter to an attack.
struct Mode {
    /// Kinds of lies that the liar has no chance to tell on this path.
    never: &'static [&'static str],
    /// Size in MiB of the windows that the chatter programs use, in slots if the path has slots.
    window: &'static str,
}

/// Flat mode. The path has no slots, and the liar never falsely says that it has released memory.
const FLAT: Mode = Mode {
    never: &["slot", "torn", "credit", "farewell"],
    window: "1",
};

/// Arena mode. Windows are contiguous, so their addresses fill no annex. This window is larger than
/// the aperture.
const ARENA: Mode = Mode {
    never: &["annex"],
    window: "33",
};

/// Bounce mode. Windows have no addresses.
const BOUNCE: Mode = Mode {
    never: &["annex"],
    window: "1",
};

/// Returns the kinds of lies that the liar has told fewer than `least` times.
fn rare(counts: &BTreeMap<String, u64>, least: u64, mode: &Mode) -> Vec<String> {
    let kinds = counts.iter().filter(|(_, count)| **count < least);
    let names = kinds.filter_map(|(name, _)| name.strip_prefix("lie_"));
    let rare = names.filter(|name| !mode.never.contains(name));
    rare.map(str::to_owned).collect()
}

/// Port of the chatter programs of both nodes, which use all features of the module.
const CHATTER: &str = "3200";

/// File whose existence ends the loops on the nodes.
const OVER: &str = "/tmp/hostile-over";

/// Runs shell commands on a node one after the other, in a loop. Each is killed after some seconds.
fn again_and_again(lab: &Lab, node: usize, commands: &[String]) -> Result<Process> {
    let seconds = 3 * lab.slowness();
    let killed = |command| format!("timeout -s KILL {seconds} {command}; ");
    let each: Vec<String> = commands.iter().map(killed).collect();
    let each = each.concat();
    let script = format!("while [ ! -e {OVER} ]; do {each} done >/dev/null 2>&1");
    let limit = Duration::from_secs(3600);
    lab.command(node, ["sh", "-c", &script])?
        .timeout(limit)
        .spawn()
}

/// Commands that an attacked or an attacking node runs.
struct Commands {
    servers: Vec<String>,
    clients: Vec<String>,
}

impl Commands {
    /// Starts all commands in parallel. Where starting a program takes a second, the clients take
    /// turns in one loop.
    fn start(&self, lab: &Lab, node: usize) -> Result<Vec<Process>> {
        let turns = if lab.slowness() == 1 {
            1
        } else {
            self.clients.len().max(1)
        };
        let loops = self.servers.chunks(1).chain(self.clients.chunks(turns));
        loops
            .map(|commands| again_and_again(lab, node, commands))
            .collect()
    }
}

/// Processes that run on the nodes until [`OVER`] exists.
struct Load {
    honest: Vec<Process>,
    _hostile: Vec<Process>,
    /// Programs on both nodes, which run until they are killed.
    chatter: Vec<Process>,
}

impl Load {
    /// Starts the given commands on the two nodes.
    fn start(lab: &Lab, on_honest: &Commands, on_hostile: &Commands) -> Result<Load> {
        for node in [HONEST, HOSTILE] {
            lab.shell(node, &format!("rm -f {OVER}"))?;
        }
        let hostile = on_hostile.start(lab, HOSTILE)?;
        Ok(Load {
            honest: on_honest.start(lab, HONEST)?,
            _hostile: hostile,
            chatter: Vec::new(),
        })
    }

    /// Adds programs that connect and make all calls that the module has, with windows of `window`
    /// MiB.
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

    /// Ends all processes of the load.
    fn end(self, lab: &Lab) -> Result<()> {
        for node in [HONEST, HOSTILE] {
            lab.shell(node, &format!("touch {OVER}"))?;
        }
        self.chatter.iter().for_each(Process::kill);
        let honest = self.chatter.into_iter().take(2).chain(self.honest);
        for process in honest {
            // `timeout` has killed each command some seconds ago at the latest.
            let ended = process.wait_timeout(lab.hang_limit(20))?;
            ended.context("a process of node 0 that was killed does not end")?;
        }
        Ok(())
    }
}

/// Returns the command that runs the SISCI conformance suite with these arguments.
fn sisci(command: &str) -> Result<String> {
    let program = scif::built("build/sisci/sisci-conformance")?;
    Ok(format!("{program} {command}"))
}

fn sisci_against(node: usize) -> Result<String> {
    sisci(&format!("run --topology two --time-limit 2 --peer {node}"))
}

/// Starts the load between the hostile and the honest node, in both directions.
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
    let on_hostile = Commands {
        servers: vec![serve(1)],
        clients: vec![
            format!("{tool} ping {HONEST}"),
            format!("{tool} cp -q /exchange/hostile {HONEST}:copy"),
            format!("{tool} cp -q {HONEST}:copy /tmp/copy"),
            format!("{run} 'connect_*' --only 'kill_*' --only 'names_*'"),
            format!("{run} 'register_*' --only 'signal_*' --only 'mark_*' --only 'v_*'"),
            sisci_against(HONEST)?,
        ],
    };
    let on_honest = Commands {
        servers: vec![
            serve(0),
            format!("{conformance} agent --time-limit 10"),
            sisci("agent --time-limit 10")?,
        ],
        clients: vec![
            format!("{tool} ping {HOSTILE}"),
            format!("{tool} cp -q /exchange/hostile {HOSTILE}:copy"),
        ],
    };
    let mut load = Load::start(lab, &on_honest, &on_hostile)?;
    load.add_chatter(lab, mode.window)?;
    Ok(load)
}

/// Replaces the module of the hostile node by the liar.
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

/// Returns the number of log lines that node 0 may write in this time.
///
/// security.rst promises 100 lines for each link and one more every two seconds. Another hundred is
/// for lines that the module or others log once.
pub fn most_lines(time: Duration) -> usize {
    200 + time.as_secs() as usize / 2
}

/// Warnings that a lying peer causes.
///
/// Each names the end of a session, the reason why there is no session, or a request that the
/// module has refused. A bare "is lost" would also match the warnings of an engine.
pub const CAUSED: &[&str] = &[
    "is lost: it ",
    "is lost: its ",
    "is lost: no heartbeat ",
    "about its peer were suppressed",
    "no session with node ",
    "no session: the peer's pages have ",
    "the peer speaks version ",
    "asks for service ",
    "has dropped a window of this node, for lack of memory",
    "offers slots for writes, and this node has no room for their counters",
    "the aperture over this node's memory is full",
];

/// Returns the number of log lines of the module and of others.
pub fn log_lines(lab: &Lab) -> Result<(usize, usize)> {
    let log = lab.dmesg(HONEST)?;
    let lines = kernel_log::since_mark(&log).lines();
    let (ours, others): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.contains("scif: "));
    Ok((ours.len(), others.len()))
}

/// A watch over the honest node while it is attacked.
struct Watch<'a> {
    lab: &'a Lab,
    begun: Instant,
    around: Circumstances<'a>,
    bystanders: Vec<Bystander<'a>>,
    before: Memory,
    slabs: BTreeMap<String, u64>,
    /// The largest growth of the memory in use so far, in KiB.
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

    /// Waits for a second, then checks the bystanders, the memory and the number of known nodes.
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

    /// Ends the bystanders, and fails if one of them was disturbed.
    fn end_bystanders(&mut self) -> Result<()> {
        let mut bystanders = self.bystanders.drain(..);
        bystanders.try_for_each(|bystander| bystander.end_undisturbed(&self.around))
    }

    /// Kills the hostile node, and checks that node 0 has released all resources.
    fn end(self) -> Result<()> {
        let lab = self.lab;
        // The node sends neither a farewell nor a new nonce.
        lab.kill(HOSTILE)?;
        scif::check_idle(lab, HONEST)?;
        let after = given_back(lab, &self.before)?;
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
    let mut reported = Duration::ZERO;
    let mut counts = BTreeMap::new();
    let time = Duration::from_secs(attack.time);
    while start.elapsed() < time {
        watch.look().with_context(|| format!("after {counts:?}"))?;
        counts = said(lab)?;
        if attack.is_over(&counts, mode) {
            break;
        }
        if start.elapsed() >= reported + PROGRESS {
            reported = start.elapsed();
            let (seconds, said) = (reported.as_secs(), counts["said"]);
            println!("      {seconds} s: {said} of {} messages", attack.messages);
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

/// File in which programs that lie count their lies.
const LIES: &str = "/tmp/hostile-lies";

/// Number of lies of each kind that programs have to tell.
const OF_EACH_SERVICE: u64 = 2;

/// Limit of the memory of `scif serve` in KiB, for all its clients.
const SERVER_MEMORY: u64 = 128 << 10;

/// Returns the counts of lies that the lying programs have told.
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

/// Returns the resident memory of the server in KiB.
fn memory_of_server(lab: &Lab) -> Result<u64> {
    let script = "for status in /proc/[0-9]*/status; do
            tr '\\0' ' ' <${status%status}cmdline 2>/dev/null | grep -q '^[^ ]*scif serve ' &&
                sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\) kB/\\1/p' $status
        done | sort -n | tail -n 1";
    let text = lab.shell(HONEST, script)?;
    text.trim().parse().with_context(|| format!("'{text}'"))
}

/// Stores a file on the server of the honest node, and checks that its content has arrived.
fn uses_server(lab: &Lab, server: &Server<'_>, hash: &str) -> Result<()> {
    let path = format!("{HONEST}:own");
    scif::run_tool(lab, HONEST, &["cp", "-q", "/exchange/hostile", &path])?.success()?;
    ensure!(scif::hash_of(&server.folder.join("own"))? == hash);
    Ok(())
}

/// Lets programs of the hostile node lie in the protocols above SCIF: names, `scif serve` and
/// libsisci.
fn services_survive_lies(lab: &Lab) -> Result<()> {
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
    let on_hostile = Commands {
        servers: vec![
            format!("{lies} {tool} serve --root /tmp/served --keep-free 0"),
            format!("{lies} {}", sisci("agent --time-limit 10")?),
        ],
        clients: vec![
            format!("{lies} {tool} ping {HONEST}"),
            format!("{lies} {tool} cp -q /exchange/hostile {HONEST}:copy"),
            format!("{lies} {tool} cp -q {HONEST}:own /tmp/copy"),
            format!("{lies} {}", sisci_against(HONEST)?),
        ],
    };
    let on_honest = Commands {
        servers: vec![sisci("agent --time-limit 10")?],
        clients: vec![
            format!("{tool} ping {HOSTILE}"),
            format!("{tool} cp -q /exchange/hostile {HOSTILE}:copy"),
            format!("{tool} cp -q {HOSTILE}:copy /tmp/copy"),
            sisci_against(HOSTILE)?,
        ],
    };
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
        attack(lab, &Attack::short(lab), &FLAT)
    }),
    hostile("scif_hostile::arena", ARENA_PAIR, |lab| {
        attack(lab, &Attack::short(lab), &ARENA)
    }),
    hostile("scif_hostile::bounce", scif_bounce::USUAL, |lab| {
        attack(lab, &Attack::short(lab), &BOUNCE)
    }),
    hostile(
        "scif_hostile::services_survive_lies",
        SCIF_PAIR,
        services_survive_lies,
    ),
    million("scif_hostile::million_flat", SCIF_PAIR, |lab| {
        attack(lab, &Attack::long(), &FLAT)
    }),
    million("scif_hostile::million_arena", ARENA_PAIR, |lab| {
        attack(lab, &Attack::long(), &ARENA)
    }),
    million("scif_hostile::million_bounce", scif_bounce::USUAL, |lab| {
        attack(lab, &Attack::long(), &BOUNCE)
    }),
];
