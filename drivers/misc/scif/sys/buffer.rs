// SPDX-License-Identifier: GPL-2.0

//! Memory of a caller that the CPU copies from or to, within the call.
//!
//! [`Pages`](super::pages::Pages) are for memory that a device or another host uses, or that is
//! used after the call.

use core::ptr::NonNull;
use kernel::{
    bindings,
    page::{
        page_align,
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::Arc,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

use super::{
    bindings as own,
    ledger::Ledger,
    pages::Pages,
    reached::{
        self,
        Span, //
    },
    shared_memory::SharedMemory, //
};

/// A buffer of the caller: of a process, whose address may be wrong, or of a client in the kernel,
/// whose address is not.
///
/// All copies may sleep, and may take as long as the process likes (`userfaultfd`, FUSE).
///
/// # Errors
///
/// All copies return:
///
/// - `EFAULT`: the process has no such memory. Some bytes may have been copied.
/// - `EINVAL`: the bytes are not all in the buffer.
pub(crate) struct Buffer {
    memory: BufferMemory,
    len: usize,
}

enum BufferMemory {
    User(UserPtr),
    /// Memory that a client lends to the buffer, and to the pages made from the buffer.
    Kernel(KernelRange),
    /// Memory that is borrowed while the buffer exists; for reading only if the flag is false.
    Borrowed(Span, bool),
}

/// A part of a buffer.
enum Part {
    User(UserPtr),
    /// A pointer that is valid for reads of the part's length, and for writes where those are
    /// allowed.
    Kernel(*mut u8),
}

impl Buffer {
    /// Describes `len` bytes of the calling process, without a check.
    pub(crate) fn user(address: UserPtr, len: usize) -> Self {
        Self {
            memory: BufferMemory::User(address),
            len,
        }
    }

    /// Lends bytes of the kernel to a call that only reads them.
    ///
    /// The call gets only a reference, so the buffer is gone before the bytes can be.
    pub(crate) fn with_bytes<R>(bytes: &[u8], call: impl FnOnce(&Self) -> R) -> R {
        call(&Self::borrowed(NonNull::from(bytes), false))
    }

    /// Lends bytes of the kernel, as [`Self::with_bytes`], to a call that writes them.
    pub(crate) fn with_room<R>(bytes: &mut [u8], call: impl FnOnce(&Self) -> R) -> R {
        call(&Self::borrowed(NonNull::from(bytes), true))
    }

    fn borrowed(bytes: NonNull<[u8]>, writable: bool) -> Self {
        let (base, len) = (bytes.cast(), bytes.len());
        Self {
            memory: BufferMemory::Borrowed(Span { base, len }, writable),
            len,
        }
    }

    /// Describes memory that a client in the kernel lends.
    pub(crate) fn kernel(memory: KernelRange) -> Self {
        Self {
            len: memory.len(),
            memory: BufferMemory::Kernel(memory),
        }
    }

    /// Returns the size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the address of the first byte.
    pub(crate) fn address(&self) -> usize {
        match &self.memory {
            BufferMemory::User(address) => address.as_const_ptr().addr(),
            BufferMemory::Kernel(memory) => memory.address(),
            BufferMemory::Borrowed(bytes, _) => bytes.base.as_ptr().addr(),
        }
    }

    /// Returns whether the buffer consists of whole pages, and is not empty.
    pub(crate) fn is_whole_pages(&self) -> bool {
        self.address() % PAGE_SIZE == 0 && self.len % PAGE_SIZE == 0 && self.len != 0
    }

    /// Returns the address in the calling process, for a watch of its address space. It is without
    /// the tag that the process may have put into the address. `None` for memory of the kernel.
    pub(crate) fn user_address(&self) -> Option<usize> {
        match &self.memory {
            // SAFETY: The helper takes any address.
            BufferMemory::User(_) => Some(unsafe { own::scif_helper_untagged(self.address()) }),
            _ => None,
        }
    }

    /// Returns the pages that hold the bytes, whatever their alignment, and the offset of the bytes
    /// in them.
    ///
    /// The pages of a process are pinned, and charged to the caller if there is an `account`. The
    /// errors are those of [`Pages::pin`] and [`Pages::around`], and EOPNOTSUPP for a borrowed
    /// buffer.
    /// Context: may sleep.
    pub(crate) fn pages(
        &self,
        writable: bool,
        account: Option<&Arc<Ledger>>,
    ) -> Result<(Pages, usize)> {
        match &self.memory {
            BufferMemory::User(_) => (),
            BufferMemory::Kernel(memory) => return Pages::around(memory),
            BufferMemory::Borrowed(..) => return Err(EOPNOTSUPP),
        }
        let offset = self.address() % PAGE_SIZE;
        let end = self
            .len
            .checked_add(offset)
            .and_then(page_align)
            .ok_or(EFAULT)?;
        let start = self.address() - offset;
        let pages = Pages::pin(start, end >> PAGE_SHIFT, writable, account)?;
        Ok((pages, offset))
    }

    /// Returns the `len` bytes at `offset`.
    fn part(&self, offset: usize, len: usize) -> Result<Part> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => (),
            _ => return Err(EINVAL),
        }
        Ok(match &self.memory {
            // C checks the address, also if it has wrapped around.
            BufferMemory::User(address) => Part::User(address.wrapping_byte_add(offset)),
            BufferMemory::Kernel(KernelRange(bytes)) | BufferMemory::Borrowed(bytes, _) => {
                Part::Kernel(bytes.base.as_ptr().wrapping_add(offset))
            }
        })
    }

    /// Returns the `len` bytes at `offset`, for writing; `EACCES` if the buffer is read-only.
    fn part_to_write(&self, offset: usize, len: usize) -> Result<Part> {
        match self.memory {
            BufferMemory::Borrowed(_, false) => Err(EACCES),
            _ => self.part(offset, len),
        }
    }

    /// Appends `len` bytes of the buffer to `to`. Nothing is appended on an error.
    pub(crate) fn append_to(&self, offset: usize, len: usize, to: &mut KVVec<u8>) -> Result {
        match self.part(offset, len)? {
            Part::User(from) => UserSlice::new(from, len).read_all(to, GFP_KERNEL_ACCOUNT),
            Part::Kernel(from) => {
                to.reserve(len, GFP_KERNEL_ACCOUNT)?;
                // SAFETY: `from` is valid for that many bytes, and there is room for them. They are
                // initialised before their number is added.
                unsafe {
                    let room = to.spare_capacity_mut().as_mut_ptr();
                    bindings::memcpy(room.cast(), from.cast(), len);
                    to.inc_len(len);
                }
                Ok(())
            }
        }
    }

    /// Copies `len` bytes from `offset` on to other memory, without waiting.
    ///
    /// Returns false if the copy would have to wait; some bytes may have been copied then. Also
    /// returns false on an architecture that can't copy from user space to a device's memory.
    /// Context: any in which the caller's process is current.
    ///
    /// # Safety
    ///
    /// `to` is valid for writes of `len` bytes. If `is_device`, it is a device's memory that is
    /// mapped write-combining.
    pub(super) unsafe fn copy_to(
        &self,
        offset: usize,
        to: *mut u8,
        is_device: bool,
        len: usize,
    ) -> Result<bool> {
        // SAFETY: By the contract of this function. C checks addresses of user space.
        Ok(unsafe {
            match self.part(offset, len)? {
                Part::User(from) if is_device => {
                    own::scif_helper_copy_user_to_io(to.cast(), from.as_const_ptr(), len)
                }
                Part::User(from) => {
                    bindings::copy_from_user_nofault(to.cast(), from.as_const_ptr(), len) == 0
                }
                Part::Kernel(from) => {
                    reached::copy(to, is_device, from, false, len);
                    true
                }
            }
        })
    }

    /// Copies `len` bytes of shared memory into the buffer.
    pub(crate) fn write_shared(
        &self,
        offset: usize,
        memory: &SharedMemory,
        memory_offset: usize,
        len: usize,
    ) -> Result {
        match self.part_to_write(offset, len)? {
            Part::User(to) => memory.copy_to_user(memory_offset, to, len),
            // SAFETY: `to` is valid for that many bytes.
            Part::Kernel(to) => unsafe { memory.copy_to(memory_offset, to, len) },
        }
    }
}

