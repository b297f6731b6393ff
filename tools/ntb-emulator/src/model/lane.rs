// SPDX-License-Identifier: GPL-2.0
//! One direction of a link: at any time, one transfer passes.
//!
//! An engine may ask late, see [`super::pace`]. Time that was free then still belongs to it;
//! without that, each engine would lose the time by which others are ahead. So a lane remembers
//! when it was and will be busy. A request takes the first free time, in pieces between others if
//! necessary. Where the lane is always busy, that means first come, first served: engines that
//! share the lane get turns of a chunk each, see [`super::pacer`].

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::picoseconds::Picoseconds;

/// The time that a lane remembers: longer than any engine is behind.
const MEMORY: Picoseconds = Picoseconds::nanoseconds(100_000_000);

/// One direction of a link.
#[derive(Default)]
pub struct Lane {
    times: Mutex<Times>,
}

/// The times when a lane is busy.
#[derive(Default)]
struct Times {
    /// Begin and end of each busy time; none touches the next one.
    busy: BTreeMap<Picoseconds, Picoseconds>,
    /// Time before this counts as busy, unless it is remembered.
    forgotten: Picoseconds,
}

impl Lane {
    /// Passes a transfer that is ready at `ready` and takes `length`. Returns when the transfer has
    /// passed.
    pub fn pass(&self, ready: Picoseconds, length: Picoseconds) -> Picoseconds {
        let mut times = self.times.lock();
        times.forget(ready);
        times.take(ready, length)
    }
}

impl Times {
    /// Takes the first free time from `ready` on. Returns its end.
    fn take(&mut self, ready: Picoseconds, length: Picoseconds) -> Picoseconds {
        let ready = ready.max(self.forgotten);
        let mut begin = ready;
        // A busy time that contains `ready`, or ends there, becomes one with the new one.
        if let Some((&start, &end)) = self.busy.range(..=ready).next_back() {
            if end >= ready {
                begin = start;
            }
        }
        let mut end = self.busy.remove(&begin).unwrap_or(ready);
        let mut left = length;
        while let Some((&next, &next_end)) = self.busy.range(begin..).next() {
            let gap = next.since(end);
            if left < gap {
                break;
            }
            left = left.since(gap);
            end = next_end;
            self.busy.remove(&next);
            if left == Picoseconds::ZERO && gap > Picoseconds::ZERO {
                self.busy.insert(begin, end);
                return next;
            }
        }
        let end = end + left;
        if end > begin {
            self.busy.insert(begin, end);
        }
        end
    }

    /// Forgets busy times that no engine asks about any more.
    fn forget(&mut self, now: Picoseconds) {
        let horizon = now.since(MEMORY);
        while let Some(first) = self.busy.first_entry() {
            if *first.get() >= horizon {
                break;
            }
            self.forgotten = first.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(nanoseconds: u64) -> Picoseconds {
        Picoseconds::nanoseconds(nanoseconds)
    }

    #[test]
    fn passages_through_a_lane_do_not_overlap() {
        let lane = Lane::default();
        assert_eq!(lane.pass(at(10), at(5)), at(15));
        assert_eq!(lane.pass(at(11), at(5)), at(20));
        assert_eq!(lane.pass(at(30), at(5)), at(35));
        // An engine that is behind gets the time that was free, and goes on where the lane is free
        // again.
        assert_eq!(lane.pass(at(0), at(10)), at(10));
        assert_eq!(lane.pass(at(0), at(12)), at(37));
        assert_eq!(lane.pass(at(0), at(0)), at(37));
        assert_eq!(lane.times.lock().busy.len(), 1);
    }

    #[test]
    fn forgotten_lane_time_is_not_reused() {
        let lane = Lane::default();
        for start in 0..1000 {
            lane.pass(at(1_000_000 * start), at(1));
        }
        assert!(lane.times.lock().busy.len() <= 102);
        let forgotten = lane.times.lock().forgotten;
        assert!(forgotten > at(890_000_000));
        assert_eq!(lane.pass(at(0), at(1)), forgotten + at(1));
    }

    proptest! {
        /// Compares with a list of single nanoseconds: each transfer takes the first free ones.
        #[test]
        fn lane_agrees_with_a_list_of_busy_times(
            passages in prop::collection::vec((0usize..200, 1usize..20), 1..40),
        ) {
            let lane = Lane::default();
            let mut busy = vec![false; 1000];
            for (ready, length) in passages {
                let free: Vec<_> = (ready..busy.len()).filter(|&at| !busy[at]).take(length).collect();
                free.iter().for_each(|&at| busy[at] = true);
                let end = lane.pass(at(ready as u64), at(length as u64));
                prop_assert_eq!(end, at(free[length - 1] as u64 + 1));
            }
            // The lane remembers exactly its busy times, in as few pieces as possible.
            let times = lane.times.lock();
            for (index, &busy) in busy.iter().enumerate() {
                let now = at(index as u64);
                let found = times.busy.range(..=now).next_back().is_some_and(|(_, &end)| end > now);
                prop_assert_eq!(found, busy);
            }
            let ends: Vec<_> = times.busy.values().collect();
            prop_assert!(times.busy.keys().skip(1).zip(ends).all(|(next, end)| end < next));
        }
    }
}
