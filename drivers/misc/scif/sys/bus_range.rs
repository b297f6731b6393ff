// SPDX-License-Identifier: GPL-2.0

//! Memory that a DMA engine can access, by its bus address.
//!
//! An engine accesses the addresses it was given, even if the memory has another owner by then. So
//! the module gives an engine only a [`BusRange`]. The range borrows from an object, and the memory
//! is mapped for the engine's device as long as that object exists. The ranges of a
//! [`Batch`](super::dmaengine::Batch) borrow from its target, which lives until the last copy has
//! completed.

use super::{
    dma_map::{
        MappedRun,
        DEVICE_MEMORY, //
    },
    dmaengine::Channel,
    reached::IoMapping,
    shared_memory::{
        MemoryUser,
        Payer,
        SharedMemory, //
    },
};
use crate::logic::{
    gate::Drained,
    plan::{
        Linear,
        Plan,
        Segment,
        Walk, //
    },
    window_set::Seams, //
};
use kernel::{
    device::Device,
    prelude::*,
    sync::aref::ARef, //
};

/// Contiguous memory that is mapped for a device as long as `'m`.
///
/// # Invariants
///
/// `len` bytes are mapped for `device` at `address`, unless they are a part of a [`MappedView`]
/// that was unmapped because no copy can access it any more.
#[derive(Clone, Copy)]
pub(crate) struct BusRange<'m> {
    device: &'m Device,
    address: u64,
    len: u64,
}

impl<'m> BusRange<'m> {
    /// # Safety
    ///
    /// The arguments are as the type invariant says.
    pub(super) unsafe fn new(device: &'m Device, address: u64, len: u64) -> Self {
        Self {
            device,
            address,
            len,
        }
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns a walk over the range.
    pub(crate) fn walk(self) -> Option<BusWalk<'m, Linear>> {
        Some(BusWalk {
            device: self.device,
            walk: Linear::new(self.address, self.len)?,
        })
    }
}

/// A walk over memory that is mapped for a device as long as `'m`.
///
/// # Invariants
///
/// Each run is a [`BusRange`] of the device.
pub(crate) struct BusWalk<'m, W> {
    device: &'m Device,
    walk: W,
}

impl<'m, W> BusWalk<'m, W> {
    /// # Safety
    ///
    /// The arguments are as the type invariant says.
    pub(super) unsafe fn new(device: &'m Device, walk: W) -> Self {
        Self { device, walk }
    }
}

/// A copy from one [`BusRange`] to another one.
#[derive(Clone, Copy)]
pub(crate) struct BusCopy<'m> {
    segment: Segment,
    to: &'m Device,
    from: &'m Device,
}

impl<'m> BusCopy<'m> {
    /// Plans a copy of a whole range; `None` if the other range has another length.
    pub(crate) fn new(to: BusRange<'m>, from: BusRange<'m>) -> Option<Self> {
        (to.len == from.len).then_some(Self {
            segment: Segment {
                destination: to.address,
                source: from.address,
                len: to.len,
            },
            to: to.device,
            from: from.device,
        })
    }

    /// Returns the addresses and the length of the copy, as the device names them.
    pub(crate) fn segment(&self) -> Segment {
        self.segment
    }

    /// Returns a copy of the first `most` bytes (at least 1), and a copy of the rest.
    pub(crate) fn split(self, most: u64) -> (Self, Option<Self>) {
        let (head, rest) = self.segment.split(most);
        let part = |segment| Self { segment, ..self };
        (part(head), rest.map(part))
    }

    /// Returns the segment for the engine of this device; `None` if the memory is not mapped for
    /// it.
    pub(super) fn for_device(&self, device: &Device) -> Option<Segment> {
        let is_mapped = [self.to, self.from]
            .iter()
            .all(|mapped| core::ptr::eq(*mapped, device));
        is_mapped.then_some(self.segment)
    }
}

/// A [`Plan`] whose segments are copies.
pub(crate) struct BusPlan<'m, D, S> {
    plan: Plan<D, S>,
    to: &'m Device,
    from: &'m Device,
}

impl<'m, D: Walk, S: Walk> BusPlan<'m, D, S> {
    /// Plans a copy of `len` bytes in pieces of at most `longest` bytes. If a side is too short,
    /// the last item is ENXIO.
    pub(crate) fn new(to: BusWalk<'m, D>, from: BusWalk<'m, S>, len: u64, longest: u64) -> Self {
        Self {
            plan: Plan::new(to.walk, from.walk, len, longest),
            to: to.device,
            from: from.device,
        }
    }
}

impl<'m, D: Walk, S: Walk> Iterator for BusPlan<'m, D, S> {
    type Item = Result<BusCopy<'m>>;

    fn next(&mut self) -> Option<Self::Item> {
        // Each side of a segment lies in one run of its walk.
        let segment = self.plan.next()?.map_err(|_| ENXIO);
        Some(segment.map(|segment| BusCopy {
            segment,
            to: self.to,
            from: self.from,
        }))
    }
}

/// Zeroed kernel memory that an engine may read and write as long as this exists.
pub(crate) struct EngineMemory(SharedMemory);

impl EngineMemory {
    /// Allocates at least `len` bytes for the engine of this device.
    /// Context: may sleep.
    pub(crate) fn new(len: usize, device: &ARef<Device>) -> Result<Self> {
        let user = MemoryUser::Device(device.clone());
        SharedMemory::new(len, &user, Payer::None).map(Self)
    }

