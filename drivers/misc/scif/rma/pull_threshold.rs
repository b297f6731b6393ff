// SPDX-License-Identifier: GPL-2.0

//! From which size on the peer's engine had better write what this end wants to read.
//!
//! A read across a bus waits for its answer; a write is on its way as soon as it was sent. How much that
//! makes depends on the machines. So it is measured, once for each peer, when there is the first
//! connection with it: how long this end's engine takes for a large read, and for a large write, which
//! stands for those of the peer's. If reads are not clearly slower, the peer is never asked. If they
//! are, it is from the size on at which the difference outweighs what asking takes.
//!
//! An administrator can say a size instead, at any time (`push_threshold`).

use super::trial;
use crate::{
    logic::{
        plan::Segment,
        pull_threshold::even_at, //
    },
    peer::{
        control::SCRATCH_SIZE,
        Peer, //
    },
    sys::{
        current,
        shared_memory::{
            Payer,
            SharedMemory, //
        },
        tunables, //
    },
    transport::engine::EngineRoute,
};
use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// Copies that make one that is large: all between the same places.
const COPIES: usize = 16;

/// How often it is measured: the best counts, the others were disturbed.
const TRIES: usize = 16;

/// What asking takes at most, in nanoseconds: two messages, each with a doorbell and a change of
/// threads. For who waits for nothing else, and for who has several under way.
const ASKING_ALONE: u64 = 200_000;
const ASKING_AMONG_SEVERAL: u64 = 100_000;

/// See the head of this file.
#[pin_data]
pub(super) struct PullThreshold {
    peer: Arc<Peer>,
    /// Sizes, in bytes, up to which the peer is not asked.
    alone: Atomic<u64>,
    several: Atomic<u64>,
    begun: Atomic<bool>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for PullThreshold { self.work }
}

impl WorkItem for PullThreshold {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // What it can't be measured for lacks an engine, memory or the peer.
        let _ = this.measure();
    }
}

/// What was said, if anything.
fn said() -> Option<u64> {
    u64::try_from(tunables::push_threshold()).ok()
}

impl PullThreshold {
    /// The peer is never asked, until it was measured. May sleep.
    pub(super) fn new(peer: &Arc<Peer>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                alone: Atomic::new(u64::MAX),
                several: Atomic::new(u64::MAX),
                begun: Atomic::new(false),
                work <- new_work!("PullThreshold::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Has it measured, unless it has been or need not be. Any context.
    pub(super) fn measure_soon(self: &Arc<Self>) {
        if said().is_some() || self.begun.load(Relaxed) {
            return;
        }
        if !self.begun.xchg(true, Full) {
            // It is enqueued once, so this can't fail.
            let _ = self.peer.queues().unhurried.enqueue(self.clone());
        }
    }

    /// Whether so many bytes are enough. Any context.
    pub(super) fn is_passed(&self, len: u64, waits: bool) -> bool {
        let limit = match waits {
            true => &self.alone,
            false => &self.several,
        };
        len > said().unwrap_or_else(|| limit.load(Relaxed))
    }

    fn measure(&self) -> Result {
        let route = {
            let _inside = self.peer.enter().ok_or(ENODEV)?;
            let path = self.peer.path();
            path.engine(path.choose_engine(0)).ok_or(ENODEV)?
        };
        let device = route.engine.device();
        let local = SharedMemory::new(SCRATCH_SIZE, Some(&device), Payer::Nobody)?;
        let local = Arc::new(local, GFP_KERNEL)?;
        let there = route.address(self.peer.scratch(), SCRATCH_SIZE as u64);
        let (here, there) = (local.bus_address(), there.ok_or(EFAULT)?);
        let (mut read, mut write) = (u64::MAX, u64::MAX);
        for _ in 0..TRIES {
            // By turns, so that what disturbs one disturbs the other.
            read = read.min(self.time(route, (here, there), &local)?);
            write = write.min(self.time(route, (there, here), &local)?);
            current::reschedule();
        }
        self.conclude(read, write);
        Ok(())
    }

    /// Copies from the second of two places to the first. In nanoseconds.
    fn time(
        &self,
        route: &EngineRoute,
        (destination, source): (u64, u64),
        local: &Arc<SharedMemory>,
    ) -> Result<u64> {
        let user = self.peer.enter_owned().ok_or(ENODEV)?;
        let segment = Segment {
            destination,
            source,
            len: SCRATCH_SIZE as u64,
        };
        trial::time(&route.engine, &[segment; COPIES], local, user)
    }

    fn conclude(&self, read: u64, write: u64) {
        let size = (SCRATCH_SIZE * COPIES) as u64;
        let even = |asking| even_at(size, (read, write), asking);
        let (Some(alone), Some(several)) = (even(ASKING_ALONE), even(ASKING_AMONG_SEVERAL)) else {
            return;
        };
        self.alone.store(alone, Relaxed);
        self.several.store(several, Relaxed);
        pr_info!(
            "node {}: its engine writes what is more than {} bytes read; {} when not waited for\n",
            self.peer.node(),
            alone,
            several
        );
    }
}
