// SPDX-License-Identifier: GPL-2.0

//! Gives kept registrations up when memory is short.
//!
//! Pages that are pinned are neither swapped out nor written back: what is kept for later transfers
//! would be lost to everybody else. So the kernel may ask for it, as it asks other caches. It asks
//! where nothing can be let go; a work item does that, a little later. Each cache gives in
//! proportion to what it keeps, and first what has not been used for longest.
//!
//! Memory that is registered or in a transfer stays.

use super::caches::Caches;
use crate::sys::shrinker::{
    Shrink,
    Shrinker, //
};
use kernel::{
    impl_has_work, new_work,
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
    },
};

/// While it exists, the kernel can ask. Dropped before the work queues are flushed for good.
pub(crate) struct MemoryPressure {
    _shrinker: Shrinker<Relief>,
}

impl MemoryPressure {
    pub(crate) fn new(caches: &Arc<Caches>) -> Result<Self> {
        let relief = Arc::pin_init(
            pin_init!(Relief {
                caches: caches.clone(),
                wanted: Atomic::new(0),
                work <- new_work!("Relief::work"),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self {
            _shrinker: Shrinker::register(c"scif_registrations", relief)?,
        })
    }
}

/// What was asked for, and is still to be given.
#[pin_data]
struct Relief {
    caches: Arc<Caches>,
    /// In pages.
    wanted: Atomic<i64>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Relief { self.work }
}

impl Shrink for Relief {
    fn count(&self) -> usize {
        let pages = self.caches.counters.pages.load(Relaxed);
        let left = pages.saturating_sub(self.wanted.load(Relaxed));
        usize::try_from(left).unwrap_or(0)
    }

    fn scan(this: ArcBorrow<'_, Self>, count: usize) -> usize {
        this.wanted
            .add(i64::try_from(count).unwrap_or(i64::MAX), Relaxed);
        // An error says that the work is pending already.
        let arc: Arc<Self> = this.into();
        let _ = this.caches.queues.work.enqueue(arc);
        // Nothing has gone yet.
        0
    }
}

impl WorkItem for Relief {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let wanted = this.wanted.load(Relaxed);
        let total = this.caches.counters.pages.load(Relaxed);
        if let (Ok(wanted), Ok(total)) = (usize::try_from(wanted), usize::try_from(total)) {
            this.caches.for_each(|cache| cache.shed(wanted, total));
        }
        // What could not be given now is asked for again.
        this.wanted.add(-wanted, Relaxed);
    }
}
