// SPDX-License-Identifier: GPL-2.0

//! A toy service, an echo, with this node as its own peer.
//!
//! It has the parts of every service: messages, the [`Service`], its state for a peer, and its own
//! state, the [`Record`]. A [`Bed`] joins it with the loopback transport.
//!
//! This file has more than 500 lines because the parts of a service explain each other.

use crate::{
    logic::{
        envelope::{
            define_messages,
            ChannelId,
            Envelope,
            Enveloped,
            ServiceId,
            FIELDS, //
        },
        news::News,
    },
    peer::{
        channel::{
            Channel,
            ChannelOwner, //
        },
        channel_table::ChannelTable,
        control::{
            AnnexOf,
            Reservation, //
        },
        service::{
            Attachment,
            Service,
            Violation, //
        },
        status::{
            NodeStatus,
            StatusHolder, //
        },
        Common,
        Observer,
        Peer, //
    },
    sync::work_queues::WorkQueues,
    sys::wait::{
        new_wait_queue,
        WaitQueue, //
    },
    transport::{
        links::Links,
        loopback::Loopback,
        path::Path,
        sink::{
            Introduction,
            Session,
            Sink, //
        }, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        ArcBorrow,
        Mutex, //
    },
    time::Delta,
};

pub(super) const ECHO: ServiceId = ServiceId(0xec00);
/// A service that no peer has, unless it is installed.
pub(super) const ABSENT: ServiceId = ServiceId(0xab00);

/// Time limit of a wait, so that a failing test does not hang.
const LIMIT: Delta = Delta::from_secs(30);

define_messages! {
    /// Messages from one toy to another.
    pub(super) enum Toy of ECHO;

    /// Asks for an echo.
    1 Call { number: u32 };
    128 Echo { number: u32 };
    /// Holds the receiver's control work until the record is open.
    2 Hold {};
    /// Has the receiver attach a second service.
    3 Install {};
    /// Asks the receiver to write nothing more to the sender's end of a channel.
    4 Close to target {};
    /// Asks, as [`Toy::Call`] does, for an echo that the record sends later, with all other such
    /// echoes.
    6 CallForLater { number: u32 };
    /// Asks, as [`Toy::Call`] does, with an annex of `words` words, each of which is the number.
    5 CallAtLength { number: u32, words: u32 };
}

/// A message that no table defines.
pub(super) struct Stray {
    pub(super) service: ServiceId,
    pub(super) kind: u8,
}

impl Enveloped for Stray {
    fn envelope(&self) -> Envelope {
        Envelope {
            service: self.service,
            kind: self.kind,
            target: ChannelId::NONE,
            fields: [0; FIELDS],
        }
    }
}

/// A record of the events so far. It outlives the peer.
#[pin_data]
pub(super) struct Record {
    #[pin]
    notes: Mutex<KVec<&'static str>>,
    /// Number of notes made so far.
    count: Atomic<usize>,
    /// Number of echoes that came in order, each with the next number.
    echoes: Atomic<u32>,
    /// Whether the control work is held, and whether it may go on.
    held: Atomic<bool>,
    open: Atomic<bool>,
    /// Woken by each change.
    #[pin]
    changed: WaitQueue,
    #[pin]
    pub(super) channels: Mutex<ChannelTable<Channel>>,
    /// Numbers to be echoed later, each with the memory for the echo.
    #[pin]
    later: Mutex<KVVec<(u32, Reservation)>>,
}

impl Record {
    fn new() -> Result<Arc<Self>> {
        let channels = ChannelTable::new(News::behind(0, 1))?;
        Arc::pin_init(
            pin_init!(Self {
                notes <- new_mutex!(KVec::new(), "scif_test::Record::notes"),
                count: Atomic::new(0),
                echoes: Atomic::new(0),
                held: Atomic::new(false),
                open: Atomic::new(false),
                changed <- new_wait_queue!("scif_test::Record::changed"),
                channels <- new_mutex!(channels, "scif_test::Record::channels"),
                later <- new_mutex!(KVVec::new(), "scif_test::Record::later"),
            }),
            GFP_KERNEL,
        )
    }

    fn note(&self, what: &'static str) {
        // A test that waits for a missing note will notice that.
        if self.notes.lock().push(what, GFP_KERNEL).is_ok() {
            self.count.fetch_add(1, Release);
            self.changed.wake_all();
        }
    }

    /// Sends all deferred echoes at once. Returns their number.
    pub(super) fn let_go(&self, peer: &Arc<Peer>) -> usize {
        let later = core::mem::replace(&mut *self.later.lock(), KVVec::new());
        let count = later.len();
        for (number, reservation) in later {
            peer.send(reservation, &Toy::Echo { number });
        }
        count
    }

    /// Returns the number of deferred echoes.
    pub(super) fn count_later(&self) -> usize {
        self.later.lock().len()
    }

