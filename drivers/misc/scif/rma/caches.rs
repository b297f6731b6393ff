// SPDX-License-Identifier: GPL-2.0

//! All registration caches of the module, and what they have done.
//!
//! A cache is listed here from when it first keeps something until it is closed. What they keep is
//! let go where a process reaches its limit ([`Reclaim`]), and where the kernel is short of memory
//! ([`Shrink`]).
//!
//! # When memory is short
//!
//! Pages that are pinned are neither swapped out nor written back: what is kept for later transfers
//! would be lost to everybody else. So the kernel may ask for it, as it asks other caches. It asks
//! where nothing can be let go; a work item does that, a little later. Each cache gives in
//! proportion to what it keeps, and first what has not been used for longest.
//!
//! Memory that is registered or in a transfer stays.

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

/// See the head of this file.
#[pin_data]
pub(crate) struct Caches {
    /// How many pages each may keep.
    pub(super) limit: usize,
    /// Who has pinned what, here and elsewhere.
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) counters: Counters,
    pub(super) queues: Arc<WorkQueues>,
    pub(super) list: Arc<List<RegistrationCache>>,
    /// Pages that the kernel has asked for, and that are still to be given.
    wanted: Atomic<i64>,
    /// Gives them.
    #[pin]
    work: Work<Self>,
}

impl Caches {
    /// None yet; each may keep `limit` pages. May sleep.
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

    /// Lets the kernel ask for memory, as long as the result exists: it is dropped before the work queues are flushed
    /// for good. May sleep.
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
        // An error says that the work is pending already.
        let arc: Arc<Self> = this.into();
        let _ = this.queues.work.enqueue(arc);
        // Nothing has gone yet.
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
        // What could not be given now is asked for again.
        this.wanted.add(-wanted, Relaxed);
    }
}
