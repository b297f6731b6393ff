// SPDX-License-Identifier: GPL-2.0

//! Mapping memory for devices.
//!
//! C header: [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)

use core::ptr;

use kernel::{
    bindings,
    device::Device,
    dma::DataDirection,
    prelude::*,
    sync::aref::ARef, //
};

use super::bindings as own;

/// The attributes of memory that a device and the CPU use at the same time, for long.
///
/// `DMA_ATTR_REQUIRE_COHERENT` says just that: no bounce buffers, no cache maintenance, and an error
/// where the platform cannot do without. It also allows the same page to be mapped more than once,
/// as it is when a process registers its memory twice or when there are two devices.
pub(super) const SHARED: c_ulong = bindings::DMA_ATTR_REQUIRE_COHERENT as c_ulong;

/// The C device behind a Rust one.
pub(super) fn raw(device: &Device) -> *mut bindings::device {
    // `Device` is a transparent wrapper, of an `Opaque`, which may be written to through `&`.
    ptr::from_ref(device).cast_mut().cast()
}

/// Maps contiguous physical memory for a device and returns the bus address.
///
/// # Safety
///
/// The memory must be unmapped with [`unmap_phys`] before it is freed, and with the same arguments.
pub(super) unsafe fn map_phys(
    device: &ARef<Device>,
    phys: u64,
    len: usize,
    direction: DataDirection,
    attributes: c_ulong,
) -> Result<u64> {
    // SAFETY: The device is valid; the memory is, by the contract of this function.
    let bus = unsafe {
        bindings::dma_map_phys(raw(device), phys, len, direction.into(), attributes)
    };
    // SAFETY: The device is valid.
    if unsafe { own::scif_helper_dma_mapping_failed(raw(device), bus) } {
        return Err(ENOMEM);
    }
    Ok(bus)
}

/// Undoes [`map_phys`].
///
/// # Safety
///
/// The arguments are those of a call of [`map_phys`] that has not been undone.
pub(super) unsafe fn unmap_phys(
    device: &ARef<Device>,
    bus: u64,
    len: usize,
    direction: DataDirection,
    attributes: c_ulong,
) {
    // SAFETY: By the contract of this function.
    unsafe { bindings::dma_unmap_phys(raw(device), bus, len, direction.into(), attributes) };
}
