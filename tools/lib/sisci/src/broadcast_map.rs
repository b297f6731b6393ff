// SPDX-License-Identifier: LGPL-2.1

//! A map of a broadcast segment: what is stored in it gets to all nodes of the group.
//!
//! No bridge copies a store to many. The map is memory of this process, and what has changed in it
//! since it was last looked at is stored in a map of each node's segment: when a program flushes,
//! and once in a millisecond. Of a word only that part is stored which has changed, since its
//! neighbours may be another node's to write. A store of what was sent last is not seen; a copy by
//! `SCIMemCpy` is always sent. Nodes that join the group get what is stored from then on, as with a switch that
//! copies; what is stored while one is away is lost for it, and sequences tell.
//!
//! Lock: `inner` is held while it is sent, so that of two stores to a word the later arrives last.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::copies;
use crate::error::Error;
use crate::error::Result;
use crate::import::Import;
use crate::lock::lock;
use crate::mapping::Mapping;
use crate::mapping::Place;
use crate::mapping::shared_memory;
use crate::memory;
use crate::nodes;
use crate::remote_map::RemoteMap;
use crate::remote_segment::Imports;
use crate::remote_segment::RemoteSegment;
use crate::threads::Caller;

/// How often it is looked at.
const PERIOD: Duration = Duration::from_millis(1);

const WORD: usize = size_of::<u64>();

/// Counts for the epoch of a node whose segment is lost: no node gets there.
const LOST: u64 = 1 << 40;

/// A node of the group.
struct Target {
    import: Arc<Import>,
    map: Arc<RemoteMap>,
}

struct Inner {
    /// The words as they were sent.
    sent: Vec<u64>,
    targets: Vec<Target>,
    /// Those of which targets were made.
    imports: Imports,
}

/// How a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Changes whenever a member goes, or comes.
    pub epoch: u64,
    /// Grows with each failed access.
    pub errors: u64,
    /// A member is away that may come back.
    pub is_away: bool,
    /// None is left.
    pub is_lost: bool,
}

/// See the head of this file.
pub struct BroadcastMap {
    own: Mapping,
    offset: u64,
    segment: Arc<RemoteSegment>,
    inner: Mutex<Inner>,
    stopped: AtomicBool,
    sender: Caller,
}

