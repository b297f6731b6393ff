// SPDX-License-Identifier: GPL-2.0

//! Fences of one end of a channel: making marks and waiting for them.
//!
//! A mark is the number of the last transfer that had been started when the mark was requested. It
//! stands for transfers of this end (`INIT_SELF`) or of the peer (`INIT_PEER`). Waiting for a mark
//! means waiting for all transfers up to that number.
//!
//! A mark of the peer's transfers takes a question to the peer and an answer. Waiting for such a
//! mark takes another question: the peer defers its answer behind its own transfers (`marks.rs`).

use super::{
    signal::Signal,
    transfers::Transfers, //
};
use crate::{
    arguments::{
        SignalTarget,
        SignalTargets, //
    },
    logic::{
        marks::{
            self,
            Asker,
            Origin,
            Sequence, //
        },
        messages::{
            Message,
            Status, //
        },
    },
    peer::{
        control::Reservation,
        questions, //
    },
    sys::{
        trace,
        wait::WaitQueue, //
    },
};
use kernel::{
    prelude::*,
    time::Delta, //
};

/// Time after which a caller tries again to defer an action at an end that is full. The end does
/// not tell callers when it has room.
const ROOM_PERIOD: Delta = Delta::from_millis(5);

/// An answer of the peer. If the peer was asked for a mark, `sequence` is the number of the mark.
#[derive(Clone, Copy)]
pub(super) struct Answer {
    status: Status,
    sequence: Sequence,
}

impl Transfers {
    /// Returns a mark for all transfers that `origin` has started so far. If these are the peer's,
    /// the wait for the answer is interruptible.
    pub(crate) fn mark(&self, origin: Origin) -> Result<i32> {
        let result = self.make_mark(origin);
        trace::fence_mark(|| {
            let mark = result.unwrap_or(0);
            self.traced_mark(origin, mark, trace::errno(&result))
        });
        result
    }

    /// Returns the fields of a trace event about a mark.
    fn traced_mark(&self, origin: Origin, mark: i32, result: i32) -> trace::Fence {
        trace::Fence {
            node: self.channel.node(),
            channel: self.channel.id.0,
            peer: origin == Origin::Peer,
            mark,
            result,
        }
    }

    fn make_mark(&self, origin: Origin) -> Result<i32> {
        self.channel.check_established()?;
        let sequence = match origin {
            Origin::Own => self.marks.last_issued(),
            Origin::Peer => {
                let target = self.channel.remote()?;
                let request = |token| Message::MarkRequest { target, token };
                let answer = self.ask(request, questions::wait_in_time(&self.channel))?;
                let sequence = answer.sequence;
                let mut known = self.peer_last.lock();
                *known = sequence.max(*known);
                sequence
            }
        };
        Ok(marks::encode(sequence, origin))
    }

    /// Waits until the transfers that `mark` stands for have completed. The wait is interruptible.
    ///
    /// # Errors
    ///
    /// - EINVAL: the value can't be a mark.
    /// - EIO: one of the transfers failed.
    /// - ECONNRESET, ENODEV: the peer has closed or is lost, as for every call.
    pub(crate) fn wait_for_mark(&self, mark: i32) -> Result {
        self.channel.check_established()?;
        let origin = marks::origin(mark).map_err(|_| EINVAL)?;
        let last = match origin {
            Origin::Own => self.marks.last_issued(),
            Origin::Peer => *self.peer_last.lock(),
        };
        let (_, sequence) = marks::decode(mark, last).map_err(|_| EINVAL)?;
        trace::fence_wait(|| self.traced_mark(origin, mark, 0));
        let result = match origin {
            Origin::Own => self.wait_for_own(sequence),
            Origin::Peer => self.wait_for_peers(sequence),
        };
        trace::fence_wait_done(|| self.traced_mark(origin, mark, trace::errno(&result)));
        result
    }

    fn wait_for_own(&self, sequence: Sequence) -> Result {
        self.marks.poll_until(|| self.marks.is_complete(sequence));
        self.channel
            .waiters()?
            .wait(|| self.marks.is_complete(sequence).then_some(()))?;
        self.marks
            .report_failure(sequence)
            .map_err(|error| self.marks.transfer_error(error))
    }

