// SPDX-License-Identifier: GPL-2.0

//! The work queues of the module, by what their items may wait for.
//!
//! - `link`: transports come up, go down, and tear down what was there. Its items wait for those of all others.
//! - `control`: messages of the peers, mostly on the CPU that their doorbell has interrupted.
//! - `patient`: what may wait for a peer: copies that wait for room in an engine's ring or for slots of the peer. Its
//!   items run beside each other. (Signals that wait for slots have a queue for each peer, see `rma/staging/outbox.rs`.)
//! - `watch`: watches of address spaces end, which a process can draw out. No other item and no caller waits for it.
//! - `work`: all else. Its items, and those of `control`, wait for no peer and for no item of any queue, so all others may
//!   wait for them.
//!
//! A caller that closes something waits for its own counts and never for a queue.

use crate::sys::workqueue::Queue;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The work queues of the module.
pub(crate) struct WorkQueues {
    pub(crate) link: Queue,
    pub(crate) control: Queue,
    pub(crate) patient: Queue,
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
                patient: Queue::background(c"scif_patient")?,
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
        // Either may leave something to the other.
        for _ in 0..2 {
            self.work.flush();
            self.patient.flush();
        }
        self.watch.flush();
        // A watch that was about to end may have told its cache of a change.
        self.work.flush();
    }
}
