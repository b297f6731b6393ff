// SPDX-License-Identifier: GPL-2.0

//! Calls of the kernel that need no type of their own.

use crate::logic::ports::PortTable;
use kernel::{
    bindings,
    prelude::*, //
};
use pin_init::{
    init_zeroed,
    Zeroable, //
};

/// A number that nobody can guess.
pub(crate) fn random() -> u64 {
    // SAFETY: No preconditions.
    unsafe { bindings::get_random_u64() }
}

// SAFETY: It consists of integers, and says itself that all bytes zero is an empty one.
unsafe impl Zeroable for PortTable {}

/// A boxed object with all bytes zero, made in place: a large value that is made first and boxed afterwards
/// would go over the stack.
pub(crate) fn zeroed_box<T: Zeroable>() -> Result<KBox<T>> {
    KBox::init(init_zeroed::<T>(), GFP_KERNEL)
}
