// SPDX-License-Identifier: GPL-2.0

//! Lists of existing objects, from which each is removed when it ends.
//!
//! A list keeps its objects alive, in the order in which they were added. It is a table of them by
//! numbers that are given out once.

use crate::sys::shared_table::{
    Share,
    SharedTable, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

/// A list of existing objects.
pub(crate) type List<T> = SharedTable<usize, T>;

/// A guard that keeps an object in its list until it is dropped.
pub(crate) type Listed<T> = Share<usize, T>;

/// Number of the next object, for all lists together.
static NUMBERS: Atomic<usize> = Atomic::new(0);

impl<T: ?Sized> List<T> {
    /// Adds an object to the list.
    /// Context: may sleep.
    pub(crate) fn add(self: &Arc<Self>, thing: &Arc<T>) -> Result<Listed<T>> {
        self.join_or_add(NUMBERS.fetch_add(1, Relaxed), thing.clone())
    }
}

#[kunit_tests(scif_sync_list)]
mod tests {
    use super::*;

    #[test]
    fn items_are_iterated_in_order_until_dropped() -> Result {
        let list = List::<u32>::new()?;
        let add = |number| list.add(&Arc::new(number, GFP_KERNEL)?);
        let (first, second) = (add(1)?, add(2)?);
        assert!(list.iter().map(|thing| *thing).eq([1, 2]));
        assert!(list.find(|thing| *thing == 2).is_some());
        let mut walk = list.iter();
        assert!(walk.next().is_some_and(|thing| *thing == 1));
        // One object goes and one comes during the walk.
        drop(second);
        let third = add(3)?;
        assert!(walk.next().is_some_and(|thing| *thing == 3));
        assert!(walk.next().is_none());
        assert!(list.find(|thing| *thing == 2).is_none());
        drop((first, third));
        assert!(list.iter().next().is_none());
        Ok(())
    }
}
