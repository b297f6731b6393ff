// SPDX-License-Identifier: GPL-2.0

//! All registration caches of the module, and what they have done.
//!
//! A cache is listed here from when it first keeps something until it is closed. What they keep is
//! let go where a process reaches its limit ([`Reclaim`]), and where the kernel is short of memory
//! (`memory_pressure.rs`).
//!
//! Lock: `list` is a leaf; caches are called without it.

use crate::{
    memory::local::Reclaim,
    sync::work_queues::WorkQueues,
    sys::ledger::Ledger, //
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

/// What all caches have done.
pub(crate) struct Counters {
    /// Transfers that found what they need.
    pub(crate) hits: Atomic<u64>,
    /// Transfers that did not.
    pub(crate) misses: Atomic<u64>,
    /// Pages in registrations that exist now, kept or in use.
    pub(crate) pages: Atomic<i64>,
    /// Registrations whose mapping has changed.
    pub(crate) invalidations: Atomic<u64>,
    /// Registrations that made room for others.
    pub(crate) evictions: Atomic<u64>,
}

/// A cache, as it is listed.
pub(super) trait Cache: Send + Sync {
    /// Lets go of what belongs to the calling process or to its user. May sleep.
    fn forget_caller(&self);

    /// Lets go of `wanted` of each `total` pages, those first that have not been used for longest.
    /// May sleep.
    fn shed(&self, wanted: usize, total: usize);
}

/// See the head of this file.
#[pin_data]
pub(crate) struct Caches {
    /// How many pages each may keep.
    pub(super) limit: usize,
    /// Who has pinned what, here and elsewhere.
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) counters: Counters,
    pub(super) queues: Arc<WorkQueues>,
    next_id: Atomic<u64>,
    #[pin]
    list: Mutex<RBTree<u64, Arc<dyn Cache>>>,
}

impl Caches {
    /// None yet; each may keep `limit` pages. May sleep.
    pub(crate) fn new(limit: usize, queues: &Arc<WorkQueues>) -> Result<Arc<Self>> {
        let ledger = Ledger::new()?;
        Arc::pin_init(
            pin_init!(Self {
                limit,
                ledger,
                counters: Counters {
                    hits: Atomic::new(0),
                    misses: Atomic::new(0),
                    pages: Atomic::new(0),
                    invalidations: Atomic::new(0),
                    evictions: Atomic::new(0),
                },
                queues: queues.clone(),
                next_id: Atomic::new(1),
                list <- new_mutex!(RBTree::new(), "Caches::list"),
            }),
            GFP_KERNEL,
        )
    }

    /// Lists a cache. Returns the number by which it is taken off, which is not 0. May sleep.
    pub(super) fn add(&self, cache: Arc<dyn Cache>) -> Result<u64> {
        let id = self.next_id.fetch_add(1, Relaxed);
        let node = RBTreeNode::new(id, cache, GFP_KERNEL_ACCOUNT)?;
        let replaced = self.list.lock().insert(node);
        drop(replaced);
        Ok(id)
    }

    /// Takes a cache off the list. May sleep.
    pub(super) fn remove(&self, id: u64) {
        let removed = self.list.lock().remove_node(&id);
        drop(removed);
    }

    /// Calls `f` with each cache, without a lock.
    pub(super) fn for_each(&self, f: impl Fn(&dyn Cache)) {
        let mut from = 0;
        loop {
            let (id, cache) = {
                let list = self.list.lock();
                let Some(cursor) = list.cursor_lower_bound(&from) else {
                    return;
                };
                let (id, cache) = cursor.current();
                (*id, cache.clone())
            };
            f(&*cache);
            from = id + 1;
        }
    }
}

impl Reclaim for Caches {
    fn reclaim_of_caller(&self) -> bool {
        if self.counters.pages.load(Relaxed) == 0 {
            return false;
        }
        self.for_each(|cache| cache.forget_caller());
        true
    }

    fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }
}
