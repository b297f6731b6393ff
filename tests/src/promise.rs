// SPDX-License-Identifier: GPL-2.0
//! Promises: events that have to happen within a time. Other limits only end a test that would hang
//! (`Lab::hang_limit`).
//!
//! A promise is a figure for the reference machine. A test that checks a promise first measures the
//! speed of its nodes ([`Circumstances::before`]). Then it causes the event, waits for it with a
//! hang limit, and lets [`Promise::check`] judge the time.
//!
//! The figure is multiplied by the slowness of the kernel and by the measured factor. Other work on
//! the machine comes and goes, so the nodes are measured once more if the promise would be broken
//! otherwise. The larger factor counts.
//!
//! # Invariants
//! - At factor 1 the limit is the figure: a promise that an idle machine breaks is broken.
//! - Every measured time is in the summary, whether its promise is kept or broken.
//! - Nodes are measured while the test itself does not keep them busy. The test has to ensure this,
//!   before and after.

use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use lab::Lab;

use crate::summary;
use crate::verdict::Promise;
use crate::verdict::Verdict;

/// The nodes that a promise is about, and their speed before the event.
pub struct Circumstances<'a> {
    lab: &'a Lab,
    nodes: Vec<usize>,
    factor: f64,
}

impl<'a> Circumstances<'a> {
    /// Measures these nodes. Tests call this before they make the nodes busy.
    pub fn before(lab: &'a Lab, nodes: &[usize]) -> Result<Circumstances<'a>> {
        let nodes = nodes.to_vec();
        let factor = largest_factor(lab, &nodes)?;
        Ok(Circumstances { lab, nodes, factor })
    }
}

/// Returns the factor of the slowest running node, or 1 if no node runs.
fn largest_factor(lab: &Lab, nodes: &[usize]) -> Result<f64> {
    let mut largest = 1.0_f64;
    for &node in nodes {
        if lab.is_running(node) {
            largest = largest.max(measure(lab, node)?);
        }
    }
    Ok(largest)
}

/// Measures the factor of a node, and adds it to the summary.
pub fn measure(lab: &Lab, node: usize) -> Result<f64> {
    let speed = lab
        .measure_speed(node)
        .with_context(|| format!("the speed of node {node}"))?;
    summary::add_speed(speed);
    Ok(speed.factor)
}

impl Promise {
    /// Returns an error if the event `took` longer than promised, at the speed before it and at the
    /// present speed.
    pub fn check(&self, circumstances: &Circumstances<'_>, took: Duration) -> Result<()> {
        let Circumstances { lab, nodes, factor } = circumstances;
        let (verdict, failure) =
            self.judge(took, lab.slowness(), *factor, || largest_factor(lab, nodes));
        summary::add_verdict(verdict);
        if verdict.is_kept() {
            return Ok(());
        }
        match failure {
            Some(error) => Err(error.context(verdict.to_string())),
            None => bail!("{verdict}"),
        }
    }

    /// Judges the time. Calls `again` to measure the factor only if the result depends on it. If
    /// that fails, the earlier factor counts, and the error is returned as well.
    fn judge(
        &self,
        took: Duration,
        slowness: u32,
        factor: f64,
        again: impl FnOnce() -> Result<f64>,
    ) -> (Verdict, Option<anyhow::Error>) {
        let mut verdict = Verdict {
            promise: *self,
            took: took.as_secs_f64(),
            slowness,
            factor,
        };
        if verdict.is_kept() {
            return (verdict, None);
        }
        match again() {
            Ok(factor) => {
                verdict.factor = verdict.factor.max(factor);
                (verdict, None)
            }
            Err(error) => (verdict, Some(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    const PROMISE: Promise = Promise {
        name: "it happens",
        seconds: 2.0,
    };

    fn judged(milliseconds: u64, slowness: u32, before: f64, after: f64) -> Verdict {
        let took = Duration::from_millis(milliseconds);
        PROMISE.judge(took, slowness, before, || Ok(after)).0
    }

    #[test]
    fn idle_machine_gets_no_more_than_the_promised_time() {
        assert!(judged(2000, 1, 1.0, 1.0).is_kept());
        assert!(!judged(2001, 1, 1.0, 1.0).is_kept());
        assert!(!judged(3000, 1, 1.0, 1.0).is_kept());
    }

    #[test]
    fn slower_machine_gets_proportionally_more_time() {
        assert!(judged(3000, 1, 1.6, 1.0).is_kept());
        assert!(!judged(3300, 1, 1.6, 1.0).is_kept());
        assert!(judged(19_900, 1, 10.0, 1.0).is_kept());
    }

    #[test]
    fn larger_of_two_slowdown_factors_counts() {
        let verdict = judged(3000, 1, 1.0, 1.6);
        assert!(verdict.is_kept() && verdict.factor > 1.5);
        let verdict = judged(4000, 1, 1.6, 1.2);
        assert!(!verdict.is_kept() && verdict.factor > 1.5);
    }

    #[test]
    fn slower_kernel_gets_more_time() {
        assert!(judged(15_900, 8, 1.0, 1.0).is_kept());
        assert!(!judged(16_100, 8, 1.0, 1.0).is_kept());
        assert!(judged(31_900, 8, 2.0, 1.0).is_kept());
    }

    #[test]
    fn kept_promise_is_not_measured_again() {
        let took = Duration::from_secs(1);
        let (verdict, failure) = PROMISE.judge(took, 1, 1.0, || Err(anyhow!("measured")));
        assert!(verdict.is_kept() && failure.is_none());
    }

    #[test]
    fn failed_measurement_does_not_excuse_a_broken_promise() {
        let took = Duration::from_secs(3);
        let (verdict, failure) = PROMISE.judge(took, 1, 1.0, || Err(anyhow!("it is gone")));
        assert!(!verdict.is_kept() && failure.is_some());
        let said = verdict.to_string();
        assert!(
            said.contains("is broken: it took 3.00 s of 2.00 s"),
            "{said}"
        );
    }
}
