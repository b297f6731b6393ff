// SPDX-License-Identifier: GPL-2.0

//! A transfer by DMA engine: from its first descriptor to the release of what it used.
//!
//! The transfer is split into segments that are contiguous on both sides; each is one descriptor.
//! Whoever ends the last of them, the submitter or the engine's completion, finishes the transfer:
//! the result goes to the connection, waiters are woken, and a work item lets go of the windows,
//! which may sleep and the completion must not.
//!
//! While it runs, a transfer keeps the session's transport in use: a peer that is lost is torn down
//! after its transfers.

use crate::{
    connection::Connection,
    engine::Engine,
    logic::{
        marks::Sequence,
        plan::{
            Plan,
            Segment,
            Walk, //
        },
    },
    remote_window::RemotePiece,
    rma::{
        for_each_stretch,
        Direction, //
    },
    session::TransportUse,
    sys::dmaengine::Completion,
    transport::Transport,
    window::LocalPiece,
};
use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// A segment is no longer than this, whatever the engine could do: others want their turn.
const MAX_SEGMENT: u64 = 1 << 20;

/// Each so many descriptors one reports its end at once: a full ring then empties by itself.
const INTERRUPT_EVERY: u32 = 16;

const RUNNING: i32 = 1;

/// See the head of this file.
#[pin_data]
pub(crate) struct Transfer {
    pub(crate) sequence: Sequence,
    connection: Arc<Connection>,
    engine: Arc<Engine>,
    bytes: u64,
    /// Segments that have not ended, and one for the submitter.
    outstanding: Atomic<u32>,
    /// The first error, or 0.
    error: Atomic<i32>,
    /// RUNNING, 0, or an errno (negative) once it has ended.
    result: Atomic<i32>,
    #[pin]
    work: Work<Self>,
    // Dropped in this order: the windows go before the session may.
    _local: KVec<LocalPiece>,
    _remote: KVec<RemotePiece>,
    _session: TransportUse,
}

impl_has_work! {
    impl HasWork<Self> for Transfer { self.work }
}

impl WorkItem for Transfer {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // In process context, where dropping what it holds may sleep.
        drop(this);
    }
}

impl Completion for Transfer {
    fn segment_done(self: Arc<Self>, result: Result) {
        self.engine.descriptor_ended(&result);
        if let Err(error) = result {
            let _ = self.error.cmpxchg(0, error.to_errno(), Relaxed);
        }
        self.part_done();
    }
}

/// A walk over a peer's memory that gives the engine's addresses.
struct EngineWalk<'a, W> {
    bus: W,
    transport: &'a Transport,
}

impl<W: Walk> Walk for EngineWalk<'_, W> {
    fn next(&mut self, limit: u64) -> Option<(u64, u64)> {
        let (address, len) = self.bus.next(limit)?;
        Some((self.transport.engine_address(address, len)?, len))
    }
}

impl Transfer {
    /// Hands a transfer to the engine. When this returns `Ok`, it ends by itself; on an error it
    /// has been accounted for as failed, and has ended. Killable while the engine's ring is full.
    pub(crate) fn start(
        connection: &Arc<Connection>,
        engine: &Arc<Engine>,
        direction: Direction,
        local: KVec<LocalPiece>,
        remote: KVec<RemotePiece>,
        parts: (u64, u64),
        sequence: Sequence,
    ) -> Result<Arc<Self>> {
        let made = connection
            .session
            .enter_owned()
            .ok_or(ENODEV)
            .and_then(|session| {
                Arc::pin_init(
                    pin_init!(Self {
                        sequence,
                        connection: connection.clone(),
                        engine: engine.clone(),
                        bytes: parts.0 + parts.1,
                        outstanding: Atomic::new(1),
                        error: Atomic::new(0),
                        result: Atomic::new(RUNNING),
                        work <- new_work!("Transfer::work"),
                        _local: local,
                        _remote: remote,
                        _session: session,
                    }),
                    GFP_KERNEL,
                )
            });
        let transfer = match made {
            Ok(transfer) => transfer,
            Err(error) => {
                connection.transfer_ended(sequence, &Err(error));
                let _ = connection.transfers.take_failure(sequence);
                return Err(error);
            }
        };
        let submitted = transfer.submit(direction, parts);
        if let Err(error) = submitted {
            // What was submitted still ends; the transfer has failed as a whole.
            let _ = transfer.error.cmpxchg(0, error.to_errno(), Relaxed);
        }
        engine.channel.issue_pending();
        transfer.clone().part_done();
        submitted.map(|()| transfer)
    }

