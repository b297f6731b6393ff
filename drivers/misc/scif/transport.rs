// SPDX-License-Identifier: GPL-2.0

//! Access to a peer: moving bytes and ringing doorbells, regardless of their meaning.
//!
//! A transport finds peers, and reports each to a [`Sink`](sink::Sink). The sink creates a
//! [`Session`](sink::Session), which the transport informs of doorbells, ticks and the end. The
//! layers above get a [`Path`](path::Path) to that one peer: its memory, memory of this node that
//! it may use, and doorbells.
//!
//! The layers above do not depend on the kind of transport. A new transport takes a file here, and
//! a line in `scif_main.rs` that starts it. There are:
//!
//! - `ntb/`: the node behind an NTB device;
//! - `loopback.rs`: this node as its own peer.

pub(crate) mod engine;
pub(crate) mod links;
pub(crate) mod loopback;
pub(crate) mod ntb;
pub(crate) mod path;
pub(crate) mod sink;

/// The doorbells of a path, by their purpose.
pub(crate) mod doorbell {
    /// The doorbell that announces control messages.
    pub(crate) const CONTROL: u32 = 0;

    /// The doorbell that announces news in the scratchpads, or the end of a session.
    pub(crate) const HELLO: u32 = 1;

    /// The first doorbell that announces data. Services share out this one and those above.
    pub(crate) const DATA: u32 = 2;

    /// Maximum number of doorbells of a path.
    pub(crate) const COUNT: usize = 64;

    /// Returns the numbers of the doorbells that are set in `bits`.
    pub(crate) fn numbers(mut bits: u64) -> impl Iterator<Item = u32> {
        core::iter::from_fn(move || {
            let first = bits.trailing_zeros();
            bits &= bits.checked_sub(1)?;
            Some(first)
        })
    }

    /// Returns the bit of a doorbell, or 0 if the number is too large.
    pub(crate) fn bit(doorbell: u32) -> u64 {
        1u64.checked_shl(doorbell).unwrap_or(0)
    }
}
