// SPDX-License-Identifier: GPL-2.0

//! Ranges of the registered address space: red-black trees of them, by their starts, and the short
//! list of entries that a transfer lies in.

use crate::logic::address_space::Range;
use kernel::{
    alloc::Flags,
    prelude::*,
    rbtree::RBTree,
    sync::Arc, //
};

/// An entry with a range in the registered address space, where entries do not overlap.
pub(super) trait HasRange {
    fn range(&self) -> Range;
}

impl<T: HasRange> HasRange for Arc<T> {
    fn range(&self) -> Range {
        (**self).range()
    }
}

/// Returns the entry with the greatest key that is at most `key`.
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

/// Returns the entry that holds `offset`.
#[inline]
fn at<V: HasRange>(tree: &RBTree<u64, V>, offset: u64) -> Option<&V> {
    at_or_before(tree, offset).filter(|entry| offset < entry.range().end())
}

/// Returns the entry whose range holds all of `range`, and the offset of `range` in it.
pub(super) fn holder<V: HasRange>(tree: &RBTree<u64, V>, range: Range) -> Option<(&V, u64)> {
    let entry = at(tree, range.start())?;
    let whole = entry.range();
    whole
        .contains(&range)
        .then(|| (entry, range.start() - whole.start()))
}

/// Calls `f` with each entry that holds a part of the bytes between `*from` and `end`, in order.
/// Passes the offset of this part in the entry, and its length. Stops with the first error of `f`,
/// or with `gap` at the first offset that no entry holds. `*from` is then the offset at which to
/// continue.
pub(super) fn cover<V: HasRange>(
    tree: &RBTree<u64, V>,
    from: &mut u64,
    end: u64,
    gap: Error,
    mut f: impl FnMut(&V, u64, u64) -> Result,
) -> Result {
    while *from < end {
        let entry = at(tree, *from).ok_or(gap)?;
        let whole = entry.range();
        let stop = whole.end().min(end);
        f(entry, *from - whole.start(), stop - *from)?;
        *from = stop;
    }
    Ok(())
}

/// Returns whether an entry holds any offset of `range`.
pub(super) fn overlaps<V: HasRange>(tree: &RBTree<u64, V>, range: Range) -> bool {
    // As entries do not overlap, the last one that starts before the end of `range` reaches
    // furthest.
    let last = at_or_before(tree, range.end() - 1);
    last.is_some_and(|entry| entry.range().intersects(&range))
}

/// Returns whether only a part of an entry lies in `range`.
pub(super) fn cuts<V: HasRange>(tree: &RBTree<u64, V>, range: Range) -> bool {
    // Only an entry at an edge of `range` can.
    [range.start(), range.end() - 1]
        .into_iter()
        .filter_map(|edge| at(tree, edge))
        .any(|entry| !range.contains(&entry.range()))
}

/// Removes and returns the first entry that begins in `range`, if all of it lies there.
pub(super) fn take_inside<V: HasRange>(tree: &mut RBTree<u64, V>, range: Range) -> Option<V> {
    let first = tree.cursor_lower_bound(&range.start())?.current().1.range();
    if range.contains(&first) {
        tree.remove(&first.start())
    } else {
        None
    }
}

/// Removes and returns the entry with the least key.
pub(super) fn take_first<V>(tree: &mut RBTree<u64, V>) -> Option<V> {
    let first = *tree.cursor_front()?.current().0;
    tree.remove(&first)
}

#[kunit_tests(scif_memory_range_tree)]
mod tests {
    use super::*;

    impl HasRange for Range {
        fn range(&self) -> Range {
            *self
        }
    }

    fn range(start: u64, len: u64) -> Result<Range> {
        Range::from_parts(start, len).map_err(|_| EINVAL)
    }

    /// Entries from 10 to 30 in two pieces, from 40 to 50, and from 100 to 200.
    fn tree() -> Result<RBTree<u64, Range>> {
        let mut tree = RBTree::new();
        for (start, end) in [(100, 200), (20, 30), (10, 20), (40, 50)] {
            tree.try_create_and_insert(start, range(start, end - start)?, GFP_KERNEL)?;
        }
        Ok(tree)
    }

    #[test]
    fn invalid_range_is_refused() {
        assert!(Range::new(-1, 1).is_err());
        assert!(Range::new(0, 0).is_err());
        assert!(Range::new(i64::MAX, 1).is_err());
        assert!(Range::from_parts(u64::MAX, 2).is_err());
        assert!(Range::from_parts(0, i64::MAX as u64).is_ok());
    }

    #[test]
    fn holder_is_found_only_if_it_contains_the_whole_range() -> Result {
        let tree = tree()?;
        for (start, len, found) in [
            (10, 10, Some((10, 0))),
            (21, 9, Some((20, 1))),
            (49, 1, Some((40, 9))),
            (199, 1, Some((100, 99))),
            (9, 2, None),
            (15, 10, None),
            (30, 1, None),
            (200, 1, None),
        ] {
            let holder = holder(&tree, range(start, len)?);
            assert_eq!(holder.map(|(entry, at)| (entry.start(), at)), found);
        }
        Ok(())
    }

