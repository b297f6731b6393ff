// SPDX-License-Identifier: GPL-2.0

//! Sequence numbers of transfers, the marks made of them for fences, and the reports of failures.
//!
//! Every transfer of an endpoint gets the next number. Transfers complete in any order. The
//! *watermark* is the number up to which all are complete, so a fence waits for a single number. At
//! most [`WINDOW`] transfers can be in flight. A bitmap of that size holds the numbers above the
//! watermark that are complete.
//!
//! A mark is a number as user space sees it: a positive 32-bit integer that contains the number's
//! low 29 bits. User space may pass any mark at any time, forged or years old. It is accepted only
//! if it can have been handed out within the last 2^28 transfers. An older mark is unknown, or
//! taken for a later one once the bits have wrapped. The wait is then too long, but never too
//! short. It is never endless either, as only issued numbers are waited for.
//!
//! No locking: the caller holds a lock around all of it.

/// Maximum distance between the watermark and the last number. So at most this many transfers are
/// in flight.
pub(crate) const WINDOW: u64 = 1024;

const BITS: u64 = u64::BITS as u64;
const WORDS: usize = (WINDOW / BITS) as usize;

/// The number of a transfer. The first is 1; 0 comes before all transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sequence(pub(crate) u64);

/// The numbers of an endpoint's transfers: the complete ones, and the failures to report.
///
/// Each failure is kept twice: for fences and signals that this side requests, and for those that
/// the peer requests. So each side hears of it independently of the other. The report of a failure
/// takes a number that no transfer has. So the number of a later fence is greater than that of any
/// fence requested before the report.
///
/// # Invariants
///
/// - `watermark <= last` and `last - watermark <= WINDOW`.
/// - The bit of a number (modulo [`WINDOW`]) is set exactly if that number is in
///   `watermark + 2 ..= last` and complete.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    last: u64,
    watermark: u64,
    done: [u64; WORDS],
    failed: Failures,
    failed_for_peer: Failures,
}

/// Returns the index of a number's word in the bitmap, and the number's bit in that word.
const fn locate(sequence: u64) -> (usize, u64) {
    let index = sequence % WINDOW;
    (
        (index / BITS) as usize,
        1_u64.wrapping_shl((index % BITS) as u32),
    )
}

impl Numbers {
    /// Creates the numbers of an endpoint without transfers.
    pub(crate) fn new() -> Self {
        // INVARIANT: The numbers are equal and no bit is set.
        Self::default()
    }

    /// Gives the next number to a transfer. Returns `None` if the last number is [`WINDOW`] above
    /// the watermark: the caller then waits until the watermark moves.
    pub(crate) fn begin(&mut self) -> Option<Sequence> {
        if self.last.saturating_sub(self.watermark) >= WINDOW {
            return None;
        }
        // INVARIANT: The difference was below `WINDOW`. The bit of the new number is clear: the
        // number with the same bit before it is at or below the watermark.
        self.last = self.last.checked_add(1)?;
        Some(Sequence(self.last))
    }

    /// Marks a transfer as complete. `failed` tells that it has failed, and `is_reported` that its
    /// caller is told of the failure. Returns whether the watermark moved.
    ///
    /// Ignores a number that is not in flight.
    pub(crate) fn end(&mut self, sequence: Sequence, failed: bool, is_reported: bool) -> bool {
        let moved = self.complete(sequence);
        if !failed {
            return moved;
        }
        let last = self.last_issued();
        for asker in [Asker::This, Asker::Peer] {
            if is_reported {
                self.failures(asker).add_reported(sequence, last);
            } else {
                self.failures(asker).add(sequence);
            }
        }
        if is_reported {
            self.skip_number();
        }
        moved
    }

    /// Returns whether a signal for all transfers up to `sequence`, which are complete, has to
    /// report a failure.
    pub(crate) fn has_failed(&mut self, asker: Asker, sequence: Sequence) -> bool {
        self.failures(asker).concern(sequence)
    }

