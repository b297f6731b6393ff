// SPDX-License-Identifier: GPL-2.0

//! One end of a conversation that a service has with a peer.
//!
//! Each side names its end by an id and learns the other's: a message carries the receiver's id. A
//! channel keeps the state of the two ends and the queue of its waiters. It also counts the callers
//! that write into the peer's memory on its account. The service decides which messages are sent,
//! and when.
//!
//! # Closing
//!
//! A peer that has closed its end waits until this end no longer writes there. So uses of the
//! channel are counted ([`Channel::begin_use`]). Once the peer has closed, no use begins. After the
//! last use has ended, [`ChannelOwner::uses_ended`] is called once: by the closer, or by the drop
//! of the last use.
//!
//! A user of a channel is inside the peer, without entering it for each use. The channel holds the
//! peer's path until the channel is closed and the last use has ended. So every channel is closed
//! when the peer is lost ([`Channel::close_uses`]), and when the channel is removed.
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

/// The state of a channel's two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// A request for the channel was sent, and the peer has not answered.
    Requested,
    /// The peer has refused the request.
    Refused,
    /// Both ends exist.
    Established,
    /// The peer has closed its end. Data that it has sent can still be received.
    PeerClosed,
    /// The peer is lost. Data that it has sent can still be received.
    Lost,
    /// This end is closed, or has given up its request.
    Closed,
}

impl State {
    /// All states, in the order of their numbers.
    const ALL: [Self; 6] = [
        Self::Requested,
        Self::Refused,
        Self::Established,
        Self::PeerClosed,
        Self::Lost,
        Self::Closed,
    ];

    /// Returns the state with this number. Numbers without a state do not occur.
    fn from_number(number: u32) -> Self {
        let found = Self::ALL.get(number as usize);
        found.copied().unwrap_or(Self::Closed)
    }
}

/// The owner of a channel: the service's state for the peer.
pub(crate) trait ChannelOwner: Send + Sync {
    /// Tells the peer, which has closed its end, that nothing is written there any more.
    /// Context: may sleep.
    fn uses_ended(&self, channel: &Channel);

    /// Removes a channel, so that messages of the peer reach it no more.
    /// Context: may sleep.
    fn remove(&self, id: ChannelId);
}

/// Number of messages that an end sends at most once each, and without waiting:
///
/// - its request,
/// - that it wants more room,
/// - that it gives up,
/// - that it is closed,
/// - that it writes nothing more.
pub(super) const SENT_ONCE: usize = 5;

/// One end of a conversation with a peer.
#[pin_data]
pub(crate) struct Channel {
    peer: Arc<Peer>,
    /// A use of the peer's path. `None` once the channel is closed and its last use has ended.
    #[pin]
    hold: SpinLockIrq<Option<PeerUse>>,
    owner: Arc<dyn ChannelOwner>,
    /// Id by which the peer names this end.
    pub(crate) id: ChannelId,
    /// Memory cgroup of the process that made this end. It pays for allocations on account of this
    /// end.
    pub(crate) group: MemoryGroup,
    remote: SetOnce<ChannelId>,
    engine: SetOnce<ChosenEngine>,
    #[pin]
    choosing: SpinLockIrq<()>,
    /// A [`State`], as its number.
    state: Atomic<u32>,
    /// The wait queue of this end's holder, once there is one.
    #[pin]
    waiters: SpinLockIrq<Option<Arc<WaitQueue>>>,
    /// Callers that write into the peer's memory right now. None of them waits for the peer.
    #[pin]
    uses: InFlight,
    /// Transfers that write into the peer's memory.
    #[pin]
    owned_uses: InFlight,
    /// Whether the owner must be notified when the last use has ended.
    end_awaited: Atomic<bool>,
    /// Whether this end is closed and no longer waits for its uses.
    is_given_up: Atomic<bool>,
    /// Memory for the messages of [`Self::send_once`].
    #[pin]
    reservations: SpinLockIrq<[Option<Reservation>; SENT_ONCE]>,
}

/// A use of the channel, which delays a peer that closes its end. Drop it where sleeping is
/// allowed.
pub(crate) struct ChannelUse<'a>(&'a Channel);

