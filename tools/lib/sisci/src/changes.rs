// SPDX-License-Identifier: LGPL-2.1

//! What has changed in a word: the least part of it is stored, since its neighbours may be another node's to write.

use std::ops::Range;

/// The least part of a word, as processors store, that has all that changed in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One byte, and which.
    Byte(usize),
    /// 16 bits, and which.
    Short(usize),
    /// 32 bits, and which.
    Half(usize),
    /// All of it.
    Word,
}

impl Part {
    /// Of bits that differ; the least significant is in the first byte.
    pub fn of(changed: u64) -> Self {
        let first = changed.trailing_zeros() as usize / 8;
        let last = (63 - changed.leading_zeros() as usize) / 8;
        if first == last {
            Self::Byte(first)
        } else if first / 2 == last / 2 {
            Self::Short(first / 2)
        } else if first / 4 == last / 4 {
            Self::Half(first / 4)
        } else {
            Self::Word
        }
    }

    /// Where its bytes are, of a word that begins at `word`.
    pub fn bytes(self, word: usize) -> Range<usize> {
        let (size, index) = match self {
            Self::Byte(index) => (1, index),
            Self::Short(index) => (2, index),
            Self::Half(index) => (4, index),
            Self::Word => (8, 0),
        };
        let start = word + size * index;
        start..start + size
    }

    /// Stores it.
    ///
    /// # Safety
    ///
    /// The word can be written to.
    pub unsafe fn store(self, word: *mut u64, value: u64) {
        // SAFETY: Each part is inside the word, and aligned as the word is.
        unsafe {
            match self {
                Self::Byte(index) => {
                    let part = word.cast::<u8>().add(index);
                    part.write_volatile((value >> (8 * index)) as u8);
                }
                Self::Short(index) => {
                    let part = word.cast::<u16>().add(index);
                    part.write_volatile((value >> (16 * index)) as u16);
                }
                Self::Half(index) => {
                    let part = word.cast::<u32>().add(index);
                    part.write_volatile((value >> (32 * index)) as u32);
                }
                Self::Word => word.write_volatile(value),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(before: u64, now: u64, there: u64) -> u64 {
        let mut word = there;
        // SAFETY: It is a word of this function.
        unsafe { Part::of(before ^ now).store(&raw mut word, now) };
        word
    }

    #[test]
    fn a_part_is_where_it_is_stored() {
        for changed in [
            1,
            0x0300,
            0x00ff_ff00,
            0xff << 40,
            0xffff << 48,
            1 | (1 << 63),
        ] {
            let part = Part::of(changed);
            let mut word = 0;
            // SAFETY: It is a word of this function.
            unsafe { part.store(&raw mut word, u64::MAX) };
            for byte in 0..8 {
                let is_stored = word.to_le_bytes()[byte] != 0;
                assert_eq!(part.bytes(16).contains(&(16 + byte)), is_stored, "{part:?}");
            }
        }
    }

    #[test]
    fn neighbours_are_left_alone() {
        // Two halves, of two nodes.
        assert_eq!(stored(0, 1, 7 << 32), (7 << 32) | 1);
        assert_eq!(stored(0, 0x1234_5678 << 32, 7), (0x1234_5678 << 32) | 7);
        // A byte each.
        assert_eq!(stored(0, 0x0300, 0x11_0022), 0x11_0322);
        // What was changed whole arrives whole.
        assert_eq!(stored(0x00ff, 0x0100, 0), 0x0100);
        assert_eq!(stored(0, u64::MAX, 5), u64::MAX);
        assert_eq!(Part::of(0x00ff_ff00), Part::Half(0));
        assert_eq!(Part::of(1 | (1 << 63)), Part::Word);
    }
}
