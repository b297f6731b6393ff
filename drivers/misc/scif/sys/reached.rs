// SPDX-License-Identifier: GPL-2.0

//! Memory that the CPU loads and stores through a mapping of the kernel: a device's memory, or RAM
//! by its physical address.
//!
//! # Memory of a device
//!
//! The kernel maps device memory with write combining. Stores are cheap and are combined into
//! bursts. They may leave the CPU in any order until [`flush_writes`]. Each load stalls for a round
//! trip over the bus.
//!
//! # RAM
//!
//! RAM belongs to a [`SharedMemory`](super::shared_memory::SharedMemory) or to [`Pages`]. As its
//! own peer, this node accesses RAM through [`OwnMemory`].
//!
//! This file has more than 500 lines because device memory and RAM have the same accesses, each
//! written once.
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

/// A range of bytes to which the kernel has a pointer but never a reference, because others write
/// there while this node reads.
///
/// The owner of the value determines how long the bytes are valid.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) base: NonNull<u8>,
    pub(super) len: usize,
}

// SAFETY: The kernel's mappings belong to no thread.
unsafe impl Send for Span {}
// SAFETY: The value is only an address and a number.
unsafe impl Sync for Span {}

impl Span {
    /// Returns a pointer to `count` bytes at `offset`; `EINVAL` if not all of them are inside.
    #[inline]
    pub(super) fn at(self, offset: usize, count: usize) -> Result<*mut u8> {
        match offset.checked_add(count) {
            Some(end) if end <= self.len => Ok(self.base.as_ptr().wrapping_add(offset)),
            _ => Err(EINVAL),
        }
    }

    /// Returns a pointer to a number at `offset`; `EINVAL` if it is not inside or not aligned.
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

/// A range of device memory that the CPU may load and store.
#[derive(Clone, Copy)]
pub(crate) struct DeviceMemory {
    phys: u64,
    /// Size in bytes.
    pub(crate) size: u64,
}

impl DeviceMemory {
    /// Describes `size` bytes of device memory at a physical address.
    ///
    /// # Safety
    ///
    /// The bytes are memory of a device, and not registers. Or they are RAM, which
    /// [`IoMapping::write_combined`] refuses.
    pub(super) unsafe fn new(phys: u64, size: u64) -> Self {
        Self { phys, size }
    }
}

/// A mapped range of device memory.
///
/// Drop it before the device's driver releases the range.
///
/// # Invariants
///
/// `span` is an `ioremap`ped range at the physical address `phys`, unless `len` is 0.
pub(crate) struct IoMapping {
    span: Span,
    pub(crate) phys: u64,
    /// Size in bytes; 0 once the range is unmapped.
    len: Atomic<usize>,
}

impl IoMapping {
    /// Maps the first `size` bytes of a device's memory.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `size` is 0, or the device does not have so many bytes.
    /// - `ENOMEM`: the range can't be mapped, for example because it is RAM.
    ///
    /// Context: may sleep.
    pub(crate) fn write_combined(memory: DeviceMemory, size: u64) -> Result<Self> {
        if size > memory.size {
            return Err(EINVAL);
        }
        let (phys, size) = (memory.phys, usize::try_from(size)?);
        if size == 0 || (size as u64).checked_add(phys).is_none() {
            return Err(EINVAL);
        }
        // SAFETY: The helper refuses addresses that are RAM.
        let base = unsafe { own::scif_helper_ioremap_wc(phys as PhysAddr, size) };
        // INVARIANT: The range has just been mapped.
        let base = NonNull::new(base.cast()).ok_or(ENOMEM)?;
        Ok(Self {
            span: Span { base, len: size },
            phys,
            len: Atomic::new(size),
        })
    }

    /// Returns the size in bytes; 0 after [`Self::unmap`].
    pub(crate) fn size(&self) -> usize {
        // SAFETY: The pointer is valid, and the number is stored in one piece. `load` would be a
        // call of C, on the path of each message.
        unsafe { self.len.as_ptr().read_volatile() }
    }

    /// Unmaps the range before this is dropped. `_drained` proves that all uses of the range
    /// have ended.
    /// Context: may sleep.
    pub(crate) fn unmap(&self, _drained: &Drained) {
        if self.len.xchg(0, Full) != 0 {
            // SAFETY: By the type invariant the range is mapped. The caller has drained all users
            // of the range, so no other code uses it.
            unsafe { bindings::iounmap(self.span.base.as_ptr().cast()) };
        }
    }

