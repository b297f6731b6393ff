// SPDX-License-Identifier: GPL-2.0

//! Calls of the kernel that need no type of their own, and a helper for other wrappers.

use kernel::{
    bindings,
    fmt, //
};

/// A value that is displayed by calling a function.
pub(super) struct Shown<F>(pub(super) F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Shown<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}

/// Returns a random number that no attacker can guess.
pub(crate) fn random() -> u64 {
    // SAFETY: No preconditions.
    unsafe { bindings::get_random_u64() }
}
