// SPDX-License-Identifier: GPL-2.0

//! Memory that is copied to a mapping, or from it, and lies where that is as fast as can be.
//!
//! Where both begin at the same place modulo a large power of two, as mappings of such sizes do by chance, each byte and its
//! copy do so all the way. What finds its entries by such places, as an emulated processor's cache of translations
//! does, then finds both at one, and a copy takes several times as long. So this memory lies an odd number of pages apart
//! from that; what is compared with it (`tests/programs/raw_reference.c`) does, too.

/// Both places are the same as far as these bits of their addresses go.
const SPAN: usize = 64 << 12;

/// How far apart they are, modulo [`SPAN`].
const APART: usize = 13 << 12;

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Placed {
    memory: Vec<u8>,
    start: usize,
    size: usize,
}

impl Placed {
    /// So many bytes, for copies to or from what lies at `address`.
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

    /// Them.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lies_apart() {
        for address in [0, 0x7f12_3456_7000, 0x7fff_ffff_f000] {
            let mut placed = Placed::beside(address, 100_000);
            assert_eq!(placed.bytes().len(), 100_000);
            let start = placed.bytes().as_ptr() as usize;
            assert_eq!(start.wrapping_sub(address) % SPAN, APART);
        }
    }
}
