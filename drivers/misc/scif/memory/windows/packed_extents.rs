// SPDX-License-Identifier: GPL-2.0

//! The packed extents of a window on their way to the peer: the first in the offer, the others in annexes.

use crate::logic::{
    control_block::Annex,
    messages::EXTENTS_IN_OFFER, //
};
use kernel::prelude::*;

/// See the head of this file.
pub(super) struct PackedExtents<I> {
    extents: I,
    annex: Annex,
}

impl<I: Iterator<Item = Option<u64>>> PackedExtents<I> {
    pub(super) fn new(extents: I) -> Self {
        Self {
            extents,
            annex: Annex::new(),
        }
    }

    /// Takes those that go into the offer. EINVAL for one that could not be packed.
    pub(super) fn first(&mut self) -> Result<[u64; EXTENTS_IN_OFFER]> {
        let mut first = [0; EXTENTS_IN_OFFER];
        for place in &mut first {
            let Some(extent) = self.extents.next() else {
                break;
            };
            *place = extent.ok_or(EINVAL)?;
        }
        Ok(first)
    }

    /// Takes the next ones, as many as an annex holds; none if there are no more. Errors as above.
    pub(super) fn next(&mut self) -> Result<&Annex> {
        self.annex.clear();
        while !self.annex.is_full() {
            let Some(extent) = self.extents.next() else {
                break;
            };
            self.annex.push(extent.ok_or(EINVAL)?);
        }
        Ok(&self.annex)
    }
}

#[kunit_tests(scif_memory_packed_extents)]
mod tests {
    use super::*;
    use crate::logic::control_block::ANNEX_WORDS;

    #[test]
    fn all_come_in_order() -> Result {
        let all = (0..2 * ANNEX_WORDS as u64 + 1).map(Some);
        let mut packed = PackedExtents::new(all);
        assert_eq!(packed.first()?, [0, 1]);
        assert!(packed.next()?.words().eq(2..ANNEX_WORDS as u64 + 2));
        assert!(packed
            .next()?
            .words()
            .eq(ANNEX_WORDS as u64 + 2..2 * ANNEX_WORDS as u64 + 1));
        assert_eq!(packed.next()?.count(), 0);
        Ok(())
    }

    #[test]
    fn few_need_no_annex() -> Result {
        let mut packed = PackedExtents::new([Some(7)].into_iter());
        assert_eq!(packed.first()?, [7, 0]);
        assert!(packed.next()?.as_bytes().is_empty());
        Ok(())
    }

    #[test]
    fn what_can_not_be_packed_is_said() -> Result {
        let mut packed = PackedExtents::new([None].into_iter());
        assert_eq!(packed.first().err(), Some(EINVAL));
        let mut packed = PackedExtents::new([Some(1), Some(2), None].into_iter());
        packed.first()?;
        assert!(matches!(packed.next(), Err(EINVAL)));
        Ok(())
    }
}
