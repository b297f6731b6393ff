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

use super::trial::TrialSite;
use crate::{
    logic::{
        control_geometry::SCRATCH_SIZE,
        plan::Segment,
        pull_threshold::even_at, //
    },
    sync::once::Once,
    sys::{
        current,
        tunables, //
    },
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
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
pub(super) struct PullThreshold {
    /// Sizes, in bytes, up to which the peer is not asked.
    alone: Atomic<u64>,
    several: Atomic<u64>,
    pub(super) measured: Once,
}

/// What was said, if anything. Any context.
pub(super) fn said() -> Option<u64> {
    u64::try_from(tunables::push_threshold()).ok()
}

/// Makes a large copy out of as many between the same places, from the second to the first. In nanoseconds.
fn time(site: &TrialSite<'_>, (destination, source): (u64, u64)) -> Result<u64> {
    let segment = Segment {
        destination,
        source,
        len: SCRATCH_SIZE as u64,
    };
    site.time(&[segment; COPIES])
}

impl PullThreshold {
    /// The peer is never asked, until it was measured.
    pub(super) fn new() -> Self {
        Self {
            alone: Atomic::new(u64::MAX),
            several: Atomic::new(u64::MAX),
            measured: Once::new(),
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

    /// May sleep.
    pub(super) fn measure(&self, site: &TrialSite<'_>) -> Result {
        let (here, there) = site.places()?;
        let (mut read, mut write) = (u64::MAX, u64::MAX);
        for _ in 0..TRIES {
            // By turns, so that what disturbs one disturbs the other.
            read = read.min(time(site, (here, there))?);
            write = write.min(time(site, (there, here))?);
            current::reschedule();
        }
        self.conclude(site.peer.node(), read, write);
        Ok(())
    }

    fn conclude(&self, node: u16, read: u64, write: u64) {
        let size = (SCRATCH_SIZE * COPIES) as u64;
        let even = |asking| even_at(size, (read, write), asking);
        let (Some(alone), Some(several)) = (even(ASKING_ALONE), even(ASKING_AMONG_SEVERAL)) else {
            return;
        };
        self.alone.store(alone, Relaxed);
        self.several.store(several, Relaxed);
        pr_info!(
            "node {}: its engine writes what is more than {} bytes read; {} when not waited for\n",
            node,
            alone,
            several
        );
    }
}
