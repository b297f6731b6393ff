// SPDX-License-Identifier: GPL-2.0

//! Values that several users share, and that stay once they are made.

use crate::sys::current;
use kernel::{
    prelude::*,
    sync::SetOnce, //
};

/// Returns the value, and makes it if there is none.
///
/// Two callers at the same time may both make it. Then one of the values is dropped, and both
/// callers get the other.
/// Context: may sleep.
pub(crate) fn get_or_make<T>(once: &SetOnce<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if once.as_ref().is_none() {
        once.populate(make()?);
    }
    loop {
        match once.as_ref() {
            Some(thing) => return Ok(thing),
            // Another thread is about to store its value.
            None => current::reschedule(),
        }
    }
}

#[kunit_tests(scif_sync_shared)]
mod tests {
    use super::*;

    #[test]
    fn get_or_make_keeps_the_first_value() -> Result {
        let once = SetOnce::new();
        assert_eq!(get_or_make(&once, || Err(ENOMEM)), Err(ENOMEM));
        let made = get_or_make(&once, || {
            // Another caller is faster.
            assert!(once.populate(1));
            Ok(2)
        });
        assert_eq!(made, Ok(&1));
        assert_eq!(get_or_make(&once, || Err(ENOMEM)), Ok(&1));
        Ok(())
    }
}
