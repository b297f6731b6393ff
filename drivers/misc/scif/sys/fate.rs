// SPDX-License-Identifier: GPL-2.0

//! The fate of memory whose address a peer was told, when its owner releases it.
//!
//! Normally the memory is freed. If nothing can keep a lost peer from writing to it, the memory
//! must not be used for anything else. Its fate is sealed then, and its owner leaks it, however
//! late it releases it.

use core::{
    mem,
    ops::Deref, //
};

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    },
};

/// The common fate of all memory that one peer was told of: freed or leaked.
pub(crate) struct Fate(Atomic<bool>);

impl Fate {
    /// Creates a fate that lets memory be freed.
    /// Context: may sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self(Atomic::new(false)), GFP_KERNEL)?)
    }

    /// Makes owners leak all memory with this fate that they drop from now on.
    pub(crate) fn seal(&self) {
        self.0.store(true, Release);
    }

    /// Returns whether memory with this fate is to be leaked.
    pub(crate) fn is_sealed(&self) -> bool {
        self.0.load(Acquire)
    }
}

/// Shared pages that are released when this is dropped, unless their fate is sealed.
pub(crate) struct Fated<T> {
    value: Arc<T>,
    fate: Option<Arc<Fate>>,
}

impl<T> Fated<T> {
    /// Wraps `value`. Without a fate, it is always released.
    pub(crate) fn new(value: Arc<T>, fate: Option<Arc<Fate>>) -> Self {
        Self { value, fate }
    }
}

impl<T> Deref for Fated<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for Fated<T> {
    fn drop(&mut self) {
        if self.fate.as_ref().is_some_and(|fate| fate.is_sealed()) {
            mem::forget(self.value.clone());
        }
    }
}
