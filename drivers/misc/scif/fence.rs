// SPDX-License-Identifier: GPL-2.0

//! Fences: marks and waiting for them.
//!
//! A mark is the sequence number of the last transfer that had been started when it was asked for,
//! of this end (`INIT_SELF`) or of the peer's (`INIT_PEER`); waiting for it is waiting for all up
//! to that number. Fences know nothing of engines.
//!
//! A mark of the peer's transfers takes a question to the peer and an answer. Waiting for it takes
//! another: the peer keeps the question as a *deferred* action behind its own watermark and answers
//! when that has passed. Questions carry a token, so that an answer finds who asked even if he has
//! given up meanwhile.
//!
//! Locks: `questions` and `deferred` are leaves; `deferred` is not taken in interrupts.

use crate::{
    connection::Connection,
    logic::{
        marks::{
            self,
            Origin,
            Sequence, //
        },
        wire::{
            Message,
            Status, //
        },
    },
    signal::Signal,
    sys::wait::WaitQueue,
};
use kernel::{
    new_mutex, new_spinlock,
    prelude::*,
    rbtree::RBTree,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        barrier,
        Arc,
        Mutex,
        SpinLock, //
    },
};

/// Questions of the peer that may wait on one connection.
const MAX_DEFERRED: usize = 4096;

/// An answer of the peer.
#[derive(Clone, Copy)]
enum Answer {
    Mark(Sequence),
    Done(Status),
}

/// Something to do once all transfers up to a number have ended.
struct Deferred {
    sequence: Sequence,
    action: Action,
}

enum Action {
    /// Tell the peer, which has asked with this token.
    Answer(u32),
    Signal(Signal),
}

/// The fences of one end of a connection.
#[pin_data]
pub(crate) struct Fences {
    next_token: Atomic<u32>,
    /// What we have asked the peer; the answer once it is there.
    #[pin]
    questions: SpinLock<RBTree<u32, Option<Answer>>>,
    /// The last transfer of the peer that we have heard of.
    peer_last: Atomic<u64>,
    #[pin]
    deferred: Mutex<KVec<Deferred>>,
    /// How many there are, so that a completion need not look.
    deferred_count: Atomic<usize>,
}

impl Fences {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            next_token: Atomic::new(1),
            questions <- new_spinlock!(RBTree::new(), "Fences::questions"),
            peer_last: Atomic::new(0),
            deferred <- new_mutex!(KVec::new(), "Fences::deferred"),
            deferred_count: Atomic::new(0),
        })
    }

    /// Forgets what the peer has asked: nobody waits for it any more. May sleep.
    pub(crate) fn forget_deferred(&self) {
        let deferred = core::mem::replace(&mut *self.deferred.lock(), KVec::new());
        self.deferred_count.store(0, Relaxed);
        drop(deferred);
    }
}

impl Connection {
    /// A mark for all transfers started so far. Interruptible for the peer's.
    pub(crate) fn fence_mark(self: &Arc<Self>, origin: Origin) -> Result<i32> {
        self.check_established()?;
        let sequence = match origin {
            Origin::Own => self.transfers.last_issued(),
            Origin::Peer => {
                let target = self.peer()?.id;
                let answer = self.ask(|token| Message::MarkRequest { target, token })?;
                let Answer::Mark(sequence) = answer else {
                    return Err(EPROTO);
                };
                self.note_peer_sequence(sequence);
                sequence
            }
        };
        Ok(marks::encode(sequence, origin))
    }

    /// Remembers the highest number of the peer's that was heard of.
    fn note_peer_sequence(&self, sequence: Sequence) {
        let mut known = self.fences.peer_last.load(Relaxed);
        while known < sequence.0 {
            match self.fences.peer_last.cmpxchg(known, sequence.0, Full) {
                Ok(_) => return,
                Err(now) => known = now,
            }
        }
    }

