// SPDX-License-Identifier: GPL-2.0

//! The copies that one end of a channel starts.
//!
//! The windows on both sides are looked up and taken into use, the copy gets a number (on which
//! fences rest, `marks.rs`), and goes the way that `ways.rs` has chosen. Here its caller waits for it.
//!
//! `SCIF_RMA_ORDERED`: the part in the last cache line of the source goes last, by itself.

use super::{
    caches::Caches,
    deferred::MAX_DEFERRED,
    fence::Answer,
    marks::Marks,
    operation::{
        are_reached,
        Caller,
        Operation,
        Sides,
        Surroundings, //
    },
    registration_cache::RegistrationCache,
    ways::{
        Way,
        Ways, //
    }, //
};
use crate::{
    arguments::{
        Direction,
        LocalSide,
        TransferOptions, //
    },
    logic::{
        address_space::Range,
        marks::Sequence,
        messages::{
            Message,
            PushRequest,
            WindowId, //
        },
        plan, //
    },
    memory::{
        local::LocalPiece,
        range_tree::{
            paid_by_caller,
            Few, //
        },
        remote_window::RemotePiece,
        remote_windows::RemoteWindows,
        windows::Windows, //
    },
    peer::{
        channel::Channel,
        questions::{
            Questions,
            Reply, //
        },
        PeerUse, //
    },
    sync::patience::Patience,
    sys::{
        buffer::Buffer,
        trace, //
    },
    transport::engine::EngineRoute, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc,
        SpinLock, //
    }, //
};

/// Memory of the caller is offered for one transfer as long as no more than this is offered for each
/// byte that is needed: what is kept for later ones can be larger.
const MOST_SPARE: u64 = 4;

/// Memory of the caller, and what keeps the peer in use if that was taken before. Dropped in this order.
type Taken = (LocalPiece, Option<PeerUse>);

/// See the head of this file.
#[pin_data]
pub(crate) struct Transfers {
    pub(super) channel: Arc<Channel>,
    pub(super) windows: Arc<Windows>,
    pub(super) remote_windows: Arc<RemoteWindows>,
    pub(super) ways: Arc<Ways>,
    pub(crate) cache: Arc<RegistrationCache>,
    pub(crate) marks: Arc<Marks>,
    /// What fences have asked the peer (`fence.rs`).
    #[pin]
    pub(super) questions: Questions<Reply<Answer>>,
    /// The last transfer of the peer that this end has heard of.
    #[pin]
    pub(super) peer_last: SpinLock<Sequence>,
}

/// A copy as its caller asks for it.
pub(super) struct Request<'a> {
    pub(super) direction: Direction,
    pub(super) local: &'a LocalSide,
    pub(super) remote: Range,
    pub(super) options: TransferOptions,
}

impl Request<'_> {
    /// Where the local side begins: only its low bits mean something.
    pub(super) fn local_start(&self) -> u64 {
        match self.local {
            LocalSide::Windows(offset) => *offset as u64,
            LocalSide::Memory(memory) => memory.address() as u64,
        }
    }

    /// How many bytes of it go first; the others go last.
    fn body(&self) -> u64 {
        let len = self.remote.len();
        if !self.options.ordered {
            return len;
        }
        let visible_from = match self.direction {
            Direction::Read => self.remote.start(),
            // Windows and memory of the process are aligned to pages alike.
            Direction::Write => self.local_start(),
        };
        let (body, _) = plan::split_tail(visible_from, len);
        body
    }
}

impl Transfers {
    /// Of windows of the channel, and fences behind them. May sleep.
    pub(crate) fn new(
        channel: &Arc<Channel>,
        windows: &Arc<Windows>,
        remote_windows: &Arc<RemoteWindows>,
        caches: &Arc<Caches>,
        ways: &Arc<Ways>,
    ) -> Result<impl PinInit<Self>> {
        let cache = RegistrationCache::new(channel.peer(), caches)?;
        let marks = Marks::new(channel)?;
        let (channel, ways) = (channel.clone(), ways.clone());
        let (windows, remote_windows) = (windows.clone(), remote_windows.clone());
        Ok(pin_init!(Self {
            channel,
            windows,
            remote_windows,
            ways,
            cache,
            marks,
            questions <- Questions::new(MAX_DEFERRED, 0),
            peer_last <- new_spinlock!(Sequence::default(), "Transfers::peer_last"),
        }))
    }

