// SPDX-License-Identifier: GPL-2.0

//! Memory that the CPU loads and stores through a mapping of the kernel: that of a device, and RAM by its
//! physical address.
//!
//! # Memory of a device
//!
//! It is mapped with write combining. Writes are cheap and gathered into bursts; they may leave the CPU in
//! any order until [`flush_writes`]. Reads stall for a round trip over the bus each.
//!
//! # RAM
//!
//! It belongs to a [`SharedMemory`](super::shared_memory::SharedMemory) or to [`Pages`], or it is reached by this node as
//! its own peer: see [`OwnMemory`].
//!
//! This file has more than 500 lines because memory of a device and RAM have the same accesses, each written once.
//!
//! C header: [`include/linux/io.h`](srctree/include/linux/io.h)

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    io::PhysAddr,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        barrier, //
    },
};

use super::{
    bindings as own,
    buffer::Buffer,
    pages::Pages, //
};
use crate::logic::{
    gate::Drained,
    stores::store_halves, //
};

/// Bytes to which the kernel has a pointer and never a reference: others write there while this node reads.
///
/// Whoever has it says how long they are valid.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) base: NonNull<u8>,
    pub(super) len: usize,
}

// SAFETY: The kernel's mappings belong to no thread.
unsafe impl Send for Span {}
// SAFETY: It is no more than an address and a number.
unsafe impl Sync for Span {}

impl Span {
    /// Returns a pointer to `count` bytes at an offset; `EINVAL` where they are not all inside.
    #[inline]
    pub(super) fn at(self, offset: usize, count: usize) -> Result<*mut u8> {
        match offset.checked_add(count) {
            Some(end) if end <= self.len => Ok(self.base.as_ptr().wrapping_add(offset)),
            _ => Err(EINVAL),
        }
    }

    /// Returns a pointer to a number, as [`Self::at`]; `EINVAL` also where it is not aligned.
    #[inline]
    pub(super) fn number_at<N>(self, offset: usize) -> Result<*mut N> {
        let pointer = self.at(offset, size_of::<N>())?.cast::<N>();
        if pointer.is_aligned() {
            Ok(pointer)
        } else {
            Err(EINVAL)
        }
    }
}

/// Where a device has memory that may be loaded and stored.
#[derive(Clone, Copy)]
pub(crate) struct DeviceMemory {
    phys: u64,
    /// Its bytes.
    pub(crate) size: u64,
}

impl DeviceMemory {
    /// So many bytes at a physical address.
    ///
    /// # Safety
    ///
    /// They are memory of a device, and no registers. Or they are RAM, and are refused later.
    pub(super) unsafe fn new(phys: u64, size: u64) -> Self {
        Self { phys, size }
    }
}

/// A mapped range of device memory.
///
/// Drop it before the driver of the device lets the range go.
///
/// # Invariants
///
/// `span` is an `ioremap`ped range at the physical address `phys`, unless `len` is 0.
pub(crate) struct IoMapping {
    span: Span,
    pub(crate) phys: u64,
    /// Its bytes; 0 once it is not mapped any more.
    len: Atomic<usize>,
}

impl IoMapping {
    /// Maps the first `size` bytes of memory of a device. May sleep. EINVAL if it has no so many.
    pub(crate) fn write_combined(memory: DeviceMemory, size: u64) -> Result<Self> {
        if size > memory.size {
            return Err(EINVAL);
        }
        let (phys, size) = (memory.phys, usize::try_from(size)?);
        if size == 0 || (size as u64).checked_add(phys).is_none() {
            return Err(EINVAL);
        }
        // SAFETY: Addresses that are RAM are refused.
        let base = unsafe { own::scif_helper_ioremap_wc(phys as PhysAddr, size) };
        // INVARIANT: It has just been mapped.
        let base = NonNull::new(base.cast()).ok_or(ENOMEM)?;
        Ok(Self {
            span: Span { base, len: size },
            phys,
            len: Atomic::new(size),
        })
    }

    /// The size in bytes; 0 after [`Self::unmap`].
    pub(crate) fn size(&self) -> usize {
        // SAFETY: It is valid, and stored in one piece. `load` would be a call of C, on the way of each message.
        unsafe { self.len.as_ptr().read_volatile() }
    }

    /// Takes the mapping away before this is dropped: nothing of it is reached any more, as all who do that are inside of
    /// what was drained. May sleep.
    pub(crate) fn unmap(&self, _nobody_reaches_it: &Drained) {
        if self.len.xchg(0, Full) != 0 {
            // SAFETY: By the type invariant it is mapped. Who reaches some of it is inside of what is drained: nobody.
            unsafe { bindings::iounmap(self.span.base.as_ptr().cast()) };
        }
    }

