// SPDX-License-Identifier: GPL-2.0

//! What other modules hold, by the address or number that they know it by, and whose it is.
//!
//! Lock: `table` is a leaf. What is taken out is dropped by who takes it, without the lock.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        LockClassKey,
        Mutex, //
    },
};

/// Makes an initialiser of a [`Registry`] with a lock class of its own.
macro_rules! new_registry {
    ($name:literal) => {
        $crate::kernel_api::registry::Registry::new(
            ::kernel::c_str!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(super) use new_registry;

struct Entry<T> {
    /// The module, as an address; 0 for what is built in or nobody's.
    owner: usize,
    value: T,
}

/// See the head of this file.
#[pin_data]
pub(super) struct Registry<T> {
    #[pin]
    table: Mutex<Table<T>>,
}

struct Table<T> {
    entries: RBTree<usize, Entry<T>>,
    next_number: usize,
}

impl<T: Unpin> Registry<T> {
    /// Nothing yet; see [`new_registry`].
    pub(super) fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        let table = Table {
            entries: RBTree::new(),
            next_number: 1,
        };
        pin_init!(Self {
            table <- Mutex::new(table, name, key),
        })
    }

    /// Keeps something under a key that nothing else has. May sleep.
    pub(super) fn add(&self, key: usize, owner: usize, value: T) -> Result {
        let node = RBTreeNode::new(key, Entry { owner, value }, GFP_KERNEL)?;
        let replaced = self.table.lock().entries.insert(node);
        drop(replaced);
        Ok(())
    }

    /// Keeps something under a number of its own, which is not 0. May sleep.
    pub(super) fn number(&self, owner: usize, value: T) -> Result<usize> {
        let number = {
            let mut table = self.table.lock();
            table.next_number += 1;
            table.next_number
        };
        self.add(number, owner, value)?;
        Ok(number)
    }

    /// Takes it out.
    pub(super) fn take(&self, key: usize) -> Option<T> {
        let node = self.table.lock().entries.remove_node(&key);
        Some(node?.to_key_value().1.value)
    }

    /// Takes out all that belong to a module, and has each let go of without the lock. Returns how many
    /// there were.
    pub(super) fn clear_of(&self, owner: usize, mut let_go: impl FnMut(T)) -> usize {
        let mut count = 0;
        while let Some(value) = self.take_of(owner) {
            let_go(value);
            count += 1;
        }
        count
    }

    fn take_of(&self, owner: usize) -> Option<T> {
        let key = {
            let table = self.table.lock();
            let mut entries = table.entries.iter();
            entries.find_map(|(key, entry)| (entry.owner == owner).then_some(*key))?
        };
        self.take(key)
    }

    /// Whose it is, if it is there.
    pub(super) fn owner(&self, key: usize) -> Option<usize> {
        let table = self.table.lock();
        table.entries.get(&key).map(|entry| entry.owner)
    }
}

impl<T: Clone + Unpin> Registry<T> {
    /// What is kept under a key.
    pub(super) fn get(&self, key: usize) -> Option<T> {
        let table = self.table.lock();
        table.entries.get(&key).map(|entry| entry.value.clone())
    }
}