    /// Returns whether a fence up to `sequence` has to report a failure, and counts the failure as
    /// reported.
    pub(crate) fn report_failure(&mut self, asker: Asker, sequence: Sequence) -> bool {
        let last = self.last_issued();
        if self.failures(asker).report(sequence, last) {
            self.skip_number();
        }
        self.has_failed(asker, sequence)
    }

    fn failures(&mut self, asker: Asker) -> &mut Failures {
        match asker {
            Asker::This => &mut self.failed,
            Asker::Peer => &mut self.failed_for_peer,
        }
    }

    /// Gives a number to no transfer. If too many are in flight for that, fences requested before
    /// the next transfer starts report the failure, too.
    fn skip_number(&mut self) {
        if let Some(none) = self.begin() {
            self.complete(none);
        }
    }

    /// Marks a number as complete, in any order. Returns whether the watermark moved.
    fn complete(&mut self, sequence: Sequence) -> bool {
        if sequence.0 <= self.watermark || sequence.0 > self.last {
            return false;
        }
        if sequence.0.saturating_sub(1) != self.watermark {
            let (index, bit) = locate(sequence.0);
            if let Some(word) = self.done.get_mut(index) {
                // INVARIANT: In flight until now, not the next number, and complete now.
                *word |= bit;
            }
            return false;
        }
        // INVARIANT: Moves only over numbers that are complete, and clears their bits.
        self.watermark = sequence.0;
        while self.watermark < self.last {
            let next = self.watermark.saturating_add(1);
            let (index, bit) = locate(next);
            match self.done.get_mut(index) {
                Some(word) if *word & bit != 0 => *word &= !bit,
                _ => break,
            }
            self.watermark = next;
        }
        true
    }

    /// Returns the number of transfers that were started and are not complete.
    pub(crate) fn in_flight(&self) -> u64 {
        let begun = self.last.saturating_sub(self.watermark);
        let done = self.done.iter().map(|word| u64::from(word.count_ones()));
        begun.saturating_sub(done.sum())
    }

    /// Returns the number up to which all transfers are complete.
    pub(crate) fn watermark(&self) -> Sequence {
        Sequence(self.watermark)
    }

    /// Returns the number issued last.
    pub(crate) fn last_issued(&self) -> Sequence {
        Sequence(self.last)
    }

    /// Returns whether all transfers up to `sequence` are complete.
    pub(crate) fn is_complete(&self, sequence: Sequence) -> bool {
        sequence.0 <= self.watermark
    }
}

/// The side whose transfers a mark covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Transfers that this endpoint started.
    Own,
    /// Transfers that the peer's endpoint started.
    Peer,
}

/// The error for a mark that can't have been handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unknown;

/// The low bits of the sequence number in a mark.
const SEQUENCE_MASK: u32 = (1 << 29) - 1;
/// Set in marks for the peer's transfers.
const PEER_BIT: u32 = 1 << 29;
/// Set in all marks, so that no mark is zero, and few other numbers are marks by accident.
const MARK_BIT: u32 = 1 << 30;
/// Maximum distance between a mark and the last number issued.
const MAX_DISTANCE: u64 = 1 << 28;

/// Returns the mark for all transfers up to `sequence`; it is greater than zero.
pub(crate) const fn encode(sequence: Sequence, origin: Origin) -> i32 {
    let origin = match origin {
        Origin::Own => 0,
        Origin::Peer => PEER_BIT,
    };
    // The top bit is clear, so that the number stays positive.
    (MARK_BIT | origin | (sequence.0 as u32 & SEQUENCE_MASK)) as i32
}

/// Returns the side whose transfers `mark` covers. The caller gives the last number of that side to
/// [`decode`].
pub(crate) const fn origin(mark: i32) -> Result<Origin, Unknown> {
    let bits = mark as u32;
    if mark < 0 || bits & MARK_BIT == 0 {
        return Err(Unknown);
    }
    if bits & PEER_BIT == 0 {
        Ok(Origin::Own)
    } else {
        Ok(Origin::Peer)
    }
}