/// A range of the kernel's own memory, lent by a client in the kernel.
///
/// As with memory of a process, the lender can still use it, and a peer may write to it. So no Rust
/// reference into it ever exists, and a second read may return something else.
///
/// # Invariants
///
/// The bytes are valid for reads and writes, and do not wrap around the end of memory.
pub(crate) struct KernelRange(Span);

impl KernelRange {
    /// Borrows memory; `EINVAL` for a range that can't be memory of the kernel.
    ///
    /// # Safety
    ///
    /// Until the range, and everything made from it ([`Pages`], [`Buffer`]), is dropped:
    ///
    /// - The `len` bytes at `start` are kernel memory that is allocated and may be written to.
    /// - No Rust reference to them exists, except to cells with interior mutability.
    pub(crate) unsafe fn new(start: *mut c_void, len: usize) -> Result<Self> {
        let base = NonNull::new(start.cast::<u8>()).ok_or(EINVAL)?;
        base.as_ptr().addr().checked_add(len).ok_or(EINVAL)?;
        // INVARIANT: By the contract of this function, and as just checked.
        Ok(Self(Span { base, len }))
    }

    /// Returns the address of the first byte.
    pub(crate) fn address(&self) -> usize {
        self.0.base.as_ptr().addr()
    }

    /// Returns the size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len
    }
}

