// SPDX-License-Identifier: GPL-2.0

//! A list that seldom has more than one element, which then takes no memory of its own: the windows that
//! a transfer lies in.

use kernel::prelude::*;

/// See the head of this file.
pub(crate) struct Few<T> {
    // Nothing lies in `rest` as long as there is no `first`.
    first: Option<T>,
    rest: KVVec<T>,
}

impl<T> Few<T> {
    /// Without elements.
    pub(crate) const fn new() -> Self {
        Self {
            first: None,
            rest: KVVec::new(),
        }
    }

    /// With one element.
    pub(crate) const fn one(element: T) -> Self {
        Self {
            first: Some(element),
            rest: KVVec::new(),
        }
    }

    /// Makes room for one more, so that it can be appended without an error. May sleep.
    pub(crate) fn reserve_one(&mut self) -> Result {
        if self.first.is_some() {
            // Nobody pays, for a moment only: locks are held that others need.
            self.rest.reserve(1, GFP_KERNEL)?;
        }
        Ok(())
    }

    /// Appends an element. May sleep.
    pub(crate) fn push(&mut self, element: T) -> Result {
        match self.first {
            None => self.first = Some(element),
            // See `reserve_one`.
            Some(_) => self.rest.push(element, GFP_KERNEL)?,
        }
        Ok(())
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        Iterator::chain(self.first.iter(), self.rest.iter())
    }

    /// As a list for many. May sleep.
    pub(crate) fn into_list(self) -> Result<KVVec<T>> {
        let Some(first) = self.first else {
            return Ok(self.rest);
        };
        let mut list = KVVec::with_capacity(1 + self.rest.len(), GFP_KERNEL)?;
        for element in Iterator::chain(core::iter::once(first), self.rest) {
            list.push(element, GFP_KERNEL)?;
        }
        Ok(list)
    }

    /// The first one; the others are dropped.
    pub(crate) fn into_first(self) -> Option<T> {
        self.first
    }
}
