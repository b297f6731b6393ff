// SPDX-License-Identifier: GPL-2.0

//! Tables of extents that own their memory: the addresses of pages, for a device or a peer.

use super::current;
use crate::logic::extents::{
    Entry,
    Extent,
    Extents,
    Growing, //
};
use kernel::prelude::*;

/// A table of extents, which owns its memory.
pub(crate) type ExtentTable = Extents<KVVec<Entry>>;

impl Growing for KVVec<Entry> {
    fn append(&mut self, entry: Entry) -> bool {
        self.push_within_capacity(entry).is_ok()
    }
}

/// Number of extents that are collected before other tasks may have the CPU. A table can have
/// millions.
const UNTIL_OTHERS: usize = 4096;

/// Collects addresses and lengths, in order, into a table. Extents that touch are joined. Returns
/// EINVAL if they are no valid extents.
/// Context: may sleep.
pub(crate) fn collect(extents: impl Iterator<Item = (u64, u64)>) -> Result<ExtentTable> {
    let mut table = ExtentTable::default();
    for (index, (address, len)) in extents.enumerate() {
        if index % UNTIL_OTHERS == UNTIL_OTHERS - 1 {
            current::reschedule();
        }
        table.entries.reserve(1, GFP_KERNEL_ACCOUNT)?;
        let extent = Extent::new(address, len).ok_or(EINVAL)?;
        table.add(extent, true).ok_or(EINVAL)?;
    }
    Ok(table)
}

#[kunit_tests(scif_sys_extent_table)]
mod tests {
    use super::*;
    use crate::logic::plan::{
        split_tail,
        Plan,
        Segment,
        Short, //
    };

    #[test]
    fn adjacent_ranges_are_merged_into_one_extent() -> Result {
        let table = collect([(0x1000, 8), (0x1008, 8), (0x3000, 16)].into_iter())?;
        assert_eq!((table.entries().len(), table.len()), (2, 32));
        assert!(table.at(15) == Some((0x100f, 1)));
        assert!(table.at(16) == Some((0x3000, 16)));
        assert!(table.at(32).is_none());
        Ok(())
    }

    #[test]
    fn empty_or_overflowing_extents_are_refused() {
        assert!(matches!(collect([(0x1000, 0)].into_iter()), Err(EINVAL)));
        assert!(matches!(collect([(u64::MAX, 2)].into_iter()), Err(EINVAL)));
        let too_long = [(0, u64::MAX), (1, u64::MAX - 1)];
        assert!(matches!(collect(too_long.into_iter()), Err(EINVAL)));
    }

    /// Number of extents, which need more than one page of the table.
    const MANY: u64 = 1000;

    #[test]
    fn plan_pairs_all_bytes_of_two_tables() -> Result {
        // The lengths differ, so that the borders of the tables do not coincide.
        let ours = collect((0..MANY).map(|index| (index * 100, 30)))?;
        let theirs = collect((0..MANY).map(|index| ((1 << 40) + index * 100, 50)))?;
        let (begin, len) = (25, 20_000);
        let mut done = 0;
        for segment in Plan::new(theirs.walk(begin), ours.walk(0), len, 20) {
            let Ok(Segment {
                destination,
                source,
                len,
            }) = segment
            else {
                return Err(EINVAL);
            };
            assert!(len > 0 && len <= 20);
            let (to, to_len) = theirs.at(begin + done).ok_or(EINVAL)?;
            let (from, from_len) = ours.at(done).ok_or(EINVAL)?;
            assert_eq!((destination, source), (to, from));
            assert!(len <= to_len && len <= from_len);
            done += len;
        }
        assert_eq!(done, len);
        Ok(())
    }

    #[test]
    fn plan_ends_with_an_error_if_a_table_is_short() -> Result {
        let ours = collect([(0, 10), (20, 10)].into_iter())?;
        let theirs = collect([(100, 1000)].into_iter())?;
        let mut plan = Plan::new(theirs.walk(0), ours.walk(5), 40, 4096);
        let lengths = [plan.next(), plan.next()].map(|segment| match segment {
            Some(Ok(segment)) => segment.len,
            _ => 0,
        });
        assert_eq!(lengths, [5, 10]);
        assert!(plan.next() == Some(Err(Short)));
        assert!(plan.next().is_none());
        Ok(())
    }

    #[test]
    fn ordered_copy_tail_is_the_last_source_cache_line() {
        assert_eq!(split_tail(0, 128), (64, 64));
        assert_eq!(split_tail(60, 5), (4, 1));
        assert_eq!(split_tail(10, 20), (0, 20));
        assert_eq!(split_tail(10, 0), (0, 0));
    }
}
