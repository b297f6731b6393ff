// SPDX-License-Identifier: LGPL-2.1

//! Copies by CPU to and from maps.

use std::ffi::c_void;

use crate::barrier::store_barrier;
use crate::error::Error;
use crate::error::Result;
use crate::flags;
use crate::handles::Handle;
use crate::maps::Kind;
use crate::maps::MAPS;
use crate::sequences;
use crate::sequences::Status;

/// Checks whether all stores have arrived, if the flags ask for that.
fn check_if_wanted(sequence: Handle, wanted: u32) -> Result<()> {
    if wanted & flags::ERROR_CHECK == 0 {
        return Ok(());
    }
    match sequences::check(sequence, 0)? {
        Status::Ok => Ok(()),
        _ => Err(Error::TRANSFER_FAILED),
    }
}

/// Implements `SCIMemCpy()`.
///
/// # Safety
///
/// `memory` has `size` bytes, which the caller may read, or write with `BLOCK_READ`.
pub unsafe fn copy(
    sequence: Handle,
    memory: *mut c_void,
    map: Handle,
    offset: usize,
    size: usize,
    wanted: u32,
) -> Result<()> {
    let map = MAPS.get(map)?;
    let there = map.range(offset, size)?;
    if wanted & flags::BLOCK_READ == 0 && !map.is_writable() {
        return Err(Error::ACCESS);
    }
    if memory.is_null() && size > 0 {
        return Err(Error::ILLEGAL_PARAMETER);
    }
    if wanted & flags::ERROR_CHECK != 0 && sequence.is_null() {
        return Err(Error::ILLEGAL_PARAMETER);
    }
    if wanted & flags::BLOCK_READ != 0 {
        if let Kind::Broadcast(..) = map.kind() {
            return Err(Error::ILLEGAL_OPERATION);
        }
        // SAFETY: The range is inside the map, which is held; the rest by the contract.
        unsafe { core::ptr::copy(there.cast_const(), memory, size) };
        return check_if_wanted(sequence, wanted);
    }
    match map.kind() {
        // SAFETY: As for the read above.
        Kind::Broadcast(broadcast, _) => unsafe {
            broadcast.copy(memory, map.within(offset), size);
        },
        Kind::Local(..) | Kind::Remote(..) => {
            // SAFETY: As for the read above.
            unsafe { core::ptr::copy(memory.cast_const(), there, size) };
            store_barrier();
        }
    }
    check_if_wanted(sequence, wanted)
}

/// Implements `SCIMemWrite()`.
///
/// # Safety
///
/// `memory` has `size` bytes, which the caller may read. `remote` is an address in a map, with at
/// least `size` bytes from there on.
pub unsafe fn write(memory: *mut c_void, remote: *mut c_void, size: usize) -> Result<()> {
    if memory.is_null() || remote.is_null() {
        return Err(Error::ILLEGAL_PARAMETER);
    }
    // SAFETY: By the contract of this function.
    unsafe { core::ptr::copy(memory.cast_const(), remote, size) };
    store_barrier();
    Ok(())
}