    /// Returns the kernel's address of the mapping, as a number.
    pub(crate) fn kernel_address(&self) -> usize {
        self.span.base.addr().get()
    }

    /// Returns `len` bytes at `offset`; `EFAULT` if not all of them are inside, or after
    /// [`Self::unmap`].
    pub(crate) fn reach(&self, offset: u64, len: u64) -> Result<Reached<'_>> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size() as u64 => Ok(Reached {
                // INVARIANT: The bytes are a part of the mapping, which is borrowed.
                span: Span {
                    // SAFETY: The offset is inside, as just checked.
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

    /// Returns the `len` bytes at a physical address; `EINVAL` if they are not all in this mapping.
    pub(super) fn at(&self, phys: u64, len: usize) -> Result<Reached<'_>> {
        let offset = phys.checked_sub(self.phys).ok_or(EINVAL)?;
        self.reach(offset, len as u64).or(Err(EINVAL))
    }
}

impl Drop for IoMapping {
    fn drop(&mut self) {
        if self.size() != 0 {
            // SAFETY: By the type invariant the range is mapped, and nothing uses it any more.
            unsafe { bindings::iounmap(self.span.base.as_ptr().cast()) };
        }
    }
}

/// A range of memory that the CPU can access.
///
/// Offsets count from its first byte. An access outside of the range is `EINVAL`.
///
/// # Invariants
///
/// `span` is where the kernel has the bytes at `phys` mapped. If `is_device`, they are memory of a
/// device, in a mapping that lives for `'a`; else RAM in the kernel's linear mapping.
pub(crate) struct Reached<'a> {
    span: Span,
    phys: u64,
    is_device: bool,
    _mapping: PhantomData<&'a IoMapping>,
}

/// The memory of this node, by physical addresses, for a node that is its own peer.
///
/// Each message takes this path, so no address is looked up: an address is trusted as a peer's
/// module trusts it. Addresses come only from the tables of this module, which no process and no
/// other peer can write. The owner that published an address keeps the memory until it has
/// withdrawn the address. Only the presence of RAM is checked, so that a wrong address is an error
/// and not a crash.
pub(crate) struct OwnMemory;

impl OwnMemory {
    /// Returns `len` bytes at a physical address; `EFAULT` where there is no RAM.
    pub(crate) fn reach(&self, phys: u64, len: u64) -> Result<Reached<'_>> {
        let len = usize::try_from(len)?;
        // SAFETY: The helper takes any address.
        let base = unsafe { own::scif_helper_direct_map(phys, len) };
        let base = NonNull::new(base.cast()).ok_or(EFAULT)?;
        // INVARIANT: The helper has checked that there is RAM. The owner that published the address
        // keeps it.
        Ok(Reached {
            span: Span { base, len },
            phys,
            is_device: false,
            _mapping: PhantomData,
        })
    }
}

