// SPDX-License-Identifier: GPL-2.0

//! Copies by an engine that are made to see how long they take.
//!
//! They go between memory of this module's own and a place at the peer that is there for that, a
//! [`TrialSite`]. While they run they keep both, and the peer. An engine that stops ends them with an error, as it does
//! transfers (`transfer.rs`).

use crate::{
    logic::{
        control_geometry::SCRATCH_SIZE,
        plan::Segment, //
    },
    peer::{
        Peer,
        PeerUse, //
    },
    sync::outcome::Outcome,
    sys::{
        busy_wait::now,
        dmaengine::{
            Batch,
            Channel,
            Completion,
            CopyCount,
            CopyFlags, //
        },
        shared_memory::{
            Payer,
            SharedMemory,
            User, //
        },
        wait::{
            new_wait_queue,
            WaitQueue, //
        },
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
        Arc, //
    },
    time::Delta, //
};

/// How long to wait for room in a full ring.
const RING_FULL_TIMEOUT: Delta = Delta::from_millis(10);

/// See the head of this file.
#[pin_data]
struct Trial {
    engine: Arc<Engine>,
    copies: CopyCount,
    outcome: Outcome,
    is_over: Atomic<bool>,
    #[pin]
    ended: WaitQueue,
    // Dropped in this order: the memory before what keeps the peer.
    _local: Arc<SharedMemory>,
    _peer: PeerUse,
}

impl Completion for Trial {
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
        let engine = self.engine.clone();
        engine.attend();
        self.outcome.end();
        self.ended.wake_all();
        engine.finish(self);
    }
}

impl Running for Trial {
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

/// EIO if the engine has stopped, EBUSY if others fill its ring all the time.
fn submit(batch: &Batch<Trial>, segments: &[Segment]) -> Result {
    let engine = &batch.engine;
    for segment in segments {
        let attempt = || match engine.submit(*segment, CopyFlags::NONE, batch) {
            Submission::Done => Some(Ok(())),
            // What is tried is as short as any engine takes.
            Submission::Full | Submission::TooLong => None,
            Submission::Stopped => Some(Err(EIO)),
        };
        let submitted = attempt().or_else(|| {
            engine.issue_pending();
            engine.reap();
            engine
                .room
                .wait_uninterruptible_timeout(RING_FULL_TIMEOUT, attempt)
        });
        submitted.ok_or(EBUSY)??;
    }
    Ok(())
}

/// See the head of this file.
pub(super) struct TrialSite<'a> {
    pub(super) peer: &'a Arc<Peer>,
    route: &'a EngineRoute,
    local: Arc<SharedMemory>,
}

impl<'a> TrialSite<'a> {
    /// With the first engine that works: ENODEV if there is none, or no peer any more. May sleep.
    pub(super) fn new(peer: &'a Arc<Peer>) -> Result<Self> {
        let route = {
            let _inside = peer.enter().ok_or(ENODEV)?;
            let path = peer.path();
            path.engine(path.choose_engine(0)).ok_or(ENODEV)?
        };
        let device = route.engine.device();
        let local = SharedMemory::new(SCRATCH_SIZE, User::Device(&device), Payer::Nobody)?;
        Ok(Self {
            peer,
            route,
            local: Arc::new(local, GFP_KERNEL)?,
        })
    }

    /// Where there are [`SCRATCH_SIZE`] bytes here, for the engine.
    pub(super) fn here(&self) -> u64 {
        self.local.bus_address()
    }

    /// What the engine calls an address of the peer. EFAULT if it does not reach all `len` bytes there.
    pub(super) fn address(&self, there: u64, len: usize) -> Result<u64> {
        self.route.address(there, len as u64).ok_or(EFAULT)
    }

    /// Where there are [`SCRATCH_SIZE`] bytes here, and there, for the engine.
    pub(super) fn places(&self) -> Result<(u64, u64)> {
        let there = self.peer.scratch(SCRATCH_SIZE).ok_or(ENODEV)?;
        Ok((self.here(), self.address(there, SCRATCH_SIZE)?))
    }

    /// Makes the copies of `segments`, all at once, and says how many nanoseconds that took, from the first
    /// thought to the wake-up. May sleep: until the engine has ended them, or is given up.
    pub(super) fn time(&self, segments: &[Segment]) -> Result<u64> {
        let peer = self.peer.enter_owned().ok_or(ENODEV)?;
        let engine = &self.route.engine;
        let arrival = self.route.arrival();
        let start = now();
        let trial = Arc::pin_init(
            pin_init!(Trial {
                engine: engine.clone(),
                copies: CopyCount::new(),
                outcome: Outcome::new(),
                is_over: Atomic::new(false),
                ended <- new_wait_queue!("scif::Trial::ended"),
                _local: self.local.clone(),
                _peer: peer,
            }),
            GFP_KERNEL,
        )?;
        let place = Place::new()?;
        let batch = Batch::new(trial.clone());
        // As any transfer: see `EngineRoute::arrival`.
        let submitted = submit(&batch, segments).and_then(|()| submit(&batch, &[arrival]));
        engine.issue_pending();
        drop(batch);
        engine.add_running(place, trial.clone());
        engine.note_quiet();
        let ended = || trial.outcome.result();
        engine.hurry(|| ended().is_some());
        let result = trial.ended.wait_uninterruptible(ended);
        let took = u64::try_from(start.elapsed().as_nanos())?;
        drop(trial);
        engine.release_ended();
        submitted.and(result).map(|()| took)
    }
}
