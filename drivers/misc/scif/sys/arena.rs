// SPDX-License-Identifier: GPL-2.0

//! An I/O address range of a device, into which memory is linked piece by piece.
//!
//! A bridge translates its memory window to such a range once. From then on the peer reaches
//! whatever is linked into the range at the moment, with the protection of that link. It reaches
//! nothing else, because the IOMMU refuses. A piece is contiguous in the range, even if it consists
//! of many runs of memory.
//!
//! # Place of a piece
//!
//! Places are pages of the range (`places.rs`). If possible, memory with huge pages gets a place
//! where the IOMMU can use huge pages as well.
//!
//! # Guarantee
//!
//! Once [`Linked::unlink`] has returned, or a [`Linked`] was dropped, the device no longer reaches
//! the memory: the IOTLB was flushed.
//!
//! # End of the range
//!
//! The addresses go back to the device before its driver is unbound ([`Arena::close`]). Pieces may
//! still exist then: the ring of a connection lives as long as a descriptor of it. By then no piece
//! should be linked any more. A piece that is still linked stays so: its addresses and its memory
//! are lost.
//!
//! C header: [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)

use kernel::{
    device::Device,
    dma::DataDirection,
    page::{
        page_align,
        PAGE_SIZE, //
    },
    prelude::*,
    revocable::Revocable,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    }, //
};

use super::{
    dma_map::IoRange,
    pages::Pages,
    places::{
        Place,
        Places,
        Purpose, //
    },
};

use crate::logic::window_set::Shape;

/// Size of an IOMMU's huge page, on all architectures that this kernel runs on with pages of 4 KiB.
const HUGE: usize = 2 << 20;

/// The access that a device has to pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Read,
    /// Includes reading where the IOMMU can't separate the two.
    Write,
    Both,
}

/// An I/O address range of a device. Close it before the device's driver is unbound.
#[pin_data]
pub(crate) struct Arena {
    /// Revoked before the driver of the device is unbound.
    #[pin]
    range: Revocable<IoRange>,
    /// Allocator of the pages of the range.
    pub(crate) places: Arc<Places>,
}

/// Memory that is linked into an [`Arena`] until this is dropped.
///
/// The memory has to exist as long.
///
/// # Invariants
///
/// While `is_linked`, the first `linked` bytes of the place are linked, in this direction and with
/// these attributes. The range counts them as a piece.
pub(crate) struct Linked {
    arena: Arc<Arena>,
    place: Place,
    linked: usize,
    direction: DataDirection,
    attributes: c_ulong,
    is_linked: Atomic<bool>,
    /// Keeps the linked pages until they are unlinked; `None` if they belong to the caller.
    pages: Option<Arc<Pages>>,
}

