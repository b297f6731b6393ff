// SPDX-License-Identifier: GPL-2.0

//! One-sided transfers between a local and a remote window.
//!
//! plan -> engine -> completion: the windows on both sides are looked up and taken into use, the
//! transfer gets a sequence number of its connection (on which fences rest), and the bytes go by DMA
//! engine or by CPU. A transfer by CPU is over when the call returns; one by engine ends in
//! `transfer.rs`.
//!
//! Which way: `SCIF_RMA_USECPU`, or no engine, means CPU. Otherwise the engine, except for writes
//! so small that a descriptor and its interrupt cost more than the stores.
//!
//! `SCIF_RMA_ORDERED`: the part in the last cache line of the source goes last, by itself.
//!
//! Lock: `state` is a leaf and taken in soft interrupts.

use crate::{
    connection::Connection,
    local_memory::{
        LocalPiece,
        PinnedPiece, //
    },
    logic::{
        address_space::Range,
        marks::{
            MarkTracker,
            Sequence, //
        },
        plan::{
            self,
            Walk, //
        },
    },
    remote_window::RemotePiece,
    session::TransportUse,
    transfer::Transfer,
    window::{
        PROTECTION_READ,
        PROTECTION_WRITE, //
    },
};
use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        SpinLockIrq, //
    },
    time::Delta,
};

/// Writes up to this many bytes go by CPU unless the caller insists on nothing.
const SMALL_WRITE: u64 = 1024;

/// A CPU copy looks at the state of the session and at signals each time it has moved this much.
const CPU_STEP: u64 = 256 * 1024;

/// How long a failed transfer waits for the news that the peer is gone.
const NOTICE: Delta = Delta::from_millis(200);

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the peer's window into ours.
    Read,
    /// From our window into the peer's.
    Write,
}

/// The local side of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LocalSide {
    /// Windows, from this offset on.
    Windows(i64),
    /// Memory of the calling process, from this address on.
    Memory(usize),
}

/// How the caller wants a transfer done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferOptions {
    /// By CPU, not by engine.
    pub(crate) use_cpu: bool,
    /// Keep the pages of memory that is no window for later transfers.
    pub(crate) use_cache: bool,
    /// Complete on return.
    pub(crate) synchronous: bool,
    /// The last cache line of the source becomes visible last.
    pub(crate) ordered: bool,
}

/// The transfers that failed and were not reported yet: all there is to say of them is between
/// which numbers they lie.
#[derive(Clone, Copy, Default)]
struct Failures {
    range: Option<(Sequence, Sequence)>,
}

impl Failures {
    fn add(&mut self, sequence: Sequence) {
        let (first, last) = self.range.unwrap_or((sequence, sequence));
        self.range = Some((first.min(sequence), last.max(sequence)));
    }

    /// Whether one up to `sequence` has failed.
    fn contains(&self, sequence: Sequence) -> bool {
        matches!(self.range, Some((first, _)) if first <= sequence)
    }

    /// Says whether one up to `sequence` has failed, and forgets those.
    fn take(&mut self, sequence: Sequence) -> bool {
        match self.range {
            Some((first, last)) if first <= sequence => {
                self.range =
                    (last > sequence).then_some((Sequence(sequence.0.saturating_add(1)), last));
                true
            }
            _ => false,
        }
    }
}

struct State {
    tracker: MarkTracker,
    /// What our fences have not reported.
    failed: Failures,
    /// What the peer's fences for our transfers have not reported.
    failed_for_peer: Failures,
}

/// The transfers that one end of a connection has started.
#[pin_data]
pub(crate) struct Transfers {
    #[pin]
    state: SpinLockIrq<State>,
}

impl Transfers {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_spinlock_irq!(
                State {
                    tracker: MarkTracker::new(),
                    failed: Failures::default(),
                    failed_for_peer: Failures::default(),
                },
                "Transfers::state"
            ),
        })
    }

    /// The transfer that was started last. Any context.
    pub(crate) fn last_issued(&self) -> Sequence {
        self.state.lock().tracker.last_issued()
    }

    /// Whether this transfer and all before it have ended. Any context.
    pub(crate) fn is_complete(&self, sequence: Sequence) -> bool {
        self.state.lock().tracker.is_complete(sequence)
    }

    /// EIO, once, if a transfer up to this one has failed.
    pub(crate) fn take_failure(&self, sequence: Sequence) -> Result {
        match self.state.lock().failed.take(sequence) {
            true => Err(EIO),
            false => Ok(()),
        }
    }

    /// Whether a transfer up to this one has failed and was not reported. Any context.
    pub(crate) fn has_failed(&self, sequence: Sequence) -> bool {
        self.state.lock().failed.contains(sequence)
    }

    /// As [`Self::take_failure`], for the peer's fences.
    pub(crate) fn take_failure_for_peer(&self, sequence: Sequence) -> Result {
        match self.state.lock().failed_for_peer.take(sequence) {
            true => Err(EIO),
            false => Ok(()),
        }
    }
}

