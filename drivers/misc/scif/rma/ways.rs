// SPDX-License-Identifier: GPL-2.0

//! The ways that transfers from and to one peer can go, and what decides between them.
//!
//! By processor or by this end's engine (`crossover.rs`), or, what is read, by the peer's engine
//! (`pulls.rs`, `pull_threshold.rs`), for which this end's writes likewise (`pushes.rs`). And what this end
//! does not reach is staged (`staging.rs`).
//!
//! What decides is measured once for each peer, when there is the first connection and an engine that works, and
//! nobody has said it (`trial.rs`).

use super::{
    crossover::Crossover,
    pull_threshold::{
        self,
        PullThreshold, //
    },
    pulls::Pulls,
    pushes::Pushes,
    staging::Staging,
    trial::TrialSite, //
};
use crate::peer::Peer;
use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::Arc,
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// See the head of this file.
#[pin_data]
pub(crate) struct Ways {
    peer: Arc<Peer>,
    pub(super) crossover: Crossover,
    threshold: PullThreshold,
    pub(crate) pulls: Arc<Pulls>,
    pub(super) pushes: Arc<Pushes>,
    pub(crate) staging: Arc<Staging>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Ways { self.work }
}

/// Measures what was asked for.
impl WorkItem for Ways {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let Ok(site) = TrialSite::new(&this.peer) else {
            return;
        };
        // What can't be measured lacks an engine, memory or the peer.
        if this.crossover.measured.begin() {
            let _ = this.crossover.measure(&site);
        }
        if this.threshold.measured.begin() {
            let _ = this.threshold.measure(&site);
        }
        this.staging.measure(&site);
    }
}

impl Ways {
    /// Of transfers with this peer. `dma_threshold` is what an administrator would have said. May sleep.
    pub(crate) fn new(
        peer: &Arc<Peer>,
        staging: Arc<Staging>,
        dma_threshold: Option<u64>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                peer: peer.clone(),
                crossover: Crossover::new(dma_threshold),
                threshold: PullThreshold::new(),
                pulls: Pulls::new(peer)?,
                pushes: Pushes::new(peer, &staging)?,
                staging,
                work <- new_work!("Ways::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// There is a connection, and an engine that works: has measured what is to be, soon, unless it has been. Any
    /// context but interrupts.
    pub(crate) fn measure_soon(self: &Arc<Self>) {
        let is_unsaid = self.crossover.said().is_none();
        let size = is_unsaid && self.crossover.measured.want();
        let slots = is_unsaid && self.staging.want_measure();
        let threshold = self.pulls.are_possible()
            && pull_threshold::said().is_none()
            && self.threshold.measured.want();
        if size || slots || threshold {
            // An error says that it is about to run anyway.
            let _ = self.peer.queues().unhurried.enqueue(self.clone());
        }
    }

    /// Whether the peer's engine had better write so many bytes than this end's read them. Any context but
    /// interrupts.
    pub(super) fn pulls(&self, len: u64, waits: bool) -> bool {
        self.threshold.is_passed(len, waits) && self.pulls.are_possible()
    }
}
