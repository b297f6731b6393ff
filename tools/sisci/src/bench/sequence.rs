// SPDX-License-Identifier: GPL-2.0

//! `sequence`: the cost of a call of `SCICheckSequence()` beyond an empty loop.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use plots::results::NO_SIZE;

use super::report;
use super::test::Bench;
use super::test::Test;
use crate::api::RemoteSegment;
use crate::api::Sequence;
use crate::error::Error;
use crate::error::Result;
use crate::ffi;

/// Number of calls between two reads of the clock.
const CALLS: u32 = 1000;

/// The test of sequences.
pub struct Checks(Sequence);

impl Checks {
    /// Connects to the server's segment.
    pub fn new(bench: &Bench) -> Result<Self> {
        let segment = RemoteSegment::connect(&bench.sisci, bench.node, bench.id, 0)?;
        let map = Arc::new(segment.map(4096)?);
        Ok(Self(map.sequence()?))
    }
}

/// Returns the nanoseconds of a call. The best of many measurements counts, as interruptions are no
/// cost of the call.
fn each(bench: &Bench, mut call: impl FnMut() -> bool) -> Result<f64> {
    let begun = Instant::now();
    let mut best = f64::MAX;
    while begun.elapsed() < bench.time {
        let mut good = true;
        let started = Instant::now();
        for _ in 0..CALLS {
            good &= black_box(call());
        }
        let took = started.elapsed().as_nanos() as f64 / f64::from(CALLS);
        if !good {
            return Err(Error::Refused(
                "the link has failed during the test: run it again".into(),
            ));
        }
        best = best.min(took);
    }
    Ok(best)
}

impl Test for Checks {
    fn round(&mut self, bench: &mut Bench) -> Result<()> {
        let empty = each(bench, || true)?;
        for (line, flags) in [(report::CHECK, ffi::NO_FLUSH), (report::CHECK_ARRIVED, 0)] {
            let value = each(bench, || self.0.check(flags))?;
            let over = (value - empty).max(0.0);
            bench.results.add(report::SEQUENCE, line, NO_SIZE, over);
        }
        Ok(())
    }
}
