// SPDX-License-Identifier: LGPL-2.1

//! The events of segments: `sci_segment_cb_reason_t`.

/// The reason of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// An importer has connected; or this side has, asynchronously.
    Connect = 1,
    /// An importer has disconnected; or the connection was refused, or is no longer wanted.
    Disconnect = 2,
    /// The link to the node is down.
    NotOperational = 3,
    /// The link is up again.
    Operational = 4,
    /// The node is lost for good.
    Lost = 5,
}

impl Reason {
    /// Returns the number for C.
    pub fn number(self) -> u32 {
        self as u32
    }
}
