// SPDX-License-Identifier: GPL-2.0

//! The transfers that one end of a channel starts.
//!
//! The windows on both sides are looked up and taken into use, the transfer gets a number (on which
//! fences rest, `marks.rs`), and the bytes go by DMA engine or by CPU. A transfer by CPU is over when
//! the call returns; one by engine ends in `transfer.rs`.
//!
//! Which way: `SCIF_RMA_USECPU`, or no engine, means CPU. Otherwise the size decides (`ways.rs`) between the CPU
//! and the engine of the channel. An engine that has stopped is no engine. Large reads
//! may be left to the peer's engine: `transfers/pulled.rs`, and for the peer `transfers/pushed.rs`. Where
//! this end does not reach, another way has to do: `transfers/staged.rs`.
//!
//! `SCIF_RMA_ORDERED`: the part in the last cache line of the source goes last, by itself.

use super::{
    caches::Caches,
    cpu_copy::{
        self,
        AtOnce, //
    },
    marks::{
        Marks,
        Progress, //
    },
    operation::{
        are_reached,
        Operation,
        Request,
        Sides,
        Surroundings, //
    },
    registration_cache::RegistrationCache,
    staging::Staging,
    transfer::Transfer,
    ways::Ways, //
};
use crate::{
    arguments::{
        Direction,
        LocalSide,
        TransferOptions, //
    },
    logic::{
        address_space::Range,
        plan, //
    },
    memory::{
        local::LocalPiece,
        range_tree::Few,
        remote_window::RemotePiece,
        remote_windows::RemoteWindows,
        windows::Windows, //
    },
    peer::{
        channel::Channel,
        PeerUse, //
    },
    sys::{
        buffer::Buffer,
        trace, //
    },
    transport::engine::EngineRoute,
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

mod by_peer;

/// Where the local side of a transfer comes from.
enum Source {
    Windows(Range),
    Taken(LocalPiece),
    // Dropped in this order.
    Kept(LocalPiece, PeerUse),
}

/// Which way a transfer goes.
struct Way<'a> {
    /// The engine; none if it is for the CPU.
    route: Option<&'a EngineRoute>,
    /// The peer is asked first.
    by_peer: bool,
    /// Only the peer can, or its slots do.
    is_unreached: bool,
}

/// See the head of this file.
pub(crate) struct Transfers {
    pub(super) channel: Arc<Channel>,
    pub(super) windows: Arc<Windows>,
    pub(super) remote_windows: Arc<RemoteWindows>,
    caches: Arc<Caches>,
    pub(super) ways: Arc<Ways>,
    cache: Arc<RegistrationCache>,
    pub(super) marks: Arc<Marks>,
}

/// Where the local side begins: only its low bits mean something.
fn start_of(local: &LocalSide) -> u64 {
    match local {
        LocalSide::Windows(offset) => *offset as u64,
        LocalSide::Memory(memory) => memory.address() as u64,
    }
}

impl Transfers {
    /// Of windows of the channel. May sleep.
    pub(crate) fn new(
        channel: &Arc<Channel>,
        windows: &Arc<Windows>,
        remote_windows: &Arc<RemoteWindows>,
        caches: &Arc<Caches>,
        ways: &Arc<Ways>,
    ) -> Result<Self> {
        Ok(Self {
            channel: channel.clone(),
            windows: windows.clone(),
            remote_windows: remote_windows.clone(),
            caches: caches.clone(),
            ways: ways.clone(),
            cache: RegistrationCache::new(channel.peer(), caches)?,
            marks: Marks::new(channel)?,
        })
    }

    /// Whether there ever was one, or memory was kept for one.
    pub(crate) fn were_used(&self) -> bool {
        self.marks.were_used() || self.cache.was_used()
    }

    /// What those go through that one side does not reach.
    pub(super) fn staging(&self) -> &Arc<Staging> {
        &self.ways.staging
    }

    /// How they go, for people. Any context.
    pub(crate) fn progress(&self) -> Progress {
        self.marks.progress()
    }

    /// Waits until all have ended, and runs what waits behind them. May sleep.
    pub(crate) fn drain(&self) {
        self.ways.pulls.drain(&self.channel, &self.windows);
        self.marks.drain();
        self.marks.run_due(true);
    }

    /// Forgets what waits behind transfers, for good. When this returns, none of that runs. May sleep.
    pub(crate) fn finish_deferred(&self) {
        self.marks.finish_deferred();
    }

    /// Forgets what waits behind transfers: nobody waits for it any more. May sleep.
    pub(crate) fn forget_deferred(&self) {
        self.marks.forget_deferred();
    }

