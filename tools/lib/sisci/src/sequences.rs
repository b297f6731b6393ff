// SPDX-License-Identifier: LGPL-2.1

//! Sequences: they tell whether all stores since the last check have arrived.
//!
//! A check costs a few loads: of the sequence's own slot, and of the kernel's page for the node.
//! Unless the program says otherwise, it also loads from the remote memory, which returns behind
//! all earlier stores. So there is one table that is never freed. A handle holds the index of a
//! slot, and the slot holds the handle of its present sequence. Slots that were never used take no
//! memory.
//!
//! Locks: `FREE`, a leaf, for making and removing; a slot's `map`, then those of maps.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::AcqRel;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::Ordering::Release;

use crate::barrier::store_barrier;
use crate::broadcast_map::BroadcastMap;
use crate::error::Error;
use crate::error::Result;
use crate::flags;
use crate::handles::Handle;
use crate::handles::Parts;
use crate::lock::lock;
use crate::maps::Kind;
use crate::maps::MAPS;
use crate::maps::Map;
use crate::members::GroupState;
use crate::nodes;
use crate::nodes::Status as NodeStatus;
use crate::process;
use crate::process::NewProcess;
use crate::process::PerProcess;
use crate::remote_map::NEVER;
use crate::store_log;

const KIND: u8 = 5;

/// Number of slots: a power of two, so that every handle has a slot. The first slot is never used.
const PLACES: usize = 1 << 14;

/// The result of a check: `sci_sequence_status_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// All stores have arrived.
    Ok = 0,
    /// Stores failed, and can be tried again at once.
    Retriable = 1,
    /// The link was down: the program must start the sequence again first.
    NotRetriable = 2,
    /// The link is down.
    Pending = 3,
}

/// A sequence, or a free slot for one.
///
/// # Invariants
///
/// While there is a handle, `node` is a page that is never unmapped, and `probe` can be read from
/// as long as the map exists.
struct Slot {
    /// The handle as the program has it; 0 if the slot is free.
    handle: AtomicUsize,
    node: AtomicPtr<NodeStatus>,
    /// The epoch at the last start; even if the sequence was not started.
    epoch: AtomicU64,
    errors: AtomicU64,
    /// The address to read from, to know that stores have arrived.
    probe: AtomicPtr<u32>,
    /// Whether the sequence is for a broadcast map, which knows the state of its members.
    is_broadcast: AtomicBool,
    map: PerProcess<Mutex<Option<Arc<Map>>>>,
}

impl Slot {
    const fn new() -> Self {
        Self {
            handle: AtomicUsize::new(0),
            node: AtomicPtr::new(core::ptr::null_mut()),
            epoch: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            probe: AtomicPtr::new(core::ptr::null_mut()),
            is_broadcast: AtomicBool::new(false),
            map: PerProcess::new(Mutex::new(None)),
        }
    }
}

static TABLE: [Slot; PLACES] = [const { Slot::new() }; PLACES];

/// Number of slots that were ever used; changed under `FREE`.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The generation of the newest handle.
static NEWEST: AtomicU32 = AtomicU32::new(0);

/// Number of sequences that the library remembers although their map was removed before them.
const MOST_ORPHANS: usize = 1 << 16;

struct Free {
    /// Slots that were used and are free.
    places: Vec<usize>,
    /// Handles whose map was removed before them. Programs may still remove each. The oldest is the
    /// first.
    orphans: BTreeSet<usize>,
}

impl Free {
    const fn new() -> Self {
        Self {
            places: Vec::new(),
            orphans: BTreeSet::new(),
        }
    }
}

static FREE: PerProcess<Mutex<Free>> = PerProcess::new(Mutex::new(Free::new()));

/// Returns the slot of a sequence that exists.
#[inline(always)]
fn find(handle: Handle) -> Result<&'static Slot> {
    let number = handle as usize;
    // The index is in the low bits, see `Parts`; the comparison covers all others.
    let slot = &TABLE[number % PLACES];
    // In a child the pages of nodes are not mapped.
    match slot.handle.load(Acquire) == number && number != 0 && process::is_own() {
        true => Ok(slot),
        false => Err(Error::ILLEGAL_PARAMETER),
    }
}

/// Returns a free index, and its slot.
fn place() -> Result<(usize, &'static Slot)> {
    let mut free = lock(&FREE);
    if let Some(index) = free.places.pop() {
        let slot = TABLE.get(index + 1).ok_or(Error::API_NOSPC)?;
        return Ok((index, slot));
    }
    let index = USED.load(Relaxed);
    let slot = TABLE.get(index + 1).ok_or(Error::API_NOSPC)?;
    USED.store(index + 1, Relaxed);
    Ok((index, slot))
}

