// SPDX-License-Identifier: GPL-2.0

//! Whose turn it is to take slots, and how he waits for free ones.
//!
//! Writers queue up for each handful of slots. If the first one finds none free, it polls for a moment what engines have
//! filled and what the peer counts. Then it arms the engines, tells the peer for how many empty slots to ring, and sleeps.

use super::{
    Outbox,
    State, //
};
use crate::{
    logic::staging::MOST_SLOTS,
    rma::staging::Staged,
    sys::{
        reached::flush_writes,
        wait::{
            busy_poll,
            busy_wait, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    rbtree::{
        RBTreeNode,
        RBTreeNodeReservation, //
    },
    sync::Arc,
    time::Delta, //
};

/// Who waits longer for a slot gives up if it is in the way of a close.
const LONG: Delta = Delta::from_secs(5);

/// How to wait for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rma) enum Patience {
    /// Until one is free, the peer is lost, or the caller is killed.
    Killable,
    /// Likewise, but for the caller; and not for long while the channel is being closed.
    Uninterruptible,
}

/// Slots that were taken, one after the other.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    /// The number of the first.
    pub(super) first: u64,
    pub(super) count: u64,
}

/// What one gets who asks for slots.
enum Turn {
    Taken(Taken),
    /// A place in the queue, as there are others before him, or as no slot is free.
    Queued {
        number: u64,
        is_first: bool,
    },
}

/// A place in the queue, until this is dropped.
struct Ticket<'a> {
    outbox: &'a Outbox,
    number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let (left, is_alone) = {
            let mut state = self.outbox.state.lock();
            let node = state.queue.remove_node(&self.number);
            let mut node = node.map(RBTreeNode::into_reservation);
            if state.spare.is_none() {
                state.spare = node.take();
            }
            (node, state.queue.is_empty())
        };
        drop(left);
        if !is_alone {
            self.outbox.room.wake_all();
        }
    }
}

impl State {
    fn is_first(&self, ticket: u64) -> bool {
        self.queue.keys().next() == Some(&ticket)
    }

    /// Gives the next number to one who has to wait.
    fn queue_up(&mut self, node: RBTreeNodeReservation<u64, ()>) -> u64 {
        let number = self.next_ticket;
        self.next_ticket = number.wrapping_add(1);
        // None was there.
        self.queue.insert(node.into_node(number, ()));
        number
    }
}

impl Outbox {
    /// Takes the next slots, when it is the caller's turn and there is one: up to `most`, and no more than half of
    /// all. May sleep.
    pub(super) fn take_slots(
        &self,
        staged: &Arc<Staged>,
        most: u64,
        patience: Patience,
    ) -> Result<Taken> {
        let mut ticket = None;
        let mut has_polled = false;
        loop {
            let (number, is_first) = match self.take_or_queue(&mut ticket, staged, most)? {
                Turn::Taken(taken) => return Ok(taken),
                Turn::Queued { number, is_first } => (number, is_first),
            };
            if is_first && !has_polled {
                has_polled = true;
                let has_progress = || {
                    self.poll_engines();
                    self.has_progress()
                };
                if busy_wait(busy_poll(), has_progress) {
                    self.look();
                    continue;
                }
            }
            self.arm();
            if is_first {
                let wanted = self.wanted(self.state.lock().taken);
                self.wish_for(wanted)?;
                // The peer may have emptied them before it could see that.
                self.look();
            }
            self.sleep(number, is_first, staged, patience)?;
        }
    }

    /// Sleeps until it is this one's turn, or, if it `is_first` and so has told the peer to ring, until a slot is free.
    fn sleep(&self, ticket: u64, is_first: bool, staged: &Staged, patience: Patience) -> Result {
        let has_changed = || {
            let state = self.state.lock();
            let is_due = !is_first || self.free(&state) > 0;
            (state.closed || state.is_first(ticket) && is_due).then_some(())
        };
        match patience {
            Patience::Killable => self.room.wait_killable(has_changed),
            Patience::Uninterruptible => {
                let woken = self.room.wait_uninterruptible_timeout(LONG, has_changed);
                match woken {
                    // A peer that hardly goes on must not keep this end from being closed.
                    None if staged.is_in_the_way() => Err(ECONNRESET),
                    _ => Ok(()),
                }
            }
        }
    }

