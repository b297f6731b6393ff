// SPDX-License-Identifier: GPL-2.0

//! A flag that tells whether stores of this node's CPUs may be in flight to a peer.
//!
//! A copy by CPU is complete once its stores have left the CPU. A later access by an engine may
//! overtake them. So a copy notes its stores, and a thread that starts an engine first reads back
//! from the peer. The answer comes after all stores have arrived. No read is needed as long as all
//! copies go the same way.
//!
//! Several threads may start engines at once. None of them continues before the stores that it
//! finds noted have arrived, regardless of which thread reads. Each read has a turn of its own, so
//! a read that ends late says nothing about stores that came after it.

use super::atomic::AtomicU64;

/// Stores a number in halves, at byte offsets. A reader waits for the lower half to change, which
/// tells that both halves are there. `barrier` orders the two stores.
pub(crate) fn store_halves<E>(
    value: u64,
    mut store: impl FnMut(usize, u32) -> Result<(), E>,
    barrier: impl FnOnce(),
) -> Result<(), E> {
    store(4, (value >> 32) as u32)?;
    barrier();
    store(0, value as u32)
}

/// The state in which all stores have arrived.
const ARRIVED: u64 = 0;

/// The state in which stores were noted behind which no thread has read.
const UNDER_WAY: u64 = 1;

/// The stores to one peer.
pub(crate) struct Stores {
    /// One of the constants above, or the turn of the latest reader.
    state: AtomicU64,
    turns: AtomicU64,
}

impl Stores {
    /// Creates the state of a peer without stores.
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU64::new(ARRIVED),
            turns: AtomicU64::new(UNDER_WAY),
        }
    }

    /// Notes stores that have left the CPU. The caller has issued a write barrier behind them.
    pub(crate) fn note(&self) {
        self.state.store(UNDER_WAY);
    }

    /// Returns when all noted stores have arrived. If there are any, calls `read_back`, which reads
    /// behind them.
    pub(crate) fn settle(&self, read_back: impl FnOnce()) {
        if self.state.load() == ARRIVED {
            return;
        }
        let turn = self.turns.fetch_add(1).wrapping_add(1);
        self.state.swap(turn);
        read_back();
        // If this fails, another thread stores or reads now, and the state is its own.
        let _ = self.state.compare_exchange(turn, ARRIVED);
    }
}
