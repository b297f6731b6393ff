// SPDX-License-Identifier: GPL-2.0

//! Memory that a test has: the kernel's, to lend as a client in the kernel would, or a process's.

use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

use super::{
    buffer::Buffer,
    kernel_range::KernelRange,
    pin::tests::map_pages, //
};

/// Gives the test's thread an address space, with which it is a process to those who ask.
pub(crate) fn become_process() -> Result {
    map_pages(1, true).map(|_| ())
}

/// Some whole pages, zeros at first.
///
/// Of it goes out a reference to the buffer, and no more. Whatever keeps the memory for longer makes
/// [`Pages`](super::pages::Pages) of that, and those hold pages of `vmalloc`, which have reference
/// counts: none is used for anything else before the last user has let go, even if that is a bug.
pub(crate) struct TestMemory {
    buffer: Buffer,
    // Goes after the buffer, and nobody uses it otherwise.
    _bytes: VVec<u8>,
}

impl TestMemory {
    /// That many pages. May sleep.
    pub(crate) fn new(pages: usize) -> Result<Self> {
        let mut bytes = VVec::from_elem(0, pages * PAGE_SIZE, GFP_KERNEL)?;
        // SAFETY: The bytes stay allocated as long as the buffer, and longer where their pages are
        // held; there is no reference to them any more.
        let range = unsafe { KernelRange::new(bytes.as_mut_ptr().cast(), bytes.len()) }?;
        Ok(Self {
            buffer: Buffer::kernel(range),
            _bytes: bytes,
        })
    }

    /// The memory, to lend.
    pub(crate) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Makes all bytes this one.
    pub(crate) fn fill(&self, byte: u8) -> Result {
        let some = [byte; 64];
        for offset in (0..self.buffer.len()).step_by(some.len()) {
            self.buffer.write(offset, &some)?;
        }
        Ok(())
    }

    /// Some of the bytes.
    pub(crate) fn bytes<const N: usize>(&self, offset: usize) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.buffer.read(offset, &mut bytes)?;
        Ok(bytes)
    }
}
