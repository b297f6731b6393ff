// SPDX-License-Identifier: LGPL-2.1

//! The code that both directions of a ring share: taking turns, and waiting.

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::TryLockError;
use std::time::Instant;

use awake::Awake;
use rustix::io::Errno;

use crate::area::Area;
use crate::barriers;
use crate::bells::Bells;
use crate::header::Word;

/// Number of failed calls in a row that do not wait, before the kernel is asked whether the peer is
/// there.
const PATIENCE: u32 = 4096;

/// Number of polls before the CPU is told that it spins, and the clock is read.
const LOOKS: u32 = 64;

/// The memory that a ring has at both ends.
pub struct Areas {
    /// The memory that the peer stores to.
    pub own: Area,
    /// The memory that this end stores to.
    pub peer: Area,
}

/// Takes the turn of a direction. Returns none if another thread has the turn and `block` is false.
pub fn turn<T>(state: &Mutex<T>, block: bool) -> Option<MutexGuard<'_, T>> {
    // A panic leaves the state consistent: counters move in one step.
    match state.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) if block => {
            Some(state.lock().unwrap_or_else(PoisonError::into_inner))
        }
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Polls `is_there` for as long as polling has paid off lately. Returns the time when it began if
/// `is_there` stayed false.
pub fn stay_awake(awake: &Awake, is_there: impl Fn() -> bool) -> Result<(), Instant> {
    let limit = awake.limit();
    let start = Instant::now();
    if limit.is_zero() {
        return Err(start);
    }
    loop {
        if (0..LOOKS).any(|_| is_there()) {
            awake.learn(start.elapsed());
            return Ok(());
        }
        if start.elapsed() >= limit {
            return Err(start);
        }
        std::hint::spin_loop();
    }
}

/// Moves `len` bytes by `some`. Each call of `some` is given how many bytes are done; it moves some
/// more, or returns 0 if it had to wait or must not wait. Returns how many bytes were moved, or an
/// error if none were.
#[inline]
pub fn move_all(
    len: usize,
    block: bool,
    mut some: impl FnMut(usize) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut done = 0;
    while done < len {
        match some(done) {
            Ok(0) if !block => break,
            Ok(count) => done += count,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Counts a failed call that does not wait; `idle` is the number of such calls in a row. Asks the
/// kernel for the peer once in [`PATIENCE`] calls.
pub fn called_in_vain(idle: &mut u32, bells: &impl Bells) {
    *idle = idle.wrapping_add(1);
    if *idle % PATIENCE == 0 {
        bells.look();
    }
}

/// Stores the wake-up request: the count at which the peer is to ring, see `bells.rs`. The caller
/// must read that count again afterwards.
pub fn make_wake_request(areas: &Areas, word: Word, value: u32) {
    areas.peer.store(word, value);
    barriers::all();
    areas.peer.load(word);
    barriers::all();
}

/// Returns ECONNRESET once the peer has left, or the error that ended the ring.
#[inline]
pub fn check_open(areas: &Areas, bells: &impl Bells) -> Result<(), Errno> {
    bells.check()?;
    match areas.own.load(Word::Closed) {
        0 => Ok(()),
        _ => Err(Errno::CONNRESET),
    }
}
