// SPDX-License-Identifier: GPL-2.0

//! Global objects for functions that get no context: those that other modules call, and `open` of a
//! device.

use core::ptr;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Release, //
        },
        Arc,
        ArcBorrow, //
    },
};

/// A pointer to an object that such functions can find while its [`Publication`] exists.
///
/// # Invariants
///
/// The pointer is null, or from [`Arc::into_raw`].
pub(crate) struct Published<T>(Atomic<*mut T>);

impl<T: Send + Sync + 'static> Published<T> {
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(ptr::null_mut()))
    }

    /// Makes [`Self::get`] return `value` from now on.
    pub(crate) fn publish(&'static self, value: Arc<T>) -> Publication<T> {
        self.0.store(Arc::into_raw(value).cast_mut(), Release);
        Publication(self)
    }

    /// Returns the object, or `ENODEV` before the module has been initialised.
    ///
    /// The caller keeps this module loaded: another module by using its symbols, a file by its
    /// operations.
    pub(crate) fn get(&'static self) -> Result<Arc<T>> {
        let value = self.0.load(Acquire);
        if value.is_null() {
            return Err(ENODEV);
        }
        // SAFETY: The object was published, and stays so while the module is loaded.
        Ok(unsafe { ArcBorrow::from_raw(value) }.into())
    }
}

/// A handle of a published object. Drop it when no caller can exist any more: each possible caller
/// keeps this module loaded.
pub(crate) struct Publication<T: Send + Sync + 'static>(&'static Published<T>);

impl<T: Send + Sync + 'static> Drop for Publication<T> {
    fn drop(&mut self) {
        let value = self.0 .0.xchg(ptr::null_mut(), Full);
        if !value.is_null() {
            // SAFETY: `publish` has stored the pointer, and only this takes it out.
            drop(unsafe { Arc::from_raw(value) });
        }
    }
}
