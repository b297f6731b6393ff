// SPDX-License-Identifier: LGPL-2.1

//! The functions of `scif_ring.h`, as C sees them: pointers are checked, and errors become -1 and
//! `errno`.
//!
//! Nothing here panics on purpose; a panic ends the process, as it must not unwind into C.

use std::ffi::c_int;
use std::ffi::c_short;
use std::ffi::c_void;

use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::ring::Ready;
use crate::ring::Ring;

/// `SCIF_SEND_BLOCK` and `SCIF_RECV_BLOCK`.
const BLOCK: c_int = 1;

fn fail(error: Errno) -> c_int {
    // SAFETY: The variable belongs to the calling thread.
    unsafe { *libc::__errno_location() = error.raw_os_error() };
    -1
}

/// Returns the ring of a handle.
///
/// # Safety
///
/// The handle is null, or was returned by `scif_ring_open()` and not closed.
unsafe fn ring_of<'a>(ring: *const Ring) -> Result<&'a Ring, Errno> {
    // SAFETY: Passed on to the caller.
    unsafe { ring.as_ref() }.ok_or(Errno::INVAL)
}

/// Checks the arguments of a call. Returns the number of bytes and whether to wait.
fn checked(pointer: *const c_void, len: c_int, flags: c_int) -> Result<(usize, bool), Errno> {
    let len = usize::try_from(len).map_err(|_| Errno::INVAL)?;
    match flags {
        0 | BLOCK if !pointer.is_null() || len == 0 => Ok((len, flags == BLOCK)),
        0 | BLOCK => Err(Errno::FAULT),
        _ => Err(Errno::INVAL),
    }
}

fn moved(result: Result<usize, Errno>) -> c_int {
    match result {
        // The count is at most the `len` of the caller, which is an int.
        Ok(count) => count as c_int,
        Err(error) => fail(error),
    }
}

/// Makes a ring, see `scif_ring(3)`.
///
/// # Safety
///
/// The caller does not close the descriptor before the ring.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scif_ring_open(epd: c_int, size: usize) -> *mut Ring {
    // SAFETY: Passed on to the caller.
    match unsafe { Ring::new(epd, size) } {
        Ok(ring) => Box::into_raw(Box::new(ring)),
        Err(error) => {
            fail(error);
            std::ptr::null_mut()
        }
    }
}

/// Returns 1, or 0 if the connection carries the bytes; then `errno` says why.
///
/// # Safety
///
/// The handle was returned by `scif_ring_open()` and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scif_ring_is_mapped(ring: *const Ring) -> c_int {
    // SAFETY: Passed on to the caller.
    match unsafe { ring_of(ring) }.map(Ring::is_mapped) {
        Ok(Ok(())) => 1,
        Ok(Err(reason)) => {
            fail(reason);
            0
        }
        Err(error) => fail(error),
    }
}

/// Sends, like `scif_send()`.
///
/// # Safety
///
/// The handle was returned by `scif_ring_open()` and not closed, and there are `len` bytes at
/// `msg`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scif_ring_send(
    ring: *const Ring,
    msg: *const c_void,
    len: c_int,
    flags: c_int,
) -> c_int {
    let send = || {
        let (len, block) = checked(msg, len, flags)?;
        // SAFETY: Passed on to the caller.
        let ring = unsafe { ring_of(ring) }?;
        if len == 0 {
            return Ok(0);
        }
        // SAFETY: As above.
        let bytes = unsafe { std::slice::from_raw_parts(msg.cast(), len) };
        ring.send(bytes, block)
    };
    moved(send())
}

/// Receives, like `scif_recv()`.
///
/// # Safety
///
/// The handle was returned by `scif_ring_open()` and not closed, and there is room for `len` bytes
/// at `msg`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scif_ring_recv(
    ring: *const Ring,
    msg: *mut c_void,
    len: c_int,
    flags: c_int,
) -> c_int {
    let recv = || {
        let (len, block) = checked(msg, len, flags)?;
        // SAFETY: Passed on to the caller.
        let ring = unsafe { ring_of(ring) }?;
        if len == 0 {
            return Ok(0);
        }
        // SAFETY: Passed on to the caller. The ring does not read the bytes before it writes them.
        let bytes = unsafe { std::slice::from_raw_parts_mut(msg.cast(), len) };
        ring.recv(bytes, block)
    };
    moved(recv())
}

/// Returns which of `POLLIN` and `POLLOUT` are ready, with `POLLHUP` if the peer is gone. If
/// `wakes` is not null, stores there the events of the descriptor to wait for if none is ready.
///
/// # Safety
///
/// The handle was returned by `scif_ring_open()` and not closed. `wakes` is null, or there is room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scif_ring_ready(
    ring: *const Ring,
    events: c_short,
    wakes: *mut c_short,
) -> c_int {
    let ready = || {
        // SAFETY: Passed on to the caller.
        let ring = unsafe { ring_of(ring) }?;
        let events = PollFlags::from_bits_retain(events as u16);
        let wanted = Ready {
            to_recv: events.contains(PollFlags::IN),
            to_send: events.contains(PollFlags::OUT),
            over: false,
        };
        // SAFETY: Passed on to the caller.
        if let Some(wakes) = unsafe { wakes.as_mut() } {
            *wakes = ring.wakes(wanted).bits() as c_short;
        }
        ring.ready(wanted)
    };
    match ready() {
        Ok(ready) => {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, ready.to_recv);
            flags.set(PollFlags::OUT, ready.to_send);
            flags.set(PollFlags::HUP, ready.over);
            c_int::from(flags.bits())
        }
        Err(error) => fail(error),
    }
}

/// Ends a ring. The peer can still receive bytes that were sent. The caller must still close the
/// connection.
///
/// # Safety
///
/// The handle was returned by `scif_ring_open()` and not closed, and no thread is in a call with
/// it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scif_ring_close(ring: *mut Ring) -> c_int {
    if ring.is_null() {
        return fail(Errno::INVAL);
    }
    // SAFETY: The handle is the box of `scif_ring_open()`, and the caller uses it no more.
    drop(unsafe { Box::from_raw(ring) });
    0
}