    /// Where the kernel has it mapped, as a number.
    pub(crate) fn kernel_address(&self) -> usize {
        self.span.base.addr().get()
    }

    /// `len` bytes of it: EFAULT where they are not all inside, or after [`Self::unmap`].
    pub(crate) fn reach(&self, offset: u64, len: u64) -> Result<Reached<'_>> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size() as u64 => Ok(Reached {
                // INVARIANT: It is a part of the mapping, which is borrowed.
                span: Span {
                    // SAFETY: It is inside, as just checked.
                    base: unsafe { self.span.base.add(offset as usize) },
                    len: len as usize,
                },
                phys: self.phys + offset,
                is_device: true,
                _mapping: PhantomData,
            }),
            _ => Err(EFAULT),
        }
    }

    /// The `len` bytes at a physical address: EINVAL if they are not all in it.
    pub(super) fn at(&self, phys: u64, len: usize) -> Result<Reached<'_>> {
        let offset = phys.checked_sub(self.phys).ok_or(EINVAL)?;
        self.reach(offset, len as u64).or(Err(EINVAL))
    }
}

impl Drop for IoMapping {
    fn drop(&mut self) {
        if self.size() != 0 {
            // SAFETY: By the type invariant it is mapped, and nothing uses it any more.
            unsafe { bindings::iounmap(self.span.base.as_ptr().cast()) };
        }
    }
}

/// Memory that the CPU reaches.
///
/// Offsets count from its first byte; what does not lie in it is EINVAL.
///
/// # Invariants
///
/// `span` is where the kernel has the bytes at `phys` mapped: memory of a device in a mapping that lives
/// for `'a` if `is_device`, else RAM in the kernel's linear mapping.
pub(crate) struct Reached<'a> {
    span: Span,
    phys: u64,
    is_device: bool,
    _mapping: PhantomData<&'a IoMapping>,
}

/// This node's memory, as it names it to itself where it is its own peer: by physical addresses.
///
/// Nothing is looked up here, as each message comes this way: an address is trusted as a peer's module trusts it. It comes
/// out of the tables of this module alone, which no process and no other peer writes to, and who has told it keeps
/// the memory until it was taken back. What is checked is that there is RAM, so that a wrong one is an error and
/// not a crash.
pub(crate) struct OwnMemory;

impl OwnMemory {
    /// Bytes at a physical address: EFAULT where there is no RAM.
    pub(crate) fn reach(&self, phys: u64, len: u64) -> Result<Reached<'_>> {
        let len = usize::try_from(len)?;
        // SAFETY: It takes any address.
        let base = unsafe { own::scif_helper_direct_map(phys, len) };
        let base = NonNull::new(base.cast()).ok_or(EFAULT)?;
        // INVARIANT: C has just seen to it that there is RAM; whoever has told the address keeps it.
        Ok(Reached {
            span: Span { base, len },
            phys,
            is_device: false,
            _mapping: PhantomData,
        })
    }
}

