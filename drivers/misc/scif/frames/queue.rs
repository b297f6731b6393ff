// SPDX-License-Identifier: GPL-2.0

//! A pair of frame rings with a peer: one in which this node sends, one in which it receives.
//!
//! `logic/frame_ring.rs` has the layout and the rules. The sender copies a frame into the buffers
//! that the peer has posted, writes their descriptors, and then stores how many it has filled. The
//! receiver finds the frames in its own memory, hands them to its user, and posts buffers again.
//!
//! # Wake-ups
//!
//! No side rings for the other one while that is awake. A side that is about to sleep stores in
//! the peer's memory at which count the peer is to ring, loads that back, and then checks its
//! condition once more (`logic/ring.rs` tells why no side misses the other).
//!
//! # Contexts
//!
//! A queue has one sender and one poller at a time, with bottom halves disabled. The two may run on
//! different CPUs. Locks: [`Queue::sending`] and [`Queue::receiving`] are never held together. Below
//! the sender are the locks of engines. `Queue::user` is a leaf.

use super::{
    buffers::Buffers,
    fifo::Fifo,
    flight::Place,
    link::Link,
    receiving::Receiving,
    rings::Remote,
    sending::{
        Landed,
        Pending,
        Sending, //
    },
    Client, //
};
use crate::{
    logic::{
        copy_costs::CopyCosts,
        envelope::ChannelId,
        frame_messages::FrameMessage,
        frame_ring::{
            Geometry,
            FILLED,
            FRAME_WISH,
            POSTED,
            ROOM_WISH, //
        },
        ring::{
            is_missed,
            reaches,
            WakeRequestState, //
        },
    },
    peer::{
        control::Reservation,
        doorbells::DoorbellHandler,
        Peer, //
    },
    sync::in_flight::InFlight,
    sys::{
        current::bottom_halves_disabled,
        reached::{
            flush_writes,
            Reached, //
        },
        shared_memory::SharedMemory,
        timer::Running, //
    },
    transport::engine::ChosenEngine,
};
use kernel::{
    new_mutex,
    new_spinlock,
    new_spinlock_irq,
    new_work,
    prelude::*,
    sync::{
        atomic::Atomic,
        barrier,
        Arc,
        Mutex,
        SpinLock,
        SpinLockIrq, //
    },
    workqueue::Work, //
};

/// Reason for which a session ends if the peer breaks the rules of the rings.
const BROKEN: &str = "its frame rings are out of order";

/// A count in this node's memory at which the peer is to ring.
pub(super) struct Wish {
    /// Offset of the wish in the peer's part of the queue.
    word: usize,
    /// Offset of the count in this node's part.
    counter: usize,
    state: WakeRequestState,
}

impl Wish {
    fn new(word: usize, counter: usize) -> Self {
        Self {
            word,
            counter,
            state: WakeRequestState::new(),
        }
    }

    /// Tells the peer to ring at `value`. Returns whether it may ring no more, because the count
    /// has reached the value. The caller is the only one that makes this wish.
    pub(super) fn make(&self, theirs: &Reached<'_>, ours: &Ours<'_>, value: u32) -> Result<bool> {
        let before = match self.state.is_open_at(value) {
            true => None,
            false => {
                theirs.write_u32(self.word, value)?;
                theirs.read_back(self.word)?;
                self.state.replace(value)
            }
        };
        let counter = ours.load(self.counter)?;
        let is_missed = is_missed(value, before, counter);
        if is_missed {
            // The caller goes on at once, and waits for this wish no more.
            let _is_answered = self.state.is_answered_at(counter);
        }
        Ok(is_missed)
    }

    /// Tells the peer that this node polls, if it may ring. `reached` is a value that the count has
    /// reached, for which the peer does not ring. The caller is the only one that makes this wish.
    pub(super) fn withdraw(&self, theirs: &Reached<'_>, reached: u32) -> Result {
        if self.state.withdraw() {
            theirs.write_u32(self.word, reached)?;
            // Before the next request, which another CPU may make.
            flush_writes();
        }
        Ok(())
    }

    /// Notes that a doorbell has rung.
    fn rung(&self, ours: &Ours<'_>) {
        if let Ok(counter) = ours.load(self.counter) {
            let _is_answered = self.state.is_answered_at(counter);
        }
    }
}

/// This node's part of a queue, which the peer writes to.
pub(super) struct Ours<'a> {
    pub(super) block: &'a SharedMemory,
    pub(super) start: usize,
}

