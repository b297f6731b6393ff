// SPDX-License-Identifier: GPL-2.0

//! Whether stores of this node's processors may be under way to a peer.
//!
//! A copy by the processor is complete once its stores have left the processor. What an engine does next may overtake
//! them. So a copy takes note of its stores, and whoever starts an engine first reads something back, which is
//! answered when all of them have arrived. There is nothing to be read as long as all copies go the same way.
//!
//! Several may start engines at once. None of them goes on before the stores that it finds noted have arrived, whoever
//! reads. Each read is a turn of its own, so that one that ends late says nothing of stores that came after it.

use super::atomic::AtomicU64;

/// Stores a number in halves, at offsets, for whoever waits for the lower one to change: that says that both are there.
/// What is stored before a `barrier` comes before what is stored after it.
pub(crate) fn store_halves<E>(
    value: u64,
    mut store: impl FnMut(usize, u32) -> Result<(), E>,
    barrier: impl FnOnce(),
) -> Result<(), E> {
    store(4, (value >> 32) as u32)?;
    barrier();
    store(0, value as u32)
}

/// Everything has arrived.
const ARRIVED: u64 = 0;

/// Stores have been made that nobody has read behind.
const UNDER_WAY: u64 = 1;

/// What was stored to one peer.
pub(crate) struct Stores {
    /// One of the above, or the turn of the last one that reads.
    state: AtomicU64,
    turns: AtomicU64,
}

impl Stores {
    /// Nothing was stored yet.
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU64::new(ARRIVED),
            turns: AtomicU64::new(UNDER_WAY),
        }
    }

    /// Takes note of stores that have left the processor: a write barrier is behind them.
    pub(crate) fn note(&self) {
        self.state.store(UNDER_WAY);
    }

    /// Returns when all stores that were noted have arrived. If there are some, `read_back` reads behind them.
    pub(crate) fn settle(&self, read_back: impl FnOnce()) {
        if self.state.load() == ARRIVED {
            return;
        }
        let turn = self.turns.fetch_add(1).wrapping_add(1);
        self.state.swap(turn);
        read_back();
        // If this fails, others store or read now.
        let _ = self.state.compare_exchange(turn, ARRIVED);
    }
}