impl Reached<'_> {
    /// Returns `len` bytes of this node's RAM, in pages that follow each other.
    ///
    /// # Safety
    ///
    /// The pages are RAM, and stay allocated while the returned value exists.
    pub(super) unsafe fn in_pages(phys: u64, len: usize) -> Self {
        // SAFETY: By the contract of this function there are such pages.
        let base = unsafe { own::scif_helper_page_address(phys as PhysAddr) };
        // SAFETY: The address of a mapped page is not 0.
        let base = unsafe { NonNull::new_unchecked(base.cast()) };
        // INVARIANT: The kernel has all RAM mapped.
        Self {
            span: Span { base, len },
            phys,
            is_device: false,
            _mapping: PhantomData,
        }
    }

    /// Returns a pointer to the first byte, for stores by C.
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.span.base.as_ptr()
    }

    /// Stores bytes. The stores are posted: [`flush_writes`] orders them.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> Result {
        let to = self.span.at(at, bytes.len())?;
        // SAFETY: Both are valid for that many bytes. The users that share the address expect such
        // writes to RAM, and no Rust reference covers it.
        unsafe { copy(to, self.is_device, bytes.as_ptr(), false, bytes.len()) };
        Ok(())
    }

    /// Stores `len` bytes of a caller's buffer from `from_offset` on, without sleeping.
    ///
    /// Returns false if the bytes are not in memory or can't be stored without a copy. On false or
    /// an error, some bytes may have been stored.
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

    /// Loads 32 bits and discards them, to order memory across the bridge.
    ///
    /// When this returns, all earlier stores of this CPU have arrived at the peer. All stores that
    /// the peer's CPUs made before have arrived here. The load takes a round trip across the
    /// bridge.
    pub(crate) fn read_back(&self, at: usize) -> Result {
        let from = self.span.number_at::<u32>(at)?;
        // Orders earlier stores before the load; the barrier below orders the load before later
        // loads.
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

    /// Stores a byte with one access.
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

    /// Stores a 32-bit number, little-endian, with one access.
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

    /// Stores a 64-bit number, little-endian, with one access.
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

    /// Fills the whole range by CPU with bytes of `pages` from `offset` on.
    #[inline]
    pub(crate) fn copy_from(&self, pages: &Pages, offset: usize) -> Result {
        let (to, is_device) = (self.span.base.as_ptr(), self.is_device);
        pages.for_each_piece(offset, self.span.len, |piece, done| {
            // SAFETY: The pieces so far are no longer than the range, whose memory is there by the
            // type invariant. Where both overlap, the contents are mixed, which C's function
            // tolerates.
            unsafe { piece.copy_out(to.add(done), is_device) };
            Ok(())
        })
    }

    /// Copies the whole range by CPU to `pages` from `offset` on, which is slow across a bridge.
    /// Returns `EACCES` if the pages are read-only.
    pub(crate) fn copy_to(&self, pages: &Pages, offset: usize) -> Result {
        pages.require_writable()?;
        let (from, is_device) = (self.span.base.as_ptr(), self.is_device);
        pages.for_each_piece(offset, self.span.len, |piece, done| {
            // SAFETY: As in `copy_from`; the pages are writable.
            unsafe { piece.copy_in(from.add(done), is_device) };
            Ok(())
        })
    }

    /// Copies the whole range to memory that may be a device's.
    ///
    /// # Safety
    ///
    /// As many bytes at `to` are valid for writes. They are `ioremap`ped if `is_device`.
    pub(super) unsafe fn copy_out(&self, to: *mut u8, is_device: bool) {
        let Span { base, len } = self.span;
        // SAFETY: By the contract of this function, and the type invariant.
        unsafe { copy_in_use(to, is_device, base.as_ptr(), self.is_device, len) };
    }

    /// Fills the whole range, which processes may have mapped, from memory that may be a device's.
    ///
    /// # Safety
    ///
    /// As many bytes at `from` are valid for reads. They are `ioremap`ped if `is_device`.
    pub(super) unsafe fn copy_in(&self, from: *const u8, is_device: bool) {
        let Span { base, len } = self.span;
        // SAFETY: By the contract of this function, and the type invariant.
        unsafe { copy_in_use(base.as_ptr(), self.is_device, from, is_device, len) };
        if self.is_device {
            flush_writes();
        } else {
            // SAFETY: By the type invariant the range is RAM.
            unsafe { own::scif_helper_flush_pages(self.phys as PhysAddr, len) };
        }
    }

    /// Stores a number that fills the whole range, little-endian, before all later stores.
    ///
    /// An aligned number takes one access, any other two, the lower half last. Returns `EINVAL`
    /// unless the range has 8 bytes and is aligned to 4.
    pub(crate) fn store_u64(&self, value: u64) -> Result {
        if self.span.len != size_of::<u64>() {
            return Err(EINVAL);
        }
        // Makes a reader that sees the value see all earlier writes, too.
        barrier::smp_mb(barrier::Write);
        if self.write_u64(0, value).is_err() {
            store_halves(value, |at, half| self.write_u32(at, half), flush_writes)?;
        }
        if self.is_device {
            flush_writes();
        }
        Ok(())
    }

    /// Returns the frame of the range's first page, for mapping it into a process; `EINVAL` where
    /// no whole page begins. The frame is valid as long as this range.
    pub(crate) fn page_frame(&self) -> Result<u64> {
        self.span.at(0, PAGE_SIZE)?;
        if self.phys % PAGE_SIZE as u64 != 0 {
            return Err(EINVAL);
        }
        Ok(self.phys >> PAGE_SHIFT)
    }

    /// Returns the kernel's address of the first page, as a number.
    pub(crate) fn kernel_address(&self) -> Result<usize> {
        Ok(self.span.at(0, PAGE_SIZE)?.addr())
    }

    /// Maps the whole range anew, for a caller that keeps it for longer than this value. `None` for
    /// RAM.
    /// Context: may sleep.
    pub(crate) fn to_keep(&self) -> Result<Option<IoMapping>> {
        if !self.is_device {
            return Ok(None);
        }
        let size = self.span.len as u64;
        // SAFETY: By the type invariant it is memory of a device.
        let memory = unsafe { DeviceMemory::new(self.phys, size) };
        IoMapping::write_combined(memory, size).map(Some)
    }

    /// Returns whether processes map this memory write-combining.
    pub(crate) fn is_write_combined(&self) -> bool {
        self.is_device
    }
}

