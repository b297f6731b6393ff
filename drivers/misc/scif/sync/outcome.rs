// SPDX-License-Identifier: GPL-2.0

//! The outcome of an action that ends once: nothing yet, success, or the first error of several.

use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    },
};

/// The outcome of an action that ends once. All functions may be called in any context.
pub(crate) struct Outcome {
    /// The first error, as a negative errno, or 0.
    first_error: Atomic<i32>,
    has_ended: Atomic<bool>,
}

impl Outcome {
    /// Creates the outcome of an action that runs, and has not failed.
    pub(crate) const fn new() -> Self {
        Self {
            first_error: Atomic::new(0),
            has_ended: Atomic::new(false),
        }
    }

    /// Notes an error of the action. Only the first one is reported.
    pub(crate) fn fail(&self, error: Error) {
        let _ = self.first_error.cmpxchg(0, error.to_errno(), Relaxed);
    }

    /// Returns the first error so far. `Ok` does not mean that the action has ended.
    pub(crate) fn so_far(&self) -> Result {
        match self.first_error.load(Relaxed) {
            0 => Ok(()),
            errno => Err(Error::from_errno(errno)),
        }
    }

    /// Marks the action as ended. No error may be noted afterwards. A reader that sees the end also
    /// sees all that was written before.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Release);
    }

    /// Marks an action that has not failed before as ended, with `result`.
    pub(crate) fn end_with(&self, result: Result) {
        if let Err(error) = result {
            self.fail(error);
        }
        self.end();
    }

    /// Returns the result, or `None` while the action runs.
    pub(crate) fn result(&self) -> Option<Result> {
        self.has_ended.load(Acquire).then(|| self.so_far())
    }
}

#[kunit_tests(scif_sync_outcome)]
mod tests {
    use super::*;

    #[test]
    fn first_of_several_errors_is_the_result() {
        let outcome = Outcome::new();
        assert!(outcome.result().is_none() && outcome.so_far().is_ok());
        outcome.fail(EIO);
        outcome.fail(ENODEV);
        assert!(outcome.result().is_none() && outcome.so_far() == Err(EIO));
        outcome.end();
        assert!(outcome.result() == Some(Err(EIO)));
    }

    #[test]
    fn outcome_without_error_is_success() {
        let outcome = Outcome::new();
        outcome.end();
        assert!(outcome.result() == Some(Ok(())));
    }
}
