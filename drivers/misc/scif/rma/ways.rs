// SPDX-License-Identifier: GPL-2.0

//! The ways that transfers from and to one peer can go, and what decides between them.
//!
//! By processor or by this end's engine (`crossover.rs`), or, what is read, by the peer's engine
//! (`pulls.rs`, `pull_threshold.rs`), for which this end's writes likewise (`pushes.rs`).

use super::{
    crossover::Crossover,
    pull_threshold::PullThreshold,
    pulls::Pulls,
    pushes::Pushes, //
};
use crate::peer::Peer;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// See the head of this file.
pub(crate) struct Ways {
    pub(super) crossover: Arc<Crossover>,
    threshold: Arc<PullThreshold>,
    pub(crate) pulls: Arc<Pulls>,
    pub(super) pushes: Arc<Pushes>,
}

impl Ways {
    /// Of transfers with this peer. `dma_threshold` is what an administrator would have said. May sleep.
    pub(crate) fn new(peer: &Arc<Peer>, dma_threshold: Option<u64>) -> Result<Arc<Self>> {
        let ways = Self {
            crossover: Crossover::new(peer, dma_threshold)?,
            threshold: PullThreshold::new(peer)?,
            pulls: Pulls::new(peer)?,
            pushes: Pushes::new(peer)?,
        };
        Ok(Arc::new(ways, GFP_KERNEL)?)
    }

    /// There is a connection that has an engine: has measured what is to be, soon. Any context.
    pub(crate) fn measure_soon(&self) {
        self.crossover.measure_soon();
        if self.pulls.are_possible() {
            self.threshold.measure_soon();
        }
    }

    /// Whether the peer's engine had better write so many bytes than this end's read them. Any context.
    pub(super) fn pulls(&self, len: u64, waits: bool) -> bool {
        self.threshold.is_passed(len, waits) && self.pulls.are_possible()
    }
}
