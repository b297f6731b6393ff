// SPDX-License-Identifier: GPL-2.0

//! This machine's memory by physical address, as the loopback transport reaches it.
//!
//! A physical address is treated as a DMA engine treats a bus address: it comes from tables of this
//! kernel (a [`SharedMemory`](super::shared_memory::SharedMemory), a
//! [`Pages`] that is kept) and is trusted to be one that may be written. Checked is only that
//! there is RAM, so that a wrong address is an error and not a crash.

use core::ptr::NonNull;

use kernel::{
    bindings,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*, //
};

use super::{
    bindings as own,
    buffer::Buffer,
    pages::Pages, //
};

/// A pointer to `len` bytes of RAM; `EFAULT` where they are not all RAM.
fn at(address: u64, len: usize) -> Result<NonNull<u8>> {
    // SAFETY: It takes any address.
    let pointer = unsafe { own::scif_helper_direct_map(address, len) };
    NonNull::new(pointer.cast()).ok_or(EFAULT)
}

/// As `at`, for a number: `EINVAL` where it is not aligned.
fn number_at<N>(address: u64) -> Result<*mut N> {
    let pointer = at(address, size_of::<N>())?.cast::<N>().as_ptr();
    if pointer.is_aligned() {
        Ok(pointer)
    } else {
        Err(EINVAL)
    }
}

/// Whether all of these bytes are RAM.
pub(crate) fn covers(address: u64, len: usize) -> bool {
    at(address, len).is_ok()
}

/// The frame of the page at `address`, for mapping it into a process. `EFAULT` where there is no
/// RAM, `EINVAL` where no page begins.
pub(crate) fn page_frame(address: u64) -> Result<u64> {
    at(address, PAGE_SIZE)?;
    if address % PAGE_SIZE as u64 != 0 {
        return Err(EINVAL);
    }
    Ok(address >> PAGE_SHIFT)
}

/// The kernel's address of the page at `address`, as a number. `EFAULT` where there is no RAM.
pub(crate) fn kernel_address(address: u64) -> Result<usize> {
    Ok(at(address, PAGE_SIZE)?.as_ptr().addr())
}

/// The physical address behind the last byte of RAM.
pub(crate) fn end_of_memory() -> u64 {
    // SAFETY: No preconditions.
    unsafe { own::scif_helper_end_of_memory() }
}

/// Copies bytes to memory.
pub(crate) fn write(address: u64, from: &[u8]) -> Result {
    let to = at(address, from.len())?;
    // SAFETY: `to` is valid for that many bytes. What they are used for is up to those who share
    // the address; no Rust reference covers them.
    unsafe { bindings::memcpy(to.as_ptr().cast(), from.as_ptr().cast(), from.len()) };
    Ok(())
}

/// Reads a number, little-endian, in one piece.
pub(crate) fn read_u32(address: u64) -> Result<u32> {
    // SAFETY: `number_at` returns valid and aligned pointers; otherwise as in `write`.
    Ok(u32::from_le(unsafe {
        number_at::<u32>(address)?.read_volatile()
    }))
}

/// Copies `len` bytes of a caller to memory, if they are in memory; says whether they were. If not, or
/// on an error, some may have been copied.
pub(crate) fn write_from(
    address: u64,
    from: &Buffer,
    from_offset: usize,
    len: usize,
) -> Result<bool> {
    let to = at(address, len)?;
    // SAFETY: As in `write`.
    unsafe { from.copy_to_memory(from_offset, to.as_ptr(), len) }
}

/// Writes a number, little-endian, in one piece.
pub(crate) fn write_u32(address: u64, value: u32) -> Result {
    // SAFETY: `number_at` returns valid and aligned pointers; otherwise as in `write`.
    unsafe { number_at::<u32>(address)?.write_volatile(value.to_le()) };
    Ok(())
}

/// Writes a number, little-endian, in one piece.
pub(crate) fn write_u64(address: u64, value: u64) -> Result {
    // SAFETY: `number_at` returns valid and aligned pointers; otherwise as in `write`.
    unsafe { number_at::<u64>(address)?.write_volatile(value.to_le()) };
    Ok(())
}

/// Copies `len` bytes of pinned pages to memory.
pub(crate) fn copy_from_pages(address: u64, pages: &Pages, offset: usize, len: usize) -> Result {
    let to = at(address, len)?;
    pages.for_each_piece(offset, len, |piece| {
        // SAFETY: The piece is inside its page, and its place inside the memory. Where they overlap
        // the contents are mixed; C's function does not mind.
        unsafe { piece.copy_to(to.as_ptr()) };
        Ok(())
    })
}

/// Copies `len` bytes of memory to pinned pages; `EACCES` when those are read-only.
pub(crate) fn copy_to_pages(address: u64, pages: &Pages, offset: usize, len: usize) -> Result {
    pages.require_writable()?;
    let from = at(address, len)?;
    pages.for_each_piece(offset, len, |piece| {
        // SAFETY: As in `copy_from_pages`; the page is writable.
        unsafe { piece.copy_from(from.as_ptr()) };
        Ok(())
    })
}

#[kunit_tests(scif_sys_direct_map)]
mod tests {
    use super::*;
    use crate::sys::{
        shared_memory::{
            Payer,
            SharedMemory,
            User, //
        }, //
    };

    #[test]
    fn it_is_the_same_memory() -> Result {
        let memory = SharedMemory::new(8192, User::Physical, Payer::Nobody)?;
        let address = memory.phys_address();
        assert!(covers(address, 8192));
        assert!(address + 8192 <= end_of_memory());
        write(address + 4094, b"scif")?;
        write_u32(address + 8, 0x1234_5678)?;
        write_u64(address + 16, 9)?;
        let mut bytes = [0; 4];
        memory.read(4094, &mut bytes)?;
        assert_eq!(&bytes, b"scif");
        assert_eq!(memory.read_u32(8)?, 0x1234_5678);
        assert_eq!(memory.read_u64(16)?, 9);
        assert!(write_u32(address + 2, 1).is_err());
        Ok(())
    }

    #[test]
    fn what_is_no_memory_is_refused() {
        assert!(!covers(1 << 45, 1));
        assert!(!covers(u64::MAX, 1));
        assert!(!covers(u64::MAX - 4095, 8192));
        assert!(!covers(0, usize::MAX));
        assert!(write_u64(u64::MAX - 7, 1).is_err());
    }
}
