// SPDX-License-Identifier: GPL-2.0

//! Things that are made when they are needed for the first time, and stay.

use crate::sys::current;
use kernel::{
    prelude::*,
    sync::SetOnce, //
};

/// What is there, which is made if it is not. May sleep.
///
/// Two that come at the same time may both make it: then that of one is dropped, and both have the other.
pub(crate) fn get_or_make<T>(once: &SetOnce<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if once.as_ref().is_none() {
        once.populate(make()?);
    }
    loop {
        match once.as_ref() {
            Some(thing) => return Ok(thing),
            // Another thread is just putting it there.
            None => current::reschedule(),
        }
    }
}
