// SPDX-License-Identifier: GPL-2.0

//! Questions to a peer that it has not answered.
//!
//! A question stands under a token, which the peer repeats in its answer. It is put in before it is sent, and
//! ends once: with the answer, when its asker gives up, or with all others when no answers come any more. A late
//! answer finds no question, and is ignored. The number of questions is bounded, and so is the sum of their
//! weights, which the asker chooses; the next asker waits.
//!
//! A peer that does not answer in time is lost: see [`in_time`]. Who keeps transfers open watches the oldest one
//! by [`Questions::with`].
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
    time::{
        Delta,
        Instant,
        Monotonic, //
    },
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
    since: Instant<Monotonic>,
}

struct Table<Q> {
    open: RBTree<u32, Open<Q>>,
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

impl<Q: Unpin> Questions<Q> {
    /// No questions; so many there may be at once, and of so much weight. One alone may have any weight.
    pub(crate) fn new(most: usize, most_weight: u64) -> impl PinInit<Self> {
        pin_init!(Self {
            most,
            most_weight,
            table <- new_spinlock!(
                Table {
                    open: RBTree::new(),
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
        let mut table = loop {
            let table = self.table.lock();
            if let Some(error) = table.closed {
                return Err(error);
            }
            if self.has_room(&table, weight) {
                break table;
            }
            drop(table);
            self.wait_for_room(weight, until)?;
        };
        // There are fewer of them than numbers.
        while table.open.get(&table.next_token).is_some() {
            table.next_token = table.next_token.wrapping_add(1);
        }
        let token = table.next_token;
        table.next_token = token.wrapping_add(1);
        table.count += 1;
        table.weight = table.weight.saturating_add(weight);
        let open = Open {
            question,
            weight,
            since: Instant::now(),
        };
        table.open.insert(node.into_node(token, open));
        Ok(token)
    }

    fn has_room(&self, table: &Table<Q>, weight: u64) -> bool {
        let sum = table.weight.saturating_add(weight);
        table.count == 0 || table.count < self.most && sum <= self.most_weight
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

    /// Waits until there is room for a question of this weight, or no answers come any more.
    fn wait_for_room(&self, weight: u64, until: Until) -> Result {
        until.wait(&self.waiters, || {
            let table = self.table.lock();
            (table.closed.is_some() || self.has_room(&table, weight)).then_some(())
        })
    }

    /// Calls `f` with the questions in the order of their tokens, and since when they stand, under the lock. Any
    /// context.
    pub(crate) fn with<R>(
        &self,
        f: impl FnOnce(&mut dyn Iterator<Item = (&Q, Instant<Monotonic>)>) -> R,
    ) -> R {
        let table = self.table.lock();
        let result = f(&mut table.open.values().map(|open| (&open.question, open.since)));
        result
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
        assert!(questions.put(4, 4, Until::Now).is_ok());
        assert!(questions.with(|open| open.map(|(question, _)| *question).eq([3, 4])));
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
        questions.wait_for_room(0, Until::Killed)
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
