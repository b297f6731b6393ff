// SPDX-License-Identifier: GPL-2.0

//! Memory of a process that can serve more than one transfer: pinned, mapped and watched.
//!
//! A registration watches its range of addresses (`sys/mmu_notifier.rs`). When the process unmaps,
//! moves, protects or discards any of it, forks, execs or exits, the registration is stale from that
//! moment on. That happens inside the memory management, where nothing can be let go: whoever keeps
//! it is told ([`Keeper`]) and lets go of it later. The watch itself ends later still, by a work item:
//! the kernel makes who ends one wait until the process stops changing its address space, which it
//! need never do.

use super::caches::Caches;
use crate::{
    logic::registrations::Pages as PageRange,
    memory::local::{
        Holder,
        LocalMemory, //
    },
    peer::{
        Peer,
        PeerUse, //
    },
    sync::work_queues::WorkQueues,
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
        Arc,
        ArcBorrow, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// How often a registration is begun whose range changes meanwhile: pinning may itself replace a
/// page that is shared until somebody writes to it.
const ATTEMPTS: usize = 3;

/// Who keeps registrations.
pub(super) trait Keeper: Send + Sync {
    /// One of them is stale. Any context.
    fn stale(self: ArcBorrow<'_, Self>);
}

/// Tells a keeper.
struct Notice {
    #[cfg_attr(not(CONFIG_MMU_NOTIFIER), expect(dead_code))]
    keeper: Arc<dyn Keeper>,
    #[cfg_attr(not(CONFIG_MMU_NOTIFIER), expect(dead_code))]
    caches: Arc<Caches>,
}

impl Changed for Notice {
    fn changed(&self) {
        self.caches.counters.invalidations.add(1, Relaxed);
        self.keeper.as_arc_borrow().stale();
    }
}

/// A watch that ends by itself, later: that takes as long as the process changes its address space,
/// for which nobody else has to wait.
#[pin_data]
struct Watched {
    #[pin]
    watch: Watch<Notice>,
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

/// Has a watch end where that hurts nobody.
struct Ending {
    watched: Option<Arc<Watched>>,
    queues: Arc<WorkQueues>,
}

impl Ending {
    fn watch(&self) -> Option<&Watch<Notice>> {
        self.watched.as_ref().map(|watched| &watched.watch)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(watched) = self.watched.take() {
            // It is enqueued once, so this can't fail.
            let _ = self.queues.watch.enqueue(watched);
        }
    }
}

/// Pages that are counted as those of a registration.
struct Counted {
    caches: Arc<Caches>,
    pages: i64,
}

impl Counted {
    fn new(caches: &Arc<Caches>, pages: usize) -> Self {
        let pages = pages as i64;
        caches.counters.pages.add(pages, Relaxed);
        Self {
            caches: caches.clone(),
            pages,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.caches.counters.pages.add(-self.pages, Relaxed);
    }
}

/// See the head of this file.
pub(super) struct Registration {
    memory: LocalMemory,
    pub(super) pages: PageRange,
    /// Against whose limit it counts.
    pub(super) user: User,
    _counted: Counted,
    // After the memory, which goes at once.
    ending: Ending,
}

impl Holder for Registration {
    fn memory(&self) -> &LocalMemory {
        &self.memory
    }
}

impl Registration {
    /// Pins pages of the calling process and watches them; what keeps the peer from ending comes with
    /// them, as they may be mapped for an engine. May sleep. EAGAIN if they are more than
    /// it may lock.
    pub(super) fn new(
        keeper: Arc<dyn Keeper>,
        caches: &Arc<Caches>,
        peer: &Arc<Peer>,
        pages: PageRange,
    ) -> Result<(PeerUse, Arc<Self>)> {
        let address = pages.start() << PAGE_SHIFT;
        let notice = Notice {
            keeper,
            caches: caches.clone(),
        };
        let watched = Arc::try_pin_init(
            try_pin_init!(Watched {
                watch <- Watch::new(address, pages.count() * PAGE_SIZE, notice),
                work <- new_work!("Watched::work"),
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        let ending = Ending {
            watched: Some(watched),
            queues: caches.queues.clone(),
        };
        let pinned = Self::pin(ending.watch().ok_or(EINVAL)?, pages, &caches.ledger)?;
        let inside = peer.enter_owned().ok_or(ENODEV)?;
        let registration = Arc::new(
            Self {
                memory: LocalMemory::new(pinned),
                pages,
                user: User::current(),
                _counted: Counted::new(caches, pages.count()),
                ending,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        Ok((inside, registration))
    }

    fn pin(watch: &Watch<Notice>, pages: PageRange, ledger: &Arc<Ledger>) -> Result<Arc<Pages>> {
        let address = pages.start() << PAGE_SHIFT;
        let pin = || {
            watch.begin();
            Pages::pin(address, pages.count(), pages.is_writable(), Some(ledger))
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
