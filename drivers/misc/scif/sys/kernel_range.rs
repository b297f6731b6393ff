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

/// Bytes of the kernel that belong to this, and to which nobody else refers.
///
/// # Invariants
///
/// `start`, `len` and `capacity` are those of a `KVec<u8>` that was taken apart.
pub(super) struct OwnedBytes {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
}

// SAFETY: Kernel memory belongs to no thread.
unsafe impl Send for OwnedBytes {}
// SAFETY: Through `&self` nothing is done to the memory but what C's copy functions do.
unsafe impl Sync for OwnedBytes {}

impl OwnedBytes {
    /// Takes over the bytes of a vector.
    pub(super) fn new(bytes: KVec<u8>) -> Result<Self> {
        let (start, len, capacity) = bytes.into_raw_parts();
        // INVARIANT: It has just been taken apart. The pointer is never null.
        Ok(Self {
            start: NonNull::new(start).ok_or(EINVAL)?,
            len,
            capacity,
        })
    }

    /// The address of the first byte.
    pub(super) fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }

    /// The size in bytes.
    pub(super) fn len(&self) -> usize {
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

impl Drop for OwnedBytes {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; nobody refers to the bytes any more.
        let bytes =
            unsafe { KVec::<u8>::from_raw_parts(self.start.as_ptr(), self.len, self.capacity) };
        drop(bytes);
    }
}

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
    #[allow(dead_code, reason = "for clients in the kernel")]
    pub(crate) unsafe fn new(start: *mut c_void, len: usize) -> Result<Self> {
        let start = NonNull::new(start.cast::<u8>()).ok_or(EINVAL)?;
        start.as_ptr().addr().checked_add(len).ok_or(EINVAL)?;
        // INVARIANT: By the contract of this function, and as just checked.
        Ok(Self { start, len })
    }

    /// The same range once more, lent for as long.
    pub(super) fn again(&self) -> Self {
        Self {
            start: self.start,
            len: self.len,
        }
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
