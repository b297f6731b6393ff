// SPDX-License-Identifier: GPL-2.0

//! What becomes of memory that somebody outside was told of, when its user lets go of it.
//!
//! Mostly it is given to others. If nothing keeps a lost peer from writing there, it must not be: then its fate is
//! sealed, and who lets go of it, whenever that is, leaks it.

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

/// The fate of all that one peer was told of.
pub(crate) struct Fate(Atomic<bool>);

impl Fate {
    /// It is given to others. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self(Atomic::new(false)), GFP_KERNEL)?)
    }

    /// What is dropped from now on is leaked.
    pub(crate) fn seal(&self) {
        self.0.store(true, Release);
    }

    /// Whether it is to be leaked.
    pub(crate) fn is_sealed(&self) -> bool {
        self.0.load(Acquire)
    }
}

/// Shared pages, which are let go when this is dropped, unless their fate is sealed.
pub(crate) struct Fated<T> {
    value: Arc<T>,
    fate: Option<Arc<Fate>>,
}

impl<T> Fated<T> {
    /// Without a fate they are let go.
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
