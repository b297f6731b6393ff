// SPDX-License-Identifier: GPL-2.0
//! The descriptor of the PLX DMA engine: 16 bytes in the guest's memory.
//!
//! Decoding can't fail: every bit pattern means some copy. Executing the copy finds out whether its
//! addresses lead anywhere.

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
    /// The source address.
    pub source: u64,
    /// The destination address.
    pub destination: u64,
    /// Number of bytes.
    pub length: u32,
    /// Whether to interrupt the guest afterwards.
    pub interrupt: bool,
}

/// The outcome of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All bytes were copied.
    Done,
    /// The source could not be read.
    ReadFailed,
    /// The destination could not be written.
    WriteFailed,
}

/// Returns whether this first word belongs to a descriptor that the engine may execute.
pub fn is_valid(flags: u32) -> bool {
    flags & VALID != 0
}

impl Descriptor {
    /// Decodes a descriptor.
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

    /// Encodes a valid descriptor, as a guest does.
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

/// Returns the first word that the engine writes back: not valid any more, with the number of bytes
/// done.
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
    fn descriptor_layout_matches_the_driver() {
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
        fn any_descriptor_bits_decode_and_encode_back(mut raw: [u8; 16]) {
            let again = Descriptor::decode(raw).encode();
            // The valid bit is set, and the undefined bits are not kept.
            raw[3] = (raw[3] & 0x47) | 0x80;
            prop_assert_eq!(again, raw);
        }

        #[test]
        fn written_back_descriptor_is_not_valid(done: u32) {
            for outcome in [Outcome::Done, Outcome::ReadFailed, Outcome::WriteFailed] {
                prop_assert!(!is_valid(written_back(outcome, done)));
            }
        }
    }
}
