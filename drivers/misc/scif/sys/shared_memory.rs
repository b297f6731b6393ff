// SPDX-License-Identifier: GPL-2.0

//! Kernel memory that another host writes to while this node reads it.
//!
//! No Rust reference into this memory ever exists. Every access copies once, through a volatile
//! load or C's `memcpy`, so a value that was checked cannot change afterwards. Numbers are
//! little-endian.
//!
//! The memory is contiguous, both in physical memory and at the bus addresses by which a device or
//! a peer accesses it.
//!
//! A [`StatusPage`] is such memory that processes have mapped.
//!
//! This file has more than 500 lines because it holds all ways in which such memory is read and
//! written.

use core::{
    marker::PhantomData,
    mem::offset_of,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    device::Device,
    dma::DataDirection,
    page::{
        page_align,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        barrier,
        Arc, //
    },
    uaccess::UserPtr, //
};

use super::{
    arena::{
        Arena,
        Linked, //
    },
    bindings as own,
    dma_map::{
        MappedRun,
        SHARED, //
    },
    fate::Fate,
    memory_group::MemoryGroup,
    places::Purpose,
    pool::{
        Piece,
        Pool, //
    },
    reached::{
        Reached,
        Span, //
    },
    user_mapping::Frame, //
};

/// User of memory besides this machine's CPUs. The variant decides which address it is given.
#[derive(Clone)]
pub(crate) enum MemoryUser {
    /// A user that names the memory by its physical address.
    Physical,
    /// A device that has the memory mapped by itself.
    Device(ARef<Device>),
    /// A device that accesses the memory at a place of this arena.
    Arena(Arc<Arena>),
    /// A device that may access all of this pool.
    Pool(Arc<Pool>),
}

impl MemoryUser {
    /// Returns whether this user can access `len` bytes at `address`, as it names addresses. A user
    /// without an arena or a pool can access everything.
    pub(super) fn has(&self, address: u64, len: u64) -> bool {
        let places = match self {
            Self::Physical | Self::Device(_) => return true,
            Self::Arena(arena) => &arena.places,
            Self::Pool(pool) => &pool.places,
        };
        let offset = address.checked_sub(places.base);
        let end = offset.and_then(|offset| offset.checked_add(len));
        end.is_some_and(|end| end <= places.shape.len)
    }
}

/// Payer of an allocation: the memory cgroup that is charged for it.
///
/// A process pays for what it makes this module allocate. Memory that a peer makes this node
/// allocate is charged to no cgroup, so its amount has to be bounded instead.
#[derive(Clone, Copy)]
pub(crate) enum Payer<'a> {
    /// The cgroup of the calling task. A kernel thread has none and pays nothing, as with
    /// [`Payer::None`].
    Caller,
    /// This cgroup: for an allocation on behalf of a process, in any thread. The allocation does
    /// not try hard, because it must not wait for memory of a cgroup that has none left.
    Group(&'a MemoryGroup),
    /// No cgroup, even if a process makes the call.
    None,
    /// No cgroup either, for memory that can be done without. The allocation does not try hard, so
    /// that no process is killed for it.
    Optional,
}

/// Memory to which bytes can be copied, for as long as it is borrowed.
///
/// # Invariants
///
/// The pointer is valid for writes of `len` bytes, and outside of all shared memory.
pub struct CopyTarget<'a> {
    to: *mut u8,
    len: usize,
    _borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> CopyTarget<'a> {
    /// Creates the target from memory of C.
    ///
    /// # Safety
    ///
    /// `to` is valid for writes of `len` bytes for `'a`, and not used by others meanwhile.
    pub unsafe fn from_raw(to: *mut u8, len: usize) -> Self {
        // INVARIANT: By the contract of this function.
        Self {
            to,
            len,
            _borrowed: PhantomData,
        }
    }

    /// Returns the number of bytes.
    pub fn size(&self) -> usize {
        self.len
    }
}

impl<'a> From<&'a mut [u8]> for CopyTarget<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        // INVARIANT: The bytes are borrowed for writing.
        Self {
            to: bytes.as_mut_ptr(),
            len: bytes.len(),
            _borrowed: PhantomData,
        }
    }
}

/// A reference to a page of [`SharedMemory`], which the peer can write to.
///
/// # Invariants
///
/// This owns a reference to the page.
pub struct GivenPage(NonNull<bindings::page>);

impl GivenPage {
    /// Returns the page. The caller has to release the reference.
    pub fn into_raw(self) -> *mut bindings::page {
        let page = self.0.as_ptr();
        core::mem::forget(self);
        page
    }
}

