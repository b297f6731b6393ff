// SPDX-License-Identifier: GPL-2.0

//! Mapping of memory for devices.
//!
//! C header: [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)
//!
//! This file has more than 500 lines because contracts of `unsafe` blocks stand beside them.

use core::{
    mem::MaybeUninit,
    ptr, //
};

use kernel::{
    bindings,
    device::Device,
    dma::DataDirection,
    error::to_result,
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
    types::Opaque, //
};

use super::{
    bindings as own,
    bus_range::{
        BusRange,
        BusWalk, //
    },
    extent_table::ExtentTable,
    pages::Pages, //
};
use crate::logic::extents::{
    Extent,
    ExtentWalk, //
};

/// DMA attributes of memory that a device and the CPU use at the same time, for long.
///
/// `DMA_ATTR_REQUIRE_COHERENT` asks for this: no bounce buffers, no cache maintenance, and an error
/// on platforms that need them. It also allows more than one mapping of a page. Such mappings exist
/// when a process registers memory twice, or when there are two devices.
pub(super) const SHARED: c_ulong = bindings::DMA_ATTR_REQUIRE_COHERENT as c_ulong;

/// DMA attributes of another device's memory.
pub(super) const DEVICE_MEMORY: c_ulong = bindings::DMA_ATTR_MMIO as c_ulong;

const BOTH: DataDirection = DataDirection::Bidirectional;

/// Returns the C device behind a Rust device.
pub(super) fn raw(device: &Device) -> *mut bindings::device {
    // `Device` is a transparent wrapper of an `Opaque`, which may be written to through `&`.
    ptr::from_ref(device).cast_mut().cast()
}

/// Maps contiguous physical memory for a device and returns the bus address.
///
/// Returns `ENOMEM` if the device can't reach the memory, or the mapping fails.
///
/// # Safety
///
/// The memory must be unmapped with [`unmap_phys`], with the same arguments, before it is freed.
pub(super) unsafe fn map_phys(
    device: &Device,
    phys: u64,
    len: usize,
    direction: DataDirection,
    attributes: c_ulong,
) -> Result<u64> {
    // SAFETY: The device is valid.
    if !unsafe { own::scif_helper_dma_reaches(raw(device), phys, len) } {
        return Err(ENOMEM);
    }
    // SAFETY: The device is valid, and so is the memory, by the contract of this function.
    let bus =
        unsafe { bindings::dma_map_phys(raw(device), phys, len, direction.into(), attributes) };
    // SAFETY: The device is valid.
    if unsafe { own::scif_helper_dma_mapping_failed(raw(device), bus) } {
        return Err(ENOMEM);
    }
    Ok(bus)
}

/// Undoes [`map_phys`].
///
/// # Safety
///
/// The arguments are those of a call of [`map_phys`] that has not been undone.
pub(super) unsafe fn unmap_phys(
    device: &Device,
    bus: u64,
    len: usize,
    direction: DataDirection,
    attributes: c_ulong,
) {
    // SAFETY: By the contract of this function.
    unsafe { bindings::dma_unmap_phys(raw(device), bus, len, direction.into(), attributes) };
}

/// Contiguous memory that is mapped for a device.
///
/// # Invariants
///
/// While `is_mapped`, `size` bytes are mapped for `device` at `address`, with `attributes`.
pub(crate) struct MappedRun {
    device: ARef<Device>,
    /// Address of the first byte, as the device names it.
    pub(crate) address: u64,
    size: usize,
    attributes: c_ulong,
    is_mapped: Atomic<bool>,
}

impl MappedRun {
    /// Maps `len` bytes at a physical address, which the device may read and write.
    /// Context: may sleep.
    ///
    /// # Safety
    ///
    /// The memory exists until this is dropped. Until it is unmapped or dropped, the device may
    /// access the memory as it likes.
    pub(super) unsafe fn new(
        device: &ARef<Device>,
        phys: u64,
        len: usize,
        attributes: c_ulong,
    ) -> Result<Self> {
        // SAFETY: By the contract of this function. `drop` unmaps the memory.
        let address = unsafe { map_phys(device, phys, len, BOTH, attributes) }?;
        // INVARIANT: The memory has just been mapped.
        Ok(Self {
            device: device.clone(),
            address,
            size: len,
            attributes,
            is_mapped: Atomic::new(true),
        })
    }

