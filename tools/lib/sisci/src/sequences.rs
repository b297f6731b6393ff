// SPDX-License-Identifier: LGPL-2.1

//! Sequences: whether all that was stored since the last look has arrived.
//!
//! To look costs a few loads: of the sequence's own place, of the kernel's page for the node, and,
//! unless the program says otherwise, one from the remote memory, which comes back behind all stores
//! that went before. So places are found without a lock and are never freed: they lie in chunks
//! that stay.
//!
//! Lock: `FREE`, a leaf, for making and removing.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::Ordering::Release;

use crate::copies;
use crate::error::Error;
use crate::error::Result;
use crate::flags;
use crate::handles::Handle;
use crate::handles::Parts;
use crate::lock::lock;
use crate::maps::Kind;
use crate::maps::MAPS;
use crate::maps::Map;
use crate::nodes;
use crate::nodes::Status as NodeStatus;

const KIND: u8 = 5;
const CHUNK: usize = 256;
const CHUNKS: usize = 64;

/// What a look says: `sci_sequence_status_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// All has arrived.
    Ok = 0,
    /// Something failed, and can be tried again at once.
    Retriable = 1,
    /// The link was away: start again first.
    NotRetriable = 2,
    /// The link is away.
    Pending = 3,
}

/// A sequence, or a place for one.
struct Slot {
    /// Odd while there is one.
    generation: AtomicU32,
    node: AtomicPtr<NodeStatus>,
    /// As of the last start; even if it was not started.
    epoch: AtomicU64,
    errors: AtomicU64,
    /// Where to read from to know that stores have arrived.
    probe: AtomicPtr<u32>,
    /// There is more to do at a flush than that; its map knows.
    is_broadcast: AtomicU32,
    map: Mutex<Option<Arc<Map>>>,
}

impl Slot {
    const fn new() -> Self {
        Self {
            generation: AtomicU32::new(0),
            node: AtomicPtr::new(core::ptr::null_mut()),
            epoch: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            probe: AtomicPtr::new(core::ptr::null_mut()),
            is_broadcast: AtomicU32::new(0),
            map: Mutex::new(None),
        }
    }
}

type Chunk = [Slot; CHUNK];

static TABLE: [AtomicPtr<Chunk>; CHUNKS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; CHUNKS];

struct Free {
    places: Vec<usize>,
    used: usize,
}

static FREE: Mutex<Free> = Mutex::new(Free {
    places: Vec::new(),
    used: 0,
});

#[inline(always)]
fn slot_at(index: usize) -> Option<&'static Slot> {
    let chunk = TABLE.get(index / CHUNK)?.load(Acquire);
    // SAFETY: It is null, or a chunk that is never freed.
    unsafe { chunk.as_ref() }?.get(index % CHUNK)
}

/// The place of a sequence that there is.
#[inline(always)]
fn find(handle: Handle) -> Result<&'static Slot> {
    let parts = Parts::of(handle).filter(|parts| parts.kind == KIND);
    let parts = parts.ok_or(Error::ILLEGAL_PARAMETER)?;
    let slot = slot_at(parts.index).ok_or(Error::ILLEGAL_PARAMETER)?;
    match slot.generation.load(Acquire) == parts.generation && parts.generation % 2 == 1 {
        true => Ok(slot),
        false => Err(Error::ILLEGAL_PARAMETER),
    }
}

fn place() -> Result<usize> {
    let mut free = lock(&FREE);
    if let Some(index) = free.places.pop() {
        return Ok(index);
    }
    let index = free.used;
    let chunk = TABLE.get(index / CHUNK).ok_or(Error::API_NOSPC)?;
    if chunk.load(Acquire).is_null() {
        let slots: Box<Chunk> = Box::new([const { Slot::new() }; CHUNK]);
        chunk.store(Box::into_raw(slots), Release);
    }
    free.used += 1;
    Ok(index)
}

/// `SCICreateMapSequence()`
pub fn create(map: Handle) -> Result<Handle> {
    let map = MAPS.get(map)?;
    let node = nodes::status(map.node()?)?;
    let index = place()?;
    let slot = slot_at(index).ok_or(Error::API_NOSPC)?;
    slot.node
        .store(core::ptr::from_ref(node).cast_mut(), Relaxed);
    slot.epoch.store(0, Relaxed);
    slot.probe.store(map.address().cast(), Relaxed);
    let is_broadcast = matches!(map.kind(), Kind::Broadcast(..));
    slot.is_broadcast.store(u32::from(is_broadcast), Relaxed);
    *lock(&slot.map) = Some(map.clone());
    let generation = slot.generation.load(Relaxed).wrapping_add(1);
    slot.generation.store(generation, Release);
    let handle = Parts {
        kind: KIND,
        generation,
        index,
    }
    .handle();
    map.has_sequence(handle);
    // Programs that check without a start mean from now on.
    let _ = start(handle);
    Ok(handle)
}

