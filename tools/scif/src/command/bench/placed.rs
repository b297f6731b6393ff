// SPDX-License-Identifier: GPL-2.0

//! Memory for copies to or from a mapping, at a place where copies are as fast as possible.
//!
//! Mappings of such sizes often begin at the same place modulo a large power of two. Then each byte
//! and its copy have the same place, too. A cache that is indexed by such places, as the
//! translation cache of an emulated CPU, then has both in one entry, and a copy takes several times
//! as long. So this memory is moved away from that place by an odd number of pages. The program
//! that it is compared with (`tests/programs/raw_reference.c`) does the same.

/// The number of bytes after which places are the same for such a cache.
const SPAN: usize = 64 << 12;

/// The distance of both places, modulo [`SPAN`].
const APART: usize = 13 << 12;

/// Memory beside a mapping.
#[derive(Debug, Default)]
pub struct Placed {
    memory: Vec<u8>,
    start: usize,
    size: usize,
}

impl Placed {
    /// Allocates `size` bytes for copies to or from the mapping at `address`.
    pub fn beside(address: usize, size: usize) -> Self {
        let memory = vec![0xa5; size + SPAN];
        let wanted = address.wrapping_add(APART);
        let start = wanted.wrapping_sub(memory.as_ptr() as usize) % SPAN;
        Self {
            memory,
            start,
            size,
        }
    }

    /// Returns the bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placed_buffer_lies_at_a_fixed_distance() {
        for address in [0, 0x7f12_3456_7000, 0x7fff_ffff_f000] {
            let mut placed = Placed::beside(address, 100_000);
            assert_eq!(placed.bytes().len(), 100_000);
            let start = placed.bytes().as_ptr() as usize;
            assert_eq!(start.wrapping_sub(address) % SPAN, APART);
        }
    }
}