impl BroadcastMap {
    /// Maps that part of the segments of all members.
    pub fn new(
        segment: &Arc<RemoteSegment>,
        offset: u64,
        size: usize,
        place: Place,
    ) -> Result<Arc<Self>> {
        let len = memory::in_pages(size)?;
        let memory = shared_memory(len as u64)?;
        let own = Mapping::new(memory.as_fd(), 0, len, true, place).map_err(memory::map_error)?;
        let imports = segment.imports()?;
        let mut inner = Inner {
            sent: vec![0; size.div_ceil(WORD)],
            targets: Vec::new(),
            imports: Arc::new([]),
        };
        inner.join(imports, offset);
        if inner.targets.is_empty() {
            return Err(Error::NOT_CONNECTED);
        }
        let map = Arc::new(Self {
            own,
            offset,
            segment: segment.clone(),
            inner: Mutex::new(inner),
            stopped: AtomicBool::new(false),
            sender: Caller::default(),
        });
        let this = Arc::downgrade(&map);
        map.sender.start(move || {
            while let Some(map) = this.upgrade() {
                if map.stopped.load(Relaxed) {
                    return;
                }
                map.look_for_others();
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

    fn look_for_others(&self) {
        let Ok(imports) = self.segment.imports() else {
            return;
        };
        let mut inner = lock(&self.inner);
        if !Arc::ptr_eq(&inner.imports, &imports) {
            inner.join(imports, self.offset);
        }
    }

    fn word(&self, index: usize) -> u64 {
        let words: *const AtomicU64 = self.own.address().cast();
        // SAFETY: There are as many words as were sent, in whole pages that are mapped.
        unsafe { (*words.add(index)).load(Relaxed) }
    }

    /// Sends what has changed.
    pub fn send(&self) {
        let mut inner = lock(&self.inner);
        let inner = &mut *inner;
        let mut changed = false;
        for (index, before) in inner.sent.iter_mut().enumerate() {
            let now = self.word(index);
            if now == *before {
                continue;
            }
            let part = Part::of(*before ^ now);
            *before = now;
            changed = true;
            for target in &inner.targets {
                // SAFETY: Its map has as many words.
                unsafe { part.store(target.map.address().cast::<u64>().add(index), now) };
            }
        }
        if changed {
            copies::store_barrier();
        }
    }

    /// Sends these bytes, changed or not.
    pub fn send_range(&self, offset: usize, size: usize) {
        if size == 0 {
            return;
        }
        let mut inner = lock(&self.inner);
        let inner = &mut *inner;
        let (first, end) = (offset / WORD, (offset + size).div_ceil(WORD));
        // SAFETY: The range is inside, as the caller has checked.
        let from = unsafe { self.own.address().cast::<u8>().add(offset) };
        // First: what is changed meanwhile, or at the edges, is sent when it is looked for.
        for (index, before) in inner.sent.iter_mut().enumerate().take(end).skip(first) {
            let mask = mask_of(index, offset, size);
            *before = (*before & !mask) | (self.word(index) & mask);
        }
        for target in &inner.targets {
            // SAFETY: As above: both maps have as many bytes.
            unsafe {
                let to = target.map.address().cast::<u8>().add(offset);
                core::ptr::copy_nonoverlapping(from, to, size);
            }
        }
        copies::store_barrier();
    }

    /// Returns when all that was sent has arrived.
    pub fn read_back(&self) {
        for target in &lock(&self.inner).targets {
            // SAFETY: It has a word at least.
            unsafe { target.map.address().cast::<u32>().read_volatile() };
        }
    }

    /// How the group stands.
    pub fn standing(&self) -> Standing {
        let mut standing = Standing {
            epoch: 1,
            errors: 0,
            is_away: false,
            is_lost: true,
        };
        for target in &lock(&self.inner).targets {
            let Ok(node) = nodes::status(target.import.node()) else {
                continue;
            };
            if target.import.is_over() {
                standing.epoch = standing.epoch.wrapping_add(LOST);
                continue;
            }
            let epoch = target.import.epoch();
            standing.is_away |= epoch != Some(node.epoch());
            standing.is_lost = false;
            standing.epoch = standing.epoch.wrapping_add(node.epoch());
            standing.errors = standing.errors.wrapping_add(node.errors());
        }
        standing
    }

    /// Sends for the last time, and unmaps all.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
        self.sender.join();
        self.send();
        for target in &lock(&self.inner).targets {
            target.map.unmap();
        }
    }
}

impl Inner {
    /// Makes targets of those who are none yet. One that can't be mapped is lost, or away, and tried again.
    fn join(&mut self, imports: Imports, offset: u64) {
        let size = self.sent.len() * WORD;
        let mut complete = true;
        for import in imports.iter() {
            let is_target = |target: &Target| Arc::ptr_eq(&target.import, import);
            if self.targets.iter().any(is_target) {
                continue;
            }
            match import.map(offset, size, true, Place::Any) {
                Ok(map) => self.targets.push(Target {
                    import: import.clone(),
                    map,
                }),
                Err(_) => complete &= import.is_over(),
            }
        }
        if complete {
            self.imports = imports;
        }
    }
}

/// The bytes of a word that are in a range of bytes, as a mask.
fn mask_of(word: usize, offset: usize, size: usize) -> u64 {
    let bytes = (0..WORD).filter(|byte| {
        let at = word * WORD + byte;
        at >= offset && at < offset + size
    });
    bytes.fold(0, |mask, byte| mask | (0xff << (8 * byte)))
}

/// The least part of a word, as processors store, that has all that changed in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Byte(usize),
    Short(usize),
    Half(usize),
    Word,
}

impl Part {
    /// Of bits that differ; the least significant is in the first byte.
    fn of(changed: u64) -> Self {
        let first = changed.trailing_zeros() as usize / 8;
        let last = (63 - changed.leading_zeros() as usize) / 8;
        if first == last {
            Self::Byte(first)
        } else if first / 2 == last / 2 {
            Self::Short(first / 2)
        } else if first / 4 == last / 4 {
            Self::Half(first / 4)
        } else {
            Self::Word
        }
    }

    /// Stores it.
    ///
    /// # Safety
    ///
    /// The word can be written to.
    unsafe fn store(self, word: *mut u64, value: u64) {
        // SAFETY: Each part is inside the word, and aligned as the word is.
        unsafe {
            match self {
                Self::Byte(index) => {
                    let part = word.cast::<u8>().add(index);
                    part.write_volatile((value >> (8 * index)) as u8);
                }
                Self::Short(index) => {
                    let part = word.cast::<u16>().add(index);
                    part.write_volatile((value >> (16 * index)) as u16);
                }
                Self::Half(index) => {
                    let part = word.cast::<u32>().add(index);
                    part.write_volatile((value >> (32 * index)) as u32);
                }
                Self::Word => word.write_volatile(value),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(before: u64, now: u64, there: u64) -> u64 {
        let mut word = there;
        // SAFETY: It is a word of this function.
        unsafe { Part::of(before ^ now).store(&raw mut word, now) };
        word
    }

    #[test]
    fn neighbours_are_left_alone() {
        // Two halves, of two nodes.
        assert_eq!(stored(0, 1, 7 << 32), (7 << 32) | 1);
        assert_eq!(stored(0, 0x1234_5678 << 32, 7), (0x1234_5678 << 32) | 7);
        // A byte each.
        assert_eq!(stored(0, 0x0300, 0x11_0022), 0x11_0322);
        // What was changed whole arrives whole.
        assert_eq!(stored(0x00ff, 0x0100, 0), 0x0100);
        assert_eq!(stored(0, u64::MAX, 5), u64::MAX);
        assert_eq!(Part::of(0x00ff_ff00), Part::Half(0));
        assert_eq!(Part::of(1 | (1 << 63)), Part::Word);
    }

    #[test]
    fn a_range_is_its_bytes() {
        assert_eq!(mask_of(0, 0, 8), u64::MAX);
        assert_eq!(mask_of(0, 6, 4), 0xffff_0000_0000_0000);
        assert_eq!(mask_of(1, 6, 4), 0xffff);
        assert_eq!(mask_of(2, 6, 4), 0);
    }
}
