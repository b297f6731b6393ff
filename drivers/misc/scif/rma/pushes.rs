// SPDX-License-Identifier: GPL-2.0

//! Copies into the peer's windows that the peer has asked for: what it reads, this end's engine writes.
//!
//! What is asked for was checked (`transfers/pushed.rs`) when it comes here; see `pulls.rs` for the
//! asking side. The control work does not start it, as that waits while an engine's ring is full: a
//! work item does, one after another. The end of a copy is noted in a soft interrupt, and another work
//! item tells the peer of all that have ended since it last did, for which it is rung once.
//!
//! They have no numbers: fences of this end know nothing of them. They keep the windows, the channel and
//! the peer in use as transfers of this end do.
//!
//! Locks: `waiting` is one that may sleep, `ended` is taken in soft interrupts; both are leaves.
//!
//! What the peer asks this end's engine to copy into its windows: checked, and taken into use.
//!
//! The peer names windows that this end has registered, and windows of its own that it has offered, as
//! offsets; so it reaches no more than it could read by itself, and this end no more than it could write
//! for its own sake. Or it offers a window for this copy alone, which is let go with it.

use super::{
    cpu_copy,
    operation::{
        are_reached,
        Completion,
        Operation,
        Request,
        Sides, //
    },
    pulls,
    staging::{
        Patience,
        Staging, //
    },
    transfer::Transfer,
    transfers::Transfers,
    ways, //
};
use crate::{
    arguments::{
        Direction,
        PROTECTION_READ,
        PROTECTION_WRITE, //
    },
    logic::{
        address_space::Range,
        messages::{
            Message,
            Status,
            WindowId, //
        },
        plan, //
    },
    memory::{
        range_tree::Few,
        remote_window::{
            RemotePiece,
            RemoteWindow, //
        }, //
    },
    peer::{
        control::Reservation,
        Peer, //
    },
    transport::engine::EngineRoute, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_spinlock_irq,
    new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        Mutex,
        SpinLockIrq, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

/// How many of a peer there can be at once, until they are answered: a peer does not ask for more.
const MOST: usize = pulls::MOST;

/// Maps what is to be read for an engine. May sleep.
fn map_for(route: &EngineRoute, request: &Request) -> Result {
    let mut pieces = request.sides.local.iter();
    pieces.try_for_each(|piece| piece.memory().map_for(route))
}

/// How a copy is made: by one of the path's engines; or not by that alone, though it may help.
pub(super) enum How {
    ByEngine(usize),
    ByHand(Option<usize>),
}

/// A copy that was asked for and has not begun.
struct Wanted {
    /// Which of the path's engines makes it.
    engine: Option<usize>,
    request: Request,
}

/// A copy that no engine can make by itself: by CPU, or through slots of the peer. Each has a thread, so that
/// those that have much to copy do not keep others waiting.
#[pin_data]
struct ByHand {
    pushes: Arc<Pushes>,
    /// Which of the path's engines fills slots, if one does.
    engine: Option<usize>,
    #[pin]
    request: SpinLockIrq<Option<Request>>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for ByHand { self.work }
}

impl WorkItem for ByHand {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let request = this.request.lock().take();
        if let Some(request) = request {
            this.pushes.copy_by_hand(this.engine, request);
        }
    }
}

impl ByHand {
    fn enqueue(pushes: &Arc<Pushes>, engine: Option<usize>, request: Request) -> Result {
        let this = Arc::pin_init(
            pin_init!(Self {
                pushes: pushes.clone(),
                engine,
                request <- new_spinlock_irq!(Some(request), "ByHand::request"),
                work <- new_work!("ByHand::work"),
            }),
            GFP_KERNEL,
        )?;
        // It is enqueued once, so this can't fail.
        let _ = pushes.peer.queues().patient.enqueue(this);
        Ok(())
    }
}

/// Those of one peer.
#[pin_data]
pub(crate) struct Pushes {
    peer: Arc<Peer>,
    staging: Arc<Staging>,
    /// How many there are.
    count: Atomic<usize>,
    #[pin]
    waiting: Mutex<KVVec<Wanted>>,
    /// For the answer to each copy that runs; has room for all there can be.
    #[pin]
    reservations: SpinLockIrq<KVec<Reservation>>,
    #[pin]
    starter: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Pushes { self.starter }
}

