// SPDX-License-Identifier: GPL-2.0

//! What becomes of something that ends once: nothing yet, success, or the first error of several.

use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    },
};

/// See the head of this file. All functions: any context.
pub(crate) struct Outcome {
    /// An errno (negative), or 0.
    first_error: Atomic<i32>,
    has_ended: Atomic<bool>,
}

impl Outcome {
    /// Of something that runs, and has not failed.
    pub(crate) const fn new() -> Self {
        Self {
            first_error: Atomic::new(0),
            has_ended: Atomic::new(false),
        }
    }

    /// It fails, maybe once more: the first error is the one that is reported.
    pub(crate) fn fail(&self, error: Error) {
        let _ = self.first_error.cmpxchg(0, error.to_errno(), Relaxed);
    }

    /// How it goes so far, which does not say that it has ended.
    pub(crate) fn so_far(&self) -> Result {
        match self.first_error.load(Relaxed) {
            0 => Ok(()),
            errno => Err(Error::from_errno(errno)),
        }
    }

    /// It has ended: nobody says any more that it fails. What was written before is seen by whoever sees the
    /// end.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Release);
    }

    /// As [`Self::end`], of what has not failed before.
    pub(crate) fn end_with(&self, result: Result) {
        if let Err(error) = result {
            self.fail(error);
        }
        self.end();
    }

    /// None while it runs.
    pub(crate) fn result(&self) -> Option<Result> {
        self.has_ended.load(Acquire).then(|| self.so_far())
    }
}

#[kunit_tests(scif_sync_outcome)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_the_result() {
        let outcome = Outcome::new();
        assert!(outcome.result().is_none() && outcome.so_far().is_ok());
        outcome.fail(EIO);
        outcome.fail(ENODEV);
        assert!(outcome.result().is_none() && outcome.so_far() == Err(EIO));
        outcome.end();
        assert!(outcome.result() == Some(Err(EIO)));
    }

    #[test]
    fn without_an_error_it_succeeds() {
        let outcome = Outcome::new();
        outcome.end();
        assert!(outcome.result() == Some(Ok(())));
    }
}
