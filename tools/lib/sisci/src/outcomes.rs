// SPDX-License-Identifier: LGPL-2.1

//! The outcomes of the jobs of one connection, each found by the job's own mark.
//!
//! One thread at a time waits for marks, in the order in which they were taken. A failure that the
//! wait for a mark reports, and the wait for the mark before did not, lies between the two marks.
//! Each job that had transfers there has failed. Jobs that are handed over one after the other
//! share no such interval. Of jobs that overlap, each has failed.
//!
//! This relies on the driver. A wait for a mark reports each failure before the mark, unless a wait
//! reported the failure before the mark was taken. It reports no failure behind the mark. A mark
//! that was taken before a failure was reported may report the same failure again. So after a
//! failure all remaining marks are replaced by a new one, which stands for the jobs of all of them.
//!
//! This module makes no system call.

use std::collections::HashMap;
use std::collections::VecDeque;

use crate::error::Error;
use crate::error::Result;

/// A job on this connection.
#[derive(Debug)]
struct Job {
    /// Number of marks when the job began.
    begin: u64,
    /// Number of the mark behind its last transfer, once the job is with the driver.
    end: Option<u64>,
    failed: bool,
}

/// The jobs and the marks of one connection.
#[derive(Debug, Default)]
pub struct Outcomes {
    jobs: HashMap<u64, Job>,
    last_job: u64,
    /// The marks that no thread has waited for yet, in order, each with the number of marks up to
    /// and including it.
    marks: VecDeque<(i32, u64)>,
    /// Number of marks taken.
    taken: u64,
    /// Number of marks waited for.
    passed: u64,
    /// Whether a thread waits for the first of `marks`.
    is_waited_for: bool,
}

impl Outcomes {
    /// Begins a job. Returns its number.
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

    /// Records that all of a job is with the driver. `mark` was taken just now; without a mark the
    /// job has failed.
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

    /// Returns the outcome of a job, or none if it is not known yet. A job that was never handed
    /// over has nothing to wait for, and is done.
    pub fn of(&self, number: u64) -> Option<Result<()>> {
        let Some((job, end)) = self.jobs.get(&number).and_then(|job| Some((job, job.end?))) else {
            return Some(Ok(()));
        };
        (self.passed >= end).then_some(match job.failed {
            false => Ok(()),
            true => Err(Error::TRANSFER_FAILED),
        })
    }

    /// Returns whether a thread waits for a mark.
    pub fn is_waited_for(&self) -> bool {
        self.is_waited_for
    }

    /// Returns the first mark that no thread has waited for. The caller must wait for it, as no
    /// other thread does, and call [`Self::passed`].
    pub fn wait_for_next(&mut self) -> Option<i32> {
        let (mark, _) = self.marks.front().copied()?;
        self.is_waited_for = true;
        Some(mark)
    }

    /// Records that the mark was waited for. If the wait reported a failure, `mark_anew` takes a
    /// mark that replaces the remaining ones.
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

    /// Forgets a job, whose outcome is not asked for any more.
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
        // This driver reports a failure at each mark that was taken before the failure was
        // reported.
        outcomes.passed(went_well, || Some(mark + 100));
    }

    #[test]
    fn failure_belongs_to_the_job_whose_mark_covers_it() {
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
    fn waiting_for_a_later_job_keeps_the_failure_of_an_earlier_one() {
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
    fn only_one_caller_waits_for_a_mark_at_a_time() {
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
    fn failure_inside_overlapping_jobs_fails_all_of_them() {
        let mut outcomes = Outcomes::default();
        let before = whole(&mut outcomes, 1);
        let outer = outcomes.begin();
        let inner = whole(&mut outcomes, 4);
        outcomes.handed_over(outer, Some(6));
        let behind = whole(&mut outcomes, 8);
        pass(&mut outcomes, 1, true);
        pass(&mut outcomes, 4, false);
        // The part of the outer job that was handed over behind the failure is still in flight.
        assert_eq!(outcomes.of(outer), None);
        pass(&mut outcomes, 104, true);
        let ends = [before, outer, inner, behind].map(|job| outcomes.of(job));
        assert_eq!(ends, [DONE, FAILED, FAILED, DONE]);
    }

    #[test]
    fn failure_before_a_job_does_not_fail_it() {
        let mut outcomes = Outcomes::default();
        whole(&mut outcomes, 1);
        let second = outcomes.begin();
        pass(&mut outcomes, 1, false);
        outcomes.handed_over(second, Some(2));
        pass(&mut outcomes, 2, true);
        assert_eq!(outcomes.of(second), DONE);
    }

    #[test]
    fn mark_covering_several_jobs_fails_each_of_them() {
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
    fn old_marks_report_failures_if_no_new_mark_is_set() {
        let mut outcomes = Outcomes::default();
        let (first, second) = (whole(&mut outcomes, 1), whole(&mut outcomes, 2));
        outcomes.wait_for_next();
        outcomes.passed(false, || None);
        assert_eq!(outcomes.of(second), None);
        pass(&mut outcomes, 2, false);
        assert_eq!([outcomes.of(first), outcomes.of(second)], [FAILED; 2]);
    }

    #[test]
    fn job_without_a_mark_fails_and_empty_job_is_done() {
        let mut outcomes = Outcomes::default();
        let (lost, at_once) = (outcomes.begin(), outcomes.begin());
        outcomes.handed_over(lost, None);
        assert_eq!(outcomes.of(lost), FAILED);
        assert_eq!(outcomes.of(at_once), DONE);
        outcomes.forget(lost);
        assert!(outcomes.jobs.contains_key(&at_once));
    }
}