/// Starts what was asked for.
impl WorkItem for Pushes {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        loop {
            let wanted = core::mem::take(&mut *this.waiting.lock());
            if wanted.is_empty() {
                return;
            }
            for Wanted { engine, request } in wanted {
                // It keeps the peer in use.
                match this.peer.path().engine(engine) {
                    Some(route) => this.start(route, request),
                    None => this.tell(request.operation.number as u32, Status::OutOfReach),
                }
            }
        }
    }
}

/// Tokens of the peer stand in for numbers.
impl Completion for Pushes {
    fn ended(self: ArcBorrow<'_, Self>, operation: &Operation, result: Result, _: bool) {
        let status = match result {
            Ok(()) => Status::Done,
            Err(_) => {
                self.peer.status.access_failed();
                Status::TransferFailed
            }
        };
        self.tell(operation.number as u32, status);
    }
}

impl Pushes {
    /// None yet. May sleep.
    pub(super) fn new(peer: &Arc<Peer>, staging: &Arc<Staging>) -> Result<Arc<Self>> {
        let reservations = KVec::with_capacity(MOST, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                staging: staging.clone(),
                count: Atomic::new(0),
                waiting <- new_mutex!(KVVec::new(), "Pushes::waiting"),
                reservations <- new_spinlock_irq!(reservations, "Pushes::reservations"),
                starter <- new_work!("Pushes::starter"),
            }),
            GFP_KERNEL,
        )
    }

    /// The peer has asked for something: starts what `prepare` makes of it, for one of the path's
    /// engines, or without, or says why not. Called by the control work.
    pub(super) fn wanted(
        self: &Arc<Self>,
        token: u32,
        prepare: impl FnOnce(Arc<Self>) -> Result<(How, Request)>,
    ) {
        if self.count.fetch_add(1, Relaxed) >= MOST {
            self.refuse(token, ENOMEM);
            return;
        }
        match Reservation::new(GFP_KERNEL) {
            Ok(reservation) => {
                // There is room for all that are counted.
                let _ = self.reservations.lock().push_within_capacity(reservation);
            }
            Err(error) => {
                self.refuse(token, error);
                return;
            }
        }
        let queued = prepare(self.clone()).and_then(|(how, request)| {
            let engine = match how {
                How::ByHand(engine) => return ByHand::enqueue(self, engine, request),
                How::ByEngine(engine) => Some(engine),
            };
            let mut waiting = self.waiting.lock();
            // A request that finds no place is dropped after the lock.
            waiting.reserve(1, GFP_KERNEL)?;
            let _ = waiting.push_within_capacity(Wanted { engine, request });
            Ok(())
        });
        match queued {
            Ok(()) => {
                // An error says that it is about to run anyway.
                let _ = self.peer.queues().patient.enqueue::<_, 0>(self.clone());
            }
            Err(error) => {
                drop(self.reservations.lock().pop());
                self.refuse(token, error);
            }
        }
    }

    /// Answers the request that is being handled: nothing will be copied.
    fn refuse(&self, token: u32, error: Error) {
        let status = match error {
            ENOMEM => Status::NoMemory,
            // It does not ask again for a while.
            ENODEV => Status::OutOfReach,
            _ => Status::Unknown,
        };
        self.count.fetch_sub(1, Relaxed);
        self.peer.answer(&Message::PushDone { token, status });
    }

    /// Maps what is to be read, which can take long, and has it copied.
    fn start(&self, route: &EngineRoute, request: Request) {
        match map_for(route, &request) {
            // Its end is told in any case.
            Ok(()) => {
                let _ = Transfer::start(route, request);
                route.engine.arm();
            }
            Err(_) => {
                let token = request.operation.number as u32;
                drop(request);
                self.tell(token, Status::NoMemory);
            }
        }
    }

    /// Copies without an engine that could do it alone.
    fn copy_by_hand(&self, engine: Option<usize>, request: Request) {
        if are_reached(&request.sides.remote) {
            let copied =
                cpu_copy::copy(&self.peer, Direction::Write, &request.sides, request.parts);
            request.operation.end(copied, false);
            return;
        }
        let path = self.peer.path();
        let route = match ways::fills_by_processor(&self.staging, request.operation.bytes) {
            true => None,
            false => path.engine(engine),
        };
        let route = route.filter(|route| map_for(route, &request).is_ok());
        // Its end is told in any case.
        let _ = self
            .staging
            .write(request, route, Patience::Uninterruptible);
    }

    /// Tells the peer that a copy has ended. Any context.
    fn tell(&self, token: u32, status: Status) {
        let reservation = self.reservations.lock().pop();
        // The peer may ask for another one as soon as it hears of this.
        self.count.fetch_sub(1, Relaxed);
        if let Some(reservation) = reservation {
            self.peer
                .send(reservation, &Message::PushDone { token, status });
        }
    }
}

