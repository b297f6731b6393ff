// SPDX-License-Identifier: GPL-2.0
//! Promises: what has to happen within a time, as opposed to limits that only end what would
//! hang (`Lab::hang_limit`).
//!
//! A promise is a figure for the reference machine. A test that proves one measures how fast
//! the nodes are that it is about ([`Circumstances::before`]), lets it happen, waits for it
//! with a hang limit, and has the time judged that it took ([`Promise::check`]). The figure
//! is multiplied by the slowness of the kernel and by the factor that was measured. As other
//! work on the machine comes and goes, the nodes are measured once more if the promise would
//! be broken otherwise, and the larger factor counts.
//!
//! # Invariants
//! - At factor 1 the limit is the figure: a promise that an idle machine breaks is broken.
//! - Whatever was measured is in the summary, kept or broken.
//! - Nodes are measured while the test itself does not keep them busy; that is up to the
//!   test, before and after.

use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use lab::Lab;

use crate::summary;
use crate::verdict::Promise;
use crate::verdict::Verdict;

/// The nodes that a promise is about, and how fast they were before it.
pub struct Circumstances<'a> {
    lab: &'a Lab,
    nodes: Vec<usize>,
    factor: f64,
}

impl<'a> Circumstances<'a> {
    /// Measures these nodes; call it before the test makes them busy.
    pub fn before(lab: &'a Lab, nodes: &[usize]) -> Result<Circumstances<'a>> {
        let nodes = nodes.to_vec();
        let factor = largest_factor(lab, &nodes)?;
        Ok(Circumstances { lab, nodes, factor })
    }
}

/// Of the slowest of those nodes that run; 1 if none does.
fn largest_factor(lab: &Lab, nodes: &[usize]) -> Result<f64> {
    let mut largest = 1.0_f64;
    for &node in nodes {
        if lab.is_running(node) {
            largest = largest.max(measure(lab, node)?);
        }
    }
    Ok(largest)
}

/// The factor of a node, for the summary, too.
pub fn measure(lab: &Lab, node: usize) -> Result<f64> {
    let speed = lab
        .measure_speed(node)
        .with_context(|| format!("the speed of node {node}"))?;
    summary::add_speed(speed);
    Ok(speed.factor)
}

impl Promise {
    /// An error if it `took` longer than promised, at the speed before it and at that now.
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

    /// Judges. The factor is measured `again` only if it matters; if that fails, the one
    /// from before counts, and the error is returned as well.
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
    fn an_idle_machine_gets_no_more_than_the_figure() {
        assert!(judged(2000, 1, 1.0, 1.0).is_kept());
        assert!(!judged(2001, 1, 1.0, 1.0).is_kept());
        assert!(!judged(3000, 1, 1.0, 1.0).is_kept());
    }

    #[test]
    fn a_slower_machine_gets_as_much_more_as_it_is_slower() {
        assert!(judged(3000, 1, 1.6, 1.0).is_kept());
        assert!(!judged(3300, 1, 1.6, 1.0).is_kept());
        assert!(judged(19_900, 1, 10.0, 1.0).is_kept());
    }

    #[test]
    fn the_larger_factor_counts() {
        let verdict = judged(3000, 1, 1.0, 1.6);
        assert!(verdict.is_kept() && verdict.factor > 1.5);
        let verdict = judged(4000, 1, 1.6, 1.2);
        assert!(!verdict.is_kept() && verdict.factor > 1.5);
    }

    #[test]
    fn a_slower_kernel_has_more_time() {
        assert!(judged(15_900, 8, 1.0, 1.0).is_kept());
        assert!(!judged(16_100, 8, 1.0, 1.0).is_kept());
        assert!(judged(31_900, 8, 2.0, 1.0).is_kept());
    }

    #[test]
    fn nobody_measures_again_what_is_kept() {
        let took = Duration::from_secs(1);
        let (verdict, failure) = PROMISE.judge(took, 1, 1.0, || Err(anyhow!("measured")));
        assert!(verdict.is_kept() && failure.is_none());
    }

    #[test]
    fn a_node_that_cannot_be_measured_any_more_excuses_nothing() {
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
