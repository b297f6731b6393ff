// SPDX-License-Identifier: GPL-2.0
//! Hours of mixed load with faults: `make soak HOURS=n`.
//!
//! Two nodes copy files, exchange messages and run crowds (tests/fuzz). Some crowds connect to
//! their own node, others to the other node. Meanwhile the link fails, a driver is unbound and
//! processes are killed. Crowds that stay on their own node must not notice any of these faults.
//!
//! The test divides its time into parts of an hour, or shorter ones in a short run. After each
//! part, once the nodes are idle, it records the memory of both nodes and the latencies. The report
//! is in build/soak.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::Process;
use lab::paths;
use serde_json::Value;
use serde_json::json;

use crate::harness::Test;
use crate::scif;
use crate::scif::Server;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// The bridge of each node.
const BRIDGE: &str = "/sys/bus/pci/devices/0000:00:05.0";

/// The least number of parts, so that a first and a last one can be compared.
const FEWEST_PARTS: u32 = 4;

/// KiB by which the kernel's unreclaimable memory may grow from the first part to the last one.
const DRIFT: i64 = 24 << 10;

/// Returns the time from `SCIF_SOAK_HOURS`, or some minutes without it.
fn time() -> Result<Duration> {
    let hours = env::var("SCIF_SOAK_HOURS").unwrap_or_else(|_| "0.05".to_owned());
    let hours: f64 = hours
        .parse()
        .with_context(|| format!("SCIF_SOAK_HOURS={hours}"))?;
    Ok(Duration::try_from_secs_f64(hours * 3600.0)?)
}

/// Starts a crowd on a node, which connects to `peer` for some seconds. Crowds with the own and
/// with the other node use different ports.
fn crowd(lab: &Lab, node: usize, peer: usize, seed: u64, seconds: u64) -> Result<Process> {
    let program = scif::built("target/release/scif-fuzz")?;
    let argv = [
        program,
        "crowd".to_owned(),
        format!("--seed={seed}"),
        format!("--calls={}", u64::MAX),
        format!("--seconds={seconds}"),
        format!("--peer={peer}"),
        format!("--slow={}", 10 * lab.slowness()),
        format!("--lossy={}", peer != node),
        format!("--beside={}", 1 + u32::from(peer != node)),
    ];
    lab.command(node, argv)?
        .timeout(Duration::from_secs(seconds) + lab.hang_limit(120))
        .spawn()
}

/// Causes a fault. The nodes are online again when the function returns.
fn fault(lab: &Lab, number: u64) -> Result<&'static str> {
    let node = (number / 3 % 2) as usize;
    match number % 3 {
        0 => {
            lab.set_link(0, 1, false)?;
            for node in 0..2 {
                scif::state(lab, node, 1 - node, "lost", lab.hang_limit(20))?;
            }
            lab.set_link(0, 1, true)?;
            for node in 0..2 {
                scif::online(lab, node, 1 - node)?;
            }
            Ok("link flaps")
        }
        1 => {
            let driver = lab.shell(node, &format!("readlink -f {BRIDGE}/driver"))?;
            let driver = driver.trim();
            lab.shell(node, &format!("echo 0000:00:05.0 >{driver}/unbind"))?;
            for node in 0..2 {
                scif::state(lab, node, 1 - node, "lost", lab.hang_limit(20))?;
            }
            lab.shell(node, &format!("echo 0000:00:05.0 >{driver}/bind"))?;
            for node in 0..2 {
                scif::online(lab, node, 1 - node)?;
            }
            Ok("unbound drivers")
        }
        _ => {
            // Kills crowds in the middle of their calls, without a fault of the link.
            let mut copy = Vec::new();
            for beside in 3..6 {
                let argv = [
                    &*scif::built("target/release/scif-fuzz")?,
                    "crowd",
                    "--seconds=60",
                    &format!("--peer={}", 1 - node),
                    "--lossy=true",
                    "--slow=100",
                    &format!("--beside={beside}"),
                ];
                copy.push(lab.command(node, argv)?.spawn()?);
            }
            std::thread::sleep(Duration::from_millis(1500));
            for process in copy {
                process.kill();
                process.wait()?;
            }
            Ok("killed crowds")
        }
    }
}