    /// Returns a part of the run, as long as it is mapped; `None` if not all of it is inside.
    pub(super) fn range(&self, offset: u64, len: u64) -> Option<BusRange<'_>> {
        if offset.checked_add(len)? > self.size as u64 {
            return None;
        }
        // SAFETY: By the type invariant.
        Some(unsafe { BusRange::new(&self.device, self.address.checked_add(offset)?, len) })
    }

    /// Unmaps the memory from the device. The caller must have told the device to stop using it.
    /// Context: may sleep.
    pub(super) fn unmap(&self) {
        if self.is_mapped.xchg(false, Full) {
            // SAFETY: By the type invariant the memory is mapped with these arguments.
            unsafe { unmap_phys(&self.device, self.address, self.size, BOTH, self.attributes) };
        }
    }
}

impl Drop for MappedRun {
    fn drop(&mut self) {
        self.unmap();
    }
}

/// A contiguous range of I/O addresses of a device, into which memory can be linked.
///
/// # Invariants
///
/// C has filled in `state` for `device`, and the range has not been given back.
pub(super) struct IoRange {
    device: ARef<Device>,
    state: Opaque<bindings::dma_iova_state>,
    /// Begin of the range, as the device names it.
    pub(super) base: u64,
    /// Number of linked pieces, as the owner counts them. If it is not 0 on drop, the addresses are
    /// lost.
    pub(super) linked: Atomic<usize>,
}

// SAFETY: No part of it belongs to a thread.
unsafe impl Send for IoRange {}
// SAFETY: C only reads `state`. It would write only for bounce buffers, which the attributes in use
// forbid.
unsafe impl Sync for IoRange {}

impl IoRange {
    /// Allocates `size` bytes of I/O addresses, aligned to the next power of two.
    ///
    /// Returns `EOPNOTSUPP` if no IOMMU translates for the device, or if it has no such range.
    /// Context: may sleep.
    pub(super) fn new(device: &ARef<Device>, size: usize) -> Result<Self> {
        let mut state = MaybeUninit::<bindings::dma_iova_state>::zeroed();
        // SAFETY: The device is valid, and so is the pointer.
        if !unsafe { own::scif_helper_iova_alloc(raw(device), state.as_mut_ptr(), size) } {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: The state consists of numbers, which were zero before C wrote them.
        let state = unsafe { state.assume_init() };
        // INVARIANT: C has just filled in the state.
        Ok(Self {
            device: device.clone(),
            base: state.addr,
            state: Opaque::new(state),
            linked: Atomic::new(0),
        })
    }

    /// Links memory at an offset. The device may use it after [`Self::sync`].
    ///
    /// Returns `EOPNOTSUPP` if the device is not coherent with the CPU's caches.
    /// Context: does not sleep.
    ///
    /// # Safety
    ///
    /// The place is in the range, and nothing is linked there. The memory exists until it is
    /// unlinked, and the device may access it as `direction` says.
    pub(super) unsafe fn link(
        &self,
        phys: u64,
        offset: usize,
        len: usize,
        direction: DataDirection,
        attributes: c_ulong,
    ) -> Result {
        let (device, state) = (raw(&self.device), self.state.get());
        // SAFETY: By the type invariant, and by the contract of this function.
        to_result(unsafe {
            own::scif_helper_iova_link(
                device,
                state,
                phys,
                offset,
                len,
                direction.into(),
                attributes,
            )
        })
    }

    /// Makes linked memory visible to the device.
    /// Context: does not sleep.
    pub(super) fn sync(&self, offset: usize, len: usize) -> Result {
        let (device, state) = (raw(&self.device), self.state.get());
        // SAFETY: By the type invariant.
        to_result(unsafe { own::scif_helper_iova_sync(device, state, offset, len) })
    }

    /// Unlinks memory. When this returns, the device can no longer access it.
    /// Context: does not sleep.
    ///
    /// # Safety
    ///
    /// All of the memory was linked with the same arguments.
    pub(super) unsafe fn unlink(
        &self,
        offset: usize,
        len: usize,
        direction: DataDirection,
        attributes: c_ulong,
    ) {
        let (device, state) = (raw(&self.device), self.state.get());
        // SAFETY: By the type invariant, and by the contract of this function.
        unsafe {
            own::scif_helper_iova_unlink(device, state, offset, len, direction.into(), attributes);
        }
    }
}

impl Drop for IoRange {
    fn drop(&mut self) {
        let linked = self.linked.load(Relaxed);
        if linked != 0 {
            pr_warn!(
                "{} pieces of an aperture are still mapped at its end: its I/O addresses are never used again\n",
                linked
            );
            return;
        }
        // SAFETY: By the type invariant; no memory is linked any more.
        unsafe { own::scif_helper_iova_free(raw(&self.device), self.state.get()) };
    }
}

/// Returns whether an IOMMU translates for the device, so that it can only access mapped memory.
pub(crate) fn has_iommu(device: &Device) -> bool {
    // SAFETY: The device is valid.
    unsafe { own::scif_helper_has_iommu(raw(device)) }
}

/// The protection against a device that uses any address: which part of the machine it can't
/// access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// No protection.
    None,
    /// An IOMMU, which does not protect memory that is mapped for other devices of the same group.
    Group,
    /// An IOMMU that protects memory, but the device may raise interrupts that are not its own.
    Memory,
    /// An IOMMU that protects memory and interrupts.
    Whole,
}

