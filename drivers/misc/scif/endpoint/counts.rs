// SPDX-License-Identifier: GPL-2.0

//! How much there is, for people and tools. Numbers only: who counts is elsewhere.

use crate::{
    memory::windows::Held,
    rma::marks::Progress,
    sync::flow::Moved, //
};

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

/// What one end of a connection has moved, and has.
pub(crate) struct Traffic {
    pub(crate) sent: Moved,
    pub(crate) received: Moved,
    pub(crate) transfers: Progress,
    pub(crate) windows: Held,
}

/// What [`Traffic::fields`] are called, in this order.
pub(crate) const TRAFFIC_FIELDS: [&str; 11] = [
    "sent_bytes",
    "sent_messages",
    "received_bytes",
    "received_messages",
    "written_bytes",
    "written_transfers",
    "read_bytes",
    "read_transfers",
    "in_flight",
    "windows",
    "window_bytes",
];

impl Traffic {
    /// The numbers that every front door shows.
    pub(crate) fn fields(&self) -> [u64; TRAFFIC_FIELDS.len()] {
        let Self {
            sent,
            received,
            transfers,
            windows,
        } = self;
        [
            sent.bytes,
            sent.times,
            received.bytes,
            received.times,
            transfers.written.bytes,
            transfers.written.times,
            transfers.read.bytes,
            transfers.read.times,
            transfers.in_flight,
            windows.windows,
            windows.bytes,
        ]
    }
}
