// SPDX-License-Identifier: GPL-2.0
//! Counters of the work of each function, readable while it runs.
//!
//! A trapped access costs a guest about as much as a non-posted read on hardware, so tests count
//! them. Counters only grow, until a client resets them.

use std::ops::AddAssign;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use serde::Deserialize;
use serde::Serialize;

/// The counters of one function.
#[derive(Debug, Default)]
pub struct Counters {
    /// See [`Snapshot::trapped_reads`].
    pub trapped_reads: AtomicU64,
    /// See [`Snapshot::trapped_writes`].
    pub trapped_writes: AtomicU64,
    /// See [`Snapshot::config_accesses`].
    pub config_accesses: AtomicU64,
    /// See [`Snapshot::doorbells`].
    pub doorbells: AtomicU64,
    /// See [`Snapshot::dropped`].
    pub dropped: AtomicU64,
    /// See [`Snapshot::dma_descriptors`].
    pub dma_descriptors: AtomicU64,
    /// See [`Snapshot::dma_bytes`].
    pub dma_bytes: AtomicU64,
    /// See [`Snapshot::dma_errors`].
    pub dma_errors: AtomicU64,
    /// See [`Snapshot::dma_late_us`].
    pub dma_late_us: AtomicU64,
    /// See [`Snapshot::overtaken`].
    pub overtaken: AtomicU64,
}

/// The counters of one function, or the sum of several, at one moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Reads of BARs: of registers, and of windows that are not mapped.
    pub trapped_reads: u64,
    /// Writes of BARs: of registers, and of windows that are not mapped.
    pub trapped_writes: u64,
    /// Accesses of configuration space.
    pub config_accesses: u64,
    /// Doorbells rung at the peer.
    pub doorbells: u64,
    /// Accesses of a window or of the peer's registers that reached nothing: the link
    /// was down, or there was no memory.
    pub dropped: u64,
    /// DMA descriptors executed.
    pub dma_descriptors: u64,
    /// Bytes copied by DMA.
    pub dma_bytes: u64,
    /// DMA descriptors that failed, and rings that could not be read.
    pub dma_errors: u64,
    /// Microseconds that engines took longer than the model of the link says, because this machine
    /// is too slow for it. Time that engines have made up for is not counted.
    #[serde(default)]
    pub dma_late_us: u64,
    /// Writes that arrived at the peer before others that had been made earlier (see
    /// [`crate::order`]).
    #[serde(default)]
    pub overtaken: u64,
}

impl Counters {
    /// Adds one to a counter.
    pub fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }

    /// Returns the present values.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            trapped_reads: self.trapped_reads.load(Relaxed),
            trapped_writes: self.trapped_writes.load(Relaxed),
            config_accesses: self.config_accesses.load(Relaxed),
            doorbells: self.doorbells.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            dma_descriptors: self.dma_descriptors.load(Relaxed),
            dma_bytes: self.dma_bytes.load(Relaxed),
            dma_errors: self.dma_errors.load(Relaxed),
            dma_late_us: self.dma_late_us.load(Relaxed),
            overtaken: self.overtaken.load(Relaxed),
        }
    }

    /// Sets all counters to zero.
    pub fn reset(&self) {
        for counter in [
            &self.trapped_reads,
            &self.trapped_writes,
            &self.config_accesses,
            &self.doorbells,
            &self.dropped,
            &self.dma_descriptors,
            &self.dma_bytes,
            &self.dma_errors,
            &self.dma_late_us,
            &self.overtaken,
        ] {
            counter.store(0, Relaxed);
        }
    }
}

impl AddAssign for Snapshot {
    fn add_assign(&mut self, other: Self) {
        self.trapped_reads += other.trapped_reads;
        self.trapped_writes += other.trapped_writes;
        self.config_accesses += other.config_accesses;
        self.doorbells += other.doorbells;
        self.dropped += other.dropped;
        self.dma_descriptors += other.dma_descriptors;
        self.dma_bytes += other.dma_bytes;
        self.dma_errors += other.dma_errors;
        self.dma_late_us += other.dma_late_us;
        self.overtaken += other.overtaken;
    }
}