    /// Waits until the transfers that `mark` stands for have ended. EINVAL if it can't be a mark,
    /// EIO if one of them failed; ECONNRESET or ENODEV, as from every call, if the peer has gone
    /// before. Interruptible.
    pub(crate) fn fence_wait(self: &Arc<Self>, mark: i32) -> Result {
        self.check_established()?;
        let origin = marks::origin(mark).map_err(|_| EINVAL)?;
        let last = match origin {
            Origin::Own => self.transfers.last_issued(),
            Origin::Peer => Sequence(self.fences.peer_last.load(Relaxed)),
        };
        let (_, sequence) = marks::decode(mark, last).map_err(|_| EINVAL)?;
        match origin {
            Origin::Own => {
                self.waiters()?
                    .wait(|| self.transfers.is_complete(sequence).then_some(()))?;
                self.transfers
                    .take_failure(sequence)
                    .map_err(|error| self.transfer_error(error))
            }
            Origin::Peer => {
                let target = self.peer()?.id;
                let answer = self.ask(|token| Message::FenceWait {
                    target,
                    token,
                    sequence: sequence.0,
                })?;
                match answer {
                    Answer::Done(Status::Done) => Ok(()),
                    Answer::Done(Status::TransferFailed) => Err(self.transfer_error(EIO)),
                    Answer::Done(Status::Unknown) => Err(EINVAL),
                    Answer::Done(Status::NoMemory) => Err(ENOMEM),
                    _ => Err(EPROTO),
                }
            }
        }
    }

    /// Asks the peer something and waits for the answer. Interruptible.
    fn ask(self: &Arc<Self>, message: impl FnOnce(u32) -> Message) -> Result<Answer> {
        self.ask_and_wait(message, |waiters, answer| waiters.wait(answer))
    }

    /// Asks the peer for a signal and waits until it has promised it: ENXIO or ENOMEM if it can't.
    /// Killable only, because asking twice would be two signals.
    pub(crate) fn ask_for_signal(self: &Arc<Self>, message: impl FnOnce(u32) -> Message) -> Result {
        match self.ask_and_wait(message, |waiters, answer| waiters.wait_killable(answer))? {
            Answer::Done(Status::Done) => Ok(()),
            Answer::Done(Status::NoMemory) => Err(ENOMEM),
            Answer::Done(Status::Unknown) => Err(ENXIO),
            _ => Err(EPROTO),
        }
    }

    fn ask_and_wait(
        self: &Arc<Self>,
        message: impl FnOnce(u32) -> Message,
        wait: impl FnOnce(
            &WaitQueue,
            &mut dyn FnMut() -> Option<Result<Answer>>,
        ) -> Result<Result<Answer>>,
    ) -> Result<Answer> {
        let waiters = self.waiters()?;
        let token = self.fences.next_token.fetch_add(1, Relaxed);
        let node = kernel::rbtree::RBTreeNode::new(token, None, GFP_KERNEL)?;
        let replaced = self.fences.questions.lock().insert(node);
        drop(replaced);
        let answer = self.session.post_bulk(&message(token)).and_then(|()| {
            wait(&waiters, &mut || {
                let answered = self.fences.questions.lock().get(&token).copied().flatten();
                answered
                    .map(Ok)
                    .or_else(|| self.check_established().err().map(Err))
            })?
        });
        let node = self.fences.questions.lock().remove_node(&token);
        drop(node);
        answer
    }

    fn answered(&self, token: u32, answer: Answer) {
        // An answer to a question that nobody waits for is none of our business.
        if let Some(place) = self.fences.questions.lock().get_mut(&token) {
            *place = Some(answer);
        }
        self.wake();
    }

    // ----- what the peer says; called by the control work --------------------------------------

    /// The peer wants a mark of our transfers.
    pub(crate) fn mark_requested(&self, token: u32) {
        if let Ok(peer) = self.peer() {
            let _ = self.session.post(&Message::MarkAnswer {
                target: peer.id,
                token,
                sequence: self.transfers.last_issued().0,
            });
        }
    }

