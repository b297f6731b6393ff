// SPDX-License-Identifier: LGPL-2.1

//! Sequences, barriers, copies by CPU.

use super::ErrorPlace;
use super::call;
use super::exported;
use super::put;
use super::required;
use crate::copies;
use crate::error::Error;
use crate::error::OK;
use crate::flags;
use crate::handles::Handle;
use crate::library;
use crate::sequences;
use std::ffi::c_int;
use std::ffi::c_void;

/// Returns the error, or NOT_INITIALIZED after the library was terminated, which removes all
/// sequences.
#[cold]
fn unless_ended(error: Error) -> Error {
    library::check_running().err().unwrap_or(error)
}

exported! {
    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCICreateMapSequence(
        map: Handle,
        sequence: *mut Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, flags::FAST_BARRIER)?;
                required(sequence)?.write(sequences::create(map)?);
                Ok(())
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIRemoveSequence(
        sequence: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                sequences::remove(sequence)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIStartSequence(
        sequence: Handle,
        flags: u32,
        error: ErrorPlace,
    ) -> u32 {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, sequences::Status::NotRetriable as u32, || {
                flags::check(flags, 0)?;
                Ok(sequences::start(sequence)? as u32)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCICheckSequence(
        sequence: Handle,
        flags: u32,
        error: ErrorPlace,
    ) -> u32 {
        // This does not use call(): nothing here panics, and programs check after every few stores.
        let allowed = flags::NO_FLUSH | flags::NO_STORE_BARRIER | flags::FLUSH_CPU_BUFFERS_ONLY;
        let looked = flags::check(flags, allowed).and_then(|()| sequences::check(sequence, flags));
        let (status, code) = match looked {
            Ok(status) => (status, OK),
            Err(error) => (sequences::Status::NotRetriable, unless_ended(error).code()),
        };
        // SAFETY: By the contract of this function.
        unsafe { put(error, code) };
        status as u32
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// None.
    fn SCIFlush(
        _sequence: Handle,
        _flags: u32,
    ) {
        sequences::flush();
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// None.
    fn SCIStoreBarrier(
        sequence: Handle,
        _flags: u32,
    ) {
        sequences::barrier(sequence);
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// `memory` has `size` bytes; `error` is null or can be written to.
    fn SCIMemCpy(
        sequence: Handle,
        memory: *mut c_void,
        map: Handle,
        offset: usize,
        size: usize,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, flags::BLOCK_READ | flags::ERROR_CHECK)?;
                copies::copy(sequence, memory, map, offset, size, flags)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// `memory` and `remote` have `size` bytes; `error` is null or can be written to.
    fn SCIMemWrite(
        memory: *mut c_void,
        remote: *mut c_void,
        size: usize,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                copies::write(memory, remote, size)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// None.
    fn SetSciMemCopyFunction(
        _choice: c_int,
    ) {
        // The library has one copy function, which is good for all sizes.
    }
}
