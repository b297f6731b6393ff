// SPDX-License-Identifier: LGPL-2.1

//! How the jobs of one connection have ended, each by its own mark.
//!
//! Marks are waited for in the order in which they were taken, by one thread at a time: a failure that a mark
//! tells, and the mark before it has not, lies between the two. It is that of each job that had transfers
//! there. Jobs that are handed over one after the other have none in common; of those that overlap, each has failed.
//!
//! What this relies on: a wait for a mark tells each failure before the mark, unless a wait had told it before the mark
//! was taken; it tells none behind the mark. A mark that was taken before a failure was told may tell that one again, so
//! all marks that are left then are replaced by a new one. It stands for the jobs of all of them.
//!
//! No system call is made here.

use std::collections::HashMap;
use std::collections::VecDeque;

use crate::error::Error;
use crate::error::Result;

/// A job on this connection.
#[derive(Debug)]
struct Job {
    /// How many marks there were when it began.
    begin: u64,
    /// Which mark stands behind its last transfer, once it is with the driver.
    end: Option<u64>,
    failed: bool,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Outcomes {
    jobs: HashMap<u64, Job>,
    last_job: u64,
    /// Those that were not waited for yet, in their order, and up to how many of all each stands for.
    marks: VecDeque<(i32, u64)>,
    /// How many were taken.
    taken: u64,
    /// How many were waited for.
    passed: u64,
    /// Somebody waits for the first of them.
    is_waited_for: bool,
}

impl Outcomes {
    /// A job begins: its number.
    pub fn begin(&mut self) -> u64 {
        self.last_job += 1;
        let job = Job {
            begin: self.taken,
            end: None,
            failed: false,
        };
        self.jobs.insert(self.last_job, job);
        self.last_job
    }

    /// All of a job is with the driver, before this mark, which was taken now; without a mark it has failed.
    pub fn handed_over(&mut self, number: u64, mark: Option<i32>) {
        if let Some(mark) = mark {
            self.taken += 1;
            self.marks.push_back((mark, self.taken));
        }
        if let Some(job) = self.jobs.get_mut(&number) {
            job.end = Some(self.taken);
            job.failed |= mark.is_none();
        }
    }

    /// How a job has ended; none while nobody knows. One that was never handed over has left nothing to wait
    /// for.
    pub fn of(&self, number: u64) -> Option<Result<()>> {
        let Some((job, end)) = self.jobs.get(&number).and_then(|job| Some((job, job.end?))) else {
            return Some(Ok(()));
        };
        (self.passed >= end).then_some(match job.failed {
            false => Ok(()),
            true => Err(Error::TRANSFER_FAILED),
        })
    }

    /// Whether somebody waits for a mark.
    pub fn is_waited_for(&self) -> bool {
        self.is_waited_for
    }

    /// The first mark that was not waited for: the caller waits for it, as nobody else does, and calls
    /// [`Self::passed`].
    pub fn wait_for_next(&mut self) -> Option<i32> {
        let (mark, _) = self.marks.front().copied()?;
        self.is_waited_for = true;
        Some(mark)
    }

    /// The mark has been waited for. If it has told a failure, `mark_anew` gives a mark for those that are left.
    pub fn passed(&mut self, went_well: bool, mark_anew: impl FnOnce() -> Option<i32>) {
        self.is_waited_for = false;
        let Some((_, reached)) = self.marks.pop_front() else {
            return;
        };
        let before = core::mem::replace(&mut self.passed, reached);
        if went_well {
            return;
        }
        let concerned = self
            .jobs
            .values_mut()
            .filter(|job| job.begin < reached && job.end.is_none_or(|end| end > before));
        concerned.for_each(|job| job.failed = true);
        if let Some(mark) = (!self.marks.is_empty()).then(mark_anew).flatten() {
            self.marks.clear();
            self.marks.push_back((mark, self.taken));
        }
    }

