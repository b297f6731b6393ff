// SPDX-License-Identifier: GPL-2.0

//! Questions to one peer: which port has a name there?
//!
//! A question is an entry of a table under a token, from before it is sent until who asks has taken the
//! answer, or does not wait any more. It is charged to who asks, and there are few at a time: the next
//! one waits for room. A late answer finds no entry, and is ignored.
//!
//! A peer that is lost, or has no such service, ends all of them, and those that come later. One that
//! sends signs of life but no answer is lost as well, after a time.
//!
//! Lock: `table` is a leaf.

use super::table::Name;
use crate::{
    logic::messages::NameMessage,
    peer::Peer,
    sys::wait::{
        new_wait_queue,
        WaitQueue, //
    },
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
        SpinLock, //
    },
    time::Delta,
};

/// So many at a time.
const MOST: usize = 256;

/// A peer that has not answered for so long will not: it only has to look into a table. So long a question
/// waits to be sent, too.
const LIMIT: Delta = Delta::from_secs(120);

enum Asked {
    Waiting,
    /// There may be no such port.
    Answered(Option<u16>),
}

struct Table {
    asked: RBTree<u32, Asked>,
    count: usize,
    next_token: u32,
    /// No more answers will come, for this reason.
    closed: Option<Error>,
}

/// See the head of this file.
#[pin_data]
pub(crate) struct Lookups {
    peer: Arc<Peer>,
    #[pin]
    table: SpinLock<Table>,
    /// Woken when an answer comes, or there is room for another question.
    #[pin]
    waiters: WaitQueue,
}

/// A question has its place in the table until this is dropped.
struct Question<'a> {
    lookups: &'a Lookups,
    token: u32,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        let removed = {
            let mut table = self.lookups.table.lock();
            let removed = table.asked.remove_node(&self.token);
            if removed.is_some() {
                table.count -= 1;
            }
            removed
        };
        drop(removed);
        self.lookups.waiters.wake_all();
    }
}

impl Table {
    /// Puts a question into the table, for which there is a place in memory: its token, or why not.
    /// None if there are too many.
    fn add(
        &mut self,
        place: &mut Option<RBTreeNodeReservation<u32, Asked>>,
    ) -> Option<Result<u32>> {
        if let Some(error) = self.closed {
            return Some(Err(error));
        }
        if self.count >= MOST {
            return None;
        }
        // There are fewer of them than numbers.
        while self.asked.get(&self.next_token).is_some() {
            self.next_token = self.next_token.wrapping_add(1);
        }
        let token = self.next_token;
        self.next_token = token.wrapping_add(1);
        self.asked
            .insert(place.take()?.into_node(token, Asked::Waiting));
        self.count += 1;
        Some(Ok(token))
    }

    /// None as long as there is no answer.
    fn answer(&self, token: u32) -> Option<Result<u16>> {
        match self.asked.get(&token) {
            Some(Asked::Answered(port)) => Some(port.ok_or(ENOENT)),
            _ => self.closed.map(Err),
        }
    }
}

impl Lookups {
    /// Nothing was asked yet. May sleep.
    pub(super) fn new(peer: &Arc<Peer>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                table <- new_spinlock!(
                    Table {
                        asked: RBTree::new(),
                        count: 0,
                        next_token: 0,
                        closed: None,
                    },
                    "Lookups::table"
                ),
                waiters <- new_wait_queue!("scif::Lookups::waiters"),
            }),
            GFP_KERNEL,
        )
    }

    /// The peer.
    pub(super) fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Asks the peer. ENOENT if nobody there has the name, EOPNOTSUPP if there are no names there, ENODEV
    /// if it is lost, or takes no messages. Interruptible; nothing is left behind.
    pub(super) fn ask(&self, name: Name) -> Result<u16> {
        let mut place = Some(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?);
        let token = self
            .waiters
            .wait(|| self.table.lock().add(&mut place))
            .and_then(|added| added)?;
        let question = Question {
            lookups: self,
            token,
        };
        if !self.peer.wait_for_bulk_room_within(LIMIT)? {
            // Others may have said so much to it, which is not its fault.
            return Err(ENODEV);
        }
        self.peer.post(&NameMessage::Lookup {
            token,
            class: name.class,
            name: name.number,
        })?;
        let answer = self
            .waiters
            .wait_timeout(LIMIT, || self.table.lock().answer(question.token))?;
        answer.unwrap_or_else(|| {
            self.peer.fail("it does not say who has a name");
            Err(ENODEV)
        })
    }

    /// The peer has answered. Called by the control work.
    pub(super) fn answered(&self, token: u32, port: Option<u16>) {
        if let Some(asked) = self.table.lock().asked.get_mut(&token) {
            *asked = Asked::Answered(port);
        }
        self.waiters.wake_all();
    }

    /// No answers will come any more: ends all questions, for good.
    pub(super) fn close(&self, error: Error) {
        self.table.lock().closed = Some(error);
        self.waiters.wake_all();
    }
}
