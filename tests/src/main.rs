// SPDX-License-Identifier: GPL-2.0
//! `lab-tests`: runs the tests that need guests.
//!
//! Tests live in one file for each capability; a file ends in the list of its tests, and
//! `test_files!` joins the lists.

mod bystander;
mod evidence;
mod harness;
mod heartbeat;
mod loaded;
mod need;
mod nodes;
mod ntb_client;
mod promise;
mod scif;
mod seeds;
mod shared_lab;
mod summary;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use anyhow::Result;
use anyhow::ensure;
use clap::Parser;
use harness::Runner;
use harness::Test;
use lab::Flavour;
use seeds::Seeds;

/// Declares the files with tests, and lists their tests in this order.
macro_rules! test_files {
    ($($file:ident)*) => {
        $(mod $file;)*
        const FILES: &[&[Test]] = &[$($file::TESTS),*];
    };
}

test_files! {
    lab_itself
    lab_command
    in_tree
    in_tree_idt
    in_tree_amd
    scif_module
    scif_messages_and_rma
    scif_cache
    scif_compat
    scif_copy
    scif_data_path
    scif_device_memory
    scif_counts
    scif_bench
    scif_fair
    scif_lifetime
    scif_limits
    scif_engines
    scif_node_loss
    scif_patience
    scif_power
    scif_peer_writes
    scif_ring
    scif_operators
    scif_doctor
    scif_advice
    scif_soak
    scif_net
    scif_net_counts
    scif_net_device
    scif_net_engines
    scif_net_guide
    scif_net_hostile
    scif_net_injection
    scif_net_judges
    scif_net_kernel
    scif_net_long
    scif_net_xdp
    scif_star
    scif_status
    scif_steering
    scif_conformance
    scif_arena
    scif_bounce
    scif_windows
    scif_order
    scif_amd
    scif_gen3
    scif_idt
    scif_mutants
    scif_hostile
    scif_kernel
    scif_churn
    scif_fuzz
    scif_injection
    scif_disk
    scif_leaks
    libscif
    sisci_conformance
    sisci_engines
    sisci_field
    sisci_loss
    sisci_samples
    sisci_tools
    packages
}

const EXAMPLES: &str = "\
Examples (inside the environment):
  lab-tests                       the default tests, on the stock kernel
  lab-tests pingpong dmatest      all tests whose name contains one of these words
  lab-tests --kernel debug scif   with KASAN, lockdep and kmemleak
  lab-tests --keep one_test       if the test fails, keep its lab until you press Enter
  lab-tests --weak-order 1-100 scif_order::seeds
                                  once with each of 100 seeds; such long tests run only if a
                                  filter with '::' matches them

At the end lab-tests prints the figures of the run: the speed of the guests, the times of
their boots, and the times of operations that have a promised limit. The last line is
'N passed, N failed'. The exit status is 0 if no test failed.";

/// Runs the tests that need guests.
#[derive(Parser)]
#[command(name = "lab-tests", version, after_help = EXAMPLES)]
struct Arguments {
    /// Run the tests whose name contains one of these words; all by default.
    #[arg(env = "SCIF_TEST_FILTER", value_delimiter = ' ')]
    filter: Vec<String>,
    /// Print the names of the tests, and run none.
    #[arg(long)]
    list: bool,
    /// Print the kernels that the tests boot, and run no test.
    #[arg(long)]
    kernels: bool,
    /// The kernel that the guests boot; on the debug kernel a test may take eight times as long.
    #[arg(long, value_enum, default_value = "stock", env = "KERNEL")]
    kernel: Flavour,
    /// Test this scif.ko instead of the one that 'make modules' has built. Guests must see the
    /// path, so it is below /src or /cache.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Reorder writes across links with this seed (`lab up --help`) in all tests that do not choose
    /// an order themselves. With several seeds, such as 1-100 or 1-100,root, each such test runs
    /// once with each seed.
    #[arg(long, value_name = "SEEDS", value_parser = Seeds::parse)]
    weak_order: Option<Seeds>,
    /// Begin no test after this time, in seconds since 1970, and name the tests left out.
    #[arg(long, value_name = "TIME", env = "SCIF_TESTS_UNTIL")]
    until: Option<u64>,
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
    check_filters(arguments)?;
    let wanted = |test: &&Test| is_wanted(test, arguments);
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
    ensure!(
        !tests.is_empty(),
        "all of these tests are for other kernels, or run only if a filter has '::'"
    );
    if let Some(module) = &arguments.module {
        scif::GIVEN_MODULE.get_or_init(|| module.clone());
    }
    lab::paths::require_environment()?;
    lab::interrupt::install()?;
    let mut runner = Runner::new(arguments.kernel, arguments.keep);
    if let Some(seeds) = &arguments.weak_order {
        runner.progress = seeds.progress(tests.len());
    }
    let mut left_out = Vec::new();
    for test in grouped(&tests) {
        if arguments.until.is_some_and(is_over) {
            left_out.push(test.name);
            continue;
        }
        match &arguments.weak_order {
            Some(seeds) if test.need.weak_order.is_none() => {
                seeds
                    .orders()
                    .for_each(|order| runner.run(test, Some(order)));
            }
            _ => runner.run(test, None),
        }
    }
    runner.progress.finish_and_clear();
    if !left_out.is_empty() {
        let (count, names) = (left_out.len(), left_out.join(" "));
        println!("NOT RUN, as --until had passed: {count} tests: {names}");
    }
    if let Some(seeds) = &arguments.weak_order {
        println!("seeds {seeds}");
    }
    print!("{}", summary::get());
    for failed in &runner.failed {
        println!("failed: {failed}");
    }
    let (passed, failed) = (runner.passed, runner.failed.len());
    drop(runner);
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn is_over(until: u64) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.is_ok_and(|now| now.as_secs() >= until)
}

