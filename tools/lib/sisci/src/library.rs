// SPDX-License-Identifier: LGPL-2.1

//! The library as a whole: whether it is in use, and its attendant thread.
//!
//! A forked process has none of the threads, so the library is not initialized in it, see
//! `process`. The descriptors of its resources are closed at the fork, so that their names do not
//! stay taken.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;

use crate::attendant::Attendant;
use crate::descriptors;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::error::Result;
use crate::lock::lock;
use crate::process;
use crate::process::NewProcess;
use crate::process::PerProcess;

struct State {
    /// Number of calls of `SCIInitialize()` without `SCITerminate()`.
    count: usize,
    attendant: Option<Arc<Attendant>>,
}

impl State {
    const fn new() -> Self {
        Self {
            count: 0,
            attendant: None,
        }
    }
}

static STATE: PerProcess<Mutex<State>> = PerProcess::new(Mutex::new(State::new()));

/// Whether the library is initialized, for calls that need to know no more.
static RUNNING: AtomicBool = AtomicBool::new(false);

/// Whether forks are watched. This is no `Once`: a child that another thread forks during the call
/// would wait for ever.
static WATCHING: AtomicBool = AtomicBool::new(false);

extern "C" fn before_fork() {
    descriptors::before_fork();
}

extern "C" fn after_fork_in_parent() {
    descriptors::after_fork_in_parent();
}

extern "C" fn after_fork_in_child() {
    descriptors::after_fork_in_child();
}

/// Forgets the state of the parent process.
pub fn forget(process: &NewProcess) {
    RUNNING.store(false, Relaxed);
    descriptors::forget();
    STATE.renew(Mutex::new(State::new()), process);
}

/// Implements `SCIInitialize()`.
pub fn initialize() -> Result<()> {
    process::begin()?;
    if !WATCHING.swap(true, Relaxed) {
        let (parent, child) = (after_fork_in_parent, after_fork_in_child);
        // SAFETY: The functions do nothing that is forbidden around a fork.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(parent), Some(child)) };
    }
    let mut state = lock(&STATE);
    if state.count == 0 {
        Endpoint::open().map_err(|error| match error {
            Errno::NOENT | Errno::NXIO | Errno::NODEV => Error::INCONSISTENT_VERSIONS,
            error => error.into(),
        })?;
        state.attendant = Some(Attendant::start()?);
        RUNNING.store(true, Relaxed);
    }
    state.count += 1;
    Ok(())
}

/// Terminates the library: `SCITerminate()`. The last call has `release` release all resources.
pub fn terminate(release: impl FnOnce()) {
    let attendant = {
        let mut state = lock(&STATE);
        state.count = state.count.saturating_sub(1);
        if state.count > 0 {
            return;
        }
        RUNNING.store(false, Relaxed);
        state.attendant.take()
    };
    let Some(attendant) = attendant else { return };
    release();
    attendant.stop();
}

/// Returns NOT_INITIALIZED before `SCIInitialize()`, also in a child.
pub fn check_running() -> Result<()> {
    match RUNNING.load(Relaxed) && process::is_own() {
        true => Ok(()),
        false => Err(Error::NOT_INITIALIZED),
    }
}

/// Returns the attendant, the thread that handles unrequested events.
pub fn attendant() -> Result<Arc<Attendant>> {
    let state = lock(&STATE);
    state.attendant.clone().ok_or(Error::NOT_INITIALIZED)
}
