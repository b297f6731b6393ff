// SPDX-License-Identifier: LGPL-2.1

//! Transfers on one connection to a segment: the resources that they need, and how they are found
//! complete.
//!
//! A link that goes down ends the connection and its transfers. The next connection has windows and
//! words of its own. A transfer keeps the connection that it was started on, so its outcome can't
//! be mistaken for another's.
//!
//! A caller that only polls reads a word that the driver sets. The driver sets none behind a
//! transfer that has failed. So if a transfer takes long, polling starts a thread that waits for
//! its outcome.
//!
//! Locks: `progress`, `outcomes`: leaves.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::AcqRel;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::Ordering::Release;
use std::time::Duration;
use std::time::Instant;

use crate::channel::Channel;
use crate::endpoint::Copied;
use crate::endpoint::Direction;
use crate::error::Error;
use crate::error::Result;
use crate::lock;
use crate::lock::lock;
use crate::mapping::Mapping;
use crate::mapping::Place;
use crate::mapping::shared_memory;
use crate::memory::page;
use crate::outcomes::Outcomes;
use crate::threads;

/// Age of a job at which polling starts a thread that waits.
const LONG: Duration = Duration::from_millis(10);

/// The transfers of one connection.
pub struct Transfers {
    /// The connection.
    pub channel: Arc<Channel>,
    progress: Mutex<Option<Progress>>,
    outcomes: Mutex<Outcomes>,
    /// Signalled when an outcome is known, or when no thread waits for the next mark any more.
    known: Condvar,
    /// Whether a thread waits until all outcomes are known.
    has_waiter: AtomicBool,
    over: AtomicBool,
}

/// A word that the driver sets to the number of the last request, once the transfers before that
/// request are complete.
struct Progress {
    word: Mapping,
    offset: i64,
    asked: u64,
}

impl Transfers {
    /// Creates the state of a connection without transfers.
    pub fn new(channel: Arc<Channel>) -> Arc<Self> {
        Arc::new(Self {
            channel,
            progress: Mutex::new(None),
            outcomes: Mutex::new(Outcomes::default()),
            known: Condvar::new(),
            has_waiter: AtomicBool::new(false),
            over: AtomicBool::new(false),
        })
    }

    /// Starts a copy between a window of this side and the other segment, and waits for completion
    /// if `wait` is set.
    pub fn copy(&self, direction: Direction, range: Copied, wait: bool) -> Result<()> {
        let started = self.channel.endpoint.copy(direction, range, wait);
        started.map_err(|_| Error::TRANSFER_FAILED)
    }

    /// Starts a copy like [`Self::copy`], between memory of the program and the other segment.
    ///
    /// # Safety
    ///
    /// The same as for [`Endpoint::copy_memory`](crate::endpoint::Endpoint::copy_memory).
    pub unsafe fn copy_memory(
        &self,
        direction: Direction,
        memory: *mut c_void,
        range: Copied,
        wait: bool,
    ) -> Result<()> {
        let endpoint = &self.channel.endpoint;
        // SAFETY: By the contract of this function.
        let started = unsafe { endpoint.copy_memory(direction, memory, range, wait) };
        started.map_err(|_| Error::TRANSFER_FAILED)
    }

    /// Begins a job on the connection.
    pub fn begin(self: &Arc<Self>) -> Share {
        Share {
            number: lock(&self.outcomes).begin(),
            transfers: self.clone(),
            handed_over: OnceLock::new(),
            word: OnceLock::new(),
        }
    }

    /// Waits until `done` finds an answer in the outcomes, or there is no mark left to wait for.
    fn wait_until<T>(&self, done: impl Fn(&Outcomes) -> Option<T>) -> Option<T> {
        let mut outcomes = lock(&self.outcomes);
        loop {
            if let Some(found) = done(&outcomes) {
                return Some(found);
            }
            if outcomes.is_waited_for() {
                outcomes = lock::wait(&self.known, outcomes, None).0;
                continue;
            }
            let mark = outcomes.wait_for_next()?;
            drop(outcomes);
            let endpoint = &self.channel.endpoint;
            let ended = endpoint.wait_for_mark(mark);
            outcomes = lock(&self.outcomes);
            outcomes.passed(ended.is_ok(), || endpoint.mark().ok());
            self.known.notify_all();
        }
    }

