// SPDX-License-Identifier: GPL-2.0

//! What waits behind transfers: answers to the peer, and signals.
//!
//! Signals are given one after the other, in the order in which they were asked for: one word may be the place of many,
//! as a counter is. Whoever has taken one gives it before anybody takes the next. Answers have no order.

use super::signal::Signal;
use crate::{
    logic::marks::{
        Asker,
        Sequence, //
    },
    peer::control::Reservation,
};
use kernel::{
    prelude::*,
    rbtree::RBTree, //
};

/// How many there may be of one end.
pub(super) const MAX_DEFERRED: usize = 4096;

/// Something to do once all transfers up to a number have ended.
pub(super) enum Due {
    /// Tells the peer, which has asked with this token.
    Answer(Sequence, u32, Reservation),
    Signal(Sequence, Signal, Asker),
}

/// The number behind which something waits, and how many things came before.
type Key = (Sequence, u64);

/// See the head of this file.
#[derive(Default)]
pub(super) struct Deferred {
    pub(super) answers: RBTree<Key, (u32, Reservation)>,
    pub(super) signals: RBTree<Key, (Signal, Asker)>,
    came: u64,
    /// With the signal that is being given.
    count: usize,
    /// A signal was taken and has not been given.
    is_giving: bool,
}

/// Takes the first thing out if it is due.
fn take_first<V>(
    tree: &mut RBTree<Key, V>,
    is_due: impl FnOnce(Sequence, &V) -> bool,
) -> Option<(Sequence, V)> {
    let (key, value) = tree.iter().next()?;
    let key = *key;
    if !is_due(key.0, value) {
        return None;
    }
    Some((key.0, tree.remove(&key)?))
}

impl Deferred {
    /// How many there are, with the signal that is being given.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Counts the next thing. Returns how many came before; EAGAIN if too many wait.
    pub(super) fn come(&mut self) -> Result<u64> {
        if self.count >= MAX_DEFERRED {
            return Err(EAGAIN);
        }
        self.count += 1;
        let before = self.came;
        self.came = before.wrapping_add(1);
        Ok(before)
    }

    /// Takes what is due next. A signal that may have to wait for the peer is left if the caller may not (`may_wait`), and
    /// so are all signals as long as another one is being given.
    pub(super) fn take(
        &mut self,
        is_complete: impl Fn(Sequence) -> bool,
        may_wait: bool,
    ) -> Option<Due> {
        let answer = take_first(&mut self.answers, |sequence, _| is_complete(sequence));
        if let Some((sequence, (token, reservation))) = answer {
            self.count -= 1;
            return Some(Due::Answer(sequence, token, reservation));
        }
        if self.is_giving {
            return None;
        }
        let is_due = |sequence, (signal, _): &(Signal, _)| {
            is_complete(sequence) && (may_wait || signal.outbox.is_none())
        };
        let (sequence, (signal, asker)) = take_first(&mut self.signals, is_due)?;
        self.is_giving = true;
        Some(Due::Signal(sequence, signal, asker))
    }

    /// The signal that was taken has been given.
    pub(super) fn given(&mut self) {
        self.is_giving = false;
        self.count -= 1;
    }

    /// The next signal, if it is due, and no other one is being given.
    pub(super) fn due_signal(&self, is_complete: impl Fn(Sequence) -> bool) -> Option<&Signal> {
        let (key, (signal, _)) = self.signals.iter().next()?;
        (!self.is_giving && is_complete(key.0)).then_some(signal)
    }

    /// Takes all of it out but the signal that is being given.
    pub(super) fn take_all(&mut self) -> impl Sized {
        self.count = usize::from(self.is_giving);
        (
            core::mem::take(&mut self.answers),
            core::mem::take(&mut self.signals),
        )
    }
}
