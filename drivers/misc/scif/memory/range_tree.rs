// SPDX-License-Identifier: GPL-2.0

//! Ranges of the registered address space: red-black trees of them, by their starts, and the few that a transfer
//! lies in.

use crate::logic::address_space::Range;
use kernel::{
    alloc::Flags,
    prelude::*,
    rbtree::RBTree,
    sync::Arc, //
};

/// What has a place in the registered address space, where nothing overlaps.
pub(super) trait Placed {
    fn range(&self) -> Range;
}

impl<T: Placed> Placed for Arc<T> {
    fn range(&self) -> Range {
        (**self).range()
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

/// The entry that holds `offset`.
#[inline]
fn at<V: Placed>(tree: &RBTree<u64, V>, offset: u64) -> Option<&V> {
    at_or_before(tree, offset).filter(|entry| offset < entry.range().end())
}

/// The entry whose range holds all of `range`, and where in it that begins.
pub(super) fn holder<V: Placed>(tree: &RBTree<u64, V>, range: Range) -> Option<(&V, u64)> {
    let entry = at(tree, range.start())?;
    let whole = entry.range();
    whole
        .contains(&range)
        .then(|| (entry, range.start() - whole.start()))
}

/// Calls `f` with each entry that holds a part of what lies between `*from` and `end`, in order, where in the entry that
/// part begins, and how long it is. Ends with its first error, or with `gap` at the first offset that no entry holds;
/// `*from` is where to go on then.
pub(super) fn cover<V: Placed>(
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

/// Whether an entry holds any offset of `range`.
pub(super) fn overlaps<V: Placed>(tree: &RBTree<u64, V>, range: Range) -> bool {
    // Of entries that do not overlap, the last one that starts before our end reaches furthest.
    let last = at_or_before(tree, range.end() - 1);
    last.is_some_and(|entry| entry.range().intersects(&range))
}

/// Whether an entry lies in `range` with a part of it only.
pub(super) fn cuts<V: Placed>(tree: &RBTree<u64, V>, range: Range) -> bool {
    // Only the one at each edge can.
    [range.start(), range.end() - 1]
        .into_iter()
        .filter_map(|edge| at(tree, edge))
        .any(|entry| !range.contains(&entry.range()))
}

/// Takes the first entry out that begins in `range`, if all of it lies there.
pub(super) fn take_inside<V: Placed>(tree: &mut RBTree<u64, V>, range: Range) -> Option<V> {
    let first = tree.cursor_lower_bound(&range.start())?.current().1.range();
    if range.contains(&first) {
        tree.remove(&first.start())
    } else {
        None
    }
}

/// Takes the entry with the least key out.
pub(super) fn take_first<V>(tree: &mut RBTree<u64, V>) -> Option<V> {
    let first = *tree.cursor_front()?.current().0;
    tree.remove(&first)
}

#[kunit_tests(scif_memory_range_tree)]
mod tests {
    use super::*;

    impl Placed for Range {
        fn range(&self) -> Range {
            *self
        }
    }

    fn range(start: u64, len: u64) -> Result<Range> {
        Range::from_parts(start, len).map_err(|_| EINVAL)
    }

    /// Where there is something: 10 to 30 in two pieces, 40 to 50, and 100 to 200.
    fn tree() -> Result<RBTree<u64, Range>> {
        let mut tree = RBTree::new();
        for (start, end) in [(100, 200), (20, 30), (10, 20), (40, 50)] {
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
        assert!(Range::from_parts(0, i64::MAX as u64).is_ok());
    }

    #[test]
    fn a_holder_holds_all() -> Result {
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
    fn a_request_is_covered_up_to_the_first_gap() -> Result {
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
    fn many_are_collected_a_few_at_a_time() -> Result {
        let (mut next, mut rounds) = (0, 0);
        let many = Few::collect(
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
    fn what_is_taken_is_known() -> Result {
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
    fn entries_are_taken_out_in_order() -> Result {
        let mut tree = tree()?;
        let inside = range(15, 30)?;
        // The first one begins before.
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

/// Has the caller pay for a list of so many elements: for [`Few::collect`].
pub(crate) fn paid_by_caller(_: usize) -> Flags {
    GFP_KERNEL_ACCOUNT
}

/// See [`Few::push`].
const NO_ROOM: Error = ENOBUFS;

/// How many elements are pushed under one hold of a lock, at most.
const AT_ONCE: usize = 32;

/// A list that seldom has more than one element, which then takes no memory of its own: the windows that
/// a transfer lies in.
pub(crate) struct Few<T> {
    // Nothing lies in `rest` as long as there is no `first`.
    first: Option<T>,
    rest: KVVec<T>,
    /// How many may be pushed to `rest`, for which there is room.
    room: usize,
}

impl<T> Few<T> {
    /// Without elements.
    pub(crate) const fn new() -> Self {
        Self {
            first: None,
            rest: KVVec::new(),
            room: 0,
        }
    }

    /// With one element.
    pub(crate) const fn one(element: T) -> Self {
        Self {
            first: Some(element),
            rest: KVVec::new(),
            room: 0,
        }
    }

    /// Has `find` push the elements, under a spinlock that others need. It is called again, and goes on, as long as there
    /// was too little room for all. The memory is allocated without that lock; how, `flags` says of so many. May sleep.
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

    /// Appends an element: an error, which is for [`Self::collect`], if there is no room for it. Any context but for what
    /// becomes of the element then.
    pub(crate) fn push(&mut self, element: T) -> Result {
        if self.first.is_none() {
            self.first = Some(element);
            return Ok(());
        }
        self.room = self.room.checked_sub(1).ok_or(NO_ROOM)?;
        self.rest.push_within_capacity(element).or(Err(NO_ROOM))
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
        let mut list = KVVec::with_capacity(1 + self.rest.len(), GFP_KERNEL_ACCOUNT)?;
        for element in Iterator::chain(core::iter::once(first), self.rest) {
            list.push(element, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(list)
    }

    /// The first one; the others are dropped.
    pub(crate) fn into_first(self) -> Option<T> {
        self.first
    }
}
