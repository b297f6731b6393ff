// SPDX-License-Identifier: GPL-2.0
//! `lab-tests`: runs the tests that need guests.
//!
//! Tests live in one file for each capability; a file ends in the list of its tests, and
//! the lists are joined here.

mod harness;
mod heartbeat;
mod in_tree;
mod in_tree_amd;
mod in_tree_idt;
mod lab_command;
mod lab_itself;
mod libscif;
mod loaded;
mod ntb_client;
mod packages;
mod promise;
mod scif;
mod scif_arena;
mod scif_bench;
mod scif_bounce;
mod scif_cache;
mod scif_churn;
mod scif_compat;
mod scif_conformance;
mod scif_copy;
mod scif_counts;
mod scif_data_path;
mod scif_disk;
mod scif_doctor;
mod scif_engines;
mod scif_idt;
mod scif_kernel;
mod scif_leaks;
mod scif_lifetime;
mod scif_limits;
mod scif_messages_and_rma;
mod scif_module;
mod scif_node_loss;
mod scif_operators;
mod scif_order;
mod scif_push;
mod scif_star;
mod summary;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use harness::Runner;
use harness::Test;
use lab::Flavour;
use lab::WeakOrder;

/// All tests, by file.
const FILES: &[&[Test]] = &[
    lab_itself::TESTS,
    lab_command::TESTS,
    in_tree::TESTS,
    in_tree_idt::TESTS,
    in_tree_amd::TESTS,
    scif_module::TESTS,
    scif_messages_and_rma::TESTS,
    scif_cache::TESTS,
    scif_compat::TESTS,
    scif_copy::TESTS,
    scif_data_path::TESTS,
    scif_counts::TESTS,
    scif_bench::TESTS,
    scif_lifetime::TESTS,
    scif_limits::TESTS,
    scif_engines::TESTS,
    scif_node_loss::TESTS,
    scif_push::TESTS,
    scif_operators::TESTS,
    scif_doctor::TESTS,
    scif_star::TESTS,
    scif_conformance::TESTS,
    scif_arena::TESTS,
    scif_bounce::TESTS,
    scif_order::TESTS,
    scif_idt::TESTS,
    scif_kernel::TESTS,
    scif_churn::TESTS,
    scif_disk::TESTS,
    scif_leaks::TESTS,
    libscif::TESTS,
    packages::TESTS,
];

const EXAMPLES: &str = "\
Examples (inside the environment):
  lab-tests                       all tests, on the stock kernel
  lab-tests pingpong dmatest      those whose name contains one of these
  lab-tests --kernel debug scif   with KASAN, lockdep and kmemleak
  lab-tests --keep one_test       wait with the lab if it fails, to look at it

Before the last line come the figures of the run: how fast the guests were, how long they
took to boot, how long what is promised took. The last line is 'N passed, N failed'; the exit status is 0 if nothing failed.";

/// Runs the tests that need guests.
#[derive(Parser)]
#[command(name = "lab-tests", version, after_help = EXAMPLES)]
struct Arguments {
    /// Run the tests whose name contains one of these; all by default.
    #[arg(env = "SCIF_TEST_FILTER", value_delimiter = ' ')]
    filter: Vec<String>,
    /// Print the names and run nothing.
    #[arg(long)]
    list: bool,
    /// Print which kernels the tests boot, and run nothing.
    #[arg(long)]
    kernels: bool,
    /// Which kernel the guests boot; on the debug kernel tests have eight times the time.
    #[arg(long, value_enum, default_value = "stock", env = "KERNEL")]
    kernel: Flavour,
    /// Test this scif.ko instead of the one that 'make modules' has built; a path that
    /// guests see, below /src or /cache.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Reorder writes across links as this seed has it (`lab up --help`), in the labs of all tests
    /// that do not say how.
    #[arg(long, value_name = "SEED", value_parser = lab::parse_weak_order)]
    weak_order: Option<WeakOrder>,
    /// If a test fails, wait for Enter before its lab ends.
    #[arg(long)]
    keep: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab-tests: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let wanted = |test: &&Test| {
        if test.stock_only && arguments.kernel != Flavour::Stock {
            return false;
        }
        let filter: Vec<&String> = arguments.filter.iter().filter(|f| !f.is_empty()).collect();
        filter.is_empty() || filter.iter().any(|part| test.name.contains(part.as_str()))
    };
    let tests: Vec<&Test> = FILES.iter().copied().flatten().filter(wanted).collect();
    if arguments.list {
        for test in &tests {
            println!("{}", test.name);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.kernels {
        let mut kernels: Vec<&str> = tests
            .iter()
            .map(|test| test.need.kernel(arguments.kernel).name())
            .collect();
        kernels.sort_unstable();
        kernels.dedup();
        println!("{}", kernels.join("\n"));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(module) = &arguments.module {
        scif::GIVEN_MODULE.get_or_init(|| module.clone());
    }
    lab::paths::require_environment()?;
    lab::interrupt::install()?;
    let mut runner = Runner::new(arguments.kernel, arguments.keep, arguments.weak_order);
    for test in grouped(&tests) {
        runner.run(test);
    }
    for name in &runner.failed {
        println!("failed: {name}");
    }
    print!("{}", summary::get());
    let (passed, failed) = (runner.passed, runner.failed.len());
    drop(runner);
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The same tests, those with the same need one after the other, those that destroy their
/// lab last among them.
fn grouped<'a>(tests: &[&'a Test]) -> Vec<&'a Test> {
    let mut needs = Vec::new();
    for test in tests {
        if !needs.contains(&test.need) {
            needs.push(test.need);
        }
    }
    let mut result = Vec::with_capacity(tests.len());
    for need in needs {
        for destroys in [false, true] {
            result.extend(
                tests
                    .iter()
                    .filter(|test| test.need == need && test.destroys == destroys),
            );
        }
    }
    result
}
