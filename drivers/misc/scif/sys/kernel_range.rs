// SPDX-License-Identifier: GPL-2.0

//! Memory of the kernel that somebody lends to this module.

use core::ptr::NonNull;

use kernel::prelude::*;

/// A range of the kernel's own memory, lent by a client in the kernel.
///
/// As with memory of a process, who lends it can still use it, and a peer may write to it: there is
/// never a Rust reference into it, and what is read may be different when it is read again.
///
/// # Invariants
///
/// `len` bytes at `start` are valid for reads and writes, and do not wrap around the end of memory.
pub(crate) struct KernelRange {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: Kernel memory belongs to no thread.
unsafe impl Send for KernelRange {}
// SAFETY: Through `&self` nothing is done to the memory but what C's copy functions do.
unsafe impl Sync for KernelRange {}

impl KernelRange {
    /// Borrows memory; `EINVAL` for what cannot be memory of the kernel.
    ///
    /// # Safety
    ///
    /// Until the range, and what it is made into ([`Pages`](super::pages::Pages),
    /// [`Buffer`](super::buffer::Buffer)), is dropped:
    ///
    /// - The `len` bytes at `start` are kernel memory that is allocated and may be written to.
    /// - No Rust reference to them exists but to cells that change by themselves.
    pub(crate) unsafe fn new(start: *mut c_void, len: usize) -> Result<Self> {
        let start = NonNull::new(start.cast::<u8>()).ok_or(EINVAL)?;
        start.as_ptr().addr().checked_add(len).ok_or(EINVAL)?;
        // INVARIANT: By the contract of this function, and as just checked.
        Ok(Self { start, len })
    }

    /// The address of the first byte.
    pub(crate) fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }

    /// The size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A pointer to `count` bytes at `offset`; `EINVAL` where they are not all inside.
    pub(super) fn at(&self, offset: usize, count: usize) -> Result<*mut u8> {
        match offset.checked_add(count) {
            // SAFETY: The bytes are inside, as just checked.
            Some(end) if end <= self.len => Ok(unsafe { self.start.as_ptr().add(offset) }),
            _ => Err(EINVAL),
        }
    }
}