/// Returns the protection against a device.
/// Context: may sleep.
pub(crate) fn guard(device: &Device) -> Guard {
    let device_pointer = raw(device);
    // SAFETY: The device is valid.
    let (is_alone, is_isolated) = unsafe {
        (
            own::scif_helper_is_alone(device_pointer),
            own::scif_helper_has_isolated_msi(device_pointer),
        )
    };
    match (has_iommu(device), is_alone, is_isolated) {
        (false, ..) => Guard::None,
        (true, false, _) => Guard::Group,
        (true, true, false) => Guard::Memory,
        (true, true, true) => Guard::Whole,
    }
}

/// Returns whether the device names all memory by its physical address, and is coherent with the
/// CPU's caches.
/// Context: may sleep.
pub(crate) fn bus_is_physical(device: &Device) -> bool {
    // SAFETY: The device is valid.
    unsafe { own::scif_helper_bus_is_physical(raw(device)) }
}

/// Pages that are mapped for a device: for reading, and for writing if they are writable.
///
/// The mapping is coherent: the CPU and the device may use the pages at the same time. Drop it when
/// the device no longer uses it, and before the device's driver is unbound.
///
/// # Invariants
///
/// The extents of `addresses` are mapped for the device in `direction`. With a `range`, they are
/// one extent from its begin on; else each is mapped by itself.
pub(crate) struct DmaMapping {
    /// I/O addresses; `None` without an IOMMU.
    range: Option<IoRange>,
    addresses: ExtentTable,
    direction: DataDirection,
    device: ARef<Device>,
    /// Keeps the pages until they are unmapped.
    pages: Arc<Pages>,
}

impl DmaMapping {
    /// Maps all pages for a device. The calling process pays for the memory of the table.
    ///
    /// Returns `EOPNOTSUPP` if the device is not coherent with the CPU's caches.
    /// Context: may sleep.
    pub(crate) fn new(pages: &Arc<Pages>, device: &ARef<Device>) -> Result<Self> {
        let range = if pages.are_of_device() {
            None
        } else {
            IoRange::new(device, pages.size()).ok()
        };
        let direction = if pages.is_writable() {
            DataDirection::Bidirectional
        } else {
            DataDirection::ToDevice
        };
        // INVARIANT: Nothing is mapped yet.
        let mut this = Self {
            range,
            addresses: ExtentTable::default(),
            direction,
            device: device.clone(),
            pages: pages.clone(),
        };
        this.map()?;
        Ok(this)
    }

