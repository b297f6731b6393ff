// SPDX-License-Identifier: GPL-2.0

//! A table of objects that several users share by a key: created for the first user, dropped with
//! the last.
//!
//! The table itself keeps no object. Once the last user has dropped its share, the object is not
//! found any more, although its destructor may still be running. A caller that needs what the old
//! object has taken waits for its end.
//!
//! Lock: `entries` is a spinlock, since the control work takes it, too. Objects are created and
//! dropped outside of the lock.

use core::{
    mem::ManuallyDrop,
    ops::Deref, //
};

use super::wait::{
    new_wait_queue,
    WaitQueue, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        SpinLock, //
    },
};

/// A table of shared objects.
#[pin_data]
pub(crate) struct SharedTable<K, T: ?Sized> {
    #[pin]
    entries: SpinLock<RBTree<K, Entry<T>>>,
    /// Number of objects that are not found any more but not yet dropped.
    going: Atomic<usize>,
    /// Woken when the drop of an object is complete.
    #[pin]
    gone: WaitQueue,
}

struct Entry<T: ?Sized> {
    /// Number of [`Share`]s of the object.
    users: usize,
    thing: Arc<T>,
}

/// A user's share of an object.
pub(crate) struct Share<K: Ord + Unpin, T: ?Sized> {
    key: K,
    /// Dropped by `drop` before it updates the table.
    thing: ManuallyDrop<Arc<T>>,
    table: Arc<SharedTable<K, T>>,
}

impl<K: Ord + Copy + Unpin, T: ?Sized> SharedTable<K, T> {
    /// Creates an empty table.
    /// Context: may sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                entries <- new_spinlock!(RBTree::new(), "SharedTable::entries"),
                going: Atomic::new(0),
                gone <- new_wait_queue!("scif::SharedTable::gone"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    fn share_of(self: &Arc<Self>, key: K, thing: Arc<T>) -> Share<K, T> {
        Share {
            key,
            thing: ManuallyDrop::new(thing),
            table: self.clone(),
        }
    }

    /// Waits until all objects are dropped whose last share is gone by now. A signal ends the wait
    /// (`ERESTARTSYS`).
    /// Context: may sleep.
    pub(crate) fn wait_for_gone(&self) -> Result {
        self.gone
            .wait(|| (self.going.load(Acquire) == 0).then_some(()))
    }

    /// Returns a share of the object of `key`, if there is one.
    /// Context: may sleep.
    pub(crate) fn join(self: &Arc<Self>, key: K) -> Option<Share<K, T>> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(&key)?;
        entry.users += 1;
        Some(self.share_of(key, entry.thing.clone()))
    }

    /// Returns a share of the object of `key`. If there is none, adds `thing`, which is dropped
    /// otherwise.
    /// Context: may sleep.
    pub(crate) fn join_or_add(self: &Arc<Self>, key: K, thing: Arc<T>) -> Result<Share<K, T>> {
        let entry = Entry {
            users: 1,
            thing: thing.clone(),
        };
        // Allocates before the lock, which all processes need: the payer of the memory may have to
        // wait.
        let node = RBTreeNode::new(key, entry, GFP_KERNEL_ACCOUNT)?;
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(&key) {
            entry.users += 1;
            // `thing` is dropped after the lock, since the guard was declared later.
            return Ok(self.share_of(key, entry.thing.clone()));
        }
        entries.insert(node);
        Ok(self.share_of(key, thing))
    }
}

impl<K: Ord + Copy + Unpin, T> SharedTable<K, T> {
    /// Returns a share of the object of `key`, which is created if there is none.
    ///
    /// Two callers may both create it at the same time. Then one object is dropped, and both
    /// callers share the other.
    /// Context: may sleep.
    pub(crate) fn join_or_make(
        self: &Arc<Self>,
        key: K,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Share<K, T>> {
        match self.join(key) {
            Some(share) => Ok(share),
            None => self.join_or_add(key, Arc::new(make()?, GFP_KERNEL_ACCOUNT)?),
        }
    }
}

impl<T: ?Sized> SharedTable<usize, T> {
    /// Finds the first object for which `wanted` is true.
    /// Context: may sleep.
    pub(crate) fn find(&self, wanted: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.iter().find(|thing| wanted(thing))
    }

