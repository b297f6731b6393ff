// SPDX-License-Identifier: GPL-2.0

//! The window of a receiver, as the receiver tells its peer.

use super::fields::Fields;
use super::fields::Malformed;
use super::fields::Out;

/// The window for the content: buffers of equal size, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The offset of the window in the receiver's registered address space.
    pub offset: i64,
    /// The size of a buffer.
    pub buffer: u32,
    /// Number of buffers.
    pub buffers: u32,
}

impl Window {
    /// The smallest buffer, a page.
    pub const SMALLEST: u32 = 4096;
    /// The largest buffer.
    pub const LARGEST: u32 = 64 << 20;
    /// Largest number of buffers.
    pub const MOST: u32 = 64;

    /// Returns the offset of buffer `sequence`, counted around.
    pub fn start(&self, sequence: u64) -> i64 {
        // `check` bounds both factors, and so the sum.
        let index = (sequence % u64::from(self.buffers)) as i64;
        self.offset + index * i64::from(self.buffer)
    }

    /// Encodes the window into a message.
    pub fn encode(&self, out: &mut Out) {
        out.bytes(&self.offset.to_le_bytes());
        out.u32(self.buffer);
        out.u32(self.buffers);
    }

    /// Decodes a window from a message. The result is in bounds.
    pub fn decode(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        Self {
            offset: i64::from_le_bytes(fields.array()?),
            buffer: fields.u32()?,
            buffers: fields.u32()?,
        }
        .check()
    }

    fn check(self) -> Result<Self, Malformed> {
        let bounded = (Self::SMALLEST..=Self::LARGEST).contains(&self.buffer)
            && (1..=Self::MOST).contains(&self.buffers);
        let end = i64::from(self.buffer)
            .checked_mul(self.buffers.into())
            .and_then(|size| size.checked_add(self.offset));
        if bounded && self.offset >= 0 && end.is_some() {
            Ok(self)
        } else {
            Err(Malformed("a window out of bounds"))
        }
    }
}
