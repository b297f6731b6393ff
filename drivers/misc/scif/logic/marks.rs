// SPDX-License-Identifier: GPL-2.0

//! Sequence numbers of RMA operations, the fence marks made of them, and which fences hear of failures.
//!
//! Every RMA of an endpoint gets the next number. Operations complete in any order; the *watermark*
//! is the number up to which all are complete, so that waiting for a fence is waiting for one
//! number. At most [`WINDOW`] operations can be outstanding; a bitmap of that size holds those that
//! completed above the watermark.
//!
//! A mark is what user space gets to see of a number: a positive 32-bit integer with its low 29
//! bits. It comes back from user space at any time, forged or years old, and is believed only if
//! it can have been handed out within the last 2^28 operations. A mark further behind is unknown,
//! or taken for a later one once the bits have come round: the wait is then too long, not too
//! short, and never endless, as only numbers that were issued are waited for.
//!
//! No locking: the caller has a lock around all of it anyway.

/// How many operations can be outstanding.
pub(crate) const WINDOW: u64 = 1024;

const BITS: u64 = u64::BITS as u64;
const WORDS: usize = (WINDOW / BITS) as usize;

/// The number of an RMA operation; the first is 1, and 0 comes before all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sequence(pub(crate) u64);

/// The numbers of one end's transfers: which have ended, and who hears of those that have failed.
///
/// Failures are kept twice, as this end's fences and signals know them, and as those know them that the peer
/// asks for: each side is told by its own. Once one was reported, what is asked for later is told from what was
/// asked for before by its number: the report takes one, which no transfer has.
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

/// The word of a number in the bitmap and its bit in that word.
const fn locate(sequence: u64) -> (usize, u64) {
    let index = sequence % WINDOW;
    (
        (index / BITS) as usize,
        1_u64.wrapping_shl((index % BITS) as u32),
    )
}

impl Numbers {
    /// No transfer was started.
    pub(crate) fn new() -> Self {
        // INVARIANT: The numbers are equal and no bit is set.
        Self::default()
    }

    /// Gives the next number to a transfer. `None` if [`WINDOW`] of them are outstanding: wait for the watermark
    /// to move.
    pub(crate) fn begin(&mut self) -> Option<Sequence> {
        if self.last.saturating_sub(self.watermark) >= WINDOW {
            return None;
        }
        // INVARIANT: The difference was below `WINDOW`. The bit of the new number is clear: the
        // number with the same bit before it is at or below the watermark.
        self.last = self.last.checked_add(1)?;
        Some(Sequence(self.last))
    }

    /// A transfer has ended; if it has `failed`, its caller is told so if that `is_reported`. Returns whether
    /// the number moved up to which all have ended.
    ///
    /// A number that is not outstanding is ignored.
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

    /// Whether a failure concerns a signal of this side that stands for all up to `sequence`, which have ended.
    pub(crate) fn has_failed(&mut self, asker: Asker, sequence: Sequence) -> bool {
        self.failures(asker).concern(sequence)
    }

    /// As [`Self::has_failed`], of a fence, which reports it.
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

    /// Gives a number to no transfer. If too many are under way for that, what is asked for until the next one
    /// starts hears of the failure, too.
    fn skip_number(&mut self) {
        if let Some(none) = self.begin() {
            self.complete(none);
        }
    }

    /// Ends an operation, in any order. Returns whether the watermark moved.
    fn complete(&mut self, sequence: Sequence) -> bool {
        if sequence.0 <= self.watermark || sequence.0 > self.last {
            return false;
        }
        if sequence.0.saturating_sub(1) != self.watermark {
            let (index, bit) = locate(sequence.0);
            if let Some(word) = self.done.get_mut(index) {
                // INVARIANT: Outstanding, not the next one, and complete now.
                *word |= bit;
            }
            return false;
        }
        // INVARIANT: Moves over numbers that are complete only; their bits are cleared.
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

    /// How many have been started and have not ended.
    pub(crate) fn in_flight(&self) -> u64 {
        let begun = self.last.saturating_sub(self.watermark);
        let done = self.done.iter().map(|word| u64::from(word.count_ones()));
        begun.saturating_sub(done.sum())
    }

    /// All operations up to this one are complete.
    pub(crate) fn watermark(&self) -> Sequence {
        Sequence(self.watermark)
    }

    /// The operation that was started last.
    pub(crate) fn last_issued(&self) -> Sequence {
        Sequence(self.last)
    }

    /// Whether this operation and all before it are complete.
    pub(crate) fn is_complete(&self, sequence: Sequence) -> bool {
        sequence.0 <= self.watermark
    }
}

/// Whose operations a mark stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Those that this endpoint started.
    Own,
    /// Those that the peer's endpoint started.
    Peer,
}

/// No mark that can have been handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unknown;

/// The low bits of the sequence number in a mark.
const SEQUENCE_MASK: u32 = (1 << 29) - 1;
/// Set in marks for the peer's operations.
const PEER_BIT: u32 = 1 << 29;
/// Set in all marks, so that none is zero and few numbers are marks by accident.
const MARK_BIT: u32 = 1 << 30;
/// How far behind the last operation a mark can be.
const MAX_DISTANCE: u64 = 1 << 28;

/// The mark for all operations up to `sequence`; greater than zero.
pub(crate) const fn encode(sequence: Sequence, origin: Origin) -> i32 {
    let origin = match origin {
        Origin::Own => 0,
        Origin::Peer => PEER_BIT,
    };
    // The top bit is clear, so that the number stays positive.
    (MARK_BIT | origin | (sequence.0 as u32 & SEQUENCE_MASK)) as i32
}

/// Whose operations `mark` stands for: which last number to give to [`decode`].
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

/// The operations that `mark` stands for, where `last_issued` is the last of that origin.
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

/// How many reports are told apart. Behind that many, two neighbours become one.
pub(crate) const REPORTS: usize = 4;

/// Which transfers have failed, and which fences and signals say so.
///
/// A fence, and a signal, stands for all transfers up to a number. A failure concerns every one
/// that stands for it and was asked for before the failure was first reported, however often it is asked. What
/// is asked for afterwards is not concerned: its number is greater than that of all transfers that had been
/// started when the failure was reported, and the owner sees to it that there is such a number.
///
/// Of failures that were not reported only the bounds are kept, and of reports the last [`REPORTS`] that lie
/// apart. So what lies between two of them may be said to have failed though it has not; a failure is never left
/// out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failures {
    /// The first and the last one that were not reported.
    fresh: Option<(Sequence, Sequence)>,
    /// Of each report, the first failure, and the last transfer that had been started by then. The newest report
    /// comes last, and what is not used first.
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
        let is_near = |range: &&mut Option<(Sequence, Sequence)>| {
            range.is_some_and(|(begin, end)| failed <= end && begin <= last)
        };
        if let Some(range) = self.reported.iter_mut().find(is_near) {
            *range = joined(*range, (failed, last));
            return;
        }
        // The two oldest become one.
        if let [Some(oldest), second, ..] = &mut self.reported {
            *second = joined(*second, *oldest);
        }
        self.reported.rotate_left(1);
        let [.., newest] = &mut self.reported;
        *newest = Some((failed, last));
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

/// Which side has asked for a fence or a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    This,
    Peer,
}
