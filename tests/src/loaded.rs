// SPDX-License-Identifier: GPL-2.0
//! The state of the module that a test needs when it starts.

/// Whether the nodes of a lab have the module loaded when a test starts, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loaded {
    /// The module is not loaded.
    No,
    /// The module is loaded, with such a long heartbeat timeout that no peer is lost on a busy
    /// machine. It serves tests that are not about lost peers.
    LongHeartbeat,
    /// The module is loaded, with the default heartbeat timeout. On a machine that is too slow for
    /// it, the timeout is longer (see `heartbeat`).
    AsUsual,
}
