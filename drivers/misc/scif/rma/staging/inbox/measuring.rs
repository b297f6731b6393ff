// SPDX-License-Identifier: GPL-2.0

//! Who empties slots: the processor as far as it was seen to be faster, else an engine.
//!
//! What counts is all that is emptied at once, which is no more than half of the slots. It is measured with what
//! happens to be in them, which goes to memory of this module's own.
//!
//! What an administrator says of transfers (`dma_threshold`) decides here as well.

use super::{
    super::drain::Views,
    Inbox, //
};
use crate::rma::{
    crossover,
    trial::TrialSite, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

impl Inbox {
    /// How many bytes have to be there for an engine to empty their slots. Any context.
    pub(super) fn least_for_engine(&self) -> u64 {
        let said = crossover::said();
        let by_processor = said.unwrap_or_else(|| self.by_processor.load(Relaxed));
        by_processor.saturating_add(1)
    }

    /// Finds out. May sleep.
    pub(in crate::rma) fn measure(&self, site: &TrialSite<'_>) -> Result {
        let _inside = self.peer.enter().ok_or(ENODEV)?;
        let mut views = Views::new(&self.memory);
        let source = crossover::Source {
            memory: &self.memory,
            bus_address: views.address(site.engine())?,
            offset: self.geometry.data(1),
        };
        let most = self.geometry.size() as usize * (self.geometry.slots() / 2) as usize;
        let limit = crossover::measure_copies(site, &source, most)?;
        self.by_processor.store(limit, Relaxed);
        pr_info!(
            "node {}: slots are emptied by processor up to {} bytes of {}\n",
            self.peer.node(),
            limit,
            most
        );
        Ok(())
    }
}