    /// Starts a thread that waits until all outcomes are known, unless one runs.
    fn have_waited(self: &Arc<Self>) {
        if self.has_waiter.swap(true, AcqRel) {
            return;
        }
        let this = self.clone();
        let started = threads::spawn("sisci-dma", move || {
            this.wait_until(|_| None::<()>);
            this.has_waiter.store(false, Release);
        });
        if started.is_err() {
            // The next poll tries again.
            self.has_waiter.store(false, Release);
        }
    }

    /// Requests that the word be set when all copies so far are complete. Returns the number for
    /// [`Self::has_reached`].
    fn ask_for_end(&self) -> Result<u64> {
        let mut progress = lock(&self.progress);
        let endpoint = &self.channel.endpoint;
        if progress.is_none() {
            let memory = shared_memory(page() as u64)?;
            let word = Mapping::new(memory.as_fd(), 0, page(), true, Place::Any)?;
            let offset = endpoint.register_own(&word)?;
            *progress = Some(Progress {
                word,
                offset,
                asked: 0,
            });
        }
        let progress = progress.as_mut().ok_or(Error::SYSTEM)?;
        progress.asked += 1;
        let signalled = endpoint.signal(progress.offset, progress.asked);
        signalled.map_err(|_| Error::TRANSFER_FAILED)?;
        Ok(progress.asked)
    }

    /// Returns whether the word has reached this number.
    fn has_reached(&self, number: u64) -> bool {
        let reached = |progress: &Progress| progress.reached() >= number;
        lock(&self.progress).as_ref().is_some_and(reached)
    }

    /// Records that the connection has ended, and with it all its transfers.
    pub fn end(&self) {
        self.over.store(true, Release);
    }
}

/// The share of one connection in a job.
pub struct Share {
    transfers: Arc<Transfers>,
    number: u64,
    /// The time at which the driver had all copies of the share.
    handed_over: OnceLock<Instant>,
    /// The number of the word that reports completion, once a caller has polled; none if the
    /// request failed.
    word: OnceLock<Option<u64>>,
}

impl Share {
    /// Returns the transfers of the connection.
    pub fn transfers(&self) -> &Arc<Transfers> {
        &self.transfers
    }

    /// Records that the driver has all of the share, except copies that completed in the call that
    /// started them.
    pub fn hand_over(&self) {
        let mut outcomes = lock(&self.transfers.outcomes);
        // Under the lock, so that marks are in order.
        let mark = self.transfers.channel.endpoint.mark().ok();
        outcomes.handed_over(self.number, mark);
        let _ = self.handed_over.set(Instant::now());
    }

    /// Waits for completion.
    pub fn wait(&self) -> Result<()> {
        let ended = self
            .transfers
            .wait_until(|outcomes| outcomes.of(self.number));
        ended.unwrap_or(Err(Error::TRANSFER_FAILED))
    }

    /// Returns whether the share is complete or has failed. Does not wait.
    pub fn has_ended(&self) -> bool {
        let transfers = &self.transfers;
        let ended = transfers.over.load(Acquire)
            || lock(&transfers.outcomes).of(self.number).is_some()
            || self.has_word();
        if !ended
            && self
                .handed_over
                .get()
                .is_some_and(|when| when.elapsed() > LONG)
        {
            transfers.have_waited();
        }
        ended
    }

    fn has_word(&self) -> bool {
        let word = self.word.get_or_init(|| self.transfers.ask_for_end().ok());
        word.is_some_and(|word| self.transfers.has_reached(word))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        lock(&self.transfers.outcomes).forget(self.number);
    }
}

impl Progress {
    fn reached(&self) -> u64 {
        let word: *const AtomicU64 = self.word.address().cast();
        // SAFETY: The word is at the begin of a page that is mapped as long as `self` exists.
        unsafe { (*word).load(Acquire) }
    }
}
