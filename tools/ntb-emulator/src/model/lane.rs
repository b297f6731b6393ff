// SPDX-License-Identifier: GPL-2.0
//! One direction of a link: what passes it does so one thing after the other, whoever sends.
//!
//! First come, first served: what is asked for first passes first. So engines that share a
//! lane get turns of one chunk each, see [`super::pacer`].

use parking_lot::Mutex;

use super::picoseconds::Picoseconds;

/// A direction.
#[derive(Default)]
pub struct Lane {
    /// When all is through that was asked for so far.
    free: Mutex<Picoseconds>,
}

impl Lane {
    /// Something that is there from `ready` on and takes so long to pass. Returns when it is
    /// through.
    pub fn pass(&self, ready: Picoseconds, length: Picoseconds) -> Picoseconds {
        let mut free = self.free.lock();
        *free = (*free).max(ready) + length;
        *free
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_after_the_other() {
        let lane = Lane::default();
        let at = Picoseconds::nanoseconds;
        assert_eq!(lane.pass(at(10), at(5)), at(15));
        assert_eq!(lane.pass(at(11), at(5)), at(20));
        assert_eq!(lane.pass(at(30), at(5)), at(35));
        assert_eq!(lane.pass(at(0), at(0)), at(35));
    }

    proptest! {
        /// Nothing is through before its time, two never pass at once, and whoever is always
        /// there has all of it.
        #[test]
        fn never_faster_than_it_is(passages in prop::collection::vec((0u64..1000, 0u64..1000), 1..50)) {
            let lane = Lane::default();
            let at = Picoseconds::nanoseconds;
            let mut last = Picoseconds::ZERO;
            let mut sum = Picoseconds::ZERO;
            for (ready, length) in passages {
                let end = lane.pass(at(ready), at(length));
                prop_assert!(end >= at(ready) + at(length));
                prop_assert!(end >= last + at(length));
                last = end;
                sum = sum + at(length);
            }
            prop_assert!(last <= at(1000) + sum);
        }
    }
}