impl Arena {
    /// Reserves a range of this shape, aligned to the next power of two.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the shape is empty or too long.
    /// - `EOPNOTSUPP`: no IOMMU translates for the device, or it has no such range.
    ///
    /// Context: may sleep.
    pub(crate) fn new(device: &ARef<Device>, shape: Shape) -> Result<Arc<Self>> {
        let size = page_align(usize::try_from(shape.len)?);
        let size = size.filter(|size| *size != 0).ok_or(EINVAL)?;
        let range = IoRange::new(device, size)?;
        let shape = Shape {
            len: size as u64,
            ..shape
        };
        let places = Places::new(range.base, shape, PAGE_SIZE)?;
        Arc::pin_init(
            try_pin_init!(Self {
                range <- Revocable::new::<Error>(Ok(range)),
                places,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Gives the addresses back to the device, so that its driver can be unbound. Nothing can be
    /// linked afterwards, and existing pieces lose their addresses.
    /// Context: may sleep.
    pub(crate) fn close(&self) {
        self.range.revoke();
    }

    /// Links memory, given as runs of physical address and length. All runs consist of whole pages
    /// and have `len` bytes in all.
    ///
    /// The caller keeps the memory until the returned value is dropped.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the runs have more than `len` bytes.
    /// - `ENOSPC`: there is no room. The first time, this goes to the log.
    /// - `ENODEV`: the arena was closed.
    /// - `EOPNOTSUPP`: the device is not coherent with the CPU's caches.
    ///
    /// Context: may sleep.
    ///
    /// # Safety
    ///
    /// The device may access the memory as `direction` says, until the returned value is unlinked
    /// or dropped.
    pub(super) unsafe fn link(
        self: &Arc<Self>,
        memory: impl Iterator<Item = (u64, u64)> + Clone,
        len: usize,
        direction: DataDirection,
        attributes: c_ulong,
        purpose: Purpose,
    ) -> Result<Linked> {
        let phase = huge_phase(memory.clone()).map(|phase| (phase, HUGE));
        let place = match self.places.take(len, purpose, phase) {
            Err(ENOSPC) => {
                self.report_full(len);
                return Err(ENOSPC);
            }
            place => place?,
        };
        // INVARIANT: The place has just been taken, and nothing is linked there.
        let mut linked = Linked {
            arena: self.clone(),
            place,
            linked: 0,
            direction,
            attributes,
            is_linked: Atomic::new(true),
            pages: None,
        };
        for (phys, run) in memory {
            let run = usize::try_from(run)?;
            if run > linked.place.len - linked.linked {
                return Err(EINVAL);
            }
            let range = self.range.try_access().ok_or(ENODEV)?;
            let at = linked.place.offset + linked.linked;
            // SAFETY: By the contract of this function; the place belongs to `linked`.
            unsafe { range.link(phys, at, run, linked.direction, linked.attributes) }?;
            if linked.linked == 0 {
                range.linked.add(1, Relaxed);
            }
            // INVARIANT: The run has just been linked.
            linked.linked += run;
        }
        let range = self.range.try_access().ok_or(ENODEV)?;
        range.sync(linked.place.offset, linked.linked)?;
        Ok(linked)
    }

    /// Links pages, and keeps them until they are unlinked.
    ///
    /// # Errors
    ///
    /// - `EACCES`: `access` includes writing, and the pages are read-only.
    /// - As [`Self::link`].
    ///
    /// Context: may sleep.
    pub(crate) fn link_pages(
        self: &Arc<Self>,
        pages: &Arc<Pages>,
        access: Access,
    ) -> Result<Linked> {
        let direction = match access {
            Access::Read => DataDirection::ToDevice,
            Access::Write | Access::Both if !pages.is_writable() => return Err(EACCES),
            Access::Write => DataDirection::FromDevice,
            Access::Both => DataDirection::Bidirectional,
        };
        let runs = pages.runs().entries().iter();
        let runs = runs.map(|run| (run.extent.address(), run.extent.len()));
        let (len, attributes) = (pages.size(), pages.dma_attributes());
        let purpose = Purpose::Windows;
        // SAFETY: `linked` keeps the pages. Any access that a device makes to registered memory is
        // expected.
        let mut linked = unsafe { self.link(runs, len, direction, attributes, purpose) }?;
        linked.pages = Some(pages.clone());
        Ok(linked)
    }

    /// Reports that there is no room. Only once, because a process that keeps registering too much
    /// must not fill the log.
    fn report_full(&self, wanted: usize) {
        kernel::pr_warn_once!(
            "the aperture over this node's memory is full: no {} KiB in one piece are left of {} KiB, of which windows hold {} KiB and rings {} KiB; windows that find no place are reached through staging slots, which takes longer\n",
            wanted >> 10,
            self.places.shape.len >> 10,
            self.places.bytes_for(Purpose::Windows) >> 10,
            self.places.bytes_for(Purpose::Rings) >> 10
        );
    }
}

/// Returns the offset in a huge page at which `memory` begins, counted back from its first whole
/// huge page. `None` if it has no whole huge page.
fn huge_phase(memory: impl Iterator<Item = (u64, u64)>) -> Option<usize> {
    let mut before = 0u64;
    for (phys, len) in memory {
        let first = phys.checked_next_multiple_of(HUGE as u64)?;
        if phys.checked_add(len)? >= first.checked_add(HUGE as u64)? {
            return Some((phys.wrapping_sub(before) % HUGE as u64) as usize);
        }
        before = before.checked_add(len)?;
    }
    None
}

impl Linked {
    /// Returns the begin of the piece, as the device names it.
    pub(crate) fn address(&self) -> u64 {
        self.place.address()
    }

    /// Takes the memory away from the device. Returns false if the device may still reach it: the
    /// memory stays linked if the arena was closed before.
    /// Context: may sleep.
    pub(crate) fn unlink(&self) -> bool {
        if self.linked == 0 || !self.is_linked.load(Relaxed) {
            return true;
        }
        let Some(range) = self.arena.range.try_access() else {
            return false;
        };
        if self.is_linked.xchg(false, Full) {
            // SAFETY: By the type invariant the memory is linked.
            unsafe {
                range.unlink(
                    self.place.offset,
                    self.linked,
                    self.direction,
                    self.attributes,
                );
            }
            range.linked.fetch_sub(1, Relaxed);
        }
        true
    }
}

impl Drop for Linked {
    fn drop(&mut self) {
        if !self.unlink() {
            // Leaks the pages, too, because the device may still reach them.
            core::mem::forget(self.pages.take());
        }
    }
}

static_assert!(HUGE % PAGE_SIZE == 0);

#[kunit_tests(scif_sys_arena)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn phase_is_that_of_the_first_huge_page() {
        assert_eq!(huge_phase([(0, MIB)].into_iter()), None);
        assert_eq!(huge_phase([(MIB, 2 * MIB)].into_iter()), None);
        assert_eq!(huge_phase([(2 * MIB, 2 * MIB)].into_iter()), Some(0));
        assert_eq!(
            huge_phase([(4 * MIB - 4096, 2 * MIB + 4096)].into_iter()),
            Some(HUGE - 4096)
        );
        // Behind a page that lies elsewhere.
        assert_eq!(
            huge_phase([(MIB, 4096), (8 * MIB, 2 * MIB)].into_iter()),
            Some(HUGE - 4096)
        );
        assert_eq!(huge_phase([(u64::MAX - 4095, 4096)].into_iter()), None);
    }
}
