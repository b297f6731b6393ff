// SPDX-License-Identifier: GPL-2.0

//! One end of a conversation that a service has with a peer.
//!
//! Each side knows its end by an id and learns the other's: messages carry the receiver's. A channel
//! knows how the two ends stand, who waits for something of it, and who is writing into the peer's
//! memory on its account. What is said, and in which order, is up to the service.
//!
//! # Closing
//!
//! A peer that has closed its end waits until this end writes there no more. So uses of the channel
//! are counted ([`Channel::begin_use`]); once the peer has closed, none begins, and when the last one
//! ends, [`Owner::uses_ended`] is told, once: here or where that last use is dropped.
//!
//! Who uses a channel is inside the peer, and need not enter it for each use: the channel holds the peer's path
//! until it is closed and the last use has ended. So every channel is closed when the peer is lost
//! ([`Channel::close_uses`]), and when it is removed.
//!
//! Locks: all are leaves, taken in any context.

use super::{
    control::Reservation,
    Peer,
    PeerUse, //
};
use crate::{
    logic::envelope::{
        ChannelId,
        Enveloped, //
    },
    sync::{
        in_flight::InFlight,
        patience::Patience, //
    },
    sys::{
        memory_group::{
            without_waiting,
            MemoryGroup, //
        },
        wait::WaitQueue, //
    },
    transport::engine::ChosenEngine, //
};
use core::ops::Deref;
use kernel::{
    alloc::Flags,
    new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Release, //
        },
        Arc,
        SetOnce,
        SpinLockIrq, //
    }, //
};

/// How the two ends stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Asked for; the peer has not answered.
    Requested,
    /// The peer did not want it.
    Refused,
    /// Both ends are there.
    Established,
    /// The peer has closed its end; what it has sent can still be received.
    PeerClosed,
    /// The peer's node is gone; what it has sent can still be received.
    Lost,
    /// This end is closed, or has given up.
    Closed,
}

impl State {
    /// In the order of their numbers.
    const ALL: [Self; 6] = [
        Self::Requested,
        Self::Refused,
        Self::Established,
        Self::PeerClosed,
        Self::Lost,
        Self::Closed,
    ];

    /// The one that has this number; there are no others.
    fn from_number(number: u32) -> Self {
        let found = Self::ALL.get(number as usize);
        found.copied().unwrap_or(Self::Closed)
    }
}

/// Whose channel it is: the service's state for the peer.
pub(crate) trait Owner: Send + Sync {
    /// The peer has closed its end, and nothing is written to it any more. May sleep.
    fn uses_ended(&self, channel: &Channel);

    /// The channel is over: nothing of the peer's is to reach it any more. May sleep.
    fn remove(&self, id: ChannelId);
}

/// Messages that an end sends at most once each, and without waiting: its request, that it wants more room, that it
/// gives up, that it is closed, and that it writes nothing more.
pub(super) const SENT_ONCE: usize = 5;

/// See the head of this file.
#[pin_data]
pub(crate) struct Channel {
    peer: Arc<Peer>,
    /// None once the channel is closed, and its last use has ended.
    #[pin]
    hold: SpinLockIrq<Option<PeerUse>>,
    owner: Arc<dyn Owner>,
    /// By which the peer names this end.
    pub(crate) id: ChannelId,
    /// Pays for what others allocate on account of this end: that of the process that has made it.
    pub(crate) group: MemoryGroup,
    remote: SetOnce<ChannelId>,
    engine: SetOnce<ChosenEngine>,
    #[pin]
    choosing: SpinLockIrq<()>,
    /// A [`State`], as its number.
    state: Atomic<u32>,
    /// The wait queue of whoever has this end, once somebody has.
    #[pin]
    waiters: SpinLockIrq<Option<Arc<WaitQueue>>>,
    /// Callers that write into the peer's memory right now: none of them waits for the peer.
    #[pin]
    uses: InFlight,
    /// Transfers.
    #[pin]
    owned_uses: InFlight,
    /// Whether the owner is to be told of the last one's end.
    end_awaited: Atomic<bool>,
    /// This end is closed, and waits for its uses no longer.
    is_given_up: Atomic<bool>,
    /// For [`Self::send_once`].
    #[pin]
    reservations: SpinLockIrq<[Option<Reservation>; SENT_ONCE]>,
}

/// A use of the channel, for which a peer that closes waits. To be dropped where one may sleep.
pub(crate) struct ChannelUse<'a>(&'a Channel);

impl Drop for ChannelUse<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.uses.leave() {
            self.0.tell_if_drained();
        }
    }
}

/// As [`ChannelUse`], for longer than a borrow lasts.
pub(crate) struct OwnedChannelUse(Arc<Channel>);

