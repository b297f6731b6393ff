// SPDX-License-Identifier: GPL-2.0

//! Which way a copy from or to a peer goes, by its direction and size.
//!
//! It goes by the processor, by this node's engine or, if it is a read, by the peer's engine: the peer is asked to
//! write what is to be read (`pulls.rs`; its requests are in `pushes.rs`). A copy to memory of the peer that this
//! node does not reach is staged (`staging.rs`).
//!
//! The sizes are constants, each with its reason from hardware. An administrator replaces them at any time
//! (`dma_threshold`, `push_threshold`), a caller for one copy (`SCIF_RMA_USECPU`).

use super::{
    pulls::Pulls,
    pushes::Pushes,
    staging::Staging, //
};
use crate::{
    arguments::Direction,
    peer::Peer,
    sys::tunables, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Bytes up to which the processor writes if the caller waits for the end.
///
/// Stores across the bus are posted and combined, so a processor sends them about as fast as the link takes them. An
/// engine costs a descriptor, a store to a register and the detection of its end, some microseconds: a link of
/// 8 GB/s carries this much meanwhile.
const WRITE_AND_WAIT: u64 = 32 << 10;

/// Bytes up to which the processor writes if the caller does not wait.
///
/// Such a caller has other work for its processor, so only what takes no longer than to submit it to an engine.
const WRITE: u64 = 4 << 10;

/// Bytes up to which the processor reads.
///
/// Each load across the bus brings a cache line at most and waits for a round trip of about a microsecond, so a few
/// of them take as long as an engine does from start to end.
const READ: u64 = 256;

/// Bytes up to which this node's engine reads.
///
/// A read waits for its answer, and an engine has few reads under way: it reads at about half the rate at which it
/// writes. To ask the peer for a write takes two messages with a doorbell each, some ten microseconds, in
/// which an engine reads this much.
const READ_BY_ENGINE: u64 = 64 << 10;

/// What an administrator says for `dma_threshold`.
fn said() -> Option<u64> {
    u64::try_from(tunables::dma_threshold()).ok()
}

/// Whether slots of the peer are filled by the processor for a transfer of so many bytes, though there is an engine. Any
/// context.
///
/// An engine has no more than half of the slots to fill at once, so the size of a slot counts as that of a transfer.
/// What an administrator says of transfers has decided before.
pub(super) fn fills_by_processor(staging: &Staging, len: u64) -> bool {
    said().is_none() && staging.bytes_per_slot(len) <= WRITE_AND_WAIT
}

/// See the head of this file. One for each peer.
pub(crate) struct Ways {
    /// What tests say in place of an administrator's `dma_threshold`.
    dma_threshold: Option<u64>,
    pub(crate) pulls: Arc<Pulls>,
    pub(super) pushes: Arc<Pushes>,
    pub(crate) staging: Arc<Staging>,
}

impl Ways {
    /// Of transfers with this peer. May sleep.
    pub(crate) fn new(
        peer: &Arc<Peer>,
        staging: Arc<Staging>,
        dma_threshold: Option<u64>,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                dma_threshold,
                pulls: Pulls::new(peer)?,
                pushes: Pushes::new(peer, &staging)?,
                staging,
            },
            GFP_KERNEL,
        )?)
    }

    /// Whether a copy of so many bytes goes by the processor, where there is an engine; the caller `waits` for its end
    /// or does not. Any context.
    pub(super) fn by_processor(&self, direction: Direction, len: u64, waits: bool) -> bool {
        let limit = self.dma_threshold.or_else(said);
        len <= limit.unwrap_or(match direction {
            Direction::Read => READ,
            Direction::Write if waits => WRITE_AND_WAIT,
            Direction::Write => WRITE,
        })
    }

    /// Whether the peer is asked to write so many bytes that an engine of this node could read. Any context but
    /// interrupts.
    pub(super) fn by_peer(&self, len: u64) -> bool {
        let said = u64::try_from(tunables::push_threshold()).ok();
        len > said.unwrap_or(READ_BY_ENGINE) && self.pulls.are_possible()
    }
}
