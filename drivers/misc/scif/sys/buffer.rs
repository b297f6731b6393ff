// SPDX-License-Identifier: GPL-2.0

//! Memory of a caller that the CPU copies from or to, within the call.
//!
//! Memory that a device or another host uses, or that is used after the call, is
//! [`Pages`](super::pages::Pages).

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

/// Bytes of who calls: a process, whose addresses may be wrong, or a client in the kernel, whose
/// are not.
///
/// All copies may sleep, may be slow, as the process likes (`userfaultfd`, FUSE), and return `EFAULT`
/// when a process has no such memory; some bytes may have been copied then. `EINVAL`: they would
/// leave the buffer.
pub(crate) struct Buffer {
    place: Place,
    len: usize,
}

enum Place {
    User(UserPtr),
    /// Lent, also to what the buffer is made into.
    Kernel(KernelRange),
    /// Borrowed for as long as the buffer exists; for reading only if the second is false.
    Borrowed(Span, bool),
}

/// A part of a buffer.
enum Part {
    User(UserPtr),
    /// Valid for reads of the part's length, and for writes where those are allowed.
    Kernel(*mut u8),
}

impl Buffer {
    /// `len` bytes of the calling process. Nothing is checked yet.
    pub(crate) fn user(address: UserPtr, len: usize) -> Self {
        Self {
            place: Place::User(address),
            len,
        }
    }

    /// Lends bytes of the kernel to a call that only reads them.
    ///
    /// The call gets no more than a reference, so the buffer is gone before the bytes can be.
    pub(crate) fn with_bytes<R>(bytes: &[u8], call: impl FnOnce(&Self) -> R) -> R {
        call(&Self::borrowed(NonNull::from(bytes), false))
    }

    /// As [`Self::with_bytes`], for a call that writes them.
    pub(crate) fn with_room<R>(bytes: &mut [u8], call: impl FnOnce(&Self) -> R) -> R {
        call(&Self::borrowed(NonNull::from(bytes), true))
    }

    fn borrowed(bytes: NonNull<[u8]>, writable: bool) -> Self {
        let (base, len) = (bytes.cast(), bytes.len());
        Self {
            place: Place::Borrowed(Span { base, len }, writable),
            len,
        }
    }

    /// Memory that a client in the kernel lends.
    pub(crate) fn kernel(memory: KernelRange) -> Self {
        Self {
            len: memory.len(),
            place: Place::Kernel(memory),
        }
    }

    /// The size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of the first byte.
    pub(crate) fn address(&self) -> usize {
        match &self.place {
            Place::User(address) => address.as_const_ptr().addr(),
            Place::Kernel(memory) => memory.address(),
            Place::Borrowed(bytes, _) => bytes.base.as_ptr().addr(),
        }
    }

    /// Whether it is whole pages, and not empty.
    pub(crate) fn is_whole_pages(&self) -> bool {
        self.address() % PAGE_SIZE == 0 && self.len % PAGE_SIZE == 0 && self.len != 0
    }

    /// Where it lies in the calling process's address space, so that whoever watches that finds it:
    /// without a tag that the process may have in the address. None for memory of the kernel.
    pub(crate) fn user_address(&self) -> Option<usize> {
        match &self.place {
            // SAFETY: It takes any address.
            Place::User(_) => Some(unsafe { own::scif_helper_untagged(self.address()) }),
            _ => None,
        }
    }

    /// The pages that hold the bytes, whatever their alignment, and where in them those begin:
    /// pinned, and counted against the limits of the caller if there is an `account`, if it is a
    /// process. May sleep; see [`Pages::pin`] and [`Pages::around`] for the errors.
    pub(crate) fn pages(
        &self,
        writable: bool,
        account: Option<&Arc<Ledger>>,
    ) -> Result<(Pages, usize)> {
        match &self.place {
            Place::User(_) => (),
            Place::Kernel(memory) => return Pages::around(memory),
            Place::Borrowed(..) => return Err(EOPNOTSUPP),
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

    /// The `len` bytes at `offset`.
    fn part(&self, offset: usize, len: usize) -> Result<Part> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => (),
            _ => return Err(EINVAL),
        }
        Ok(match &self.place {
            // C checks the address, also if it has wrapped around.
            Place::User(address) => Part::User(address.wrapping_byte_add(offset)),
            Place::Kernel(KernelRange(bytes)) | Place::Borrowed(bytes, _) => {
                Part::Kernel(bytes.base.as_ptr().wrapping_add(offset))
            }
        })
    }

    /// As `part`, for writing: `EACCES` where that is not allowed.
    fn part_to_write(&self, offset: usize, len: usize) -> Result<Part> {
        match self.place {
            Place::Borrowed(_, false) => Err(EACCES),
            _ => self.part(offset, len),
        }
    }