impl OwnedChannelUse {
    /// Whether somebody waits for the end of this, as one of the ends is closed. Any context.
    pub(crate) fn is_closing(&self) -> bool {
        self.0.owned_uses.is_closed()
    }

    /// Returns who pays for what others allocate on account of this use.
    pub(crate) fn group(&self) -> &MemoryGroup {
        &self.0.group
    }

    /// Whether this end is closed, and whoever waits for the peer on its account is to stop. Any context.
    pub(crate) fn is_given_up(&self) -> bool {
        self.0.is_given_up.load(Acquire)
    }
}

impl Drop for OwnedChannelUse {
    fn drop(&mut self) {
        if self.0.owned_uses.leave() {
            self.0.tell_if_drained();
        }
    }
}

/// What holds for the peer, holds for a channel with it.
impl Deref for Channel {
    type Target = Arc<Peer>;

    fn deref(&self) -> &Arc<Peer> {
        &self.peer
    }
}

impl Channel {
    /// An end with this id and in this state, of which the peer knows nothing yet: ENODEV if the peer is lost.
    /// May sleep.
    pub(crate) fn new(
        peer: &Arc<Peer>,
        owner: Arc<dyn Owner>,
        id: ChannelId,
        state: State,
    ) -> Result<Arc<Self>> {
        let hold = peer.enter_owned().ok_or(ENODEV)?;
        let mut reservations = [const { None }; SENT_ONCE];
        for reservation in &mut reservations {
            *reservation = Some(Reservation::new(GFP_KERNEL_ACCOUNT)?);
        }
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                hold <- new_spinlock_irq!(Some(hold), "Channel::hold"),
                owner,
                id,
                group: MemoryGroup::current(),
                remote: SetOnce::new(),
                engine: SetOnce::new(),
                choosing <- new_spinlock_irq!((), "Channel::choosing"),
                state: Atomic::new(state as u32),
                waiters <- new_spinlock_irq!(None, "Channel::waiters"),
                uses <- InFlight::new(),
                owned_uses <- InFlight::new(),
                end_awaited: Atomic::new(false),
                is_given_up: Atomic::new(false),
                reservations <- new_spinlock_irq!(reservations, "Channel::reservations"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    // ----- the peer ----------------------------------------------------------------------------

    /// The peer at the other end.
    pub(crate) fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Which of the path's engines copies for this channel, always the same one, by its place; it is chosen when this is
    /// asked for the first time, by who has something to copy, or once there is one. Any context.
    pub(crate) fn engine(&self) -> Option<usize> {
        if self.engine.as_ref().is_none() {
            // Others may ask for the first time, too: they get the same one.
            let _choosing = self.choosing.lock();
            if self.engine.as_ref().is_none() {
                let chosen = ChosenEngine::among(self.path().engines())?;
                self.engine.populate(chosen);
            }
        }
        self.chosen_engine()
    }

    /// The same; none if none was chosen until now.
    pub(crate) fn chosen_engine(&self) -> Option<usize> {
        let chosen = self.engine.as_ref()?;
        Some(chosen.place)
    }

    /// The peer's id of its end: ENOTCONN before it is known.
    pub(crate) fn remote(&self) -> Result<ChannelId> {
        self.remote.copy().ok_or(ENOTCONN)
    }

    /// Learns of the other end. Only the first time counts.
    pub(crate) fn set_remote(&self, id: ChannelId) {
        self.remote.populate(id);
    }

    /// Has the owner take this end out of what the peer can name, and lets no use begin any more. May sleep.
    pub(crate) fn remove(&self) {
        self.close_uses();
        self.owner.remove(self.id);
    }

    /// Sends one of the [`SENT_ONCE`] messages soon. A peer that asks for more gets no answer. Any context.
    pub(crate) fn send_once(&self, message: &impl Enveloped) {
        let reservation = {
            let mut reservations = self.reservations.lock();
            reservations.iter_mut().find_map(Option::take)
        };
        if let Some(reservation) = reservation {
            self.peer().send(reservation, message);
        }
    }

    /// Reserves memory for what the peer has asked for, on account of this end. Does not wait for it: the peer asks again.
    pub(crate) fn reserve_for_peer<T>(
        &self,
        reserve: impl FnOnce(Flags) -> Result<T>,
    ) -> Result<T> {
        self.group.pays_for(|| reserve(without_waiting()))
    }

    // ----- state and waiters -------------------------------------------------------------------

    /// How the two ends stand. Any context.
    pub(crate) fn state(&self) -> State {
        State::from_number(self.state.load(Acquire))
    }

    /// Goes from one state to the next, if it is in one of which `next` makes something. Returns the
    /// old one. Any context.
    pub(crate) fn change_state(&self, next: impl Fn(State) -> Option<State>) -> State {
        let mut number = self.state.load(Acquire);
        loop {
            let old = State::from_number(number);
            let Some(new) = next(old) else {
                return old;
            };
            match self.state.cmpxchg(number, new as u32, Full) {
                Ok(_) => return old,
                Err(now) => number = now,
            }
        }
    }

    /// Succeeds while both ends are there; otherwise the error for calls that need both. Any context.
    pub(crate) fn check_established(&self) -> Result {
        match self.state() {
            State::Established if !self.peer.is_over() => Ok(()),
            State::Established | State::Lost => Err(ENODEV),
            State::PeerClosed | State::Closed => Err(ECONNRESET),
            State::Requested | State::Refused => Err(ENOTCONN),
        }
    }

    /// As [`Self::check_established`], for an access to the peer: one that is lost counts as one that has failed.
    pub(crate) fn check_reached(&self) -> Result {
        self.check_established().inspect_err(|error| {
            if *error == ENODEV {
                self.peer.status.access_failed();
            }
        })
    }

    /// What to say of an error that may only be there because one of the ends is closed or lost: then
    /// that. Any context.
    pub(crate) fn end_or(&self, error: Error) -> Error {
        self.check_established().err().unwrap_or(error)
    }

    /// Wakes `waiters` from now on, also when this end is closed: callers may still wait for transfers that were not over
    /// then. Any context but those that hold `waiters`.
    pub(crate) fn attach(&self, waiters: Arc<WaitQueue>) {
        let old = self.waiters.lock().replace(waiters);
        drop(old);
    }

    /// The wait queue of whoever has this end.
    pub(crate) fn waiters(&self) -> Result<Arc<WaitQueue>> {
        self.waiters.lock().clone().ok_or(ENOTCONN)
    }

    /// Wakes everybody who waits for something of this channel. Any context.
    pub(crate) fn wake(&self) {
        if let Some(waiters) = self.waiters.lock().as_ref().filter(|w| w.has_waiters()) {
            waiters.wake_all();
        }
    }

    // ----- uses --------------------------------------------------------------------------------

    /// Begins to write to the peer: ECONNRESET once one of the ends is closed or lost. The caller is inside the
    /// peer as long as it has this.
    pub(crate) fn begin_use(&self) -> Result<ChannelUse<'_>> {
        match self.uses.enter_unscoped() {
            true => Ok(ChannelUse(self)),
            false => Err(ECONNRESET),
        }
    }

    /// As [`Self::begin_use`], for longer than a borrow lasts.
    pub(crate) fn begin_owned_use(self: &Arc<Self>) -> Result<OwnedChannelUse> {
        match self.owned_uses.enter_unscoped() {
            true => Ok(OwnedChannelUse(self.clone())),
            false => Err(ECONNRESET),
        }
    }

    /// Lets no use begin any more, and has the owner told when the last has ended. May sleep.
    pub(crate) fn end_uses(&self) {
        // Fully ordered with the look at who is inside; the last one leaves and then looks at this,
        // likewise.
        self.end_awaited.xchg(true, Full);
        self.close_uses();
    }

    /// Lets no use begin any more. May sleep.
    pub(crate) fn close_uses(&self) {
        self.uses.close();
        self.owned_uses.close();
        self.tell_if_drained();
    }

    /// Lets no use begin any more, and waits until the last has ended: for those that are owned as long as `patience`
    /// lasts. Returns false if that was too short: then whoever waits for the peer inside a use is to stop, once woken.
    /// In any case nobody writes into the peer's memory but owned uses, when this returns. May sleep.
    pub(crate) fn drain_uses(&self, patience: &Patience) -> bool {
        self.uses.close();
        let is_drained = self.owned_uses.close_and_wait(patience);
        if !is_drained {
            self.is_given_up.store(true, Release);
        }
        // Each copies one chunk at most.
        self.uses.close_and_drain();
        self.tell_if_drained();
        is_drained
    }

    /// Whoever leaves last of its kind, or closes both, looks at both: so one of them sees that all have ended.
    fn tell_if_drained(&self) {
        if self.uses.is_drained() && self.owned_uses.is_drained() {
            self.uses_have_ended();
        }
    }

    /// None will be any more: tells the owner, if the peer waits for that, and lets the peer's path go. More than one may
    /// call this.
    fn uses_have_ended(&self) {
        if self.end_awaited.xchg(false, Full) {
            self.owner.uses_ended(self);
        }
        let hold = self.hold.lock().take();
        drop(hold);
    }
}