impl Drop for GivenPage {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { own::scif_helper_put_page(self.0.as_ptr()) };
    }
}

/// Zeroed kernel memory that is shared with a device or a peer.
///
/// Drop it after the device has been told to stop using it, and before the device's driver is
/// unbound.
///
/// # Invariants
///
/// The bytes of `span` are valid for reads and writes, and aligned for any number. This value owns
/// them: by itself, or, in a pool, by `mapping`.
pub(crate) struct SharedMemory {
    // Declared first, so the mapping is dropped before the memory.
    mapping: Mapping,
    span: Span,
    fate: Option<Arc<Fate>>,
}

/// The way in which the user finds the memory.
enum Mapping {
    Physical,
    Device(MappedRun),
    Arena(Linked),
    Pool(Piece),
}

// All accesses are volatile or made by C. A race with the peer, which writes as it likes, yields
// mixed values and nothing worse. The callers expect them.
impl SharedMemory {
    /// Allocates at least `len` bytes, which `user` may read and write, too.
    ///
    /// `payer` is charged, except for memory of a pool.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `len` is 0 or too large.
    /// - `ENOMEM`: there is no memory, or no contiguous run. At most 4 MiB can be had in one run.
    /// - `ENOSPC`: the arena or the pool is full.
    ///
    /// Context: may sleep.
    pub(crate) fn new(len: usize, user: &MemoryUser, payer: Payer<'_>) -> Result<Self> {
        if let MemoryUser::Pool(pool) = user {
            let piece = pool.take(len)?;
            // INVARIANT: A piece begins at a multiple of 64 bytes in memory that is aligned to
            // pages.
            return Ok(Self {
                span: piece.span(),
                mapping: Mapping::Pool(piece),
                fate: None,
            });
        }
        let mut this = Self::allocate(len, payer)?;
        let (phys, len) = (this.phys_address(), this.span.len);
        match user {
            MemoryUser::Physical | MemoryUser::Pool(_) => (),
            MemoryUser::Device(device) => {
                // SAFETY: `this` owns the memory and unmaps it before it frees it. Any access that
                // the device makes is expected.
                let run = unsafe { MappedRun::new(device, phys, len, SHARED) };
                this.mapping = Mapping::Device(run?);
            }
            MemoryUser::Arena(arena) => {
                let run = core::iter::once((phys, len as u64));
                let direction = DataDirection::Bidirectional;
                // SAFETY: As above.
                let linked = unsafe { arena.link(run, len, direction, SHARED, Purpose::Rings) };
                this.mapping = Mapping::Arena(linked?);
            }
        }
        Ok(this)
    }

    /// Allocates pages that no other user has.
    fn allocate(len: usize, payer: Payer<'_>) -> Result<Self> {
        let len = page_align(len).filter(|len| *len != 0).ok_or(EINVAL)?;
        // SAFETY: No preconditions.
        let allocate = |account, tries_hard| unsafe {
            own::scif_helper_alloc_pages_exact(len, account, tries_hard)
        };
        let base = match payer {
            Payer::Caller => allocate(true, true),
            Payer::Group(group) => group.pays_for(|| allocate(true, false)),
            Payer::None => allocate(false, true),
            Payer::Optional => allocate(false, false),
        };
        let base = NonNull::new(base.cast()).ok_or(ENOMEM)?;
        // INVARIANT: The memory has just been allocated with this size, and no other user has it.
        Ok(Self {
            mapping: Mapping::Physical,
            span: Span { base, len },
            fate: None,
        })
    }

    /// Returns the same memory, which is leaked on drop if `fate` is sealed by then.
    pub(crate) fn with_fate(self, fate: Option<Arc<Fate>>) -> Self {
        let mut this = self;
        this.fate = fate;
        this
    }

    /// Returns the fate of the memory, if it has one.
    pub(crate) fn fate(&self) -> Option<&Arc<Fate>> {
        self.fate.as_ref()
    }

    /// Takes the memory away from the device. The CPU can still read its contents.
    ///
    /// If the device was given the memory itself, it must have been told to stop using it. In an
    /// arena, the IOMMU keeps the device out.
    /// Context: may sleep.
    pub(crate) fn unmap(&self) {
        match &self.mapping {
            // The device keeps its access to the whole pool anyway.
            Mapping::Physical | Mapping::Pool(_) => {}
            Mapping::Device(run) => run.unmap(),
            Mapping::Arena(linked) => {
                linked.unlink();
            }
        }
    }