    #[test]
    fn cover_stops_at_the_first_gap() -> Result {
        let tree = tree()?;
        for (start, len, parts, covered) in [
            (10, 10, &[(10, 0, 10)][..], Ok(())),
            (15, 10, &[(10, 5, 5), (20, 0, 5)], Ok(())),
            (15, 30, &[(10, 5, 5), (20, 0, 10)], Err(ENXIO)),
            (35, 10, &[], Err(ENXIO)),
            (199, 2, &[(100, 99, 1)], Err(ENXIO)),
        ] {
            let mut expected = parts.iter();
            let mut from = start;
            let result = cover(
                &tree,
                &mut from,
                start + len,
                ENXIO,
                |entry, offset, len| {
                    assert_eq!(expected.next(), Some(&(entry.start(), offset, len)));
                    Ok(())
                },
            );
            assert_eq!((result, expected.len()), (covered, 0));
            assert_eq!(covered.is_ok(), from == start + len);
        }
        let mut from = 15;
        let refused = cover(&tree, &mut from, 45, ENXIO, |_, _, _| Err(EACCES));
        assert_eq!((refused, from), (Err(EACCES), 15));
        Ok(())
    }

    #[test]
    fn collect_takes_a_limited_number_per_round() -> Result {
        let (mut next, mut rounds) = (0, 0);
        let many = SmallList::collect(
            |_| GFP_KERNEL,
            |few| {
                rounds += 1;
                let before = next;
                while next <= 4 * AT_ONCE {
                    few.push(next)?;
                    next += 1;
                    assert!(next - before <= AT_ONCE);
                }
                Ok(())
            },
        )?;
        assert!(many.iter().copied().eq(0..=4 * AT_ONCE));
        // The first element needs no room.
        assert_eq!(rounds, 5);
        Ok(())
    }

    #[test]
    fn overlaps_and_cut_entries_are_detected() -> Result {
        let tree = tree()?;
        for (start, len, is_taken, is_cut) in [
            (0, 10, false, false),
            (0, 11, true, true),
            (5, 33, true, false),
            (12, 2, true, true),
            (0, 45, true, true),
            (30, 10, false, false),
            (49, 2, true, true),
            (50, 50, false, false),
            (200, 1, false, false),
        ] {
            let range = range(start, len)?;
            assert_eq!(
                (overlaps(&tree, range), cuts(&tree, range)),
                (is_taken, is_cut)
            );
        }
        Ok(())
    }

    #[test]
    fn entries_inside_a_range_are_removed_in_order() -> Result {
        let mut tree = tree()?;
        let inside = range(15, 30)?;
        // The first entry begins before `inside`.
        assert!(take_inside(&mut tree, inside) == Some(range(20, 10)?));
        let inside = range(10, 40)?;
        assert!(take_inside(&mut tree, inside) == Some(range(10, 10)?));
        assert!(take_inside(&mut tree, inside) == Some(range(40, 10)?));
        assert!(take_inside(&mut tree, inside).is_none());
        assert!(take_first(&mut tree) == Some(range(100, 100)?));
        assert!(take_first(&mut tree).is_none());
        assert!(take_inside(&mut tree, inside).is_none());
        assert!(!overlaps(&tree, inside));
        Ok(())
    }
}

/// Has the caller's process pay for a list, whatever its length: for [`SmallList::collect`].
pub(crate) fn paid_by_caller(_: usize) -> Flags {
    GFP_KERNEL_ACCOUNT
}

/// The error of [`SmallList::push`] if there is no room.
const NO_ROOM: Error = ENOBUFS;

/// Most elements that are pushed under one hold of a lock.
const AT_ONCE: usize = 32;

/// A list of the windows that a transfer lies in. It seldom has more than one element, and one
/// element needs no memory of its own.
pub(crate) struct SmallList<T> {
    // `rest` is empty as long as there is no `first`.
    first: Option<T>,
    rest: KVVec<T>,
    /// Number of elements that may be pushed to `rest`, which has room for them.
    room: usize,
}

impl<T> SmallList<T> {
    /// Creates an empty list.
    pub(crate) const fn new() -> Self {
        Self {
            first: None,
            rest: KVVec::new(),
            room: 0,
        }
    }

    /// Creates a list of one element.
    pub(crate) const fn one(element: T) -> Self {
        Self {
            first: Some(element),
            rest: KVVec::new(),
            room: 0,
        }
    }

    /// Has `find` push the elements, under a spinlock that others need. Calls `find` again, to
    /// continue, as long as there was too little room for all. Allocates memory without that lock,
    /// with the flags that `flags` returns for a number of elements.
    /// Context: may sleep.
    pub(crate) fn collect(
        flags: fn(usize) -> Flags,
        mut find: impl FnMut(&mut Self) -> Result,
    ) -> Result<Self> {
        let mut this = Self::new();
        while let Err(error) = find(&mut this) {
            if error != NO_ROOM {
                return Err(error);
            }
            let flags = flags(this.rest.len() + AT_ONCE);
            this.rest.reserve(AT_ONCE, flags)?;
            this.room = AT_ONCE;
        }
        Ok(this)
    }

    /// Appends an element. Returns an error for [`Self::collect`] if there is no room.
    /// Context: any in which the element may be dropped, as an error drops it.
    pub(crate) fn push(&mut self, element: T) -> Result {
        if self.first.is_none() {
            self.first = Some(element);
            return Ok(());
        }
        self.room = self.room.checked_sub(1).ok_or(NO_ROOM)?;
        self.rest.push_within_capacity(element).or(Err(NO_ROOM))
    }

    /// Returns all elements, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        Iterator::chain(self.first.iter(), self.rest.iter())
    }

    /// Returns the elements as an ordinary list.
    /// Context: may sleep.
    pub(crate) fn into_list(self) -> Result<KVVec<T>> {
        let Some(first) = self.first else {
            return Ok(self.rest);
        };
        let mut list = KVVec::with_capacity(1 + self.rest.len(), GFP_KERNEL_ACCOUNT)?;
        for element in Iterator::chain(core::iter::once(first), self.rest) {
            list.push(element, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(list)
    }

    /// Returns the first element, and drops the others.
    pub(crate) fn into_first(self) -> Option<T> {
        self.first
    }
}
