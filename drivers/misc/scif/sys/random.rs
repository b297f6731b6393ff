// SPDX-License-Identifier: GPL-2.0

//! Random numbers.

use kernel::bindings;

/// A number that nobody can guess.
pub(crate) fn number() -> u64 {
    // SAFETY: No preconditions.
    unsafe { bindings::get_random_u64() }
}
