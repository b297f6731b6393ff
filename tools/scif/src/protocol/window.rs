// SPDX-License-Identifier: GPL-2.0

//! The window of a receiver, as its peer is told of it.

use super::fields::Fields;
use super::fields::Malformed;
use super::fields::Out;

/// Where a receiver wants the content: buffers of equal size, one after the other, in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Where the window starts in the receiver's registered address space.
    pub offset: i64,
    /// The size of a buffer.
    pub buffer: u32,
    /// How many there are.
    pub buffers: u32,
}

impl Window {
    /// The smallest buffer, a page.
    pub const SMALLEST: u32 = 4096;
    /// The largest buffer.
    pub const LARGEST: u32 = 64 << 20;
    /// The most buffers.
    pub const MOST: u32 = 64;

    /// Where buffer `sequence`, counted around, starts.
    pub fn start(&self, sequence: u64) -> i64 {
        // Both factors are bounded by `check`, and so is the sum.
        let index = (sequence % u64::from(self.buffers)) as i64;
        self.offset + index * i64::from(self.buffer)
    }

    /// Puts it into a message.
    pub fn encode(&self, out: &mut Out) {
        out.bytes(&self.offset.to_le_bytes());
        out.u32(self.buffer);
        out.u32(self.buffers);
    }

    /// Takes it out of a message; it is in bounds then.
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