/// Returns the transfers that `mark` covers, if `last_issued` is the last number of that side.
pub(crate) fn decode(mark: i32, last_issued: Sequence) -> Result<(Origin, Sequence), Unknown> {
    let origin = origin(mark)?;
    let low = u64::from(mark as u32 & SEQUENCE_MASK);
    let distance = last_issued.0.wrapping_sub(low) & u64::from(SEQUENCE_MASK);
    if distance > MAX_DISTANCE {
        return Err(Unknown);
    }
    let sequence = last_issued.0.checked_sub(distance).ok_or(Unknown)?;
    Ok((origin, Sequence(sequence)))
}

/// Number of reports that are told apart. If there are more, two neighbours are joined.
pub(crate) const REPORTS: usize = 4;

/// The failed transfers, and which fences and signals report them.
///
/// A fence or a signal covers all transfers up to a number. A failure concerns every fence and
/// signal that covers it and was requested before the failure was first reported, however often. It
/// does not concern later ones. Their number is greater than that of every transfer started before
/// the report. The owner of this object makes sure that there is such a number.
///
/// Of unreported failures only the bounds are kept, and of reports the last [`REPORTS`] that lie
/// apart. So a transfer between two failures may be reported as failed although it succeeded. A
/// failure is never left out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failures {
    /// The first and the last unreported failure.
    fresh: Option<(Sequence, Sequence)>,
    /// For each report, the first failure, and the last transfer started before the report. Unused
    /// entries come first, and the newest report last.
    reported: [Option<(Sequence, Sequence)>; REPORTS],
}

/// Returns the smallest range that contains both ranges.
fn joined(
    range: Option<(Sequence, Sequence)>,
    (first, last): (Sequence, Sequence),
) -> Option<(Sequence, Sequence)> {
    let (begin, end) = range.unwrap_or((first, last));
    Some((begin.min(first), end.max(last)))
}

impl Failures {
    /// Adds a failed transfer of which no caller was told.
    pub(crate) fn add(&mut self, failed: Sequence) {
        self.fresh = joined(self.fresh, (failed, failed));
    }

    /// Adds a failed transfer whose caller gets the error. `last` is the newest transfer.
    pub(crate) fn add_reported(&mut self, failed: Sequence, last: Sequence) {
        let is_near = |range: &&mut Option<(Sequence, Sequence)>| {
            range.is_some_and(|(begin, end)| failed <= end && begin <= last)
        };
        if let Some(range) = self.reported.iter_mut().find(is_near) {
            *range = joined(*range, (failed, last));
            return;
        }
        // Joins the two oldest reports.
        if let [Some(oldest), second, ..] = &mut self.reported {
            *second = joined(*second, *oldest);
        }
        self.reported.rotate_left(1);
        let [.., newest] = &mut self.reported;
        *newest = Some((failed, last));
    }

    /// Returns whether a failure concerns a fence or signal for all transfers up to this one.
    pub(crate) fn concern(&self, up_to: Sequence) -> bool {
        let is_fresh = matches!(self.fresh, Some((first, _)) if first <= up_to);
        let was_reported = self
            .reported
            .iter()
            .flatten()
            .any(|(first, last)| *first <= up_to && up_to <= *last);
        is_fresh || was_reported
    }

    /// Counts the failures up to `up_to` as reported, where `last` was started last. Returns
    /// whether one of them was not reported before.
    pub(crate) fn report(&mut self, up_to: Sequence, last: Sequence) -> bool {
        let Some((first, end)) = self.fresh.filter(|(first, _)| *first <= up_to) else {
            return false;
        };
        // Failures above `up_to` were not asked about.
        self.fresh = (end > up_to).then_some((Sequence(up_to.0.saturating_add(1)), end));
        self.add_reported(first, last);
        true
    }
}

/// The side that requested a fence or a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    This,
    Peer,
}
