// SPDX-License-Identifier: LGPL-2.1

//! What both directions of a ring do alike: whose turn it is, and how one waits.

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

/// Calls in vain of somebody who does not wait, before the kernel is asked whether the peer is there.
const PATIENCE: u32 = 4096;

/// Looks before the processor may rest, or anybody looks at the clock.
const LOOKS: u32 = 64;

/// The memory that a ring has at both ends.
pub struct Areas {
    /// What the peer stores to.
    pub own: Area,
    /// What we store to.
    pub peer: Area,
}

/// Takes the turn of a direction; who must not wait for that gets none if it is taken.
pub fn turn<T>(state: &Mutex<T>, block: bool) -> Option<MutexGuard<'_, T>> {
    // A panic leaves what is in there consistent: counters move in one step.
    match state.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) if block => {
            Some(state.lock().unwrap_or_else(PoisonError::into_inner))
        }
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Stays awake for what is probably soon there, as long as that has been worth it. Says since when, if it is not there.
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

/// Moves `len` bytes by `some`, which is given how many are done and moves some more, or none if it had to wait or must
/// not. Returns how many were moved; an error counts if none were.
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

/// Somebody who does not wait has called in vain: now and then, of `idle` times in a row, the kernel is asked for the peer.
pub fn called_in_vain(idle: &mut u32, bells: &impl Bells) {
    *idle = idle.wrapping_add(1);
    if *idle % PATIENCE == 0 {
        bells.look();
    }
}

/// Tells the peer at which count it is to ring, see `bells.rs`. Whoever has called this looks at the count.
pub fn make_wish(areas: &Areas, word: Word, value: u32) {
    areas.peer.store(word, value);
    barriers::all();
    areas.peer.load(word);
    barriers::all();
}

/// ECONNRESET once the peer has left, or why it is over.
#[inline]
pub fn check_open(areas: &Areas, bells: &impl Bells) -> Result<(), Errno> {
    bells.check()?;
    match areas.own.load(Word::Closed) {
        0 => Ok(()),
        _ => Err(Errno::CONNRESET),
    }
}
