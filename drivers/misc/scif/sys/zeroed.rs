// SPDX-License-Identifier: GPL-2.0

//! Large objects for which zeroed memory will do.
//!
//! Rust has no warning for stack frames that are too large, and a value that is made first and
//! boxed afterwards goes over the stack.

use kernel::prelude::*;
use pin_init::{
    init_zeroed,
    Zeroable, //
};

use crate::logic::ports::PortTable;

// SAFETY: It consists of integers, and says itself that all bytes zero is an empty one.
unsafe impl Zeroable for PortTable {}

/// A boxed object with all bytes zero, made in place.
pub(crate) fn boxed<T: Zeroable>() -> Result<KBox<T>> {
    KBox::init(init_zeroed::<T>(), GFP_KERNEL)
}