    /// Unmaps the memory as [`Self::unmap`] does, for a caller that reads it no more. A piece of a
    /// pool is given back for other users.
    /// Context: may sleep.
    pub(crate) fn retire(&self) {
        match &self.mapping {
            Mapping::Pool(piece) => piece.place.give_back(),
            _ => self.unmap(),
        }
    }

    /// Returns the address by which the user accesses the memory.
    pub(crate) fn bus_address(&self) -> u64 {
        match &self.mapping {
            Mapping::Physical => self.phys_address(),
            Mapping::Device(run) => run.address,
            Mapping::Arena(linked) => linked.address(),
            Mapping::Pool(piece) => piece.place.address(),
        }
    }

    /// Returns the size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.span.len
    }

    /// Returns the physical address.
    pub(crate) fn phys_address(&self) -> u64 {
        // SAFETY: The pages are in the kernel's linear mapping.
        unsafe { own::scif_helper_virt_to_phys(self.span.base.as_ptr().cast()) }
    }

    /// Returns the mapping of the memory, if it is mapped for a device by itself.
    pub(super) fn run(&self) -> Option<&MappedRun> {
        match &self.mapping {
            Mapping::Device(run) => Some(run),
            _ => None,
        }
    }

    /// Returns whether the pages belong to this memory alone, and not to a pool.
    pub(crate) fn has_own_pages(&self) -> bool {
        !matches!(self.mapping, Mapping::Pool(_))
    }

    /// Returns a reference to the page at an offset, which stays allocated as long as the reference
    /// exists. `None` if there is none, or the pages belong to a pool.
    pub(crate) fn give_page(&self, offset: usize) -> Option<GivenPage> {
        let page = self.page(offset)?;
        // SAFETY: The page belongs to this memory. Its allocator has split it from the others, so
        // that it has a count of its own.
        unsafe { own::scif_helper_get_page(page.as_ptr()) };
        // INVARIANT: The reference has just been taken.
        Some(GivenPage(page))
    }

    /// Returns whether no reference from [`Self::give_page`] to the page at an offset exists.
    pub(crate) fn is_page_unused(&self, offset: usize) -> bool {
        self.page(offset).is_some_and(|page| {
            // SAFETY: The page belongs to this memory.
            unsafe { own::scif_helper_is_page_unused(page.as_ptr()) }
        })
    }

    fn page(&self, offset: usize) -> Option<NonNull<bindings::page>> {
        let address = self
            .span
            .at(offset, 1)
            .ok()
            .filter(|_| self.has_own_pages())?;
        // SAFETY: The memory is RAM in the kernel's linear mapping.
        NonNull::new(unsafe { own::scif_helper_linear_page(address.cast()) })
    }

    /// Returns a part of the memory, for copies from and to it.
    pub(crate) fn reach(&self, offset: usize, len: usize) -> Result<Reached<'_>> {
        self.span.at(offset, len)?;
        // SAFETY: By the type invariant the bytes are RAM of the kernel, which `self` owns.
        Ok(unsafe { Reached::in_pages(self.phys_address() + offset as u64, len) })
    }

    /// Reads a number with one load.
    pub(crate) fn read_u32(&self, offset: usize) -> Result<u32> {
        // SAFETY: `number_at` returns valid and aligned pointers.
        Ok(u32::from_le(unsafe {
            self.span.number_at::<u32>(offset)?.read_volatile()
        }))
    }

    /// Reads a number with one load.
    pub(crate) fn read_u64(&self, offset: usize) -> Result<u64> {
        // SAFETY: `number_at` returns valid and aligned pointers.
        Ok(u64::from_le(unsafe {
            self.span.number_at::<u64>(offset)?.read_volatile()
        }))
    }

    /// Reads a number before all later reads, also when a device wrote the number.
    pub(crate) fn load_acquire_u32(&self, offset: usize) -> Result<u32> {
        let value = self.read_u32(offset)?;
        barrier::dma_mb(barrier::Read);
        Ok(value)
    }

    /// Reads a number before all later reads, also when a device wrote the number.
    pub(crate) fn load_acquire_u64(&self, offset: usize) -> Result<u64> {
        let value = self.read_u64(offset)?;
        barrier::dma_mb(barrier::Read);
        Ok(value)
    }

    /// Writes a number with one store.
    pub(crate) fn write_u64(&self, offset: usize, value: u64) -> Result {
        // SAFETY: `number_at` returns valid and aligned pointers.
        unsafe {
            self.span
                .number_at::<u64>(offset)?
                .write_volatile(value.to_le())
        };
        Ok(())
    }

    /// Copies bytes out of this memory.
    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) -> Result {
        // SAFETY: `to` is borrowed for writing, and no reference into the shared memory exists.
        unsafe { self.copy_to(offset, to.as_mut_ptr(), to.len()) }
    }

    /// Copies bytes into this memory.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) -> Result {
        let to = self.span.at(offset, from.len())?;
        // SAFETY: Both are valid for that many bytes, and do not overlap, as in `read`.
        unsafe { bindings::memcpy(to.cast(), from.as_ptr().cast(), from.len()) };
        Ok(())
    }

    /// Copies bytes from an offset on, as many as the target has.
    pub(crate) fn copy_into(&self, offset: usize, target: CopyTarget<'_>) -> Result {
        // SAFETY: By the invariant of the target.
        unsafe { self.copy_to(offset, target.to, target.len) }
    }

    /// Copies bytes to other memory of the kernel.
    ///
    /// # Safety
    ///
    /// `to` is valid for writes of `count` bytes, and outside of this memory.
    pub(super) unsafe fn copy_to(&self, offset: usize, to: *mut u8, count: usize) -> Result {
        let from = self.span.at(offset, count)?;
        // SAFETY: As just checked, and by the contract of this function.
        unsafe { bindings::memcpy(to.cast(), from.cast(), count) };
        Ok(())
    }

    /// Copies bytes to user space. Returns `EFAULT` if not all bytes could be copied.
    /// Context: may sleep.
    pub(crate) fn copy_to_user(&self, offset: usize, to: UserPtr, count: usize) -> Result {
        let from = self.span.at(offset, count)?;
        // `_copy_to_user` skips the check that the bytes lie in one object of the kernel: they do.
        // SAFETY: `from` is valid for that many bytes; C checks the address of user space.
        match unsafe { bindings::_copy_to_user(to.as_mut_ptr(), from.cast(), count) } {
            0 => Ok(()),
            _ => Err(EFAULT),
        }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        self.unmap();
        let is_reached = matches!(&self.mapping, Mapping::Arena(linked) if !linked.unlink());
        let is_leaked = self.fate.as_ref().is_some_and(|fate| fate.is_sealed());
        if is_reached || is_leaked || matches!(self.mapping, Mapping::Pool(_)) {
            return;
        }
        // SAFETY: By the type invariant this owns the memory, and it has this size.
        unsafe { bindings::free_pages_exact(self.span.base.as_ptr().cast(), self.span.len) };
    }
}