    /// None while it runs. Any context.
    pub(crate) fn result(&self) -> Option<Result> {
        match self.result.load(Acquire) {
            RUNNING => None,
            0 => Some(Ok(())),
            errno => Some(Err(Error::from_errno(errno))),
        }
    }

    /// One segment has ended, or the submitter is done.
    fn part_done(self: Arc<Self>) {
        if self.outstanding.fetch_sub(1, Full) != 1 {
            return;
        }
        let errno = self.error.load(Relaxed);
        let result = match errno {
            0 => Ok(()),
            errno => Err(Error::from_errno(errno)),
        };
        if result.is_ok() {
            self.engine.bytes.add(self.bytes, Relaxed);
        }
        self.result.store(errno, Release);
        self.connection.transfer_ended(self.sequence, &result);
        self.connection.wake();
        let fabric = self.connection.session.fabric.clone();
        // It is enqueued once, so this can't fail.
        let _ = fabric.completion_queue.enqueue(self);
    }

    fn submit(self: &Arc<Self>, direction: Direction, (body, tail): (u64, u64)) -> Result {
        let transport = &self.connection.session.transport;
        let mut submitter = Submitter {
            transfer: self,
            held: None,
            count: 0,
        };
        let max_segment = (self.engine.channel.max_segment() as u64).min(MAX_SEGMENT);
        for (skip, len) in [(0, body), (body, tail)] {
            for_each_stretch(&self._local, &self._remote, skip, len, |stretch| {
                let local = &stretch.local.window.window;
                let local = local.engine.as_ref().ok_or(EIO)?;
                let local = local.walk(stretch.local_offset);
                let remote = EngineWalk {
                    bus: stretch.remote.window.extents.walk(stretch.remote_offset),
                    transport,
                };
                match direction {
                    Direction::Read => {
                        submitter.add_all(Plan::new(local, remote, stretch.len, max_segment))
                    }
                    Direction::Write => {
                        submitter.add_all(Plan::new(remote, local, stretch.len, max_segment))
                    }
                }
            })?;
        }
        submitter.finish()
    }
}

/// Passes segments on to the engine, one behind, so that the last is known when it goes.
struct Submitter<'a> {
    transfer: &'a Arc<Transfer>,
    held: Option<Segment>,
    count: u32,
}

impl Submitter<'_> {
    fn add_all<D: Walk, S: Walk>(&mut self, plan: Plan<D, S>) -> Result {
        for segment in plan {
            let segment = segment.map_err(|_| ENXIO)?;
            if let Some(held) = self.held.replace(segment) {
                self.count += 1;
                self.submit(held, self.count % INTERRUPT_EVERY == 0)?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result {
        match self.held.take() {
            Some(held) => self.submit(held, true),
            None => Ok(()),
        }
    }

    fn submit(&self, segment: Segment, interrupt: bool) -> Result {
        let engine = &self.transfer.engine;
        let try_submit = || {
            self.transfer.outstanding.add(1, Relaxed);
            let result = engine.channel.submit(
                segment.destination,
                segment.source,
                segment.len as usize,
                interrupt,
                self.transfer.clone(),
            );
            if result.is_err() {
                // The submitter's own part keeps this from being the last.
                self.transfer.outstanding.fetch_sub(1, Relaxed);
            }
            result.is_ok()
        };
        if try_submit() {
            return Ok(());
        }
        // The ring is full. It empties, because descriptors in it report their end.
        engine.channel.issue_pending();
        engine.room.wait_killable(|| try_submit().then_some(()))
    }
}
