// SPDX-License-Identifier: GPL-2.0

//! The interface of a test, and the resources that it measures with.

use std::sync::Arc;
use std::time::Duration;

use plots::results::Results;
use scif::command::bench::measure::Measured;
use scif::command::bench::measure::Plan;
use scif::command::bench::measure::measure;
use scif::command::bench::work::Work;

use super::reference::Reference;
use crate::api::Sisci;
use crate::error::Result;

/// The resources of tests.
pub struct Bench {
    /// The library.
    pub sisci: Arc<Sisci>,
    /// The server's node.
    pub node: u32,
    /// The number of the server.
    pub id: u32,
    /// The sizes to measure.
    pub sizes: Vec<usize>,
    /// The time for each measurement.
    pub time: Duration,
    /// The calls of SCIF, if they are measured.
    pub reference: Option<Reference>,
    /// The results so far.
    pub results: Results,
}

impl Bench {
    /// Measures a work, and takes the times of this many parts of each step.
    fn measure<W: Work>(&self, work: W, parts: usize) -> Result<Measured> {
        let plan = Plan {
            time: self.time,
            warm_up: self.time / 5,
            iterations: None,
            parts,
        };
        Ok(measure(&mut [vec![work]], &plan)?)
    }

    /// Measures the calls of SCIF, if that is wanted.
    pub fn reference(
        &mut self,
        measure: impl FnOnce(&mut Self, &mut Reference) -> Result<()>,
    ) -> Result<()> {
        let Some(mut reference) = self.reference.take() else {
            return Ok(());
        };
        let done = measure(self, &mut reference);
        self.reference = Some(reference);
        done
    }

    /// Enters the throughput of steps that move `size` bytes.
    pub fn throughput<W: Work>(
        &mut self,
        figure: &str,
        line: &str,
        size: usize,
        work: W,
    ) -> Result<()> {
        let measured = self.measure(work, 0)?;
        let bytes = (measured.steps * size as u64) as f64;
        let value = bytes / measured.elapsed.as_secs_f64();
        self.results.add(figure, line, size as u64, value);
        Ok(())
    }

    /// Enters the mean time of a step, in microseconds.
    pub fn mean<W: Work>(&mut self, figure: &str, line: &str, size: usize, work: W) -> Result<()> {
        let measured = self.measure(work, 0)?;
        let value = measured.elapsed.as_secs_f64() * 1e6 / measured.steps.max(1) as f64;
        self.results.add(figure, line, size as u64, value);
        Ok(())
    }

    /// Enters half the median time of a step, in microseconds.
    pub fn half_trip<W: Work>(
        &mut self,
        figure: &str,
        line: &str,
        size: usize,
        work: W,
    ) -> Result<()> {
        let measured = self.measure(work, 1)?;
        let mut times = measured.times.into_parts().pop().unwrap_or_default();
        times.sort_unstable();
        let median = scif::format::percentile(&times, 50.0);
        let value = median.as_secs_f64() * 1e6 / 2.0;
        self.results.add(figure, line, size as u64, value);
        Ok(())
    }
}

/// One round of a test.
pub trait Test {
    /// Runs the round, and enters the results.
    fn round(&mut self, bench: &mut Bench) -> Result<()>;
}
