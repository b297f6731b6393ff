// SPDX-License-Identifier: GPL-2.0

//! A range of I/O addresses of a device, into which memory is linked piece by piece.
//!
//! A bridge translates its memory window to such a range once, and from then on the peer reaches what is
//! linked there at the moment, with the protection with which it is, and nothing else: the IOMMU says no.
//! A piece is contiguous there, however many runs of memory it is made of.
//!
//! # Where a piece lies
//!
//! Places are pages of the range (`places.rs`). Memory that has huge pages gets a place where the IOMMU can use huge pages
//! as well, if there is one.
//!
//! # What is promised
//!
//! Once [`Linked::unlink`] has returned, or a [`Linked`] was dropped, the device reaches its memory no
//! more: the IOTLB was flushed.
//!
//! # Its end
//!
//! The addresses go back to the device before its driver is unbound ([`Arena::close`]), although somebody may
//! still have a piece: the ring of a connection lives as long as a descriptor of it. By then nothing
//! is linked any more; a piece that should be stays so: its addresses and its memory are lost.
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

/// What a huge page of an IOMMU has, on all that this kernel runs on with pages of 4 KiB.
const HUGE: usize = 2 << 20;

/// What a device may do with pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Read,
    /// Reading, too, where the IOMMU can't tell.
    Write,
    Both,
}

/// See the head of this file. Close it before the driver of the device is unbound from it.
#[pin_data]
pub(crate) struct Arena {
    /// Gone once the driver of the device may go.
    #[pin]
    range: Revocable<IoRange>,
    /// Pages of the range.
    pub(crate) places: Arc<Places>,
}

/// Memory that lies in an [`Arena`], until this is dropped.
///
/// The memory has to stay as long.
///
/// # Invariants
///
/// The first `linked` bytes of the place are linked, in this direction and with these attributes, while `is_linked`,
/// and are counted as a piece by the range.
pub(crate) struct Linked {
    arena: Arc<Arena>,
    place: Place,
    linked: usize,
    direction: DataDirection,
    attributes: c_ulong,
    is_linked: Atomic<bool>,
    /// Kept until they are unlinked, where they are what is linked.
    pages: Option<Arc<Pages>>,
}

impl Arena {
    /// A range of this shape, aligned to the next power of two. `EOPNOTSUPP` if no IOMMU translates for
    /// the device, or if it has no such range. May sleep.
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

    /// Gives the addresses back to the device, whose driver may go then: nothing is linked from now on,
    /// and what is a piece of it is none any more. May sleep.
    pub(crate) fn close(&self) {
        self.range.revoke();
    }

    /// Links memory, runs of physical addresses and lengths with `len` bytes in all, all of them whole
    /// pages. The caller keeps the memory until what is returned is gone.
    ///
    /// `ENOSPC` if there is no room, of which the log is told; `ENODEV` if it was closed; `EOPNOTSUPP` if the device is not coherent
    /// with the CPU's caches. May sleep.
    ///
    /// # Safety
    ///
    /// The device may do with the memory what `direction` says until what is returned is gone, or was
    /// unlinked.
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
        // One run after the other.
        for (phys, run) in memory {
            let run = usize::try_from(run)?;
            if run > linked.place.len - linked.linked {
                return Err(EINVAL);
            }
            let range = self.range.try_access().ok_or(ENODEV)?;
            let at = linked.place.offset + linked.linked;
            // SAFETY: By the contract of this function; the place is this one's.
            unsafe { range.link(phys, at, run, linked.direction, linked.attributes) }?;
            if linked.linked == 0 {
                range.linked.add(1, Relaxed);
            }
            // INVARIANT: It has just been linked.
            linked.linked += run;
        }
        let range = self.range.try_access().ok_or(ENODEV)?;
        range.sync(linked.place.offset, linked.linked)?;
        Ok(linked)
    }

    /// Links pages. Errors as those of [`Self::link`]; EACCES if they may be written to by nobody, and that is
    /// asked for. May sleep.
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
        // SAFETY: The pages are kept, and what a device does with memory that was registered is expected.
        let mut linked = unsafe { self.link(runs, len, direction, attributes, purpose) }?;
        linked.pages = Some(pages.clone());
        Ok(linked)
    }

    /// Says that there is no room: once, as who registers too much over and over must not fill the log.
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

/// Where in a huge page memory begins of which the first such page is whole; none if it has none.
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
    /// Where it begins, as the device names it.
    pub(crate) fn address(&self) -> u64 {
        self.place.address()
    }

    /// Takes the memory away from the device. Returns whether it reaches it no more: not so if the arena was closed
    /// before, as the memory stays linked then. May sleep.
    pub(crate) fn unlink(&self) -> bool {
        if self.linked == 0 || !self.is_linked.load(Relaxed) {
            return true;
        }
        let Some(range) = self.arena.range.try_access() else {
            return false;
        };
        if self.is_linked.xchg(false, Full) {
            // SAFETY: By the type invariant it is linked.
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
            // The pages are lost, too.
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
    fn the_phase_is_that_of_the_first_huge_page() {
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
