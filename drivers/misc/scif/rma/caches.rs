// SPDX-License-Identifier: GPL-2.0

//! All registration caches of the module, and counters of what they do.
//!
//! A cache is listed here from the time when it first keeps a registration until it is closed. Its
//! registrations are released when a process reaches its limit ([`Reclaim`]), and when the kernel
//! is short of memory ([`Shrink`]).
//!
//! # Shortage of memory
//!
//! Pinned pages are neither swapped out nor written back. So memory that is kept for later
//! transfers would be lost to the rest of the system. The kernel may ask for this memory, as it
//! asks other caches. The kernel asks where nothing can be released, so a work item releases memory
//! a little later. Each cache gives in proportion to what it keeps, the least recently used
//! registrations first.
//!
//! Memory of registered windows and of transfers in flight stays.

use super::registration_cache::RegistrationCache;
use crate::{
    memory::local::Reclaim,
    sync::{
        list::List,
        work_queues::WorkQueues, //
    },
    sys::{
        ledger::Ledger,
        shrinker::{
            Shrink,
            Shrinker, //
        }, //
    }, //
};
use kernel::{
    impl_has_work,
    new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

/// Counters of all caches together.
pub(crate) struct Counters {
    /// Transfers that found a registration in a cache.
    pub(crate) hits: Atomic<u64>,
    /// Transfers that asked for the cache and found none.
    pub(crate) misses: Atomic<u64>,
    /// Pages in registrations that exist now, kept or in use.
    pub(crate) pages: Atomic<i64>,
    /// Registrations whose range has changed.
    pub(crate) invalidations: Atomic<u64>,
    /// Registrations that were released to make room for others.
    pub(crate) evictions: Atomic<u64>,
}

/// All registration caches, and the work that returns memory to the kernel.
#[pin_data]
pub(crate) struct Caches {
    /// Largest number of pages that each cache may keep.
    pub(super) limit: usize,
    /// Record of pinned memory by user, in caches and elsewhere.
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) counters: Counters,
    pub(super) queues: Arc<WorkQueues>,
    pub(super) list: Arc<List<RegistrationCache>>,
    /// Number of pages that the kernel has asked for and that were not released yet.
    wanted: Atomic<i64>,
    /// Work item that releases these pages.
    #[pin]
    work: Work<Self>,
}

impl Caches {
    /// Creates an empty list of caches. Each cache may keep `limit` pages.
    /// Context: may sleep.
    pub(crate) fn new(limit: usize, queues: &Arc<WorkQueues>) -> Result<Arc<Self>> {
        let ledger = Ledger::new()?;
        let list = List::new()?;
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
                list,
                wanted: Atomic::new(0),
                work <- new_work!("Caches::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Lets the kernel ask for memory as long as the result exists. The result is dropped before
    /// the work queues are flushed for good.
    /// Context: may sleep.
    pub(crate) fn offer_memory(self: &Arc<Self>) -> Result<Shrinker<Self>> {
        Shrinker::register(c"scif_registrations", self.clone())
    }
}

impl Reclaim for Caches {
    fn reclaim_of_caller(&self) -> bool {
        if self.counters.pages.load(Relaxed) == 0 {
            return false;
        }
        self.list.iter().for_each(|cache| cache.forget_caller());
        true
    }

    fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }
}

impl_has_work! {
    impl HasWork<Self> for Caches { self.work }
}

impl Shrink for Caches {
    fn count(&self) -> usize {
        let pages = self.counters.pages.load(Relaxed);
        let left = pages.saturating_sub(self.wanted.load(Relaxed));
        usize::try_from(left).unwrap_or(0)
    }

    fn scan(this: ArcBorrow<'_, Self>, count: usize) -> usize {
        this.wanted
            .add(i64::try_from(count).unwrap_or(i64::MAX), Relaxed);
        // An error says that the work item is pending already.
        let arc: Arc<Self> = this.into();
        let _ = this.queues.work.enqueue(arc);
        // No page has been released yet.
        0
    }
}

impl WorkItem for Caches {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let wanted = this.wanted.load(Relaxed);
        let total = this.counters.pages.load(Relaxed);
        if let (Ok(wanted), Ok(total)) = (usize::try_from(wanted), usize::try_from(total)) {
            this.list.iter().for_each(|cache| cache.shed(wanted, total));
        }
        // The kernel asks again for pages that could not be released now.
        this.wanted.add(-wanted, Relaxed);
    }
}
