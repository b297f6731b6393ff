// SPDX-License-Identifier: GPL-2.0

//! Messages for measurements. They have no header, so both sides must know their number and size
//! before.

use super::fields::Fields;
use super::fields::Malformed;
use super::fields::Out;

const BACK: u32 = 1;
const POLLING: u32 = 2;

/// Messages without a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw {
    /// The size of each in bytes.
    pub size: u32,
    /// Number of messages.
    pub count: u64,
    /// Whether each is sent back before the next one comes.
    pub back: bool,
    /// Whether the server polls while it waits for a message.
    pub polling: bool,
}

impl Raw {
    /// The largest message.
    pub const LARGEST: u32 = 64 << 20;

    /// Encodes the value into a message.
    pub fn encode(&self, out: &mut Out) {
        out.u32(self.size);
        out.u64(self.count);
        let back = if self.back { BACK } else { 0 };
        out.u32(back | if self.polling { POLLING } else { 0 });
    }

    /// Decodes a value from a message. The size of the result is in bounds.
    pub fn decode(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let (size, count, flags) = (fields.u32()?, fields.u64()?, fields.u32()?);
        if !(1..=Self::LARGEST).contains(&size) || flags & !(BACK | POLLING) != 0 {
            return Err(Malformed("messages to measure with that cannot be"));
        }
        Ok(Self {
            size,
            count,
            back: flags & BACK != 0,
            polling: flags & POLLING != 0,
        })
    }
}
