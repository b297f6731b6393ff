// SPDX-License-Identifier: GPL-2.0

//! Memory of the kernel in one piece, at a place that suits a device.
//!
//! Where the administrator has set aside contiguous memory (`cma=`), it comes from there, so that he can say
//! where it lies; else from the page allocator, and what that does not have in one piece is made by moving
//! what is in the way.

use core::ptr::NonNull;

use kernel::{
    device::Device,
    page::PAGE_SIZE,
    prelude::*,
    sync::aref::ARef, //
};

use super::{
    bindings as own,
    dma_map, //
};

/// See the head of this file.
///
/// # Invariants
///
/// `base` is valid for reads and writes of `size` bytes, a multiple of the page size, in the kernel's linear
/// mapping, and owned by this; it was allocated for `device`.
pub(super) struct Contiguous {
    device: ARef<Device>,
    base: NonNull<u8>,
    size: usize,
}

impl Contiguous {
    /// Zeroed memory whose physical address is a multiple of `align`; both are powers of two and at least a
    /// page. `ENOMEM` also where there is no such piece. May sleep, and for long where much has to be moved.
    pub(super) fn new(device: &ARef<Device>, size: usize, align: usize) -> Result<Self> {
        let is_possible = |value: usize| value.is_power_of_two() && value >= PAGE_SIZE;
        if !is_possible(size) || !is_possible(align) {
            return Err(EINVAL);
        }
        // SAFETY: The device is valid; both numbers are as the function wants them.
        let base = unsafe { own::scif_helper_alloc_contiguous(dma_map::raw(device), size, align) };
        // INVARIANT: It has just been allocated like this.
        Ok(Self {
            device: device.clone(),
            base: NonNull::new(base.cast()).ok_or(ENOMEM)?,
            size,
        })
    }

    /// Its first byte.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Where that is, for the hardware.
    pub(super) fn phys(&self) -> u64 {
        // SAFETY: By the type invariant it is in the kernel's linear mapping.
        unsafe { own::scif_helper_virt_to_phys(self.base.as_ptr().cast()) }
    }

    /// Its bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Contiguous {
    fn drop(&mut self) {
        let device = dma_map::raw(&self.device);
        // SAFETY: By the type invariants it was allocated for this device, with this size.
        unsafe { own::scif_helper_free_contiguous(device, self.base.as_ptr().cast(), self.size) };
    }
}

#[kunit_tests(scif_sys_contiguous)]
mod tests {
    use super::*;
    use crate::sys::dma_map::tests::device;

    #[test]
    fn it_lies_where_it_must() -> Result {
        let device = device()?;
        for (size, align) in [
            (4096, 4096),
            (64 << 10, 1 << 20),
            (1 << 20, 64 << 10),
            (1 << 20, 8 << 20),
        ] {
            let memory = Contiguous::new(&device, size, align)?;
            assert_eq!(memory.phys() % align as u64, 0);
            assert_eq!(memory.size(), size);
            // SAFETY: It is that long.
            let bytes = unsafe { core::slice::from_raw_parts(memory.base().as_ptr(), size) };
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
        Ok(())
    }

    #[test]
    fn only_powers_of_two_are_sizes() -> Result {
        let device = device()?;
        for (size, align) in [
            (0, 4096),
            (2048, 4096),
            (12 << 10, 4096),
            (4096, 0),
            (4096, 24 << 10),
        ] {
            assert!(Contiguous::new(&device, size, align).is_err());
        }
        Ok(())
    }
}