/// Makes all earlier writes, to any device, arrive before all later writes, including doorbells.
pub(crate) fn flush_writes() {
    barrier::mb(barrier::Write);
}

/// Returns the physical address behind the last byte of RAM.
pub(crate) fn end_of_memory() -> u64 {
    // SAFETY: No preconditions.
    unsafe { own::scif_helper_end_of_memory() }
}

/// Returns the address by which other devices know a physical one, if no IOMMU translates for them.
pub(crate) fn bus_address(phys: u64) -> u64 {
    // SAFETY: The helper takes any address.
    unsafe { own::scif_helper_bus_address(phys as PhysAddr) }
}

/// Copies `len` bytes between memory of the kernel and memory of devices.
///
/// # Safety
///
/// `to` is valid for writes, and `from` for reads. Each is device memory that is mapped
/// write-combining if `to_device` or `from_device` says so.
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

/// Copies as [`copy`] does, but hides the accesses from KCSAN: processes and other transfers may
/// access the memory meanwhile. The sharers of the memory have to cope with the result.
///
/// # Safety
///
/// The contract is that of [`copy`].
#[inline]
unsafe fn copy_in_use(
    to: *mut u8,
    to_device: bool,
    from: *const u8,
    from_device: bool,
    len: usize,
) {
    #[cfg(CONFIG_KCSAN)]
    // SAFETY: No preconditions; KCSAN is enabled again below.
    unsafe {
        bindings::kcsan_disable_current()
    };
    // SAFETY: By the contract of this function.
    unsafe { copy(to, to_device, from, from_device, len) };
    #[cfg(CONFIG_KCSAN)]
    // SAFETY: KCSAN was disabled above.
    unsafe {
        bindings::kcsan_enable_current()
    };
}

/// Memory of the peer for a number of bytes.
pub struct Room<'a> {
    memory: Reached<'a>,
    len: u32,
}

impl<'a> Room<'a> {
    /// Takes memory for `len` bytes, which `memory` has.
    pub(crate) fn new(memory: Reached<'a>, len: u32) -> Self {
        Self { memory, len }
    }

    /// Returns the number of bytes to be stored.
    pub fn size(&self) -> usize {
        self.len as usize
    }

    /// Stores bytes at an offset. EINVAL: they are not all inside.
    pub fn store(&self, at: usize, bytes: &[u8]) -> Result {
        self.memory.write(at, bytes)
    }

    /// Returns the address of the first byte: memory of a device that is mapped write-combining, or
    /// RAM. It is valid for stores of [`Self::size`] bytes.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.memory.pointer()
    }
}

#[kunit_tests(scif_sys_reached)]
mod tests {
    use super::*;
    use crate::sys::shared_memory::{
        MemoryUser,
        Payer,
        SharedMemory, //
    };

    #[test]
    fn memory_reached_by_address_is_the_same_memory() -> Result {
        let memory = SharedMemory::new(8192, &MemoryUser::Physical, Payer::None)?;
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
    fn address_outside_memory_is_refused() {
        assert!(OwnMemory.reach(1 << 45, 1).is_err());
        assert!(OwnMemory.reach(u64::MAX, 1).is_err());
        assert!(OwnMemory.reach(u64::MAX - 4095, 8192).is_err());
        assert!(OwnMemory.reach(0, u64::MAX).is_err());
    }
}
