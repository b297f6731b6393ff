// SPDX-License-Identifier: GPL-2.0

//! Actions that wait behind transfers: answers to the peer, and signals.
//!
//! Signals are given one after the other, in the order in which they were requested. Several
//! signals may store to the same word, as to a counter. The task that has taken a signal gives it
//! before any task takes the next. Answers have no order.

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

/// Largest number of deferred actions of one end.
pub(super) const MAX_DEFERRED: usize = 4096;

/// An action to be done, as all transfers up to a number have completed.
pub(super) enum Due {
    /// An answer to the peer's question with this token.
    Answer(Sequence, u32, Reservation),
    Signal(Sequence, Signal, Asker),
}

/// The number behind which an action waits, and the number of actions that were deferred before.
type Key = (Sequence, u64);

/// The actions that wait behind the transfers of one end.
#[derive(Default)]
pub(super) struct Deferred {
    pub(super) answers: RBTree<Key, (u32, Reservation)>,
    pub(super) signals: RBTree<Key, (Signal, Asker)>,
    came: u64,
    /// Number of actions, including the signal that is being given.
    count: usize,
    /// Whether a signal was taken and has not been given yet.
    is_giving: bool,
}

/// Removes and returns the first entry if it is due.
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
    /// Returns the number of actions, including the signal that is being given.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Counts the next action. Returns how many actions came before, or EAGAIN if too many wait.
    pub(super) fn come(&mut self) -> Result<u64> {
        if self.count >= MAX_DEFERRED {
            return Err(EAGAIN);
        }
        self.count += 1;
        let before = self.came;
        self.came = before.wrapping_add(1);
        Ok(before)
    }

    /// Takes the next due action. If the caller may not wait for the peer (`may_wait`), a signal
    /// that may have to wait is left. All signals are left while another one is being given.
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
            is_complete(sequence) && (may_wait || signal.send_slots.is_none())
        };
        let (sequence, (signal, asker)) = take_first(&mut self.signals, is_due)?;
        self.is_giving = true;
        Some(Due::Signal(sequence, signal, asker))
    }

    /// Takes note that the signal that was taken has been given.
    pub(super) fn given(&mut self) {
        self.is_giving = false;
        self.count -= 1;
    }

    /// Returns the next signal if it is due and no other signal is being given.
    pub(super) fn due_signal(&self, is_complete: impl Fn(Sequence) -> bool) -> Option<&Signal> {
        let (key, (signal, _)) = self.signals.iter().next()?;
        (!self.is_giving && is_complete(key.0)).then_some(signal)
    }

    /// Removes all actions except the signal that is being given.
    pub(super) fn take_all(&mut self) -> impl Sized {
        self.count = usize::from(self.is_giving);
        (
            core::mem::take(&mut self.answers),
            core::mem::take(&mut self.signals),
        )
    }
}