impl Drop for ChannelUse<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.uses.leave() {
            self.0.tell_if_drained();
        }
    }
}

/// A use of the channel like [`ChannelUse`], for longer than a borrow lasts.
pub(crate) struct OwnedChannelUse(Arc<Channel>);

impl OwnedChannelUse {
    /// Returns whether one of the ends is closed, so that a closer waits for this use to end.
    /// Context: any.
    pub(crate) fn is_closing(&self) -> bool {
        self.0.owned_uses.is_closed()
    }

    /// Returns the memory cgroup that pays for allocations on account of this use.
    pub(crate) fn group(&self) -> &MemoryGroup {
        &self.0.group
    }

    /// Returns whether this end has given up, so that callers that wait for the peer on its account
    /// must stop.
    /// Context: any.
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

/// The peer at the other end: its functions apply to the channel, too.
impl Deref for Channel {
    type Target = Arc<Peer>;

    fn deref(&self) -> &Arc<Peer> {
        &self.peer
    }
}

impl Channel {
    /// Creates an end with this id and state, of which the peer knows nothing yet. ENODEV if the
    /// peer is lost.
    /// Context: may sleep.
    pub(crate) fn new(
        peer: &Arc<Peer>,
        owner: Arc<dyn ChannelOwner>,
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

    /// Returns the peer at the other end.
    pub(crate) fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Returns the place, among the path's engines, of the engine that copies for this channel. The
    /// first call that finds an engine chooses it, and the choice stays.
    /// Context: any.
    pub(crate) fn engine(&self) -> Option<usize> {
        if self.engine.as_ref().is_none() {
            // Callers that ask at the same time get the same engine.
            let _choosing = self.choosing.lock();
            if self.engine.as_ref().is_none() {
                let chosen = ChosenEngine::among(self.path().engines(), &[])?;
                self.engine.populate(chosen);
            }
        }
        self.chosen_engine()
    }

    /// Returns the engine as [`Self::engine`] does, or `None` if none was chosen until now.
    pub(crate) fn chosen_engine(&self) -> Option<usize> {
        let chosen = self.engine.as_ref()?;
        Some(chosen.place)
    }

    /// Returns the peer's id of its end. ENOTCONN before the id is known.
    pub(crate) fn remote(&self) -> Result<ChannelId> {
        self.remote.copy().ok_or(ENOTCONN)
    }

    /// Sets the id of the other end. Only the first call counts.
    pub(crate) fn set_remote(&self, id: ChannelId) {
        self.remote.populate(id);
    }

    /// Has the owner remove this end, so that the peer can't name it any more. No more uses begin.
    /// Context: may sleep.
    pub(crate) fn remove(&self) {
        self.close_uses();
        self.owner.remove(self.id);
    }

    /// Sends one of the [`SENT_ONCE`] messages soon. A peer that causes more of them gets no
    /// message.
    /// Context: any.
    pub(crate) fn send_once(&self, message: &impl Enveloped) {
        let reservation = {
            let mut reservations = self.reservations.lock();
            reservations.iter_mut().find_map(Option::take)
        };
        if let Some(reservation) = reservation {
            self.peer().send(reservation, message);
        }
    }

    /// Reserves memory for a request of the peer, on account of this end. Does not wait for memory,
    /// as the peer asks again.
    pub(crate) fn reserve_for_peer<T>(
        &self,
        reserve: impl FnOnce(Flags) -> Result<T>,
    ) -> Result<T> {
        self.group.pays_for(|| reserve(without_waiting()))
    }

    // ----- state and waiters -------------------------------------------------------------------

    /// Returns the state of the two ends.
    /// Context: any.
    pub(crate) fn state(&self) -> State {
        State::from_number(self.state.load(Acquire))
    }

    /// Changes the state to what `next` makes of the current one, unless that is `None`. Returns
    /// the old state.
    /// Context: any.
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

    /// Checks that both ends exist, and returns the error for calls that need both.
    /// Context: any.
    pub(crate) fn check_established(&self) -> Result {
        match self.state() {
            State::Established if !self.peer.is_over() => Ok(()),
            State::Established | State::Lost => Err(ENODEV),
            State::PeerClosed | State::Closed => Err(ECONNRESET),
            State::Requested | State::Refused => Err(ENOTCONN),
        }
    }

    /// Checks as [`Self::check_established`] does, before an access to the peer. If the peer is
    /// lost, the access counts as failed.
    pub(crate) fn check_reached(&self) -> Result {
        self.check_established().inspect_err(|error| {
            if *error == ENODEV {
                self.peer.status.access_failed();
            }
        })
    }

    /// Returns the error of a closed or lost end if there is one, as `error` may only be its
    /// consequence. Returns `error` otherwise.
    /// Context: any.
    pub(crate) fn end_or(&self, error: Error) -> Error {
        self.check_established().err().unwrap_or(error)
    }

    /// Has the channel wake `waiters` from now on. It does so after this end is closed, too, as
    /// callers may still wait for transfers that were in flight then.
    /// Context: any, except under a lock of `waiters`.
    pub(crate) fn attach(&self, waiters: Arc<WaitQueue>) {
        let old = self.waiters.lock().replace(waiters);
        drop(old);
    }

    /// Returns the wait queue of this end's holder. ENOTCONN if there is none.
    pub(crate) fn waiters(&self) -> Result<Arc<WaitQueue>> {
        self.waiters.lock().clone().ok_or(ENOTCONN)
    }

    /// Wakes all waiters of this channel.
    /// Context: any.
    pub(crate) fn wake(&self) {
        if let Some(waiters) = self.waiters.lock().as_ref().filter(|w| w.has_waiters()) {
            waiters.wake_all();
        }
    }

    // ----- uses --------------------------------------------------------------------------------

    /// Begins a use that writes to the peer. The caller is inside the peer until it drops the use.
    /// ECONNRESET once one of the ends is closed or lost.
    pub(crate) fn begin_use(&self) -> Result<ChannelUse<'_>> {
        match self.uses.enter_unscoped() {
            true => Ok(ChannelUse(self)),
            false => Err(ECONNRESET),
        }
    }

