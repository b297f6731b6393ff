// SPDX-License-Identifier: GPL-2.0

//! Calls of the kernel that need no type of their own, and what others are made with.

use kernel::{
    bindings,
    fmt, //
};

/// What a function shows, for those who take a value.
pub(super) struct Shown<F>(pub(super) F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Shown<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}

/// A number that nobody can guess.
pub(crate) fn random() -> u64 {
    // SAFETY: No preconditions.
    unsafe { bindings::get_random_u64() }
}