/// A stretch of a transfer that lies in one window on each side.
pub(crate) struct Stretch<'a> {
    pub(crate) local: &'a LocalPiece,
    pub(crate) local_offset: u64,
    pub(crate) remote: &'a RemotePiece,
    pub(crate) remote_offset: u64,
    pub(crate) len: u64,
}

/// Calls `f` with each stretch of `skip..skip + len` of a transfer, in order.
pub(crate) fn for_each_stretch<'a>(
    local: &'a [LocalPiece],
    remote: &'a [RemotePiece],
    skip: u64,
    len: u64,
    mut f: impl FnMut(Stretch<'a>) -> Result,
) -> Result {
    let (mut locals, mut remotes) = (local.iter(), remote.iter());
    let (mut local, mut remote) = (locals.next(), remotes.next());
    // Where in the current pieces we are, and in the transfer.
    let (mut local_at, mut remote_at, mut at) = (0, 0, 0);
    let end = skip + len;
    while at < end {
        let (Some(l), Some(r)) = (local, remote) else {
            return Err(ENXIO);
        };
        let step = (l.len - local_at).min(r.len - remote_at).min(end - at);
        // What lies before `skip` is passed over.
        let unwanted = skip.saturating_sub(at).min(step);
        if unwanted < step {
            f(Stretch {
                local: l,
                local_offset: l.offset + local_at + unwanted,
                remote: r,
                remote_offset: r.offset + remote_at + unwanted,
                len: step - unwanted,
            })?;
        }
        at += step;
        local_at += step;
        remote_at += step;
        if local_at == l.len {
            (local, local_at) = (locals.next(), 0);
        }
        if remote_at == r.len {
            (remote, remote_at) = (remotes.next(), 0);
        }
    }
    Ok(())
}

/// Where the local side of a transfer comes from.
enum Source {
    Windows(Range),
    Pinned(PinnedPiece),
    // Dropped in this order.
    Kept(LocalPiece, TransportUse),
}

fn one_piece(piece: LocalPiece) -> Result<KVVec<LocalPiece>> {
    let mut pieces = KVVec::with_capacity(1, GFP_KERNEL)?;
    let _ = pieces.push_within_capacity(piece);
    Ok(pieces)
}

impl Connection {
    /// Copies `len` bytes between our memory at `local` and the peer's windows at `remote`.
    ///
    /// Memory that is no window is pinned for the transfer, or longer if the caller wants it to be
    /// kept. It counts against RLIMIT_MEMLOCK (EAGAIN) if the transfer can outlive the call, as any
    /// number of those can be started.
    /// ENXIO where there is no window, EACCES where one does not allow it; then nothing was copied.
    /// EIO if the copy failed. Killable.
    pub(crate) fn transfer(
        self: &Arc<Self>,
        direction: Direction,
        local: LocalSide,
        remote: i64,
        len: u64,
        options: TransferOptions,
    ) -> Result {
        self.check_established()?;
        let remote_range = Range::new(remote, len).map_err(|_| ENXIO)?;
        let (local_need, remote_need) = match direction {
            Direction::Read => (PROTECTION_WRITE, PROTECTION_READ),
            Direction::Write => (PROTECTION_READ, PROTECTION_WRITE),
        };
        // Where extents begin and end, pages do: only the ends of the transfer can be misaligned.
        let local_start = match local {
            LocalSide::Windows(offset) => offset as u64,
            LocalSide::Memory(address) => address as u64,
        };
        let engine = self.session.transport.engine().filter(|engine| {
            !options.use_cpu
                && (direction == Direction::Read || len > SMALL_WRITE)
                && engine
                    .channel
                    .is_aligned(remote_range.start(), local_start, len as usize)
        });
        // Outside of the session: how long pinning takes, is up to the process.
        let source_memory = match local {
            LocalSide::Windows(offset) => {
                let range = Range::new(offset, len).map_err(|_| ENXIO)?;
                Source::Windows(range)
            }
            LocalSide::Memory(address) => {
                // Looked at first, so that what is pinned is no more than there are windows for.
                drop(self.remote_windows.cover(remote_range, remote_need)?);
                let writable = direction == Direction::Read;
                let account = engine.is_some() && !options.synchronous;
                let cached = match options.use_cache {
                    true => self.registrations.get(address, len, writable),
                    false => None,
                };
                match cached {
                    Some((piece, session)) => Source::Kept(piece, session),
                    None => Source::Pinned(PinnedPiece::new(
                        &self.session.fabric,
                        address,
                        len,
                        writable,
                        account,
                    )?),
                }
            }
        };
        // While windows are in use the session, and with it the mappings, stays.
        let session_use = self.session.enter_owned().ok_or(ENODEV)?;
        // A peer that closes waits for the transfer's end.
        let writing = self
            .begin_writing_owned()
            .map_err(|error| self.check_established().err().unwrap_or(error))?;
        // Looked up now: who pins for long must not begin what the peer thinks is over.
        let remote_pieces = self.remote_windows.cover(remote_range, remote_need)?;
        let local_pieces = match source_memory {
            Source::Windows(range) => self.windows.cover(self, range, local_need)?,
            Source::Pinned(pinned) => one_piece(pinned.map(&self.session)?)?,
            // Both uses of the session are held for a moment, so that there is none without.
            Source::Kept(piece, session) => {
                let pieces = one_piece(piece)?;
                drop(session);
                pieces
            }
        };
        let source = match direction {
            Direction::Read => remote_range.start(),
            // Windows and memory of the process are aligned to pages alike.
            Direction::Write => local_start,
        };
        let parts = match options.ordered {
            true => plan::split_tail(source, len),
            false => (len, 0),
        };
        let sequence = self.begin_transfer()?;
        let Some(engine) = engine else {
            let result = self.copy_by_cpu(direction, &local_pieces, &remote_pieces, parts);
            // The call reports the result, so no fence has to.
            self.transfer_ended(sequence, &Ok(()));
            // Before the session may end.
            drop((local_pieces, remote_pieces));
            drop(writing);
            drop(session_use);
            return result;
        };
        let transfer = Transfer::start(
            self,
            engine,
            direction,
            local_pieces,
            remote_pieces,
            parts,
            sequence,
            options.synchronous,
            writing,
            session_use,
        )?;
        match options.synchronous {
            true => self.wait_for_transfer(&transfer),
            false => Ok(()),
        }
    }

