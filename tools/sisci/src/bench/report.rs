// SPDX-License-Identifier: GPL-2.0

//! The results of the tests: a line for each value, JSON, charts.

use std::time::Duration;

use plots::charts;
use plots::charts::Chart;
use plots::results::NO_SIZE;
use plots::results::Results;
use scif::command::columns::Columns;
use scif::command::columns::Side;
use scif::command::output::print;
use scif::command::output::print_json;
use scif::format;
use serde::Serialize;

use super::arguments::Client;
use crate::error::Error;
use crate::error::Result;

pub const PIO: &str = "PIO, throughput";
pub const PIO_LATENCY: &str = "PIO, latency";
pub const PINGPONG: &str = "ping-pong, half a round trip";
pub const DMA: &str = "DMA, throughput";
pub const INTERRUPTS: &str = "interrupt, half a round trip";
pub const BROADCAST: &str = "broadcast, throughput";
pub const SEQUENCE: &str = "SCICheckSequence()";

pub const SISCI: &str = "SISCI";
pub const STORES: &str = "stores";
pub const MEMCPY: &str = "SCIMemCpy()";
pub const PUSH: &str = "push";
pub const PULL: &str = "pull";
pub const CHECK: &str = "without flush";
pub const CHECK_ARRIVED: &str = "until all has arrived";

pub const MMAP: &str = "scif_mmap(), stores";
pub const WRITETO: &str = "scif_writeto()";
pub const READFROM: &str = "scif_readfrom()";
pub const MESSAGES: &str = "scif_send(), scif_recv(), asleep";
pub const MESSAGES_POLLING: &str = "scif_send(), scif_recv(), polling";

/// The unit of values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    BytesPerSecond,
    Microseconds,
    Nanoseconds,
}

struct Figure {
    test: &'static str,
    name: &'static str,
    file: &'static str,
    unit: Unit,
    /// The lines, each with the call of SCIF below it.
    lines: &'static [(&'static str, &'static str)],
}

const FIGURES: &[Figure] = &[
    Figure {
        test: "scibench2",
        name: PIO,
        file: "pio",
        unit: Unit::BytesPerSecond,
        lines: &[(STORES, MMAP), (MEMCPY, MMAP)],
    },
    Figure {
        test: "scibench2",
        name: PIO_LATENCY,
        file: "pio-latency",
        unit: Unit::Microseconds,
        lines: &[(STORES, MMAP)],
    },
    Figure {
        test: "scipp",
        name: PINGPONG,
        file: "pingpong",
        unit: Unit::Microseconds,
        lines: &[(SISCI, MESSAGES_POLLING)],
    },
    Figure {
        test: "dma_bench",
        name: DMA,
        file: "dma",
        unit: Unit::BytesPerSecond,
        lines: &[(PUSH, WRITETO), (PULL, READFROM)],
    },
    Figure {
        test: "intr_bench",
        name: INTERRUPTS,
        file: "interrupt",
        unit: Unit::Microseconds,
        lines: &[(SISCI, MESSAGES)],
    },
    Figure {
        test: "reflective_bench",
        name: BROADCAST,
        file: "broadcast",
        unit: Unit::BytesPerSecond,
        lines: &[(MEMCPY, WRITETO), (PUSH, WRITETO)],
    },
    Figure {
        test: "sequence",
        name: SEQUENCE,
        file: "sequence",
        unit: Unit::Nanoseconds,
        lines: &[(CHECK, ""), (CHECK_ARRIVED, "")],
    },
];

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::BytesPerSecond => "bytes per second",
            Self::Microseconds => "microseconds",
            Self::Nanoseconds => "nanoseconds",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::BytesPerSecond => format::per_second(value),
            Self::Microseconds => format::short_time(Duration::from_secs_f64(value / 1e6)),
            Self::Nanoseconds => format!("{value:.1} ns"),
        }
    }
}

