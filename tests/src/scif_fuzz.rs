// SPDX-License-Identifier: GPL-2.0
//! Random calls beside a model that says what each has to return (tests/fuzz).

use std::env;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Flavour;
use lab::Lab;

use crate::harness::Test;
use crate::scif;
use crate::scif_conformance::BARE;

/// Calls of a run. SCIF_FUZZ_CALLS, for a long night.
fn calls(lab: &Lab) -> String {
    let calls = match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => 400_000,
        Flavour::Debug => 200_000,
    };
    env::var("SCIF_FUZZ_CALLS").unwrap_or_else(|_| calls.to_string())
}

/// The seed of the first run of 2000 calls. SCIF_FUZZ_SEED, for others than each time.
fn seed() -> String {
    env::var("SCIF_FUZZ_SEED").unwrap_or_else(|_| "0".to_owned())
}

/// Calls that have to succeed now and then, or the runs see little.
const SUCCEED: &[&str] = &[
    "accept",
    "bind",
    "connect",
    "copy",
    "copy_memory",
    "listen",
    "map",
    "mark",
    "receive",
    "register",
    "send",
    "send_all",
    "signal",
    "unregister",
];

/// How often each has to succeed in a hundred thousand calls.
const OFTEN: u64 = 100;

fn model(lab: &Lab) -> Result<()> {
    let program = scif::built("target/release/scif-fuzz")?;
    let (seed, calls) = (seed(), calls(lab));
    let argv = [&*program, "run", "--seed", &seed, "--calls", &calls];
    let output = lab
        .command(0, argv)?
        .timeout(lab.hang_limit(600))
        .run()?
        .success()?;
    let text = output.stdout();
    let hundred_thousands = calls.parse::<u64>()? / 100_000;
    for word in SUCCEED {
        let mut rows = text.lines().map(|line| line.split_whitespace());
        let succeeded = rows.find_map(|mut row| {
            let is_row = row.next() == Some(word);
            is_row.then(|| row.next()?.parse::<u64>().ok()).flatten()
        });
        let succeeded = succeeded.with_context(|| format!("{word} is not in\n{text}"))?;
        ensure!(
            succeeded >= OFTEN * hundred_thousands,
            "{word} succeeded {succeeded} times only\n{text}"
        );
    }
    println!("      {}", text.lines().last().unwrap_or("?"));
    scif::check_idle(lab, 0)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[Test::new("scif_fuzz::model", BARE, model).seconds(120)];
