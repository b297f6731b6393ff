// SPDX-License-Identifier: GPL-2.0

//! A queue of values with a fixed number of places.

use kernel::prelude::*;

/// A queue of values with a fixed number of places.
pub(super) struct Fifo<T> {
    places: KVVec<Option<T>>,
    first: usize,
    len: usize,
}

impl<T> Fifo<T> {
    /// Creates an empty queue for at most `most` values.
    /// Context: may sleep.
    pub(super) fn new(most: usize) -> Result<Self> {
        let mut places = KVVec::with_capacity(most, GFP_KERNEL)?;
        for _ in 0..most {
            let _ = places.push_within_capacity(None);
        }
        Ok(Self {
            places,
            first: 0,
            len: 0,
        })
    }

    /// Returns the number of values.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn index(&self, place: usize) -> usize {
        // Both are at most as large as the number of places, and a division takes long.
        let index = self.first + place;
        index.checked_sub(self.places.len()).unwrap_or(index)
    }

    /// Adds a value behind all others. Drops it if there is no place.
    pub(super) fn push(&mut self, value: T) {
        if self.len < self.places.len() {
            let index = self.index(self.len);
            if let Some(place) = self.places.get_mut(index) {
                *place = Some(value);
                self.len += 1;
            }
        }
    }

    /// Removes the first value.
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let value = self.places.get_mut(self.first)?.take();
        self.first = self.index(1);
        self.len -= 1;
        value
    }

    /// Returns the first value.
    pub(super) fn first_mut(&mut self) -> Option<&mut T> {
        self.places.get_mut(self.first)?.as_mut()
    }

    /// Returns the last value.
    pub(super) fn last_mut(&mut self) -> Option<&mut T> {
        let index = self.index(self.len.checked_sub(1)?);
        self.places.get_mut(index)?.as_mut()
    }
}
