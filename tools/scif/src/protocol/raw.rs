// SPDX-License-Identifier: GPL-2.0

//! Messages to measure with: what both sides have to know of them before they come, as they
//! have no header.

use super::fields::Fields;
use super::fields::Malformed;
use super::fields::Out;

const BACK: u32 = 1;
const POLLING: u32 = 2;

/// Messages without a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw {
    /// The bytes of each.
    pub size: u32,
    /// How many there are.
    pub count: u64,
    /// Each is sent back before the next one comes.
    pub back: bool,
    /// The server never sleeps while it waits for one.
    pub polling: bool,
}

impl Raw {
    /// The largest message.
    pub const LARGEST: u32 = 64 << 20;

    /// Puts it into a message.
    pub fn encode(&self, out: &mut Out) {
        out.u32(self.size);
        out.u64(self.count);
        let back = if self.back { BACK } else { 0 };
        out.u32(back | if self.polling { POLLING } else { 0 });
    }

    /// Takes it out of a message; its size is in bounds then.
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
