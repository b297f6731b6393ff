// SPDX-License-Identifier: LGPL-2.1

//! Transfers on one connection to a segment: what they need of it, and how their end is known.
//!
//! A link that was away ends the connection and what was on it. The next one has windows and words of its
//! own, so a transfer keeps the one that it was started on, and can't be taken for another's.
//!
//! Whoever only looks spins on a word that the driver sets. The driver sets none behind a transfer that has failed,
//! so a look that has waited for long has a thread wait in its place.
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

/// How long a job has been on its way before a thread waits for it, if somebody looks.
const LONG: Duration = Duration::from_millis(10);

/// See the head of this file.
pub struct Transfers {
    /// The connection.
    pub channel: Arc<Channel>,
    progress: Mutex<Option<Progress>>,
    outcomes: Mutex<Outcomes>,
    /// An outcome is known, or is nobody's any more to wait for.
    known: Condvar,
    /// A thread waits until all are known.
    has_waiter: AtomicBool,
    over: AtomicBool,
}

/// A word that the driver sets to the number of the last transfer that has ended and that was asked for.
struct Progress {
    word: Mapping,
    offset: i64,
    asked: u64,
}

impl Transfers {
    /// None yet.
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

    /// Starts a copy between a window of this side and the other segment, and waits for its end if that is wanted.
    pub fn copy(&self, direction: Direction, range: Copied, wait: bool) -> Result<()> {
        let started = self.channel.endpoint.copy(direction, range, wait);
        started.map_err(|_| Error::TRANSFER_FAILED)
    }

    /// As [`Self::copy`], between memory of the program and the other segment.
    ///
    /// # Safety
    ///
    /// See [`Endpoint::copy_memory`](crate::endpoint::Endpoint::copy_memory).
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

    /// A job begins on the connection.
    pub fn begin(self: &Arc<Self>) -> Share {
        Share {
            number: lock(&self.outcomes).begin(),
            transfers: self.clone(),
            handed_over: OnceLock::new(),
            word: OnceLock::new(),
        }
    }

    /// Waits until `done` finds what it looks for in how jobs have ended, or there is nothing to wait for.
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

    /// Has a thread wait until it is known how all jobs have ended.
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
            // The next look tries again.
            self.has_waiter.store(false, Release);
        }
    }

    /// Asks for a word when all copies so far have ended: its number, for [`Self::has_reached`].
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

    /// Whether the word says that copies have ended.
    fn has_reached(&self, number: u64) -> bool {
        let reached = |progress: &Progress| progress.reached() >= number;
        lock(&self.progress).as_ref().is_some_and(reached)
    }

    /// The connection has ended, and so has what was on it.
    pub fn end(&self) {
        self.over.store(true, Release);
    }
}

/// What a job has to do with one connection.
pub struct Share {
    transfers: Arc<Transfers>,
    number: u64,
    /// When all of it was with the driver.
    handed_over: OnceLock<Instant>,
    /// Which word says that it has ended, once somebody has asked; none if there is none.
    word: OnceLock<Option<u64>>,
}

impl Share {
    /// The connection.
    pub fn transfers(&self) -> &Arc<Transfers> {
        &self.transfers
    }

    /// All of it that does not end in the call that starts it is with the driver.
    pub fn hand_over(&self) {
        let mut outcomes = lock(&self.transfers.outcomes);
        // Under the lock, so that marks are in their order.
        let mark = self.transfers.channel.endpoint.mark().ok();
        outcomes.handed_over(self.number, mark);
        let _ = self.handed_over.set(Instant::now());
    }

    /// Waits for its end.
    pub fn wait(&self) -> Result<()> {
        let ended = self
            .transfers
            .wait_until(|outcomes| outcomes.of(self.number));
        ended.unwrap_or(Err(Error::TRANSFER_FAILED))
    }

    /// Whether it has ended, one way or the other. Does not wait.
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
        // SAFETY: It is the begin of a page that is mapped as long as `self` is there.
        unsafe { (*word).load(Acquire) }
    }
}