/// Windows that one copy may lie in: what is kept of it until it ends must not be any amount.
const MOST_PIECES: usize = 1024;

/// The same, if there is no other way.
const MOST_PIECES_IN_NEED: usize = 1 << 16;

/// What the peer wants.
pub(crate) struct Asked {
    /// By which it knows it.
    pub(crate) token: u32,
    /// What lies in the last cache line of the source goes last.
    pub(crate) ordered: bool,
    /// It can't copy by itself: CPU or slots will do.
    pub(crate) must: bool,
    /// Where in windows of this end.
    pub(crate) source: u64,
    /// Where in windows of the peer.
    pub(crate) destination: u64,
    pub(crate) len: u64,
    /// The one that it was offered for this, in which the destination is.
    pub(crate) window: Option<WindowId>,
}

/// A part of one window: ENXIO if it is not inside, EACCES if it must not be written.
fn part_of(window: Arc<RemoteWindow>, range: Range) -> Result<RemotePiece> {
    if !window.range.contains(&range) {
        return Err(ENXIO);
    }
    if window.protection & PROTECTION_WRITE == 0 {
        return Err(EACCES);
    }
    Ok(RemotePiece {
        offset: range.start() - window.range.start(),
        window,
        len: range.len(),
    })
}

impl Transfers {
    /// The peer wants something copied to it. Called by the control work.
    pub(crate) fn push_wanted(&self, asked: &Asked) {
        // Let go in any case.
        let window = self.take_window(asked);
        let pushes = &self.ways.pushes;
        pushes.wanted(asked.token, |pushes| {
            self.prepare_push(asked, window, pushes)
        });
    }

    /// What would become of it, but that nothing is copied.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn would_push(&self, asked: &Asked) -> Result {
        let window = self.take_window(asked);
        let prepared = self.prepare_push(asked, window, self.ways.pushes.clone());
        prepared.map(drop)
    }

    /// The window that was offered for this: ENXIO if one is named that was not.
    fn take_window(&self, asked: &Asked) -> Result<Option<Arc<RemoteWindow>>> {
        let Some(id) = asked.window else {
            return Ok(None);
        };
        self.remote_windows.take_unlisted(id).map(Some).ok_or(ENXIO)
    }

    /// The place of the engine for a copy that goes by itself.
    fn engine_for(&self, asked: &Asked, is_reached: bool) -> Result<usize> {
        let place = self.channel.engine().ok_or(ENODEV)?;
        let route = self.channel.path().engine(Some(place)).ok_or(ENODEV)?;
        let len = usize::try_from(asked.len)?;
        match is_reached && route.engine.can_copy(asked.destination, asked.source, len) {
            true => Ok(place),
            false => Err(EINVAL),
        }
    }

    /// How it is to be made, and what is to be done. ENXIO or EACCES
    /// if there are no such windows, ENODEV if there is no engine for it and it need not be done.
    fn prepare_push(
        &self,
        asked: &Asked,
        window: Result<Option<Arc<RemoteWindow>>>,
        pushes: Arc<Pushes>,
    ) -> Result<(How, Request)> {
        let destination = Range::from_parts(asked.destination, asked.len).map_err(|_| ENXIO)?;
        let remote = match window? {
            None => self.remote_windows.cover(destination, PROTECTION_WRITE)?,
            Some(window) => Few::one(part_of(window, destination)?),
        };
        let source = Range::from_parts(asked.source, asked.len).map_err(|_| ENXIO)?;
        let surroundings = self.enter()?;
        let local = self.windows.cover(source, PROTECTION_READ)?;
        let how = match self.engine_for(asked, are_reached(&remote)) {
            Err(_) if asked.must => How::ByHand(self.channel.engine()),
            place => How::ByEngine(place?),
        };
        let most = match asked.must {
            true => MOST_PIECES_IN_NEED,
            false => MOST_PIECES,
        };
        if local.iter().count() > most || remote.iter().count() > most {
            return Err(EINVAL);
        }
        let request = Request {
            operation: Operation {
                completion: pushes,
                number: asked.token.into(),
                direction: Direction::Write,
                bytes: asked.len,
            },
            sides: Sides { local, remote },
            parts: match asked.ordered {
                true => plan::split_tail(asked.source, asked.len),
                false => (asked.len, 0),
            },
            synchronous: false,
            surroundings,
        };
        Ok((how, request))
    }
}
