// SPDX-License-Identifier: GPL-2.0

//! Which transfers have failed, and which fences and signals say so.
//!
//! A fence, and a signal, stands for all transfers up to a number (`marks.rs`). A failure concerns every one
//! that stands for it and was asked for before the failure was first reported, however often it is asked. What
//! is asked for afterwards is not concerned: its number is greater than that of all transfers that had been
//! started when the failure was reported, and the owner sees to it that there is such a number.
//!
//! Of failures that were not reported only the bounds are kept, and of reports the last [`REPORTS`] that lie
//! apart. So what lies between two of them may be said to have failed though it has not; a failure is never left
//! out.
//!
//! No locking: the caller has a lock around it anyway.

use super::marks::Sequence;

/// How many reports are told apart. Behind that many, two neighbours become one.
const REPORTS: usize = 4;

/// See the head of this file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failures {
    /// The first and the last one that were not reported.
    fresh: Option<(Sequence, Sequence)>,
    /// Of each report, the first failure, and the last transfer that had been started by then. The oldest report
    /// comes first.
    reported: [Option<(Sequence, Sequence)>; REPORTS],
}

/// A range that has this part, too.
fn joined(
    range: Option<(Sequence, Sequence)>,
    (first, last): (Sequence, Sequence),
) -> Option<(Sequence, Sequence)> {
    let (begin, end) = range.unwrap_or((first, last));
    Some((begin.min(first), end.max(last)))
}

impl Failures {
    /// A transfer has failed, of which nobody was told.
    pub(crate) fn add(&mut self, failed: Sequence) {
        self.fresh = joined(self.fresh, (failed, failed));
    }

    /// A transfer has failed, of which its caller is told, when `last` was started last.
    pub(crate) fn add_reported(&mut self, failed: Sequence, last: Sequence) {
        let is_near = |range: &Option<(Sequence, Sequence)>| {
            range.is_some_and(|(begin, end)| failed <= end && begin <= last)
        };
        let place = match self.reported.iter().position(is_near) {
            Some(place) => place,
            None => self.next_place(),
        };
        if let Some(range) = self.reported.get_mut(place) {
            *range = joined(*range, (failed, last));
        }
    }

    /// Where the next report goes.
    fn next_place(&mut self) -> usize {
        if let Some(free) = self.reported.iter().position(Option::is_none) {
            return free;
        }
        // The two oldest become one.
        if let [Some(oldest), second, ..] = &mut self.reported {
            *second = joined(*second, *oldest);
        }
        self.reported.rotate_left(1);
        let last = REPORTS - 1;
        if let Some(range) = self.reported.get_mut(last) {
            *range = None;
        }
        last
    }

    /// Whether a failure concerns what stands for all transfers up to this one.
    pub(crate) fn concern(&self, up_to: Sequence) -> bool {
        let is_fresh = matches!(self.fresh, Some((first, _)) if first <= up_to);
        let was_reported = self
            .reported
            .iter()
            .flatten()
            .any(|(first, last)| *first <= up_to && up_to <= *last);
        is_fresh || was_reported
    }

    /// The failures up to this one are reported now, when `last` was started last. Returns whether there is one
    /// that was not before.
    pub(crate) fn report(&mut self, up_to: Sequence, last: Sequence) -> bool {
        let Some((first, end)) = self.fresh.filter(|(first, _)| *first <= up_to) else {
            return false;
        };
        // Those behind were not asked about.
        self.fresh = (end > up_to).then_some((Sequence(up_to.0.saturating_add(1)), end));
        self.add_reported(first, last);
        true
    }
}
