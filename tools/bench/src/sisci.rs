// SPDX-License-Identifier: GPL-2.0
//! SISCI over SCIF, in pairs like all goals: stores, DMA and interrupts beside the calls below
//! them, and the cost of checking a sequence.

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::Process;
use lab::paths;
use plots::results::NO_SIZE;
use plots::results::Results;
use serde_json::Value;

use crate::figures::*;
use crate::parameters;
use crate::parameters::ASLEEP;
use crate::plan::Plan;
use crate::plan::SIZE_LARGE;
use crate::plan::SIZE_MIDDLE;
use crate::raw::Raw;

/// Node 1, by its SISCI id.
const PEER: &str = "8";

/// Number of raw doorbells in each turn.
const BELLS: u32 = 300;

/// The port where the tools expect `scif serve`.
const PORT: &str = "2050";

fn tool() -> Result<String> {
    let path = paths::repository().join("build/DIS/bin/sisci-bench");
    ensure!(path.exists(), "{} has not been built", path.display());
    Ok(path.display().to_string())
}

fn serve(lab: &Lab) -> Result<Process> {
    let process = lab
        .command(1, [tool()?, "server".to_owned()])?
        .timeout(lab.hang_limit(3600))
        .spawn()?;
    process.wait_for("serving", lab.hang_limit(30))?;
    Ok(process)
}

/// Returns the rows of one round of a test.
fn round(lab: &Lab, test: &str, more: &[&str]) -> Result<Vec<Value>> {
    let tool = tool()?;
    let mut command = vec![tool.as_str(), test, PEER, "--rounds", "1", "--json"];
    command.extend(["--seconds", "0.15", "--port", PORT]);
    command.extend(more);
    let output = lab.command(0, command)?.timeout(lab.hang_limit(120));
    let text = output.run()?.success()?.stdout();
    let report: Value = serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))?;
    Ok(report["rows"].as_array().cloned().unwrap_or_default())
}

/// Makes all measurements, as often as the plan says; `scif serve` runs on node 1.
pub fn run(lab: &Lab, plan: &Plan, results: &mut Results, say: &dyn Fn(&str)) -> Result<()> {
    let server = serve(lab)?;
    let sizes = Plan::list(&[SIZE_MIDDLE, SIZE_LARGE]);
    for turn in 0..plan.turns {
        say(&format!("SISCI, turn {} of {}", turn + 1, plan.turns));
        for test in ["scibench2", "dma_bench"] {
            for row in round(lab, test, &["--reference", "--sizes", &sizes])? {
                add_ratio(results, &row);
            }
        }
        for row in round(lab, "sequence", &[])? {
            if let (true, Some(value)) = (row["line"] == SEQUENCE_LINE, row["value"].as_f64()) {
                results.add(PAIRS, SISCI_SEQUENCE, NO_SIZE, value);
            }
        }
        interrupts(lab, results)?;
    }
    server.signal(2);
    server.wait()?.success()?;
    Ok(())
}

/// Enters the ratio of a row to the call below it, if it is a goal.
fn add_ratio(results: &mut Results, row: &Value) {
    let name = match row["line"].as_str() {
        Some("stores") => PAIR_SISCI_STORES,
        Some("push") => PAIR_SISCI_PUSH,
        Some("pull") => PAIR_SISCI_PULL,
        _ => return,
    };
    let is_throughput = row["unit"] == "bytes per second";
    let size = row["size"].as_u64();
    if let (true, Some(size), Some(ratio)) = (is_throughput, size, row["ratio"].as_f64()) {
        results.add(PAIRS, name, size, ratio);
    }
}

/// The name in `sisci-bench` of a whole check, behind all stores.
const SEQUENCE_LINE: &str = "until all has arrived";

/// Compares with the raw doorbell that the interrupt itself answers, and with the one that a thread
/// answers.
fn interrupts(lab: &Lab, results: &mut Results) -> Result<()> {
    interrupt(lab, results, ("interrupt", PAIR_SISCI_INTERRUPT_USUAL))?;
    parameters::with(lab, ASLEEP, || {
        interrupt(lab, results, ("interrupt", PAIR_SISCI_INTERRUPT))?;
        interrupt(lab, results, ("thread", PAIR_SISCI_INTERRUPT_THREAD))
    })
}

fn interrupt(
    lab: &Lab,
    results: &mut Results,
    (answerer, name): (&str, &'static str),
) -> Result<()> {
    let raw = Raw { lab, seconds: 0.15 };
    let rows = round(lab, "intr_bench", &[])?;
    let half = rows.first().and_then(|row| row["value"].as_f64());
    let round_trip = 2.0 * half.context("no interrupt")?;
    results.add(
        PAIRS,
        name,
        NO_SIZE,
        round_trip / raw.doorbell(answerer, BELLS)?,
    );
    Ok(())
}