#[kunit_tests(scif_sys_buffer)]
mod tests {
    use super::*;
    use crate::sys::{
        shared_memory::{
            MemoryUser,
            Payer, //
        },
        tests::map_pages, //
    };

    impl Buffer {
        /// Copies bytes out of the buffer.
        pub(crate) fn read(&self, offset: usize, to: &mut [u8]) -> Result {
            match self.part(offset, to.len())? {
                Part::User(from) => UserSlice::new(from, to.len()).reader().read_slice(to),
                Part::Kernel(from) => {
                    // SAFETY: `from` is valid for that many bytes, and `to` is borrowed for
                    // writing.
                    unsafe { bindings::memcpy(to.as_mut_ptr().cast(), from.cast(), to.len()) };
                    Ok(())
                }
            }
        }

        /// Copies bytes into the buffer.
        pub(crate) fn write(&self, offset: usize, from: &[u8]) -> Result {
            match self.part_to_write(offset, from.len())? {
                Part::User(to) => UserSlice::new(to, from.len()).writer().write_slice(from),
                Part::Kernel(to) => {
                    // SAFETY: `to` is valid for that many bytes, and no reference to them exists.
                    unsafe { bindings::memcpy(to.cast(), from.as_ptr().cast(), from.len()) };
                    Ok(())
                }
            }
        }
    }

    /// Checks a buffer of two pages of zeros, of either kind.
    fn check(buffer: &Buffer) -> Result {
        assert_eq!(buffer.len(), 2 * PAGE_SIZE);
        buffer.write(PAGE_SIZE - 2, b"scif")?;
        let mut bytes = [1; 6];
        buffer.read(PAGE_SIZE - 3, &mut bytes)?;
        assert_eq!(&bytes, b"\0scif\0");

        let mut chunk = KVVec::new();
        chunk.extend_from_slice(b"a ", GFP_KERNEL)?;
        buffer.append_to(PAGE_SIZE - 2, 4, &mut chunk)?;
        assert_eq!(&chunk[..], b"a scif");
        assert!(buffer.append_to(2 * PAGE_SIZE - 1, 2, &mut chunk).is_err());
        assert_eq!(&chunk[..], b"a scif");

        let memory = SharedMemory::new(PAGE_SIZE, &MemoryUser::Physical, Payer::None)?;
        memory.write(100, b"ring")?;
        buffer.write_shared(2 * PAGE_SIZE - 4, &memory, 100, 4)?;
        buffer.read(2 * PAGE_SIZE - 6, &mut bytes)?;
        assert_eq!(&bytes, b"\0\0ring");
        assert!(buffer.write_shared(0, &memory, PAGE_SIZE - 1, 2).is_err());
        assert!(buffer
            .write_shared(2 * PAGE_SIZE - 1, &memory, 0, 2)
            .is_err());

        assert!(buffer.read(2 * PAGE_SIZE, &mut []).is_ok());
        assert!(buffer.read(2 * PAGE_SIZE - 5, &mut bytes).is_err());
        assert!(buffer.write(usize::MAX, b"scif").is_err());
        Ok(())
    }

