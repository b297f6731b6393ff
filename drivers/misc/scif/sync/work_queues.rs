// SPDX-License-Identifier: GPL-2.0

//! The work queues of the module, by what may wait for what.
//!
//! An item may wait for items of the queues that stand below its own, never the other way round:
//!
//! 1. `link`: transports come up, go down and tear down what was there
//! 2. `control`: messages of the peers, mostly on the processor that their doorbell has interrupted; never
//!    waits for a peer
//! 3. `watch`: watches of address spaces end, which a process can draw out
//! 4. `unhurried`: what may take its time, and hardly anybody waits for: what engines have done is looked for and
//!    let go, and what the peer has emptied is looked for
//! 5. `copies`: what waits for room in an engine's ring is started
//! 6. `staging`: slots are emptied, and it is noted that the peer has emptied some
//! 7. `engines`: engines that have stopped are given back, and what they have left undone ends
//! 8. `completion`: what waits behind transfers that have ended runs

use crate::sys::workqueue::Queue;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// See the head of this file.
pub(crate) struct WorkQueues {
    pub(crate) link: Queue,
    pub(crate) control: Queue,
    pub(crate) watch: Queue,
    pub(crate) unhurried: Queue,
    pub(crate) copies: Queue,
    pub(crate) staging: Queue,
    pub(crate) engines: Queue,
    pub(crate) completion: Queue,
}

impl WorkQueues {
    /// All of them, empty. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                link: Queue::ordered(c"scif_link")?,
                control: Queue::bound_highpri(c"scif_control")?,
                watch: Queue::background(c"scif_watch")?,
                unhurried: Queue::background(c"scif_unhurried")?,
                copies: Queue::unbound_highpri(c"scif_copies")?,
                staging: Queue::unbound_highpri(c"scif_staging")?,
                engines: Queue::background(c"scif_engines")?,
                completion: Queue::unbound_highpri(c"scif_completion")?,
            },
            GFP_KERNEL,
        )?)
    }

    /// Waits until everything has run that is queued now, and what that queues. May sleep; whatever
    /// queues from elsewhere has been stopped.
    pub(crate) fn flush_all(&self) {
        self.link.flush();
        self.control.flush();
        self.unhurried.flush();
        self.copies.flush();
        self.staging.flush();
        self.engines.flush();
        // What an engine has left undone may have been a slot's.
        self.staging.flush();
        self.completion.flush();
        self.watch.flush();
        // A watch that was about to end may have told its cache of a change.
        self.completion.flush();
    }
}
