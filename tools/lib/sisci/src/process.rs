// SPDX-License-Identifier: LGPL-2.1

//! The identity of this process: a forked child begins without any state.
//!
//! A word in a page that the kernel wipes in children (`MADV_WIPEONFORK`) tells, however the child
//! was made. Each call of the library checks the word. The first call of a child forgets the
//! parent's state, without destructors and without locks: a thread that held a lock does not exist
//! any more. State that must be forgotten is [`PerProcess`]; `release` lists it. The descriptors
//! are closed at the fork, see `descriptors`.

use std::cell::UnsafeCell;
use std::ops::Deref;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::AcqRel;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::Ordering::Release;

use crate::error::Result;
use crate::mapping::Mapping;

/// The page was wiped: all state is that of the parent.
const WIPED: u32 = 0;
/// A thread is forgetting the parent's state.
const FORGETTING: u32 = 1;
/// All state is that of this process.
const OWN: u32 = 2;

/// The word of a process that has not initialized the library yet: there is nothing to inherit.
static NOT_BEGUN: AtomicU32 = AtomicU32::new(OWN);

/// The address of the word. Once the word is in a page, it stays there.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const NOT_BEGUN).cast_mut());

#[inline(always)]
fn word() -> &'static AtomicU32 {
    // SAFETY: The address is that of a static word, or of a page that is never unmapped.
    unsafe { &*WORD.load(Acquire) }
}

/// Returns whether the state of the library belongs to this process.
#[inline(always)]
pub fn is_own() -> bool {
    word().load(Acquire) == OWN
}

/// Makes children detectable from now on. Must be called before there is any state.
pub fn begin() -> Result<()> {
    let before = (&raw const NOT_BEGUN).cast_mut();
    if WORD.load(Acquire) != before {
        return Ok(());
    }
    let page = Mapping::wiped_in_children(size_of::<AtomicU32>())?;
    let word: *mut AtomicU32 = page.address().cast();
    // SAFETY: The page begins with room for it, and all is zero.
    unsafe { (*word).store(OWN, Relaxed) };
    // If another thread was faster, this page is unmapped.
    if WORD.compare_exchange(before, word, AcqRel, Acquire).is_ok() {
        page.forget();
    }
    Ok(())
}

/// Calls `forget` in a child that has not done so. Returns when `forget` is done.
#[inline(always)]
pub fn enter(forget: impl FnOnce(&NewProcess)) {
    if !is_own() {
        forget_once(forget);
    }
}

#[cold]
fn forget_once(forget: impl FnOnce(&NewProcess)) {
    let word = word();
    if word
        .compare_exchange(WIPED, FORGETTING, AcqRel, Acquire)
        .is_ok()
    {
        forget(&NewProcess(()));
        word.store(OWN, Release);
    }
    while word.load(Acquire) != OWN {
        std::thread::yield_now();
    }
}

/// Proof that no thread of this process uses the state: all threads that enter wait.
pub struct NewProcess(());

/// A static value of which each child process gets a new one after fork.
pub struct PerProcess<T>(UnsafeCell<T>);

// SAFETY: The value is replaced only while no thread uses it, see `NewProcess`.
unsafe impl<T: Sync> Sync for PerProcess<T> {}

impl<T> PerProcess<T> {
    /// Creates the value of the first process.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Replaces the parent's value, which is not dropped.
    pub fn renew(&self, value: T, _: &NewProcess) {
        // SAFETY: No thread uses the value, by the proof.
        unsafe { self.0.get().write(value) };
    }
}

impl<T> Deref for PerProcess<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: The value is replaced only while no thread uses it, see `NewProcess`.
        unsafe { &*self.0.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forks a child that exits with the result of the function. Returns its exit status.
    fn in_child(say: impl Fn() -> i32) -> i32 {
        // SAFETY: The child calls nothing that another thread could hold a lock of.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: The child ends here.
            unsafe { libc::_exit(say()) };
        }
        let mut status = -1;
        // SAFETY: `status` has room for the status.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn forked_child_resets_its_state_once() -> Result<()> {
        static VALUE: PerProcess<AtomicU32> = PerProcess::new(AtomicU32::new(1));
        let forgotten = AtomicU32::new(0);
        let forget = |process: &NewProcess| {
            forgotten.fetch_add(1, Relaxed);
            VALUE.renew(AtomicU32::new(5), process);
        };
        let enter_twice = || {
            let before = is_own();
            enter(forget);
            enter(forget);
            let all = (
                before,
                is_own(),
                forgotten.load(Relaxed),
                VALUE.load(Relaxed),
            );
            i32::from(all == (false, true, 1, 5))
        };
        begin()?;
        VALUE.store(2, Relaxed);
        enter(forget);
        assert_eq!(in_child(enter_twice), 1);
        // A child of a child is another one.
        assert_eq!(
            in_child(|| enter_twice() & in_child(|| i32::from(!is_own()))),
            1
        );
        assert_eq!((forgotten.load(Relaxed), VALUE.load(Relaxed)), (0, 2));
        assert!(is_own());
        Ok(())
    }
}