/// Fields of a status page, as `linux/scif_services.h` lays them out.
#[repr(C)]
pub(crate) struct Fields {
    version: Atomic<u32>,
    pub(crate) node: Atomic<u32>,
    pub(crate) epoch: Atomic<u64>,
    pub(crate) errors: Atomic<u64>,
    pub(crate) boot_id: [Atomic<u64>; 2],
}

static_assert!(size_of::<Fields>() == size_of::<own::scif_status_page>());
static_assert!(offset_of!(Fields, version) == offset_of!(own::scif_status_page, version));
static_assert!(offset_of!(Fields, node) == offset_of!(own::scif_status_page, node));
static_assert!(offset_of!(Fields, epoch) == offset_of!(own::scif_status_page, epoch));
static_assert!(offset_of!(Fields, errors) == offset_of!(own::scif_status_page, errors));
static_assert!(offset_of!(Fields, boot_id) == offset_of!(own::scif_status_page, boot_id));
static_assert!(size_of::<Fields>() <= PAGE_SIZE);

/// A page through which processes see the status of a node. It begins with [`Fields`], and the rest
/// is zero.
///
/// Only the kernel writes to the page, each number by one store. Processes may read it at any
/// moment.
///
/// # Invariants
///
/// Nothing but [`Fields`] was ever written to the page.
pub(crate) struct StatusPage(SharedMemory);

impl StatusPage {
    /// Allocates the page of this node; all fields but the version and the node are zero.
    /// Context: may sleep.
    pub(crate) fn new(node: u16, payer: Payer<'_>) -> Result<Self> {
        // INVARIANT: The page is zeroed.
        let this = Self(SharedMemory::new(PAGE_SIZE, &MemoryUser::Physical, payer)?);
        this.version.store(own::SCIF_STATUS_VERSION, Relaxed);
        this.node.store(node.into(), Relaxed);
        Ok(this)
    }

    /// Returns the page frame, for mapping it into processes.
    pub(crate) fn frame(&self) -> Result<Frame<'_>> {
        Frame::of_memory(&self.0)
    }
}

impl core::ops::Deref for StatusPage {
    type Target = Fields;

    fn deref(&self) -> &Fields {
        // SAFETY: The memory is a page, which begins with `Fields` by the type invariant. Zeros are
        // valid values of all fields, and processes can only read them.
        unsafe { self.0.span.base.cast().as_ref() }
    }
}

