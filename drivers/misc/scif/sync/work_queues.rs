// SPDX-License-Identifier: GPL-2.0

//! The work queues, by what their items may wait for.
//!
//! The queues of the module:
//!
//! - `link`: transports come up, go down, and tear down sessions. Its items wait for the items of
//!   all other queues.
//! - `control`: messages of the peers, mostly on the CPU that their doorbell has interrupted.
//! - `watch`: watches of address spaces end, which a process can delay. No other item and no caller
//!   waits for them.
//! - `work`: everything else. Its items, and the items of `control`, wait for no peer and for no
//!   item of any queue, so all others may wait for them.
//!
//! Items that may wait for a peer have queues of that peer, each a [`PeerQueue`].
//!
//! A caller that closes something waits for its own counts and never for a queue.

use crate::sys::workqueue::Queue;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::RawWorkItem, //
};

/// The work queues of the module.
pub(crate) struct WorkQueues {
    pub(crate) link: Queue,
    pub(crate) control: Queue,
    pub(crate) watch: Queue,
    pub(crate) work: Queue,
}

impl WorkQueues {
    /// Creates all queues, empty.
    /// Context: may sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                link: Queue::ordered(c"scif_link")?,
                control: Queue::bound_highpri(c"scif_control")?,
                watch: Queue::background(c"scif_watch")?,
                work: Queue::unbound_highpri(c"scif_work")?,
            },
            GFP_KERNEL,
        )?)
    }

    /// Waits until all queued items have run, and the items that they queue. All other code that
    /// queues items has been stopped.
    /// Context: may sleep.
    pub(crate) fn flush_all(&self) {
        self.link.flush();
        self.control.flush();
        self.work.flush();
        self.watch.flush();
        // A watch that was about to end may have told its cache of a change.
        self.work.flush();
    }
}

/// A queue of items that may wait for one peer. It delays only users that wait for that peer, too.
///
/// An item must not end the queue that it runs in, but may drop the last reference to the queue's
/// owner. So the queue is ended before that, with the peer.
#[pin_data]
pub(crate) struct PeerQueue {
    #[pin]
    queue: Mutex<Option<Queue>>,
}

impl PeerQueue {
    pub(crate) fn new(queue: Queue) -> impl PinInit<Self> {
        pin_init!(Self {
            queue <- new_mutex!(Some(queue), "PeerQueue::queue"),
        })
    }

    /// Enqueues an item, unless the queue has ended.
    /// Context: may sleep, does not wait for the peer.
    pub(crate) fn enqueue<W, const ID: u64>(&self, item: W)
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        if let Some(queue) = self.queue.lock().as_ref() {
            // An error means that the item is about to run anyway.
            let _ = queue.enqueue::<_, ID>(item);
        }
    }

    /// Runs a function once, as an item of its own. ENODEV once the queue has ended.
    /// Context: may sleep, does not wait for the peer.
    pub(crate) fn spawn(&self, function: impl FnOnce() + Send + 'static) -> Result {
        self.queue.lock().as_ref().ok_or(ENODEV)?.spawn(function)
    }

    /// Ends the queue and waits for its items. No caller is inside the peer any more, which the
    /// items find out.
    /// Context: may sleep.
    pub(crate) fn end(&self) {
        let queue = self.queue.lock().take();
        drop(queue);
    }
}

#[kunit_tests(scif_sync_work_queues)]
mod tests {
    use super::*;
    use crate::sync::in_flight::InFlight;

    #[test]
    fn work_waiting_for_one_peer_does_not_delay_another_peer() -> Result {
        let queue = || -> Result<Arc<PeerQueue>> {
            let queue = Queue::ordered(c"scif_test")?;
            Arc::pin_init(PeerQueue::new(queue), GFP_KERNEL)
        };
        let (one, other) = (queue()?, queue()?);
        let inside = Arc::pin_init(InFlight::new(), GFP_KERNEL)?;
        assert!(inside.enter_unscoped());
        let waiting = inside.clone();
        one.spawn(move || {
            waiting.close_and_drain();
        })?;
        let of_item = inside.clone();
        other.spawn(move || {
            of_item.leave();
        })?;
        one.end();
        assert!(inside.is_drained());
        assert_eq!(one.spawn(|| ()), Err(ENODEV));
        other.spawn(|| ())
    }
}
