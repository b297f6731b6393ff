// SPDX-License-Identifier: GPL-2.0

//! Questions to a peer that it has not answered.
//!
//! A question has a token, which the peer repeats in its answer. The asker registers the question
//! before it sends it. A question ends exactly once: with the answer, when the asker gives up, or
//! with all others when no more answers come. A late answer finds no question, and is ignored. The
//! number of questions is bounded, and so is the sum of their weights, which the askers choose. An
//! asker that finds too many waits.
//!
//! A peer that does not answer in time counts as lost: see [`in_time`]. A caller that watches the
//! time itself learns of the oldest question by [`Questions::with_oldest`].
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

/// Time after which a peer that has not answered counts as unable to answer.
pub(crate) const LIMIT: Delta = Delta::from_secs(120);

/// The event that ends a caller's wait for room.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    /// The caller does not wait, and gets EAGAIN.
    Now,
    /// Any signal, for calls that can be restarted.
    Signal,
    /// A fatal signal, for calls that can't be restarted.
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

/// A question without an answer.
struct Open<Q> {
    question: Q,
    weight: u64,
}

struct Table<Q> {
    open: RBTree<u32, Open<Q>>,
    /// Tickets of the askers that wait for room, served in order, so that a heavy question is not
    /// starved.
    queue: RBTree<u64, ()>,
    next_ticket: u64,
    count: usize,
    weight: u64,
    next_token: u32,
    /// The reason why no more answers come, or `None` while they do.
    closed: Option<Error>,
}

/// The questions of one kind of asker. `Q` is the state that an asker keeps until the answer comes.
#[pin_data]
pub(crate) struct Questions<Q> {
    most: usize,
    most_weight: u64,
    #[pin]
    table: SpinLock<Table<Q>>,
    /// Woken when a question has ended, and when the queue of tickets has changed.
    #[pin]
    waiters: WaitQueue,
}

/// A place in the queue of the askers that wait for room, until it is dropped.
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
    /// Creates an empty table for at most `most` questions with a total weight of `most_weight`. A
    /// single question may have any weight.
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

    /// Registers a question and returns its token. If there are too many, waits as `until` says.
    ///
    /// # Errors
    ///
    /// - ENOMEM: no memory.
    /// - EAGAIN, ERESTARTSYS: the wait ended without room, see [`Until`].
    /// - The reason given to [`Self::close`], once no more answers come.
    pub(crate) fn put(&self, question: Q, weight: u64, until: Until) -> Result<u32> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        // Declared before `table`, so that the ticket is dropped after the lock is released.
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
        // The loop ends, as there are fewer questions than tokens.
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

    /// Returns whether there is room for a question of this weight, and whether its asker is next
    /// in turn. An asker without a ticket is next if the queue is empty.
    fn has_room(&self, table: &Table<Q>, ticket: Option<&Ticket<'_, Q>>, weight: u64) -> bool {
        let sum = table.weight.saturating_add(weight);
        let first = table.queue.keys().next().copied();
        first == ticket.map(|ticket| ticket.number)
            && (table.count == 0 || table.count < self.most && sum <= self.most_weight)
    }

    /// Ends a question and returns it. `None` if there is no question with this token.
    /// Context: any.
    pub(crate) fn take(&self, token: u32) -> Option<Q> {
        let mut table = self.table.lock();
        let open = table.open.remove(&token)?;
        table.count -= 1;
        table.weight = table.weight.saturating_sub(open.weight);
        drop(table);
        self.waiters.wake_all();
        Some(open.question)
    }

    /// Ends all questions, and refuses later ones, for this reason. Of several reasons the first
    /// counts. Returns the questions one by one.
    /// Context: may sleep.
    pub(crate) fn close(&self, error: Error) -> impl Iterator<Item = Q> + '_ {
        self.table.lock().closed.get_or_insert(error);
        self.waiters.wake_all();
        core::iter::from_fn(|| {
            let token = self.table.lock().open.keys().next().copied()?;
            self.take(token)
        })
    }

    /// Waits until it is the turn of this ticket and there is room, or until no more answers come.
    fn wait_for_room(&self, ticket: Option<&Ticket<'_, Q>>, weight: u64, until: Until) -> Result {
        until.wait(&self.waiters, || {
            let table = self.table.lock();
            (table.closed.is_some() || self.has_room(&table, ticket, weight)).then_some(())
        })
    }

    /// Calls `f`, under the lock, with the token of the oldest question and the weight of all
    /// questions. If there is no question, calls it with `None`.
    /// Context: any.
    pub(crate) fn with_oldest<R>(&self, f: impl FnOnce(Option<(u32, u64)>) -> R) -> R {
        let table = self.table.lock();
        // Tokens are given out in order. Once they begin anew, a newer question may pass for the
        // oldest.
        let token = table.open.keys().next().copied();
        f(token.map(|token| (token, table.weight)))
    }

    /// Returns the number of questions.
    /// Context: any.
    pub(crate) fn count(&self) -> usize {
        self.table.lock().count
    }
}

/// Returns the answer that has come within [`LIMIT`]. Without an answer, ends the peer's session.
pub(crate) fn in_time<A>(peer: &Peer, answer: Option<Result<A>>) -> Result<A> {
    answer.unwrap_or_else(|| {
        peer.fail("it has not answered a request within 120 s");
        Err(ENODEV)
    })
}

/// Returns a function that waits up to [`LIMIT`] for an answer, for [`Questions::ask`].
/// Context: may sleep, interruptible.
pub(crate) fn wait_in_time<A>(
    peer: &Peer,
) -> impl FnOnce(&WaitQueue, &mut dyn FnMut() -> Option<Result<A>>) -> Result<Result<A>> + '_ {
    |waiters, answer| Ok(in_time(peer, waiters.wait_timeout(LIMIT, answer)?))
}

/// A reply that a process waits for. The answer sets it once.
pub(crate) type Reply<A> = Arc<SetOnce<A>>;

impl<A: Copy> Questions<Reply<A>> {
    /// Sends a question with `send`, which gets the token. Waits with `wait` for the answer, or for
    /// the reason why none comes.
    /// Context: may sleep, interruptible while there are too many questions.
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
        // The question may have no answer, and is then still registered.
        drop(self.take(token));
        answered?
    }

    /// Passes the peer's answer to the asker.
    /// Context: any.
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
    fn question_is_taken_only_once() -> Result {
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
    fn question_weights_are_limited_except_for_a_single_one() -> Result {
        let questions = questions(9, 10)?;
        let heavy = questions.put(1, 11, Until::Now)?;
        assert_eq!(questions.put(2, 0, Until::Now), Err(EAGAIN));
        assert_eq!(questions.take(heavy), Some(1));
        assert!(questions.put(3, 6, Until::Now).is_ok());
        assert_eq!(questions.put(4, 5, Until::Now), Err(EAGAIN));
        // A question that waits has its turn before later ones.
        let ticket = questions.queue_up()?;
        assert_eq!(questions.put(4, 4, Until::Now), Err(EAGAIN));
        assert!(questions.has_room(&questions.table.lock(), Some(&ticket), 4));
        drop(ticket);
        assert!(questions.put(4, 4, Until::Now).is_ok());
        assert!(questions.with_oldest(|oldest| oldest.is_some_and(|(_, weight)| weight == 10)));
        Ok(())
    }

    #[test]
    fn close_ends_all_questions_with_its_first_error() -> Result {
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
    fn answer_error_or_close_reaches_the_asker() -> Result {
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
