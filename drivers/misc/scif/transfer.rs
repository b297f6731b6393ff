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
    connection::{
        Connection,
        Writing, //
    },
    engine::Engine,
    local_memory::LocalPiece,
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
    sys::dmaengine::{
        Batch,
        Completion,
        CopyCount, //
    },
    transport::Transport,
};
use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    time::Delta,
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// A segment is no longer than this, whatever the engine could do: others want their turn.
const MAX_SEGMENT: u64 = 1 << 20;

/// Each so many descriptors one reports its end at once: a full ring then empties by itself.
const INTERRUPT_EVERY: u32 = 16;

/// How long to sleep at most before looking at a full ring again.
const PATIENCE: Delta = Delta::from_millis(10);

const RUNNING: i32 = 1;

/// See the head of this file.
#[pin_data]
pub(crate) struct Transfer {
    pub(crate) sequence: Sequence,
    connection: Arc<Connection>,
    engine: Arc<Engine>,
    bytes: u64,
    copies: CopyCount,
    /// Whether the call reports the result, so that no fence does.
    reported: Atomic<bool>,
    /// The first error, or 0.
    error: Atomic<i32>,
    /// RUNNING, 0, or an errno (negative) once it has ended.
    result: Atomic<i32>,
    #[pin]
    work: Work<Self>,
    // Dropped in this order: the windows go before the peer's close is answered, and that before
    // the session may go.
    _local: KVVec<LocalPiece>,
    _remote: KVVec<RemotePiece>,
    _writing: Writing<Arc<Connection>>,
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
    fn copies(&self) -> &CopyCount {
        &self.copies
    }

    fn copy_ended(&self, result: Result) {
        self.engine.descriptor_ended(&result);
        if let Err(error) = result {
            self.failed(error);
        }
    }

    fn all_ended(self: Arc<Self>) {
        let errno = self.error.load(Relaxed);
        let result = match errno {
            0 => Ok(()),
            errno => Err(Error::from_errno(errno)),
        };
        if result.is_ok() {
            self.engine.bytes.add(self.bytes, Relaxed);
        }
        self.result.store(errno, Release);
        let report = match self.reported.load(Relaxed) {
            true => Ok(()),
            false => result,
        };
        self.connection.transfer_ended(self.sequence, &report);
        self.connection.wake();
        // What it holds is let go in process context. This is the last reference but for that of
        // a caller who waits, which is in process context, too.
        let fabric = self.connection.session.fabric.clone();
        // It is enqueued once, so this can't fail.
        let _ = fabric.completion_queue.enqueue(self);
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
    /// Hands a transfer to the engine. When this returns `Ok`, it ends by itself. On an error it
    /// has failed, and what was begun of it ends by itself, too; the caller reports the error, and
    /// no fence does. Killable while the engine's ring is full.
    #[expect(clippy::too_many_arguments)]
    pub(crate) fn start(
        connection: &Arc<Connection>,
        engine: &Arc<Engine>,
        direction: Direction,
        local: KVVec<LocalPiece>,
        remote: KVVec<RemotePiece>,
        parts: (u64, u64),
        sequence: Sequence,
        synchronous: bool,
        writing: Writing<Arc<Connection>>,
        session: TransportUse,
    ) -> Result<Arc<Self>> {
        let made = Arc::pin_init(
            pin_init!(Self {
                sequence,
                connection: connection.clone(),
                engine: engine.clone(),
                bytes: parts.0 + parts.1,
                copies: CopyCount::new(),
                reported: Atomic::new(synchronous),
                error: Atomic::new(0),
                result: Atomic::new(RUNNING),
                work <- new_work!("Transfer::work"),
                _local: local,
                _remote: remote,
                _writing: writing,
                _session: session,
            }),
            GFP_KERNEL,
        );
        let transfer = match made {
            Ok(transfer) => transfer,
            Err(error) => {
                connection.transfer_ended(sequence, &Ok(()));
                return Err(error);
            }
        };
        let batch = Batch::new(transfer.clone());
        let submitted = transfer.submit(&batch, direction, parts);
        if let Err(error) = submitted {
            transfer.reported.store(true, Relaxed);
            transfer.failed(error);
        }
        engine.channel.issue_pending();
        drop(batch);
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

    fn failed(&self, error: Error) {
        // The first error is the one that is reported.
        let _ = self.error.cmpxchg(0, error.to_errno(), Relaxed);
    }

    fn submit(
        &self,
        batch: &Batch<Self>,
        direction: Direction,
        (body, tail): (u64, u64),
    ) -> Result {
        let transport = &self.connection.session.transport;
        let mut submitter = Submitter {
            batch,
            held: None,
            count: 0,
        };
        let max_segment = (self.engine.channel.max_segment() as u64).min(MAX_SEGMENT);
        for (skip, len) in [(0, body), (body, tail)] {
            let result = for_each_stretch(&self._local, &self._remote, skip, len, |stretch| {
                let local = stretch.local.memory().engine.as_ref().ok_or(EIO)?;
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
            });
            if result.is_err() {
                submitter.finish();
                return result;
            }
        }
        submitter.finish();
        Ok(())
    }
}

/// Passes segments on to the engine, one behind, so that the last is known when it goes.
struct Submitter<'a> {
    batch: &'a Batch<Transfer>,
    held: Option<Segment>,
    count: u32,
}

impl Submitter<'_> {
    fn add_all<D: Walk, S: Walk>(&mut self, plan: Plan<D, S>) -> Result {
        for segment in plan {
            let segment = segment.map_err(|_| ENXIO)?;
            let Some(held) = self.held else {
                self.held = Some(segment);
                continue;
            };
            self.count += 1;
            // On an error the segment stays at hand, for `finish`.
            self.submit(held, self.count % INTERRUPT_EVERY == 0)?;
            self.held = Some(segment);
        }
        Ok(())
    }

    /// Submits the segment at hand as the last one: it reports its end, and with that those of all
    /// before it, also if the transfer as a whole has failed.
    fn finish(&mut self) {
        let Some(held) = self.held.take() else { return };
        while !self.try_submit(held, true) {
            self.make_room();
            // Bounded by the engine, whose ring empties.
            self.batch
                .engine
                .room
                .wait_uninterruptible_timeout(PATIENCE, || None::<()>);
        }
    }

    fn submit(&self, segment: Segment, interrupt: bool) -> Result {
        loop {
            if self.batch.connection.session.is_over() {
                return Err(ENODEV);
            }
            if self.try_submit(segment, interrupt) {
                return Ok(());
            }
            self.make_room();
            let submitted = self.batch.engine.room.wait_killable_timeout(PATIENCE, || {
                self.try_submit(segment, interrupt).then_some(())
            })?;
            if submitted.is_some() {
                return Ok(());
            }
        }
    }

    fn try_submit(&self, segment: Segment, interrupt: bool) -> bool {
        self.batch.engine.channel.submit(
            segment.destination,
            segment.source,
            segment.len as usize,
            interrupt,
            self.batch,
        )
    }

    /// The ring is full: has the engine begin, and those descriptors taken out that have ended
    /// without an interrupt.
    fn make_room(&self) {
        let channel = &self.batch.engine.channel;
        channel.issue_pending();
        channel.reap();
    }
}
