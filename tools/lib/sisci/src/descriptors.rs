// SPDX-License-Identifier: LGPL-2.1

//! Which descriptors of this process are this library's, for a process that is forked: it has none of the threads
//! that look after them, and as long as it kept them open, names would stay taken and connections would not end.
//!
//! What children close is a copy: the parent's goes on. There is a bit for each, so that the child can close them without a
//! lock. The parent goes on when that is done, so that what it closes then is closed; it sees that by the end of a pipe,
//! which comes also if the child dies.

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
    // What is beyond stays open in children.
    Some((OPEN.get(fd / 64)?, 1 << (fd % 64)))
}

/// A descriptor of this library's, which children close.
pub struct Descriptor(OwnedFd);

impl Descriptor {
    /// The number.
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
        // Before it is closed: the number may be somebody else's then.
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

/// In a child that was made without the C library, so that it has not closed them: they may have other owners by
/// now, so they stay open until it ends, or executes a program.
pub fn forget() {
    for word in &OPEN {
        word.store(0, Relaxed);
    }
}

/// The pipe's ends, while a process is forked; -1 if there is none.
static PIPE: [AtomicI32; 2] = [const { AtomicI32::new(-1) }; 2];

/// The process of which a thread forks, one at a time; 0 while none does. A child that was made by something else than
/// `fork()` may find that of its parent, which means nothing to it.
static FORKING: AtomicU32 = AtomicU32::new(0);

/// Belongs to the thread that forks, while it does.
struct Forking(UnsafeCell<Option<Uninterrupted>>);

// SAFETY: Only the thread for which `FORKING` stands uses it, in the process that has forked and in the other.
unsafe impl Sync for Forking {}

/// That thread handles no signal, as a handler may fork, and is not cancelled.
static WHOLE: Forking = Forking(UnsafeCell::new(None));

/// How long the process that has forked waits for the other.
const CHILD_MILLISECONDS: i32 = 1000;

fn end_fork() {
    // SAFETY: This is the thread that forks.
    let whole = unsafe { (*WHOLE.0.get()).take() };
    FORKING.store(0, Release);
    // Signals that have waited are handled now.
    drop(whole);
}

/// Before a process is forked.
pub fn before_fork() {
    let whole = Uninterrupted::new();
    let process = std::process::id();
    let is_free = |forking| (forking != process).then_some(process);
    while FORKING.fetch_update(Acquire, Relaxed, is_free).is_err() {
        std::thread::yield_now();
    }
    // SAFETY: This is the thread that forks. One that the parent of this process had is not this thread's to end.
    let before = unsafe { (*WHOLE.0.get()).replace(whole) };
    core::mem::forget(before);
    let mut ends = [-1; 2];
    if OPEN.iter().any(|word| word.load(Relaxed) != 0) {
        // SAFETY: There is room for two.
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
        // SAFETY: It is an end of the pipe, which nobody else has.
        unsafe { libc::close(fd) };
    }
}

/// In the process that has forked: waits until the other has closed its copies.
pub fn after_fork_in_parent() {
    close(&PIPE[1]);
    let fd = PIPE[0].load(Relaxed);
    if fd >= 0 {
        let mut end = libc::pollfd {
            fd,
            events: 0,
            revents: 0,
        };
        // SAFETY: It is one. A child that was made meanwhile by something else may have the other end, too, so the wait
        // has a limit.
        unsafe { libc::poll(&raw mut end, 1, CHILD_MILLISECONDS) };
    }
    close(&PIPE[0]);
    end_fork();
}

/// In the process that was forked: closes all. Async-signal-safe.
pub fn after_fork_in_child() {
    for (index, word) in OPEN.iter().enumerate() {
        let mut bits = word.swap(0, Relaxed);
        while bits != 0 {
            let fd = index * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            // SAFETY: Nobody in this process uses it: the library forgets it before it does anything.
            unsafe { libc::close(fd as RawFd) };
        }
    }
    close(&PIPE[0]);
    close(&PIPE[1]);
    end_fork();
}
