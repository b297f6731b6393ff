// SPDX-License-Identifier: GPL-2.0

//! By which doorbells the peer wakes those who wait at this end.
//!
//! At first by the one that was said when the connection was made. Who is about to sleep may ask for another
//! one, which rings on the processor on which he sleeps (`logic/doorbells.rs`): a word in the peer's memory, next
//! to what he wishes for. It is stored before the wish, and then the wish is stored and read back, though it may be the
//! one that stands already: so a peer that rings the doorbell before has moved its counter before that, which
//! is seen then, and those who wait are told (`wish.rs`). Therefore nobody listens any more to a doorbell that was
//! replaced; but to the first one, by which the peer rings for what is not wished, too.
//!
//! Those who sleep on one processor share its doorbells, and each of them looks when one rings: as a queue of a
//! network card has it, what belongs to one processor is its own work.
//!
//! Whoever is told holds what is here, and this holds whoever is told: [`WakeDoorbells::leave`] ends that.
//!
//! Lock: `inner`, taken for a store over the bus, and above `Doorbells::inner`.

use crate::{
    peer::doorbells::Subscription,
    sys::reached::{
        flush_writes,
        Reached, //
    },
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock, //
};

/// What is waited for.
#[derive(Clone, Copy)]
pub(super) enum WaitFor {
    Room,
    Data,
}

struct Inner {
    first: Subscription,
    /// Those that were asked for in its place.
    room: Option<Subscription>,
    data: Option<Subscription>,
}

/// See the head of this file.
#[pin_data]
pub(super) struct WakeDoorbells {
    #[pin]
    inner: SpinLock<Option<Inner>>,
}

impl WakeDoorbells {
    /// Nobody listens.
    pub(super) fn none() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- new_spinlock!(None, "WakeDoorbells::inner"),
        })
    }

    /// Listens to the doorbell that was said when the connection was made, and from then on to others as well.
    pub(super) fn listen(&self, first: Subscription) {
        let inner = Inner {
            first,
            room: None,
            data: None,
        };
        let old = self.inner.lock().replace(inner);
        drop(old);
    }

    /// Listens to none any more. May sleep.
    pub(super) fn leave(&self) {
        let old = self.inner.lock().take();
        drop(old);
    }

    /// Has the peer ring where the caller is, if there is a better doorbell for that; its number is stored at `word`
    /// of the header of the peer's ring. Says whether it was: then the wish has to be made again, though it be the same.
    /// For an end with this id.
    pub(super) fn steer(
        &self,
        what: WaitFor,
        (header, word): (&Reached<'_>, usize),
        channel: u32,
    ) -> Result<bool> {
        let mut inner = self.inner.lock();
        let Some(Inner { first, room, data }) = &mut *inner else {
            return Ok(false);
        };
        let current = match what {
            WaitFor::Room => room,
            WaitFor::Data => data,
        };
        let Some((better, number)) = first.better_here(current.as_ref(), channel) else {
            return Ok(false);
        };
        header.write_u32(word, number)?;
        flush_writes();
        *current = Some(better);
        Ok(true)
    }
}
