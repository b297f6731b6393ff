// SPDX-License-Identifier: LGPL-2.1

//! Devices that one host lends to another, and devices that reach a remote segment by themselves.
//! This library has none, and each function returns NOT_SUPPORTED. Programs that can do without
//! such devices can be built and run.

use super::ErrorPlace;
use super::call;
use super::exported;
use super::put;
use crate::error::Error;
use crate::flags;
use crate::handles::Handle;

/// Answers a function of this file with NOT_SUPPORTED. Sets the handle, if there is one, to null.
///
/// # Safety
///
/// Pointers are null or can be written to.
unsafe fn not_supported(handle: *mut Handle, flags: u32, allowed: u32, error: ErrorPlace) {
    // SAFETY: By the contract of this function.
    unsafe {
        call(error, (), || {
            put(handle, core::ptr::null_mut());
            flags::check(flags, allowed)?;
            Err(Error::NOT_SUPPORTED)
        })
    }
}

exported! {
    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIBorrowDevice(
        _sd: Handle,
        device: *mut Handle,
        _id: u32,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe { not_supported(device, flags, flags::SHARED, error) }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIReturnDevice(
        _device: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe { not_supported(core::ptr::null_mut(), flags, 0, error) }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIConnectDeviceMemory(
        _sd: Handle,
        segment: *mut Handle,
        _device: Handle,
        _adapter: u32,
        _id: u32,
        _bar: u32,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe { not_supported(segment, flags, flags::SHARED | flags::BAR, error) }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIMapLocalSegmentForDevice(
        _segment: Handle,
        _adapter: u32,
        _device: Handle,
        _address: *mut u64,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe { not_supported(core::ptr::null_mut(), flags, flags::SHARED, error) }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIUnmapLocalSegmentForDevice(
        _segment: Handle,
        _adapter: u32,
        _device: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe { not_supported(core::ptr::null_mut(), flags, 0, error) }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIMapRemoteSegmentForDevice(
        _segment: Handle,
        _device: Handle,
        _address: *mut u64,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe { not_supported(core::ptr::null_mut(), flags, flags::SHARED, error) }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIUnmapRemoteSegmentForDevice(
        _segment: Handle,
        _device: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe { not_supported(core::ptr::null_mut(), flags, 0, error) }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIRegisterPCIeRequester(
        _sd: Handle,
        _adapter: u32,
        _bus: u32,
        _function: u32,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe { not_supported(core::ptr::null_mut(), flags, 0, error) }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIUnregisterPCIeRequester(
        _sd: Handle,
        _adapter: u32,
        _bus: u32,
        _function: u32,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe { not_supported(core::ptr::null_mut(), flags, 0, error) }
    }
}
