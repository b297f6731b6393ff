// SPDX-License-Identifier: GPL-2.0

//! The work queues, by what their items may wait for.
//!
//! Those of the module:
//!
//! - `link`: transports come up, go down, and tear down what was there. Its items wait for those of all others.
//! - `control`: messages of the peers, mostly on the CPU that their doorbell has interrupted.
//! - `watch`: watches of address spaces end, which a process can draw out. No other item and no caller waits for it.
//! - `work`: all else. Its items, and those of `control`, wait for no peer and for no item of any queue, so all others may
//!   wait for them.
//!
//! What may wait for a peer has queues of that peer, each a [`PeerQueue`].
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
    /// All of them, empty. May sleep.
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

    /// Waits until everything has run that is queued now, and what that queues. May sleep; whatever queues from
    /// elsewhere has been stopped.
    pub(crate) fn flush_all(&self) {
        self.link.flush();
        self.control.flush();
        self.work.flush();
        self.watch.flush();
        // A watch that was about to end may have told its cache of a change.
        self.work.flush();
    }
}

/// A queue of what may wait for one peer: it delays nobody but those who wait for that peer, too.
///
/// An item must not end the queue that it runs in, but may drop the last reference to whoever has that. So the queue
/// ends before, with the peer.
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

    /// Enqueues an item, unless the queue has ended. May sleep, does not wait for the peer.
    pub(crate) fn enqueue<W, const ID: u64>(&self, item: W)
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        if let Some(queue) = self.queue.lock().as_ref() {
            // An error says that it is about to run anyway.
            let _ = queue.enqueue::<_, ID>(item);
        }
    }

    /// Runs a function once, as an item of its own. ENODEV once the queue has ended. May sleep, does not wait for the
    /// peer.
    pub(crate) fn spawn(&self, function: impl FnOnce() + Send + 'static) -> Result {
        self.queue.lock().as_ref().ok_or(ENODEV)?.spawn(function)
    }

    /// Ends the queue, once nobody is inside the peer any more: waits for its items, which find that. May sleep.
    pub(crate) fn end(&self) {
        let queue = self.queue.lock().take();
        drop(queue);
    }
}

#[kunit_tests(scif_sync_peer_queue)]
mod tests {
    use super::*;
    use crate::sync::in_flight::InFlight;

    #[test]
    fn what_waits_for_one_peer_delays_no_other() -> Result {
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