    /// Takes a sequence number; waits while too many transfers are under way. Killable.
    fn begin_transfer(&self) -> Result<Sequence> {
        let begin = || self.transfers.state.lock().tracker.begin();
        match begin() {
            Some(sequence) => Ok(sequence),
            None => self.waiters()?.wait_killable(begin),
        }
    }

    /// A transfer has ended. Soft interrupt context, or any other but hard interrupts.
    pub(crate) fn transfer_ended(self: &Arc<Self>, sequence: Sequence, result: &Result) {
        let moved = {
            let mut state = self.transfers.state.lock();
            if result.is_err() {
                state.failed.add(sequence);
                state.failed_for_peer.add(sequence);
            }
            state.tracker.complete(sequence)
        };
        if moved {
            self.wake();
            self.schedule_deferred();
        }
    }

    fn wait_for_transfer(&self, transfer: &Transfer) -> Result {
        self.waiters()?
            .wait_killable(|| transfer.result())?
            .map_err(|error| self.transfer_error(error))
    }

    /// What a failed transfer means: an engine that can't reach the peer may notice that it is gone
    /// before anybody else does. Waits a moment for others to notice; killable.
    pub(crate) fn transfer_error(&self, error: Error) -> Error {
        let Ok(waiters) = self.waiters() else {
            return error;
        };
        match waiters.wait_killable_timeout(NOTICE, || self.check_established().err()) {
            Ok(Some(gone)) => gone,
            _ => error,
        }
    }

    /// Waits until all transfers of this end are over, which is bounded by the engine.
    pub(crate) fn drain_transfers(&self) {
        let last = self.transfers.last_issued();
        if let Ok(waiters) = self.waiters() {
            waiters.wait_uninterruptible(|| self.transfers.is_complete(last).then_some(()));
        }
    }

    fn copy_by_cpu(
        &self,
        direction: Direction,
        local: &[LocalPiece],
        remote: &[RemotePiece],
        (body, tail): (u64, u64),
    ) -> Result {
        let transport = &self.session.transport;
        for (skip, len) in [(0, body), (body, tail)] {
            for_each_stretch(local, remote, skip, len, |stretch| {
                let pages = &stretch.local.memory().pages;
                let mut walk = stretch.remote.window.extents.walk(stretch.remote_offset);
                let mut offset = stretch.local_offset;
                let end = offset + stretch.len;
                while offset < end {
                    let limit = (end - offset).min(CPU_STEP);
                    let (address, len) = walk.next(limit).ok_or(ENXIO)?;
                    if self.session.is_over() {
                        return Err(ENODEV);
                    }
                    match direction {
                        Direction::Write => {
                            transport.write_pages(address, pages, offset as usize, len as usize)?
                        }
                        Direction::Read => {
                            transport.read_pages(address, pages, offset as usize, len as usize)?
                        }
                    }
                    offset += len;
                    if crate::sys::current::is_being_killed() {
                        return Err(EINTR);
                    }
                    crate::sys::current::reschedule();
                }
                Ok(())
            })?;
            // The tail comes after the body, and what follows the call after both.
            transport.flush();
        }
        Ok(())
    }
}
