// SPDX-License-Identifier: LGPL-2.1

//! Copies by CPU to and from maps.

use std::ffi::c_void;
#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::Ordering::SeqCst;
#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::fence;

use crate::error::Error;
use crate::error::Result;
use crate::flags;
use crate::handles::Handle;
use crate::maps::Kind;
use crate::maps::MAPS;
use crate::sequences;
use crate::sequences::Status;

/// All stores so far go out before those that follow, also those to write-combined memory.
#[inline]
pub fn store_barrier() {
    // It orders stores behind stores, and empties the buffers of write-combined memory.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: The instruction is one of each processor of this kind.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    fence(SeqCst);
}

/// Looks whether all has arrived, if the flags say so.
fn check_if_wanted(sequence: Handle, wanted: u32) -> Result<()> {
    if wanted & flags::ERROR_CHECK == 0 {
        return Ok(());
    }
    match sequences::check(sequence, 0)? {
        Status::Ok => Ok(()),
        _ => Err(Error::TRANSFER_FAILED),
    }
}

/// `SCIMemCpy()`
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
    } else {
        // SAFETY: As above.
        unsafe { core::ptr::copy(memory.cast_const(), there, size) };
        match map.kind() {
            Kind::Broadcast(broadcast, _) => broadcast.send_range(map.within(offset), size),
            Kind::Local(..) | Kind::Remote(..) => store_barrier(),
        }
    }
    check_if_wanted(sequence, wanted)
}

/// `SCIMemWrite()`
///
/// # Safety
///
/// `memory` has `size` bytes, which the caller may read, and `remote` is an address in a map with so many
/// bytes behind it.
pub unsafe fn write(memory: *mut c_void, remote: *mut c_void, size: usize) -> Result<()> {
    if memory.is_null() || remote.is_null() {
        return Err(Error::ILLEGAL_PARAMETER);
    }
    // SAFETY: By the contract of this function.
    unsafe { core::ptr::copy(memory.cast_const(), remote, size) };
    store_barrier();
    Ok(())
}
