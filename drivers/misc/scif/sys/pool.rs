// SPDX-License-Identifier: GPL-2.0

//! Memory of the kernel in one piece, all of which a device may use, and of which pieces are given out.
//!
//! For a bridge that leads its peer to a fixed part of memory: what lies elsewhere is out of reach.
//!
//! What was given back is used for others, of the same pool only: who may write to one piece may write to
//! all.
//!
//! Where the administrator has set aside contiguous memory (`cma=`), it comes from there, so that he can say
//! where it lies; else from the page allocator, and what that does not have in one piece is made by moving
//! what is in the way.

use core::ptr::NonNull;
use kernel::{
    device::Device,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
};

use super::{
    bindings as own,
    dma_map::{
        self,
        MappedRun,
        SHARED, //
    },
    places::Places, //
};

use crate::logic::window_set::Shape;

/// In which places are counted: small, as a whole pool may have no more than 64 KiB.
const UNIT: usize = 64;

/// See the head of this file. Close it before the driver of the device is unbound from it.
#[pin_data]
pub(crate) struct Pool {
    /// Gone before the memory.
    run: MappedRun,
    memory: Contiguous,
    /// In units.
    #[pin]
    places: Places,
    /// Bytes.
    taken: Atomic<u64>,
    /// No piece crosses a seam.
    shape: Shape,
}

impl Pool {
    /// Zeroed memory of this shape at a multiple of `align`, for a device; its bytes and that are powers of two, and
    /// at least a page. No piece of it crosses one of the seams, which are counted from its begin. `ENOMEM` also where
    /// there is no such memory. May sleep, and for long.
    pub(crate) fn new(device: &ARef<Device>, shape: Shape, align: usize) -> Result<Arc<Self>> {
        let size = usize::try_from(shape.len)?;
        let memory = Contiguous::new(device, size, align)?;
        let phys = memory.phys();
        // SAFETY: The memory is freed after it was unmapped; what a device does with it is expected.
        let run = unsafe { MappedRun::new(device, phys, size, SHARED) }?;
        Arc::pin_init(
            pin_init!(Self {
                run,
                memory,
                places <- Places::new(),
                taken: Atomic::new(0),
                shape,
            }),
            GFP_KERNEL,
        )
    }

    /// Its bytes, and where a piece can't lie.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Where it begins, as the device names it.
    pub(crate) fn address(&self) -> u64 {
        self.run.address()
    }

    /// Its bytes.
    pub(crate) fn size(&self) -> u64 {
        self.shape.len
    }

    /// Bytes of it that are taken. Any context.
    pub(crate) fn bytes_taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// Takes it away from the device, which must have been told not to use it any more, and whose driver
    /// may go then. May sleep.
    pub(crate) fn close(&self) {
        self.run.unmap();
    }

    /// Takes a piece of at least `len` bytes, zeroed. `ENOSPC` if there is no room. May sleep.
    pub(super) fn take(self: &Arc<Self>, len: usize) -> Result<Place> {
        let units = len.div_ceil(UNIT).max(1);
        let first = self.places.take_in_a_part(units, self.shape(), UNIT)?;
        // INVARIANT: It has just been taken.
        let place = Place {
            pool: self.clone(),
            offset: first * UNIT,
            len: units * UNIT,
            given_back: Atomic::new(false),
        };
        self.taken.add(place.len as u64, Relaxed);
        // SAFETY: By the invariant the bytes are there, and nobody else's of this machine.
        unsafe { place.pointer().as_ptr().write_bytes(0, place.len) };
        Ok(place)
    }
}

/// A piece of a [`Pool`], until this is dropped.
///
/// # Invariants
///
/// `len` bytes at `offset` of the pool, a multiple of [`UNIT`] each, are taken for this, unless they were
/// `given_back`. They are memory as long as this lives.
pub(super) struct Place {
    pool: Arc<Pool>,
    offset: usize,
    len: usize,
    given_back: Atomic<bool>,
}

impl Place {
    /// Its first byte: valid for reads and writes of [`Self::len`] bytes as long as this lives.
    pub(super) fn pointer(&self) -> NonNull<u8> {
        // SAFETY: By the invariant of this it lies in the memory of the pool.
        unsafe { self.pool.memory.base.add(self.offset) }
    }

    /// Its bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where it begins, as the device names it.
    pub(super) fn address(&self) -> u64 {
        self.pool.address() + self.offset as u64
    }

