// SPDX-License-Identifier: GPL-2.0
//! A promise and what became of it, as figures: what those who judge (`promise`) and those who
//! tell (`summary`) have in common.

use std::fmt;

/// What has to happen within a time.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// What happens: a sentence for the summary.
    pub name: &'static str,
    /// Within how many seconds, on the plain kernel of the reference machine.
    pub seconds: f64,
}

/// A time that was measured for a promise.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// What was promised.
    pub promise: Promise,
    /// How many seconds it took.
    pub took: f64,
    /// How many times as long as on the plain kernel it may take on this one.
    pub slowness: u32,
    /// How many times as long as on the reference machine guest work took.
    pub factor: f64,
}

impl Verdict {
    /// Within how many seconds it had to happen here.
    pub fn limit(&self) -> f64 {
        self.promise.seconds * f64::from(self.slowness) * self.factor
    }

    /// Whether it did.
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