    fn wait_for_peers(&self, sequence: Sequence) -> Result {
        let target = self.channel.remote()?;
        let request = |token| Message::FenceWait {
            target,
            token,
            sequence: sequence.0,
        };
        // Has no time limit, as the transfers may take any time.
        match self.ask_to_defer(request, |waiters, answer| waiters.wait(answer))? {
            Status::Done => Ok(()),
            Status::TransferFailed => Err(self.marks.transfer_error(EIO)),
            Status::Unknown => Err(EINVAL),
            _ => Err(EPROTO),
        }
    }

    /// Has values stored in this end's window and in the peer's, once all transfers that `origin`
    /// has started so far have completed. Returns ENXIO if there is no window, EACCES if a window
    /// can't be written.
    pub(crate) fn signal(&self, origin: Origin, targets: SignalTargets) -> Result {
        let result = self.order_signal(origin, targets);
        let offset = |target: Option<SignalTarget>| target.map_or(-1, |target| target.offset);
        trace::fence_signal(|| trace::Signal {
            node: self.channel.node(),
            channel: self.channel.id.0,
            peer: origin == Origin::Peer,
            local: offset(targets.local),
            remote: offset(targets.remote),
            result: trace::errno(&result),
        });
        result
    }

    fn order_signal(&self, origin: Origin, targets: SignalTargets) -> Result {
        self.channel.check_established()?;
        if origin == Origin::Own {
            return self.order_own_signal(targets);
        }
        // Stays inside the peer while windows are in use, so that the session and its mappings
        // stay.
        let _inside = self.channel.enter().ok_or(ENODEV)?;
        // Looks up the windows for the peer's signal, too, so that the caller hears of mistakes.
        drop(self.make_told_signal(targets)?);
        let pair = |target: SignalTarget| (target.offset as u64, target.value);
        let target = self.channel.remote()?;
        let request = |token| Message::Signal {
            target,
            token,
            senders: targets.local.map(pair),
            receivers: targets.remote.map(pair),
        };
        // Only killable: if the call were restarted after a signal, values would be stored twice.
        let promised = self.ask_to_defer(request, |waiters, answer| {
            let answer = waiters.wait_killable_timeout(questions::LIMIT, answer)?;
            Ok(questions::in_time(&self.channel, answer))
        });
        match promised? {
            Status::Done => Ok(()),
            Status::Unknown => Err(ENXIO),
            _ => Err(EPROTO),
        }
    }

    fn order_own_signal(&self, targets: SignalTargets) -> Result {
        // The caller keeps no resource between the attempts, because other callers wait for the
        // resources of an attempt.
        self.until_there_is_room(|| {
            let _inside = self.channel.enter().ok_or(ENODEV)?;
            let ordered = self.defer_signal(Asker::This, || self.make_told_signal(targets));
            ordered.map_err(|error| self.channel.end_or(error))
        })
    }

    /// Defers a signal behind all transfers that were started so far. Returns EAGAIN if too many
    /// actions wait already.
    fn defer_signal(&self, asker: Asker, make: impl FnOnce() -> Result<Signal>) -> Result {
        // The closer of this end waits for this use, and then takes the memory back.
        let _use = self.channel.begin_use()?;
        let signal = make()?;
        self.marks.as_arc_borrow().defer_signal(signal, asker)
    }

    /// Makes a signal as [`Signal::new`] does, for a caller that is to hear of mistakes.
    fn make_told_signal(&self, targets: SignalTargets) -> Result<Signal> {
        let made = || Signal::new(self, targets);
        let signal = made().or_else(|error| {
            // The peer's message about the window may have arrived, but not been handled yet.
            if error != ENXIO {
                return Err(error);
            }
            self.channel.wait_for_handled()?;
            made()
        });
        // If the connection has ended meanwhile, which takes windows away, reports that instead.
        signal.map_err(|error| self.channel.end_or(error))
    }

    /// Returns the number of questions that the peer has not answered.
    /// Context: any.
    pub(crate) fn asked(&self) -> usize {
        self.questions.count()
    }

    // ----- asking the peer ---------------------------------------------------------------------

