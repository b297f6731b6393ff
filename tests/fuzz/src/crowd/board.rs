// SPDX-License-Identifier: GPL-2.0

//! The board: memory that all processes of a crowd share. It has what is known of each endpoint, which of them is in
//! which slot, how far each thread is, and what has gone wrong.

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

/// Endpoints that a crowd can have in its life. Of further ones nothing is known.
const OBJECTS: usize = 8192;
/// Tables of slots: one for each process, forked ones included.
pub const TABLES: usize = 128;
/// Bytes that say what has gone wrong.
const TEXT: usize = 8192;

/// What is known of an endpoint.
#[derive(Default)]
pub struct Object {
    /// Bits of `oracle.rs`: what was proved by what calls returned.
    pub facts: AtomicU32,
    /// How many calls have begun that may change what it is, by their kind.
    pub begun: AtomicU64,
}

/// A slot of a process.
#[derive(Default)]
pub struct Slot {
    /// Held while what is in it is changed.
    lock: AtomicU32,
    /// Changes that have begun, and those that have ended.
    pub changing: AtomicU32,
    pub changed: AtomicU32,
    /// The endpoint in it; during a change the new one. 0 if that is not known.
    pub object: AtomicU32,
    /// The one before.
    pub before: AtomicU32,
    /// Calls under way that may change what an endpoint is, by their kind.
    pub under_way: AtomicU64,
}

/// The slots of a process.
#[derive(Default)]
pub struct Table {
    pub slots: [Slot; SLOTS],
}

/// How far a thread is.
#[derive(Default)]
pub struct Thread {
    pub id: AtomicI32,
    /// Grows with each step.
    pub progress: AtomicU32,
    /// Where its step is in the plan, and 1.
    pub step: AtomicU32,
    /// The events that end the call in which it is, and the slot; 0 if it waits for none.
    pub events: AtomicU32,
    pub slot: AtomicU32,
    /// Changes of the slot when the call began.
    pub version: AtomicU32,
}

/// How the steps of a word have ended.
#[derive(Default)]
pub struct Ended {
    pub well: AtomicU32,
    pub failed: AtomicU32,
}

/// The memory that all share. All zeroes is a new one.
#[repr(C)]
pub struct Board {
    objects_made: AtomicU32,
    objects: [Object; OBJECTS],
    tables_made: AtomicU32,
    tables: [Table; TABLES],
    pub threads: [Thread; ACTORS],
    pub tally: [Ended; Step::WORDS.len()],
    /// Calls that own endpoints have got.
    pub own: Ended,
    is_wrong: AtomicU32,
    length: AtomicU32,
    text: [AtomicU8; TEXT],
}

impl Board {
    /// Makes a board. Its descriptor outlives `exec`.
    pub fn new() -> Result<(&'static Board, OwnedFd)> {
        let fd = rustix::fs::memfd_create(c"scif-fuzz", MemfdFlags::empty())?;
        File::from(fd.try_clone()?).set_len(size_of::<Board>() as u64)?;
        Ok((Self::of(&fd)?, fd))
    }

    /// Maps the board of a descriptor. It stays mapped.
    pub fn of(fd: impl AsFd) -> Result<&'static Board> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let size = size_of::<Board>();
        // SAFETY: The kernel chooses the place, so nothing is replaced.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), size, rights, MapFlags::SHARED, fd, 0)?
        };
        // SAFETY: It is as large, begins on a page, stays mapped, has atomics only, and zeroes are good for all.
        Ok(unsafe { &*base.cast::<Board>() })
    }

    /// Unmaps the board, when a crowd is gone.
    ///
    /// # Safety
    ///
    /// Nobody uses it any more in this process.
    pub unsafe fn unmap(&'static self) {
        let base = std::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: By the contract of this function.
        let _ = unsafe { rustix::mm::munmap(base, size_of::<Board>()) };
    }

    /// Makes an endpoint known; returns its number, 0 if there are too many.
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

    /// What is known of an endpoint; nothing of number 0.
    pub fn object(&self, number: u32) -> Option<&Object> {
        self.objects.get(number as usize).filter(|_| number != 0)
    }

    /// The number of a new table, if there are not too many.
    pub fn table_made(&self) -> Option<usize> {
        let number = self.tables_made.fetch_add(1, SeqCst) as usize;
        (number < TABLES).then_some(number)
    }

    pub fn table(&self, number: usize) -> &Table {
        &self.tables[number]
    }

    /// Says what has gone wrong, unless something else has before.
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

    /// Whether something has gone wrong.
    pub fn is_wrong(&self) -> bool {
        self.is_wrong.load(SeqCst) != 0
    }

    /// What has gone wrong.
    pub fn said(&self) -> Option<String> {
        self.is_wrong().then(|| {
            let text = self.text[..self.length.load(SeqCst) as usize].iter();
            let bytes: Vec<u8> = text.map(|byte| byte.load(SeqCst)).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
}

impl Slot {
    /// Takes the right to change what is in the slot.
    pub fn lock(&self) {
        while self.lock.swap(1, SeqCst) != 0 {
            std::thread::yield_now();
        }
    }

    pub fn unlock(&self) {
        self.lock.store(0, SeqCst);
    }

    /// The changes so far, if none is under way.
    pub fn version(&self) -> Option<u32> {
        let ended = self.changed.load(SeqCst);
        (self.changing.load(SeqCst) == ended).then_some(ended)
    }

    /// Notes that an endpoint is about to be put into the slot, which is locked, and what calls under way may do to it.
    pub fn will_be(&self, board: &Board, object: u32) {
        self.before.store(self.object.load(SeqCst), SeqCst);
        self.changing.fetch_add(1, SeqCst);
        self.object.store(object, SeqCst);
        // A call that has begun before it could see the new endpoint may meet that.
        let begun = Begun::of(self.under_way.load(SeqCst)).each_once();
        if let Some(object) = board.object(object) {
            object.begun.fetch_add(begun, SeqCst);
        }
    }

    /// Notes that it is there.
    pub fn is_there(&self) {
        self.changed.fetch_add(1, SeqCst);
    }

    /// Becomes a copy of a slot of another process, which is locked.
    pub fn inherit(&self, from: &Slot) {
        self.object.store(from.object.load(SeqCst), SeqCst);
    }
}