impl Ours<'_> {
    pub(super) fn load(&self, at: usize) -> Result<u32> {
        self.block.load_acquire_u32(self.start + at)
    }
}

/// A queue of frames with a peer, in both directions.
#[pin_data]
pub struct Queue {
    pub(super) peer: Arc<Peer>,
    number: u32,
    pub(super) block: Arc<SharedMemory>,
    /// Geometry of the rings, with the size of this node's buffers.
    pub(super) own: Geometry,
    pub(super) remote: Remote,
    #[pin]
    sender: SpinLock<Sender>,
    #[pin]
    pub(super) receiver: SpinLock<Receiver>,
    /// The wish for posted buffers, which only the sender makes.
    pub(super) room: Wish,
    /// The wish for frames, which only the poller makes.
    pub(super) frames: Wish,
    /// The flights, which keep frames of the user. No flight begins once the user has left.
    #[pin]
    pub(super) flights: InFlight,
    /// The user, until it has left.
    #[pin]
    user: SpinLockIrq<Option<User>>,
    /// Item that grows and shrinks the buffers.
    #[pin]
    pub(super) resizing: Work<Self>,
    /// Set by the timer, so that the item looks for buffers that are not needed.
    pub(super) is_tick: Atomic<bool>,
    /// The timer, while the buffers are unsettled.
    #[pin]
    pub(super) timer: Mutex<Option<Running<Self>>>,
}

/// Number of engines that a queue uses at once, if the path has so many. An engine spends a good part of
/// its time between the pages of a frame, so that one alone does not fill a link.
pub(super) const MOST_ENGINES: usize = 2;

/// The user of a queue.
pub(super) struct User {
    pub(super) client: Arc<dyn Client>,
    pub(super) link: Arc<Link>,
}

/// The counts of a sender, and the frames that have not arrived.
pub(super) struct Sender {
    /// Number of buffers that were filled and published.
    pub(super) published: u32,
    /// Number of buffers that belong to a frame.
    pub(super) filled: u32,
    /// The frames from `published` to `filled`, if not all of them have arrived.
    pub(super) pending: Fifo<Pending>,
    /// The engines that copy frames by turns, each at most once.
    pub(super) engines: [Option<ChosenEngine>; MOST_ENGINES],
    /// Index of the next one.
    pub(super) turn: usize,
    /// The measured costs of CPU and engine.
    pub(super) costs: CopyCosts,
    pub(super) landed: Landed,
}

/// The buffers and the counts of a receiver.
pub(super) struct Receiver {
    pub(super) buffers: Buffers,
    /// Number of buffers that were posted.
    pub(super) posted: u32,
    /// Number of buffers of which the peer was told.
    pub(super) told: u32,
    /// Number of buffers that were taken out.
    pub(super) taken: u32,
}

impl Queue {
    /// Creates an empty queue of `user`, with this node's and the peer's geometry.
    /// Context: may sleep.
    pub(super) fn new(
        peer: &Arc<Peer>,
        number: u32,
        block: &Arc<SharedMemory>,
        geometries: (Geometry, Remote),
        buffers: Buffers,
        user: User,
    ) -> Result<Arc<Self>> {
        let (own, remote) = geometries;
        let sender = Sender::new(own.slots())?;
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                number,
                block: block.clone(),
                own,
                remote,
                sender <- new_spinlock!(sender, "frames::Queue::sender"),
                receiver <- new_spinlock!(
                    Receiver { buffers, posted: 0, told: 0, taken: 0 },
                    "frames::Queue::receiver"
                ),
                room: Wish::new(ROOM_WISH, POSTED),
                frames: Wish::new(FRAME_WISH, FILLED),
                flights <- InFlight::new(),
                user <- new_spinlock_irq!(Some(user), "frames::Queue::user"),
                resizing <- new_work!("frames::Queue::resizing"),
                is_tick: Atomic::new(false),
                timer <- new_mutex!(None, "frames::Queue::timer"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the number of buffers that a side posts at most.
    pub fn slots(&self) -> u32 {
        self.own.slots()
    }

    /// Asks something of the peer's client: [`Client::asked`] takes the word, of which the rings know
    /// nothing. The word is one for all queues with the peer.
    ///
    /// # Errors
    ///
    /// ENOMEM: there is no memory for a message.
    ///
    /// Context: may sleep, does not wait for the peer.
    pub fn ask(&self, word: u32) -> Result {
        let reservation = Reservation::new(GFP_KERNEL)?;
        self.peer.send(reservation, &FrameMessage::Ask { word });
        Ok(())
    }

    /// Has the rings joined anew, with as many buffers as the client wants then ([`Client::slots`]).
    /// Returns before that; the client is told of its [`Client::down`] and [`Client::up`].
    ///
    /// # Errors
    ///
    /// - ENODEV: the rings are not joined.
    /// - ENOMEM: there is no memory for a work item.
    ///
    /// Context: may sleep, does not wait for the peer.
    pub fn rejoin(&self) -> Result {
        let link = self.user.lock().as_ref().map(|user| user.link.clone());
        link.ok_or(ENODEV)?.rejoin_later()
    }

    /// Returns the client, unless it has left.
    fn client(&self) -> Option<Arc<dyn Client>> {
        let user = self.user.lock();
        user.as_ref().map(|user| user.client.clone())
    }

    pub(super) fn ours(&self) -> Ours<'_> {
        Ours {
            block: &self.block,
            start: self.own.queue(self.number),
        }
    }

    /// Returns the peer's part of the queue.
    pub(super) fn theirs(&self) -> Result<Reached<'_>> {
        let geometry = self.remote.geometry;
        let start = self.remote.address + geometry.queue(self.number) as u64;
        self.peer.path().reach(start, geometry.queue_size() as u64)
    }

