// SPDX-License-Identifier: GPL-2.0

//! Memory of the kernel that another host writes to while we read it.
//!
//! There is never a Rust reference into it: every access copies, once, through a volatile load or
//! C's `memcpy`, so what has been checked cannot change afterwards. Numbers are little-endian.
//!
//! It is contiguous, in physical memory and on the bus where somebody else finds them.
//!
//! A [`StatusPage`] is such memory that processes have mapped.
//!
//! This file has more than 500 lines because it says all ways in which such memory is read and written.

use core::{
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

/// Who uses memory besides this machine's processors, and so how its address is called.
#[derive(Clone)]
pub(crate) enum User {
    /// Somebody who names it by its physical address.
    Physical,
    /// A device.
    Device(ARef<Device>),
    /// A device, at a place of this.
    Arena(Arc<Arena>),
    /// A device that may use all of this.
    Pool(Arc<Pool>),
}

impl User {
    /// Whether it uses all of these bytes, at an address as it calls it. Who names memory by its physical address, or
    /// that of a device, uses all there is.
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

/// Whose memory cgroup an allocation is charged to.
///
/// What a process can make this module allocate, it pays for. What a peer makes it allocate is
/// nobody's here; it has to be bounded instead.
#[derive(Clone, Copy)]
pub(crate) enum Payer<'a> {
    /// The calling task's. A thread of the kernel has none: then it is as [`Payer::Nobody`].
    Caller,
    /// This one: for what is allocated on behalf of a process, by whoever happens to do that. That does not try hard: it
    /// must not wait for memory of a cgroup that has none left.
    Group(&'a MemoryGroup),
    /// Nobody's, also if a process happens to be the one that calls.
    Nobody,
}

/// Zeroed kernel memory that is shared with a device or a peer.
///
/// Drop it before the driver of the device is unbound from it, and after the device has been told
/// not to use it any more.
///
/// # Invariants
///
/// The bytes of `span` are valid for reads and writes, aligned for any number, and owned by this: by itself,
/// or, in a pool, by `mapping`.
pub(crate) struct SharedMemory {
    // Gone before the memory.
    mapping: Mapping,
    span: Span,
    fate: Option<Arc<Fate>>,
}

/// How its user finds it.
enum Mapping {
    Physical,
    Device(MappedRun),
    Arena(Linked),
    Pool(Piece),
}

// All accesses are volatile or made by C; racing ones yield mixed values and nothing worse, which the users
// expect, since the peer writes as it likes.
impl SharedMemory {
    /// Allocates at least `len` bytes, which `user` may read and write, too.
    ///
    /// `payer` is charged, but for what is in a pool. `ENOMEM` also where there is no contiguous run: 4 MiB are the most that can be
    /// had; `ENOSPC` if an arena, or a pool, is full. May sleep.
    pub(crate) fn new(len: usize, user: &User, payer: Payer<'_>) -> Result<Self> {
        if let User::Pool(pool) = user {
            let piece = pool.take(len)?;
            // INVARIANT: The piece is aligned well.
            return Ok(Self {
                span: piece.span(),
                mapping: Mapping::Pool(piece),
                fate: None,
            });
        }
        let mut this = Self::allocate(len, payer)?;
        let (phys, len) = (this.phys_address(), this.span.len);
        match user {
            User::Physical | User::Pool(_) => (),
            User::Device(device) => {
                // SAFETY: The memory is owned by `this`, which frees it after it has unmapped it; what
                // a device does with it is expected.
                let run = unsafe { MappedRun::new(device, phys, len, SHARED) };
                this.mapping = Mapping::Device(run?);
            }
            User::Arena(arena) => {
                let run = core::iter::once((phys, len as u64));
                let direction = DataDirection::Bidirectional;
                // SAFETY: As above.
                let linked = unsafe { arena.link(run, len, direction, SHARED, Purpose::Rings) };
                this.mapping = Mapping::Arena(linked?);
            }
        }
        Ok(this)
    }

    /// Memory of the allocator of pages, which nobody else uses yet.
    fn allocate(len: usize, payer: Payer<'_>) -> Result<Self> {
        let len = page_align(len).filter(|len| *len != 0).ok_or(EINVAL)?;
        // SAFETY: No preconditions.
        let allocate = |account, tries_hard| unsafe {
            own::scif_helper_alloc_pages_exact(len, account, tries_hard)
        };
        let base = match payer {
            Payer::Caller => allocate(true, true),
            Payer::Group(group) => group.pays_for(|| allocate(true, false)),
            Payer::Nobody => allocate(false, true),
        };
        let base = NonNull::new(base.cast()).ok_or(ENOMEM)?;
        // INVARIANT: The memory has just been allocated, with this size and for nobody else.
        Ok(Self {
            mapping: Mapping::Physical,
            span: Span { base, len },
            fate: None,
        })
    }

    /// The same memory, whose fate is this.
    pub(crate) fn with_fate(self, fate: Option<Arc<Fate>>) -> Self {
        let mut this = self;
        this.fate = fate;
        this
    }

    /// What becomes of it, if there is anything to say.
    pub(crate) fn fate(&self) -> Option<&Arc<Fate>> {
        self.fate.as_ref()
    }

    /// Takes the memory away from the device; what is in it can still be read. May sleep.
    ///
    /// A device that was given the memory itself must have been told not to use it any more; of an arena it
    /// is kept out.
    pub(crate) fn unmap(&self) {
        match &self.mapping {
            // The device has all of the pool anyway.
            Mapping::Physical | Mapping::Pool(_) => {}
            Mapping::Device(run) => run.unmap(),
            Mapping::Arena(linked) => {
                linked.unlink();
            }
        }
    }

    /// As [`Self::unmap`], for what is not looked at any more: what it has of a pool is given to others.
    pub(crate) fn retire(&self) {
        match &self.mapping {
            Mapping::Pool(piece) => piece.place.give_back(),
            _ => self.unmap(),
        }
    }

    /// Where its user finds it.
    pub(crate) fn bus_address(&self) -> u64 {
        match &self.mapping {
            Mapping::Physical => self.phys_address(),
            Mapping::Device(run) => run.address,
            Mapping::Arena(linked) => linked.address(),
            Mapping::Pool(piece) => piece.place.address(),
        }
    }

    /// The size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.span.len
    }

    /// The physical address.
    pub(crate) fn phys_address(&self) -> u64 {
        // SAFETY: The pages are in the kernel's linear mapping.
        unsafe { own::scif_helper_virt_to_phys(self.span.base.as_ptr().cast()) }
    }

    /// As its device names it, if it is mapped for one by itself.
    pub(super) fn run(&self) -> Option<&MappedRun> {
        match &self.mapping {
            Mapping::Device(run) => Some(run),
            _ => None,
        }
    }

    /// A part of it, to be copied from and to.
    pub(crate) fn reach(&self, offset: usize, len: usize) -> Result<Reached<'_>> {
        self.span.at(offset, len)?;
        // SAFETY: By the type invariant these are RAM of the kernel, which this has.
        Ok(unsafe { Reached::in_pages(self.phys_address() + offset as u64, len) })
    }

    /// Reads a number, once.
    pub(crate) fn read_u32(&self, offset: usize) -> Result<u32> {
        // SAFETY: `number_at` returns valid and aligned pointers.
        Ok(u32::from_le(unsafe {
            self.span.number_at::<u32>(offset)?.read_volatile()
        }))
    }

    /// Reads a number, once.
    pub(crate) fn read_u64(&self, offset: usize) -> Result<u64> {
        // SAFETY: `number_at` returns valid and aligned pointers.
        Ok(u64::from_le(unsafe {
            self.span.number_at::<u64>(offset)?.read_volatile()
        }))
    }

    /// Reads a number before everything that is read afterwards, also when a device wrote it.
    pub(crate) fn load_acquire_u32(&self, offset: usize) -> Result<u32> {
        let value = self.read_u32(offset)?;
        barrier::dma_mb(barrier::Read);
        Ok(value)
    }

    /// Reads a number before everything that is read afterwards, also when a device wrote it.
    pub(crate) fn load_acquire_u64(&self, offset: usize) -> Result<u64> {
        let value = self.read_u64(offset)?;
        barrier::dma_mb(barrier::Read);
        Ok(value)
    }

    /// Writes a number, at once.
    pub(crate) fn write_u64(&self, offset: usize, value: u64) -> Result {
        // SAFETY: `number_at` returns valid and aligned pointers.
        unsafe {
            self.span
                .number_at::<u64>(offset)?
                .write_volatile(value.to_le())
        };
        Ok(())
    }

    /// Copies bytes out.
    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) -> Result {
        // SAFETY: `to` is borrowed for writing, and no reference into the shared memory exists.
        unsafe { self.copy_to(offset, to.as_mut_ptr(), to.len()) }
    }

    /// Copies bytes in.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) -> Result {
        let to = self.span.at(offset, from.len())?;
        // SAFETY: Both are valid for that many bytes, and do not overlap, as in `read`.
        unsafe { bindings::memcpy(to.cast(), from.as_ptr().cast(), from.len()) };
        Ok(())
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

    /// Copies bytes to user space. May sleep. `EFAULT` when not all could be.
    pub(crate) fn copy_to_user(&self, offset: usize, to: UserPtr, count: usize) -> Result {
        let from = self.span.at(offset, count)?;
        // The variant without the check that the bytes lie in one object of the kernel: they do.
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

/// What is in it, as `linux/scif_services.h` lays it out.
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

/// The page by which processes see how a node stands: it begins with [`Fields`], the rest is zero.
///
/// Only the kernel writes to it, each number by one store; processes may look at any moment.
///
/// # Invariants
///
/// Nothing but [`Fields`] was ever written to it.
pub(crate) struct StatusPage(SharedMemory);

impl StatusPage {
    /// Of this node; all else is zero. May sleep.
    pub(crate) fn new(node: u16, payer: Payer<'_>) -> Result<Self> {
        // INVARIANT: It is zeroed.
        let this = Self(SharedMemory::new(PAGE_SIZE, &User::Physical, payer)?);
        this.version.store(own::SCIF_STATUS_VERSION, Relaxed);
        this.node.store(node.into(), Relaxed);
        Ok(this)
    }

    /// For processes.
    pub(crate) fn frame(&self) -> Result<Frame<'_>> {
        Frame::of_memory(&self.0)
    }
}

