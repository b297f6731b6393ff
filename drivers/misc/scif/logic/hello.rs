// SPDX-License-Identifier: GPL-2.0

//! The hello: words that two nodes exchange through the scratchpads before they have a session.
//!
//! Each side writes fifteen 32-bit words into the scratchpads that the other side reads:
//!
//! ```text
//!  0     magic and protocol version
//!  1     nonce      this side's session, never zero; a new one for each attempt
//!  2     echo       the nonce of the other side that this one has seen, or zero
//!  3     node id (low 16), size of a page, as the number of its address bits (bits 24-31)
//!  4-5   generation of the node: random, new at each load of the module
//!  6-7   bus address of this side's control block
//!  8-9   bus address at which the aperture over this side's memory begins
//! 10-11  length of that aperture
//! 12     mode of the aperture over this side's memory (bits 0-7, see [`Mode`]); the NTB memory windows
//!        that form it, a bit for each, in the order of their numbers (bits 16-31)
//! 13     zero
//! 14     checksum of words 0 to 13
//! ```
//!
//! The first word says how the others are to be read, so it is checked first. Unused bits are zero,
//! and ignored.
//!
//! A session exists when each side has seen its own nonce echoed. A side that starts a new session
//! with a new nonce no longer writes to the memory of an older one. So memory of a session that
//! ended without a farewell can then be freed. The words are not written at once, so a reader may
//! see half of an update. The checksum detects that, and the doorbell that follows the update makes
//! the reader read again.

/// Number of words of a hello.
pub(crate) const WORDS: usize = 15;

/// The upper half of the first word, in all versions.
pub(crate) const MAGIC: u32 = 0x5c1f;

const MAGIC_AND_VERSION: u32 = (MAGIC << 16) | super::envelope::VERSION as u32;

/// The way in which an aperture leads to the memory behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The aperture covers all memory: bus addresses of the memory are addresses in the aperture.
    Flat = 1,
    /// The aperture covers a range of I/O addresses, into which memory is mapped when it is
    /// registered.
    Arena = 2,
    /// The aperture covers bounce buffers, from which the receiver copies.
    Bounce = 3,
}

impl Mode {
    /// Returns the mode with this number of a hello.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        [Self::Flat, Self::Arena, Self::Bounce]
            .into_iter()
            .find(|mode| mode.number() == number)
    }

    /// Returns the number of the mode in a hello.
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the name of the mode, for the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Arena => "arena",
            Self::Bounce => "bounce",
        }
    }
}

/// One side's half of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) nonce: u32,
    pub(crate) echo: u32,
    pub(crate) node: u16,
    /// Number of address bits of a page, the unit of extents.
    pub(crate) page_shift: u8,
    pub(crate) generation: u64,
    pub(crate) control: u64,
    pub(crate) aperture_base: u64,
    pub(crate) aperture_len: u64,
    /// The number of the [`Mode`] of the aperture over the sender's memory.
    pub(crate) mode: u8,
    /// The bits of the [`WindowSet`](super::window_set::WindowSet) that is the aperture.
    pub(crate) windows: u16,
}

/// The reason why scratchpads hold no hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHello {
    /// They hold nothing, other contents, or a partial hello.
    Absent,
    /// They hold a hello of another version of the protocol.
    Version(u16),
}

fn join(low: u32, high: u32) -> u64 {
    (u64::from(high) << 32) | u64::from(low)
}

/// Computes FNV-1a over the words. It detects partial updates and stray values, not forgeries.
fn checksum(words: &[u32]) -> u32 {
    words.iter().fold(0x811c_9dc5, |sum: u32, word| {
        (sum ^ word).wrapping_mul(0x0100_0193).rotate_left(5)
    })
}

impl Hello {
    /// Encodes the hello as words for the scratchpads.
    pub(crate) fn encode(&self) -> [u32; WORDS] {
        let mut words = [
            MAGIC_AND_VERSION,
            self.nonce,
            self.echo,
            u32::from(self.node) | (u32::from(self.page_shift) << 24),
            self.generation as u32,
            (self.generation >> 32) as u32,
            self.control as u32,
            (self.control >> 32) as u32,
            self.aperture_base as u32,
            (self.aperture_base >> 32) as u32,
            self.aperture_len as u32,
            (self.aperture_len >> 32) as u32,
            u32::from(self.mode) | (u32::from(self.windows) << 16),
            0,
            0,
        ];
        let [body @ .., sum] = &mut words;
        *sum = checksum(body);
        words
    }

    /// Decodes a hello from the words of the scratchpads.
    pub(crate) fn decode(words: &[u32; WORDS]) -> Result<Self, NoHello> {
        let [magic, nonce, echo, ids, generation_low, generation_high, control_low, control_high, base_low, base_high, len_low, len_high, modes, _, sum] =
            *words;
        let (body, _) = words.split_at(WORDS - 1);
        if magic >> 16 != MAGIC {
            return Err(NoHello::Absent);
        }
        // The place of the checksum in another version is unknown, so it is not checked.
        if magic != MAGIC_AND_VERSION {
            return Err(NoHello::Version(magic as u16));
        }
        if sum != checksum(body) || nonce == 0 {
            return Err(NoHello::Absent);
        }
        let hello = Self {
            nonce,
            echo,
            node: ids as u16,
            page_shift: (ids >> 24) as u8,
            generation: join(generation_low, generation_high),
            control: join(control_low, control_high),
            aperture_base: join(base_low, base_high),
            aperture_len: join(len_low, len_high),
            mode: modes as u8,
            windows: (modes >> 16) as u16,
        };
        let end = hello.aperture_base.checked_add(hello.aperture_len);
        if end.is_none() || hello.generation == 0 {
            return Err(NoHello::Absent);
        }
        Ok(hello)
    }
}