/// Returns the filters of the user. Variables of the environment may have more spaces than words.
fn filters(arguments: &Arguments) -> impl Iterator<Item = &str> {
    let filters = arguments.filter.iter().map(String::as_str);
    filters.filter(|filter| !filter.is_empty())
}

/// Returns an error if a filter is not contained in the name of any test.
fn check_filters(arguments: &Arguments) -> Result<()> {
    for filter in filters(arguments) {
        let is_known = |test: &Test| test.name.contains(filter);
        ensure!(
            FILES.iter().copied().flatten().any(is_known),
            "no test has '{filter}' in its name"
        );
    }
    Ok(())
}

/// Returns whether the user has asked for a test, on a kernel that the test is for.
fn is_wanted(test: &Test, arguments: &Arguments) -> bool {
    if !test.only.is_empty() && !test.only.contains(&arguments.kernel) {
        return false;
    }
    // The test would need a kernel other than the requested one, which would have to be built.
    let by_name = test.by_name || test.need.kernel(arguments.kernel) != arguments.kernel;
    let mut parts = filters(arguments).peekable();
    if parts.peek().is_none() {
        return !by_name;
    }
    parts.any(|part| test.name.contains(part) && (!by_name || part.contains("::")))
}

/// Sorts the tests, so that tests that need the same machines are consecutive.
///
/// Among them, tests that leave the lab as it was come first, and tests that destroy it come last.
/// Tests that want the module loaded in the same way are consecutive, too.
fn grouped<'a>(tests: &[&'a Test]) -> Vec<&'a Test> {
    let mut machines = Vec::new();
    for test in tests {
        if !machines.contains(&test.need.machines()) {
            machines.push(test.need.machines());
        }
    }
    let mut result = tests.to_vec();
    let place = |test: &&Test| {
        let machines = machines.iter().position(|one| *one == test.need.machines());
        (machines, test.leaves, test.need.scif)
    };
    // The sort is stable, so equal tests stay in the order of the files.
    result.sort_by_key(place);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = &'static Test> {
        FILES.iter().copied().flatten()
    }

    #[test]
    fn lab_test_names_are_unique() {
        let mut names: Vec<&str> = all().map(|test| test.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn filter_that_matches_no_test_is_an_error() {
        let check = |filter: &str| check_filters(&Arguments::parse_from(["lab-tests", filter]));
        assert!(check("pingpong").is_ok());
        assert!(check("scif_order::").is_ok());
        assert!(check("pingpnog").is_err());
    }

    #[test]
    fn tests_of_every_change_need_few_labs() {
        let mut arguments = Arguments::parse_from(["lab-tests", "--kernel", "stock"]);
        arguments.filter.clear();
        let mut machines = Vec::new();
        for test in all().filter(|test| is_wanted(test, &arguments)) {
            if !machines.contains(&test.need.machines()) {
                machines.push(test.need.machines());
            }
        }
        assert!(machines.len() <= 8, "{machines:#?}");
    }

    #[test]
    fn tests_with_the_same_machines_run_one_after_the_other() {
        let tests: Vec<&Test> = all().collect();
        let order = grouped(&tests);
        assert_eq!(order.len(), tests.len());
        let mut before: Vec<need::Need> = Vec::new();
        for pair in order.windows(2) {
            let [one, next] = pair else { continue };
            if one.need.machines() == next.need.machines() {
                assert!(
                    one.leaves <= next.leaves,
                    "{} before {}",
                    one.name,
                    next.name
                );
                continue;
            }
            before.push(one.need.machines());
            assert!(!before.contains(&next.need.machines()), "{}", next.name);
        }
    }
}
