// SPDX-License-Identifier: LGPL-2.1

//! Threads of this library. They block all signals, so that other threads of the program handle
//! them.

use std::sync::Mutex;
use std::thread;
use std::thread::JoinHandle;
use std::thread::ThreadId;

use crate::error::Error;
use crate::error::Result;
use crate::lock::lock;

/// Bytes of a thread's stack. Callbacks are C functions, which expect a stack as large as the C
/// library's.
const STACK: usize = 8 << 20;

/// Starts a thread that blocks all signals.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let mask = SignalMask::block_all();
    let builder = thread::Builder::new().name(name.to_owned());
    let spawned = builder.stack_size(STACK).spawn(body);
    drop(mask);
    spawned.map_err(|_| Error::NOSPC)
}

/// The signal mask of the calling thread, restored on drop.
struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// Blocks all signals. A thread that is started now inherits the mask.
    fn block_all() -> Self {
        // SAFETY: A set of signals is plain data, which sigfillset() fills in.
        let (mut all, mut old): (libc::sigset_t, libc::sigset_t) =
            unsafe { (core::mem::zeroed(), core::mem::zeroed()) };
        // SAFETY: Both are variables of this function.
        unsafe {
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        }
        Self(old)
    }
}

impl Drop for SignalMask {
    fn drop(&mut self) {
        // SAFETY: The set is the one that the thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, core::ptr::null_mut()) };
    }
}

unsafe extern "C" {
    // As in <pthread.h>.
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

const CANCEL_DISABLE: libc::c_int = 1;

/// A guard that keeps the thread from being cancelled. Cancellation unwinds, and frames of this
/// library can't be unwound. A cancel request takes effect after the guard is dropped.
pub struct NotCancelled(libc::c_int);

impl NotCancelled {
    /// Disables cancellation.
    #[inline]
    pub fn new() -> Self {
        let mut old = 0;
        // SAFETY: `old` has room for the old state.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut old) };
        Self(old)
    }
}

impl Drop for NotCancelled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: The state is the one that the thread had; a null pointer ignores the other one.
        unsafe { pthread_setcancelstate(self.0, core::ptr::null_mut()) };
    }
}

/// A guard that keeps signal handlers from running in the thread, and the thread from being
/// cancelled. The thread holds a lock for which a handler may have to wait.
pub struct Uninterrupted {
    // Fields are dropped in this order.
    _signals: SignalMask,
    _whole: NotCancelled,
}

impl Uninterrupted {
    /// Blocks signals and cancellation.
    pub fn new() -> Self {
        let whole = NotCancelled::new();
        Self {
            _signals: SignalMask::block_all(),
            _whole: whole,
        }
    }
}

/// The thread that makes the callbacks of a resource.
#[derive(Default)]
pub struct Caller(Mutex<Option<JoinHandle<()>>>);

impl Caller {
    /// Starts the thread.
    pub fn start(&self, body: impl FnOnce() + Send + 'static) -> Result<()> {
        *lock(&self.0) = Some(spawn("sisci-callback", body)?);
        Ok(())
    }

    /// Returns the id of the thread.
    pub fn id(&self) -> Option<ThreadId> {
        lock(&self.0).as_ref().map(|handle| handle.thread().id())
    }

    /// Waits until the thread ends. The caller must have caused it to end, and no callback comes
    /// afterwards. A callback that releases its own resource does not wait for itself.
    pub fn join(&self) {
        let handle = lock(&self.0).take();
        if let Some(handle) = handle {
            if handle.thread().id() != thread::current().id() {
                // The thread does not panic: callbacks are C.
                let _ = handle.join();
            }
        }
    }
}
