// SPDX-License-Identifier: GPL-2.0

//! Reaching a peer: moving bytes and doorbells, and nothing of what they mean.
//!
//! A transport finds peers, one after another, and tells a [`Sink`](sink::Sink) of each: that makes
//! a [`Session`](sink::Session) of it, which the transport tells of doorbells, ticks and the end.
//! What those above get is a [`Path`](path::Path), the way to that one peer: its memory, memory of this
//! node that it may use, and doorbells.
//!
//! Nobody above asks which transport it is. To add one is a file here, and a line in `scif_main.rs`
//! that starts it. There are:
//!
//! - `ntb/`: the node behind an NTB device;
//! - `loopback.rs`: this node as its own peer.

pub(crate) mod engine;
pub(crate) mod links;
pub(crate) mod loopback;
pub(crate) mod ntb;
pub(crate) mod path;
pub(crate) mod sink;

/// What the doorbells of a path are for.
pub(crate) mod doorbell {
    /// Announces control messages.
    pub(crate) const CONTROL: u32 = 0;

    /// Announces news in the scratchpads, or the end of a session.
    pub(crate) const HELLO: u32 = 1;

    /// The first of those that announce data, which services share out.
    pub(crate) const DATA: u32 = 2;

    /// No path has more than this.
    pub(crate) const COUNT: usize = 64;

    /// The doorbells that are set among bits.
    pub(crate) fn numbers(mut bits: u64) -> impl Iterator<Item = u32> {
        core::iter::from_fn(move || {
            let first = bits.trailing_zeros();
            bits &= bits.checked_sub(1)?;
            Some(first)
        })
    }

    /// A doorbell as a bit; none for a number that is too large.
    pub(crate) fn bit(doorbell: u32) -> u64 {
        1u64.checked_shl(doorbell).unwrap_or(0)
    }
}
