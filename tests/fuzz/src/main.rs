// SPDX-License-Identifier: GPL-2.0

//! Makes random calls of /dev/scif beside a model that predicts their results.
//!
//! A run is determined by its seed. If a run fails, the program shortens it by runs in processes of
//! their own. Then it prints the run as a program that `scif-fuzz replay` can repeat. A run of one
//! thread fails each time. A run of a crowd is tried several times, as its threads race.

mod agent;
mod calls;
mod choice;
mod crowd;
mod kernel;
mod lines;
mod memory;
mod model;
mod run;
mod shrink;
#[cfg(test)]
mod syzkaller;

use std::io::Read as _;
use std::io::Write as _;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::ExitCode;
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use clap::Parser;
use clap::Subcommand;

use crate::agent::Agent;
use crate::calls::Call;
use crate::choice::Chooser;
use crate::choice::UNSHARED;
use crate::crowd::setting::Setting;
use crate::crowd::steps::Step;
use crate::run::Other;
use crate::run::SOON;
use crate::run::Tally;
use crate::run::make;

/// Number of calls of one run. Shortening a failure in a longer run would take long.
const RUN: usize = 2000;

/// Makes random calls of /dev/scif, and reports the first call with an unexpected result.
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Examples:
  scif-fuzz run --calls 1000000          a million calls, in runs with the seeds 0, 1, ...
  scif-fuzz run --seed 77 --calls 2000   the run of seed 77
  scif-fuzz agent                        on node 1: serve runs of node 0
  scif-fuzz run --peer 1                 on node 0: runs with half of the endpoints on node 1
  scif-fuzz replay failure.txt           the calls of a file, one per line
  scif-fuzz crowd --calls 1000000        a million calls of crowds: processes, threads, signals
  scif-fuzz crowd --seed 77 --calls 1    the crowd of seed 77
  scif-fuzz crowd --replay failure.txt   the steps of a file, ten times unless they fail before

Exit code: 0 if all calls had an expected result, 1 if one had not, 2 if the program could not run."
)]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Makes runs of random calls.
    Run {
        /// The seed of the first run; each further run has the next seed.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Number of calls in all runs together.
        #[arg(long, default_value_t = 100_000)]
        calls: usize,
        /// Makes no new run after this many seconds.
        #[arg(long, default_value_t = u64::MAX)]
        seconds: u64,
        #[command(flatten)]
        other: OtherArguments,
    },
    /// Serves runs of another node, whose `--peer` and `--port` name this agent.
    Agent {
        /// The port to listen on.
        #[arg(long, default_value_t = AGENT)]
        port: u16,
    },
    /// Makes the calls of a file; "-" is standard input.
    Replay {
        file: PathBuf,
        /// Milliseconds to wait for an event that must come soon.
        #[arg(long, default_value_t = SOON.as_millis() as u64)]
        soon: u64,
        #[command(flatten)]
        other: OtherArguments,
    },
    /// Lets crowds of processes and threads make calls on shared endpoints.
    Crowd {
        /// The seed of the first crowd; each further crowd has the next seed.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Number of calls of all crowds together; each crowd makes some thousands.
        #[arg(long, default_value_t = 100_000)]
        calls: u64,
        /// Makes no new crowd after this many seconds.
        #[arg(long, default_value_t = u64::MAX)]
        seconds: u64,
        /// Lets a crowd do the steps of this file instead; "-" is standard input.
        #[arg(long)]
        replay: Option<PathBuf>,
        /// Number of times to replay the steps if they do not fail before.
        #[arg(long, default_value_t = 10)]
        times: u32,
        #[command(flatten)]
        setting: SettingArguments,
    },
    /// Continues a process of a crowd after `exec`.
    #[command(hide = true)]
    Inherit {
        #[arg(long)]
        table: usize,
        #[arg(long)]
        actor: usize,
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        calls: usize,
        #[command(flatten)]
        setting: SettingArguments,
    },
}

/// Default port of agents.
const AGENT: u16 = 3300;

#[derive(clap::Args)]
struct OtherArguments {
    /// The node with half of the endpoints, where an agent serves them; none by default.
    #[arg(long)]
    peer: Option<u16>,
    /// The agent's port.
    #[arg(long, default_value_t = AGENT)]
    port: u16,
    /// Whether the nodes copy by staging only, or an aperture is small.
    #[arg(long, action = clap::ArgAction::Set, default_value_t = false)]
    staged: bool,
}