/// Runs the load for some seconds, with faults in it. Counts calls and faults.
fn round(lab: &Lab, number: u64, seconds: u64, sums: &mut BTreeMap<String, u64>) -> Result<()> {
    let seed = number * 100_000;
    let mut bystanders = Vec::new();
    let mut others = Vec::new();
    for node in 0..2 {
        let own = node as u64 * 10_000_000_000;
        bystanders.push(crowd(lab, node, node, own + seed, seconds)?);
        others.push(crowd(lab, node, 1 - node, own + seed + 50_000, seconds)?);
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut faults = number * 7;
    while Instant::now() < end {
        let server = Server::start(lab, 1)?;
        // The copy may fail when the link does, but it must exit by itself.
        let copy = scif::start_tool(lab, 0, &["cp", "-q", "/exchange/soak", "1:soak"])?;
        let messages = [
            "bench",
            "send-bw",
            "1",
            "--sizes",
            "4K",
            "--iterations",
            "2000",
        ];
        let messages = scif::start_tool(lab, 0, &messages)?;
        let name = fault(lab, faults)?;
        faults += 1;
        *sums.entry(name.to_owned()).or_default() += 1;
        let ended = copy.wait()?.code();
        ensure!(ended.is_some(), "the copy was ended by a signal");
        *sums
            .entry(format!("copies, exit code {}", ended.unwrap_or(-1)))
            .or_default() += 1;
        messages.wait()?;
        server.stop()?;
    }
    for (kind, crowds) in [("bystanders", bystanders), ("across the link", others)] {
        for crowd in crowds {
            let text = crowd.wait()?.success()?.stdout();
            let calls = text
                .lines()
                .last()
                .and_then(|line| line.split(' ').next()?.parse().ok());
            let calls: u64 = calls.with_context(|| format!("no count of calls in\n{text}"))?;
            *sums.entry(format!("calls of crowds, {kind}")).or_default() += calls;
        }
    }
    Ok(())
}

/// Returns the memory of an idle node in KiB, and the module's counters.
fn quiet(lab: &Lab, node: usize) -> Result<BTreeMap<String, u64>> {
    scif::check_idle(lab, node)?;
    // Drops caches, so that cached memory counts as free. Memory that waits for a grace period is
    // freed, too.
    lab.shell(node, "sync; echo 3 >/proc/sys/vm/drop_caches")?;
    let text = lab.shell(node, "cat /proc/meminfo")?;
    let mut row = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(value)) = (words.next(), words.next()) else {
            continue;
        };
        if [
            "MemAvailable:",
            "Slab:",
            "SUnreclaim:",
            "VmallocUsed:",
            "Percpu:",
        ]
        .contains(&name)
        {
            row.insert(name.trim_end_matches(':').to_owned(), value.parse()?);
        }
    }
    let counters = scif::counters(lab, node)?;
    for name in ["connections", "exported_windows", "mappings", "cache_pages"] {
        if let Some(count) = counters.get(name) {
            row.insert(name.to_owned(), *count);
        }
    }
    Ok(row)
}

/// Measures the latencies of round trips, in microseconds.
fn latencies(lab: &Lab) -> Result<Value> {
    let server = Server::start(lab, 1)?;
    let ping = ["ping", "1", "-q", "-c", "500", "-i", "0", "--json"];
    let text = scif::run_tool(lab, 0, &ping)?.success()?.stdout();
    server.stop()?;
    let ping: Value = serde_json::from_str(&text).context(text)?;
    let numbers = ["p50_us", "p90_us", "p99_us", "max_us"];
    Ok(json!(
        numbers
            .iter()
            .map(|name| (*name, ping[*name].clone()))
            .collect::<BTreeMap<_, _>>()
    ))
}

