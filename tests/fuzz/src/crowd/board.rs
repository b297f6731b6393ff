// SPDX-License-Identifier: GPL-2.0

//! The board: memory that all processes of a crowd share. It has the known facts of each endpoint,
//! the endpoint of each slot, the progress of each thread, and the first fault.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use anyhow::Result;
use rustix::fs::MemfdFlags;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;

use crate::crowd::oracle::Begun;
use crate::crowd::steps::ACTORS;
use crate::crowd::steps::SLOTS;
use crate::crowd::steps::Step;

/// Number of endpoints that a crowd can record. Nothing is known of further endpoints.
const OBJECTS: usize = 8192;
/// Tables of slots: one for each process, forked ones included.
pub const TABLES: usize = 128;
/// Size in bytes of the text that describes a fault.
const TEXT: usize = 8192;

/// The known facts of an endpoint.
#[derive(Default)]
pub struct Object {
    /// Facts that results of calls have proved, as bits of `oracle.rs`.
    pub facts: AtomicU32,
    /// Number of calls of each kind that have begun and may change the state of the endpoint.
    pub begun: AtomicU64,
}

/// A slot of a process.
#[derive(Default)]
pub struct Slot {
    /// Lock of the slot, held while its endpoint is changed.
    lock: AtomicU32,
    /// Number of changes that have begun, and of those that have ended.
    pub changing: AtomicU32,
    pub changed: AtomicU32,
    /// Number of the endpoint in the slot, of the new one during a change, or 0 if it is not known.
    pub object: AtomicU32,
    /// Number of the endpoint before the last change.
    pub before: AtomicU32,
    /// Number of calls in flight of each kind that may change the state of an endpoint.
    pub under_way: AtomicU64,
}

/// The slots of a process.
#[derive(Default)]
pub struct Table {
    pub slots: [Slot; SLOTS],
}

/// The progress of a thread.
#[derive(Default)]
pub struct Thread {
    pub id: AtomicI32,
    /// A count that grows with each step.
    pub progress: AtomicU32,
    /// Index of its step in the plan, plus 1.
    pub step: AtomicU32,
    /// Events that end the present call, or 0 if the call does not wait; and the slot of the call.
    pub events: AtomicU32,
    pub slot: AtomicU32,
    /// Number of changes of the slot when the call began.
    pub version: AtomicU32,
}

/// Number of the steps of a word that succeeded and failed.
#[derive(Default)]
pub struct Ended {
    pub well: AtomicU32,
    pub failed: AtomicU32,
}

/// The memory that all processes share. A new board is all zeroes.
#[repr(C)]
pub struct Board {
    objects_made: AtomicU32,
    objects: [Object; OBJECTS],
    tables_made: AtomicU32,
    tables: [Table; TABLES],
    pub threads: [Thread; ACTORS],
    pub tally: [Ended; Step::WORDS.len()],
    /// Results of the calls on own endpoints.
    pub own: Ended,
    is_wrong: AtomicU32,
    length: AtomicU32,
    text: [AtomicU8; TEXT],
}

impl Board {
    /// Makes a board. Its descriptor stays open across `exec`.
    pub fn new() -> Result<(&'static Board, OwnedFd)> {
        let fd = rustix::fs::memfd_create(c"scif-fuzz", MemfdFlags::empty())?;
        File::from(fd.try_clone()?).set_len(size_of::<Board>() as u64)?;
        Ok((Self::of(&fd)?, fd))
    }

    /// Maps the board of a descriptor, until [`Board::unmap`].
    pub fn of(fd: impl AsFd) -> Result<&'static Board> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let size = size_of::<Board>();
        // SAFETY: The kernel chooses the address, so the mapping replaces no other one.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), size, rights, MapFlags::SHARED, fd, 0)?
        };
        // SAFETY: The mapping has the size of the board, begins at a page, and stays until `unmap`.
        // The board has atomics only, for which zeroes are valid.
        Ok(unsafe { &*base.cast::<Board>() })
    }

    /// Unmaps the board after its crowd has ended.
    ///
    /// # Safety
    ///
    /// Nothing in this process uses the board any more.
    pub unsafe fn unmap(&'static self) {
        let base = std::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: By the contract of this function.
        let _ = unsafe { rustix::mm::munmap(base, size_of::<Board>()) };
    }

    /// Records a new endpoint. Returns its number, or 0 if there are too many.
    pub fn object_made(&self, facts: u32) -> u32 {
        let number = self.objects_made.fetch_add(1, SeqCst) + 1;
        match self.objects.get(number as usize) {
            Some(object) => {
                object.facts.store(facts, SeqCst);
                number
            }
            None => 0,
        }
    }

    /// Returns the known facts of an endpoint, or `None` for number 0.
    pub fn object(&self, number: u32) -> Option<&Object> {
        self.objects.get(number as usize).filter(|_| number != 0)
    }

    /// Returns the number of a new table, or `None` if there are too many.
    pub fn table_made(&self) -> Option<usize> {
        let number = self.tables_made.fetch_add(1, SeqCst) as usize;
        (number < TABLES).then_some(number)
    }

    pub fn table(&self, number: usize) -> &Table {
        &self.tables[number]
    }

    /// Records a fault, unless another one is recorded.
    pub fn say(&self, text: &str) {
        if self.is_wrong.swap(1, SeqCst) != 0 {
            return;
        }
        let bytes = text.as_bytes();
        let bytes = &bytes[..bytes.len().min(TEXT)];
        for (to, from) in self.text.iter().zip(bytes) {
            to.store(*from, SeqCst);
        }
        self.length.store(bytes.len() as u32, SeqCst);
    }

    /// Returns whether a fault is recorded.
    pub fn is_wrong(&self) -> bool {
        self.is_wrong.load(SeqCst) != 0
    }

    /// Returns the text of the recorded fault.
    pub fn said(&self) -> Option<String> {
        self.is_wrong().then(|| {
            let text = self.text[..self.length.load(SeqCst) as usize].iter();
            let bytes: Vec<u8> = text.map(|byte| byte.load(SeqCst)).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
}

impl Slot {
    /// Takes the lock of the slot.
    pub fn lock(&self) {
        while self.lock.swap(1, SeqCst) != 0 {
            std::thread::yield_now();
        }
    }

    pub fn unlock(&self) {
        self.lock.store(0, SeqCst);
    }

    /// Returns the number of changes so far, or `None` during a change.
    pub fn version(&self) -> Option<u32> {
        let ended = self.changed.load(SeqCst);
        (self.changing.load(SeqCst) == ended).then_some(ended)
    }

    /// Records that the slot, which is locked, will get an endpoint, and what calls in flight on
    /// the slot may do to that endpoint.
    pub fn will_be(&self, board: &Board, object: u32) {
        self.before.store(self.object.load(SeqCst), SeqCst);
        self.changing.fetch_add(1, SeqCst);
        self.object.store(object, SeqCst);
        // A call that began before the change may still get the new endpoint.
        let begun = Begun::of(self.under_way.load(SeqCst)).each_once();
        if let Some(object) = board.object(object) {
            object.begun.fetch_add(begun, SeqCst);
        }
    }

    /// Records that the slot has the endpoint.
    pub fn is_there(&self) {
        self.changed.fetch_add(1, SeqCst);
    }

    /// Copies a slot of another process, which is locked.
    pub fn inherit(&self, from: &Slot) {
        self.object.store(from.object.load(SeqCst), SeqCst);
    }
}
