// SPDX-License-Identifier: GPL-2.0

//! Memory of a process that can serve more than one transfer: pinned, mapped and watched.
//!
//! A registration watches its range of addresses (`sys/mmu_notifier.rs`). When the process unmaps,
//! moves, protects or discards any of it, forks, execs or exits, the registration is stale from that
//! moment on. That happens inside the memory management, where nothing can be let go: whoever keeps
//! it, the cache, is told and lets go of it later. The watch itself ends later still, by a work item:
//! the kernel makes who ends one wait until the process stops changing its address space, which it
//! need never do.

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

/// How often a registration is begun whose range changes meanwhile: pinning may itself replace a
/// page that is shared until somebody writes to it.
const ATTEMPTS: usize = 3;

/// A registration of the cache has become stale.
impl Changed for Arc<RegistrationCache> {
    fn changed(&self) {
        self.caches.counters.invalidations.add(1, Relaxed);
        self.schedule();
    }
}

/// A watch that ends by itself, later: that takes as long as the process changes its address space,
/// for which nobody else has to wait.
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
        // The last reference, or the last but that of a registration that has not been made.
        drop(this);
    }
}

/// Counts pages as those of a registration, and has their watch end where that hurts nobody.
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
            // It is enqueued once, so this can't fail.
            let _ = self.caches.queues.watch.enqueue(watched);
        }
    }
}

/// See the head of this file.
pub(super) struct Registration {
    memory: LocalMemory,
    pub(super) pages: PageRange,
    /// Against whose limit it counts.
    pub(super) user: User,
    // After the memory, which goes at once.
    ending: Ending,
}

impl Holder for Registration {
    fn memory(&self) -> &LocalMemory {
        &self.memory
    }
}

impl Registration {
    /// Pins pages of the calling process and watches them for a cache; what keeps the peer from ending comes with
    /// them, as they may be mapped for an engine. May sleep. EAGAIN if they are more than
    /// it may lock.
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
            // First, because both count.
            drop(pinned);
            pinned = pin()?;
        }
        Ok(Arc::new(pinned, GFP_KERNEL_ACCOUNT)?)
    }

    /// Whether it is as good as when it was made. Any context.
    pub(super) fn is_unchanged(&self) -> bool {
        self.ending.watch().is_some_and(Watch::is_unchanged)
    }
}
