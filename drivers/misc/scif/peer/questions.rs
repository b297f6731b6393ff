// SPDX-License-Identifier: GPL-2.0

//! Questions to a peer that it has not answered.
//!
//! A question stands under a token, which the peer repeats in its answer. It is put in before it is sent, and
//! ends once: with the answer, when its asker gives up, or with all others when no answers come any more. A late
//! answer finds no question, and is ignored. The number of questions is bounded, and so is the sum of their
//! weights, which the asker chooses; the next asker waits.
//!
//! A peer that does not answer in time is lost: see [`in_time`]. Who keeps transfers open watches the oldest one
//! by [`Questions::with_oldest`].
//!
//! Lock: `table` is a leaf.

use super::Peer;
use crate::sys::wait::{
    new_wait_queue,
    WaitQueue, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        SetOnce,
        SpinLock, //
    },
    time::Delta, //
};

/// A peer that has not answered for so long is not able to any more.
pub(crate) const LIMIT: Delta = Delta::from_secs(120);

/// How long a caller waits who finds too much under way.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    /// He does not wait: EAGAIN.
    Now,
    /// Until any signal, after which the call may begin anew.
    Signal,
    /// Until his process is killed, for calls that can't begin anew.
    Killed,
}

impl Until {
    /// Waits until `condition` returns a value.
    pub(super) fn wait<T>(
        self,
        waiters: &WaitQueue,
        condition: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        match self {
            Self::Now => Err(EAGAIN),
            Self::Signal => waiters.wait(condition),
            Self::Killed => waiters.wait_killable(condition),
        }
    }
}

/// One that has no answer.
struct Open<Q> {
    question: Q,
    weight: u64,
}

struct Table<Q> {
    open: RBTree<u32, Open<Q>>,
    /// Who waits for room, in this order: one with much to ask for has its turn, too.
    queue: RBTree<u64, ()>,
    next_ticket: u64,
    count: usize,
    weight: u64,
    next_token: u32,
    /// No more answers come, for this reason.
    closed: Option<Error>,
}

/// The questions of one asker. `Q` is what the asker keeps until the answer comes.
#[pin_data]
pub(crate) struct Questions<Q> {
    most: usize,
    most_weight: u64,
    #[pin]
    table: SpinLock<Table<Q>>,
    /// Woken when a question has ended.
    #[pin]
    waiters: WaitQueue,
}

/// A place in the queue of who waits for room, until this is dropped.
struct Ticket<'a, Q: Unpin> {
    questions: &'a Questions<Q>,
    number: u64,
}

impl<Q: Unpin> Drop for Ticket<'_, Q> {
    fn drop(&mut self) {
        let node = self.questions.table.lock().queue.remove_node(&self.number);
        drop(node);
        self.questions.waiters.wake_all();
    }
}

impl<Q: Unpin> Questions<Q> {
    /// No questions; so many there may be at once, and of so much weight. One alone may have any weight.
    pub(crate) fn new(most: usize, most_weight: u64) -> impl PinInit<Self> {
        pin_init!(Self {
            most,
            most_weight,
            table <- new_spinlock!(
                Table {
                    open: RBTree::new(),
                    queue: RBTree::new(),
                    next_ticket: 0,
                    count: 0,
                    weight: 0,
                    next_token: 0,
                    closed: None,
                },
                "Questions::table"
            ),
            waiters <- new_wait_queue!("scif::Questions::waiters"),
        })
    }

