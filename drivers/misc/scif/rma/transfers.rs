// SPDX-License-Identifier: GPL-2.0

//! Copies that one end of a channel starts.
//!
//! A copy looks up the windows on both sides and takes them into use. It then gets a number, on
//! which fences rest (`marks.rs`), and is made by the method that `transfer_policy.rs` has chosen.
//! The caller waits for it here.
//!
//! If `SCIF_RMA_ORDERED` is set, the bytes in the last cache line of the source are copied last, on
//! their own.

use super::{
    caches::Caches,
    deferred::MAX_DEFERRED,
    fence::Answer,
    marks::FenceState,
    operation::{
        are_reached,
        Caller,
        Operation,
        Sides,
        Surroundings, //
    },
    registration_cache::RegistrationCache,
    transfer_policy::{
        CopyMethod,
        TransferPolicy, //
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
            SmallList, //
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

/// The largest ratio of offered to needed bytes at which the caller's memory is offered to the peer
/// for one transfer. A cached registration can be much larger than the transfer.
const MOST_SPARE: u64 = 4;

/// Memory of the caller. If the peer was entered when the memory was taken, the use of the peer
/// goes with it. The two are dropped in this order.
type CallerMemory = (LocalPiece, Option<PeerUse>);

/// The transfers and fences of one end of a channel.
#[pin_data]
pub(crate) struct Transfers {
    pub(super) channel: Arc<Channel>,
    pub(super) windows: Arc<Windows>,
    pub(super) remote_windows: Arc<RemoteWindows>,
    pub(super) policy: Arc<TransferPolicy>,
    pub(crate) cache: Arc<RegistrationCache>,
    pub(crate) marks: Arc<FenceState>,
    /// Fence requests that the peer has not answered (`fence.rs`).
    #[pin]
    pub(super) questions: Questions<Reply<Answer>>,
    /// The highest transfer number of the peer that this end has received.
    #[pin]
    pub(super) peer_last: SpinLock<Sequence>,
}

/// A copy as the caller requests it.
pub(super) struct Request<'a> {
    pub(super) direction: Direction,
    pub(super) local: &'a LocalSide,
    pub(super) remote: Range,
    pub(super) options: TransferOptions,
}

impl Request<'_> {
    /// Returns where the local side begins. Only the low bits of the address are meaningful.
    pub(super) fn local_start(&self) -> u64 {
        match self.local {
            LocalSide::Windows(offset) => *offset as u64,
            LocalSide::Memory(memory) => memory.address() as u64,
        }
    }

    /// Returns how many bytes are copied first. The remaining bytes are copied last.
    fn body(&self) -> u64 {
        let len = self.remote.len();
        if !self.options.ordered {
            return len;
        }
        let visible_from = match self.direction {
            Direction::Read => self.remote.start(),
            // Windows are aligned to pages, as memory of the process is.
            Direction::Write => self.local_start(),
        };
        let (body, _) = plan::split_tail(visible_from, len);
        body
    }
}

impl Transfers {
    /// Creates the transfers of a channel from its windows on both sides.
    /// Context: may sleep.
    pub(crate) fn new(
        channel: &Arc<Channel>,
        windows: &Arc<Windows>,
        remote_windows: &Arc<RemoteWindows>,
        caches: &Arc<Caches>,
        policy: &Arc<TransferPolicy>,
    ) -> Result<impl PinInit<Self>> {
        let cache = RegistrationCache::new(channel.peer(), caches)?;
        let marks = FenceState::new(channel)?;
        let (channel, policy) = (channel.clone(), policy.clone());
        let (windows, remote_windows) = (windows.clone(), remote_windows.clone());
        Ok(pin_init!(Self {
            channel,
            windows,
            remote_windows,
            policy,
            cache,
            marks,
            questions <- Questions::new(MAX_DEFERRED, 0),
            peer_last <- new_spinlock!(Sequence::default(), "Transfers::peer_last"),
        }))
    }

    /// Returns whether a transfer was ever started or the cache was ever used.
    pub(crate) fn have_resources(&self) -> bool {
        self.marks.have_resources() || self.cache.was_used()
    }

    /// Waits until all transfers have completed and all actions deferred behind them are done. Also
    /// waits until the peer has released the memory that it was offered for transfers.
    ///
    /// The wait for this node's engines needs no limit, as an engine that stops is given up.
    /// `patience` limits the wait for the peer. A transfer that is still in flight then keeps its
    /// memory and completes on its own.
    /// Context: may sleep.
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

