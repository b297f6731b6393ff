// SPDX-License-Identifier: GPL-2.0

//! Memory of the kernel in one piece, all of which a device may use, and of which pieces are given out.
//!
//! For a bridge that leads its peer to a fixed part of memory: what lies elsewhere is out of reach. Where
//! pieces lie is kept in a maple tree, in units that are small, as a whole pool may have no more than 64 KiB.
//!
//! What was given back is used for others, of the same pool only: who may write to one piece may write to
//! all.
//!
//! Lock: `taking` is taken by who takes a place; nothing is taken under it but the lock of the tree.

use core::ptr::NonNull;

use kernel::{
    device::Device,
    dma::DataDirection,
    maple_tree::MapleTreeAlloc,
    new_mutex,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

use super::{
    contiguous::Contiguous,
    dma_map::MappedRun,
    places, //
};
use crate::logic::window_set::{
    Seams,
    Shape, //
};

/// In which places are counted.
const UNIT: usize = 64;

/// See the head of this file. Close it before the driver of the device is unbound from it.
///
#[pin_data]
pub(crate) struct Pool {
    /// Gone before the memory.
    run: MappedRun,
    memory: Contiguous,
    #[pin]
    places: MapleTreeAlloc<()>,
    #[pin]
    taking: Mutex<()>,
    /// Bytes.
    taken: Atomic<u64>,
    /// No piece crosses one.
    seams: Seams,
}

// SAFETY: Nothing of it belongs to a thread; the tree, whose type does not say so, holds no values that could.
unsafe impl Send for Pool {}
// SAFETY: As above; the functions of the tree take its lock, and who has a piece of the memory shares it
// with a device anyway.
unsafe impl Sync for Pool {}

impl Pool {
    /// Zeroed memory of `size` bytes at a multiple of `align`, for a device; both are powers of two, and at least
    /// a page. No piece of it crosses one of the seams, which are counted from its begin. `ENOMEM` also where there
    /// is no such memory. May sleep, and for long.
    pub(crate) fn new(
        device: &ARef<Device>,
        size: usize,
        align: usize,
        seams: Seams,
    ) -> Result<Arc<Self>> {
        let memory = Contiguous::new(device, size, align)?;
        let (phys, both) = (memory.phys(), DataDirection::Bidirectional);
        // SAFETY: The memory is freed after it was unmapped; what a device does with it is expected.
        let run = unsafe { MappedRun::new(device, phys, size, both) }?;
        Arc::pin_init(
            pin_init!(Self {
                run,
                memory,
                places <- MapleTreeAlloc::new(),
                taking <- new_mutex!((), "Pool::taking"),
                taken: Atomic::new(0),
                seams,
            }),
            GFP_KERNEL,
        )
    }

    /// Its bytes, and where a piece can't lie.
    pub(crate) fn shape(&self) -> Shape {
        Shape {
            len: self.size(),
            seams: self.seams,
        }
    }

    /// Where it begins, as the device names it.
    pub(crate) fn address(&self) -> u64 {
        self.run.address()
    }

    /// Its bytes.
    pub(crate) fn size(&self) -> u64 {
        self.memory.size() as u64
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
        let first = {
            let _taking = self.taking.lock();
            places::take_in_a_part(&self.places, units, self.shape(), UNIT)?
        };
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
        unsafe { self.pool.memory.base().add(self.offset) }
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
            self.pool.places.erase(self.offset / UNIT);
            self.pool.taken.fetch_sub(self.len as u64, Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[kunit_tests(scif_sys_pool)]
mod tests {
    use super::*;
    use crate::sys::dma_map::tests::device;

    #[test]
    fn pieces_are_found_zeroed_and_given_back() -> Result {
        let pool = Pool::new(&device()?, 64 << 10, 64 << 10, Seams::NONE)?;
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
        let pool = Pool::new(&device()?, 32 << 10, 32 << 10, seams)?;
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
        let pool = Pool::new(&device()?, 4096, 4096, Seams::NONE)?;
        let place = pool.take(4096)?;
        pool.close();
        pool.close();
        drop(pool);
        assert_eq!(place.len(), 4096);
        Ok(())
    }
}
