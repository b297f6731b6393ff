// SPDX-License-Identifier: GPL-2.0
//! The report: raw numbers as JSON, charts, and a page that shows all of it.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Context;
use anyhow::Result;
use plots::charts;
use plots::charts::Chart;
use plots::results::Results;
use serde::Serialize;

use crate::counts::Costs;
use crate::figures::*;
use crate::goals::Goal;
use crate::machine::Machine;

/// The figures that have charts.
const CHARTS: &[Chart] = &[
    chart(WRITE, "write", "bytes per second", "bytes of a copy"),
    chart(READ, "read", "bytes per second", "bytes of a copy"),
    chart(STREAM, "stream", "bytes per second", "bytes of a message"),
    chart(TRIP, "round-trip", "microseconds", "bytes of a message"),
    chart(COPY, "crossover", "microseconds", "bytes of a copy"),
    chart(WINDOW, "window", "microseconds", "bytes of a window"),
    chart(THREADS, "threads", "bytes per second", "threads"),
    chart(
        CONNECTIONS,
        "connections",
        "bytes per second",
        "connections",
    ),
    chart(ENGINES, "channels", "bytes per second", "DMA channels"),
    chart(NET_MTU, "net-mtu", "bytes per second", "bytes of the MTU"),
    chart(
        NET_MESSAGE,
        "net-message",
        "bytes per second",
        "bytes of a write",
    ),
];

const fn chart(
    figure: &'static str,
    file: &'static str,
    unit: &'static str,
    across: &'static str,
) -> Chart {
    Chart {
        figure,
        file,
        unit,
        across,
        levels: &[RAW_DOORBELL, RAW_DOORBELL_THREAD],
    }
}

/// The whole report.
#[derive(Serialize)]
pub struct Report {
    pub machine: Machine,
    pub rounds: usize,
    pub seconds: f64,
    pub goals: Vec<Goal>,
    pub counts: Costs,
    /// The counts of network devices.
    pub net_counts: Costs,
    pub results: Results,
    /// The failures, with their reasons.
    pub failures: Vec<String>,
}

impl Report {
    /// Writes report.json, report.html and the charts.
    pub fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        fs::write(folder.join("report.json"), serde_json::to_vec_pretty(self)?)?;
        let drawn = draw(&self.results, folder)?;
        fs::write(folder.join("report.html"), self.page(&drawn))?;
        Ok(())
    }

    /// Returns the table of the goals, for a terminal.
    pub fn table(&self) -> String {
        let rows: Vec<[String; 4]> = self.goals.iter().map(Goal::cells).collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths = [width(0), width(1), width(2)];
        let mut text = String::new();
        for [figure, reached, wanted, verdict] in &rows {
            let _ = writeln!(
                text,
                "{figure:<0$}  {reached:>1$}  {wanted:>2$}  {verdict}",
                widths[0], widths[1], widths[2]
            );
        }
        text
    }

    fn page(&self, charts: &[&str]) -> String {
        let mut page = String::from(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>SCIF: benchmark</title>\n\
             <style>body{font-family:sans-serif;max-width:70em;margin:2em auto;padding:0 1em}\
             table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #bbb;padding:.2em .6em;text-align:left}\
             td.n{text-align:right}.yes{background:#dfd}.no{background:#fdd}img{max-width:100%}</style></head><body>\n\
             <h1>SCIF: benchmark</h1>\n",
        );
        let machine = &self.machine;
        let _ = writeln!(
            page,
            "<p>{} ({} processors, {} MiB); {}; {}; guests: Linux {}; module {}. Slowness {:.2} before, {:.2} after; \
             load {:.2} before, {:.2} after. Medians of {} rounds, {} s for each size; all in one run, \
             so ratios count and not times.</p>",
            escaped(&machine.processor),
            machine.processors,
            machine.memory_mib,
            escaped(&machine.virtualised_by),
            escaped(&machine.qemu),
            escaped(&machine.guest_kernel),
            escaped(&machine.module),
            machine.slowness[0],
            machine.slowness[1],
            machine.load[0],
            machine.load[1],
            self.rounds,
            self.seconds
        );
        self.add_goals(&mut page);
        for file in charts {
            let _ = writeln!(page, "<p><img src=\"{file}.svg\" alt=\"{file}\"></p>");
        }
        let counts = "Counts for one operation, both nodes together";
        add_counts(&mut page, counts, &self.counts);
        add_counts(&mut page, "The same of network devices", &self.net_counts);
        self.add_numbers(&mut page);
        if !self.failures.is_empty() {
            page.push_str("<h2>Not measured</h2>\n<ul>\n");
            for failure in &self.failures {
                let _ = writeln!(page, "<li><pre>{}</pre></li>", escaped(failure));
            }
            page.push_str("</ul>\n");
        }
        page.push_str(
            "<p>Raw numbers: <a href=\"report.json\">report.json</a></p></body></html>\n",
        );
        page
    }

    fn add_goals(&self, page: &mut String) {
        page.push_str("<h2>What must be reached</h2>\n<table><tr><th>Figure</th><th>Reached</th><th>Wanted</th><th></th></tr>\n");
        for goal in &self.goals {
            let [figure, reached, wanted, verdict] = goal.cells();
            let class = match goal.is_met() {
                Some(true) => "yes",
                Some(false) => "no",
                None => "",
            };
            let _ = writeln!(
                page,
                "<tr class=\"{class}\"><td>{}</td><td class=\"n\">{reached}</td><td class=\"n\">{}</td><td>{verdict}</td></tr>",
                escaped(&figure),
                escaped(&wanted)
            );
        }
        page.push_str("</table>\n");
    }

    fn add_numbers(&self, page: &mut String) {
        page.push_str("<h2>Medians</h2>\n");
        for figure in self.results.figures() {
            let _ = writeln!(page, "<h3>{}</h3>\n<table>", escaped(&figure));
            for (line, points) in self.results.lines(&figure) {
                let _ = write!(page, "<tr><th>{}</th>", escaped(&line));
                for (size, value) in points {
                    let _ = write!(
                        page,
                        "<td class=\"n\">{}: {}</td>",
                        charts::short(size as f64),
                        rounded(value)
                    );
                }
                page.push_str("</tr>\n");
            }
            page.push_str("</table>\n");
        }
    }
}

