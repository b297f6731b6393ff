// SPDX-License-Identifier: GPL-2.0

//! Calls of the kernel that need no type of their own.

use crate::logic::ports::PortTable;
use kernel::bindings;
use pin_init::Zeroable;

/// A number that nobody can guess.
pub(crate) fn random() -> u64 {
    // SAFETY: No preconditions.
    unsafe { bindings::get_random_u64() }
}

// SAFETY: It consists of integers, and says itself that all bytes zero is an empty one.
unsafe impl Zeroable for PortTable {}
