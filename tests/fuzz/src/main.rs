// SPDX-License-Identifier: GPL-2.0

//! Random calls of /dev/scif, beside a model that says what each has to return.
//!
//! A run is determined by its seed. A run that fails is made shorter, by runs in processes of their own, and printed as
//! a program that `scif-fuzz replay` makes again.

mod calls;
mod choice;
mod kernel;
mod memory;
mod model;
mod run;
mod shrink;

use std::io::Read as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::process::ExitCode;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use clap::Parser;
use clap::Subcommand;

use crate::calls::Call;
use crate::choice::Chooser;
use crate::model::Model;
use crate::run::Run;
use crate::run::SOON;
use crate::run::Tally;

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
  scif-fuzz replay failure.txt           the calls of a file, one per line

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
    },
    /// Makes the calls of a file; "-" is standard input.
    Replay {
        file: PathBuf,
        /// How many milliseconds what comes soon may take.
        #[arg(long, default_value_t = SOON.as_millis() as u64)]
        soon: u64,
    },
}

/// How long what comes soon may take while a run is made shorter: most that are tried wait in vain.
const SOON_AGAIN: &str = "500";

/// Makes calls as `next` chooses them, and returns how they ended. Lists them in `made`. The error names the call.
fn make(
    soon: Duration,
    made: &mut Vec<Call>,
    mut next: impl FnMut(&Model) -> Option<Call>,
) -> Result<Tally> {
    let mut run = Run::new(soon)?;
    while let Some(call) = next(run.model()) {
        made.push(call);
        let index = made.len() - 1;
        run.make(&call)
            .with_context(|| format!("call {index}, {call}"))?;
    }
    let tally = run.tally();
    run.finish().context("at the end")?;
    Ok(tally)
}

/// Makes these calls, as [`make`] does.
fn make_again(calls: &[Call], soon: Duration) -> Result<Tally> {
    let mut calls = calls.iter().copied();
    make(soon, &mut Vec::new(), |_| calls.next())
}

/// Prints how calls ended, as a table.
fn print(tally: &Tally) {
    println!("{:<12} {:>9} {:>9}", "call", "succeeded", "failed");
    for (word, ended) in tally {
        println!("{word:<12} {:>9} {:>9}", ended.well, ended.failed);
    }
}

/// Whether a process that makes these calls fails. One that hangs or dies of a signal does.
fn fails_elsewhere(calls: &[Call]) -> bool {
    let attempt = || -> Result<bool> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["replay", "-", "--soon", SOON_AGAIN])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut input = child.stdin.take().context("no pipe")?;
        input.write_all(calls::print(calls).as_bytes())?;
        drop(input);
        Ok(child.wait()?.code() != Some(0))
    };
    attempt().unwrap_or(false)
}

fn runs(first: u64, calls: usize) -> Result<bool> {
    let mut made = 0;
    let mut all = Tally::new();
    for seed in first.. {
        if made >= calls {
            break;
        }
        let mut chooser = Chooser::new(seed);
        let mut list = Vec::new();
        let mut left = RUN.min(calls - made);
        made += left;
        let run = make(SOON, &mut list, |model| {
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
                if !fails_elsewhere(&list) {
                    println!("it does not fail again: scif-fuzz run --seed {seed} --calls {RUN}");
                    return Ok(false);
                }
                let short = shrink::shrink(&list, fails_elsewhere);
                let reason = make_again(&short, SOON).err();
                println!("# {:#}", reason.unwrap_or(error));
                println!("{}", calls::print(&short));
                return Ok(false);
            }
        }
    }
    print(&all);
    println!("{made} calls: all returned what they should");
    Ok(true)
}

fn replay(file: &PathBuf, soon: Duration) -> Result<bool> {
    let mut text = String::new();
    if file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text)?;
    } else {
        let read = std::fs::read_to_string(file);
        text = read.with_context(|| format!("{} can't be read", file.display()))?;
    }
    let calls = calls::parse(&text)?;
    match make_again(&calls, soon) {
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
        Action::Run { seed, calls } => runs(*seed, *calls),
        Action::Replay { file, soon } => replay(file, Duration::from_millis(*soon)),
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
