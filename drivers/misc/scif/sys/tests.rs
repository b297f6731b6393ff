// SPDX-License-Identifier: GPL-2.0

//! Resources for the tests of several files: memory of a process, lent memory, and a device.

use core::ptr;

use super::{
    bindings as own,
    buffer::{
        Buffer,
        KernelRange, //
    },
};
use kernel::{
    bindings,
    device::Device,
    error::{
        from_err_ptr,
        to_result, //
    },
    page::PAGE_SIZE,
    prelude::*,
    sync::aref::ARef, //
};

/// Maps `count` pages into the test's thread, and returns their address.
pub(super) fn map_pages(count: usize, writable: bool) -> Result<usize> {
    let access = own::PROT_READ | if writable { own::PROT_WRITE } else { 0 };
    // SAFETY: This runs in the thread of a KUnit test, which `kunit_test` belongs to. KUnit gives
    // that thread an address space, and takes it away at the end.
    let address = unsafe {
        bindings::kunit_vm_mmap(
            (*bindings::get_current()).kunit_test,
            ptr::null_mut(),
            0,
            count * PAGE_SIZE,
            access as usize,
            (own::MAP_PRIVATE | own::MAP_ANONYMOUS) as usize,
            0,
        )
    };
    // The call returns an error as an address, too.
    if address == 0 || address % PAGE_SIZE != 0 {
        return Err(ENOMEM);
    }
    Ok(address)
}

/// Returns a device that memory can be mapped for, as long as the test runs.
///
/// It is not the device of a DMA engine: a test that took a channel would take the channel away
/// from the module that it is loaded with.
pub(super) fn device() -> Result<ARef<Device>> {
    // SAFETY: This runs in the thread of a KUnit test, which `kunit_test` belongs to.
    let device = from_err_ptr(unsafe {
        own::kunit_device_register(
            (*bindings::get_current()).kunit_test,
            c"scif_test".as_char_ptr(),
        )
    })?;
    // SAFETY: The device is valid, and has masks.
    to_result(unsafe { bindings::dma_set_mask_and_coherent(device, u64::MAX) })?;
    // SAFETY: The device is valid; this takes a reference.
    Ok(unsafe { Device::get_device(device) })
}

/// Gives the test's thread an address space, so that it counts as a process.
pub(crate) fn become_process() -> Result {
    map_pages(1, true).map(|_| ())
}

/// Whole pages of memory, which are zero at first.
///
/// Only references to the buffer are handed out. Code that keeps the memory for longer makes
/// [`Pages`](super::pages::Pages) of the buffer. These hold pages of `vmalloc`, which have
/// reference counts. So no page is reused before its last user has released it, even if a bug keeps
/// it too long.
pub(crate) struct TestMemory {
    buffer: Buffer,
    // Declared after the buffer, so that it is dropped later. Only the buffer uses it.
    _bytes: VVec<u8>,
}

impl TestMemory {
    /// Allocates `pages` pages.
    /// Context: may sleep.
    pub(crate) fn new(pages: usize) -> Result<Self> {
        let mut bytes = VVec::from_elem(0, pages * PAGE_SIZE, GFP_KERNEL)?;
        // SAFETY: The bytes stay allocated as long as the buffer, and for longer while their pages
        // are held. No reference to them exists any more.
        let range = unsafe { KernelRange::new(bytes.as_mut_ptr().cast(), bytes.len()) }?;
        Ok(Self {
            buffer: Buffer::kernel(range),
            _bytes: bytes,
        })
    }

    /// Returns the memory, for lending.
    pub(crate) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Sets all bytes to `byte`.
    pub(crate) fn fill(&self, byte: u8) -> Result {
        let some = [byte; 64];
        for offset in (0..self.buffer.len()).step_by(some.len()) {
            self.buffer.write(offset, &some)?;
        }
        Ok(())
    }

    /// Returns `N` bytes from `offset` on.
    pub(crate) fn bytes<const N: usize>(&self, offset: usize) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.buffer.read(offset, &mut bytes)?;
        Ok(bytes)
    }
}
