// SPDX-License-Identifier: GPL-2.0

//! How much there is, for people and tools. Numbers only: who counts is in `contact.rs`.

/// What there is with the nodes that are online.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) connections: usize,
    /// Those that are closed here, and wait for the peer's last word.
    pub(crate) closing_connections: usize,
    /// Windows that peers may be using.
    pub(crate) exported_windows: usize,
    /// Of peers' memory, in processes.
    pub(crate) mappings: usize,
}
