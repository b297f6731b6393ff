// SPDX-License-Identifier: LGPL-2.1

//! The set of descriptors that belong to this library, so that a forked child can close them. The
//! child has none of the threads that handle them. While the child kept them open, names would stay
//! taken and connections would not end.
//!
//! A child closes its copies; the parent keeps its own. The set has a bit for each descriptor, so
//! that the child needs no lock. The parent waits until the child is done, so that a descriptor
//! that the parent closes afterwards is really closed. The parent sees the end of a pipe, which
//! comes also if the child dies.

use std::cell::UnsafeCell;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd as _;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::Ordering::Release;

use crate::threads::Uninterrupted;

const WORDS: usize = 1024;

static OPEN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    // Descriptors beyond the set stay open in children.
    Some((OPEN.get(fd / 64)?, 1 << (fd % 64)))
}

/// A descriptor of this library. Children close it.
pub struct Descriptor(OwnedFd);

impl Descriptor {
    /// Returns the number.
    pub fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl From<OwnedFd> for Descriptor {
    fn from(fd: OwnedFd) -> Self {
        if let Some((word, bit)) = place(fd.as_raw_fd()) {
            word.fetch_or(bit, Relaxed);
        }
        Self(fd)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // Before the descriptor is closed: afterwards the number may belong to another file.
        if let Some((word, bit)) = place(self.raw()) {
            word.fetch_and(!bit, Relaxed);
        }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Forgets the set, in a child that was made without the C library's `fork()` and so has not closed
/// the descriptors. Their numbers may belong to other files by now. So they stay open until the
/// child exits or executes a program.
pub fn forget() {
    for word in &OPEN {
        word.store(0, Relaxed);
    }
}

/// The ends of the pipe while a process is forked; -1 if there is none.
static PIPE: [AtomicI32; 2] = [const { AtomicI32::new(-1) }; 2];

/// The process of which a thread forks, one thread at a time; 0 if none does. A child that was not
/// made by `fork()` may find its parent's number here, which it ignores.
static FORKING: AtomicU32 = AtomicU32::new(0);

/// A value that belongs to the forking thread while it forks.
struct Forking(UnsafeCell<Option<Uninterrupted>>);

// SAFETY: Only the thread that `FORKING` stands for uses the value, in the parent and in the child.
unsafe impl Sync for Forking {}

/// Keeps the forking thread from handling signals, as a handler may fork, and from being cancelled.
static WHOLE: Forking = Forking(UnsafeCell::new(None));

/// Time that the parent waits for the child.
const CHILD_MILLISECONDS: i32 = 1000;

fn end_fork() {
    // SAFETY: This is the forking thread.
    let whole = unsafe { (*WHOLE.0.get()).take() };
    FORKING.store(0, Release);
    // Signals that have waited are handled now.
    drop(whole);
}

/// Prepares a fork.
pub fn before_fork() {
    let whole = Uninterrupted::new();
    let process = std::process::id();
    let is_free = |forking| (forking != process).then_some(process);
    while FORKING.fetch_update(Acquire, Relaxed, is_free).is_err() {
        std::thread::yield_now();
    }
    // SAFETY: This is the forking thread. A value of a thread of this process's parent is not this
    // thread's to drop.
    let before = unsafe { (*WHOLE.0.get()).replace(whole) };
    core::mem::forget(before);
    let mut ends = [-1; 2];
    if OPEN.iter().any(|word| word.load(Relaxed) != 0) {
        // SAFETY: The array has room for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            ends = [-1; 2];
        }
    }
    PIPE[0].store(ends[0], Relaxed);
    PIPE[1].store(ends[1], Relaxed);
}

fn close(end: &AtomicI32) {
    let fd = end.swap(-1, Relaxed);
    if fd >= 0 {
        // SAFETY: The descriptor is an end of the pipe, and no other code has it.
        unsafe { libc::close(fd) };
    }
}

/// Waits in the parent until the child has closed its copies.
pub fn after_fork_in_parent() {
    close(&PIPE[1]);
    let fd = PIPE[0].load(Relaxed);
    if fd >= 0 {
        let mut end = libc::pollfd {
            fd,
            events: 0,
            revents: 0,
        };
        // SAFETY: `end` is one descriptor. The wait has a limit, as a child made meanwhile by other
        // means may hold the other end, too.
        unsafe { libc::poll(&raw mut end, 1, CHILD_MILLISECONDS) };
    }
    close(&PIPE[0]);
    end_fork();
}

/// Closes all descriptors of the set in the child. Async-signal-safe.
pub fn after_fork_in_child() {
    for (index, word) in OPEN.iter().enumerate() {
        let mut bits = word.swap(0, Relaxed);
        while bits != 0 {
            let fd = index * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            // SAFETY: No code in this process uses the descriptor: the library forgets it before
            // any other work.
            unsafe { libc::close(fd as RawFd) };
        }
    }
    close(&PIPE[0]);
    close(&PIPE[1]);
    end_fork();
}