    /// Iterates over the objects by their keys, without the lock between them. An object that is
    /// added or removed meanwhile may be missed; each other object is returned once.
    /// Context: may sleep.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Arc<T>> + '_ {
        let mut next = 0;
        core::iter::from_fn(move || {
            let entries = self.entries.lock();
            let cursor = entries.cursor_lower_bound(&next)?;
            let (key, entry) = cursor.current();
            next = key + 1;
            Some(entry.thing.clone())
        })
    }
}

impl<K: Ord + Unpin, T: ?Sized> Deref for Share<K, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.thing
    }
}

impl<K: Ord + Unpin, T: ?Sized> Drop for Share<K, T> {
    fn drop(&mut self) {
        let last = {
            let mut entries = self.table.entries.lock();
            let users = entries.get_mut(&self.key).map(|entry| {
                entry.users -= 1;
                entry.users
            });
            match users {
                Some(0) => {
                    // Counts under the lock: a caller that does not find the object finds that it
                    // is going.
                    self.table.going.fetch_add(1, Relaxed);
                    entries.remove_node(&self.key)
                }
                _ => None,
            }
        };
        let is_last = last.is_some();
        drop(last);
        // SAFETY: `drop` runs once, and the object is not used after this.
        unsafe { ManuallyDrop::drop(&mut self.thing) };
        if is_last {
            self.table.going.fetch_sub(1, Release);
            self.table.gone.wake_all();
        }
    }
}

#[kunit_tests(scif_sys_shared_table)]
mod tests {
    use super::*;

    /// Returns the number of shares of a key.
    fn users<T>(table: &SharedTable<u32, T>, key: u32) -> usize {
        let entries = table.entries.lock();
        entries.get(&key).map_or(0, |entry| entry.users)
    }

    #[test]
    fn entry_is_made_once_and_removed_with_its_last_user() -> Result {
        let table = SharedTable::<u32, u64>::new()?;
        assert!(table.join(1).is_none());
        let first = table.join_or_make(1, || Ok(10))?;
        let second = table.join_or_make(1, || Err(ENOMEM))?;
        let other = table.join_or_make(2, || Ok(20))?;
        assert_eq!((*first, *second, *other), (10, 10, 20));
        assert_eq!((users(&table, 1), users(&table, 2)), (2, 1));
        drop(first);
        let third = table.join(1).ok_or(ENOENT)?;
        assert_eq!(*third, 10);
        drop((second, third));
        assert_eq!((users(&table, 1), users(&table, 2)), (0, 1));
        let again = table.join_or_make(1, || Ok(11))?;
        assert_eq!(*again, 11);
        Ok(())
    }

    /// A value that is dropped only while it can't be found.
    struct Watched(Arc<SharedTable<u32, Watched>>);

    impl Drop for Watched {
        fn drop(&mut self) {
            assert!(self.0.join(1).is_none());
            assert_eq!(self.0.going.load(Relaxed), 1);
        }
    }

    #[test]
    fn wait_for_gone_waits_for_dropped_entries() -> Result {
        let table = SharedTable::<u32, Watched>::new()?;
        table.wait_for_gone()?;
        let first = table.join_or_make(1, || Ok(Watched(table.clone())))?;
        let second = table.join_or_make(1, || Err(ENOMEM))?;
        drop(first);
        assert_eq!(table.going.load(Relaxed), 0);
        drop(second);
        assert_eq!(table.going.load(Relaxed), 0);
        table.wait_for_gone()
    }

    #[test]
    fn failed_entry_is_not_in_the_table() -> Result {
        let table = SharedTable::<u32, u64>::new()?;
        let made = table.join_or_make(1, || Err(ENOSPC));
        assert!(matches!(made, Err(error) if error == ENOSPC));
        drop(made);
        assert_eq!(users(&table, 1), 0);
        Ok(())
    }

    #[test]
    fn concurrent_makers_share_the_first_entry() -> Result {
        let table = SharedTable::<u32, u64>::new()?;
        let mut faster = None;
        let slower = table.join_or_make(1, || {
            faster = Some(table.join_or_make(1, || Ok(1))?);
            Ok(2)
        })?;
        assert_eq!((*slower, users(&table, 1)), (1, 2));
        drop((faster, slower));
        assert_eq!(users(&table, 1), 0);
        Ok(())
    }
}
