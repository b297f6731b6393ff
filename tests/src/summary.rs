// SPDX-License-Identifier: GPL-2.0
//! The figures of a run, printed at its end: the speed of the guests, the times of their boots, and
//! the times of promised events.
//!
//! Nothing is judged here. The figures are those of one process. Tests add to them from their own
//! threads, and `main` prints them.

use std::fmt;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use lab::Lab;
use lab::Speed;

use crate::verdict::Verdict;

static SUMMARY: Mutex<Summary> = Mutex::new(Summary {
    speeds: Vec::new(),
    boots: Vec::new(),
    verdicts: Vec::new(),
});

/// All figures so far, in the order in which they were added.
pub struct Summary {
    speeds: Vec<Speed>,
    /// Seconds from power-on until the last node of a lab answered.
    boots: Vec<f64>,
    verdicts: Vec<Verdict>,
}

/// Returns the summary of this run.
pub fn get() -> MutexGuard<'static, Summary> {
    // A poisoned lock does no harm, because a figure is added as a whole or not at all.
    SUMMARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds the measured speed of a node.
pub fn add_speed(speed: Speed) {
    get().speeds.push(speed);
}

/// Adds a verdict.
pub fn add_verdict(verdict: Verdict) {
    get().verdicts.push(verdict);
}

/// Adds the boot time of a lab.
pub fn add_boot(lab: &Lab) {
    if let Some(seconds) = boot_seconds(lab) {
        get().boots.push(seconds);
    }
}

/// Returns the time of the slowest node's last boot, or `None` if a node does not run.
pub fn boot_seconds(lab: &Lab) -> Option<f64> {
    let nodes = lab.report().ok()?.nodes;
    nodes
        .iter()
        .map(|node| node.boot_seconds)
        .try_fold(0.0, |longest: f64, seconds| Some(longest.max(seconds?)))
}

/// The least, the median and the largest of some figures.
struct Range {
    least: f64,
    middle: f64,
    most: f64,
}

impl Range {
    /// Returns the range, or `None` if there are no figures.
    fn of(figures: impl Iterator<Item = f64>) -> Option<Range> {
        let mut figures: Vec<f64> = figures.collect();
        figures.sort_by(f64::total_cmp);
        Some(Range {
            least: *figures.first()?,
            middle: *figures.get(figures.len() / 2)?,
            most: *figures.last()?,
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_speeds(f)?;
        if let Some(boots) = Range::of(self.boots.iter().copied()) {
            writeln!(
                f,
                "boot: {} labs, the last node of each after {:.1} / {:.1} / {:.1} s (least, middle, most)",
                self.boots.len(),
                boots.least,
                boots.middle,
                boots.most
            )?;
        }
        self.write_promises(f)
    }
}

impl Summary {
    fn write_speeds(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |figure: fn(&Speed) -> f64| Range::of(self.speeds.iter().map(figure));
        let (Some(factor), Some(loops), Some(trips)) = (
            range(|speed| speed.factor),
            range(|speed| speed.loop_seconds),
            range(|speed| speed.round_trip_seconds),
        ) else {
            return Ok(());
        };
        writeln!(
            f,
            "speed: guest work took {:.1} to {:.1} times as long as on the reference machine, in the middle {:.1}; \
             {} measurements, the loop {:.3} / {:.3} / {:.3} s, a round trip {:.3} / {:.3} / {:.3} s (least, middle, most)",
            factor.least,
            factor.most,
            factor.middle,
            self.speeds.len(),
            loops.least,
            loops.middle,
            loops.most,
            trips.least,
            trips.middle,
            trips.most
        )
    }

    /// Writes a line for each promise, in the order in which they were first judged.
    fn write_promises(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<&str> = Vec::new();
        for verdict in &self.verdicts {
            if !names.contains(&verdict.promise.name) {
                names.push(verdict.promise.name);
            }
        }
        let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
        if !names.is_empty() {
            writeln!(
                f,
                "{:<width$}  {:>8}  {:>6}  {:>8}  {:>8}  {:>12}  {:>8}  {:>7}",
                "promise", "figure", "judged", "least", "most", "factor", "closest", "broken"
            )?;
        }
        for name in names {
            let of_name = || {
                let verdicts = self.verdicts.iter();
                verdicts.filter(move |verdict| verdict.promise.name == name)
            };
            let (Some(first), Some(took), Some(factor), Some(share)) = (
                of_name().next(),
                Range::of(of_name().map(|verdict| verdict.took)),
                Range::of(of_name().map(|verdict| verdict.factor)),
                Range::of(of_name().map(|verdict| verdict.took / verdict.limit())),
            ) else {
                continue;
            };
            let broken = of_name().filter(|verdict| !verdict.is_kept()).count();
            writeln!(
                f,
                "{name:<width$}  {:>6.1} s  {:>6}  {:>6.2} s  {:>6.2} s  {:>12}  {:>6.0} %  {broken:>7}",
                first.promise.seconds * f64::from(first.slowness),
                of_name().count(),
                took.least,
                took.most,
                format!("{:.1} to {:.1}", factor.least, factor.most),
                share.most * 100.0,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Promise;

    fn verdict(name: &'static str, seconds: f64, took: f64, factor: f64) -> Verdict {
        Verdict {
            promise: Promise { name, seconds },
            took,
            slowness: 1,
            factor,
        }
    }

    fn speed(loop_seconds: f64, round_trip_seconds: f64, factor: f64) -> Speed {
        Speed {
            loop_seconds,
            round_trip_seconds,
            factor,
        }
    }

    #[test]
    fn run_without_labs_has_an_empty_summary() {
        let summary = Summary {
            speeds: Vec::new(),
            boots: Vec::new(),
            verdicts: Vec::new(),
        };
        assert_eq!(summary.to_string(), "");
    }

    #[test]
    fn summary_shows_speeds_boots_and_promises() {
        let summary = Summary {
            speeds: vec![
                speed(0.1, 0.05, 1.0),
                speed(0.32, 0.06, 3.2),
                speed(0.12, 0.07, 1.2),
            ],
            boots: vec![9.0, 7.5, 12.25],
            verdicts: vec![
                verdict("it is told", 2.0, 0.25, 1.0),
                verdict("it boots in time", 15.0, 9.0, 1.0),
                verdict("it is told", 2.0, 3.0, 3.0),
                verdict("it is told", 2.0, 2.5, 1.0),
            ],
        };
        assert_eq!(
            summary.to_string(),
            "\
speed: guest work took 1.0 to 3.2 times as long as on the reference machine, in the middle 1.2; \
3 measurements, the loop 0.100 / 0.120 / 0.320 s, a round trip 0.050 / 0.060 / 0.070 s (least, middle, most)
boot: 3 labs, the last node of each after 7.5 / 9.0 / 12.2 s (least, middle, most)
promise             figure  judged     least      most        factor   closest   broken
it is told           2.0 s       3    0.25 s    3.00 s    1.0 to 3.0     125 %        1
it boots in time    15.0 s       1    9.00 s    9.00 s    1.0 to 1.0      60 %        0
"
        );
    }
}
