// SPDX-License-Identifier: LGPL-2.1

//! Transfers on one connection to a segment: what they need of it, and how their end is known.
//!
//! A link that was away ends the connection and what was on it. The next one has windows and words of its
//! own, so a transfer keeps the one that it was started on, and can't be taken for another's.
//!
//! Locks: `windows`, `progress`: leaves, but that windows are made under the first, which does not wait for
//! programs.

use std::collections::HashMap;
use std::ffi::c_void;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::Ordering::Release;

use crate::channel::Channel;
use crate::endpoint::Copied;
use crate::endpoint::Direction;
use crate::error::Error;
use crate::error::Result;
use crate::local_segment::LocalSegment;
use crate::lock::lock;
use crate::mapping::Mapping;
use crate::mapping::Place;
use crate::mapping::shared_memory;
use crate::memory::PAGE;
use crate::uapi;

/// See the head of this file.
pub struct Transfers {
    /// The connection.
    pub channel: Arc<Channel>,
    /// Local segments that are windows of it: offset and length, by identity.
    windows: Mutex<HashMap<u64, (i64, u64)>>,
    progress: Mutex<Option<Progress>>,
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
            windows: Mutex::new(HashMap::new()),
            progress: Mutex::new(None),
            over: AtomicBool::new(false),
        })
    }

    /// Where the memory of a local segment is a window of the connection.
    fn window(self: &Arc<Self>, segment: &Arc<LocalSegment>) -> Result<u64> {
        let mut windows = lock(&self.windows);
        let identity = segment.identity();
        if let Some((offset, _)) = windows.get(&identity) {
            return Ok(*offset as u64);
        }
        let length = segment.memory()?.len() as u64;
        let protection = uapi::PROT_READ | uapi::PROT_WRITE;
        let pinned = segment.pinned()?;
        let endpoint = &self.channel.endpoint;
        let offset = endpoint.register(pinned, 0..length, protection, None)?;
        windows.insert(identity, (offset, length));
        drop(windows);
        segment.has_window(self);
        Ok(offset as u64)
    }

    /// The memory of a local segment is no window any more.
    pub fn forget_window(&self, identity: u64) {
        let window = lock(&self.windows).remove(&identity);
        if let Some((offset, length)) = window {
            // If the connection is gone, so is the window.
            let _ = self.channel.endpoint.unregister(offset, length);
        }
    }

    /// Starts a copy between a local segment and the other one, and waits for its end if that is wanted.
    pub fn copy(
        self: &Arc<Self>,
        direction: Direction,
        segment: &Arc<LocalSegment>,
        range: Copied,
        wait: bool,
    ) -> Result<()> {
        let range = Copied {
            local: self.window(segment)? + range.local,
            ..range
        };
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

    /// Waits for the end of all that was started so far.
    pub fn wait(&self) -> Result<()> {
        let endpoint = &self.channel.endpoint;
        let ended = endpoint
            .mark()
            .and_then(|mark| endpoint.wait_for_mark(mark));
        ended.map_err(|_| Error::TRANSFER_FAILED)
    }

    /// Asks for a word when all copies so far have ended: its number, for [`Self::has_ended`].
    pub fn ask_for_end(&self) -> Result<u64> {
        let mut progress = lock(&self.progress);
        let endpoint = &self.channel.endpoint;
        if progress.is_none() {
            let memory = shared_memory(PAGE as u64)?;
            let word = Mapping::new(memory.as_fd(), 0, PAGE, true, Place::Any)?;
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

    /// Whether copies have ended, one way or the other.
    pub fn has_ended(&self, number: u64) -> bool {
        let reached = |progress: &Progress| progress.reached() >= number;
        self.over.load(Acquire) || lock(&self.progress).as_ref().is_none_or(reached)
    }

    /// The connection has ended, and so has what was on it.
    pub fn end(&self) {
        self.over.store(true, Release);
    }
}

impl Progress {
    fn reached(&self) -> u64 {
        let word: *const AtomicU64 = self.word.address().cast();
        // SAFETY: It is the begin of a page that is mapped as long as `self` is there.
        unsafe { (*word).load(Acquire) }
    }
}
