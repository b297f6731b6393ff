// SPDX-License-Identifier: GPL-2.0

//! The growth of a queue's buffers while users hold many pages.
//!
//! A program may read its socket more slowly than the peer sends. The pages of the frames that wait
//! there are not free, and frames that come meanwhile have to be copied. So a queue that is short of
//! buffers gets more (`buffers.rs` has the limit). Once a second it returns those that it has not
//! needed, so that an idle queue has as many as its ring has slots.
//!
//! Pages are allocated and freed in a work item, as both may sleep. If there is no memory, the item
//! tries again a second later. A timer runs only while the queue has grown, or could not grow.
//!
//! Lock: `Queue::timer`, below it the receiver.

use super::queue::Queue;
use crate::{
    sys::{
        current::bottom_halves_disabled,
        shared_memory::Payer,
        timer::{
            PeriodicTimer,
            Tick, //
        },
    },
    transport::path::Path, //
};
use kernel::{
    impl_has_work,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc,
        ArcBorrow, //
    },
    time::Delta,
    workqueue::WorkItem, //
};

/// Number of pages that are freed without releasing the receiver in between.
const FREED: usize = 32;

impl_has_work! {
    impl HasWork<Self> for Queue { self.resizing }
}

impl WorkItem for Queue {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Some(_inside) = this.peer.enter() {
            if this.is_tick.xchg(false, Relaxed) {
                this.shrink();
            }
            // Without a timer, nothing would return the pages, or try again.
            if this.is_short() && this.has_timer() {
                this.grow(this.peer.path());
            }
        }
        this.end_needless_timer();
    }
}

impl Tick for Queue {
    const PERIOD: Delta = Delta::from_secs(1);

    fn tick(this: ArcBorrow<'_, Self>) {
        let queue: Arc<Self> = this.into();
        queue.is_tick.store(true, Relaxed);
        queue.resize_later();
    }
}

impl Queue {
    /// Queues the item that grows and shrinks the buffers.
    /// Context: any.
    pub(super) fn resize_later(self: &Arc<Self>) {
        // An error means that the item is queued already, and has not begun.
        let _ = self.peer.queues.work.enqueue::<_, 0>(self.clone());
    }

    /// Returns whether the queue has too few buffers, and may have more.
    fn is_short(&self) -> bool {
        bottom_halves_disabled(|| self.receiver.lock().buffers.is_short())
    }

    /// Adds buffers if the queue is short of them, until the user leaves.
    /// Context: may sleep.
    fn grow(&self, path: &dyn Path) {
        let count = bottom_halves_disabled(|| self.receiver.lock().buffers.shortage());
        for _ in 0..count {
            if !self.has_user() {
                return;
            }
            let page = path.share(PAGE_SIZE, Payer::Optional);
            let Ok(page) = page.and_then(|page| Ok(KBox::new(page, GFP_KERNEL)?)) else {
                bottom_halves_disabled(|| self.receiver.lock().buffers.refuse());
                return;
            };
            // Dropped outside the lock if there is no room.
            let added = bottom_halves_disabled(|| self.receiver.lock().buffers.add(page));
            if added.is_err() {
                return;
            }
        }
    }

    /// Frees the buffers that were not needed for a second.
    /// Context: may sleep.
    fn shrink(&self) {
        let checks = bottom_halves_disabled(|| self.receiver.lock().buffers.checks());
        for _ in 0..checks {
            bottom_halves_disabled(|| self.receiver.lock().buffers.recover(0));
        }
        loop {
            let mut pages = [const { None }; FREED];
            bottom_halves_disabled(|| {
                let buffers = &mut self.receiver.lock().buffers;
                for place in &mut pages {
                    *place = buffers.surplus();
                    if place.is_none() {
                        break;
                    }
                }
            });
            // Outside the lock.
            if pages.iter().any(Option::is_none) {
                return;
            }
        }
    }

    /// Starts the timer unless it runs or the user has left. Returns whether it runs.
    /// Context: may sleep.
    fn has_timer(self: &Arc<Self>) -> bool {
        let mut timer = self.timer.lock();
        if timer.is_none() && self.has_user() {
            *timer = PeriodicTimer::start(self.clone()).ok();
        }
        timer.is_some()
    }

    /// Stops the timer unless the queue has grown or could not grow.
    /// Context: may sleep.
    fn end_needless_timer(&self) {
        let mut timer = self.timer.lock();
        let is_wanted = bottom_halves_disabled(|| self.receiver.lock().buffers.is_unsettled());
        if !is_wanted {
            *timer = None;
        }
    }

    /// Stops the timer for good. The user has left.
    /// Context: may sleep.
    pub(super) fn end_timer(&self) {
        let timer = self.timer.lock().take();
        drop(timer);
    }
}
