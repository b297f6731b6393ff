// SPDX-License-Identifier: GPL-2.0

//! Things that several have together and that stay when they have been made.

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

#[kunit_tests(scif_sync_shared)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_first_stays() -> Result {
        let once = SetOnce::new();
        assert_eq!(get_or_make(&once, || Err(ENOMEM)), Err(ENOMEM));
        let made = get_or_make(&once, || {
            // Another one is faster.
            assert!(once.populate(1));
            Ok(2)
        });
        assert_eq!(made, Ok(&1));
        assert_eq!(get_or_make(&once, || Err(ENOMEM)), Ok(&1));
        Ok(())
    }
}
