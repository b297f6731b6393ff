// SPDX-License-Identifier: GPL-2.0

//! Something that there is once, for functions that other modules call and that are given nothing.

use core::marker::PhantomData;

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

/// Something that functions which others call can find, as long as there is a [`Publication`] of it.
pub(crate) struct Published<T> {
    /// The address in an `Arc<T>`, or 0.
    address: Atomic<usize>,
    _type: PhantomData<Arc<T>>,
}

// SAFETY: It is as an `Arc`.
unsafe impl<T: Send + Sync> Sync for Published<T> {}

impl<T: Send + Sync + 'static> Published<T> {
    pub(crate) const fn new() -> Self {
        Self {
            address: Atomic::new(0),
            _type: PhantomData,
        }
    }

    /// Has `value` found from now on.
    pub(crate) fn publish(&'static self, value: Arc<T>) -> Publication<T> {
        let raw = Arc::into_raw(value);
        self.address.store(raw.expose_provenance(), Release);
        Publication { place: self }
    }

    /// Looks for it: `ENODEV` before the module has been initialised. Whoever calls was called by another module, which
    /// keeps this one loaded by using its symbols.
    pub(crate) fn get(&'static self) -> Result<Arc<T>> {
        let address = self.address.load(Acquire);
        if address == 0 {
            return Err(ENODEV);
        }
        // SAFETY: It was published, and stays so while the module is loaded.
        let found = unsafe {
            ArcBorrow::<'_, T>::from_raw(core::ptr::with_exposed_provenance::<T>(address))
        };
        Ok(found.into())
    }
}

/// Dropped when nobody can call any more: others that use this module's symbols keep it loaded.
pub(crate) struct Publication<T: Send + Sync + 'static> {
    place: &'static Published<T>,
}

impl<T: Send + Sync + 'static> Drop for Publication<T> {
    fn drop(&mut self) {
        let address = self.place.address.xchg(0, Full);
        if address != 0 {
            // SAFETY: `publish` has put it there, and nobody else takes it out.
            drop(unsafe { Arc::from_raw(core::ptr::with_exposed_provenance::<T>(address)) });
        }
    }
}