/// Formats the report as a table with a row for each part.
fn table(report: &Value) -> String {
    let empty = Vec::new();
    let mut text = format!(
        "{} hours on the {} kernel\n\n{:>5} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
        report["hours"],
        report["kernel"].as_str().unwrap_or("?"),
        "part",
        "p50 us",
        "p99 us",
        "slab 0",
        "slab 1",
        "free 0",
        "free 1"
    );
    for part in report["parts"].as_array().unwrap_or(&empty) {
        let number = |value: &Value| match value.as_f64() {
            Some(number) => format!("{number:.0}"),
            None => "?".to_owned(),
        };
        let node = |node: usize, name: &str| number(&part["nodes"][node][name]);
        text += &format!(
            "{:>5} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
            number(&part["part"]),
            number(&part["latencies"]["p50_us"]),
            number(&part["latencies"]["p99_us"]),
            node(0, "SUnreclaim"),
            node(1, "SUnreclaim"),
            node(0, "MemAvailable"),
            node(1, "MemAvailable"),
        );
    }
    text += "\n";
    for (name, count) in report["sums"].as_object().into_iter().flatten() {
        // JSON numbers ignore the width of a format string.
        let count = count.to_string();
        text += &format!("{count:>12} {name}\n");
    }
    text
}

fn write(report: &Value) -> Result<String> {
    let folder = paths::repository().join("build/soak");
    fs::create_dir_all(&folder)?;
    let text = table(report);
    fs::write(folder.join("report.json"), format!("{report:#}\n"))?;
    fs::write(folder.join("report.txt"), &text)?;
    Ok(text)
}

/// Runs the whole soak test.
fn mixed_load_with_faults(lab: &Lab) -> Result<()> {
    let time = time()?;
    let parts = (time.as_secs() / 3600).max(FEWEST_PARTS.into()) as u32;
    scif::make_file(lab, "soak", 8 << 20)?;
    let mut sums = BTreeMap::new();
    let mut report = json!({
        "hours": (time.as_secs_f64() / 36.0).round() / 100.0,
        "kernel": lab.kernel().flavour().name(),
        "parts": [],
        "unit": "KiB, microseconds",
    });
    let start = Instant::now();
    let mut rounds = 0;
    for part in 1..=parts {
        let end = start + time * part / parts;
        loop {
            let left = end.saturating_duration_since(Instant::now()).as_secs();
            round(lab, rounds, left.clamp(5, 60), &mut sums)?;
            rounds += 1;
            if Instant::now() >= end {
                break;
            }
        }
        let nodes = (0..2)
            .map(|node| quiet(lab, node))
            .collect::<Result<Vec<_>>>()?;
        let row = json!({ "part": part, "nodes": nodes, "latencies": latencies(lab)? });
        report["parts"]
            .as_array_mut()
            .context("no parts")?
            .push(row);
        report["sums"] = json!(sums);
        // Writes the report now, so that it exists even if the next part fails.
        write(&report)?;
    }
    println!("{}", write(&report)?);
    for node in 0..2 {
        let used = |part: usize| {
            let value = &report["parts"][part]["nodes"][node]["SUnreclaim"];
            value.as_i64().context("no such part")
        };
        let drift = used(parts as usize - 1)? - used(0)?;
        ensure!(drift < DRIFT, "node {node} has {drift} KiB more in slabs");
    }
    Ok(())
}

/// Returns the time that the load goes on. The test itself reports a time that can't be parsed.
fn lasts() -> Duration {
    time().unwrap_or_default()
}

/// The tests of this file.
pub const TESTS: &[Test] = &[Test::new(
    "scif_soak::mixed_load_with_faults",
    SCIF_PAIR,
    mixed_load_with_faults,
)
.seconds(300)
.lasts(lasts)
.loses_nodes()
.leaves_disorder()
.by_name()];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soak_report_has_a_row_for_each_part() {
        let node = json!({ "SUnreclaim": 1000, "MemAvailable": 2000 });
        let part = |number: u32| {
            let latencies = json!({ "p50_us": 12.4, "p99_us": 99.0 });
            json!({ "part": number, "nodes": [node, node], "latencies": latencies })
        };
        let report = json!({
            "hours": 2.0, "kernel": "stock", "parts": [part(1), part(2)], "sums": { "link flaps": 7 },
        });
        let text = table(&report);
        assert!(
            text.contains("    2        12        99      1000"),
            "{text}"
        );
        assert!(text.ends_with("           7 link flaps\n"), "{text}");
    }
}