    /// Returns the notes made since the last call.
    pub(super) fn take_notes(&self) -> KVec<&'static str> {
        core::mem::replace(&mut *self.notes.lock(), KVec::new())
    }

    pub(super) fn open(&self) {
        self.open.store(true, Release);
        self.changed.wake_all();
    }

    fn wait_until(&self, condition: impl Fn(&Self) -> bool) -> Result {
        self.changed
            .wait_uninterruptible_timeout(LIMIT, || condition(self).then_some(()))
            .ok_or(ETIMEDOUT)
    }

    /// Waits until `count` notes were made in all.
    pub(super) fn wait_for_notes(&self, count: usize) -> Result {
        self.wait_until(|record| record.count.load(Acquire) >= count)
    }

    /// Waits until the control work is held.
    pub(super) fn wait_until_held(&self) -> Result {
        self.wait_until(|record| record.held.load(Acquire))
    }

    pub(super) fn wait_for_echoes(&self, count: u32) -> Result {
        self.wait_until(|record| record.echoes.load(Acquire) == count)
    }
}

impl Observer for Record {
    fn torn_down(&self, _peer: &Peer) {
        self.note("torn down");
    }
}

impl ChannelOwner for Record {
    fn uses_ended(&self, _channel: &Channel) {
        self.note("uses ended");
    }

    fn remove(&self, id: ChannelId) {
        let removed = self.channels.lock().remove(id);
        drop(removed);
    }
}

/// The toy service.
impl Service for Record {
    fn id(&self) -> ServiceId {
        ECHO
    }

    fn attach(self: ArcBorrow<'_, Self>, peer: &Arc<Peer>) -> Result<Arc<dyn Attachment>> {
        let attached = Attached {
            record: self.into(),
            peer: peer.clone(),
        };
        Ok(Arc::new(attached, GFP_KERNEL)?)
    }
}

/// A guard that keeps a peer's control work from handling messages until it is dropped.
pub(crate) struct Holding(Arc<Record>);

