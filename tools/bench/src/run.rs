// SPDX-License-Identifier: GPL-2.0
//! Measurements in the guests: running the tool, the programs and the files of debugfs, and parsing
//! their output.

use anyhow::Context;
use anyhow::Result;
use lab::Lab;
use plots::results::NO_SIZE;
use plots::results::Results;
use serde_json::Value;

use crate::plan::SIZE_LARGE;
use crate::setup;

/// Runs `scif bench` in node 0. Returns its report.
pub fn bench(lab: &Lab, arguments: &[&str]) -> Result<Value> {
    let mut command = format!("ulimit -n 100000; exec {} bench", setup::tool()?);
    for argument in arguments {
        command.push(' ');
        command.push_str(argument);
    }
    command.push_str(" --json");
    let text = lab
        .command(0, ["sh", "-c", &command])?
        .timeout(lab.hang_limit(600))
        .run()?
        .success()?
        .stdout();
    serde_json::from_str(&text).with_context(|| format!("scif bench {arguments:?} said: {text}"))
}

/// Makes copies of 1 MiB, several in flight, and enters their rates in bytes per second.
pub fn copies(
    lab: &Lab,
    arguments: &[&str],
    seconds: f64,
    mut enter: impl FnMut(f64),
) -> Result<()> {
    let (seconds, size) = (seconds.to_string(), SIZE_LARGE.to_string());
    let how = ["--depth", "8", "--huge-pages"];
    let how_much = ["--sizes", &size, "--seconds", &seconds];
    let report = bench(lab, &[arguments, &how, &how_much].concat())?;
    for row in rows(&report) {
        let rate = row["bytes_per_second"].as_f64();
        enter(rate.context("no rate in the report")?);
    }
    Ok(())
}

/// Enters the throughputs of a report.
pub fn add_rates(results: &mut Results, figure: &str, line: &str, report: &Value) {
    for row in rows(report) {
        if let Some(rate) = row["bytes_per_second"].as_f64() {
            results.add(figure, line, size(row), rate);
        }
    }
}

/// Enters the mean time of one operation.
pub fn add_each(results: &mut Results, figure: &str, line: &str, report: &Value) {
    for row in rows(report) {
        if let Some(us) = row["us_per_operation"].as_f64() {
            results.add(figure, line, size(row), us);
        }
    }
}

/// Enters the medians of a part.
pub fn add_medians(results: &mut Results, figure: &str, line: &str, report: &Value, part: &str) {
    add_latency(results, figure, line, report, part, "p50_us");
}

/// Enters any figure of a part.
pub fn add_latency(
    results: &mut Results,
    figure: &str,
    line: &str,
    report: &Value,
    part: &str,
    which: &str,
) {
    for row in rows(report) {
        if let Some(us) = latency(row, part, which) {
            results.add(figure, line, size(row), us);
        }
    }
}

/// Returns the figure named `which` of a part, from a row of a report.
pub fn latency(row: &Value, part: &str, which: &str) -> Option<f64> {
    let mut parts = row["latency"].as_array()?.iter();
    parts.find(|latency| latency["part"] == part)?[which].as_f64()
}

fn rows(report: &Value) -> impl Iterator<Item = &Value> {
    report["results"].as_array().into_iter().flatten()
}

fn size(row: &Value) -> u64 {
    row["size"].as_u64().unwrap_or(NO_SIZE)
}

/// Runs raw_reference in node 0. Returns its lines.
pub fn reference(lab: &Lab, arguments: &[&str]) -> Result<Vec<Value>> {
    let mut command = vec![setup::reference()?];
    command.extend(arguments.iter().map(|&argument| argument.to_owned()));
    let text = lab
        .command(0, command)?
        .timeout(lab.hang_limit(300))
        .run()?
        .success()?
        .stdout();
    text.lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("not JSON: {line}")))
        .collect()
}

/// Returns the value of a line "NAME VALUE".
pub fn number(text: &str, name: &str) -> Result<f64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        .with_context(|| format!("no {name} in:\n{text}"))
}

/// Writes an order to a file of node 0, and reads the result from the same file.
pub fn write_and_read(lab: &Lab, file: &str, order: &str) -> Result<String> {
    lab.command(
        0,
        [
            "sh",
            "-e",
            "-c",
            &format!("echo '{order}' >{file}; cat {file}"),
        ],
    )?
    .timeout(lab.hang_limit(120))
    .run()?
    .success()
    .map(|output| output.stdout())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bench_reports_are_parsed() {
        let report = serde_json::json!({ "results": [
            { "size": 64, "bytes_per_second": 5.0, "us_per_operation": 2.0,
              "latency": [ { "part": "copy", "p50_us": 3.0 } ] },
            { "size": null, "latency": [] },
        ] });
        let mut results = Results::default();
        add_rates(&mut results, "rate", "x", &report);
        add_each(&mut results, "each", "x", &report);
        add_medians(&mut results, "median", "x", &report, "copy");
        add_medians(&mut results, "median", "x", &report, "other");
        assert_eq!(results.median("rate", "x", 64), Some(5.0));
        assert_eq!(results.median("each", "x", 64), Some(2.0));
        assert_eq!(results.median("median", "x", 64), Some(3.0));
        assert_eq!(results.median("rate", "x", NO_SIZE), None);
    }

    #[test]
    fn number_is_found_by_its_name() {
        assert_eq!(number("bytes 12\nns 34\n", "ns").unwrap(), 34.0);
        assert!(number("bytes 12\n", "ns").is_err());
    }
}
