// SPDX-License-Identifier: GPL-2.0

//! Lists of things that there are, off which each goes when it ends.
//!
//! A list keeps its things alive, in the order in which they came. It is walked without its lock: what
//! comes and goes meanwhile may be seen or not, all else is seen once.
//!
//! Lock: `entries` is a leaf among the mutexes.

use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex, //
    },
};

struct Entries<T: ?Sized> {
    /// By numbers that are given out once.
    tree: RBTree<u64, Arc<T>>,
    last: u64,
}

/// See the head of this file.
#[pin_data]
pub(crate) struct List<T: ?Sized> {
    #[pin]
    entries: Mutex<Entries<T>>,
}

/// Keeps a thing in its list until this is dropped.
pub(crate) struct Listed<T: ?Sized> {
    list: Arc<List<T>>,
    number: u64,
}

impl<T: ?Sized> List<T> {
    /// Makes a list without things. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let entries = Entries {
            tree: RBTree::new(),
            last: 0,
        };
        let list = pin_init!(Self { entries <- new_mutex!(entries, "List::entries") });
        Arc::pin_init(list, GFP_KERNEL)
    }

    /// Puts a thing into the list. May sleep.
    pub(crate) fn add(self: &Arc<Self>, thing: &Arc<T>) -> Result<Listed<T>> {
        // Before the lock, which all processes need: who pays may have to wait.
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut entries = self.entries.lock();
        entries.last += 1;
        let number = entries.last;
        entries.tree.insert(node.into_node(number, thing.clone()));
        Ok(Listed {
            list: self.clone(),
            number,
        })
    }

    /// Finds the first thing that is `wanted`, which is asked with the lock held. May sleep.
    pub(crate) fn find(&self, wanted: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let entries = self.entries.lock();
        let found = entries.tree.values().find(|thing| wanted(thing));
        found.cloned()
    }

    /// Walks over the things, without the lock. May sleep.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Arc<T>> + '_ {
        let mut next = 0;
        core::iter::from_fn(move || {
            let entries = self.entries.lock();
            let cursor = entries.tree.cursor_lower_bound(&next)?;
            let (number, thing) = cursor.current();
            next = number + 1;
            Some(thing.clone())
        })
    }
}

impl<T: ?Sized> Drop for Listed<T> {
    fn drop(&mut self) {
        // Dropped without the lock: it may be the last reference.
        let _removed = self.list.entries.lock().tree.remove_node(&self.number);
    }
}

#[kunit_tests(scif_sync_list)]
mod tests {
    use super::*;

    #[test]
    fn things_are_seen_in_order_until_they_go() -> Result {
        let list = List::<u32>::new()?;
        let add = |number| list.add(&Arc::new(number, GFP_KERNEL)?);
        let (first, second) = (add(1)?, add(2)?);
        assert!(list.iter().map(|thing| *thing).eq([1, 2]));
        assert!(list.find(|thing| *thing == 2).is_some());
        let mut walk = list.iter();
        assert!(walk.next().is_some_and(|thing| *thing == 1));
        // What goes and comes meanwhile.
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
