// SPDX-License-Identifier: GPL-2.0

//! Memory as a DMA engine names it.
//!
//! An engine reads and writes where it was told to, whoever has the memory by then. So it is told nothing but a
//! [`BusRange`], whose memory is mapped for the engine's device as long as what the range borrows from. The ranges of
//! a [`Batch`](super::dmaengine::Batch) borrow from its target, which lives until the last copy has ended.

use super::{
    dma_map::{
        MappedRun,
        DEVICE_MEMORY, //
    },
    reached::IoMapping,
    shared_memory::{
        Payer,
        SharedMemory,
        User, //
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
/// It is what it says, unless it is a part of a [`MappedView`] that was drained.
#[derive(Clone, Copy)]
pub(crate) struct BusRange<'m> {
    device: &'m Device,
    address: u64,
    len: u64,
}

impl<'m> BusRange<'m> {
    /// # Safety
    ///
    /// It is as the type invariant says.
    pub(super) unsafe fn new(device: &'m Device, address: u64, len: u64) -> Self {
        Self {
            device,
            address,
            len,
        }
    }

    /// A walk over it.
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
    /// It is as the type invariant says.
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
    /// Copies all of a range; none if the other one has another length.
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

    /// From where to where, for the device.
    pub(crate) fn segment(&self) -> Segment {
        self.segment
    }

    /// Its first `most` bytes (at least 1), and what is left behind them.
    pub(crate) fn split(self, most: u64) -> (Self, Option<Self>) {
        let (head, rest) = self.segment.split(most);
        let part = |segment| Self { segment, ..self };
        (part(head), rest.map(part))
    }

    /// What an engine that is this device is told; none if the memory is not mapped for it.
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
    /// Plans a copy of `len` bytes in pieces of at most `longest` bytes. One side that is too short is ENXIO in the end.
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
        // Either side of a segment lies in a run of its walk.
        let segment = self.plan.next()?.map_err(|_| ENXIO);
        Some(segment.map(|segment| BusCopy {
            segment,
            to: self.to,
            from: self.from,
        }))
    }
}

/// Zeroed memory of the kernel that an engine may read and write as long as this lives.
pub(crate) struct EngineMemory(SharedMemory);

impl EngineMemory {
    /// At least `len` bytes for an engine that is this device. May sleep.
    pub(crate) fn new(len: usize, device: &ARef<Device>) -> Result<Self> {
        let user = User::Device(device.clone());
        SharedMemory::new(len, &user, Payer::Nobody).map(Self)
    }

    /// Copies bytes in.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) -> Result {
        self.0.write(offset, from)
    }

    /// A part of it; none where that is not all inside.
    pub(crate) fn range(&self, offset: usize, len: usize) -> Option<BusRange<'_>> {
        // Nobody unmaps it: nobody else has it.
        self.0.run()?.range(offset as u64, len as u64)
    }
}

/// A peer's memory, which mappings of this node show from a base on, as an engine names it.
pub(crate) struct MappedView {
    device: ARef<Device>,
    runs: KVec<MappedRun>,
    /// Where one run ends and the next begins, counted from the base.
    seams: Seams,
    base: u64,
}

impl MappedView {
    /// Maps what the parts show, for an engine that is this device. May sleep.
    pub(crate) fn new(
        device: &ARef<Device>,
        parts: &[IoMapping],
        seams: Seams,
        base: u64,
    ) -> Result<Self> {
        let mut runs = KVec::with_capacity(parts.len(), GFP_KERNEL)?;
        for part in parts {
            // SAFETY: Memory of a device is not freed, and is no Rust memory.
            let run = unsafe { MappedRun::new(device, part.phys, part.size(), DEVICE_MEMORY) };
            runs.push(run?, GFP_KERNEL)?;
        }
        Ok(Self {
            device: device.clone(),
            runs,
            seams,
            base,
        })
    }

    /// The `len` bytes at the peer's `address`; none if they are not reached in one piece. Any context.
    pub(crate) fn range(&self, address: u64, len: u64) -> Option<BusRange<'_>> {
        let (index, offset) = self.seams.locate(address.checked_sub(self.base)?);
        self.runs.get(index)?.range(offset, len)
    }

    /// A walk over what of the peer's memory a walk gives. Any context.
    pub(crate) fn walk<W: Walk>(&self, walk: W) -> BusWalk<'_, ViewWalk<'_, W>> {
        // INVARIANT: Each run is a range of this view.
        BusWalk {
            device: &self.device,
            walk: ViewWalk { view: self, walk },
        }
    }

    /// Takes all of it away from the engine, as all copies there are inside of what was drained. May sleep.
    pub(crate) fn unmap(&self, _nobody_uses_it: &Drained) {
        self.runs.iter().for_each(MappedRun::unmap);
    }
}

/// See [`MappedView::walk`].
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
    fn ranges_and_copies_are_of_what_is_mapped() -> Result {
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
    fn a_target_has_one_batch_at_a_time() -> Result {
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
