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

/// In which places are counted: small, as a whole pool may have no more than 64 KiB.
const UNIT: usize = 64;

/// See the head of this file. Close it before the driver of the device is unbound from it.
pub(crate) struct Pool {
    /// Gone before the memory.
    run: MappedRun,
    memory: Contiguous,
    pub(crate) places: Arc<Places>,
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
        let places = Places::new(run.address, shape, UNIT)?;
        let this = Self {
            run,
            memory,
            places,
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Takes it away from the device, which must have been told not to use it any more, and whose driver
    /// may go then. May sleep.
    pub(crate) fn close(&self) {
        self.run.unmap();
    }

    /// Takes a piece of at least `len` bytes, zeroed. `ENOSPC` if there is no room. May sleep.
    pub(super) fn take(self: &Arc<Self>, len: usize) -> Result<Piece> {
        let place = self.places.take(len, Purpose::Rings, None)?;
        let piece = Piece {
            place,
            pool: self.clone(),
        };
        let Span { base, len } = piece.span();
        // SAFETY: The bytes are there, and nobody else's of this machine.
        unsafe { base.as_ptr().write_bytes(0, len) };
        Ok(piece)
    }
}

/// A piece of a [`Pool`], until this is dropped. It is memory as long, also when its place was given back.
pub(super) struct Piece {
    pub(super) place: Place,
    pool: Arc<Pool>,
}

impl Piece {
    /// Its bytes: valid for reads and writes as long as this lives.
    pub(super) fn span(&self) -> Span {
        Span {
            // SAFETY: The place lies in the memory of the pool.
            base: unsafe { self.pool.memory.span.base.add(self.place.offset) },
            len: self.place.len,
        }
    }
}

/// Memory of the kernel in one piece, at a place that suits a device.
///
/// # Invariants
///
/// The bytes of `span`, a multiple of the page size, are valid for reads and writes, in the kernel's linear mapping,
/// and owned by this; they were allocated for `device`.
struct Contiguous {
    device: ARef<Device>,
    span: Span,
}

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
        let base = NonNull::new(base.cast()).ok_or(ENOMEM)?;
        // INVARIANT: It has just been allocated like this.
        Ok(Self {
            device: device.clone(),
            span: Span { base, len: size },
        })
    }

    /// Where that is, for the hardware.
    fn phys(&self) -> u64 {
        // SAFETY: By the type invariant it is in the kernel's linear mapping.
        unsafe { own::scif_helper_virt_to_phys(self.span.base.as_ptr().cast()) }
    }
}

impl Drop for Contiguous {
    fn drop(&mut self) {
        let (device, Span { base, len }) = (dma_map::raw(&self.device), self.span);
        // SAFETY: By the type invariants it was allocated for this device, with this size.
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
    fn pieces_are_found_zeroed_and_given_back() -> Result {
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
        // SAFETY: It is that long.
        unsafe { first.span().base.as_ptr().write(7) };
        drop(first);
        let again = pool.take(UNIT)?;
        // SAFETY: As above.
        assert_eq!(unsafe { again.span().base.as_ptr().read() }, 0);
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
        assert_eq!(second.place.address(), pool.places.base + (16 << 10));
        let third = pool.take((16 << 10) - UNIT)?;
        assert_eq!(third.place.address(), first.place.address() + UNIT as u64);
        assert_eq!(pool.take(1).err(), Some(ENOSPC));
        assert_eq!(pool.places.shape.longest(), 16 << 10);
        Ok(())
    }

    #[test]
    fn a_piece_may_outlive_its_mapping() -> Result {
        let pool = Pool::new(&device()?, Shape::in_one(4096), 4096)?;
        let piece = pool.take(4096)?;
        pool.close();
        pool.close();
        drop(pool);
        assert_eq!(piece.span().len, 4096);
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
            assert_eq!(memory.span.len, size);
            // SAFETY: It is that long.
            let bytes = unsafe { core::slice::from_raw_parts(memory.span.base.as_ptr(), size) };
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
