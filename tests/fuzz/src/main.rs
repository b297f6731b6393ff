// SPDX-License-Identifier: GPL-2.0

//! Random calls of /dev/scif, beside a model that says what each has to return.
//!
//! A run is determined by its seed. A run that fails is made shorter, by runs in processes of their own, and printed as
//! a program that `scif-fuzz replay` makes again. Runs of one thread do so each time; those of a crowd are tried several
//! times, as threads race in them.

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
use crate::choice::SHARED_BY_NOBODY;
use crate::crowd::setting::Setting;
use crate::crowd::steps::Step;
use crate::run::Other;
use crate::run::SOON;
use crate::run::Tally;
use crate::run::make;

/// Calls of one run: a failure in more than this would take long to make shorter.
const RUN: usize = 2000;

/// Makes random calls of /dev/scif, and says which returns something else than it should.
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Examples:
  scif-fuzz run --calls 1000000          a million calls, of runs by the seeds 0, 1, ...
  scif-fuzz run --seed 77 --calls 2000   the run of this seed
  scif-fuzz agent                        on node 1, and then on node 0
  scif-fuzz run --peer 1                 the same with half of the endpoints on node 1
  scif-fuzz replay failure.txt           the calls of a file, one per line
  scif-fuzz crowd --calls 1000000        a million calls of crowds: processes, threads, signals
  scif-fuzz crowd --seed 77 --calls 1    the crowd of this seed
  scif-fuzz crowd --replay failure.txt   the steps of a file, some times

Exit code: 0 if all returned what it should, 1 if not, 2 if that could not be found out."
)]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Makes runs of random calls.
    Run {
        /// The seed of the first run; each further one has the next.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Calls in all.
        #[arg(long, default_value_t = 100_000)]
        calls: usize,
        /// Makes no new run after so many seconds.
        #[arg(long, default_value_t = u64::MAX)]
        seconds: u64,
        #[command(flatten)]
        other: OtherArguments,
    },
    /// Serves runs of another node: `--peer` and `--port` name this program there.
    Agent {
        /// The port to listen at.
        #[arg(long, default_value_t = AGENT)]
        port: u16,
    },
    /// Makes the calls of a file; "-" is standard input.
    Replay {
        file: PathBuf,
        /// How many milliseconds what comes soon may take.
        #[arg(long, default_value_t = SOON.as_millis() as u64)]
        soon: u64,
        #[command(flatten)]
        other: OtherArguments,
    },
    /// Has crowds of processes and threads make calls on endpoints that they share.
    Crowd {
        /// The seed of the first crowd; each further one has the next.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Calls in all; each crowd makes some thousands.
        #[arg(long, default_value_t = 100_000)]
        calls: u64,
        /// Makes no new crowd after so many seconds.
        #[arg(long, default_value_t = u64::MAX)]
        seconds: u64,
        /// Has a crowd do the steps of a file instead; "-" is standard input.
        #[arg(long)]
        replay: Option<PathBuf>,
        /// How often, if it does not fail before.
        #[arg(long, default_value_t = 10)]
        times: u32,
        #[command(flatten)]
        setting: SettingArguments,
    },
    /// What a crowd calls where it tries `exec`.
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

/// The port of agents.
const AGENT: u16 = 3300;

#[derive(clap::Args)]
struct OtherArguments {
    /// Half of the endpoints are on this node, where an agent serves them.
    #[arg(long)]
    peer: Option<u16>,
    /// The agent's port.
    #[arg(long, default_value_t = AGENT)]
    port: u16,
    /// Whether the nodes reach each other's memory by staging only, or an aperture is small.
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

    /// The words that stand for them.
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
    /// The node to connect to; this one, if it is not given.
    #[arg(long)]
    peer: Option<u16>,
    /// How many times as slow as a fast machine this one is.
    #[arg(long, default_value_t = 1)]
    slow: u32,
    /// Whether the peer's memory is reached by staging only, or its aperture is small.
    #[arg(long, action = clap::ArgAction::Set, default_value_t = false)]
    staged: bool,
    /// Whether the peer's node is lost now and then.
    #[arg(long, action = clap::ArgAction::Set, default_value_t = false)]
    lossy: bool,
    /// The number of this crowd, from 1 on, if others use the module in this node as well.
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

/// How long what comes soon may take while a run is made shorter: most that are tried wait in vain.
const SOON_AGAIN: &str = "500";

/// Makes these calls, as [`make`] does.
fn make_again(calls: &[Call], soon: Duration, other: Option<Other>) -> Result<Tally> {
    let mut calls = calls.iter().copied();
    make(soon, other, &mut Vec::new(), |_| calls.next())
}

/// Prints how calls ended, as a table.
fn print(tally: &Tally) {
    println!("{:<12} {:>9} {:>9}", "call", "succeeded", "failed");
    for (word, ended) in tally {
        println!("{word:<12} {:>9} {:>9}", ended.well, ended.failed);
    }
}

/// Whether a process that makes these calls fails. One that hangs or dies of a signal does.
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
        let mut chooser = Chooser::new(seed, SHARED_BY_NOBODY);
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
                // An agent serves one after the other.
                drop(other);
                if !fails(&list) {
                    let words = arguments.words().join(" ");
                    println!(
                        "it does not fail again: scif-fuzz run --seed={seed} --calls={RUN} {words}"
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
    println!("{made} calls: all returned what they should");
    Ok(true)
}

/// Reads the text of a file; "-" is standard input.
fn text_of(file: &Path) -> Result<String> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("{} can't be read", file.display()))
}

/// Whether a process in which a crowd does these steps some times fails.
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

/// How often a crowd is tried while it is made smaller.
const TIMES: &str = "5";
/// How long a crowd is made smaller at most.
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
                        "it does not fail again: scif-fuzz crowd --seed={seed} --calls=1 {words}"
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
    println!("{made} calls of {crowds} crowds: all returned what they may");
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
    println!("{times} times: all returned what they may");
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
