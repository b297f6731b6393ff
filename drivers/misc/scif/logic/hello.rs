// SPDX-License-Identifier: GPL-2.0

//! What two nodes tell each other through the scratchpads before they can talk.
//!
//! Each side writes thirteen 32-bit words into the scratchpads that the other side reads:
//!
//! ```text
//!  0     magic and protocol version
//!  1     nonce      this side's session, never zero; a new one for each attempt
//!  2     echo       the nonce of the other side that this one has seen, or zero
//!  3     node id (low 16), index of the NTB memory window that is the aperture (bits 16-23),
//!        size of a page, as the number of its address bits (bits 24-31)
//!  4-5   generation of the node: random, new at each load of the module
//!  6-7   bus address of this side's control block
//!  8-9   bus address at which the aperture over this side's memory begins
//! 10-11  length of that aperture
//! 12     checksum of words 0 to 11
//! ```
//!
//! A session exists when each has seen its own nonce echoed. A side that starts a new session with
//! a new nonce no longer writes to the memory of an older one: that is what makes it safe to free
//! memory of a session that ended without a word. Words are not written at once, so a reader may
//! see half of an update: the checksum tells, and the bell that follows the update makes it look
//! again.

/// Words of a hello.
pub(crate) const WORDS: usize = 13;

const MAGIC_AND_VERSION: u32 = 0x5c1f_0000 | super::wire::VERSION as u32;

/// One side's half of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) nonce: u32,
    pub(crate) echo: u32,
    pub(crate) node: u16,
    pub(crate) window: u8,
    /// In the units of which extents are told.
    pub(crate) page_shift: u8,
    pub(crate) generation: u64,
    pub(crate) control: u64,
    pub(crate) aperture_base: u64,
    pub(crate) aperture_len: u64,
}

/// Why scratchpads hold no hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHello {
    /// Nothing, or something else, or half of one.
    Absent,
    /// A node that speaks another version of the protocol.
    Version(u16),
}

fn low(value: u64) -> u32 {
    value as u32
}

fn high(value: u64) -> u32 {
    (value >> 32) as u32
}

fn join(low: u32, high: u32) -> u64 {
    (u64::from(high) << 32) | u64::from(low)
}

/// FNV-1a over the words: finds torn updates and stray values, not forgeries.
fn checksum(words: &[u32]) -> u32 {
    words.iter().fold(0x811c_9dc5, |sum: u32, word| {
        (sum ^ word).wrapping_mul(0x0100_0193).rotate_left(5)
    })
}

impl Hello {
    /// As words for the scratchpads.
    pub(crate) fn encode(&self) -> [u32; WORDS] {
        let body = [
            MAGIC_AND_VERSION,
            self.nonce,
            self.echo,
            u32::from(self.node)
                | (u32::from(self.window) << 16)
                | (u32::from(self.page_shift) << 24),
            low(self.generation),
            high(self.generation),
            low(self.control),
            high(self.control),
            low(self.aperture_base),
            high(self.aperture_base),
            low(self.aperture_len),
            high(self.aperture_len),
        ];
        let mut words = [0; WORDS];
        for (word, value) in words
            .iter_mut()
            .zip(body.into_iter().chain([checksum(&body)]))
        {
            *word = value;
        }
        words
    }

    /// From the words of the scratchpads.
    pub(crate) fn decode(words: &[u32; WORDS]) -> Result<Self, NoHello> {
        let [magic, nonce, echo, ids, generation_low, generation_high, control_low, control_high, base_low, base_high, len_low, len_high, sum] =
            *words;
        let (body, _) = words.split_at(WORDS - 1);
        if magic >> 16 != MAGIC_AND_VERSION >> 16 || sum != checksum(body) || nonce == 0 {
            return Err(NoHello::Absent);
        }
        if magic != MAGIC_AND_VERSION {
            return Err(NoHello::Version(magic as u16));
        }
        let hello = Self {
            nonce,
            echo,
            node: ids as u16,
            window: (ids >> 16) as u8,
            page_shift: (ids >> 24) as u8,
            generation: join(generation_low, generation_high),
            control: join(control_low, control_high),
            aperture_base: join(base_low, base_high),
            aperture_len: join(len_low, len_high),
        };
        if hello
            .aperture_base
            .checked_add(hello.aperture_len)
            .is_none()
        {
            return Err(NoHello::Absent);
        }
        Ok(hello)
    }
}
