// SPDX-License-Identifier: GPL-2.0

//! A pool of contiguous kernel memory, all of which a device may use, and of which pieces are
//! allocated.
//!
//! It is for a bridge that leads its peer to a fixed part of memory: the peer can't reach other
//! memory.
//!
//! A piece that was given back is reused only in the same pool. A peer that may write to one piece
//! may write to all.
//!
//! If the administrator has reserved contiguous memory (`cma=`), the pool comes from there, so the
//! administrator decides where it lies. Else it comes from the page allocator, which may have to
//! move other pages to get one contiguous piece.

use core::ptr::NonNull;
use kernel::{
    device::Device,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        aref::ARef,
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
    places::{
        Place,
        Places,
        Purpose, //
    },
    reached::Span, //
};

use crate::logic::window_set::Shape;

/// Size of an allocation unit in bytes. It is small because a whole pool may have only 64 KiB.
const UNIT: usize = 64;

/// A pool of memory for a device. Close it before the device's driver is unbound.
pub(crate) struct Pool {
    /// Declared first, so that the mapping is dropped before the memory.
    run: MappedRun,
    memory: Contiguous,
    pub(crate) places: Arc<Places>,
}

impl Pool {
    /// Allocates zeroed memory of this shape at a multiple of `align`, for a device. Its size and
    /// `align` are powers of two, and at least a page. No piece crosses a seam of the shape, which
    /// count from the begin of the memory.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the size or `align` is invalid.
    /// - `ENOMEM`: there is no memory, or none in one piece.
    ///
    /// Context: may sleep for long.
    pub(crate) fn new(device: &ARef<Device>, shape: Shape, align: usize) -> Result<Arc<Self>> {
        let size = usize::try_from(shape.len)?;
        let memory = Contiguous::new(device, size, align)?;
        let phys = memory.phys();
        // SAFETY: The memory is unmapped before it is freed. Any access that the device makes is
        // expected.
        let run = unsafe { MappedRun::new(device, phys, size, SHARED) }?;
        let places = Places::new(run.address, shape, UNIT)?;
        let this = Self {
            run,
            memory,
            places,
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Unmaps the pool from the device, which must have been told before to stop using it.
    /// Afterwards the device's driver can be unbound.
    /// Context: may sleep.
    pub(crate) fn close(&self) {
        self.run.unmap();
    }

    /// Takes a zeroed piece of at least `len` bytes. Returns `ENOSPC` if there is no room.
    /// Context: may sleep.
    pub(super) fn take(self: &Arc<Self>, len: usize) -> Result<Piece> {
        let place = self.places.take(len, Purpose::Rings, None)?;
        let piece = Piece {
            place,
            pool: self.clone(),
        };
        let Span { base, len } = piece.span();
        // SAFETY: The bytes exist, and on this machine only the piece owns them.
        unsafe { base.as_ptr().write_bytes(0, len) };
        Ok(piece)
    }
}

/// A piece of a [`Pool`], until it is dropped. Its memory exists as long, even after its place was
/// given back.
pub(super) struct Piece {
    pub(super) place: Place,
    pool: Arc<Pool>,
}

impl Piece {
    /// Returns the bytes of the piece, which are valid for reads and writes as long as it exists.
    pub(super) fn span(&self) -> Span {
        Span {
            // SAFETY: The place lies in the memory of the pool.
            base: unsafe { self.pool.memory.span.base.add(self.place.offset) },
            len: self.place.len,
        }
    }
}

/// Contiguous kernel memory at an address that suits a device.
///
/// # Invariants
///
/// The bytes of `span`, a multiple of the page size, were allocated for `device`. They are valid
/// for reads and writes, in the kernel's linear mapping, and owned by this.
struct Contiguous {
    device: ARef<Device>,
    span: Span,
}

impl Contiguous {
    /// Allocates zeroed memory whose physical address is a multiple of `align`. Both numbers must
    /// be powers of two and at least a page.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a number is invalid.
    /// - `ENOMEM`: there is no such contiguous memory.
    ///
    /// Context: may sleep, for long if many pages have to be moved.
    fn new(device: &ARef<Device>, size: usize, align: usize) -> Result<Self> {
        let is_possible = |value: usize| value.is_power_of_two() && value >= PAGE_SIZE;
        if !is_possible(size) || !is_possible(align) {
            return Err(EINVAL);
        }
        // SAFETY: The device is valid, and both numbers are powers of two, as the helper requires.
        let base = unsafe { own::scif_helper_alloc_contiguous(dma_map::raw(device), size, align) };
        let base = NonNull::new(base.cast()).ok_or(ENOMEM)?;
        // INVARIANT: The memory has just been allocated with these properties.
        Ok(Self {
            device: device.clone(),
            span: Span { base, len: size },
        })
    }

    /// Returns the physical address.
    fn phys(&self) -> u64 {
        // SAFETY: By the type invariant the memory is in the kernel's linear mapping.
        unsafe { own::scif_helper_virt_to_phys(self.span.base.as_ptr().cast()) }
    }
}

impl Drop for Contiguous {
    fn drop(&mut self) {
        let (device, Span { base, len }) = (dma_map::raw(&self.device), self.span);
        // SAFETY: By the type invariant the memory was allocated for this device, with this size.
        unsafe { own::scif_helper_free_contiguous(device, base.as_ptr().cast(), len) };
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
    fn released_piece_is_zeroed_when_taken_again() -> Result {
        let pool = Pool::new(&device()?, Shape::in_one(64 << 10), 64 << 10)?;
        assert_eq!(pool.places.base % (64 << 10), 0);
        let first = pool.take(1)?;
        let second = pool.take((64 << 10) - UNIT)?;
        assert_eq!(
            (first.place.len, second.place.address()),
            (UNIT, first.place.address() + UNIT as u64)
        );
        assert_eq!(pool.places.bytes_for(Purpose::Rings), 64 << 10);
        assert_eq!(pool.take(1).err(), Some(ENOSPC));
        // SAFETY: The piece is that long.
        unsafe { first.span().base.as_ptr().write(7) };
        drop(first);
        let again = pool.take(UNIT)?;
        // SAFETY: As above.
        assert_eq!(unsafe { again.span().base.as_ptr().read() }, 0);
        assert_eq!(pool.take(65 << 10).err(), Some(ENOSPC));
        Ok(())
    }

    #[test]
    fn pool_piece_never_crosses_a_seam() -> Result {
        let seams = Seams::every(16 << 10).ok_or(EINVAL)?;
        let shape = Shape {
            len: 32 << 10,
            seams,
        };
        let pool = Pool::new(&device()?, shape, 32 << 10)?;
        let first = pool.take(UNIT)?;
        assert_eq!(pool.take((16 << 10) + UNIT).err(), Some(ENOSPC));
        let second = pool.take(16 << 10)?;
        assert_eq!(second.place.address(), pool.places.base + (16 << 10));
        let third = pool.take((16 << 10) - UNIT)?;
        assert_eq!(third.place.address(), first.place.address() + UNIT as u64);
        assert_eq!(pool.take(1).err(), Some(ENOSPC));
        assert_eq!(pool.places.shape.longest(), 16 << 10);
        Ok(())
    }

    #[test]
    fn pool_piece_may_outlive_its_pool() -> Result {
        let pool = Pool::new(&device()?, Shape::in_one(4096), 4096)?;
        let piece = pool.take(4096)?;
        pool.close();
        pool.close();
        drop(pool);
        assert_eq!(piece.span().len, 4096);
        Ok(())
    }

    #[test]
    fn contiguous_memory_is_aligned_and_zeroed() -> Result {
        let device = device()?;
        for (size, align) in [
            (4096, 4096),
            (64 << 10, 1 << 20),
            (1 << 20, 64 << 10),
            (1 << 20, 8 << 20),
        ] {
            let memory = Contiguous::new(&device, size, align)?;
            assert_eq!(memory.phys() % align as u64, 0);
            assert_eq!(memory.span.len, size);
            // SAFETY: The memory is that long.
            let bytes = unsafe { core::slice::from_raw_parts(memory.span.base.as_ptr(), size) };
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
        Ok(())
    }

    #[test]
    fn sizes_that_are_no_powers_of_two_are_refused() -> Result {
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
