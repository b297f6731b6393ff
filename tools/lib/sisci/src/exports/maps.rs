// SPDX-License-Identifier: LGPL-2.1

//! Maps of segments.

use super::ErrorPlace;
use super::call;
use super::exported;
use super::required;
use crate::error::Error;
use crate::flags;
use crate::handles::Handle;
use crate::maps;
use crate::maps::MAPS;
use crate::sequences;
use std::ffi::c_void;

exported! {
    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIMapLocalSegment(
        segment: Handle,
        map: *mut Handle,
        offset: usize,
        size: usize,
        address: *mut c_void,
        flags: u32,
        error: ErrorPlace,
    ) -> *mut c_void {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, core::ptr::null_mut(), || {
                let allowed = flags::FIXED_MAP_ADDR | flags::READONLY_MAP | flags::MAP_HINTS | flags::BROADCAST;
                flags::check(flags, allowed)?;
                let map = required(map)?;
                let wanted = maps::Wanted {
                    offset,
                    size,
                    address,
                    flags,
                };
                let (handle, mapped) = maps::map_local(segment, wanted)?;
                map.write(handle);
                Ok(mapped)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIMapRemoteSegment(
        segment: Handle,
        map: *mut Handle,
        offset: usize,
        size: usize,
        address: *mut c_void,
        flags: u32,
        error: ErrorPlace,
    ) -> *mut c_void {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, core::ptr::null_mut(), || {
                let allowed = flags::FIXED_MAP_ADDR | flags::READONLY_MAP | flags::MAP_HINTS | flags::BROADCAST;
                flags::check(flags, allowed)?;
                let map = required(map)?;
                let wanted = maps::Wanted {
                    offset,
                    size,
                    address,
                    flags,
                };
                let (handle, mapped) = maps::map_remote(segment, wanted)?;
                map.write(handle);
                Ok(mapped)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIUnmapSegment(
        map: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                let map = MAPS.remove(map)?;
                sequences::release_map(&map);
                Ok(())
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCICacheSync(
        map: Handle,
        address: *mut c_void,
        size: usize,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, flags::CACHE_FLUSH | flags::CACHE_INVALIDATE)?;
                let map = MAPS.get(map)?;
                let begin = (address as usize).checked_sub(map.address() as usize);
                map.range(begin.ok_or(Error::OUT_OF_RANGE)?, size)?;
                // The caches of hosts are coherent with writes that come over PCI Express.
                sequences::flush();
                Ok(())
            })
        }
    }
}