    /// Nobody asks for a job any more.
    pub fn forget(&mut self, number: u64) {
        self.jobs.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: Option<Result<()>> = Some(Err(Error::TRANSFER_FAILED));
    const DONE: Option<Result<()>> = Some(Ok(()));

    fn whole(outcomes: &mut Outcomes, mark: i32) -> u64 {
        let job = outcomes.begin();
        outcomes.handed_over(job, Some(mark));
        job
    }

    fn pass(outcomes: &mut Outcomes, mark: i32, went_well: bool) {
        assert_eq!(outcomes.wait_for_next(), Some(mark));
        // A driver that tells a failure to each mark that was taken before it was told.
        outcomes.passed(went_well, || Some(mark + 100));
    }

    #[test]
    fn a_failure_is_that_of_the_job_before_whose_mark_it_lies() {
        let mut outcomes = Outcomes::default();
        let first = whole(&mut outcomes, 5);
        let second = whole(&mut outcomes, 7);
        let third = whole(&mut outcomes, 9);
        assert_eq!(outcomes.of(first), None);
        pass(&mut outcomes, 5, true);
        assert_eq!(outcomes.of(first), DONE);
        assert_eq!(outcomes.of(second), None);
        pass(&mut outcomes, 7, false);
        pass(&mut outcomes, 107, true);
        assert_eq!(outcomes.of(first), DONE);
        assert_eq!(outcomes.of(second), FAILED);
        assert_eq!(outcomes.of(third), DONE);
    }

    #[test]
    fn who_waits_for_a_later_job_leaves_an_earlier_one_its_failure() {
        let mut outcomes = Outcomes::default();
        let first = whole(&mut outcomes, 1);
        let second = whole(&mut outcomes, 2);
        while outcomes.of(second).is_none() {
            let mark = outcomes.wait_for_next();
            outcomes.passed(mark != Some(1), || Some(3));
        }
        assert_eq!(outcomes.of(first), FAILED);
        assert_eq!(outcomes.of(second), DONE);
    }

    #[test]
    fn one_waits_at_a_time() {
        let mut outcomes = Outcomes::default();
        whole(&mut outcomes, 1);
        whole(&mut outcomes, 2);
        assert!(!outcomes.is_waited_for());
        assert_eq!(outcomes.wait_for_next(), Some(1));
        assert!(outcomes.is_waited_for());
        outcomes.passed(true, || None);
        assert!(!outcomes.is_waited_for());
        assert_eq!(outcomes.wait_for_next(), Some(2));
    }

    #[test]
    fn jobs_that_overlap_have_all_failed() {
        let mut outcomes = Outcomes::default();
        let before = whole(&mut outcomes, 1);
        let outer = outcomes.begin();
        let inner = whole(&mut outcomes, 4);
        outcomes.handed_over(outer, Some(6));
        let behind = whole(&mut outcomes, 8);
        pass(&mut outcomes, 1, true);
        pass(&mut outcomes, 4, false);
        // What of it was handed over behind the failure is still on its way.
        assert_eq!(outcomes.of(outer), None);
        pass(&mut outcomes, 104, true);
        let ends = [before, outer, inner, behind].map(|job| outcomes.of(job));
        assert_eq!(ends, [DONE, FAILED, FAILED, DONE]);
    }

    #[test]
    fn a_failure_before_a_job_is_not_its_own() {
        let mut outcomes = Outcomes::default();
        whole(&mut outcomes, 1);
        let second = outcomes.begin();
        pass(&mut outcomes, 1, false);
        outcomes.handed_over(second, Some(2));
        pass(&mut outcomes, 2, true);
        assert_eq!(outcomes.of(second), DONE);
    }

    #[test]
    fn a_mark_for_many_tells_a_failure_to_each_of_them() {
        let mut outcomes = Outcomes::default();
        let jobs = [1, 2, 3].map(|mark| whole(&mut outcomes, mark));
        pass(&mut outcomes, 1, false);
        let late = whole(&mut outcomes, 4);
        pass(&mut outcomes, 101, false);
        pass(&mut outcomes, 201, true);
        assert_eq!(jobs.map(|job| outcomes.of(job)), [FAILED; 3]);
        assert_eq!(outcomes.of(late), DONE);
        assert_eq!(outcomes.wait_for_next(), None);
    }

    #[test]
    fn without_a_new_mark_the_old_ones_do() {
        let mut outcomes = Outcomes::default();
        let (first, second) = (whole(&mut outcomes, 1), whole(&mut outcomes, 2));
        outcomes.wait_for_next();
        outcomes.passed(false, || None);
        assert_eq!(outcomes.of(second), None);
        pass(&mut outcomes, 2, false);
        assert_eq!([outcomes.of(first), outcomes.of(second)], [FAILED; 2]);
    }

    #[test]
    fn a_job_without_a_mark_has_failed_and_one_that_has_left_nothing_is_done() {
        let mut outcomes = Outcomes::default();
        let (lost, at_once) = (outcomes.begin(), outcomes.begin());
        outcomes.handed_over(lost, None);
        assert_eq!(outcomes.of(lost), FAILED);
        assert_eq!(outcomes.of(at_once), DONE);
        outcomes.forget(lost);
        assert!(outcomes.jobs.contains_key(&at_once));
    }
}