    /// Appends `len` bytes of the buffer to `to`. Nothing is appended on an error.
    pub(crate) fn append_to(&self, offset: usize, len: usize, to: &mut KVVec<u8>) -> Result {
        match self.part(offset, len)? {
            Part::User(from) => UserSlice::new(from, len).read_all(to, GFP_KERNEL_ACCOUNT),
            Part::Kernel(from) => {
                to.reserve(len, GFP_KERNEL_ACCOUNT)?;
                // SAFETY: `from` is valid for that many bytes, and there is room for them. They
                // are initialised when their number is added.
                unsafe {
                    let room = to.spare_capacity_mut().as_mut_ptr();
                    bindings::memcpy(room.cast(), from.cast(), len);
                    to.inc_len(len);
                }
                Ok(())
            }
        }
    }

    /// Copies `len` bytes from `offset` on to other memory, if that takes no waiting: says whether it
    /// did. If not, some may have been copied. Any context in which the caller's process is the current
    /// one.
    ///
    /// An architecture may have instructions of its own for memory of devices, and none that copy to it from
    /// user space: then this says no.
    ///
    /// # Safety
    ///
    /// `to` is valid for writes of `len` bytes; it is a device's memory that is mapped write-combining if
    /// `is_device`.
    pub(super) unsafe fn copy_to(
        &self,
        offset: usize,
        to: *mut u8,
        is_device: bool,
        len: usize,
    ) -> Result<bool> {
        // SAFETY: By the contract of this function. C checks the address of user space.
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
/// As with memory of a process, who lends it can still use it, and a peer may write to it: there is
/// never a Rust reference into it, and what is read may be different when it is read again.
///
/// # Invariants
///
/// The bytes are valid for reads and writes, and do not wrap around the end of memory.
pub(crate) struct KernelRange(Span);

impl KernelRange {
    /// Borrows memory; `EINVAL` for what cannot be memory of the kernel.
    ///
    /// # Safety
    ///
    /// Until the range, and what it is made into ([`Pages`], [`Buffer`]), is dropped:
    ///
    /// - The `len` bytes at `start` are kernel memory that is allocated and may be written to.
    /// - No Rust reference to them exists but to cells that change by themselves.
    pub(crate) unsafe fn new(start: *mut c_void, len: usize) -> Result<Self> {
        let base = NonNull::new(start.cast::<u8>()).ok_or(EINVAL)?;
        base.as_ptr().addr().checked_add(len).ok_or(EINVAL)?;
        // INVARIANT: By the contract of this function, and as just checked.
        Ok(Self(Span { base, len }))
    }

    /// The address of the first byte.
    pub(crate) fn address(&self) -> usize {
        self.0.base.as_ptr().addr()
    }

    /// The size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len
    }
}

#[kunit_tests(scif_sys_buffer)]
mod tests {
    use super::*;
    use crate::sys::{
        shared_memory::{
            Payer,
            User, //
        },
        tests::map_pages, //
    };

    impl Buffer {
        /// Copies bytes out of the buffer.
        pub(crate) fn read(&self, offset: usize, to: &mut [u8]) -> Result {
            match self.part(offset, to.len())? {
                Part::User(from) => UserSlice::new(from, to.len()).reader().read_slice(to),
                Part::Kernel(from) => {
                    // SAFETY: `from` is valid for that many bytes, and `to` is borrowed for writing.
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

    /// The same for both kinds: a buffer of two pages, all bytes 0.
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

        let memory = SharedMemory::new(PAGE_SIZE, &User::Physical, Payer::Nobody)?;
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
    fn memory_of_a_process() -> Result {
        let address = UserPtr::from_addr(map_pages(2, true)?);
        check(&Buffer::user(address, 2 * PAGE_SIZE))
    }

    #[test]
    fn memory_of_the_kernel() -> Result {
        let mut memory = KVec::from_elem(0u8, 2 * PAGE_SIZE, GFP_KERNEL)?;
        // SAFETY: `memory` is not used before the buffer has been dropped.
        let lent = unsafe { KernelRange::new(memory.as_mut_ptr().cast(), memory.len()) }?;
        check(&Buffer::kernel(lent))
    }

    #[test]
    fn memory_that_is_borrowed() -> Result {
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

    /// What a sender may do under a lock: pages that no process has touched are not brought in.
    #[cfg(any(CONFIG_X86_64, CONFIG_ARM64))]
    #[test]
    fn a_device_is_given_only_what_is_in_memory() -> Result {
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
    fn what_a_process_has_not_is_refused() -> Result {
        let read_only = Buffer::user(UserPtr::from_addr(map_pages(1, false)?), PAGE_SIZE);
        assert!(matches!(read_only.write(0, b"scif"), Err(e) if e == EFAULT));
        let memory = SharedMemory::new(PAGE_SIZE, &User::Physical, Payer::Nobody)?;
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
