// SPDX-License-Identifier: GPL-2.0

//! The output of a measurement: a line for each size, or all as JSON.

use super::measure::Measured;
use super::measure::Switches;
use crate::command::columns::Columns;
use crate::command::columns::Side;
use crate::command::output::print;
use crate::command::output::print_json;
use crate::error::Result;
use crate::format;
use crate::format::percentile;
use crate::format::short_time;
use serde::Serialize;
use std::time::Duration;

/// Number of times at the begin and at the end of a measurement that have figures of their own.
const EDGE: usize = 100;

/// The times of one part of the steps, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// The name of the part.
    pub part: &'static str,
    /// Number of times.
    pub count: usize,
    /// The shortest time.
    pub min_us: f64,
    /// Half of the times are shorter.
    pub p50_us: f64,
    /// 99 of 100 times are shorter.
    pub p99_us: f64,
    /// 999 of 1000 times are shorter.
    pub p99_9_us: f64,
    /// The longest time.
    pub max_us: f64,
    /// The mean time.
    pub mean_us: f64,
    /// Half of the first hundred times are shorter.
    pub first_p50_us: f64,
    /// Half of the last hundred times are shorter.
    pub last_p50_us: f64,
}

fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn median(times: &[Duration]) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    microseconds(percentile(&times, 50.0))
}

impl Latency {
    /// Computes the figures.
    pub fn of(part: &'static str, mut times: Vec<Duration>) -> Self {
        let edge = EDGE.min(times.len());
        let first_p50_us = median(&times[..edge]);
        let last_p50_us = median(&times[times.len() - edge..]);
        times.sort_unstable();
        let at = |percent| microseconds(percentile(&times, percent));
        let total: Duration = times.iter().sum();
        Self {
            part,
            count: times.len(),
            min_us: at(0.0),
            p50_us: at(50.0),
            p99_us: at(99.0),
            p99_9_us: at(99.9),
            max_us: at(100.0),
            mean_us: microseconds(total) / times.len().max(1) as f64,
            first_p50_us,
            last_p50_us,
        }
    }
}

/// The results for one size.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The bytes of one operation, if it has any.
    pub size: Option<u64>,
    /// Number of operations.
    pub operations: u64,
    /// Time of all operations together.
    pub seconds: f64,
    /// Time of one operation.
    pub us_per_operation: f64,
    /// Bytes per second, if the operations have bytes.
    pub bytes_per_second: Option<f64>,
    /// The times of single operations.
    pub latency: Vec<Latency>,
    /// The context switches of the threads here.
    pub context_switches: Switches,
}

impl Row {
    /// Computes the figures; `parts` are the names of the parts whose times were taken.
    pub fn of(size: Option<u64>, measured: Measured, parts: &[&'static str]) -> Self {
        let times = measured.times.into_parts();
        Self {
            size,
            operations: measured.steps,
            seconds: measured.elapsed.as_secs_f64(),
            us_per_operation: microseconds(measured.elapsed) / measured.steps.max(1) as f64,
            bytes_per_second: size
                .map(|size| format::rate(size * measured.steps, measured.elapsed)),
            latency: (parts.iter().zip(times))
                .map(|(part, times)| Latency::of(part, times))
                .collect(),
            context_switches: measured.switches,
        }
    }
}

/// The conditions of a measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Setup {
    /// The name of the measurement.
    pub measurement: &'static str,
    /// The other side.
    pub peer: String,
    /// The carrier of the messages.
    pub transport: super::options::Carrier,
    /// CPU or DMA engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<&'static str>,
    /// Operations in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<usize>,
    /// No thread slept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub polling: Option<bool>,
    /// Number of threads.
    pub threads: usize,
    /// Number of connections of all threads.
    pub connections: usize,
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    #[serde(flatten)]
    setup: Setup,
    results: Vec<Row>,
}

/// Prints all results.
pub fn show(setup: Setup, results: Vec<Row>, json: bool) -> Result<()> {
    if json {
        return print_json(&Report {
            ok: true,
            setup,
            results,
        });
    }
    for line in table(&results) {
        print(line)?;
    }
    Ok(())
}

/// Returns a line for each size and part, or for each size if only throughput was measured.
fn table(rows: &[Row]) -> Vec<String> {
    let us = |value: f64| short_time(Duration::from_secs_f64(value / 1e6));
    let size = |row: &Row| row.size.map(format::size).unwrap_or_default();
    if rows.iter().all(|row| row.latency.is_empty()) {
        let mut columns = Columns::new(&[
            ("SIZE", Side::Right),
            ("OPERATIONS", Side::Right),
            ("RATE", Side::Right),
            ("EACH", Side::Right),
        ]);
        for row in rows {
            let rate = row.bytes_per_second.map(format::per_second);
            columns.push([
                size(row),
                row.operations.to_string(),
                rate.unwrap_or_default(),
                us(row.us_per_operation),
            ]);
        }
        return columns.lines();
    }
    let mut columns = Columns::new(&[
        ("SIZE", Side::Right),
        ("WHAT", Side::Left),
        ("COUNT", Side::Right),
        ("MIN", Side::Right),
        ("50 %", Side::Right),
        ("99 %", Side::Right),
        ("99.9 %", Side::Right),
        ("MAX", Side::Right),
    ]);
    for row in rows {
        for latency in &row.latency {
            columns.push([
                size(row),
                latency.part.to_owned(),
                latency.count.to_string(),
                us(latency.min_us),
                us(latency.p50_us),
                us(latency.p99_us),
                us(latency.p99_9_us),
                us(latency.max_us),
            ]);
        }
    }
    columns.lines()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_figures_match_the_samples() {
        let times: Vec<_> = (1..=1000).map(Duration::from_micros).collect();
        let latency = Latency::of("x", times);
        assert_eq!((latency.min_us, latency.max_us), (1.0, 1000.0));
        assert_eq!((latency.p50_us, latency.p99_us), (500.0, 990.0));
        assert_eq!((latency.p99_9_us, latency.mean_us), (999.0, 500.5));
        assert_eq!((latency.first_p50_us, latency.last_p50_us), (50.0, 950.0));
        let none = Latency::of("x", Vec::new());
        assert_eq!((none.count, none.p50_us, none.mean_us), (0, 0.0, 0.0));
    }

    #[test]
    fn bench_table_is_readable() {
        let row = Row {
            size: Some(4096),
            operations: 10,
            seconds: 1.0,
            us_per_operation: 100_000.0,
            bytes_per_second: Some(40_960.0),
            latency: Vec::new(),
            context_switches: Switches::default(),
        };
        assert_eq!(
            table(&[row.clone()]),
            [
                "    SIZE  OPERATIONS        RATE       EACH",
                "4.00 KiB          10  40.0 KiB/s  100.00 ms"
            ]
        );
        let latency = vec![Latency::of("round trip", vec![Duration::from_micros(3)])];
        let lines = table(&[Row { latency, ..row }]);
        assert_eq!(
            lines[1],
            "4.00 KiB  round trip      1  3.0 us  3.0 us  3.0 us  3.0 us  3.0 us"
        );
    }
}
