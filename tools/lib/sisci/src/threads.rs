// SPDX-License-Identifier: LGPL-2.1

//! Threads of this library: programs handle their signals elsewhere.

use std::sync::Mutex;
use std::thread;
use std::thread::JoinHandle;
use std::thread::ThreadId;

use crate::error::Error;
use crate::error::Result;
use crate::lock::lock;

/// Bytes of a thread's stack: callbacks are C, and expect what the C library gives.
const STACK: usize = 8 << 20;

/// Starts a thread that blocks all signals.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let mask = SignalMask::block_all();
    let builder = thread::Builder::new().name(name.to_owned());
    let spawned = builder.stack_size(STACK).spawn(body);
    drop(mask);
    spawned.map_err(|_| Error::NOSPC)
}

/// The signals that the calling thread had blocked; it has again when this is dropped.
struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// Blocks all, which threads inherit that are started now.
    fn block_all() -> Self {
        // SAFETY: A set of signals is plain data, which sigfillset() fills in.
        let (mut all, mut old): (libc::sigset_t, libc::sigset_t) =
            unsafe { (core::mem::zeroed(), core::mem::zeroed()) };
        // SAFETY: Both are sets of this function.
        unsafe {
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        }
        Self(old)
    }
}

impl Drop for SignalMask {
    fn drop(&mut self) {
        // SAFETY: It is the set that the thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, core::ptr::null_mut()) };
    }
}

unsafe extern "C" {
    // As in <pthread.h>.
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

const CANCEL_DISABLE: libc::c_int = 1;

/// While it is there, the thread is not cancelled: what unwinds it would meet frames of this library, which can't
/// be left like that. It is cancelled afterwards.
pub struct NotCancelled(libc::c_int);

impl NotCancelled {
    /// From now on.
    #[inline]
    pub fn new() -> Self {
        let mut old = 0;
        // SAFETY: There is room for the old state.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut old) };
        Self(old)
    }
}

impl Drop for NotCancelled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: It is the state that the thread had; nobody wants to know the other one.
        unsafe { pthread_setcancelstate(self.0, core::ptr::null_mut()) };
    }
}

/// While it is there, no handler of a signal runs in the thread, and it is not cancelled: it holds a lock for which a
/// handler may have to wait.
pub struct Uninterrupted {
    // They end in this order.
    _signals: SignalMask,
    _whole: NotCancelled,
}

impl Uninterrupted {
    /// From now on.
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
    /// Starts it.
    pub fn start(&self, body: impl FnOnce() + Send + 'static) -> Result<()> {
        *lock(&self.0) = Some(spawn("sisci-callback", body)?);
        Ok(())
    }

    /// Which it is.
    pub fn id(&self) -> Option<ThreadId> {
        lock(&self.0).as_ref().map(|handle| handle.thread().id())
    }

    /// Waits for its end, which the caller has brought about: no callback comes after that. A
    /// callback that releases its own resource does not wait for itself.
    pub fn join(&self) {
        let handle = lock(&self.0).take();
        if let Some(handle) = handle {
            if handle.thread().id() != thread::current().id() {
                // It does not panic: callbacks are C.
                let _ = handle.join();
            }
        }
    }
}
