// SPDX-License-Identifier: GPL-2.0
//! The descriptor of the PLX DMA engine: 16 bytes in the guest's memory.
//!
//! Decoding cannot fail: every bit pattern means some copy, and whether its addresses
//! lead anywhere is found out by executing it.

/// The size of a descriptor in bytes.
pub const SIZE: u64 = 16;

const VALID: u32 = 1 << 31;
const INTERRUPT_WHEN_DONE: u32 = 1 << 30;
const SUCCESS: u32 = 1 << 30;
const READ_FAILED: u32 = 1 << 29;
const WRITE_FAILED: u32 = 1 << 28;
const SIZE_MASK: u32 = 0x07ff_ffff;

/// A copy that the guest wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// From where.
    pub source: u64,
    /// To where.
    pub destination: u64,
    /// How many bytes.
    pub length: u32,
    /// Whether to interrupt the guest afterwards.
    pub interrupt: bool,
}

/// How a copy ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All of it is done.
    Done,
    /// The source could not be read.
    ReadFailed,
    /// The destination could not be written.
    WriteFailed,
}

/// Whether a first word belongs to a descriptor that is the engine's to execute.
pub fn is_valid(flags: u32) -> bool {
    flags & VALID != 0
}

impl Descriptor {
    /// Takes a descriptor apart.
    pub fn decode(raw: [u8; SIZE as usize]) -> Self {
        let word = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let half = |at: usize| u64::from(u16::from_le_bytes([raw[at], raw[at + 1]]));
        let flags = word(0);
        Self {
            destination: (half(4) << 32) | u64::from(word(8)),
            source: (half(6) << 32) | u64::from(word(12)),
            length: flags & SIZE_MASK,
            interrupt: flags & INTERRUPT_WHEN_DONE != 0,
        }
    }

    /// Puts a valid descriptor together, as a guest does.
    pub fn encode(&self) -> [u8; SIZE as usize] {
        let mut flags = VALID | (self.length & SIZE_MASK);
        if self.interrupt {
            flags |= INTERRUPT_WHEN_DONE;
        }
        let mut raw = [0; SIZE as usize];
        raw[0..4].copy_from_slice(&flags.to_le_bytes());
        raw[4..6].copy_from_slice(&self.destination.to_le_bytes()[4..6]);
        raw[6..8].copy_from_slice(&self.source.to_le_bytes()[4..6]);
        raw[8..12].copy_from_slice(&self.destination.to_le_bytes()[..4]);
        raw[12..16].copy_from_slice(&self.source.to_le_bytes()[..4]);
        raw
    }
}

/// The first word as the engine writes it back: no longer valid, with the bytes done.
pub fn written_back(outcome: Outcome, done: u32) -> u32 {
    let status = match outcome {
        Outcome::Done => SUCCESS,
        Outcome::ReadFailed => READ_FAILED,
        Outcome::WriteFailed => WRITE_FAILED,
    };
    status | (done & SIZE_MASK)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_layout_of_the_driver() {
        let mut raw = [0; 16];
        raw[0..4].copy_from_slice(&0xc000_1000u32.to_le_bytes());
        raw[4..6].copy_from_slice(&0x1234u16.to_le_bytes());
        raw[6..8].copy_from_slice(&0xabcdu16.to_le_bytes());
        raw[8..12].copy_from_slice(&0x5678_9abcu32.to_le_bytes());
        raw[12..16].copy_from_slice(&0x1122_3344u32.to_le_bytes());
        let descriptor = Descriptor::decode(raw);
        assert_eq!(
            descriptor,
            Descriptor {
                source: 0xabcd_1122_3344,
                destination: 0x1234_5678_9abc,
                length: 0x1000,
                interrupt: true,
            }
        );
        assert_eq!(descriptor.encode(), raw);
        assert_eq!(written_back(Outcome::Done, 0x1000), 0x4000_1000);
        assert_eq!(written_back(Outcome::ReadFailed, 1), 0x2000_0001);
        assert_eq!(written_back(Outcome::WriteFailed, 0), 0x1000_0000);
    }

    proptest! {
        #[test]
        fn any_bits_decode_and_come_back(mut raw: [u8; 16]) {
            let again = Descriptor::decode(raw).encode();
            // Valid is set, the undefined bits are not kept.
            raw[3] = (raw[3] & 0x47) | 0x80;
            prop_assert_eq!(again, raw);
        }

        #[test]
        fn never_valid_after_write_back(done: u32) {
            for outcome in [Outcome::Done, Outcome::ReadFailed, Outcome::WriteFailed] {
                prop_assert!(!is_valid(written_back(outcome, done)));
            }
        }
    }
}