    /// Maps all runs of the pages, and adds them to the table.
    fn map(&mut self) -> Result {
        let (direction, attributes) = (self.direction, self.pages.dma_attributes());
        let runs = self.pages.runs().entries();
        let count = if self.range.is_some() { 1 } else { runs.len() };
        self.addresses.entries.reserve(count, GFP_KERNEL_ACCOUNT)?;
        for run in runs {
            let (phys, len) = (run.extent.address(), usize::try_from(run.extent.len())?);
            let bus = if let Some(range) = &self.range {
                let done = self.addresses.len();
                // SAFETY: `self` keeps the pages, and unlinks them on drop. The range behind the
                // linked pages is free.
                unsafe { range.link(phys, done as usize, len, direction, attributes) }?;
                range.base + done
            } else {
                // SAFETY: `self` keeps the pages, and unmaps them on drop.
                unsafe { map_phys(&self.device, phys, len, direction, attributes) }?
            };
            // INVARIANT: The run has just been mapped.
            let may_join = self.range.is_some();
            let added = Extent::new(bus, len as u64)
                .and_then(|extent| self.addresses.add(extent, may_join));
            if added.is_none() {
                // SAFETY: The run has just been mapped, and is not in the table.
                unsafe { self.unmap(bus, len) };
                return Err(EINVAL);
            }
        }
        match &self.range {
            Some(range) => range.sync(0, self.addresses.len() as usize),
            None => Ok(()),
        }
    }

    /// Unmaps the memory at a bus address.
    ///
    /// # Safety
    ///
    /// `len` bytes are mapped there as the type invariant says, and the device uses them no more.
    unsafe fn unmap(&self, bus: u64, len: usize) {
        let (direction, attributes) = (self.direction, self.pages.dma_attributes());
        // SAFETY: By the contract of this function.
        unsafe {
            match &self.range {
                Some(range) => {
                    range.unlink((bus - range.base) as usize, len, direction, attributes);
                }
                None => unmap_phys(&self.device, bus, len, direction, attributes),
            }
        }
    }

    /// Returns the addresses by which the device accesses the pages. There are few extents if the
    /// memory or the IOMMU allows that, but neighbours may still touch.
    pub(crate) fn addresses(&self) -> &ExtentTable {
        &self.addresses
    }

    /// Returns a walk over the addresses from an offset on.
    pub(crate) fn walk(&self, offset: u64) -> BusWalk<'_, ExtentWalk<'_>> {
        // SAFETY: By the type invariant the addresses are mapped until `self` is dropped.
        unsafe { BusWalk::new(&self.device, self.addresses.walk(offset)) }
    }
}

impl Drop for DmaMapping {
    fn drop(&mut self) {
        for entry in self.addresses.entries() {
            // SAFETY: By the type invariant the extent is mapped.
            unsafe { self.unmap(entry.extent.address(), entry.extent.len() as usize) };
        }
    }
}

#[kunit_tests(scif_sys_dma_map)]
mod tests {
    use super::*;
    use crate::sys::tests::{
        device,
        map_pages, //
    };

    #[test]
    fn mapping_beyond_the_dma_mask_fails_without_warning() -> Result {
        let device = device()?;
        let address = map_pages(1, true)?;
        let pages = Arc::new(Pages::pin(address, 1, true, None)?, GFP_KERNEL)?;
        let phys = pages.phys(0).ok_or(EINVAL)?;
        let set_mask = |mask| {
            // SAFETY: The device is valid, and has masks.
            to_result(unsafe { bindings::dma_set_mask_and_coherent(raw(&device), mask) })
        };
        if has_iommu(&device) || phys < 1 << 24 || set_mask((1 << 24) - 1).is_err() {
            return Ok(());
        }
        assert!(DmaMapping::new(&pages, &device).is_err());
        set_mask(u64::MAX)?;
        assert!(DmaMapping::new(&pages, &device).is_ok());
        Ok(())
    }

    #[test]
    fn dma_mapping_covers_all_pinned_pages() -> Result {
        const PAGES: usize = 40;

        let device = device()?;
        let address = map_pages(PAGES, true)?;
        let pages = Arc::new(Pages::pin(address, PAGES, true, None)?, GFP_KERNEL)?;
        let mapping = DmaMapping::new(&pages, &device)?;
        // Maps the same pages again, and a third time for reading only: both must work.
        let again = DmaMapping::new(&pages, &device)?;
        let read_only = Arc::new(Pages::pin(address, PAGES, false, None)?, GFP_KERNEL)?;
        let third = DmaMapping::new(&read_only, &device)?;
        drop(pages);

        let size = (PAGES * kernel::page::PAGE_SIZE) as u64;
        for mapping in [&mapping, &again, &third] {
            assert_eq!(mapping.addresses().len(), size);
        }
        if !has_iommu(&device) {
            let (address, _) = mapping.addresses().at(0).ok_or(EINVAL)?;
            assert_eq!(Some(address), read_only.phys(0));
        }
        Ok(())
    }
}
