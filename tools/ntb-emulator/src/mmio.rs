// SPDX-License-Identifier: GPL-2.0
//! Accesses of any size and alignment to a block of registers.
//!
//! A guest may read a 64-bit register in two halves, or two 16-bit registers at once. This module
//! splits every access into accesses of single registers. So a register model only says where its
//! registers are and what each of them does. The space between registers reads as zero and ignores
//! writes.

/// The place of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located<R> {
    /// The register.
    pub register: R,
    /// The offset of its first byte.
    pub start: u64,
    /// The size in bytes, 1 to 8.
    pub width: usize,
}

/// A block of registers.
pub trait RegisterBlock {
    /// The type that names a register.
    type Register: Copy;

    /// Returns the register that holds the byte at `offset`.
    fn locate(&self, offset: u64) -> Option<Located<Self::Register>>;

    /// Returns the value of a register.
    fn read(&mut self, register: Self::Register) -> u64;

    /// Writes a register. `mask` has the bits set that the access covers; all other bits of `value`
    /// are zero.
    fn write(&mut self, register: Self::Register, value: u64, mask: u64);
}

/// Combines a partial write with the former value of a plain register.
pub fn merge(old: u64, value: u64, mask: u64) -> u64 {
    (old & !mask) | (value & mask)
}

/// Reads `data.len()` bytes at `offset`.
pub fn read<B: RegisterBlock>(block: &mut B, offset: u64, data: &mut [u8]) {
    walk(
        block,
        offset,
        data.len(),
        |block, at, found, skip, count| {
            let target = &mut data[at..at + count];
            match found {
                Some(register) => {
                    let bytes = block.read(register).to_le_bytes();
                    target.copy_from_slice(&bytes[skip..skip + count]);
                }
                None => target.fill(0),
            }
        },
    );
}

/// Writes `data` at `offset`.
pub fn write<B: RegisterBlock>(block: &mut B, offset: u64, data: &[u8]) {
    walk(
        block,
        offset,
        data.len(),
        |block, at, found, skip, count| {
            if let Some(register) = found {
                let mut value = [0; 8];
                let mut mask = [0; 8];
                value[skip..skip + count].copy_from_slice(&data[at..at + count]);
                mask[skip..skip + count].fill(0xff);
                block.write(
                    register,
                    u64::from_le_bytes(value),
                    u64::from_le_bytes(mask),
                );
            }
        },
    );
}

/// Calls `visit(block, position in the access, register, first byte of the register, bytes)` for
/// each register touched, and for each byte that belongs to none.
fn walk<B: RegisterBlock>(
    block: &mut B,
    offset: u64,
    length: usize,
    mut visit: impl FnMut(&mut B, usize, Option<B::Register>, usize, usize),
) {
    let mut at = 0;
    while at < length {
        let Some(position) = offset.checked_add(at as u64) else {
            visit(block, at, None, 0, length - at);
            return;
        };
        match block.locate(position) {
            Some(found) => {
                let skip = (position - found.start) as usize;
                let count = (found.width - skip).min(length - at);
                visit(block, at, Some(found.register), skip, count);
                at += count;
            }
            None => {
                visit(block, at, None, 0, 1);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 64-bit register at 0, two 16-bit registers at 8 and 10, and a hole behind them.
    #[derive(Default)]
    struct Block {
        values: [u64; 3],
    }

    impl RegisterBlock for Block {
        type Register = usize;

        fn locate(&self, offset: u64) -> Option<Located<usize>> {
            let (register, start, width) = match offset {
                0..8 => (0, 0, 8),
                8..10 => (1, 8, 2),
                10..12 => (2, 10, 2),
                _ => return None,
            };
            Some(Located {
                register,
                start,
                width,
            })
        }

        fn read(&mut self, register: usize) -> u64 {
            self.values[register]
        }

        fn write(&mut self, register: usize, value: u64, mask: u64) {
            self.values[register] = merge(self.values[register], value, mask);
        }
    }

    #[test]
    fn partial_accesses_reach_adjacent_registers() {
        let mut block = Block::default();
        write(&mut block, 0, &0x1122_3344u32.to_le_bytes());
        write(&mut block, 4, &0x5566_7788u32.to_le_bytes());
        assert_eq!(block.values[0], 0x5566_7788_1122_3344);
        write(&mut block, 8, &0xaaaa_bbbbu32.to_le_bytes());
        assert_eq!(block.values[1..], [0xbbbb, 0xaaaa]);
        let mut data = [0xff; 8];
        read(&mut block, 6, &mut data);
        assert_eq!(data, [0x66, 0x55, 0xbb, 0xbb, 0xaa, 0xaa, 0, 0]);
    }

    #[test]
    fn access_at_the_end_of_the_address_space_does_not_panic() {
        let mut data = [0xff; 4];
        read(&mut Block::default(), u64::MAX, &mut data);
        assert_eq!(data, [0; 4]);
        write(&mut Block::default(), u64::MAX - 1, &data);
    }
}