    /// Stops the callers that wait for the peer on behalf of this end. The end is closed, and its
    /// closer no longer waits.
    /// Context: any.
    pub(crate) fn give_up(&self) {
        self.policy.staging.look_again();
    }

    /// Copies `len` bytes between local memory at `local` and the peer's windows at `remote`.
    ///
    /// Memory that is not in a window is pinned for the transfer, or longer if the caller asked for
    /// the cache. If the transfer can outlive the call, the memory counts against RLIMIT_MEMLOCK,
    /// because a process can start any number of such transfers. The wait is killable.
    ///
    /// # Errors
    ///
    /// - EAGAIN: RLIMIT_MEMLOCK is reached.
    /// - ENXIO: a part of a range lies in no window. Nothing was copied.
    /// - EACCES: a window does not allow the access. Nothing was copied.
    /// - EIO: the copy failed.
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
        // Tries the short path first, because most copies are small ones by the CPU.
        let route = self.policy.route(&self.channel, &request);
        if route.is_none() && self.copy_at_once(&request).is_some() {
            return Ok(());
        }
        let mut method = self.policy.choose(&request, route, true);
        self.channel.check_reached()?;
        // Pins memory outside of the peer, because the process decides how long pinning takes.
        let taken = match local {
            LocalSide::Windows(_) => None,
            LocalSide::Memory(memory) => {
                // Looks up the windows first, so that no more memory is pinned than the windows
                // cover.
                if !are_reached(&self.cover_remote(&request)?) {
                    method = self.policy.choose(&request, route, false);
                }
                Some(self.take_memory_for(&mut method, memory, direction, options)?)
            }
        };
        self.copy_with(&request, route, method, taken)
    }

    /// Copies to or from the local memory that the caller has taken.
    fn copy_with<'a>(
        &'a self,
        request: &Request<'_>,
        route: Option<&'a EngineRoute>,
        mut method: CopyMethod<'a>,
        taken: Option<CallerMemory>,
    ) -> Result {
        let surroundings = Surroundings::of(&self.channel)?;
        // Looks up the windows only now. Pinning may have taken long, and a copy must not start
        // into a window that the peer believes to be unregistered.
        let pieces = self.cover_remote(request)?;
        if method.is_reached != are_reached(&pieces) {
            // Memory that was taken for the other method may not be accounted for as long as the
            // peer may keep it.
            let may_ask = method.is_reached;
            method = self.policy.choose(request, route, !method.is_reached);
            method.asks_peer &= may_ask;
        }
        let sides = Sides {
            remote: pieces,
            local: self.local_pieces(request, taken)?,
        };
        // Uses no engine if the chosen one does not reach this memory.
        method.route = method.route.filter(|route| sides.map_for(route).is_ok());
        let mut operation = Operation::new(
            request.direction,
            request.remote.len(),
            request.body(),
            request.options.synchronous,
            sides,
            surroundings,
        )?;
        operation.listener = Some(self.marks.clone());
        let is_left_to_peer = method.asks_peer || !method.is_reached;
        operation.is_left_to_peer = Atomic::new(is_left_to_peer);
        operation.number = self.marks.begin(is_left_to_peer)?.0;
        self.trace_submit(request, operation.number, method.route.is_some());
        self.carry_out(request, method, &operation.into())
    }

    /// Starts a copy, and waits for its completion if the caller has to. The wait is killable
    /// unless the local side is lent.
    fn carry_out(
        &self,
        request: &Request<'_>,
        mut method: CopyMethod<'_>,
        operation: &Arc<Operation>,
    ) -> Result {
        let is_lent = request.local.is_lent();
        let caller = if is_lent {
            Caller::Lender
        } else {
            Caller::Process
        };
        let mut offered = None;
        if method.asks_peer {
            match self.ask_peer(request, &method, operation) {
                Ok(window) => offered = window,
                Err(_) if method.is_reached => {
                    method.asks_peer = false;
                    operation.take_over();
                }
                Err(error) => return Err(operation.end_for(caller, self.channel.end_or(error))),
            }
        }
        if !method.asks_peer {
            let started = method.start(&self.policy.staging, operation, caller);
            started.inspect_err(|_| {
                let waiters = self.channel.waiters().ok().filter(|_| is_lent);
                if let Some(waiters) = waiters {
                    // Parts that were started are still in flight and use the lent memory.
                    let _ = waiters.wait_uninterruptible(|| operation.result());
                }
            })?;
        }
        // Lent memory must be unused when this returns, so the caller waits if an engine or the
        // peer stages the copy. A CPU that fills slots has already finished with the memory.
        let is_staged_by_others =
            !method.is_reached && (method.route.is_some() || method.asks_peer);
        let lends_on = is_lent && is_staged_by_others;
        if !operation.synchronous && !lends_on {
            return Ok(());
        }
        let waited = self.wait_for(operation, is_lent);
        if let Some(window) = offered.filter(|_| !method.is_reached) {
            self.take_back(window);
        }
        waited
    }

    /// Asks the peer to write what the caller wants to read. If the peer refuses, the engine of
    /// `method` reads. Returns the window that was offered to the peer for this copy, if any. On an
    /// error nothing was started. The wait is killable.
    fn ask_peer(
        &self,
        request: &Request<'_>,
        method: &CopyMethod<'_>,
        operation: &Arc<Operation>,
    ) -> Result<Option<WindowId>> {
        let must = !method.is_reached;
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
        let asked = self
            .policy
            .start_peer_read(&self.channel, operation, engine, message);
        asked.inspect_err(|_| {
            if let Some(window) = offered {
                // Withdraws the window first, as it can't be found by its id once it was taken
                // back.
                self.windows.withdraw_unlisted(window);
                if must {
                    self.take_back(window);
                }
            }
        })?;
        Ok(offered)
    }

    /// Offers memory of the caller to the peer. Returns the window and the offset of the memory in
    /// it. The wait is killable.
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

    /// Takes back a window that was offered for a read, regardless of what the peer does. The
    /// caller no longer waits for the read and may use the memory for something else next.
    fn take_back(&self, window: WindowId) {
        self.windows.take_back_unlisted(window);
        self.policy.staging.wait_for_deliveries();
    }

    /// Waits for a transfer and returns its result, with the error that the caller is to see. The
    /// wait is killable unless the memory is lent.
    fn wait_for(&self, operation: &Operation, is_lent: bool) -> Result {
        let result = if let Some(result) = operation.result() {
            result
        } else if is_lent {
            // The lender takes its memory back when this returns. The engine or the peer completes
            // the operation, or is declared lost.
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

    /// Returns the peer's windows. If the connection has ended meanwhile, which takes the windows
    /// away, returns the error for that.
    fn cover_remote(&self, request: &Request<'_>) -> Result<SmallList<RemotePiece>> {
        let (_, protection) = request.direction.needs();
        let covered = self.remote_windows.cover_now(request.remote, protection);
        covered.map_err(|error| self.channel.end_or(error))
    }

    /// Takes memory of the caller for a transfer. If the peer makes the copy, the peer may keep the
    /// memory for longer than the call takes. If RLIMIT_MEMLOCK leaves no room for that, this node
    /// makes the copy.
    fn take_memory_for(
        &self,
        method: &mut CopyMethod<'_>,
        memory: &Buffer,
        direction: Direction,
        options: TransferOptions,
    ) -> Result<CallerMemory> {
        let writable = direction == Direction::Read;
        let is_lent_to_others = method.route.is_some() || !method.is_reached;
        let outlives = is_lent_to_others && !options.synchronous;
        let may_be_asked = method.asks_peer && method.is_reached;
        let take = |account| self.take_memory(memory, writable, account, options.use_cache);
        match take(outlives || may_be_asked) {
            Err(EAGAIN) if may_be_asked && !outlives => {
                method.asks_peer = false;
                take(false)
            }
            taken => taken,
        }
    }

    /// Takes memory of the caller from the cache if `use_cache` is set, or pins it for this
    /// transfer.
    fn take_memory(
        &self,
        memory: &Buffer,
        writable: bool,
        account: bool,
        use_cache: bool,
    ) -> Result<CallerMemory> {
        if use_cache {
            if let Some((piece, peer_use)) = self.cache.get(memory, writable) {
                return Ok((piece, Some(peer_use)));
            }
        }
        let piece = LocalPiece::of_caller(memory, writable, account, &*self.cache.caches)?;
        Ok((piece, None))
    }

    /// Takes the local side into use. The caller is inside the peer. Errors are as those of
    /// [`Self::cover_remote`] for windows.
    fn local_pieces(
        &self,
        request: &Request<'_>,
        taken: Option<CallerMemory>,
    ) -> Result<SmallList<LocalPiece>> {
        // Releases this use of the peer only now, when the caller already has another one.
        if let Some((piece, _peer_use)) = taken {
            return Ok(SmallList::one(piece));
        }
        let (protection, _) = request.direction.needs();
        let range = Range::from_parts(request.local_start(), request.remote.len());
        let covered = self
            .windows
            .cover(range.map_err(|_| ENXIO)?, protection, paid_by_caller);
        covered.map_err(|error| self.channel.end_or(error))
    }
}
