// SPDX-License-Identifier: GPL-2.0

//! `sequence`: what a call of `SCICheckSequence()` costs, over an empty loop.

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

/// Calls between two looks at the clock.
const CALLS: u32 = 1000;

/// See the head of this file.
pub struct Checks(Sequence);

impl Checks {
    /// Connects.
    pub fn new(bench: &Bench) -> Result<Self> {
        let segment = RemoteSegment::connect(&bench.sisci, bench.node, bench.id, 0)?;
        let map = Arc::new(segment.map(4096)?);
        Ok(Self(map.sequence()?))
    }
}

/// Nanoseconds of a call; the best of many, as anything that interrupts it is none of its cost.
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
            return Err(Error::Refused("the link went during the test".into()));
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