    /// Whether there ever was one, or memory was kept for one.
    pub(crate) fn were_used(&self) -> bool {
        self.marks.were_used() || self.cache.was_used()
    }

    /// Waits until all have ended, and what waits behind them was done, and the peer has let go of memory that it was
    /// offered for them: as long as this node's engines need, and as long as `patience` lasts for what is up to the peer.
    /// What has not ended then keeps the memory that it uses, and ends by itself. May sleep.
    pub(crate) fn drain(&self, patience: &Patience) {
        self.marks.drain_own();
        self.marks.as_arc_borrow().run_due(false);
        let Ok(waiters) = self.channel.waiters() else {
            return;
        };
        patience.wait(&waiters, || self.marks.is_idle());
        let has_let_go = || self.windows.count_unlisted() == 0 || self.channel.is_over();
        patience.wait_for_answer(&waiters, has_let_go);
    }

    /// The end is closed, and waits no longer: whoever waits for the peer on its account stops. Any context.
    pub(crate) fn give_up(&self) {
        self.ways.staging.look_again();
    }

    /// Copies `len` bytes between our memory at `local` and the peer's windows at `remote`.
    ///
    /// Memory that is no window is pinned for the transfer, or longer if the caller wants it to be
    /// kept. It counts against RLIMIT_MEMLOCK (EAGAIN) if the transfer can outlive the call, as any
    /// number of those can be started.
    /// ENXIO where there is no window, EACCES where one does not allow it; then nothing was copied.
    /// EIO if the copy failed. Killable.
    pub(crate) fn copy(
        &self,
        direction: Direction,
        local: &LocalSide,
        remote: i64,
        len: u64,
        options: TransferOptions,
    ) -> Result {
        let remote = Range::new(remote, len).map_err(|_| self.channel.end_or(ENXIO))?;
        let request = Request {
            direction,
            local,
            remote,
            options,
        };
        // Most copies are small ones by the CPU: no more is chosen for them.
        let route = self.ways.route(&self.channel, &request);
        if route.is_none() && self.copy_at_once(&request).is_some() {
            return Ok(());
        }
        let mut way = self.ways.choose(&request, route, true);
        self.channel.check_reached()?;
        // Outside of the peer: how long pinning takes, is up to the process.
        let taken = match local {
            LocalSide::Windows(_) => None,
            LocalSide::Memory(memory) => {
                // Looked at first, so that what is pinned is no more than there are windows for.
                if !are_reached(&self.cover_remote(&request)?) {
                    way = self.ways.choose(&request, route, false);
                }
                Some(self.take_memory_for(&mut way, memory, direction, options)?)
            }
        };
        self.copy_with(&request, route, way, taken)
    }