/// Implements `SCICreateMapSequence()`.
pub fn create(map: Handle) -> Result<Handle> {
    let map = MAPS.get(map)?;
    let node = nodes::status(map.node()?)?;
    let (index, slot) = place()?;
    let node = core::ptr::from_ref(node).cast_mut();
    let probe = match map.address().is_null() {
        // There is nothing to read back, but the check needs an address that it can read.
        true => node.cast(),
        false => map.address().cast(),
    };
    slot.node.store(node, Relaxed);
    slot.epoch.store(NEVER, Relaxed);
    slot.probe.store(probe, Relaxed);
    let is_broadcast = matches!(map.kind(), Kind::Broadcast(..));
    slot.is_broadcast.store(is_broadcast, Relaxed);
    *lock(&slot.map) = Some(map.clone());
    let generation = NEWEST.fetch_add(1, Relaxed).wrapping_add(1);
    let handle = Parts {
        kind: KIND,
        generation,
        index,
    }
    .handle();
    // INVARIANT: All fields are set.
    slot.handle.store(handle as usize, Release);
    map.has_sequence(handle);
    if let Kind::Remote(remote, ..) = map.kind() {
        remote.has_sequence(&slot.epoch);
    }
    // Programs that check without a start expect a check of all stores from now on.
    let _ = start(handle);
    Ok(handle)
}

/// Implements `SCIRemoveSequence()`.
pub fn remove(handle: Handle) -> Result<()> {
    let Ok(slot) = find(handle) else {
        return remove_orphan(handle);
    };
    release(slot, handle)
}

fn release(slot: &'static Slot, handle: Handle) -> Result<()> {
    let index = Parts::of(handle).ok_or(Error::ILLEGAL_PARAMETER)?.index;
    let exchanged = slot
        .handle
        .compare_exchange(handle as usize, 0, AcqRel, Relaxed);
    exchanged.map_err(|_| Error::ILLEGAL_PARAMETER)?;
    let map = lock(&slot.map).take();
    if let Some(map) = map {
        map.sequence_gone(handle);
        if let Kind::Remote(remote, ..) = map.kind() {
            remote.sequence_gone(&slot.epoch);
        }
    }
    lock(&FREE).places.push(index);
    Ok(())
}

/// Releases a map. Its sequences become stale, but programs can still remove them.
pub fn release_map(map: &Map) {
    map.take_sequences().into_iter().for_each(orphan);
    map.release();
}

fn orphan(handle: Handle) {
    let Ok(slot) = find(handle) else { return };
    {
        let orphans = &mut lock(&FREE).orphans;
        if orphans.len() >= MOST_ORPHANS {
            orphans.pop_first();
        }
        orphans.insert(handle as usize);
    }
    // Another thread may have removed it at this moment.
    if release(slot, handle).is_err() {
        lock(&FREE).orphans.remove(&(handle as usize));
    }
}

fn remove_orphan(handle: Handle) -> Result<()> {
    match lock(&FREE).orphans.remove(&(handle as usize)) {
        true => Ok(()),
        false => Err(Error::ILLEGAL_PARAMETER),
    }
}

/// Removes all sequences.
pub fn remove_all() {
    for slot in TABLE.iter().skip(1).take(USED.load(Relaxed)) {
        // A free slot, or one that is removed at this moment, is not found.
        let _ = remove(slot.handle.load(Acquire) as Handle);
    }
    lock(&FREE).orphans.clear();
}

/// Forgets all sequences of the parent process, whose handles become stale.
pub fn forget(process: &NewProcess) {
    for slot in TABLE.iter().skip(1).take(USED.swap(0, Relaxed)) {
        slot.handle.store(0, Relaxed);
        slot.map.renew(Mutex::new(None), process);
    }
    FREE.renew(Mutex::new(Free::new()), process);
}

/// Implements `SCIStartSequence()`.
pub fn start(handle: Handle) -> Result<Status> {
    let slot = find(handle)?;
    let map = lock(&slot.map).clone();
    let map = map.ok_or(Error::ILLEGAL_PARAMETER)?;
    let node = node_of(slot);
    let connected = match map.kind() {
        Kind::Remote(_, import, _) => import.epoch(),
        Kind::Local(..) => Some(node.epoch()),
        Kind::Broadcast(map, _) => return start_broadcast(slot, map),
    };
    let epoch = node.epoch();
    slot.errors.store(node.errors(), Relaxed);
    slot.epoch.store(epoch, Relaxed);
    if let Kind::Remote(_, import, _) = map.kind() {
        // After the store: a thread that loses the segment after this load overwrites the epoch.
        if import.is_over() {
            slot.epoch.store(NEVER, Relaxed);
            return Err(Error::SEGMENT_NOT_CONNECTED);
        }
    }
    match epoch % 2 == 1 && connected == Some(epoch) && node.epoch() == epoch {
        true => Ok(Status::Ok),
        false => Ok(Status::Pending),
    }
}

