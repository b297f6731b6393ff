// SPDX-License-Identifier: GPL-2.0

//! Fences of one end of a channel: marks and waiting for them.
//!
//! A mark is the number of the last transfer that had been started when it was asked for, of this
//! end (`INIT_SELF`) or of the peer's (`INIT_PEER`); waiting for it is waiting for all up to that
//! number.
//!
//! A mark of the peer's transfers takes a question to the peer and an answer. Waiting for it takes
//! another: the peer defers its answer behind its own transfers (`marks.rs`).

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

/// How long a caller waits before it tries again to defer something at an end that is full: the end does not tell
/// callers when it has room.
const ROOM_PERIOD: Delta = Delta::from_millis(5);

/// An answer of the peer: to a request for a mark with the number that it stands for.
#[derive(Clone, Copy)]
pub(super) struct Answer {
    status: Status,
    sequence: Sequence,
}

impl Transfers {
    /// A mark for all transfers started so far. Interruptible for the peer's.
    pub(crate) fn mark(&self, origin: Origin) -> Result<i32> {
        let result = self.make_mark(origin);
        trace::fence_mark(|| {
            let mark = result.unwrap_or(0);
            self.traced_mark(origin, mark, trace::errno(&result))
        });
        result
    }

    /// What events are told of a mark.
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

    /// Waits until the transfers that `mark` stands for have ended. EINVAL if it can't be a mark,
    /// EIO if one of them failed; ECONNRESET or ENODEV, as from every call, if the peer has gone
    /// before. Interruptible.
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
        // As long as the transfers take.
        match self.ask_to_defer(request, |waiters, answer| waiters.wait(answer))? {
            Status::Done => Ok(()),
            Status::TransferFailed => Err(self.marks.transfer_error(EIO)),
            Status::Unknown => Err(EINVAL),
            _ => Err(EPROTO),
        }
    }

    /// Has values stored, in our window and in the peer's, when all transfers that `origin` has
    /// started so far have ended. ENXIO where there is no window, EACCES where it can't be written.
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
        // While windows are in use the session, and with it the mappings, stays.
        let _inside = self.channel.enter().ok_or(ENODEV)?;
        // Looked up here for the peer, too, so that the caller hears of mistakes.
        drop(self.make_told_signal(targets)?);
        let pair = |target: SignalTarget| (target.offset as u64, target.value);
        let target = self.channel.remote()?;
        let request = |token| Message::Signal {
            target,
            token,
            senders: targets.local.map(pair),
            receivers: targets.remote.map(pair),
        };
        // Killable only: to ask twice would be two signals.
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
        // Others wait for what is held while it is tried, so nothing is while there is no room.
        self.until_there_is_room(|| {
            let _inside = self.channel.enter().ok_or(ENODEV)?;
            let ordered = self.defer_signal(Asker::This, || self.make_told_signal(targets));
            ordered.map_err(|error| self.channel.end_or(error))
        })
    }

    /// Has a signal given behind all transfers that were started so far. EAGAIN if too much waits there already.
    fn defer_signal(&self, asker: Asker, make: impl FnOnce() -> Result<Signal>) -> Result {
        // Who closes this end waits for it, and then takes the memory back.
        let _use = self.channel.begin_use()?;
        let signal = make()?;
        self.marks.as_arc_borrow().defer_signal(signal, asker)
    }

    /// As [`Signal::new`], for a caller who hears of mistakes.
    fn make_told_signal(&self, targets: SignalTargets) -> Result<Signal> {
        let made = || Signal::new(self, targets);
        let signal = made().or_else(|error| {
            // The window may be among what the peer has said by now.
            if error != ENXIO {
                return Err(error);
            }
            self.channel.wait_for_handled()?;
            made()
        });
        // If the connection has ended meanwhile, which takes windows away, that is said.
        signal.map_err(|error| self.channel.end_or(error))
    }

    /// How many questions the peer has not answered. Any context.
    pub(crate) fn asked(&self) -> usize {
        self.questions.count()
    }

    // ----- asking the peer ---------------------------------------------------------------------

    /// Asks the peer, as [`Self::ask`], for something behind its transfers, again as long as too much waits there
    /// already. Interruptible while there is no room for it.
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

    /// Tries to have something done behind the transfers of either end, and again, after a moment each, as long as it says
    /// EAGAIN. Interruptible.
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

    /// No answers come any more: the channel has ended. Any context.
    pub(crate) fn close_questions(&self) {
        self.questions.close(ECONNRESET).for_each(drop);
    }

    // ----- what the peer says; called by the control work --------------------------------------

    /// The peer wants a mark of our transfers.
    pub(crate) fn mark_requested(&self, token: u32) {
        self.answer(token, Status::Done, self.marks.last_issued());
    }

    /// The peer has answered: there is the mark that we wanted, what it was asked to wait for has ended, or it has taken a
    /// signal.
    pub(crate) fn fence_answered(&self, token: u32, status: Status, sequence: u64) {
        let sequence = Sequence(sequence);
        self.questions.answered(token, Answer { status, sequence });
    }

    /// The peer wants to know when our transfers have ended.
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

    /// Answers what the peer has asked with this token.
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

    /// The peer wants a signal behind our transfers.
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
            // The end of the connection, which takes windows away, is what the peer hears next.
            Err(_) if self.channel.check_established().is_err() => return,
            // A window that was unregistered meanwhile.
            Err(_) => Status::Unknown,
        };
        self.answer(token, status, Sequence::default());
    }
}