    #[test]
    fn user_buffer_reads_and_writes() -> Result {
        let address = UserPtr::from_addr(map_pages(2, true)?);
        check(&Buffer::user(address, 2 * PAGE_SIZE))
    }

    #[test]
    fn kernel_buffer_reads_and_writes() -> Result {
        let mut memory = KVec::from_elem(0u8, 2 * PAGE_SIZE, GFP_KERNEL)?;
        // SAFETY: `memory` is not used before the buffer has been dropped.
        let lent = unsafe { KernelRange::new(memory.as_mut_ptr().cast(), memory.len()) }?;
        check(&Buffer::kernel(lent))
    }

    #[test]
    fn borrowed_buffer_reads_and_writes() -> Result {
        let mut bytes = KVec::from_elem(0u8, 2 * PAGE_SIZE, GFP_KERNEL)?;
        Buffer::with_room(&mut bytes, |buffer| {
            assert!(buffer.pages(true, None).is_err());
            check(buffer)
        })?;
        Buffer::with_bytes(&bytes, |buffer| {
            assert!(matches!(buffer.write(0, b"scif"), Err(e) if e == EACCES));
        });
        Ok(())
    }

    /// A sender copies under a lock, so pages that the process has never touched are not faulted
    /// in.
    #[cfg(any(CONFIG_X86_64, CONFIG_ARM64))]
    #[test]
    fn copy_to_device_does_not_fault_in_untouched_pages() -> Result {
        let mut device = KVec::from_elem(1u8, PAGE_SIZE, GFP_KERNEL)?;
        let untouched = UserPtr::from_addr(map_pages(1, true)?);
        let buffer = Buffer::user(untouched, PAGE_SIZE);
        let to = device.as_mut_ptr();
        // SAFETY: `device` has room for a page, and is not used meanwhile.
        assert!(!unsafe { buffer.copy_to(0, to, true, PAGE_SIZE) }?);
        assert!(device.iter().all(|byte| *byte == 1));
        buffer.write(0, b"scif")?;
        let to = device.as_mut_ptr();
        // SAFETY: As above.
        assert!(unsafe { buffer.copy_to(0, to, true, PAGE_SIZE) }?);
        assert_eq!(device.get(..5), Some(b"scif\0".as_slice()));
        Ok(())
    }

    #[test]
    fn inaccessible_user_memory_fails_with_efault() -> Result {
        let read_only = Buffer::user(UserPtr::from_addr(map_pages(1, false)?), PAGE_SIZE);
        assert!(matches!(read_only.write(0, b"scif"), Err(e) if e == EFAULT));
        let memory = SharedMemory::new(PAGE_SIZE, &MemoryUser::Physical, Payer::None)?;
        assert!(matches!(
            read_only.write_shared(0, &memory, 0, 4),
            Err(e) if e == EFAULT
        ));

        let nowhere = Buffer::user(UserPtr::from_addr(usize::MAX - 4), PAGE_SIZE);
        let mut bytes = [0; 4];
        assert!(matches!(nowhere.read(0, &mut bytes), Err(e) if e == EFAULT));
        assert!(matches!(nowhere.read(100, &mut bytes), Err(e) if e == EFAULT));
        let mut chunk = KVVec::new();
        assert!(matches!(nowhere.append_to(0, 8, &mut chunk), Err(e) if e == EFAULT));
        assert_eq!(chunk.len(), 0);
        Ok(())
    }
}
