// SPDX-License-Identifier: LGPL-2.1

//! What happens to segments: `sci_segment_cb_reason_t`.

/// See the head of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// Somebody has connected; or this side has, asynchronously.
    Connect = 1,
    /// Somebody has disconnected; or the connection was refused, or is no longer wanted.
    Disconnect = 2,
    /// The way to the node is away.
    NotOperational = 3,
    /// It is back.
    Operational = 4,
    /// For good.
    Lost = 5,
}

impl Reason {
    /// As C sees it.
    pub fn number(self) -> u32 {
        self as u32
    }
}
