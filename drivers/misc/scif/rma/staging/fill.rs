// SPDX-License-Identifier: GPL-2.0

//! A slot that an engine fills: the data, and behind it the header.
//!
//! Both go by the same engine, one after the other, so the header does not overtake what it speaks of. The
//! engine says when it is done, and then the peer is rung. If it can't, the slot becomes void, and the transfer
//! fails.
//!
//! While it goes on it keeps the memory and the peer in use. An engine that stops ends it with an error.

use super::staged::Staged;
use crate::{
    logic::{
        plan::{
            Linear,
            Plan,
            Segment,
            Walk, //
        },
        staging::{
            Header,
            HEADER, //
        },
    },
    memory::local::LocalPiece,
    peer::PeerUse,
    sync::outcome::Outcome,
    sys::{
        dmaengine::{
            Batch,
            Channel,
            Completion,
            CopyCount, //
        },
        shared_memory::{
            Payer,
            SharedMemory,
            User, //
        }, //
    },
    transport::engine::{
        Engine,
        EngineRoute,
        Place,
        Running,
        Submission, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow, //
    },
    time::Delta,
};

/// How long to sleep at most before looking at a full ring again.
const RING_FULL_TIMEOUT: Delta = Delta::from_millis(10);

/// Whose slots are filled.
pub(super) trait Slots: Send + Sync {
    /// One was filled. Soft interrupt context, or any other but hard interrupts.
    fn filled(self: ArcBorrow<'_, Self>, sequence: u64);

    /// One could not be filled. Likewise.
    fn unfilled(self: ArcBorrow<'_, Self>, sequence: u64);
}

/// See the head of this file.
pub(super) struct Fill {
    slots: Arc<dyn Slots>,
    staged: Arc<Staged>,
    sequence: u64,
    engine: Arc<Engine>,
    copies: CopyCount,
    outcome: Outcome,
    is_over: Atomic<bool>,
    bytes: u64,
    // Dropped in this order: the memory before what keeps the peer.
    from: LocalPiece,
    _header: SharedMemory,
    peer: PeerUse,
}

impl Completion for Fill {
    fn copies(&self) -> &CopyCount {
        &self.copies
    }

    fn copy_ended(&self, result: Result) {
        self.engine.descriptor_ended(&result);
        if let Err(error) = result {
            self.outcome.fail(error);
        }
    }

    fn all_ended(self: Arc<Self>) {
        match self.outcome.so_far() {
            Ok(()) => {
                self.engine.bytes.add(self.bytes, Relaxed);
                self.slots.as_arc_borrow().filled(self.sequence);
            }
            Err(_) => {
                self.staged.fail(EIO);
                self.slots.as_arc_borrow().unfilled(self.sequence);
            }
        }
        // What it holds is let go in process context.
        self.engine.attend();
        self.outcome.end();
        let engine = self.engine.clone();
        engine.finish(self);
    }
}

impl Running for Fill {
    fn note_ended(&self) {
        self.is_over.store(true, Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    fn abandon(self: Arc<Self>, channel: &Channel) {
        // An error can't be: the channel is the one it was submitted to, and is stopped.
        let _ = channel.abandon(&self);
    }
}

/// What is put into a slot, and where that is, in bus addresses of the peer.
pub(super) struct Contents {
    pub(super) header: Header,
    pub(super) header_at: u64,
    /// All of which lies in memory that is mapped for the engine.
    pub(super) data: LocalPiece,
    pub(super) data_at: u64,
    /// Whose memory that is.
    pub(super) peer: PeerUse,
}

impl Fill {
    /// Has the engine fill a slot, which then goes on by itself: this returns an error only if nothing was
    /// begun. May sleep.
    pub(super) fn start(
        slots: Arc<dyn Slots>,
        staged: &Arc<Staged>,
        route: &EngineRoute,
        contents: Contents,
    ) -> Result {
        let Contents {
            header,
            header_at,
            data,
            data_at,
            peer,
        } = contents;
        let engine = &route.engine;
        let memory = SharedMemory::new(HEADER, User::Device(&engine.device()), Payer::Nobody)?;
        memory.write(0, &header.encode())?;
        let header_from = memory.bus_address();
        let fill = Self {
            slots,
            staged: staged.clone(),
            sequence: header.sequence,
            engine: engine.clone(),
            copies: CopyCount::new(),
            outcome: Outcome::new(),
            is_over: Atomic::new(false),
            bytes: data.len,
            from: data,
            _header: memory,
            peer,
        };
        let last = Segment {
            destination: route.address(header_at, HEADER as u64).ok_or(EFAULT)?,
            source: header_from,
            len: HEADER as u64,
        };
        let data_at = route.address(data_at, fill.bytes).ok_or(EFAULT)?;
        let fill = Arc::new(fill, GFP_KERNEL)?;
        let place = Place::new()?;
        let batch = Batch::new(fill.clone());
        let submitted = fill.submit(&batch, data_at, last);
        if let Err(error) = submitted {
            fill.outcome.fail(error);
        }
        engine.issue_pending();
        drop(batch);
        engine.add_running(place, fill);
        if submitted.is_err() {
            // What was begun of it does not say that it has ended.
            engine.note_quiet();
        }
        Ok(())
    }

    fn submit(&self, batch: &Batch<Self>, data_at: u64, last: Segment) -> Result {
        let from = self.from.memory().engine_addresses().ok_or(EIO)?;
        let from = from.walk(self.from.offset);
        let to = Linear::new(data_at, self.bytes).ok_or(EFAULT)?;
        self.submit_data(
            batch,
            Plan::new(to, from, self.bytes, self.engine.longest_segment()),
        )?;
        self.submit_one(batch, last, true)
    }

    fn submit_data<D: Walk, S: Walk>(&self, batch: &Batch<Self>, plan: Plan<D, S>) -> Result {
        for segment in plan {
            let mut left = Some(segment.map_err(|_| ENXIO)?);
            while let Some(segment) = left {
                let (piece, rest) = segment.split(self.engine.longest_segment());
                match self.submit_one(batch, piece, false) {
                    // It takes less from now on.
                    Err(EAGAIN) => continue,
                    submitted => submitted?,
                }
                left = rest;
            }
        }
        Ok(())
    }

    /// EIO if the engine has stopped, EAGAIN if it is to be offered less, ENODEV if the peer is lost.
    fn submit_one(&self, batch: &Batch<Self>, segment: Segment, interrupt: bool) -> Result {
        let engine = &self.engine;
        let attempt = || match engine.submit(segment, interrupt, batch) {
            Submission::Done => Some(Ok(())),
            Submission::TooLong => Some(Err(EAGAIN)),
            Submission::Stopped => Some(Err(EIO)),
            Submission::Full => None,
        };
        loop {
            if self.peer.is_over() {
                return Err(ENODEV);
            }
            let submitted = attempt().or_else(|| {
                engine.issue_pending();
                engine.reap();
                engine
                    .room
                    .wait_uninterruptible_timeout(RING_FULL_TIMEOUT, attempt)
            });
            if let Some(result) = submitted {
                return result;
            }
        }
    }
}