/// `SCIRemoveSequence()`
pub fn remove(handle: Handle) -> Result<()> {
    let slot = find(handle)?;
    let index = Parts::of(handle).ok_or(Error::ILLEGAL_PARAMETER)?.index;
    let generation = slot.generation.load(Relaxed);
    let next = generation.wrapping_add(1);
    let exchanged = slot
        .generation
        .compare_exchange(generation, next, Release, Relaxed);
    exchanged.map_err(|_| Error::ILLEGAL_PARAMETER)?;
    let map = lock(&slot.map).take();
    drop(map);
    lock(&FREE).places.push(index);
    Ok(())
}

/// Makes all stale.
pub fn remove_all() {
    let used = lock(&FREE).used;
    for index in 0..used {
        let Some(slot) = slot_at(index) else { continue };
        let generation = slot.generation.load(Acquire);
        if generation % 2 == 1 {
            let parts = Parts {
                kind: KIND,
                generation,
                index,
            };
            let _ = remove(parts.handle());
        }
    }
}

/// `SCIStartSequence()`
pub fn start(handle: Handle) -> Result<Status> {
    let slot = find(handle)?;
    let map = lock(&slot.map).clone();
    let map = map.ok_or(Error::ILLEGAL_PARAMETER)?;
    let node = node_of(slot)?;
    let connected = match map.kind() {
        Kind::Remote(_, import, _) => {
            if import.is_over() {
                slot.epoch.store(0, Relaxed);
                return Err(Error::SEGMENT_NOT_CONNECTED);
            }
            import.epoch()
        }
        Kind::Local(..) | Kind::Broadcast(..) => Some(node.epoch()),
    };
    let errors = node.errors();
    match connected {
        Some(epoch) if epoch == node.epoch() && epoch % 2 == 1 => {
            slot.errors.store(errors, Relaxed);
            slot.epoch.store(epoch, Relaxed);
            Ok(Status::Ok)
        }
        _ => Ok(Status::Pending),
    }
}

#[inline(always)]
fn node_of(slot: &Slot) -> Result<&'static NodeStatus> {
    // SAFETY: It was set before the sequence was there, to a page that is never unmapped.
    unsafe { slot.node.load(Relaxed).as_ref() }.ok_or(Error::ILLEGAL_PARAMETER)
}

/// `SCICheckSequence()`
#[inline(always)]
pub fn check(handle: Handle, wanted: u32) -> Result<Status> {
    if handle.is_null() && wanted & flags::FLUSH_CPU_BUFFERS_ONLY != 0 {
        copies::store_barrier();
        return Ok(Status::Ok);
    }
    let slot = find(handle)?;
    let node = node_of(slot)?;
    let started = slot.epoch.load(Relaxed);
    let epoch = node.epoch();
    if epoch != started {
        return Ok(match epoch % 2 {
            0 => Status::Pending,
            _ => Status::NotRetriable,
        });
    }
    if wanted & flags::NO_FLUSH == 0 {
        flush_slot(slot);
        if wanted & (flags::NO_STORE_BARRIER | flags::FLUSH_CPU_BUFFERS_ONLY) == 0 {
            read_back(slot);
        }
    }
    let errors = node.errors();
    if node.epoch() != started {
        return Ok(Status::Pending);
    }
    match slot.errors.load(Relaxed) == errors {
        true => Ok(Status::Ok),
        false => {
            slot.errors.store(errors, Relaxed);
            Ok(Status::Retriable)
        }
    }
}

#[inline(always)]
fn flush_slot(slot: &Slot) {
    copies::store_barrier();
    if slot.is_broadcast.load(Relaxed) != 0 {
        send_to_all(slot);
    }
}

#[cold]
fn send_to_all(slot: &Slot) {
    let map = lock(&slot.map).clone();
    if let Some(Kind::Broadcast(map, _)) = map.as_deref().map(Map::kind) {
        map.send();
    }
}

#[inline(always)]
fn read_back(slot: &Slot) {
    let probe = slot.probe.load(Relaxed);
    if !probe.is_null() {
        // SAFETY: The map is there as long as the sequence is, see `Map::release`; a program that
        // unmaps it in another thread meanwhile breaks the rules of maps.
        unsafe { probe.read_volatile() };
    }
}

/// `SCIFlush()`
pub fn flush(handle: Handle) {
    match find(handle) {
        Ok(slot) => flush_slot(slot),
        Err(_) => copies::store_barrier(),
    }
}

/// `SCIStoreBarrier()`
pub fn barrier(handle: Handle) {
    if let Ok(slot) = find(handle) {
        flush_slot(slot);
        read_back(slot);
    }
}