    /// For how many empty slots the first in the queue wants to be rung when none is free, and so many are taken.
    fn wanted(&self, taken: u64) -> u64 {
        let slots = u64::from(self.geometry.slots());
        (taken + (slots / 2).max(1)).saturating_sub(slots)
    }

    /// Wants to be rung when all slots that are taken now are empty.
    pub(super) fn wish_for_all(&self) {
        let taken = self.state.lock().taken;
        // Only a peer that is lost can't be told.
        let _ = self.wish_for(taken);
        // It may have emptied them before it could see that.
        self.look();
    }

    /// Says for how many empty slots this side wants to be rung. What the peer has counted before it could see
    /// that is there when this returns.
    pub(super) fn wish_for(&self, emptied: u64) -> Result {
        let place = self.peer.path().reach(self.wish_address(), 8)?;
        {
            let mut state = self.state.lock();
            if state.wished >= emptied {
                return Ok(());
            }
            state.wished = emptied;
            // Under the lock, so that a smaller one never replaces it.
            place.write_u64(0, emptied)?;
            flush_writes();
        }
        // As described in `logic/staging.rs`.
        place.read_back(0)?;
        Ok(())
    }

    /// How many slots are free.
    fn free(&self, state: &State) -> u64 {
        let slots = u64::from(self.geometry.slots());
        slots.saturating_sub(state.taken - state.emptied)
    }

    /// Takes slots if it is the turn of who has this ticket, or has none as he has just come, and there is a free one. If
    /// not, he has one when this returns. ENODEV if the peer is lost.
    fn take_or_queue<'a>(
        &'a self,
        ticket: &mut Option<Ticket<'a>>,
        staged: &Arc<Staged>,
        most: u64,
    ) -> Result<Turn> {
        let mut made = None;
        loop {
            let mut state = self.state.lock();
            if state.closed || self.peer.has_failed() {
                return Err(ENODEV);
            }
            let is_first = match ticket {
                Some(ticket) => state.is_first(ticket.number),
                None => state.queue.is_empty(),
            };
            if is_first && self.free(&state) > 0 {
                return Ok(Turn::Taken(self.take(&mut state, staged, most)));
            }
            let number = match ticket {
                Some(ticket) => ticket.number,
                None => {
                    let Some(node) = state.spare.take().or_else(|| made.take()) else {
                        drop(state);
                        made = Some(RBTreeNodeReservation::new(GFP_KERNEL)?);
                        continue;
                    };
                    let number = state.queue_up(node);
                    *ticket = Some(Ticket {
                        outbox: self,
                        number,
                    });
                    number
                }
            };
            return Ok(Turn::Queued { number, is_first });
        }
    }

    /// Takes the next slots, of which one is free at least.
    fn take(&self, state: &mut State, staged: &Arc<Staged>, most: u64) -> Taken {
        let half = u64::from(self.geometry.slots()) / 2;
        let taken = Taken {
            first: state.taken + 1,
            count: most.min(self.free(state)).min(half).max(1),
        };
        let mut bits = 0;
        for sequence in taken.first..taken.first + taken.count {
            bits |= self.bit(sequence);
            let index = self.geometry.index(sequence) % MOST_SLOTS;
            if let Some(place) = state.staged.get_mut(index) {
                staged.add_slot(sequence);
                // It was emptied, or never used.
                *place = Some(staged.clone());
            }
        }
        state.ready &= !bits;
        state.taken += taken.count;
        self.expect_news_of(state);
        taken
    }
}
