// SPDX-License-Identifier: GPL-2.0

//! Calls of the kernel that need no type of their own.

use kernel::bindings;

/// A number that nobody can guess.
pub(crate) fn random() -> u64 {
    // SAFETY: No preconditions.
    unsafe { bindings::get_random_u64() }
}