    /// Lets others have it, who write there what they like from now on. May sleep.
    pub(super) fn give_back(&self) {
        if !self.given_back.xchg(true, Full) {
            self.pool.places.give_back(self.offset / UNIT);
            self.pool.taken.fetch_sub(self.len as u64, Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Memory of the kernel in one piece, at a place that suits a device.
///
/// # Invariants
///
/// `base` is valid for reads and writes of `size` bytes, a multiple of the page size, in the kernel's linear
/// mapping, and owned by this; it was allocated for `device`.
struct Contiguous {
    device: ARef<Device>,
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: Nothing of it belongs to a thread.
unsafe impl Send for Contiguous {}
// SAFETY: Who has a piece of the memory shares it with a device anyway.
unsafe impl Sync for Contiguous {}

impl Contiguous {
    /// Zeroed memory whose physical address is a multiple of `align`; both are powers of two and at least a
    /// page. `ENOMEM` also where there is no such piece. May sleep, and for long where much has to be moved.
    fn new(device: &ARef<Device>, size: usize, align: usize) -> Result<Self> {
        let is_possible = |value: usize| value.is_power_of_two() && value >= PAGE_SIZE;
        if !is_possible(size) || !is_possible(align) {
            return Err(EINVAL);
        }
        // SAFETY: The device is valid; both numbers are as the function wants them.
        let base = unsafe { own::scif_helper_alloc_contiguous(dma_map::raw(device), size, align) };
        // INVARIANT: It has just been allocated like this.
        Ok(Self {
            device: device.clone(),
            base: NonNull::new(base.cast()).ok_or(ENOMEM)?,
            size,
        })
    }

    /// Where that is, for the hardware.
    fn phys(&self) -> u64 {
        // SAFETY: By the type invariant it is in the kernel's linear mapping.
        unsafe { own::scif_helper_virt_to_phys(self.base.as_ptr().cast()) }
    }
}

impl Drop for Contiguous {
    fn drop(&mut self) {
        let device = dma_map::raw(&self.device);
        // SAFETY: By the type invariants it was allocated for this device, with this size.
        unsafe { own::scif_helper_free_contiguous(device, self.base.as_ptr().cast(), self.size) };
    }
}

#[kunit_tests(scif_sys_pool)]
mod tests {
    use super::*;
    use crate::{
        logic::window_set::Seams,
        sys::tests::device, //
    };

    #[test]
    fn pieces_are_found_zeroed_and_given_back() -> Result {
        let pool = Pool::new(&device()?, Shape::in_one(64 << 10), 64 << 10)?;
        assert_eq!(pool.address() % (64 << 10), 0);
        let first = pool.take(1)?;
        let second = pool.take((64 << 10) - UNIT)?;
        assert_eq!(
            (first.len(), second.address()),
            (UNIT, first.address() + UNIT as u64)
        );
        assert_eq!(pool.bytes_taken(), pool.size());
        assert_eq!(pool.take(1).err(), Some(ENOSPC));
        // SAFETY: It is that long.
        unsafe { first.pointer().as_ptr().write(7) };
        drop(first);
        let again = pool.take(UNIT)?;
        // SAFETY: As above.
        assert_eq!(unsafe { again.pointer().as_ptr().read() }, 0);
        assert_eq!(pool.take(65 << 10).err(), Some(ENOSPC));
        Ok(())
    }

    #[test]
    fn no_piece_crosses_a_seam() -> Result {
        let seams = Seams::every(16 << 10).ok_or(EINVAL)?;
        let shape = Shape {
            len: 32 << 10,
            seams,
        };
        let pool = Pool::new(&device()?, shape, 32 << 10)?;
        let first = pool.take(UNIT)?;
        assert_eq!(pool.take((16 << 10) + UNIT).err(), Some(ENOSPC));
        let second = pool.take(16 << 10)?;
        assert_eq!(second.address(), pool.address() + (16 << 10));
        let third = pool.take((16 << 10) - UNIT)?;
        assert_eq!(third.address(), first.address() + UNIT as u64);
        assert_eq!(pool.take(1).err(), Some(ENOSPC));
        assert_eq!(pool.shape().longest(), 16 << 10);
        Ok(())
    }

    #[test]
    fn a_piece_may_outlive_its_mapping() -> Result {
        let pool = Pool::new(&device()?, Shape::in_one(4096), 4096)?;
        let place = pool.take(4096)?;
        pool.close();
        pool.close();
        drop(pool);
        assert_eq!(place.len(), 4096);
        Ok(())
    }

    #[test]
    fn it_lies_where_it_must() -> Result {
        let device = device()?;
        for (size, align) in [
            (4096, 4096),
            (64 << 10, 1 << 20),
            (1 << 20, 64 << 10),
            (1 << 20, 8 << 20),
        ] {
            let memory = Contiguous::new(&device, size, align)?;
            assert_eq!(memory.phys() % align as u64, 0);
            assert_eq!(memory.size, size);
            // SAFETY: It is that long.
            let bytes = unsafe { core::slice::from_raw_parts(memory.base.as_ptr(), size) };
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
        Ok(())
    }

    #[test]
    fn only_powers_of_two_are_sizes() -> Result {
        let device = device()?;
        for (size, align) in [
            (0, 4096),
            (2048, 4096),
            (12 << 10, 4096),
            (4096, 0),
            (4096, 24 << 10),
        ] {
            assert!(Contiguous::new(&device, size, align).is_err());
        }
        Ok(())
    }
}
