// SPDX-License-Identifier: GPL-2.0
//! `lab-bench`: boots two nodes and measures SCIF and its references, in turns.
//!
//! All measurements run in one lab and in turns, A B A B, for several rounds. The medians are
//! compared, because other work on the machine slows all measurements down. The benchmark does not
//! fail if a figure is bad. Tests check counts that must not grow (`tests/`).

mod counts;
mod figures;
mod goals;
mod machine;
mod many;
mod modes;
mod net;
mod net_setup;
mod paced;
mod pairs;
mod parameters;
mod plan;
mod raw;
mod report;
mod rounds;
mod run;
mod setup;
mod sisci;

use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;
use lab::Flavour;
use lab::Lab;
use lab::Process;
use lab::Silent;
use plots::results::Results;

use crate::machine::Machine;
use crate::plan::Plan;
use crate::report::Report;
use crate::rounds::Round;

/// Measure SCIF and its references.
#[derive(Parser)]
#[command(name = "lab-bench", version)]
struct Arguments {
    /// Measure less, in less than three minutes.
    #[arg(long)]
    short: bool,
    /// The number of rounds.
    #[arg(long)]
    rounds: Option<usize>,
    /// Measure only the pairs of the table whose name contains this text. "SISCI" stands for the
    /// pairs of SISCI, "modes" for the modes of the aperture, "paced" for measurements with
    /// engines and links that take time, and "IP" for network devices.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The number of measurements of each pair of the table.
    #[arg(long)]
    turns: Option<usize>,
    /// The kernel that the guests boot.
    #[arg(long, value_enum, default_value = "stock", env = "KERNEL")]
    kernel: Flavour,
    /// The folder of the report.
    #[arg(long, default_value = "build/bench")]
    output: PathBuf,
}

fn main() -> ExitCode {
    match benchmark(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn benchmark(arguments: &Arguments) -> Result<()> {
    lab::paths::require_environment()?;
    lab::interrupt::install()?;
    let mut plan = match arguments.short {
        true => Plan::short(),
        false => Plan::whole(),
    };
    plan.rounds = arguments.rounds.unwrap_or(plan.rounds).max(1);
    plan.turns = arguments.turns.unwrap_or(plan.turns).max(1);
    let started = Instant::now();
    let say = |text: &str| println!("{:6.1} s  {text}", started.elapsed().as_secs_f64());
    if let Some(only) = &arguments.only {
        return part(only, arguments.kernel, &plan, &arguments.output, &say);
    }
    let load = machine::load();
    let (lab, server) = boot(arguments.kernel, &say)?;
    let module = setup::module(&lab)?;
    let slowness = machine::slowness(&lab);
    let (counts, mut results, mut failures) = measure(&lab, &plan, &say)?;
    let slowness = [slowness, machine::slowness(&lab)];
    let machine = Machine::of(&lab, &module, slowness, [load, machine::load()]);
    server.signal(2);
    drop(lab);
    let mut net_counts = counts::Costs::new();
    if plan.many {
        say("paced engines and links");
        failures.extend(paced::run(arguments.kernel, &plan, &mut results));
        say("modes of the aperture");
        failures.extend(modes::run(arguments.kernel, &plan, &mut results));
        let (costs, more) = net::run(arguments.kernel, &plan, &mut results, &say);
        failures.extend(more);
        net_counts = costs;
    }
    let report = Report {
        machine,
        rounds: plan.rounds,
        seconds: plan.seconds,
        goals: goals::goals(&results, &counts, &net_counts),
        counts,
        net_counts,
        results,
        failures,
    };
    report.write(&arguments.output)?;
    println!("\n{}", report.table());
    for failure in &report.failures {
        println!("not measured: {failure}");
    }
    say(&format!(
        "the report is {}",
        arguments.output.join("report.html").display()
    ));
    Ok(())
}

/// Boots the lab with SCIF, its server and all references.
fn boot(kernel: Flavour, say: &dyn Fn(&str)) -> Result<(Lab, Process)> {
    say("booting two nodes");
    let name = format!("bench-{}", std::process::id());
    let lab = Lab::start(setup::config(&name, kernel), &Silent)?;
    say("loading SCIF and its references");
    setup::load(&lab)?;
    let server = setup::serve(&lab, Some(&setup::tcp_address()))?;
    Ok((lab, server))
}

/// Measures only one part, prints it, and draws its charts.
fn part(only: &str, kernel: Flavour, plan: &Plan, output: &Path, say: &dyn Fn(&str)) -> Result<()> {
    let mut results = Results::default();
    let failures = match only {
        "modes" => modes::run(kernel, plan, &mut results),
        "paced" => paced::run(kernel, plan, &mut results),
        "IP" => {
            let (costs, failures) = net::run(kernel, plan, &mut results, say);
            for (name, cost) in costs {
                println!("{name}: {cost:.3?}");
            }
            failures
        }
        _ => {
            let (lab, server) = boot(kernel, say)?;
            match only {
                "SISCI" => sisci::run(&lab, plan, &mut results, say)?,
                _ => pairs::run(&lab, plan, Some(only), &mut results, say)?,
            }
            server.signal(2);
            Vec::new()
        }
    };
    report::draw(&results, output)?;
    for figure in results.figures() {
        print!("{figure}:\n{}", results.values(&figure));
    }
    for failure in failures {
        println!("not measured: {failure}");
    }
    Ok(())
}

fn measure(
    lab: &Lab,
    plan: &Plan,
    say: &dyn Fn(&str),
) -> Result<(counts::Costs, Results, Vec<String>)> {
    let mut results = Results::default();
    say("counting");
    let counts = counts::count(lab)?;
    for round in 1..=plan.rounds {
        say(&format!("round {round} of {}", plan.rounds));
        Round {
            lab,
            plan,
            results: &mut results,
        }
        .run()?;
    }
    pairs::run(lab, plan, None, &mut results, say)?;
    sisci::run(lab, plan, &mut results, say)?;
    let mut failures = Vec::new();
    if plan.many {
        say("measurements that are made once");
        failures = many::run(lab, &mut results);
    }
    Ok((counts, results, failures))
}
