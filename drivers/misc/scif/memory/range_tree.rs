// SPDX-License-Identifier: GPL-2.0

//! Ranges of the registered address space: red-black trees of them, by their starts, and the few that a transfer
//! lies in.

use crate::logic::address_space::{
    Range,
    RangeSource, //
};
use kernel::{
    prelude::*,
    rbtree::RBTree,
    sync::Arc, //
};

/// What has a place in the registered address space.
pub(super) trait Placed {
    fn range(&self) -> Range;
}

impl Placed for Range {
    fn range(&self) -> Range {
        *self
    }
}

impl<T: Placed> Placed for Arc<T> {
    fn range(&self) -> Range {
        (**self).range()
    }
}

impl<V: Placed> RangeSource for RBTree<u64, V> {
    fn at_or_before(&self, offset: u64) -> Option<Range> {
        at_or_before(self, offset).map(Placed::range)
    }

    fn at_or_after(&self, offset: u64) -> Option<Range> {
        self.cursor_lower_bound(&offset)
            .map(|cursor| cursor.current().1.range())
    }
}

/// The entry with the greatest key that is at most `key`.
#[inline]
fn at_or_before<V>(tree: &RBTree<u64, V>, key: u64) -> Option<&V> {
    match tree.cursor_lower_bound(&key) {
        Some(cursor) if *cursor.current().0 == key => tree.get(&key),
        Some(cursor) => {
            let previous = *cursor.peek_prev()?.0;
            tree.get(&previous)
        }
        None => {
            let last = *tree.cursor_back()?.current().0;
            tree.get(&last)
        }
    }
}

/// The entry whose range holds all of `range`, and where in it that begins.
pub(super) fn holder<V: Placed>(tree: &RBTree<u64, V>, range: Range) -> Option<(&V, u64)> {
    let entry = at_or_before(tree, range.start())?;
    let whole = entry.range();
    let offset = range.start().checked_sub(whole.start())?;
    whole.contains(&range).then_some((entry, offset))
}

/// Takes the entry with the least key out.
pub(super) fn take_first<V>(tree: &mut RBTree<u64, V>) -> Option<V> {
    let first = *tree.cursor_front()?.current().0;
    tree.remove(&first)
}

#[kunit_tests(scif_memory_range_tree)]
mod tests {
    use super::*;

    fn range(start: u64, len: u64) -> Result<Range> {
        Range::from_parts(start, len).map_err(|_| EINVAL)
    }

    /// A tree with a range of 5 bytes at each of some places.
    fn tree(starts: &[u64]) -> Result<RBTree<u64, Range>> {
        let mut tree = RBTree::new();
        for &start in starts {
            tree.try_create_and_insert(start, range(start, 5)?, GFP_KERNEL)?;
        }
        Ok(tree)
    }

    #[test]
    fn neighbours_are_found() -> Result {
        let tree = tree(&[20, 10, 30])?;
        let (first, middle, last) = (range(10, 5)?, range(20, 5)?, range(30, 5)?);
        for (offset, before, after) in [
            (0, None, Some(first)),
            (10, Some(first), Some(first)),
            (11, Some(first), Some(middle)),
            (29, Some(middle), Some(last)),
            (30, Some(last), Some(last)),
            (u64::MAX, Some(last), None),
        ] {
            assert!(RangeSource::at_or_before(&tree, offset) == before);
            assert!(RangeSource::at_or_after(&tree, offset) == after);
        }
        Ok(())
    }

    #[test]
    fn a_holder_holds_all() -> Result {
        let tree = tree(&[20, 10, 30])?;
        for (start, len, found) in [
            (10, 5, Some((10, 0))),
            (21, 4, Some((20, 1))),
            (34, 1, Some((30, 4))),
            (9, 2, None),
            (13, 3, None),
            (15, 1, None),
        ] {
            let holder = holder(&tree, range(start, len)?);
            assert_eq!(holder.map(|(entry, at)| (entry.start(), at)), found);
        }
        Ok(())
    }

    #[test]
    fn an_empty_tree_has_none() -> Result {
        let mut tree = tree(&[])?;
        assert!(RangeSource::at_or_before(&tree, 7).is_none());
        assert!(RangeSource::at_or_after(&tree, 7).is_none());
        assert!(take_first(&mut tree).is_none());
        Ok(())
    }

    #[test]
    fn the_first_is_taken_first() -> Result {
        let mut tree = tree(&[20, 10, 30])?;
        for start in [10, 20, 30] {
            assert!(take_first(&mut tree) == Some(range(start, 5)?));
        }
        assert!(tree.is_empty());
        Ok(())
    }
}