fn add_counts(page: &mut String, title: &str, costs: &Costs) {
    let _ = writeln!(page, "<h2>{title}</h2>");
    page.push_str(
        "<table><tr><th>Operation</th><th>Trapped reads</th>\
         <th>Trapped writes</th><th>Doorbells</th><th>Interrupts</th><th>Descriptors</th><th>Sleeps of the client</th></tr>\n",
    );
    for (name, cost) in costs {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td class=\"n\">{:.2}</td><td class=\"n\">{:.2}</td><td class=\"n\">{:.2}</td>\
             <td class=\"n\">{:.2}</td><td class=\"n\">{:.2}</td><td class=\"n\">{:.2}</td></tr>",
            escaped(name),
            cost.trapped_reads,
            cost.trapped_writes,
            cost.doorbells,
            cost.interrupts,
            cost.descriptors,
            cost.sleeps
        );
    }
    page.push_str("</table>\n");
}

/// Draws the charts that have values. Returns the names of their files.
pub fn draw(results: &Results, folder: &Path) -> Result<Vec<&'static str>> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut drawn = Vec::new();
    for chart in CHARTS {
        if charts::draw(chart, results, folder)? {
            drawn.push(chart.file);
        }
    }
    Ok(drawn)
}

fn rounded(value: f64) -> String {
    match value.abs() {
        1e9.. => format!("{:.2}e9", value / 1e9),
        1e6..1e9 => format!("{:.1}e6", value / 1e6),
        100.0..1e6 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::goals;

    fn report() -> Report {
        let mut results = Results::default();
        results.add(TRIP, SCIF_ASLEEP, 8, 100.0);
        results.add(TRIP, RAW_DOORBELL, 8, 50.0);
        results.add(PAIRS, PAIR_DOORBELL, 8, 2.0);
        let counts = Costs::new();
        Report {
            machine: Machine {
                processor: "fast & good".to_owned(),
                processors: 2,
                memory_mib: 1,
                virtualised_by: String::new(),
                guest_kernel: String::new(),
                qemu: String::new(),
                module: String::new(),
                slowness: [1.0; 2],
                load: [0.0; 2],
            },
            rounds: 1,
            seconds: 1.0,
            goals: goals(&results, &counts, &counts),
            counts,
            net_counts: Costs::new(),
            results,
            failures: vec!["<nothing>".to_owned()],
        }
    }

    #[test]
    fn report_table_has_a_line_for_each_goal() {
        let report = report();
        let table = report.table();
        assert_eq!(table.lines().count(), report.goals.len());
        let line = table.lines().find(|line| line.contains("both asleep"));
        assert!(line.unwrap().ends_with("2.000  <= 1.300  no"), "{table}");
        assert!(table.contains("not measured"));
    }

    #[test]
    fn report_files_are_written() {
        let folder = std::env::temp_dir().join(format!("scif-report-{}", std::process::id()));
        report().write(&folder).unwrap();
        let page = fs::read_to_string(folder.join("report.html")).unwrap();
        let numbers = fs::read_to_string(folder.join("report.json")).unwrap();
        let chart = folder.join("round-trip.svg").exists();
        fs::remove_dir_all(&folder).unwrap();
        assert!(page.contains("fast &amp; good") && page.contains("round-trip.svg"));
        assert!(page.contains("&lt;nothing&gt;"));
        assert!(chart);
        let numbers: serde_json::Value = serde_json::from_str(&numbers).unwrap();
        assert_eq!(
            numbers["results"]["figures"][TRIP][SCIF_ASLEEP]["8"][0],
            100.0
        );
    }
}
