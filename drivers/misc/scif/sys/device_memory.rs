// SPDX-License-Identifier: GPL-2.0

//! Memory of a device of this node, which stays where it is, and which the CPU reaches through a mapping.
//!
//! It is a part of a memory BAR of a PCI device, and no RAM. Nothing keeps the device: who registers its
//! memory sees to it that the BAR stays what it is.
//!
//! C header: [`include/linux/io.h`](srctree/include/linux/io.h)

use core::ptr::NonNull;

use kernel::{
    bindings,
    io::PhysAddr,
    prelude::*, //
};

use super::{
    bindings as own,
    extent_table::{
        self,
        ExtentTable, //
    },
};

/// See the head of this file.
///
/// # Invariants
///
/// `base` is the start of an `ioremap`ped range, which is the memory of `runs`: one run, from `phys` on.
pub(super) struct DeviceMemory {
    base: NonNull<u8>,
    phys: u64,
    runs: ExtentTable,
}

impl DeviceMemory {
    /// `len` bytes at a physical address; the caller has seen that these are pages. EINVAL if they are not
    /// memory of one device. May sleep.
    pub(super) fn new(phys: u64, len: usize) -> Result<Self> {
        let runs = extent_table::collect(core::iter::once((phys, len as u64)))?;
        // SAFETY: It takes any range.
        if !unsafe { own::scif_helper_is_device_memory(phys as PhysAddr, len) } {
            return Err(EINVAL);
        }
        // SAFETY: It is not RAM. Who asked has the right to all of this machine's memory.
        let base = unsafe { own::scif_helper_ioremap_wc(phys as PhysAddr, len) };
        // INVARIANT: It has just been mapped.
        Ok(Self {
            base: NonNull::new(base.cast()).ok_or(ENOMEM)?,
            phys,
            runs,
        })
    }

    /// Where it is.
    pub(super) fn runs(&self) -> &ExtentTable {
        &self.runs
    }

    /// Where the CPU has the `len` bytes at a physical address mapped: EINVAL if they are not all in it.
    pub(super) fn at(&self, address: u64, len: usize) -> Result<NonNull<u8>> {
        let offset = address.checked_sub(self.phys).ok_or(EINVAL)?;
        let end = offset.checked_add(len as u64).ok_or(EINVAL)?;
        if end > self.runs.len() {
            return Err(EINVAL);
        }
        // SAFETY: It is inside, as just checked.
        Ok(unsafe { self.base.add(offset as usize) })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is mapped, and nothing uses it any more.
        unsafe { bindings::iounmap(self.base.as_ptr().cast()) };
    }
}

/// As which address other devices know a physical one, if no IOMMU translates for them.
pub(crate) fn bus_address(phys: u64) -> u64 {
    // SAFETY: It takes any address.
    unsafe { own::scif_helper_bus_address(phys as PhysAddr) }
}