    /// The peer has sent the mark that we wanted.
    pub(crate) fn mark_answered(&self, token: u32, sequence: u64) {
        self.answered(token, Answer::Mark(Sequence(sequence)));
    }

    /// The peer wants to know when our transfers have ended.
    pub(crate) fn fence_wait_requested(self: &Arc<Self>, token: u32, sequence: u64) {
        let sequence = Sequence(sequence);
        if sequence > self.transfers.last_issued() {
            self.say_fence_done(token, Status::Unknown);
            return;
        }
        if self.defer(sequence, Action::Answer(token)).is_err() {
            self.say_fence_done(token, Status::NoMemory);
        }
    }

    /// Does something once all transfers up to `sequence` have ended. ENOMEM if too much waits
    /// already. May sleep.
    fn defer(self: &Arc<Self>, sequence: Sequence, action: Action) -> Result {
        let new = Deferred { sequence, action };
        let refused = {
            let mut deferred = self.fences.deferred.lock();
            let room = deferred.len() < MAX_DEFERRED && deferred.reserve(1, GFP_KERNEL).is_ok();
            let refused = match room {
                true => deferred
                    .push_within_capacity(new)
                    .err()
                    .map(|error| error.0),
                false => Some(new),
            };
            self.fences.deferred_count.store(deferred.len(), Relaxed);
            refused
        };
        // Dropped without the lock.
        if refused.is_some() {
            return Err(ENOMEM);
        }
        // Counted first, then looked at, as a completion does it the other way round.
        barrier::smp_mb(barrier::Full);
        self.run_deferred();
        Ok(())
    }

    /// Gives a signal once all transfers that were started have ended. May sleep.
    pub(crate) fn defer_signal(self: &Arc<Self>, signal: Signal) -> Result {
        self.defer(self.transfers.last_issued(), Action::Signal(signal))
    }

    /// What the peer was asked to wait for has ended.
    pub(crate) fn fence_done(&self, token: u32, status: Status) {
        self.answered(token, Answer::Done(status));
    }

    // ----- behind our own transfers ------------------------------------------------------------

    /// The watermark has moved: runs what waits behind it, soon. Soft interrupt context.
    pub(crate) fn schedule_deferred(self: &Arc<Self>) {
        barrier::smp_mb(barrier::Full);
        if self.fences.deferred_count.load(Relaxed) > 0 {
            // An error says that it is about to run anyway.
            let _ = self
                .session
                .fabric
                .completion_queue
                .enqueue::<Arc<Connection>, 0>(self.clone());
        }
    }

    /// Runs what waits behind transfers that have ended. May sleep.
    pub(crate) fn run_deferred(&self) {
        // With a session that is over, it is forgotten. What signals hold goes inside the session.
        let Some(_session) = self.session.enter() else {
            return;
        };
        loop {
            let due = {
                let mut deferred = self.fences.deferred.lock();
                let position = deferred
                    .iter()
                    .position(|deferred| self.transfers.is_complete(deferred.sequence));
                let due = position.and_then(|position| deferred.remove(position).ok());
                self.fences.deferred_count.store(deferred.len(), Relaxed);
                due
            };
            let Some(due) = due else { return };
            match due.action {
                Action::Answer(token) => {
                    let status = match self.transfers.take_failure_for_peer(due.sequence) {
                        Ok(()) => Status::Done,
                        Err(_) => Status::TransferFailed,
                    };
                    self.say_fence_done(token, status);
                }
                Action::Signal(signal) => {
                    if !self.transfers.has_failed(due.sequence) {
                        self.give_signal(&signal);
                    }
                }
            }
        }
    }

    pub(crate) fn say_fence_done(&self, token: u32, status: Status) {
        if let Ok(peer) = self.peer() {
            let _ = self.session.post(&Message::FenceDone {
                target: peer.id,
                token,
                status,
            });
        }
    }
}
