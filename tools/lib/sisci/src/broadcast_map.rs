// SPDX-License-Identifier: LGPL-2.1

//! A map of a broadcast segment: what is stored in it gets to all nodes of the group.
//!
//! No bridge copies a store to many. The map is memory of this process, and what has changed in it
//! since it was last looked at is stored in a map of each node's segment: when a program flushes,
//! and once in a millisecond.
//!
//! Lock: `sent` is held while it is sent, so that of two stores to a word the later arrives last.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::copies;
use crate::error::Result;
use crate::import::Import;
use crate::lock::lock;
use crate::mapping::Mapping;
use crate::mapping::Place;
use crate::mapping::shared_memory;
use crate::memory;
use crate::remote_map::RemoteMap;
use crate::threads::Caller;

/// How often it is looked at.
const PERIOD: Duration = Duration::from_millis(1);

const WORD: usize = size_of::<u64>();

/// See the head of this file.
pub struct BroadcastMap {
    own: Mapping,
    targets: Vec<Arc<RemoteMap>>,
    sent: Mutex<Vec<u64>>,
    stopped: AtomicBool,
    sender: Caller,
}

impl BroadcastMap {
    /// Maps that part of the segments of all these.
    pub fn new(
        imports: &[Arc<Import>],
        offset: u64,
        size: usize,
        place: Place,
    ) -> Result<Arc<Self>> {
        let len = memory::in_pages(size)?;
        let memory = shared_memory(len as u64)?;
        let own = Mapping::new(memory.as_fd(), 0, len, true, place).map_err(memory::map_error)?;
        let targets = imports
            .iter()
            .map(|import| import.map(offset, size, true, Place::Any));
        let map = Arc::new(Self {
            own,
            targets: targets.collect::<Result<_>>()?,
            sent: Mutex::new(vec![0; size.div_ceil(WORD)]),
            stopped: AtomicBool::new(false),
            sender: Caller::default(),
        });
        let this = Arc::downgrade(&map);
        map.sender.start(move || {
            while let Some(map) = this.upgrade() {
                if map.stopped.load(Relaxed) {
                    return;
                }
                map.send();
                drop(map);
                std::thread::sleep(PERIOD);
            }
        })?;
        Ok(map)
    }

    /// Where programs store.
    pub fn address(&self) -> *mut c_void {
        self.own.address()
    }

    /// Sends what has changed.
    pub fn send(&self) {
        self.send_range(0, self.own.len());
    }

    /// Sends what of these bytes has changed.
    pub fn send_range(&self, offset: usize, size: usize) {
        let mut sent = lock(&self.sent);
        let words: *const AtomicU64 = self.own.address().cast();
        let mut changed = false;
        let (first, end) = (offset / WORD, (offset + size).div_ceil(WORD));
        for (index, before) in sent.iter_mut().enumerate().take(end).skip(first) {
            // SAFETY: There are as many words as were sent, in whole pages that are mapped.
            let now = unsafe { (*words.add(index)).load(Relaxed) };
            if now == *before {
                continue;
            }
            *before = now;
            changed = true;
            for target in &self.targets {
                // SAFETY: Its map has as many words.
                unsafe {
                    target
                        .address()
                        .cast::<u64>()
                        .add(index)
                        .write_volatile(now)
                };
            }
        }
        if changed {
            copies::store_barrier();
        }
    }

    /// Sends for the last time, and unmaps all.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
        self.sender.join();
        self.send();
        for target in &self.targets {
            target.unmap();
        }
    }
}