impl Holding {
    /// Holds the control work of a peer that has no toy service.
    /// Context: may sleep.
    pub(crate) fn of(peer: &Arc<Peer>) -> Result<Self> {
        let this = Self(Record::new()?);
        let attachment = this.0.as_arc_borrow().attach(peer)?;
        peer.attach(ECHO, attachment)?;
        peer.post(&Toy::Hold {})?;
        this.0.wait_until_held()?;
        Ok(this)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// The toy service's state for a peer.
struct Attached {
    record: Arc<Record>,
    peer: Arc<Peer>,
}

impl Attached {
    fn install(&self) -> Result {
        let absent = Arc::new(Installed(self.record.clone()), GFP_KERNEL)?;
        self.peer.attach(ABSENT, absent)
    }

    fn handle(&self, message: &Toy, annex: &AnnexOf<'_>) -> Result {
        let record = &self.record;
        match *message {
            Toy::Call { number } => self.peer.answer(&Toy::Echo { number }),
            Toy::CallAtLength { number, words } => {
                let annex = annex.words(words as usize).ok_or(EINVAL)?;
                if annex.words().any(|word| word != u64::from(number)) {
                    return Err(EINVAL);
                }
                self.peer.answer(&Toy::Echo { number });
            }
            Toy::Echo { number } if number == record.echoes.load(Relaxed) => {
                record.echoes.store(number + 1, Release);
            }
            Toy::Echo { .. } => return Err(EINVAL),
            Toy::Hold {} => {
                record.held.store(true, Release);
                record.changed.wake_all();
                record.wait_until(|record| record.open.load(Acquire))?;
            }
            Toy::CallForLater { number } => {
                let echo = (number, Reservation::new(GFP_KERNEL)?);
                record.later.lock().push(echo, GFP_KERNEL)?;
            }
            Toy::Install {} => self.install()?,
            Toy::Close { target } => {
                let channel = record.channels.lock().get(target).cloned();
                match channel {
                    Some(channel) => channel.end_uses(),
                    None => record.note("no such channel"),
                }
            }
        }
        Ok(())
    }
}

impl Attachment for Attached {
    fn message(&self, envelope: &Envelope, annex: &AnnexOf<'_>) -> Result<(), Violation> {
        let message = Toy::from_envelope(envelope)?;
        self.handle(&message, annex)
            .map_err(|_| "the toy can't do that")?;
        self.record.note(match message {
            Toy::Call { .. } => "Call",
            Toy::Echo { .. } => "Echo",
            Toy::Hold {} => "Hold",
            Toy::Install {} => "Install",
            Toy::Close { .. } => "Close",
            Toy::CallAtLength { .. } => "CallAtLength",
            Toy::CallForLater { .. } => "CallForLater",
        });
        Ok(())
    }

    fn refused(&self) -> Result<(), Violation> {
        Err("it has no toys")
    }

    fn lost(&self) {
        self.record.note("lost");
        let mut last = ChannelId::NONE;
        loop {
            let next = self.record.channels.lock().behind(last);
            let Some((id, channel)) = next else {
                break;
            };
            channel.close_uses();
            last = id;
        }
    }

    fn drained(&self) {
        self.record.note("drained");
    }

    fn unreachable(&self) {
        self.record.note("unreachable");
    }

    fn forget(&self) {
        self.record.note("forget");
    }
}

/// A service's state for a peer that lacks this service.
struct Installed(Arc<Record>);

impl Attachment for Installed {
    fn message(&self, _envelope: &Envelope, _annex: &AnnexOf<'_>) -> Result<(), Violation> {
        Err("the peer has the service")
    }

    fn refused(&self) -> Result<(), Violation> {
        self.0.note("refused");
        Ok(())
    }

    fn lost(&self) {}
}

/// Id of the peer's node. In the log it shows that a test loses its peer.
const NODE: u16 = u16::MAX;

/// A sink that makes peers of the first nodes that come, and has them echo.
#[pin_data]
struct Host {
    common: Common,
    record: Arc<Record>,
    /// The newest peer, until a test takes it.
    #[pin]
    peer: Mutex<Option<Arc<Peer>>>,
    /// Number of sessions that may still begin, and of refusals before the last one.
    sessions: Atomic<u32>,
    refusals: Atomic<u32>,
}

impl Sink for Host {
    fn own_node(&self, default: u16) -> u16 {
        default
    }

    fn generation(&self) -> u64 {
        1
    }

    fn is_taken(&self, _node: u16) -> bool {
        false
    }

    fn online(
        &self,
        path: Arc<dyn Path>,
        introduction: Introduction<'_>,
    ) -> Result<Arc<dyn Session>> {
        match self.sessions.load(Relaxed) {
            0 => return Err(ENODEV),
            1 if self.refusals.load(Relaxed) > 0 => {
                self.refusals.fetch_sub(1, Relaxed);
                return Err(ENOMEM);
            }
            _ => self.sessions.fetch_sub(1, Relaxed),
        };
        let status = StatusHolder::new(&NodeStatus::new(NODE, false)?);
        let peer = Peer::new(&self.common, path, &introduction, NODE, status)?;
        let attachment = self.record.as_arc_borrow().attach(&peer)?;
        peer.attach(ECHO, attachment)?;
        *self.peer.lock() = Some(peer.clone());
        self.record.note("online");
        Ok(peer)
    }

    fn link_gone(&self, _link: &CStr) {}
}

/// A test bed: a peer that is this node itself, with the toy service.
pub(crate) struct Bed {
    loopback: Loopback,
    pub(crate) peer: Arc<Peer>,
    pub(super) record: Arc<Record>,
    queues: Arc<WorkQueues>,
    host: Arc<Host>,
}

impl Bed {
    pub(crate) fn new() -> Result<Self> {
        Self::with_sessions(1, 0)
    }

    /// Creates a bed whose session begins anew after a failure, which is refused `refusals` times
    /// before.
    pub(super) fn that_comes_back(refusals: u32) -> Result<Self> {
        Self::with_sessions(2, refusals)
    }

    fn with_sessions(sessions: u32, refusals: u32) -> Result<Self> {
        let (record, queues) = (Record::new()?, WorkQueues::new()?);
        let common = Common {
            queues: queues.clone(),
            observer: record.clone(),
            heartbeat_timeout: 10,
        };
        let of_host = record.clone();
        let host = Arc::pin_init(
            pin_init!(Host {
                common,
                record: of_host,
                peer <- new_mutex!(None, "scif_test::Host::peer"),
                sessions: Atomic::new(sessions),
                refusals: Atomic::new(refusals),
            }),
            GFP_KERNEL,
        )?;
        let sink: Arc<dyn Sink> = host.clone();
        let loopback = Loopback::start(&sink, &queues, &Links::new()?)?;
        let peer = host.peer.lock().take().ok_or(ENODEV)?;
        record.take_notes();
        record.count.store(0, Relaxed);
        Ok(Self {
            loopback,
            peer,
            record,
            queues,
            host,
        })
    }

    /// Returns the newest peer, once.
    pub(super) fn next_peer(&self) -> Result<Arc<Peer>> {
        self.host.peer.lock().take().ok_or(ENODEV)
    }

    /// Ends the session, unless it has ended. Returns the notes made since the last call. EBUSY if
    /// there are references that should be gone.
    pub(crate) fn end(self) -> Result<KVec<&'static str>> {
        drop((self.loopback, self.host));
        self.queues.flush_all();
        let peer = Arc::into_unique_or_drop(self.peer).ok_or(EBUSY)?;
        drop(peer);
        let record = Arc::into_unique_or_drop(self.record).ok_or(EBUSY)?;
        Ok(record.take_notes())
    }
}
