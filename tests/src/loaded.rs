// SPDX-License-Identifier: GPL-2.0
//! How a test wants the module: in which state the nodes are when it starts.

/// Whether the nodes of a lab have the module loaded when a test starts, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loaded {
    /// It is not.
    No,
    /// It is, with a heartbeat timeout so long that a peer is not given up on a busy machine:
    /// for tests that are not about that.
    LongHeartbeat,
    /// It is, with the heartbeat that users have; a longer one on a machine that is too slow
    /// for it, see `heartbeat`.
    AsUsual,
}