    /// Begins a use as [`Self::begin_use`] does, for longer than a borrow lasts.
    pub(crate) fn begin_owned_use(self: &Arc<Self>) -> Result<OwnedChannelUse> {
        match self.owned_uses.enter_unscoped() {
            true => Ok(OwnedChannelUse(self.clone())),
            false => Err(ECONNRESET),
        }
    }

    /// Admits no more uses, and has the owner told when the last one has ended.
    /// Context: may sleep.
    pub(crate) fn end_uses(&self) {
        // Fully ordered before the check whether uses have ended. The last user leaves and then
        // reads this flag with full ordering, too, so one of the two sees the other.
        self.end_awaited.xchg(true, Full);
        self.close_uses();
    }

    /// Admits no more uses.
    /// Context: may sleep.
    pub(crate) fn close_uses(&self) {
        self.uses.close();
        self.owned_uses.close();
        self.tell_if_drained();
    }

    /// Admits no more uses, and waits until the last one has ended. The wait for owned uses lasts
    /// as long as `patience`. Returns false if that was too short: callers that wait for the peer
    /// inside a use must then stop, once woken. When this returns, only owned uses may still write
    /// into the peer's memory.
    /// Context: may sleep.
    pub(crate) fn drain_uses(&self, patience: &Patience) -> bool {
        self.uses.close();
        let is_drained = self.owned_uses.close_and_wait(patience);
        if !is_drained {
            self.is_given_up.store(true, Release);
        }
        // The wait is short, as each of these uses copies at most one chunk.
        self.uses.close_and_drain();
        self.tell_if_drained();
        is_drained
    }

    /// Releases the path if no use of either kind is left. The last user of each kind calls this,
    /// and so does the closer of both. Each checks both kinds, so one of them sees that all have
    /// ended.
    fn tell_if_drained(&self) {
        if self.uses.is_drained() && self.owned_uses.is_drained() {
            self.uses_have_ended();
        }
    }

    /// Tells the owner that no uses are left, if the peer waits for that, and releases the peer's
    /// path. More than one caller may get here.
    fn uses_have_ended(&self) {
        if self.end_awaited.xchg(false, Full) {
            self.owner.uses_ended(self);
        }
        let hold = self.hold.lock().take();
        drop(hold);
    }
}
