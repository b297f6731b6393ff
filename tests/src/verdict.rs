// SPDX-License-Identifier: GPL-2.0
//! A promise and its measured time, as figures that both the judge (`promise`) and the report
//! (`summary`) use.

use std::fmt;

/// An event that has to happen within a time.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// The event, as a sentence for the summary.
    pub name: &'static str,
    /// Limit in seconds on the plain kernel of the reference machine.
    pub seconds: f64,
}

/// A time that was measured for a promise.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// The promise.
    pub promise: Promise,
    /// Time that the event took, in seconds.
    pub took: f64,
    /// Factor by which this kernel may be slower than the plain one.
    pub slowness: u32,
    /// Factor by which guest work took longer than on the reference machine.
    pub factor: f64,
}

impl Verdict {
    /// Returns the limit in seconds on this kernel and machine.
    pub fn limit(&self) -> f64 {
        self.promise.seconds * f64::from(self.slowness) * self.factor
    }

    /// Returns whether the event happened within the limit.
    pub fn is_kept(&self) -> bool {
        self.took <= self.limit()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = if self.is_kept() { "kept" } else { "broken" };
        write!(
            f,
            "the promise '{}' is {kept}: it took {:.2} s of {:.2} s ({} s, slowness of the kernel {}, factor of the machine {:.2})",
            self.promise.name,
            self.took,
            self.limit(),
            self.promise.seconds,
            self.slowness,
            self.factor
        )
    }
}