/// A value.
#[derive(Debug, Serialize)]
struct Row {
    test: &'static str,
    figure: &'static str,
    line: &'static str,
    /// The size in bytes, if the operation has any.
    size: Option<u64>,
    /// The median.
    value: f64,
    unit: &'static str,
    /// The call of SCIF below it.
    stands_on: Option<&'static str>,
    /// The median of the call in `stands_on`.
    reference: Option<f64>,
    /// The ratio of the two medians.
    ratio: Option<f64>,
}

#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    node: u32,
    rounds: u32,
    seconds: f64,
    rows: Vec<Row>,
    results: &'a Results,
}

fn rows(results: &Results) -> Vec<(Unit, Row)> {
    let mut rows = Vec::new();
    for figure in FIGURES {
        for &(line, other) in figure.lines {
            for size in results.sizes(figure.name, line) {
                let Some(value) = results.median(figure.name, line, size) else {
                    continue;
                };
                let row = Row {
                    test: figure.test,
                    figure: figure.name,
                    line,
                    size: (size != NO_SIZE).then_some(size),
                    value,
                    unit: figure.unit.name(),
                    stands_on: (!other.is_empty()).then_some(other),
                    reference: results.median(figure.name, other, size),
                    ratio: results.ratio(figure.name, line, other, size),
                };
                rows.push((figure.unit, row));
            }
        }
    }
    rows
}

fn table(rows: &[(Unit, Row)]) -> Vec<String> {
    let mut columns = Columns::new(&[
        ("TEST", Side::Left),
        ("FIGURE", Side::Left),
        ("BY", Side::Left),
        ("SIZE", Side::Right),
        ("MEDIAN", Side::Right),
        ("RATIO", Side::Right),
        ("TO", Side::Left),
    ]);
    for (unit, row) in rows {
        let ratio = row.ratio.map(|ratio| format!("{ratio:.2}"));
        let to = ratio.as_ref().and(row.stands_on).unwrap_or_default();
        columns.push([
            row.test.to_owned(),
            row.figure.to_owned(),
            row.line.to_owned(),
            row.size.map(format::size).unwrap_or_default(),
            unit.show(row.value),
            ratio.unwrap_or_default(),
            to.to_owned(),
        ]);
    }
    columns.lines()
}

/// Prints all values, and draws the charts.
pub fn show(client: &Client, results: &Results) -> Result<()> {
    let rows = rows(results);
    if let Some(folder) = &client.plots {
        let made = std::fs::create_dir_all(folder);
        let failure = format!("cannot make '{}'", folder.display());
        made.map_err(scif::error::Error::local(failure))?;
        for figure in FIGURES {
            let chart = Chart {
                figure: figure.name,
                file: figure.file,
                unit: figure.unit.name(),
                across: "bytes",
                levels: &[],
            };
            charts::draw(&chart, results, folder)
                .map_err(|error| Error::Refused(format!("{error:#}")))?;
        }
    }
    if client.json {
        return Ok(print_json(&Report {
            ok: true,
            node: client.node,
            rounds: client.rounds,
            seconds: client.seconds,
            rows: rows.into_iter().map(|(_, row)| row).collect(),
            results,
        })?);
    }
    for line in table(&rows) {
        print(line)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_rows_show_ratio_and_baseline() {
        let mut results = Results::default();
        for (ours, theirs) in [(2e9, 4e9), (3e9, 4e9), (1e9, 4e9)] {
            results.add(DMA, PUSH, 65536, ours);
            results.add(DMA, WRITETO, 65536, theirs);
        }
        results.add(SEQUENCE, CHECK, NO_SIZE, 12.34);
        let rows = rows(&results);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].1.ratio, Some(0.5));
        assert_eq!(rows[0].1.stands_on, Some(WRITETO));
        assert_eq!(rows[1].1.size, None);
        let lines = table(&rows);
        assert!(lines[1].contains("64.0 KiB  1.86 GiB/s   0.50  scif_writeto()"));
        assert!(lines[2].ends_with("12.3 ns"), "{}", lines[2]);
    }

    #[test]
    fn figure_names_are_unique() {
        let mut names: Vec<_> = FIGURES.iter().map(|figure| figure.name).collect();
        names.dedup();
        assert_eq!(names.len(), FIGURES.len());
    }
}
