// SPDX-License-Identifier: GPL-2.0

//! What an administrator has chosen for all connections.
//!
//! Some of it he can change at any time (`sys/tunables.rs`): it is fixed here for tests only.

use kernel::time::Delta;

/// See the head of this file.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    /// Bytes of a receive ring, at most: a power of two.
    pub(crate) ring_size: u32,
    /// How long a call that has to wait stays awake at most; none for as long as he says then.
    pub(crate) busy_poll: Option<Delta>,
    /// Up to how many bytes a transfer goes by the processor; none for what he says then.
    pub(crate) dma_threshold: Option<u64>,
}