impl OtherArguments {
    fn other(&self) -> Result<Option<Other>> {
        let Some(peer) = self.peer else {
            return Ok(None);
        };
        Ok(Some(Other {
            agent: Rc::new(Agent::connect(peer, self.port)?),
            is_staged: self.staged,
        }))
    }

    /// Returns the arguments of this program for these values.
    fn words(&self) -> Vec<String> {
        let peer = self.peer.map(|peer| format!("--peer={peer}"));
        let rest = [
            format!("--port={}", self.port),
            format!("--staged={}", self.staged),
        ];
        peer.into_iter().chain(rest).collect()
    }
}

#[derive(clap::Args)]
struct SettingArguments {
    /// The node to connect to; this node by default.
    #[arg(long)]
    peer: Option<u16>,
    /// The factor by which this machine is slower than a fast one.
    #[arg(long, default_value_t = 1)]
    slow: u32,
    /// Whether this node and the peer copy by staging only, or the peer's aperture is small.
    #[arg(long, action = clap::ArgAction::Set, default_value_t = false)]
    staged: bool,
    /// Whether the peer node is lost now and then.
    #[arg(long, action = clap::ArgAction::Set, default_value_t = false)]
    lossy: bool,
    /// The number of this crowd, from 1, if other crowds use the module on this node as well.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(..8))]
    beside: u16,
}

impl SettingArguments {
    fn setting(&self) -> Result<Setting> {
        let own = || -> Result<u16> {
            let endpoint = scif_sys::open().context("/dev/scif can't be opened")?;
            Ok(scif_sys::node_ids(&endpoint)?.own)
        };
        Ok(Setting {
            peer: self.peer.map_or_else(own, Ok)?,
            is_staged: self.staged,
            is_lossy: self.lossy,
            slow: self.slow.max(1),
            beside: self.beside,
        })
    }
}

/// Milliseconds for an expected event while a run is shortened, as most tried runs wait for it in
/// vain.
const SOON_AGAIN: &str = "500";

/// Makes these calls as [`make`] does.
fn make_again(calls: &[Call], soon: Duration, other: Option<Other>) -> Result<Tally> {
    let mut calls = calls.iter().copied();
    make(soon, other, &mut Vec::new(), |_| calls.next())
}

/// Prints the number of calls that succeeded and failed, as a table.
fn print(tally: &Tally) {
    println!("{:<12} {:>9} {:>9}", "call", "succeeded", "failed");
    for (word, ended) in tally {
        println!("{word:<12} {:>9} {:>9}", ended.well, ended.failed);
    }
}

/// Returns whether a process that makes these calls fails, hangs or dies of a signal.
fn fails_elsewhere(calls: &[Call], other: &OtherArguments) -> bool {
    let attempt = || -> Result<bool> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["replay", "-", "--soon", SOON_AGAIN])
            .args(other.words())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut input = child.stdin.take().context("no pipe")?;
        input.write_all(lines::print(calls).as_bytes())?;
        drop(input);
        Ok(child.wait()?.code() != Some(0))
    };
    attempt().unwrap_or(false)
}

fn runs(first: u64, calls: usize, seconds: u64, arguments: &OtherArguments) -> Result<bool> {
    let start = Instant::now();
    let mut made = 0;
    let other = arguments.other()?;
    let mut all = Tally::new();
    for seed in first.. {
        if made >= calls || start.elapsed().as_secs() >= seconds {
            break;
        }
        let mut chooser = Chooser::new(seed, UNSHARED);
        let mut list = Vec::new();
        let mut left = RUN.min(calls - made);
        made += left;
        let run = make(SOON, other.clone(), &mut list, |model| {
            left = left.checked_sub(1)?;
            Some(chooser.call(model))
        });
        match run {
            Ok(tally) => {
                for (word, ended) in tally {
                    let sum = all.entry(word).or_default();
                    sum.well += ended.well;
                    sum.failed += ended.failed;
                }
            }
            Err(error) => {
                println!("seed {seed}: {error:#}");
                let fails = |calls: &[Call]| fails_elsewhere(calls, arguments);
                // An agent serves one connection after the other, so this one has to be closed
                // first.
                drop(other);
                if !fails(&list) {
                    let words = arguments.words().join(" ");
                    println!(
                        "the run does not fail again: scif-fuzz run --seed={seed} --calls={RUN} {words}"
                    );
                    return Ok(false);
                }
                let short = shrink::shrink(&list, fails);
                let reason = make_again(&short, SOON, arguments.other()?).err();
                println!("# {:#}", reason.unwrap_or(error));
                println!("{}", lines::print(&short));
                return Ok(false);
            }
        }
    }
    print(&all);
    println!("{made} calls: all had an expected result");
    Ok(true)
}