impl Reached<'_> {
    /// Bytes of this node's RAM, in pages that follow each other.
    ///
    /// # Safety
    ///
    /// The pages are RAM, and stay allocated as long as what is returned.
    pub(super) unsafe fn in_pages(phys: u64, len: usize) -> Self {
        // SAFETY: By the contract of this function there are such pages.
        let base = unsafe { own::scif_helper_page_address(phys as PhysAddr) };
        // SAFETY: A page that is mapped is not at 0.
        let base = unsafe { NonNull::new_unchecked(base.cast()) };
        // INVARIANT: The kernel has all RAM mapped.
        Self {
            span: Span { base, len },
            phys,
            is_device: false,
            _mapping: PhantomData,
        }
    }

    /// Stores bytes. Posted: see [`flush_writes`].
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> Result {
        let to = self.span.at(at, bytes.len())?;
        // SAFETY: Both are valid for that many bytes. What RAM is used for is up to those who share the
        // address; no Rust reference covers it.
        unsafe { copy(to, self.is_device, bytes.as_ptr(), false, bytes.len()) };
        Ok(())
    }

    /// Stores `len` bytes of a caller from `from_offset` on, if they are in memory and can be stored
    /// without a copy; says whether that was so. If not, or on an error, some may have been stored.
    /// Does not wait.
    #[inline]
    pub(crate) fn write_from(
        &self,
        at: usize,
        from: &Buffer,
        from_offset: usize,
        len: usize,
    ) -> Result<bool> {
        let to = self.span.at(at, len)?;
        // SAFETY: As in `write`.
        unsafe { from.copy_to(from_offset, to, self.is_device, len) }
    }

    /// Loads 32 bits, of which nobody hears: when this returns, what this processor has stored before has arrived,
    /// and what the peer's processors had stored before that is here. A round trip across a bridge.
    pub(crate) fn read_back(&self, at: usize) -> Result {
        let from = self.span.number_at::<u32>(at)?;
        // The stores leave before the load, and what is loaded later is loaded after it.
        barrier::mb(barrier::Full);
        // SAFETY: `number_at` returns valid and aligned pointers.
        unsafe {
            if self.is_device {
                bindings::readl(from.cast());
            } else {
                from.read_volatile();
            }
        }
        barrier::mb(barrier::Full);
        Ok(())
    }

    /// Stores a byte, in one access.
    pub(crate) fn write_u8(&self, at: usize, value: u8) -> Result {
        let to = self.span.number_at::<u8>(at)?;
        // SAFETY: As in `write_u32`.
        unsafe {
            if self.is_device {
                bindings::writeb(value, to.cast());
            } else {
                to.write_volatile(value);
            }
        }
        Ok(())
    }

    /// Stores a 32-bit value, little-endian, in one access.
    pub(crate) fn write_u32(&self, at: usize, value: u32) -> Result {
        let to = self.span.number_at::<u32>(at)?;
        // SAFETY: `number_at` returns valid and aligned pointers; otherwise as in `write`.
        unsafe {
            if self.is_device {
                bindings::writel(value, to.cast());
            } else {
                to.write_volatile(value.to_le());
            }
        }
        Ok(())
    }

    /// Stores a 64-bit value, little-endian, in one access.
    pub(crate) fn write_u64(&self, at: usize, value: u64) -> Result {
        let to = self.span.number_at::<u64>(at)?;
        // SAFETY: As in `write_u32`.
        unsafe {
            if self.is_device {
                bindings::writeq(value, to.cast());
            } else {
                to.write_volatile(value.to_le());
            }
        }
        Ok(())
    }

    /// Fills all of it with bytes of `pages` from `offset` on, by CPU.
    #[inline]
    pub(crate) fn copy_from(&self, pages: &Pages, offset: usize) -> Result {
        let (to, is_device) = (self.span.base.as_ptr(), self.is_device);
        pages.for_each_piece(offset, self.span.len, |piece, done| {
            // SAFETY: The piece and what was before it are no longer than this, by whose invariant the memory is there.
            // Where they overlap the contents are mixed; C's function does not mind.
            unsafe { piece.copy_out(to.add(done), is_device) };
            Ok(())
        })
    }

    /// Copies all of it to `pages` from `offset` on, by CPU; slow across a bridge. `EACCES` when those are
    /// read-only.
    pub(crate) fn copy_to(&self, pages: &Pages, offset: usize) -> Result {
        pages.require_writable()?;
        let (from, is_device) = (self.span.base.as_ptr(), self.is_device);
        pages.for_each_piece(offset, self.span.len, |piece, done| {
            // SAFETY: As in `copy_from`; the pages are writable.
            unsafe { piece.copy_in(from.add(done), is_device) };
            Ok(())
        })
    }

    /// Copies all of it to memory that may be a device's.
    ///
    /// # Safety
    ///
    /// So many bytes at `to` are valid for writes; they are `ioremap`ped if `is_device`.
    pub(super) unsafe fn copy_out(&self, to: *mut u8, is_device: bool) {
        let Span { base, len } = self.span;
        // SAFETY: By the contract of this function, and the type invariant.
        unsafe { copy_in_use(to, is_device, base.as_ptr(), self.is_device, len) };
    }

    /// Fills all of it, which processes may have mapped, from memory that may be a device's.
    ///
    /// # Safety
    ///
    /// So many bytes at `from` are valid for reads; they are `ioremap`ped if `is_device`.
    pub(super) unsafe fn copy_in(&self, from: *const u8, is_device: bool) {
        let Span { base, len } = self.span;
        // SAFETY: By the contract of this function, and the type invariant.
        unsafe { copy_in_use(base.as_ptr(), self.is_device, from, is_device, len) };
        if self.is_device {
            flush_writes();
        } else {
            // SAFETY: By the type invariant it is RAM.
            unsafe { own::scif_helper_flush_pages(self.phys as PhysAddr, len) };
        }
    }

    /// Stores a number that is all of it, little-endian, before anything that is stored later: in one access where it is
    /// aligned, else in two, the lower half last. EINVAL unless it is aligned to 4 bytes, and that long.
    pub(crate) fn store_u64(&self, value: u64) -> Result {
        if self.span.len != size_of::<u64>() {
            return Err(EINVAL);
        }
        // Whoever sees the value sees what was written before.
        barrier::smp_mb(barrier::Write);
        if self.write_u64(0, value).is_err() {
            store_halves(value, |at, half| self.write_u32(at, half), flush_writes)?;
        }
        if self.is_device {
            flush_writes();
        }
        Ok(())
    }

    /// The frame of the page at which it begins, for mapping it into a process: `EINVAL` where no whole page
    /// is. It stays what it is as long as what is reached.
    pub(crate) fn page_frame(&self) -> Result<u64> {
        self.span.at(0, PAGE_SIZE)?;
        if self.phys % PAGE_SIZE as u64 != 0 {
            return Err(EINVAL);
        }
        Ok(self.phys >> PAGE_SHIFT)
    }

    /// Where the kernel has its first page mapped, as a number.
    pub(crate) fn kernel_address(&self) -> Result<usize> {
        Ok(self.span.at(0, PAGE_SIZE)?.addr())
    }

    /// The whole of it by itself, if it is memory of a device: for who may keep it longer than it is reached. May
    /// sleep.
    pub(crate) fn to_keep(&self) -> Result<Option<IoMapping>> {
        if !self.is_device {
            return Ok(None);
        }
        let size = self.span.len as u64;
        // SAFETY: By the type invariant it is memory of a device.
        let memory = unsafe { DeviceMemory::new(self.phys, size) };
        IoMapping::write_combined(memory, size).map(Some)
    }

    /// Whether processes map it write-combining.
    pub(crate) fn is_write_combined(&self) -> bool {
        self.is_device
    }
}

