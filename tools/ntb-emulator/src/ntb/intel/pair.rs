// SPDX-License-Identifier: GPL-2.0
//! The registers of both ends of a back to back pair.

use super::gen3;
use super::gen5;
use super::identity::Identity;
use super::registers::Registers;
use crate::ntb::line::Line;

/// The registers of both ends.
pub(in crate::ntb) struct Pair {
    pub(super) identity: &'static Identity,
    pub(super) ends: [Registers; 2],
}

impl Pair {
    /// Creates the registers of Skylake.
    pub(in crate::ntb) fn gen3() -> Self {
        Self::new(&gen3::IDENTITY)
    }

    /// Creates the registers of Granite Rapids.
    pub(in crate::ntb) fn gen5() -> Self {
        Self::new(&gen5::IDENTITY)
    }

    fn new(identity: &'static Identity) -> Self {
        let end = || Registers::new(identity.switch);
        Self {
            identity,
            ends: [end(), end()],
        }
    }

    /// Records an event at an end, and interrupts its guest.
    pub(super) fn raise(&mut self, line: &Line<'_>, end: usize, source: usize) {
        if let Some(vector) = self.ends[end].raise(source) {
            line.raise(end, vector);
        }
    }

    /// Rings a doorbell of an end at the other one.
    pub(super) fn ring(&mut self, line: &mut Line<'_>, end: usize, source: usize) {
        if !line.takes_time(end, source) {
            self.raise(line, 1 - end, source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_do_not_overlap() {
        for identity in [&gen3::IDENTITY, &gen5::IDENTITY] {
            let locate = |offset| identity.registers.locate(offset);
            let table = u64::from(identity.msix_table);
            let mut offset = 0;
            while offset < 0x1_0000 {
                let Some(found) = locate(offset) else {
                    offset += 1;
                    continue;
                };
                assert_eq!(found.start, offset, "{found:?}");
                assert_eq!(offset % found.width as u64, 0, "{found:?}");
                for at in 0..found.width as u64 {
                    assert_eq!(locate(offset + at), Some(found));
                }
                // QEMU handles the MSI-X table and the pending bits.
                assert!(!(table..table + 0x2000).contains(&offset));
                offset += found.width as u64;
            }
        }
    }
}