    /// Copies bytes into this memory.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) -> Result {
        self.0.write(offset, from)
    }

    /// Returns a part of the memory; `None` if not all of it is inside.
    pub(crate) fn range(&self, offset: usize, len: usize) -> Option<BusRange<'_>> {
        // Only this has the memory, so it stays mapped until the drop.
        self.0.run()?.range(offset as u64, len as u64)
    }
}

/// The memory of a peer that mappings of this node show from a base on, for the channel of an engine.
pub(crate) struct MappedView {
    device: ARef<Device>,
    /// The [`Channel::id`], which a later channel may have, too.
    pub(super) channel: usize,
    runs: KVec<MappedRun>,
    /// Borders between runs, counted from the base.
    seams: Seams,
    base: u64,
}

impl MappedView {
    /// Maps the memory that the parts show, for the device of this channel. Copies of other channels
    /// do not use the view.
    /// Context: may sleep.
    pub(crate) fn new(
        channel: &Channel,
        parts: &[IoMapping],
        seams: Seams,
        base: u64,
    ) -> Result<Self> {
        let device = &channel.device;
        let mut runs = KVec::with_capacity(parts.len(), GFP_KERNEL)?;
        for part in parts {
            // SAFETY: Memory of a device is not freed, and is no Rust memory.
            let run = unsafe { MappedRun::new(device, part.phys, part.size(), DEVICE_MEMORY) };
            runs.push(run?, GFP_KERNEL)?;
        }
        Ok(Self {
            device: device.clone(),
            channel: channel.id(),
            runs,
            seams,
            base,
        })
    }

    /// Returns the `len` bytes at the peer's `address`; `None` if they are not mapped in one piece.
    /// Context: any.
    pub(crate) fn range(&self, address: u64, len: u64) -> Option<BusRange<'_>> {
        let (index, offset) = self.seams.locate(address.checked_sub(self.base)?);
        self.runs.get(index)?.range(offset, len)
    }

    /// Returns a walk over the memory at the peer's addresses that `walk` returns.
    /// Context: any.
    pub(crate) fn walk<W: Walk>(&self, walk: W) -> BusWalk<'_, ViewWalk<'_, W>> {
        // INVARIANT: Each run is a range of this view.
        BusWalk {
            device: &self.device,
            walk: ViewWalk { view: self, walk },
        }
    }

    /// Unmaps all of the view from the engine. `_drained` proves that all copies have ended.
    /// Context: may sleep.
    pub(crate) fn unmap(&self, _drained: &Drained) {
        self.unmap_unused();
    }

    /// Unmaps all of the view from the engine, which copies nothing to or from it any more.
    /// Context: may sleep.
    pub(super) fn unmap_unused(&self) {
        self.runs.iter().for_each(MappedRun::unmap);
    }
}

/// A walk over the memory of a peer, which [`MappedView::walk`] returns.
pub(crate) struct ViewWalk<'m, W> {
    view: &'m MappedView,
    walk: W,
}

impl<W: Walk> Walk for ViewWalk<'_, W> {
    fn next(&mut self, limit: u64) -> Option<(u64, u64)> {
        let (address, len) = self.walk.next(limit)?;
        Some((self.view.range(address, len)?.address, len))
    }
}

#[kunit_tests(scif_sys_bus_range)]
mod tests {
    use super::*;
    use crate::sys::{
        dmaengine::{
            Batch,
            Completion,
            CopyCount, //
        },
        tests::device, //
    };
    use kernel::sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    };

    #[test]
    fn bus_range_outside_the_mapping_is_refused() -> Result {
        let device = device()?;
        let memory = EngineMemory::new(4096, &device)?;
        let range = |offset, len| memory.range(offset, len);
        assert!(range(0, 4097).is_none() && range(4096, 1).is_none());
        assert!(range(usize::MAX, 2).is_none());
        let (to, from) = (range(4000, 96), range(1, 96));
        let (to, from) = (to.ok_or(EINVAL)?, from.ok_or(EINVAL)?);
        assert!(BusCopy::new(to, range(0, 95).ok_or(EINVAL)?).is_none());

        let (head, rest) = BusCopy::new(to, from).ok_or(EINVAL)?.split(64);
        let rest = rest.ok_or(EINVAL)?.for_device(&device).ok_or(EINVAL)?;
        assert_eq!((head.segment().len, rest.len), (64, 32));
        assert_eq!(rest.destination - rest.source, 3999);

        let (to, from) = (to.walk().ok_or(EINVAL)?, from.walk().ok_or(EINVAL)?);
        let mut plan = BusPlan::new(to, from, 97, 96);
        let whole = plan.next().ok_or(EINVAL)??;
        assert_eq!(whole.segment().len, 96);
        assert!(matches!(plan.next(), Some(Err(ENXIO))));
        Ok(())
    }

    struct Target {
        copies: CopyCount,
        ended: Atomic<u32>,
    }

    impl Completion for Target {
        fn copies(&self) -> &CopyCount {
            &self.copies
        }

        fn copy_ended(&self, _result: Result) {}

        fn all_ended(self: Arc<Self>) {
            self.ended.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn second_batch_of_a_target_is_busy() -> Result {
        let target = Arc::new(
            Target {
                copies: CopyCount::new(),
                ended: Atomic::new(0),
            },
            GFP_KERNEL,
        )?;
        let again = Batch::submit(&target, |_, _| Batch::submit(&target, |_, _| ()))?;
        assert_eq!(again, Err(EBUSY));
        assert_eq!(target.ended.load(Relaxed), 1);
        Batch::submit(&target, |_, _| ())?;
        assert_eq!(target.ended.load(Relaxed), 2);
        assert!(Arc::into_unique_or_drop(target).is_some());
        Ok(())
    }
}