    /// Rings if `before..after`, the move of a count of ours, has reached the wish of the peer.
    pub(super) fn answer(&self, wish: usize, before: u32, after: u32) -> Result {
        // Orders the store of the count before the load of the wish.
        barrier::mb(barrier::Full);
        if reaches(self.ours().load(wish)?, before, after) {
            let doorbells = &self.peer.doorbells;
            let number = doorbells.for_data(self.number);
            doorbells.ring_for(self.peer.path(), channel(self.number), number);
        }
        Ok(())
    }

    /// Tells the user, unless it has left, that an engine has copied a frame.
    /// Context: any but hard interrupts.
    pub(super) fn landed(&self) {
        if let Some(client) = self.client() {
            client.landed(self.number as usize);
        }
    }

    /// Ends all use by the user, which sends and polls no more: its frames are dropped when this
    /// returns. An engine that copies one is waited for.
    /// Context: may sleep.
    pub(super) fn end_use(&self) {
        self.flights.close();
        bottom_halves_disabled(|| {
            let mut sender = self.sender.lock();
            while let Some(pending) = sender.pending.pop() {
                drop(pending);
            }
            sender.engines = Default::default();
        });
        self.flights.close_and_drain();
        let user = self.user.lock().take();
        drop(user);
        self.end_timer();
    }

    /// Returns whether the user has not left.
    pub(super) fn has_user(&self) -> bool {
        self.user.lock().is_some()
    }

    /// Returns the address of a buffer that the peer has posted.
    pub(super) fn buffer_address(&self, number: u32) -> Result<u64> {
        let at = self.ours().start + self.own.address(number);
        self.block.read_u64(at)
    }

    pub(super) fn fail(&self, error: Error) -> Error {
        self.peer.fail(BROKEN);
        error
    }

    /// Begins to send. `None` once the peer is lost.
    /// Context: bottom halves disabled.
    pub fn sending(self: &Arc<Self>) -> Option<Sending<'_>> {
        Some(Sending {
            _inside: self.peer.enter()?,
            queue: self,
            more_follows: false,
            state: self.sender.lock(),
        })
    }

    /// Begins to receive. `None` once the peer is lost.
    /// Context: bottom halves disabled.
    pub fn receiving(self: &Arc<Self>) -> Option<Receiving<'_>> {
        Some(Receiving {
            _inside: self.peer.enter()?,
            queue: self,
            state: self.receiver.lock(),
        })
    }
}

impl DoorbellHandler for Queue {
    fn on_doorbell(&self) {
        self.room.rung(&self.ours());
        self.frames.rung(&self.ours());
        if let Some(client) = self.client() {
            client.rung(self.number as usize);
        }
    }
}

impl Remote {
    /// Returns the number of each buffer of a frame, the offset of its bytes, and their number.
    pub(super) fn buffers(self, place: Place) -> impl Iterator<Item = (u32, u32, u32)> {
        let size = self.geometry.buffer();
        let count = self.geometry.buffers_of(place.total);
        (0..count).map(move |index| {
            let offset = index.saturating_mul(size);
            let len = place.total.saturating_sub(offset).min(size);
            (place.number.wrapping_add(index), offset, len)
        })
    }
}

/// Returns the id by which the news of a queue are marked.
pub(super) fn channel(queue: u32) -> ChannelId {
    ChannelId(ChannelId::FIRST_FIXED.0 + queue)
}