#[kunit_tests(scif_sys_shared_memory)]
mod tests {
    use super::*;
    use crate::sys::tests::device;

    impl SharedMemory {
        /// Writes a number with one store.
        pub(crate) fn write_u32(&self, offset: usize, value: u32) -> Result {
            // SAFETY: `number_at` returns valid and aligned pointers.
            unsafe {
                self.span
                    .number_at::<u32>(offset)?
                    .write_volatile(value.to_le())
            };
            Ok(())
        }
    }

    #[test]
    fn new_shared_memory_is_zeroed_and_keeps_writes() -> Result {
        let memory = SharedMemory::new(5000, &MemoryUser::Physical, Payer::None)?;
        assert_eq!(memory.len(), 8192);
        assert_eq!(memory.bus_address() % 4096, 0);
        assert_eq!(memory.read_u64(8184)?, 0);
        memory.write_u64(16, 0x1122_3344_5566_7788)?;
        assert_eq!(memory.read_u32(16)?, 0x5566_7788);
        memory.write_u32(20, 1)?;
        assert_eq!(memory.load_acquire_u64(16)?, 0x1_5566_7788);
        memory.write(8190, &[1, 2])?;
        let mut bytes = [0; 3];
        memory.read(8189, &mut bytes)?;
        assert_eq!(bytes, [0, 1, 2]);
        Ok(())
    }

    #[test]
    fn access_outside_shared_memory_is_refused() -> Result {
        let memory = SharedMemory::new(4096, &MemoryUser::Physical, Payer::None)?;
        assert!(memory.read_u32(4096).is_err());
        assert!(memory.read_u32(4094).is_err());
        assert!(memory.read_u64(4).is_err());
        assert!(memory.write(4095, &[1, 2]).is_err());
        assert!(memory.write(usize::MAX, &[1, 2]).is_err());
        assert!(memory.write(4096, &[]).is_ok());
        assert!(SharedMemory::new(0, &MemoryUser::Physical, Payer::None).is_err());
        assert!(SharedMemory::new(usize::MAX, &MemoryUser::Physical, Payer::Caller).is_err());
        Ok(())
    }

    #[test]
    fn memory_freed_after_its_fate_is_sealed_is_not_reused() -> Result {
        let fate = Fate::new()?;
        let memory = |fate: Option<&Arc<Fate>>| -> Result<SharedMemory> {
            let memory = SharedMemory::new(4096, &MemoryUser::Physical, Payer::None)?;
            Ok(memory.with_fate(fate.cloned()))
        };
        let (before, after) = (memory(Some(&fate))?, memory(Some(&fate))?);
        let kept = [before.phys_address(), after.phys_address()];
        drop(before);
        fate.seal();
        drop(after);
        // The allocator gives a page that was just freed to the next caller.
        let mut others = KVec::new();
        for _ in 0..1024 {
            others.push(memory(None)?, GFP_KERNEL)?;
        }
        let mut given = others.iter().map(|other| other.phys_address());
        assert!(!given.any(|address| address == kept[1]));
        Ok(())
    }

    #[test]
    fn given_memory_group_pays_for_shared_memory() -> Result {
        let group = MemoryGroup::current();
        let memory = SharedMemory::new(65536, &MemoryUser::Physical, Payer::Group(&group))?;
        drop(group);
        assert_eq!(memory.len(), 65536);
        assert_eq!(memory.read_u64(65528)?, 0);
        memory.write_u64(65528, 1)
    }

    #[test]
    fn shared_memory_is_readable_after_unmap() -> Result {
        let device = device()?;
        let memory = SharedMemory::new(4096, &MemoryUser::Device(device), Payer::Caller)?;
        let address = memory.bus_address();
        memory.write_u32(0, 7)?;
        memory.unmap();
        memory.unmap();
        assert_eq!(memory.read_u32(0)?, 7);
        assert_eq!(memory.bus_address(), address);
        Ok(())
    }

    #[test]
    fn new_status_page_contains_only_version_and_node() -> Result {
        for payer in [Payer::None, Payer::Caller] {
            let page = StatusPage::new(7, payer)?;
            assert_eq!(page.version.load(Relaxed), own::SCIF_STATUS_VERSION);
            assert_eq!(page.node.load(Relaxed), 7);
            assert_eq!(page.epoch.load(Relaxed), 0);
            assert_eq!(page.errors.load(Relaxed), 0);
            page.epoch.store(3, Relaxed);
            assert_eq!(page.epoch.load(Relaxed), 3);
        }
        Ok(())
    }
}