/// Makes everything written before, to any device, arrive before anything that is written after: other
/// memory, and doorbells.
pub(crate) fn flush_writes() {
    barrier::mb(barrier::Write);
}

/// The physical address behind the last byte of RAM.
pub(crate) fn end_of_memory() -> u64 {
    // SAFETY: No preconditions.
    unsafe { own::scif_helper_end_of_memory() }
}

/// As which address other devices know a physical one, if no IOMMU translates for them.
pub(crate) fn bus_address(phys: u64) -> u64 {
    // SAFETY: It takes any address.
    unsafe { own::scif_helper_bus_address(phys as PhysAddr) }
}

/// Copies `len` bytes between memory of the kernel and memory of devices.
///
/// # Safety
///
/// `to` is valid for writes, and `from` for reads; each is a device's memory that is mapped write-combining if it
/// says so.
#[inline]
pub(super) unsafe fn copy(
    to: *mut u8,
    to_device: bool,
    from: *const u8,
    from_device: bool,
    len: usize,
) {
    let (to, from) = (to.cast(), from.cast());
    // SAFETY: By the contract of this function.
    unsafe {
        if from_device {
            own::scif_helper_copy_from_io(to, to_device, from, len);
        } else if to_device {
            own::scif_helper_copy_to_io(to, from, len);
        } else {
            bindings::memcpy(to, from, len);
        }
    }
}

/// Copies as [`copy`] what processes may write and read meanwhile, and other transfers, which KCSAN so does not look at:
/// what comes of that is up to those who share the memory.
///
/// # Safety
///
/// As for [`copy`].
#[inline]
unsafe fn copy_in_use(
    to: *mut u8,
    to_device: bool,
    from: *const u8,
    from_device: bool,
    len: usize,
) {
    #[cfg(CONFIG_KCSAN)]
    // SAFETY: No preconditions; it ends below.
    unsafe {
        bindings::kcsan_disable_current()
    };
    // SAFETY: By the contract of this function.
    unsafe { copy(to, to_device, from, from_device, len) };
    #[cfg(CONFIG_KCSAN)]
    // SAFETY: It was begun above.
    unsafe {
        bindings::kcsan_enable_current()
    };
}

#[kunit_tests(scif_sys_reached)]
mod tests {
    use super::*;
    use crate::sys::shared_memory::{
        Payer,
        SharedMemory,
        User, //
    };

    #[test]
    fn it_is_the_same_memory() -> Result {
        let memory = SharedMemory::new(8192, &User::Physical, Payer::Nobody)?;
        let address = memory.phys_address();
        assert!(address + 8192 <= end_of_memory());
        let reached = OwnMemory.reach(address, 8192)?;
        reached.write(4094, b"scif")?;
        reached.write_u32(8, 0x1234_5678)?;
        reached.write_u64(16, 9)?;
        let mut bytes = [0; 4];
        memory.read(4094, &mut bytes)?;
        assert_eq!(&bytes, b"scif");
        assert_eq!(memory.read_u32(8)?, 0x1234_5678);
        assert_eq!(memory.read_u64(16)?, 9);
        assert!(reached.write_u32(2, 1).is_err());
        assert!(reached.write_u32(8192, 1).is_err());
        Ok(())
    }

    #[test]
    fn what_is_no_memory_is_refused() {
        assert!(OwnMemory.reach(1 << 45, 1).is_err());
        assert!(OwnMemory.reach(u64::MAX, 1).is_err());
        assert!(OwnMemory.reach(u64::MAX - 4095, 8192).is_err());
        assert!(OwnMemory.reach(0, u64::MAX).is_err());
    }
}