    /// Asks the peer to defer an action behind its transfers, as [`Self::ask`] does. While too many
    /// actions wait at the peer, asks again. The wait between the attempts is interruptible.
    fn ask_to_defer(
        &self,
        message: impl Fn(u32) -> Message,
        wait: impl Fn(&WaitQueue, &mut dyn FnMut() -> Option<Result<Answer>>) -> Result<Result<Answer>>,
    ) -> Result<Status> {
        self.until_there_is_room(|| match self.ask(&message, &wait)?.status {
            Status::NoMemory => Err(EAGAIN),
            status => Ok(status),
        })
    }

    /// Tries to defer an action behind the transfers of either end. While an attempt returns
    /// EAGAIN, tries again after a moment. The wait between the attempts is interruptible.
    fn until_there_is_room<T>(&self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            let result = attempt();
            if !matches!(result, Err(EAGAIN)) {
                return result;
            }
            let is_over = || self.channel.check_established().err();
            let waited = self.channel.waiters()?.wait_timeout(ROOM_PERIOD, is_over)?;
            waited.map_or(Ok(()), Err)?;
        }
    }

    /// Asks the peer, and waits for the answer with `wait`.
    fn ask(
        &self,
        message: impl FnOnce(u32) -> Message,
        wait: impl FnOnce(
            &WaitQueue,
            &mut dyn FnMut() -> Option<Result<Answer>>,
        ) -> Result<Result<Answer>>,
    ) -> Result<Answer> {
        let post = |token| self.channel.post(&message(token));
        let answer = self.questions.ask(post, wait);
        answer.map_err(|error| self.channel.end_or(error))
    }

    /// Fails all questions, for good, as the channel has ended and no answers will come.
    /// Context: any.
    pub(crate) fn close_questions(&self) {
        self.questions.close(ECONNRESET).for_each(drop);
    }

    // ----- messages of the peer; called by the control work ------------------------------------

    /// Answers the peer's request for a mark of this end's transfers.
    pub(crate) fn mark_requested(&self, token: u32) {
        self.answer(token, Status::Done, self.marks.last_issued());
    }

    /// Handles an answer of the peer. It brings the mark that a caller asked for, says that the
    /// peer's transfers have completed, or says that the peer has accepted a signal.
    pub(crate) fn fence_answered(&self, token: u32, status: Status, sequence: u64) {
        let sequence = Sequence(sequence);
        self.questions.answered(token, Answer { status, sequence });
    }

    /// Answers the peer once this end's transfers up to `sequence` have completed.
    pub(crate) fn wait_requested(&self, token: u32, sequence: u64) {
        let sequence = Sequence(sequence);
        if sequence > self.marks.last_issued() {
            self.answer(token, Status::Unknown, sequence);
            return;
        }
        let marks = self.marks.as_arc_borrow();
        let deferred = self
            .channel
            .reserve_for_peer(Reservation::new)
            .and_then(|reservation| marks.defer_answer(sequence, token, reservation));
        if deferred.is_err() {
            self.answer(token, Status::NoMemory, sequence);
        }
    }

    /// Answers the peer's question with this token.
    fn answer(&self, token: u32, status: Status, sequence: Sequence) {
        if let Ok(target) = self.channel.remote() {
            self.channel.answer(&Message::FenceAnswer {
                target,
                token,
                status,
                sequence: sequence.0,
            });
        }
    }

    /// Defers a signal of the peer behind this end's transfers, and tells the peer whether it was
    /// accepted.
    pub(crate) fn signal_requested(
        &self,
        token: u32,
        senders: Option<(u64, u64)>,
        receivers: Option<(u64, u64)>,
    ) {
        let target = |(offset, value)| SignalTarget {
            offset: offset as i64,
            value,
        };
        let targets = SignalTargets {
            local: receivers.map(target),
            remote: senders.map(target),
        };
        let status = match self.defer_signal(Asker::Peer, || Signal::new(self, targets)) {
            Ok(()) => Status::Done,
            Err(ENOMEM | EAGAIN) => Status::NoMemory,
            // The connection has ended, which takes windows away. The peer hears of that next.
            Err(_) if self.channel.check_established().is_err() => return,
            // A window was unregistered meanwhile.
            Err(_) => Status::Unknown,
        };
        self.answer(token, status, Sequence::default());
    }
}
