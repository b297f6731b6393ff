// SPDX-License-Identifier: GPL-2.0

//! Memory of a device, mapped for the CPU with write combining.
//!
//! Writes are cheap and gathered into bursts; they may leave the CPU in any order until
//! [`flush_writes`]. Reads stall for a round trip over the bus each.

use core::ptr::NonNull;

use kernel::{
    bindings,
    io::PhysAddr,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::barrier, //
};

use super::{
    bindings as own,
    buffer::Buffer,
    pages::Pages, //
};

/// A mapped range of device memory.
///
/// Drop it before the driver of the device lets the range go.
///
/// # Invariants
///
/// `base` is an `ioremap`ped range of `size` bytes, at the physical address `phys`.
pub(crate) struct IoMapping {
    base: NonNull<u8>,
    phys: u64,
    size: usize,
}

// SAFETY: The mapping is valid on all CPUs.
unsafe impl Send for IoMapping {}
// SAFETY: Device memory may be accessed by several CPUs at once; no Rust reference into it exists.
unsafe impl Sync for IoMapping {}

impl IoMapping {
    /// Maps `size` bytes at a physical address of a device. May sleep.
    pub(crate) fn write_combined(phys: u64, size: u64) -> Result<Self> {
        let size = usize::try_from(size)?;
        if size == 0 || (size as u64).checked_add(phys).is_none() {
            return Err(EINVAL);
        }
        // SAFETY: Addresses that are RAM are refused.
        let base = unsafe { own::scif_helper_ioremap_wc(phys as PhysAddr, size) };
        // INVARIANT: It has just been mapped.
        Ok(Self {
            base: NonNull::new(base.cast()).ok_or(ENOMEM)?,
            phys,
            size,
        })
    }

    /// The physical address.
    pub(crate) fn phys(&self) -> u64 {
        self.phys
    }

    /// The size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The frame of the page at `offset`, for mapping it into a process with write combining, too.
    /// `EINVAL` where no whole page is.
    pub(crate) fn page_frame(&self, offset: usize) -> Result<u64> {
        self.at(offset, PAGE_SIZE)?;
        match self.phys.checked_add(offset as u64) {
            Some(phys) if phys % PAGE_SIZE as u64 == 0 => Ok(phys >> PAGE_SHIFT),
            _ => Err(EINVAL),
        }
    }

    /// The kernel's address of the page at `offset`, as a number: it may be used as long as this
    /// exists, by who has device memory's functions for it. `EINVAL` where no whole page is.
    pub(crate) fn address(&self, offset: usize) -> Result<usize> {
        Ok(self.at(offset, PAGE_SIZE)?.addr())
    }

    /// A pointer to `count` bytes at `offset`; `EINVAL` where they are not all inside.
    fn at(&self, offset: usize, count: usize) -> Result<*mut u8> {
        match offset.checked_add(count) {
            // SAFETY: The bytes are inside, as just checked.
            Some(end) if end <= self.size => Ok(unsafe { self.base.as_ptr().add(offset) }),
            _ => Err(EINVAL),
        }
    }

    /// As `at`, for a number: `EINVAL` where it is not aligned.
    fn number_at<N>(&self, offset: usize) -> Result<*mut c_void> {
        let pointer = self.at(offset, size_of::<N>())?;
        if pointer.cast::<N>().is_aligned() {
            Ok(pointer.cast())
        } else {
            Err(EINVAL)
        }
    }

    /// Reads a number, little-endian, in one piece: what was written to the device before arrives before
    /// it is read.
    pub(crate) fn read_u32(&self, offset: usize) -> Result<u32> {
        // SAFETY: `number_at` returns valid and aligned pointers.
        Ok(unsafe { own::scif_helper_io_read_u32(self.number_at::<u32>(offset)?) })
    }

    /// Copies `len` bytes of a caller in, if they are in memory; says whether they were. If not, or on
    /// an error, some may have been copied.
    pub(crate) fn write_from(
        &self,
        offset: usize,
        from: &Buffer,
        from_offset: usize,
        len: usize,
    ) -> Result<bool> {
        let to = self.at(offset, len)?;
        // SAFETY: The bytes are inside.
        unsafe { from.copy_to_device(from_offset, to, len) }
    }

    /// Writes a number, little-endian, in one piece.
    pub(crate) fn write_u32(&self, offset: usize, value: u32) -> Result {
        // SAFETY: `number_at` returns valid and aligned pointers.
        unsafe { own::scif_helper_io_write_u32(self.number_at::<u32>(offset)?, value) };
        Ok(())
    }

    /// Writes a number, little-endian, in one piece.
    pub(crate) fn write_u64(&self, offset: usize, value: u64) -> Result {
        // SAFETY: `number_at` returns valid and aligned pointers.
        unsafe { own::scif_helper_io_write_u64(self.number_at::<u64>(offset)?, value) };
        Ok(())
    }

    /// Copies bytes in.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) -> Result {
        let to = self.at(offset, from.len())?;
        // SAFETY: Both are valid for that many bytes.
        unsafe { own::scif_helper_copy_to_io(to.cast(), from.as_ptr().cast(), from.len()) };
        Ok(())
    }

    /// Copies `len` bytes of pinned pages to the device.
    pub(crate) fn copy_from_pages(
        &self,
        offset: usize,
        pages: &Pages,
        pages_offset: usize,
        len: usize,
    ) -> Result {
        let to = self.at(offset, len)?;
        pages.for_each_piece(pages_offset, len, |piece| {
            // SAFETY: The piece is inside its page, and its place inside the mapping.
            unsafe { piece.copy_to_device(to) };
            Ok(())
        })
    }

    /// Copies `len` bytes of the device to pinned pages; `EACCES` when those are read-only.
    pub(crate) fn copy_to_pages(
        &self,
        offset: usize,
        pages: &Pages,
        pages_offset: usize,
        len: usize,
    ) -> Result {
        pages.require_writable()?;
        let from = self.at(offset, len)?;
        pages.for_each_piece(pages_offset, len, |piece| {
            // SAFETY: The piece is inside its page, which is writable, and its place inside the
            // mapping.
            unsafe { piece.copy_from_device(from) };
            Ok(())
        })
    }
}

/// Makes everything written before, to any device, arrive before anything that is written after.
pub(crate) fn flush_writes() {
    barrier::mb(barrier::Write);
}

impl Drop for IoMapping {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is mapped, and nothing uses it any more.
        unsafe { bindings::iounmap(self.base.as_ptr().cast()) };
    }
}
