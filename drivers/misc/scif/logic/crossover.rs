// SPDX-License-Identifier: GPL-2.0

//! Up to which size the processor copies faster than an engine.
//!
//! The processor begins at once and an engine takes its time to begin and to say that it has ended;
//! the larger the copy, the less that counts. From some sizes that were measured follows the size
//! where the two are even. That is where the engine takes a little longer still: who copies much wants his
//! processor for something else, and where both move bytes at the same rate, they would never meet.

/// How long a copy of one size took, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Bytes.
    pub(crate) len: u64,
    pub(crate) by_processor: u64,
    pub(crate) by_engine: u64,
}

/// The part of the processor's time that the engine may take more.
const WORTH: u64 = 16;

impl Sample {
    /// What the engine takes longer by than it may; negative if it is faster.
    fn lead(&self) -> i64 {
        let time = |nanoseconds| i64::try_from(nanoseconds).unwrap_or(i64::MAX);
        let allowed = self.by_processor.saturating_add(self.by_processor / WORTH);
        time(self.by_engine).saturating_sub(time(allowed))
    }

    /// Whether the engine is no slower than it may be.
    pub(crate) fn engine_wins(&self) -> bool {
        self.lead() <= 0
    }
}

/// Where a straight line through the leads at two sizes comes to zero, the first being positive, the second
/// not.
fn even_at(first: &Sample, second: &Sample) -> Option<u64> {
    let fall = first.lead().checked_sub(second.lead())?;
    let step = i64::try_from(second.len.checked_sub(first.len)?).ok()?;
    let beyond = first.lead().checked_mul(step)?.checked_div(fall)?;
    first.len.checked_add(u64::try_from(beyond).ok()?)
}

/// The size in bytes up to which the processor is faster, as far as these samples tell, which are in
/// the order of their sizes. 0 if it never is, or if there are none. No more than was measured: what lies beyond
/// was not seen, and who copies much wants his processor for something else.
pub(crate) fn limit(samples: &[Sample]) -> u64 {
    let mut last: Option<&Sample> = None;
    for sample in samples {
        if sample.engine_wins() {
            // From here on the engine is.
            return last.and_then(|last| even_at(last, sample)).unwrap_or(0);
        }
        last = Some(sample);
    }
    last.map_or(0, |last| last.len)
}
