// SPDX-License-Identifier: GPL-2.0

//! A toy service, an echo, with this node as its own peer.
//!
//! It has what every service has: messages, the [`Service`], what that has for a peer, and state of
//! its own, the [`Record`]. A [`Bed`] joins it with the loopback transport.

use crate::{
    logic::{
        envelope::{
            define_messages,
            ChannelId,
            Envelope,
            Enveloped,
            ServiceId, //
            FIELDS,
        },
        news::News,
    },
    peer::{
        channel::{
            Channel,
            Owner, //
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
            Held,
            NodeStatus, //
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
/// Nobody has it, unless it is installed.
pub(super) const ABSENT: ServiceId = ServiceId(0xab00);

/// Ends what would hang.
const LIMIT: Delta = Delta::from_secs(30);

define_messages! {
    /// What one toy tells another.
    pub(super) enum Toy of ECHO;

    /// Wants an echo.
    1 Call { number: u32 };
    128 Echo { number: u32 };
    /// Keeps the receiver's control work until the record is open.
    2 Hold {};
    /// Has the receiver attach a second service.
    3 Install {};
    /// Nothing more is to be written to the sender's end of a channel.
    4 Close to target {};
    /// As [`Toy::Call`], but for an echo that comes when the record lets go of all of those.
    6 CallForLater { number: u32 };
    /// As [`Toy::Call`], with an annex of `words` words, each of which is the number.
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

/// What has happened. Outlives the peer.
#[pin_data]
pub(super) struct Record {
    #[pin]
    notes: Mutex<KVec<&'static str>>,
    /// How many were ever made.
    count: Atomic<usize>,
    /// Echoes that bore the number after the one before.
    echoes: Atomic<u32>,
    /// Whether the control work is held, and whether it may go on.
    held: Atomic<bool>,
    open: Atomic<bool>,
    /// Woken by each change.
    #[pin]
    changed: WaitQueue,
    #[pin]
    pub(super) channels: Mutex<ChannelTable<Channel>>,
    /// Numbers to be echoed later, with the memory for that.
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
        // One that is missing is found by who waits for it.
        if self.notes.lock().push(what, GFP_KERNEL).is_ok() {
            self.count.fetch_add(1, Release);
            self.changed.wake_all();
        }
    }

    /// Sends all echoes that were to come later, at once. Returns how many.
    pub(super) fn let_go(&self, peer: &Arc<Peer>) -> usize {
        let later = core::mem::replace(&mut *self.later.lock(), KVVec::new());
        let count = later.len();
        for (number, reservation) in later {
            peer.send(reservation, &Toy::Echo { number });
        }
        count
    }

    /// How many echoes are to come later.
    pub(super) fn count_later(&self) -> usize {
        self.later.lock().len()
    }

    /// What was noted since the last time.
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

    /// Waits until so many notes were made in all.
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

impl Owner for Record {
    fn uses_ended(&self, _channel: &Channel) {
        self.note("uses ended");
    }

    fn remove(&self, id: ChannelId) {
        let removed = self.channels.lock().remove(id);
        drop(removed);
    }
}

/// The service.
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

/// Keeps the control work of a peer from handling messages until this is dropped.
pub(crate) struct Holding(Arc<Record>);

impl Holding {
    /// Of a peer that has no toys. May sleep.
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

/// What it has for a peer.
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
                let reservation = Reservation::new(GFP_KERNEL)?;
                record
                    .later
                    .lock()
                    .push((number, reservation), GFP_KERNEL)?;
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

/// What a service has for a peer that lacks that service.
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

/// By this id whoever reads the log knows that a test loses its peer.
const NODE: u16 = u16::MAX;

/// Makes peers of the first nodes that come, and has them echo.
#[pin_data]
struct Host {
    common: Common,
    record: Arc<Record>,
    /// The one that has come last, until somebody takes it.
    #[pin]
    peer: Mutex<Option<Arc<Peer>>>,
    /// How many sessions there may be, and how often one is refused before the second.
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

    fn online(&self, path: Arc<dyn Path>, who: Introduction<'_>) -> Result<Arc<dyn Session>> {
        match self.sessions.load(Relaxed) {
            0 => return Err(ENODEV),
            1 if self.refusals.load(Relaxed) > 0 => {
                self.refusals.fetch_sub(1, Relaxed);
                return Err(ENOMEM);
            }
            _ => self.sessions.fetch_sub(1, Relaxed),
        };
        let status = Held::new(&NodeStatus::new(NODE, false)?);
        let peer = Peer::new(&self.common, path, &who, NODE, status)?;
        let attachment = self.record.as_arc_borrow().attach(&peer)?;
        peer.attach(ECHO, attachment)?;
        *self.peer.lock() = Some(peer.clone());
        self.record.note("online");
        Ok(peer)
    }
}

/// A peer that is this node itself, with the toy.
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

    /// With another session when the first one has failed, which is refused so often before.
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

    /// The peer that has come last, once.
    pub(super) fn next_peer(&self) -> Result<Arc<Peer>> {
        self.host.peer.lock().take().ok_or(ENODEV)
    }

    /// Ends the session, unless it has ended. Returns what was noted since the last time; EBUSY if
    /// somebody holds what nobody should.
    pub(crate) fn end(self) -> Result<KVec<&'static str>> {
        drop((self.loopback, self.host));
        self.queues.flush_all();
        let peer = Arc::into_unique_or_drop(self.peer).ok_or(EBUSY)?;
        drop(peer);
        let record = Arc::into_unique_or_drop(self.record).ok_or(EBUSY)?;
        Ok(record.take_notes())
    }
}
