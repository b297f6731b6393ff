// SPDX-License-Identifier: GPL-2.0

//! Who fills slots: the processor as far as it was seen to be faster, else an engine.
//!
//! An engine begins late and its end is noticed late, and of small slots few bytes are on their way meanwhile. So that
//! counts for each slot, however long the transfer is. It is measured in a slot that was taken as any other, and
//! turns out to be void.
//!
//! What an administrator says of transfers (`dma_threshold`) decides for their slots as well.

use super::{
    super::staged::Staged,
    turns::Patience,
    Outbox, //
};
use crate::{
    memory::few::Few,
    rma::{
        crossover,
        transfer::Surroundings,
        trial::TrialSite, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};

impl Outbox {
    /// Whether a transfer of so many bytes is put into slots by the processor, though there is an engine. Any
    /// context.
    pub(in crate::rma) fn fills_by_processor(&self, len: u64) -> bool {
        let longest = len.min(self.geometry.size().into());
        crossover::said().is_none() && longest <= self.by_processor.load(Relaxed)
    }

    /// Finds out. May sleep.
    pub(in crate::rma) fn measure(self: &Arc<Self>, site: &TrialSite<'_>) -> Result {
        let surroundings = Surroundings {
            channel: None,
            peer: self.peer.enter_owned().ok_or(ENODEV)?,
        };
        Staged::start_unnoticed(Few::new(), surroundings, |staged, _| {
            let slot = self.take_slots(staged, 1, Patience::Uninterruptible)?.first;
            let len = self.geometry.size();
            let limit = crossover::measure_writes(site, self.data_address(slot), len as usize);
            // What was written there has arrived before.
            self.void(slot);
            let limit = limit?;
            self.by_processor.store(limit, Relaxed);
            pr_info!(
                "node {}: by processor up to {} bytes of each slot, of {}\n",
                self.peer.node(),
                limit,
                len
            );
            Ok(())
        })
    }
}