    /// Puts a question in and returns its token. If there are too many it waits, as `until` says. Other errors are
    /// ENOMEM, and the reason why no answers come any more.
    pub(crate) fn put(&self, question: Q, weight: u64, until: Until) -> Result<u32> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        // Dropped after the lock.
        let mut ticket = None;
        let mut table = loop {
            let table = self.table.lock();
            if let Some(error) = table.closed {
                return Err(error);
            }
            if self.has_room(&table, ticket.as_ref(), weight) {
                break table;
            }
            drop(table);
            if let Until::Now = until {
                return Err(EAGAIN);
            }
            if ticket.is_none() {
                ticket = Some(self.queue_up()?);
                continue;
            }
            self.wait_for_room(ticket.as_ref(), weight, until)?;
        };
        // There are fewer of them than numbers.
        while table.open.get(&table.next_token).is_some() {
            table.next_token = table.next_token.wrapping_add(1);
        }
        let token = table.next_token;
        table.next_token = token.wrapping_add(1);
        table.count += 1;
        table.weight = table.weight.saturating_add(weight);
        let open = Open { question, weight };
        table.open.insert(node.into_node(token, open));
        Ok(token)
    }

    fn queue_up(&self) -> Result<Ticket<'_, Q>> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut table = self.table.lock();
        let number = table.next_ticket;
        table.next_ticket = number.wrapping_add(1);
        table.queue.insert(node.into_node(number, ()));
        Ok(Ticket {
            questions: self,
            number,
        })
    }

    /// Whether there is room for one of this weight, and it is the turn of who has this ticket, or has none.
    fn has_room(&self, table: &Table<Q>, ticket: Option<&Ticket<'_, Q>>, weight: u64) -> bool {
        let sum = table.weight.saturating_add(weight);
        let first = table.queue.keys().next().copied();
        first == ticket.map(|ticket| ticket.number)
            && (table.count == 0 || table.count < self.most && sum <= self.most_weight)
    }

    /// Ends a question. None if there is no such one. Any context.
    pub(crate) fn take(&self, token: u32) -> Option<Q> {
        let mut table = self.table.lock();
        let open = table.open.remove(&token)?;
        table.count -= 1;
        table.weight = table.weight.saturating_sub(open.weight);
        drop(table);
        self.waiters.wake_all();
        Some(open.question)
    }

    /// Ends all questions, and those that come later, for this reason; of several reasons the first counts.
    /// Returns the questions one by one. May sleep.
    pub(crate) fn close(&self, error: Error) -> impl Iterator<Item = Q> + '_ {
        self.table.lock().closed.get_or_insert(error);
        self.waiters.wake_all();
        core::iter::from_fn(|| {
            let token = self.table.lock().open.keys().next().copied()?;
            self.take(token)
        })
    }

    /// Waits until it is the turn of who has this ticket, or no answers come any more.
    fn wait_for_room(&self, ticket: Option<&Ticket<'_, Q>>, weight: u64, until: Until) -> Result {
        until.wait(&self.waiters, || {
            let table = self.table.lock();
            (table.closed.is_some() || self.has_room(&table, ticket, weight)).then_some(())
        })
    }

    /// Calls `f`, under the lock, with the token of the question that waits longest, and the weight of all; with none if
    /// there is no question. Any context.
    pub(crate) fn with_oldest<R>(&self, f: impl FnOnce(Option<(u32, u64)>) -> R) -> R {
        let table = self.table.lock();
        // Tokens are given in order; once they begin anew, a later one may be taken for it.
        let token = table.open.keys().next().copied();
        f(token.map(|token| (token, table.weight)))
    }

    /// How many questions there are. Any context.
    pub(crate) fn count(&self) -> usize {
        self.table.lock().count
    }
}

/// The answer, if it has come within [`LIMIT`]; if not, the peer is lost.
pub(crate) fn in_time<A>(peer: &Peer, answer: Option<Result<A>>) -> Result<A> {
    answer.unwrap_or_else(|| {
        peer.fail("it does not answer");
        Err(ENODEV)
    })
}

/// Waits for an answer that may take [`LIMIT`]: for [`Questions::ask`]. Interruptible.
pub(crate) fn wait_in_time<A>(
    peer: &Peer,
) -> impl FnOnce(&WaitQueue, &mut dyn FnMut() -> Option<Result<A>>) -> Result<Result<A>> + '_ {
    |waiters, answer| Ok(in_time(peer, waiters.wait_timeout(LIMIT, answer)?))
}

/// What a process waits for: set once, by the answer.
pub(crate) type Reply<A> = Arc<SetOnce<A>>;