impl core::ops::Deref for StatusPage {
    type Target = Fields;

    fn deref(&self) -> &Fields {
        // SAFETY: It is a page, and begins with fields by the type invariant; zeros are a value of all of
        // them, and processes can only read it.
        unsafe { self.0.span.base.cast().as_ref() }
    }
}

#[kunit_tests(scif_sys_shared_memory)]
mod tests {
    use super::*;
    use crate::sys::tests::device;

    impl SharedMemory {
        /// Writes a number, at once.
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
    fn it_is_zeroed_and_keeps_what_is_written() -> Result {
        let memory = SharedMemory::new(5000, &User::Physical, Payer::Nobody)?;
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
    fn accesses_outside_are_refused() -> Result {
        let memory = SharedMemory::new(4096, &User::Physical, Payer::Nobody)?;
        assert!(memory.read_u32(4096).is_err());
        assert!(memory.read_u32(4094).is_err());
        assert!(memory.read_u64(4).is_err());
        assert!(memory.write(4095, &[1, 2]).is_err());
        assert!(memory.write(usize::MAX, &[1, 2]).is_err());
        assert!(memory.write(4096, &[]).is_ok());
        assert!(SharedMemory::new(0, &User::Physical, Payer::Nobody).is_err());
        assert!(SharedMemory::new(usize::MAX, &User::Physical, Payer::Caller).is_err());
        Ok(())
    }

    #[test]
    fn what_is_lost_to_a_peer_is_not_given_to_others() -> Result {
        let fate = Fate::new()?;
        let memory = |fate: Option<&Arc<Fate>>| -> Result<SharedMemory> {
            let memory = SharedMemory::new(4096, &User::Physical, Payer::Nobody)?;
            Ok(memory.with_fate(fate.cloned()))
        };
        let (before, after) = (memory(Some(&fate))?, memory(Some(&fate))?);
        let kept = [before.phys_address(), after.phys_address()];
        drop(before);
        fate.seal();
        drop(after);
        // The allocator gives a page that has just come back to the next who asks.
        let mut others = KVec::new();
        for _ in 0..1024 {
            others.push(memory(None)?, GFP_KERNEL)?;
        }
        let mut given = others.iter().map(|other| other.phys_address());
        assert!(!given.any(|address| address == kept[1]));
        Ok(())
    }

    #[test]
    fn a_group_pays_whoever_allocates() -> Result {
        let group = MemoryGroup::current();
        let memory = SharedMemory::new(65536, &User::Physical, Payer::Group(&group))?;
        drop(group);
        assert_eq!(memory.len(), 65536);
        assert_eq!(memory.read_u64(65528)?, 0);
        memory.write_u64(65528, 1)
    }

    #[test]
    fn shared_memory_survives_its_mapping() -> Result {
        let device = device()?;
        let memory = SharedMemory::new(4096, &User::Device(device), Payer::Caller)?;
        let address = memory.bus_address();
        memory.write_u32(0, 7)?;
        memory.unmap();
        memory.unmap();
        assert_eq!(memory.read_u32(0)?, 7);
        assert_eq!(memory.bus_address(), address);
        Ok(())
    }

    #[test]
    fn a_new_page_names_its_node_and_nothing_else() -> Result {
        for payer in [Payer::Nobody, Payer::Caller] {
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
