// SPDX-License-Identifier: GPL-2.0

//! Memory of a process that can serve more than one transfer: pinned, mapped and watched.
//!
//! A registration watches its range of addresses (`sys/mmu_notifier.rs`). When the process unmaps,
//! moves, protects or discards any of it, forks, execs or exits, the registration becomes stale at
//! that moment. This happens inside the memory management, where nothing can be released. So the
//! cache, which keeps the registration, is told and releases it later.
//!
//! The watch itself ends later still, in a work item. The kernel makes a task that ends a watch
//! wait until the process stops changing its address space, which the process need never do.

use super::{
    caches::Caches,
    registration_cache::RegistrationCache, //
};
use crate::{
    logic::registrations::Pages as PageRange,
    memory::local::{
        Holder,
        LocalMemory, //
    },
    peer::PeerUse,
    sys::{
        current::User,
        ledger::Ledger,
        mmu_notifier::{
            Changed,
            Watch, //
        },
        pages::Pages, //
    },
};
use kernel::{
    impl_has_work, new_work,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// Number of times that pages are pinned if their range changes meanwhile. Pinning may itself
/// replace a page that is shared until a process writes to it.
const ATTEMPTS: usize = 3;

/// Counts a registration that has become stale, and has the cache release it.
impl Changed for Arc<RegistrationCache> {
    fn changed(&self) {
        self.caches.counters.invalidations.add(1, Relaxed);
        self.schedule();
    }
}

/// A watch that ends in a work item. The end takes as long as the process changes its address
/// space, and no other task is to wait for that.
#[pin_data]
struct Watched {
    #[pin]
    watch: Watch<Arc<RegistrationCache>>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Watched { self.work }
}

impl WorkItem for Watched {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // Drops the last reference, which ends the watch.
        drop(this);
    }
}

/// Counts the pages of a registration until this is dropped, and then has a work item end the
/// watch.
struct Ending {
    watched: Option<Arc<Watched>>,
    caches: Arc<Caches>,
    pages: i64,
}

impl Ending {
    fn new(watched: Arc<Watched>, caches: &Arc<Caches>, pages: PageRange) -> Self {
        let pages = pages.count() as i64;
        caches.counters.pages.add(pages, Relaxed);
        Self {
            watched: Some(watched),
            caches: caches.clone(),
            pages,
        }
    }

    fn watch(&self) -> Option<&Watch<Arc<RegistrationCache>>> {
        self.watched.as_ref().map(|watched| &watched.watch)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.caches.counters.pages.add(-self.pages, Relaxed);
        if let Some(watched) = self.watched.take() {
            // Can't fail, as the item is enqueued only once.
            let _ = self.caches.queues.watch.enqueue(watched);
        }
    }
}

/// Pinned memory of a process that a cache keeps for later transfers.
pub(super) struct Registration {
    memory: LocalMemory,
    pub(super) pages: PageRange,
    /// The user against whose limit the memory counts.
    pub(super) user: User,
    // Dropped after the memory, which is released at once.
    ending: Ending,
}

impl Holder for Registration {
    fn memory(&self) -> &LocalMemory {
        &self.memory
    }
}

impl Registration {
    /// Pins pages of the calling process and watches them for a cache. Returns EAGAIN if they
    /// exceed what the process may lock. The pages may be mapped for an engine, so a use of the
    /// peer comes with them.
    /// Context: may sleep.
    pub(super) fn new(
        cache: &Arc<RegistrationCache>,
        pages: PageRange,
    ) -> Result<(PeerUse, Arc<Self>)> {
        let caches = &cache.caches;
        let address = pages.start() << PAGE_SHIFT;
        let watched = Arc::try_pin_init(
            try_pin_init!(Watched {
                watch <- Watch::new(address, pages.count() * PAGE_SIZE, cache.clone()),
                work <- new_work!("Watched::work"),
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        let ending = Ending::new(watched, caches, pages);
        let pinned = Self::pin(ending.watch().ok_or(EINVAL)?, pages, &caches.ledger)?;
        let inside = cache.peer.enter_owned().ok_or(ENODEV)?;
        let registration = Self {
            memory: LocalMemory::new(pinned),
            pages,
            user: User::current(),
            ending,
        };
        Ok((inside, Arc::new(registration, GFP_KERNEL_ACCOUNT)?))
    }

    fn pin(
        watch: &Watch<Arc<RegistrationCache>>,
        pages: PageRange,
        ledger: &Arc<Ledger>,
    ) -> Result<Arc<Pages>> {
        let address = pages.start() << PAGE_SHIFT;
        let pin = || {
            watch.begin();
            Pages::pin(address, pages.count(), pages.writable, Some(ledger))
        };
        let mut pinned = pin()?;
        for _ in 1..ATTEMPTS {
            if watch.is_unchanged() {
                break;
            }
            // Dropped before the pages are pinned again, because both would count.
            drop(pinned);
            pinned = pin()?;
        }
        Ok(Arc::new(pinned, GFP_KERNEL_ACCOUNT)?)
    }

    /// Returns whether the range has not changed since the registration was made.
    /// Context: any.
    pub(super) fn is_unchanged(&self) -> bool {
        self.ending.watch().is_some_and(Watch::is_unchanged)
    }
}
