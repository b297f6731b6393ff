// SPDX-License-Identifier: LGPL-2.1

//! The changed part of a word. Only the smallest part is stored, since its neighbours may be
//! another node's to write.

use std::ops::Range;

/// The smallest part of a word that contains all changes and that CPUs can store at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One byte, by its index.
    Byte(usize),
    /// 16 bits, by their index.
    Short(usize),
    /// 32 bits, by their index.
    Half(usize),
    /// The whole word.
    Word,
}

impl Part {
    /// Returns the part that contains the changed bits. The least significant bit is in the first
    /// byte.
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

    /// Returns the bytes of the part, for a word at offset `word`.
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

    /// Stores the part of `value`.
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
        // SAFETY: The word is a variable of this function.
        unsafe { Part::of(before ^ now).store(&raw mut word, now) };
        word
    }

    #[test]
    fn part_reports_the_bytes_that_it_stores() {
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
            // SAFETY: The word is a variable of this function.
            unsafe { part.store(&raw mut word, u64::MAX) };
            for byte in 0..8 {
                let is_stored = word.to_le_bytes()[byte] != 0;
                assert_eq!(part.bytes(16).contains(&(16 + byte)), is_stored, "{part:?}");
            }
        }
    }

    #[test]
    fn storing_changed_bytes_keeps_adjacent_bytes() {
        // Two halves, of two nodes.
        assert_eq!(stored(0, 1, 7 << 32), (7 << 32) | 1);
        assert_eq!(stored(0, 0x1234_5678 << 32, 7), (0x1234_5678 << 32) | 7);
        // A byte each.
        assert_eq!(stored(0, 0x0300, 0x11_0022), 0x11_0322);
        // A word that was changed as a whole arrives as a whole.
        assert_eq!(stored(0x00ff, 0x0100, 0), 0x0100);
        assert_eq!(stored(0, u64::MAX, 5), u64::MAX);
        assert_eq!(Part::of(0x00ff_ff00), Part::Half(0));
        assert_eq!(Part::of(1 | (1 << 63)), Part::Word);
    }
}