/// The address space over a tree of the kernel, as windows are kept.
#[kunit_tests(scif_memory_address_space)]
mod address_space_tests {
    use super::*;
    use crate::logic::address_space::{
        choose_offset,
        covering,
        first_inside,
        overlaps,
        removal,
        Removal,
        LIMIT, //
    };

    fn range(start: u64, len: u64) -> Result<Range> {
        Range::from_parts(start, len).map_err(|_| EINVAL)
    }

    /// Where there is something: 10 to 30 in two pieces, 40 to 50, and 100 to the end.
    fn tree() -> Result<RBTree<u64, Range>> {
        let mut tree = RBTree::new();
        for (start, end) in [(100, LIMIT), (20, 30), (10, 20), (40, 50)] {
            tree.try_create_and_insert(start, range(start, end - start)?, GFP_KERNEL)?;
        }
        Ok(tree)
    }

    #[test]
    fn what_can_be_no_range_is_none() {
        assert!(Range::new(-1, 1).is_err());
        assert!(Range::new(0, 0).is_err());
        assert!(Range::new(i64::MAX, 1).is_err());
        assert!(Range::from_parts(u64::MAX, 2).is_err());
        assert!(Range::from_parts(0, LIMIT).is_ok());
    }

    #[test]
    fn places_are_found_where_there_is_room() -> Result {
        let tree = tree()?;
        for (hint, len, place) in [
            (0, 10, Some(0)),
            (0, 11, Some(50)),
            (10, 10, Some(30)),
            (45, 50, Some(50)),
            // Nothing behind, so from the beginning.
            (100, 10, Some(0)),
            (0, 51, None),
            (0, 0, None),
        ] {
            assert_eq!(choose_offset(&tree, hint, len), place);
        }
        for (start, len, is_taken) in [
            (0, 10, false),
            (0, 11, true),
            (49, 2, true),
            (50, 50, false),
        ] {
            assert_eq!(overlaps(&tree, range(start, len)?), is_taken);
        }
        Ok(())
    }

    #[test]
    fn a_request_is_covered_without_a_gap_or_not_at_all() -> Result {
        let tree = tree()?;
        let mut pieces = covering(&tree, range(15, 10)?).ok_or(EINVAL)?;
        for (start, offset, len) in [(10, 5, 5), (20, 0, 5)] {
            let piece = pieces.next().ok_or(EINVAL)?;
            assert_eq!(
                (piece.range.start(), piece.offset, piece.len),
                (start, offset, len)
            );
        }
        assert!(pieces.next().is_none());
        assert!(covering(&tree, range(15, 30)?).is_none());
        assert!(covering(&tree, range(35, 1)?).is_none());
        Ok(())
    }

    #[test]
    fn ranges_are_removed_whole() -> Result {
        let tree = tree()?;
        assert!(matches!(removal(&tree, range(0, 45)?), Err(Removal::Cuts)));
        assert!(matches!(removal(&tree, range(30, 10)?), Err(Removal::None)));
        assert!(matches!(removal(&tree, range(5, 33)?), Ok(2)));
        assert!(first_inside(&tree, 5, 38) == Some(range(10, 10)?));
        assert!(first_inside(&tree, 20, 38) == Some(range(20, 10)?));
        assert!(first_inside(&tree, 30, 38).is_none());
        Ok(())
    }
}

/// A list that seldom has more than one element, which then takes no memory of its own: the windows that
/// a transfer lies in.
pub(crate) struct Few<T> {
    // Nothing lies in `rest` as long as there is no `first`.
    first: Option<T>,
    rest: KVVec<T>,
}

impl<T> Few<T> {
    /// Without elements.
    pub(crate) const fn new() -> Self {
        Self {
            first: None,
            rest: KVVec::new(),
        }
    }

    /// With one element.
    pub(crate) const fn one(element: T) -> Self {
        Self {
            first: Some(element),
            rest: KVVec::new(),
        }
    }

    /// Appends an element. May sleep.
    pub(crate) fn push(&mut self, element: T) -> Result {
        match self.first {
            None => self.first = Some(element),
            // Nobody pays, for a moment only: locks are held that others need.
            Some(_) => self.rest.push(element, GFP_KERNEL)?,
        }
        Ok(())
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        Iterator::chain(self.first.iter(), self.rest.iter())
    }

    /// As a list for many. May sleep.
    pub(crate) fn into_list(self) -> Result<KVVec<T>> {
        let Some(first) = self.first else {
            return Ok(self.rest);
        };
        let mut list = KVVec::with_capacity(1 + self.rest.len(), GFP_KERNEL)?;
        for element in Iterator::chain(core::iter::once(first), self.rest) {
            list.push(element, GFP_KERNEL)?;
        }
        Ok(list)
    }

    /// The first one; the others are dropped.
    pub(crate) fn into_first(self) -> Option<T> {
        self.first
    }
}