    /// Copies, with the local side as it was found.
    fn copy_with<'a>(
        &'a self,
        request: &Request<'_>,
        route: Option<&'a EngineRoute>,
        mut way: Way<'a>,
        taken: Option<Taken>,
    ) -> Result {
        let surroundings = Surroundings::of(&self.channel)?;
        // Looked up now: who pins for long must not begin what the peer thinks is over.
        let pieces = self.cover_remote(request)?;
        if way.is_reached != are_reached(&pieces) {
            // What was taken for another way may be too much for the peer to keep.
            let may_ask = way.is_reached;
            way = self.ways.choose(request, route, !way.is_reached);
            way.asks_peer &= may_ask;
        }
        let sides = Sides {
            remote: pieces,
            local: self.local_pieces(request, taken)?,
        };
        // Not every engine reaches all memory: one that can't have this is done without.
        way.route = way.route.filter(|route| sides.map_for(route).is_ok());
        let mut operation = Operation::new(
            request.direction,
            request.remote.len(),
            request.body(),
            request.options.synchronous,
            sides,
            surroundings,
        )?;
        operation.completion = Some(self.marks.clone());
        let is_left_to_peer = way.asks_peer || !way.is_reached;
        operation.is_left_to_peer = Atomic::new(is_left_to_peer);
        operation.number = self.marks.begin(is_left_to_peer)?.0;
        self.trace_submit(request, operation.number, way.route.is_some());
        self.carry_out(request, way, &operation.into())
    }

    /// Begins a copy, and waits for its end if the caller has to. Killable, if the local side is not lent.
    fn carry_out(
        &self,
        request: &Request<'_>,
        mut way: Way<'_>,
        operation: &Arc<Operation>,
    ) -> Result {
        let is_lent = request.local.is_lent();
        let caller = if is_lent {
            Caller::Lender
        } else {
            Caller::Process
        };
        let mut offered = None;
        if way.asks_peer {
            match self.ask_peer(request, &way, operation) {
                Ok(window) => offered = window,
                Err(_) if way.is_reached => {
                    way.asks_peer = false;
                    operation.take_over();
                }
                Err(error) => return Err(operation.end_for(caller, self.channel.end_or(error))),
            }
        }
        if !way.asks_peer {
            let started = way.start(&self.ways.staging, operation, caller);
            started.inspect_err(|_| {
                let waiters = self.channel.waiters().ok().filter(|_| is_lent);
                if let Some(waiters) = waiters {
                    // What was begun of it ends.
                    let _ = waiters.wait_uninterruptible(|| operation.result());
                }
            })?;
        }
        // What is lent is used by nobody else when this returns. A processor that fills slots is done with it.
        let is_staged_by_others = !way.is_reached && (way.route.is_some() || way.asks_peer);
        let lends_on = is_lent && is_staged_by_others;
        if !operation.synchronous && !lends_on {
            return Ok(());
        }
        let waited = self.wait_for(operation, is_lent);
        if let Some(window) = offered.filter(|_| !way.is_reached) {
            self.take_back(window);
        }
        waited
    }

    /// Asks the peer to write what is to be read; the engine of the `way` reads if it
    /// does not want to. Returns the window that was offered to it for this. On an error nothing was begun. Killable.
    fn ask_peer(
        &self,
        request: &Request<'_>,
        way: &Way<'_>,
        operation: &Arc<Operation>,
    ) -> Result<Option<WindowId>> {
        let must = !way.is_reached;
        let target = self.channel.remote()?;
        let (offered, destination) = match request.local {
            LocalSide::Windows(offset) => (None, *offset as u64),
            LocalSide::Memory(_) => self.offer_memory(operation, must)?,
        };
        let message = |token| Message::PushWanted {
            target,
            request: PushRequest {
                token,
                ordered: operation.is_ordered(),
                source: request.remote.start(),
                destination,
                len: operation.bytes,
                must,
                window: offered.unwrap_or(WindowId::NONE),
            },
        };
        let engine = self.channel.engine().filter(|_| !must);
        let asked = self.ways.pull(&self.channel, operation, engine, message);
        asked.inspect_err(|_| {
            if let Some(window) = offered {
                // In this order: what was taken back is not known here any more.
                self.windows.withdraw_unlisted(window);
                if must {
                    self.take_back(window);
                }
            }
        })?;
        Ok(offered)
    }

    /// Offers memory of the caller to the peer. Returns the window, and where in it the memory begins. Killable.
    fn offer_memory(&self, operation: &Operation, must: bool) -> Result<(Option<WindowId>, u64)> {
        let piece = operation.sides.local.iter().next().ok_or(EINVAL)?;
        let pages = &piece.memory().pages;
        if !must && pages.size() as u64 / MOST_SPARE > piece.len {
            return Err(EINVAL);
        }
        let bytes = Range::from_parts(piece.offset, piece.len).map_err(|_| EINVAL)?;
        let window = self.windows.offer_unlisted(pages, bytes, must)?;
        Ok((Some(window), piece.offset))
    }

    /// What was offered for a read that nobody waits for any more is taken back, whatever the peer does: it may be
    /// used for something else next.
    fn take_back(&self, window: WindowId) {
        self.windows.take_back_unlisted(window);
        self.ways.staging.wait_for_deliveries();
    }

    /// Waits for a transfer, and says what its failure means. Killable, if the memory is not lent.
    fn wait_for(&self, operation: &Operation, is_lent: bool) -> Result {
        let result = if let Some(result) = operation.result() {
            result
        } else if is_lent {
            // Whoever is told of an end takes the memory back. The engine, or the peer, sees to it that there is
            // one, or is lost.
            let waiters = self.channel.waiters()?;
            waiters.wait_uninterruptible(|| operation.result())
        } else {
            let waiters = self.channel.waiters()?;
            waiters.wait_killable(|| operation.result())?
        };
        result.map_err(|error| self.marks.transfer_error(error))
    }

    pub(super) fn trace_submit(&self, request: &Request<'_>, number: u64, by_engine: bool) {
        trace::rma_submit(|| trace::Transfer {
            node: self.channel.node(),
            channel: self.channel.id.0,
            number,
            write: request.direction == Direction::Write,
            engine: by_engine,
            local: request.local.offset().unwrap_or(-1),
            remote: request.remote.offset(),
            len: request.remote.len(),
            flags: request.options.flags() as u32,
        });
    }

    /// The peer's windows. If the connection has ended meanwhile, which takes them away, that is said.
    fn cover_remote(&self, request: &Request<'_>) -> Result<Few<RemotePiece>> {
        let (_, protection) = request.direction.needs();
        let covered = self.remote_windows.cover_now(request.remote, protection);
        covered.map_err(|error| self.channel.end_or(error))
    }

    /// Memory of the caller for a transfer. One that the peer makes may keep it for longer than the call
    /// takes; if the limit leaves no room for that, it goes another way.
    fn take_memory_for(
        &self,
        way: &mut Way<'_>,
        memory: &Buffer,
        direction: Direction,
        options: TransferOptions,
    ) -> Result<Taken> {
        let writable = direction == Direction::Read;
        let is_lent_to_others = way.route.is_some() || !way.is_reached;
        let outlives = is_lent_to_others && !options.synchronous;
        let may_be_asked = way.asks_peer && way.is_reached;
        let take = |account| self.take_memory(memory, writable, account, options.use_cache);
        match take(outlives || may_be_asked) {
            Err(EAGAIN) if may_be_asked && !outlives => {
                way.asks_peer = false;
                take(false)
            }
            taken => taken,
        }
    }

    /// Memory of the caller: what is kept of it, or taken now.
    fn take_memory(
        &self,
        memory: &Buffer,
        writable: bool,
        account: bool,
        use_cache: bool,
    ) -> Result<Taken> {
        if use_cache {
            if let Some((piece, peer_use)) = self.cache.get(memory, writable) {
                return Ok((piece, Some(peer_use)));
            }
        }
        let piece = LocalPiece::of_caller(memory, writable, account, &*self.cache.caches)?;
        Ok((piece, None))
    }

    /// Inside the peer: the local side, in use. As [`Self::cover_remote`] for windows.
    fn local_pieces(&self, request: &Request<'_>, taken: Option<Taken>) -> Result<Few<LocalPiece>> {
        // Both uses of the peer are held for a moment, so that there is none without.
        if let Some((piece, _peer_use)) = taken {
            return Ok(Few::one(piece));
        }
        let (protection, _) = request.direction.needs();
        let range = Range::from_parts(request.local_start(), request.remote.len());
        let covered = self
            .windows
            .cover(range.map_err(|_| ENXIO)?, protection, paid_by_caller);
        covered.map_err(|error| self.channel.end_or(error))
    }
}