impl<A: Copy> Questions<Reply<A>> {
    /// Asks with `send`, which gets the token, and waits with `wait` for the answer, or for the reason why there is
    /// none. Interruptible while there are too many questions.
    pub(crate) fn ask(
        &self,
        send: impl FnOnce(u32) -> Result,
        wait: impl FnOnce(&WaitQueue, &mut dyn FnMut() -> Option<Result<A>>) -> Result<Result<A>>,
    ) -> Result<A> {
        let reply = Arc::new(SetOnce::new(), GFP_KERNEL_ACCOUNT)?;
        let token = self.put(reply.clone(), 0, Until::Signal)?;
        let mut answer = || {
            let answer = reply.copy().map(Ok);
            answer.or_else(|| self.table.lock().closed.map(Err))
        };
        let answered = send(token).and_then(|()| wait(&self.waiters, &mut answer));
        // It may have no answer.
        drop(self.take(token));
        answered?
    }

    /// The peer has answered. Any context.
    pub(crate) fn answered(&self, token: u32, answer: A) {
        if let Some(reply) = self.take(token) {
            reply.populate(answer);
            self.waiters.wake_all();
        }
    }
}

#[kunit_tests(scif_peer_questions)]
mod tests {
    use super::*;

    fn questions(most: usize, most_weight: u64) -> Result<Arc<Questions<u8>>> {
        Arc::pin_init(Questions::new(most, most_weight), GFP_KERNEL)
    }

    #[test]
    fn a_question_ends_once() -> Result {
        let questions = questions(2, 0)?;
        let first = questions.put(1, 0, Until::Now)?;
        let second = questions.put(2, 0, Until::Now)?;
        assert!(first != second);
        assert_eq!(questions.put(3, 0, Until::Now), Err(EAGAIN));
        assert_eq!(questions.take(first), Some(1));
        assert_eq!(questions.take(first), None);
        assert!(questions
            .put(3, 0, Until::Now)
            .is_ok_and(|token| token != first));
        assert_eq!(questions.count(), 2);
        Ok(())
    }

    #[test]
    fn weights_are_bounded_but_for_one_alone() -> Result {
        let questions = questions(9, 10)?;
        let heavy = questions.put(1, 11, Until::Now)?;
        assert_eq!(questions.put(2, 0, Until::Now), Err(EAGAIN));
        assert_eq!(questions.take(heavy), Some(1));
        assert!(questions.put(3, 6, Until::Now).is_ok());
        assert_eq!(questions.put(4, 5, Until::Now), Err(EAGAIN));
        // One that waits has its turn before those that come later.
        let ticket = questions.queue_up()?;
        assert_eq!(questions.put(4, 4, Until::Now), Err(EAGAIN));
        assert!(questions.has_room(&questions.table.lock(), Some(&ticket), 4));
        drop(ticket);
        assert!(questions.put(4, 4, Until::Now).is_ok());
        assert!(questions.with_oldest(|oldest| oldest.is_some_and(|(_, weight)| weight == 10)));
        Ok(())
    }

    #[test]
    fn all_end_for_the_first_reason() -> Result {
        let questions = questions(9, 0)?;
        for question in 1..4 {
            questions.put(question, 0, Until::Now)?;
        }
        assert!(questions.close(EIO).eq([1, 2, 3]));
        assert!(questions.close(ENODEV).next().is_none());
        assert_eq!(questions.put(4, 0, Until::Now), Err(EIO));
        questions.wait_for_room(None, 0, Until::Killed)
    }

    #[test]
    fn an_answer_reaches_its_asker() -> Result {
        let questions = Arc::pin_init(Questions::<Reply<u8>>::new(1, 0), GFP_KERNEL)?;
        let answered = questions.ask(
            |token| {
                questions.answered(token.wrapping_add(1), 6);
                questions.answered(token, 7);
                Ok(())
            },
            |waiters, answer| waiters.wait_killable(answer),
        );
        assert_eq!(answered, Ok(7));
        let unsent = questions.ask(|_| Err(EINTR), |waiters, answer| waiters.wait(answer));
        assert_eq!(unsent, Err(EINTR));
        let ended = questions.ask(
            |_| {
                questions.close(ENODEV).for_each(drop);
                Ok(())
            },
            |waiters, answer| waiters.wait(answer),
        );
        assert_eq!(ended, Err(ENODEV));
        assert_eq!(questions.count(), 0);
        Ok(())
    }
}