    /// Keeps no memory for later transfers any more. May sleep.
    pub(crate) fn close_cache(&self) {
        self.cache.close();
    }

    /// As [`Self::close_cache`], some time soon.
    pub(crate) fn close_cache_soon(&self) {
        self.cache.close_soon();
    }

    /// The way for a transfer.
    fn choose_way(
        &self,
        direction: Direction,
        local: &LocalSide,
        remote: Range,
        options: TransferOptions,
    ) -> Way<'_> {
        let route = self.choose_engine(direction, start_of(local), remote, options);
        let by_peer = route.is_some() && self.may_be_pulled(direction, local, remote);
        Way {
            route,
            by_peer,
            is_unreached: false,
        }
    }

    /// The engine for a transfer; none if it is for the CPU.
    fn choose_engine(
        &self,
        direction: Direction,
        local_start: u64,
        remote: Range,
        options: TransferOptions,
    ) -> Option<&EngineRoute> {
        let by_processor = options.use_cpu
            || self
                .ways
                .by_processor(direction, remote.len(), options.synchronous);
        if by_processor {
            return None;
        }
        let route = self.channel.path().engine(self.channel.engine())?;
        // Where extents begin and end, pages do: only the ends of the transfer can be misaligned.
        route
            .engine
            .can_copy(remote.start(), local_start, remote.len() as usize)
            .then_some(route)
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
        let remote_range = Range::new(remote, len);
        let remote_range = remote_range.map_err(|_| self.channel.end_or(ENXIO))?;
        let (local_need, remote_need) = direction.needs();
        let mut way = self.choose_way(direction, local, remote_range, options);
        if way.route.is_none() {
            let at_once = self.at_once(direction, local, remote_range, options);
            if at_once.copy().is_some() {
                return Ok(());
            }
        }
        self.channel.check_reached()?;
        // Outside of the peer: how long pinning takes, is up to the process.
        let source = self.source(&mut way, direction, local, remote_range, options)?;
        let surroundings = self.enter()?;
        // Looked up now: who pins for long must not begin what the peer thinks is over.
        let pieces = self.cover_remote(remote_range, remote_need)?;
        way.is_unreached = !are_reached(&pieces);
        if way.is_unreached && direction == Direction::Read {
            way.route = None;
        }
        self.leave_engine_if_slower(&mut way, direction, len);
        let sides = Sides {
            remote: pieces,
            local: self.local_pieces(source, local_need, way.route)?,
        };
        let visible_from = match direction {
            Direction::Read => remote_range.start(),
            // Windows and memory of the process are aligned to pages alike.
            Direction::Write => start_of(local),
        };
        let request = Request {
            operation: Operation {
                completion: self.marks.clone(),
                number: self.marks.begin()?.0,
                direction,
                bytes: len,
            },
            sides,
            parts: match options.ordered {
                true => plan::split_tail(visible_from, len),
                false => (len, 0),
            },
            synchronous: options.synchronous,
            surroundings,
        };
        self.trace_submit(&request, local, remote, options, way.route.is_some());
        self.carry_out(&way, request, local, remote)
    }

    fn carry_out(&self, way: &Way<'_>, request: Request, local: &LocalSide, remote: i64) -> Result {
        if way.is_unreached {
            return self.copy_unreached(way.route, request, local, remote);
        }
        let request = match way.by_peer {
            true => match self.copy_by_peer(request, remote, local) {
                Ok(result) => return result,
                Err(request) => request,
            },
            false => request,
        };
        match way.route {
            Some(route) => self.copy_by_engine(route, request, local.is_lent()),
            None => self.copy_by_cpu(request),
        }
    }

    /// The local side, of which memory of the caller is taken.
    fn source(
        &self,
        way: &mut Way<'_>,
        direction: Direction,
        local: &LocalSide,
        remote: Range,
        options: TransferOptions,
    ) -> Result<Source> {
        let memory = match local {
            LocalSide::Windows(offset) => {
                let range = Range::new(*offset, remote.len());
                return range.map(Source::Windows).map_err(|_| ENXIO);
            }
            LocalSide::Memory(memory) => memory,
        };
        // Looked at first, so that what is pinned is no more than there are windows for.
        let (_, remote_need) = direction.needs();
        way.is_unreached = !are_reached(&self.cover_remote(remote, remote_need)?);
        self.leave_engine_if_slower(way, direction, remote.len());
        self.take_memory_for(way, memory, direction, options)
    }

    fn at_once<'a>(
        &'a self,
        direction: Direction,
        local: &'a LocalSide,
        remote: Range,
        options: TransferOptions,
    ) -> AtOnce<'a> {
        AtOnce {
            channel: &self.channel,
            windows: &self.windows,
            remote_windows: &self.remote_windows,
            marks: &self.marks,
            direction,
            local,
            remote,
            options,
        }
    }

    fn trace_submit(
        &self,
        request: &Request,
        local: &LocalSide,
        remote: i64,
        options: TransferOptions,
        by_engine: bool,
    ) {
        trace::rma_submit(|| trace::Transfer {
            node: self.channel.node(),
            channel: self.channel.id.0,
            number: request.operation.number,
            write: request.operation.direction == Direction::Write,
            engine: by_engine,
            local: local.offset().unwrap_or(-1),
            remote,
            len: request.operation.bytes,
            flags: options.flags() as u32,
        });
    }

    /// The peer's windows. If the connection has ended meanwhile, which takes them away, that is said.
    fn cover_remote(&self, range: Range, protection: u32) -> Result<Few<RemotePiece>> {
        let covered = self.remote_windows.cover_now(range, protection);
        covered.map_err(|error| self.channel.end_or(error))
    }

    /// Keeps the peer, and this end's use of it, from ending.
    pub(super) fn enter(&self) -> Result<Surroundings> {
        // While windows are in use the session, and with it the mappings, stays.
        let peer = self.channel.enter_owned().ok_or(ENODEV)?;
        // A peer that closes waits for the transfer's end.
        let channel = self
            .channel
            .begin_owned_use()
            .map_err(|error| self.channel.end_or(error))?;
        Ok(Surroundings {
            channel: Some(channel),
            peer,
        })
    }

    /// `is_lent` says that the local memory is only lent for the call, and not pinned.
    fn copy_by_engine(&self, route: &EngineRoute, request: Request, is_lent: bool) -> Result {
        let synchronous = request.synchronous;
        let started = Transfer::start(route, request);
        let transfer = started.inspect_err(|_| {
            if is_lent {
                // What was begun of it ends.
                self.marks.drain();
            }
        })?;
        if !synchronous {
            route.engine.arm();
            return Ok(());
        }
        route.engine.poll_until(|| transfer.result().is_some());
        self.wait_for(is_lent, || transfer.result())
    }

    fn copy_by_cpu(&self, request: Request) -> Result {
        let peer = self.channel.peer();
        let operation = &request.operation;
        let result = cpu_copy::copy(peer, operation.direction, &request.sides, request.parts);
        operation.end(result, true);
        result
    }

    /// Memory of the caller for a transfer. One that the peer makes may keep it for longer than the call
    /// takes; if the limit leaves no room for that, it goes another way.
    fn take_memory_for(
        &self,
        way: &mut Way<'_>,
        memory: &Buffer,
        direction: Direction,
        options: TransferOptions,
    ) -> Result<Source> {
        let writable = direction == Direction::Read;
        let is_lent_to_others = way.route.is_some() || way.is_unreached;
        let outlives = is_lent_to_others && !options.synchronous;
        let take = |account| self.take_memory(memory, writable, account, options.use_cache);
        match take(outlives || way.by_peer) {
            Err(EAGAIN) if way.by_peer && !outlives => {
                way.by_peer = false;
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
    ) -> Result<Source> {
        if use_cache {
            if let Some((piece, peer_use)) = self.cache.get(memory, writable) {
                return Ok(Source::Kept(piece, peer_use));
            }
        }
        let piece = LocalPiece::of_caller(memory, writable, account, &*self.caches)?;
        Ok(Source::Taken(piece))
    }

    /// Inside the peer: the local side, in use, and mapped for an engine that is to copy. As
    /// [`Self::cover_remote`] for windows.
    fn local_pieces(
        &self,
        source: Source,
        protection: u32,
        route: Option<&EngineRoute>,
    ) -> Result<Few<LocalPiece>> {
        let pieces = self.pieces_of(source, protection)?;
        if let Some(route) = route {
            for piece in pieces.iter() {
                piece.memory().map_for(route)?;
            }
        }
        Ok(pieces)
    }

    fn pieces_of(&self, source: Source, protection: u32) -> Result<Few<LocalPiece>> {
        match source {
            Source::Windows(range) => {
                let covered = self.windows.cover(range, protection);
                covered.map_err(|error| self.channel.end_or(error))
            }
            Source::Taken(piece) => Ok(Few::one(piece)),
            // Both uses of the peer are held for a moment, so that there is none without.
            Source::Kept(piece, peer_use) => {
                let pieces = Few::one(piece);
                drop(peer_use);
                Ok(pieces)
            }
        }
    }
}