/// Reads the text of a file. "-" is standard input.
fn text_of(file: &Path) -> Result<String> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("{} can't be read", file.display()))
}

/// Returns whether a process in which a crowd repeats these steps fails.
fn crowd_fails_elsewhere(steps: &[Step], setting: Setting) -> bool {
    let attempt = || -> Result<bool> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["crowd", "--replay", "-", "--times", TIMES])
            .args(setting.words())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut input = child.stdin.take().context("no pipe")?;
        input.write_all(lines::print(steps).as_bytes())?;
        drop(input);
        Ok(child.wait()?.code() != Some(0))
    };
    attempt().unwrap_or(false)
}

/// Number of times that a crowd is tried for each candidate of a smaller plan.
const TIMES: &str = "5";
/// Longest time that the program spends on making a crowd's plan smaller.
const SHRINKING: Duration = Duration::from_secs(60);

fn crowds(first: u64, calls: u64, seconds: u64, setting: Setting) -> Result<bool> {
    let start = Instant::now();
    let mut all = crowd::Tally::new();
    let (mut made, mut crowds) = (0, 0);
    for seed in first.. {
        if made >= calls || start.elapsed().as_secs() >= seconds {
            break;
        }
        let plan = crowd::plan::plan(seed);
        match crowd::run(&plan, setting) {
            Ok(tally) => {
                crowds += 1;
                for (word, (well, failed)) in tally {
                    let sum = all.entry(word).or_default();
                    *sum = (sum.0 + well, sum.1 + failed);
                    made += well + failed;
                }
            }
            Err(error) => {
                println!("crowd of seed {seed}: {error:#}");
                if !crowd_fails_elsewhere(&plan, setting) {
                    let words = setting.words().join(" ");
                    println!(
                        "the crowd does not fail again: scif-fuzz crowd --seed={seed} --calls=1 {words}"
                    );
                    return Ok(false);
                }
                let until = Instant::now() + SHRINKING;
                let short = shrink::shrink(&plan, |steps| {
                    Instant::now() < until && crowd_fails_elsewhere(steps, setting)
                });
                let words = setting.words().join(" ");
                println!("# scif-fuzz crowd --replay=FILE {words}, with these lines in it");
                println!("{}", lines::print(&short));
                return Ok(false);
            }
        }
    }
    println!("{:<12} {:>9} {:>9}", "call", "succeeded", "failed");
    for (word, (well, failed)) in &all {
        println!("{word:<12} {well:>9} {failed:>9}");
    }
    println!("{made} calls of {crowds} crowds: all had an expected result");
    Ok(true)
}

fn replay_crowd(file: &Path, times: u32, setting: Setting) -> Result<bool> {
    let plan = lines::parse(&text_of(file)?)?;
    for time in 1..=times {
        if let Err(error) = crowd::run(&plan, setting) {
            println!("time {time}: {error:#}");
            return Ok(false);
        }
    }
    println!("{times} times: all calls had an expected result");
    Ok(true)
}

fn replay(file: &Path, soon: Duration, other: Option<Other>) -> Result<bool> {
    let calls = lines::parse(&text_of(file)?)?;
    match make_again(&calls, soon, other) {
        Ok(tally) => {
            print(&tally);
            Ok(true)
        }
        Err(error) => {
            println!("{error:#}");
            Ok(false)
        }
    }
}

fn main() -> ExitCode {
    let done = match &Arguments::parse().action {
        Action::Run {
            seed,
            calls,
            seconds,
            other,
        } => runs(*seed, *calls, *seconds, other),
        Action::Agent { port } => agent::serve(*port).map(|()| true),
        Action::Replay { file, soon, other } => other
            .other()
            .and_then(|other| replay(file, Duration::from_millis(*soon), other)),
        Action::Crowd {
            seed,
            calls,
            seconds,
            replay,
            times,
            setting,
        } => setting.setting().and_then(|setting| match replay {
            Some(file) => replay_crowd(file, *times, setting),
            None => crowds(*seed, *calls, *seconds, setting),
        }),
        Action::Inherit {
            table,
            actor,
            seed,
            calls,
            setting,
        } => setting
            .setting()
            .and_then(|setting| crowd::inherit(*table, *actor, *seed, *calls, setting))
            .map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("scif-fuzz: {error:#}");
            ExitCode::from(2)
        }
    }
}
