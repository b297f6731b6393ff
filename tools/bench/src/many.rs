// SPDX-License-Identifier: GPL-2.0
//! Measurements that take long and are made once or a few times: ten thousand connections, a
//! hundred thousand windows, and several threads and connections at once.

use anyhow::Result;
use lab::Lab;
use plots::results::NO_SIZE;
use plots::results::Results;
use serde_json::Value;

use crate::figures::*;
use crate::run;

/// Number of connections.
const CONNECTIONS_OPEN: u64 = 10_000;

/// Number of times that the connections are made. A slow moment of the machine at the begin or the
/// end affects only one of these.
const CONNECTIONS_TIMES: usize = 3;

/// Size of a ring that has not been used, in bytes.
const RING_AT_FIRST: f64 = 4096.0;

type Part = fn(&Lab, &mut Results) -> Result<()>;

/// Measures all parts. Returns the failures.
pub fn run(lab: &Lab, results: &mut Results) -> Vec<String> {
    // Connections come first: later they would use memory that other parts have returned to the
    // kernel's caches, and would seem to need no memory.
    let parts: [(&str, Part); 4] = [
        ("many connections", connections),
        ("scaling", scaling),
        ("many windows at once", windows_at_once),
        ("many windows", windows),
    ];
    let mut failures = Vec::new();
    for (name, part) in parts {
        if let Err(error) = part(lab, results) {
            failures.push(format!("{name}: {error:#}"));
        }
    }
    failures
}

fn scaling(lab: &Lab, results: &mut Results) -> Result<()> {
    for count in [1, 2, 4, 8] {
        let number = count.to_string();
        let report = run::bench(
            lab,
            &["send-bw", "1", "--sizes", "4096", "--threads", &number],
        )?;
        for row in report["results"].as_array().into_iter().flatten() {
            if let Some(rate) = row["bytes_per_second"].as_f64() {
                results.add(THREADS, SCIF, count, rate);
            }
        }
        let report = run::bench(
            lab,
            &[
                "write-bw",
                "1",
                "--sizes",
                "65536",
                "--connections",
                &number,
            ],
        )?;
        for row in report["results"].as_array().into_iter().flatten() {
            if let Some(rate) = row["bytes_per_second"].as_f64() {
                results.add(CONNECTIONS, SCIF, count, rate);
            }
        }
    }
    Ok(())
}

fn windows_at_once(lab: &Lab, results: &mut Results) -> Result<()> {
    let base = ["register", "1", "--sizes", "4096", "--warm-up", "0"];
    for (line, options) in [
        (UNREGISTER_ALL, ["--at-once", "10000", "--iterations", "1"]),
        (UNREGISTER_ONE, ["--at-once", "1", "--iterations", "500"]),
    ] {
        let report = run::bench(lab, &[&base[..], &options].concat())?;
        let rows = report["results"].as_array();
        if let Some(row) = rows.and_then(|rows| rows.first()) {
            if let Some(us) = row["latency"][1]["p50_us"].as_f64() {
                results.add(MANY, line, NO_SIZE, us);
            }
        }
    }
    Ok(())
}

fn windows(lab: &Lab, results: &mut Results) -> Result<()> {
    for (line, held) in [(LOOK_UP_FEW, "10"), (LOOK_UP_MANY, "100000")] {
        let report = run::bench(
            lab,
            &["write-lat", "1", "--cpu", "--sizes", "64", "--held", held],
        )?;
        let rows = report["results"].as_array();
        if let Some(row) = rows.and_then(|rows| rows.first()) {
            if let Some(us) = row["latency"][0]["p50_us"].as_f64() {
                results.add(MANY, line, NO_SIZE, us);
            }
        }
    }
    Ok(())
}

/// Returns the free memory of a node, in bytes.
fn available(lab: &Lab, node: usize) -> Result<f64> {
    let text = lab.node(node).read("/proc/meminfo")?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    Ok(kilobytes.unwrap_or(f64::NAN) * 1024.0)
}

/// Measures connections. The first time it also measures the memory of node 1, the server: at the
/// end all connections are open.
fn connections(lab: &Lab, results: &mut Results) -> Result<()> {
    let before = available(lab, 1)?;
    let least = std::thread::scope(|scope| {
        let bench = scope.spawn(|| connect_all(lab));
        let mut least = before;
        while !bench.is_finished() {
            if let Ok(now) = available(lab, 1) {
                least = least.min(now);
            }
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        let died = || Err(anyhow::anyhow!("the thread that measures died"));
        add_connections(&bench.join().unwrap_or_else(|_| died())?, results);
        Ok::<_, anyhow::Error>(least)
    })?;
    let each = (before - least) / CONNECTIONS_OPEN as f64 - RING_AT_FIRST;
    results.add(MANY, IDLE_CONNECTION, NO_SIZE, each);
    for _ in 1..CONNECTIONS_TIMES {
        add_connections(&connect_all(lab)?, results);
    }
    Ok(())
}

fn connect_all(lab: &Lab) -> Result<Value> {
    let count = CONNECTIONS_OPEN.to_string();
    let arguments = [
        "connect",
        "1",
        "--connections",
        &count,
        "--iterations",
        &count,
        "--warm-up",
        "0",
    ];
    run::bench(lab, &arguments)
}

fn add_connections(report: &Value, results: &mut Results) {
    let latency = &report["results"][0]["latency"][0];
    let first = latency["first_p50_us"].as_f64();
    let last = latency["last_p50_us"].as_f64();
    for (line, figure) in [
        (FIRST_CONNECTIONS, first),
        (LAST_CONNECTIONS, last),
        (
            LAST_OF_FIRST,
            last.zip(first).map(|(last, first)| last / first),
        ),
    ] {
        if let Some(figure) = figure {
            results.add(MANY, line, NO_SIZE, figure);
        }
    }
}
