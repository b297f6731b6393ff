// SPDX-License-Identifier: GPL-2.0

//! Things that several have together, by a key: made for the first, gone with the last.
//!
//! The table itself keeps none of them. One that the last has let go of is not found any more, and may
//! still be going for a moment: who needs what it has taken waits for that.
//!
//! Lock: `entries` is a spinlock, as the control work takes it; things are made and dropped without it.

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

/// See the head of this file.
#[pin_data]
pub(crate) struct SharedTable<K, T: ?Sized> {
    #[pin]
    entries: SpinLock<RBTree<K, Entry<T>>>,
    /// How many things are not found any more, and not gone yet.
    going: Atomic<usize>,
    /// Woken when one of those has gone.
    #[pin]
    gone: WaitQueue,
}

struct Entry<T: ?Sized> {
    /// How many [`Share`]s there are of it.
    users: usize,
    thing: Arc<T>,
}

/// What one has of a thing.
pub(crate) struct Share<K: Ord + Unpin, T: ?Sized> {
    key: K,
    /// Dropped by the share itself, before the table hears of it.
    thing: ManuallyDrop<Arc<T>>,
    table: Arc<SharedTable<K, T>>,
}

impl<K: Ord + Copy + Unpin, T: ?Sized> SharedTable<K, T> {
    /// Nothing is shared yet. May sleep.
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

    /// Waits until the things have gone that the last has let go of by now. Interruptible.
    pub(crate) fn wait_for_gone(&self) -> Result {
        self.gone
            .wait(|| (self.going.load(Acquire) == 0).then_some(()))
    }

    /// Joins those who have it; none if nobody does. May sleep.
    pub(crate) fn join(self: &Arc<Self>, key: K) -> Option<Share<K, T>> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(&key)?;
        entry.users += 1;
        Some(self.share_of(key, entry.thing.clone()))
    }

    /// Joins those who have it, or adds this one, which is dropped otherwise. May sleep.
    pub(crate) fn join_or_add(self: &Arc<Self>, key: K, thing: Arc<T>) -> Result<Share<K, T>> {
        let entry = Entry {
            users: 1,
            thing: thing.clone(),
        };
        // Before the lock, which all processes need: who pays may have to wait.
        let node = RBTreeNode::new(key, entry, GFP_KERNEL_ACCOUNT)?;
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(&key) {
            entry.users += 1;
            // The other thing is dropped after the lock, which was taken later.
            return Ok(self.share_of(key, entry.thing.clone()));
        }
        entries.insert(node);
        Ok(self.share_of(key, thing))
    }
}

impl<K: Ord + Copy + Unpin, T> SharedTable<K, T> {
    /// Joins those who have it, or makes it. Two that come at the same time may both make it: then one
    /// of the two is dropped, and both have the other. May sleep.
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
    /// Finds the first thing that is `wanted`. May sleep.
    pub(crate) fn find(&self, wanted: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.iter().find(|thing| wanted(thing))
    }

    /// Walks over the things, by their keys and without the lock: what comes and goes meanwhile may be seen or not,
    /// all else is seen once. May sleep.
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
                    // Under the lock: who finds it no more finds that it is going.
                    self.table.going.fetch_add(1, Relaxed);
                    entries.remove_node(&self.key)
                }
                _ => None,
            }
        };
        let is_last = last.is_some();
        drop(last);
        // SAFETY: Nobody uses it any more.
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

    /// How many there are of a key.
    fn users<T>(table: &SharedTable<u32, T>, key: u32) -> usize {
        let entries = table.entries.lock();
        entries.get(&key).map_or(0, |entry| entry.users)
    }

    #[test]
    fn it_is_made_once_and_gone_with_the_last() -> Result {
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

    /// Has to go while it can't be found.
    struct Watched(Arc<SharedTable<u32, Watched>>);

    impl Drop for Watched {
        fn drop(&mut self) {
            assert!(self.0.join(1).is_none());
            assert_eq!(self.0.going.load(Relaxed), 1);
        }
    }

    #[test]
    fn what_is_going_can_be_waited_for() -> Result {
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
    fn what_could_not_be_made_is_not_there() -> Result {
        let table = SharedTable::<u32, u64>::new()?;
        let made = table.join_or_make(1, || Err(ENOSPC));
        assert!(matches!(made, Err(error) if error == ENOSPC));
        drop(made);
        assert_eq!(users(&table, 1), 0);
        Ok(())
    }

    #[test]
    fn who_comes_second_gets_what_the_first_has_made() -> Result {
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