fn start_broadcast(slot: &Slot, map: &BroadcastMap) -> Result<Status> {
    let state = map.group_state();
    slot.errors.store(state.errors, Relaxed);
    slot.epoch.store(state.epoch, Relaxed);
    match state {
        GroupState { is_lost: true, .. } => Err(Error::SEGMENT_NOT_CONNECTED),
        GroupState { is_away: true, .. } => Ok(Status::Pending),
        _ => Ok(Status::Ok),
    }
}

#[inline(always)]
fn node_of(slot: &Slot) -> &'static NodeStatus {
    // SAFETY: By the invariant of `Slot`: each caller has found the handle in the slot.
    unsafe { &*slot.node.load(Relaxed) }
}

/// Implements `SCICheckSequence()`.
#[inline(always)]
pub fn check(handle: Handle, wanted: u32) -> Result<Status> {
    let Ok(slot) = find(handle) else {
        return without_sequence(handle, wanted);
    };
    if slot.is_broadcast.load(Relaxed) {
        return check_broadcast(slot, wanted);
    }
    let node = node_of(slot);
    let started = slot.epoch.load(Relaxed);
    let epoch = node.epoch();
    if epoch != started {
        return Ok(changed(epoch));
    }
    if wanted & flags::NO_FLUSH == 0 {
        send_stores();
    }
    if wanted & (flags::NO_STORE_BARRIER | flags::FLUSH_CPU_BUFFERS_ONLY) == 0 {
        read_back(slot);
    }
    let errors = node.errors();
    // The read-back and the errors are of the same epoch.
    if node.epoch() != started {
        return Ok(Status::Pending);
    }
    match slot.errors.load(Relaxed) == errors {
        true => Ok(Status::Ok),
        false => Ok(failed(slot, errors)),
    }
}

#[cold]
fn check_broadcast(slot: &Slot, wanted: u32) -> Result<Status> {
    let map = lock(&slot.map).clone().ok_or(Error::ILLEGAL_PARAMETER)?;
    let Kind::Broadcast(map, _) = map.kind() else {
        return Err(Error::ILLEGAL_PARAMETER);
    };
    if wanted & flags::NO_FLUSH == 0 {
        send_stores();
    }
    if wanted & (flags::NO_STORE_BARRIER | flags::FLUSH_CPU_BUFFERS_ONLY) == 0 {
        map.read_back();
    }
    let state = map.group_state();
    if state.epoch != slot.epoch.load(Relaxed) {
        return Ok(match state.is_away {
            true => Status::Pending,
            false => Status::NotRetriable,
        });
    }
    match slot.errors.load(Relaxed) == state.errors {
        true => Ok(Status::Ok),
        false => Ok(failed(slot, state.errors)),
    }
}

#[cold]
fn without_sequence(handle: Handle, wanted: u32) -> Result<Status> {
    match handle.is_null() && wanted & flags::FLUSH_CPU_BUFFERS_ONLY != 0 {
        true => {
            send_stores();
            Ok(Status::Ok)
        }
        false => Err(Error::ILLEGAL_PARAMETER),
    }
}

#[cold]
fn changed(epoch: u64) -> Status {
    match epoch % 2 {
        0 => Status::Pending,
        _ => Status::NotRetriable,
    }
}

#[cold]
fn failed(slot: &Slot, errors: u64) -> Status {
    slot.errors.store(errors, Relaxed);
    Status::Retriable
}

/// Waits until all that was sent has arrived at all nodes.
#[cold]
#[inline(never)]
fn read_back_all(slot: &Slot) {
    let map = lock(&slot.map).clone();
    if let Some(Kind::Broadcast(map, _)) = map.as_deref().map(Map::kind) {
        map.read_back();
    }
}

#[inline(always)]
fn read_back(slot: &Slot) {
    let probe = slot.probe.load(Relaxed);
    // SAFETY: By the invariant of `Slot`. The map exists as long as the sequence, see
    // `release_map`. A program that unmaps it in another thread meanwhile breaks the rules of maps.
    unsafe { probe.read_volatile() };
}

/// Sends all stores so far, before stores that follow to any memory.
#[inline(always)]
fn send_stores() {
    store_barrier();
    store_log::flush();
}

/// Sends all stores, whatever the sequence: `SCIFlush()`.
#[inline(always)]
pub fn flush() {
    send_stores();
}

/// Implements `SCIStoreBarrier()`.
#[inline(always)]
pub fn barrier(handle: Handle) {
    send_stores();
    if let Ok(slot) = find(handle) {
        match slot.is_broadcast.load(Relaxed) {
            true => read_back_all(slot),
            false => read_back(slot),
        }
    }
}
