// SPDX-License-Identifier: GPL-2.0

//! Mapping memory for devices.
//!
//! C header: [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)

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

/// The attributes of memory that a device and the CPU use at the same time, for long.
///
/// `DMA_ATTR_REQUIRE_COHERENT` says just that: no bounce buffers, no cache maintenance, and an error
/// where the platform cannot do without. It also allows the same page to be mapped more than once,
/// as it is when a process registers its memory twice or when there are two devices.
pub(super) const SHARED: c_ulong = bindings::DMA_ATTR_REQUIRE_COHERENT as c_ulong;

/// The attributes of another device's memory.
pub(super) const DEVICE_MEMORY: c_ulong = bindings::DMA_ATTR_MMIO as c_ulong;

const BOTH: DataDirection = DataDirection::Bidirectional;

/// The C device behind a Rust one.
pub(super) fn raw(device: &Device) -> *mut bindings::device {
    // `Device` is a transparent wrapper of an `Opaque`, which may be written to through `&`.
    ptr::from_ref(device).cast_mut().cast()
}

/// Maps contiguous physical memory for a device and returns the bus address.
///
/// # Safety
///
/// The memory must be unmapped with [`unmap_phys`] before it is freed, and with the same arguments.
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
    // SAFETY: The device is valid; the memory is, by the contract of this function.
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

/// Contiguous memory as a device reaches it.
///
/// # Invariants
///
/// `size` bytes are mapped for `device` at `address`, with `attributes`, while `is_mapped`.
pub(crate) struct MappedRun {
    device: ARef<Device>,
    /// Where it begins, as the device names it.
    pub(crate) address: u64,
    size: usize,
    attributes: c_ulong,
    is_mapped: Atomic<bool>,
}

impl MappedRun {
    /// Maps `len` bytes at a physical address, which the device may read and write. May sleep.
    ///
    /// # Safety
    ///
    /// The memory stays until this is dropped. The device may do with it what it likes until then, or until
    /// it was unmapped.
    pub(super) unsafe fn new(
        device: &ARef<Device>,
        phys: u64,
        len: usize,
        attributes: c_ulong,
    ) -> Result<Self> {
        // SAFETY: By the contract of this function, and it is unmapped when this is dropped.
        let address = unsafe { map_phys(device, phys, len, BOTH, attributes) }?;
        // INVARIANT: It has just been mapped.
        Ok(Self {
            device: device.clone(),
            address,
            size: len,
            attributes,
            is_mapped: Atomic::new(true),
        })
    }

    /// A part of it, as long as it is mapped; none where that is not all inside.
    pub(super) fn range(&self, offset: u64, len: u64) -> Option<BusRange<'_>> {
        if offset.checked_add(len)? > self.size as u64 {
            return None;
        }
        // SAFETY: By the type invariant.
        Some(unsafe { BusRange::new(&self.device, self.address.checked_add(offset)?, len) })
    }

    /// Takes it away from the device, which was told not to use it any more. May sleep.
    pub(super) fn unmap(&self) {
        if self.is_mapped.xchg(false, Full) {
            // SAFETY: By the type invariant it is mapped like this.
            unsafe { unmap_phys(&self.device, self.address, self.size, BOTH, self.attributes) };
        }
    }
}

impl Drop for MappedRun {
    fn drop(&mut self) {
        self.unmap();
    }
}

/// I/O addresses that were taken from a device's in one piece, for memory to be linked there.
///
/// # Invariants
///
/// `state` was filled in by C for `device`, and has not been given back.
pub(super) struct IoRange {
    device: ARef<Device>,
    state: Opaque<bindings::dma_iova_state>,
    /// Where it begins, as the device names it.
    pub(super) base: u64,
    /// Memory that is linked, in whatever the owner counts. The addresses are lost if there is some in the
    /// end.
    pub(super) linked: Atomic<usize>,
}

// SAFETY: Nothing of it belongs to a thread.
unsafe impl Send for IoRange {}
// SAFETY: C reads `state` only: it writes to it where it takes bounce buffers, which the attributes
// that are used here forbid.
unsafe impl Sync for IoRange {}

impl IoRange {
    /// `size` bytes, aligned to the next power of two. `EOPNOTSUPP` if no IOMMU translates for the device,
    /// or if it has no such range. May sleep.
    pub(super) fn new(device: &ARef<Device>, size: usize) -> Result<Self> {
        let mut state = MaybeUninit::<bindings::dma_iova_state>::zeroed();
        // SAFETY: The device is valid, and so is the pointer.
        if !unsafe { own::scif_helper_iova_alloc(raw(device), state.as_mut_ptr(), size) } {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: It is made of numbers, which were zero before C wrote them.
        let state = unsafe { state.assume_init() };
        // INVARIANT: It has just been filled in.
        Ok(Self {
            device: device.clone(),
            base: state.addr,
            state: Opaque::new(state),
            linked: Atomic::new(0),
        })
    }

    /// Links memory at an offset; the device may use it after [`Self::sync`]. `EOPNOTSUPP` if the device is
    /// not coherent with the CPU's caches. Does not sleep.
    ///
    /// # Safety
    ///
    /// The place is in the range, and nothing is linked there. The memory stays until it was unlinked, and
    /// the device may do with it what `direction` says.
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

    /// Has the device see what was linked. Does not sleep.
    pub(super) fn sync(&self, offset: usize, len: usize) -> Result {
        let (device, state) = (raw(&self.device), self.state.get());
        // SAFETY: By the type invariant.
        to_result(unsafe { own::scif_helper_iova_sync(device, state, offset, len) })
    }

    /// Takes memory away from the device, which reaches it no more when this returns. Does not sleep.
    ///
    /// # Safety
    ///
    /// All of it was linked in this way.
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
                "{} pieces of an aperture are still in use: its addresses are lost\n",
                linked
            );
            return;
        }
        // SAFETY: By the type invariant; nothing is linked any more.
        unsafe { own::scif_helper_iova_free(raw(&self.device), self.state.get()) };
    }
}

/// Whether an IOMMU stands between the device and the memory, so that it reaches mapped memory only.
pub(crate) fn has_iommu(device: &Device) -> bool {
    // SAFETY: The device is valid.
    unsafe { own::scif_helper_has_iommu(raw(device)) }
}

/// What keeps a device that uses addresses as it likes from what was not mapped for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Nothing.
    None,
    /// An IOMMU, but not from what is mapped for others of its group.
    Group,
    /// An IOMMU, but the device may raise interrupts that are not its own.
    Memory,
    /// An IOMMU, from everything.
    Whole,
}

/// Returns what keeps the device to what is mapped for it. May sleep.
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

/// Whether the device names all memory by its physical address, and is coherent with the CPU's caches.
/// May sleep.
pub(crate) fn bus_is_physical(device: &Device) -> bool {
    // SAFETY: The device is valid.
    unsafe { own::scif_helper_bus_is_physical(raw(device)) }
}

/// Pages as a device reaches them: for reading, and for writing if they are writable.
///
/// The mapping is coherent: the CPU and the device may use the pages at the same time. Drop it
/// before the driver of the device is unbound from it, and when the device is done with it.
///
/// # Invariants
///
/// The extents of `addresses` are mapped for the device in `direction`: in `range` if there is one, where they are one
/// extent from its begin on, else each by itself.
pub(crate) struct DmaMapping {
    /// Behind an IOMMU.
    range: Option<IoRange>,
    addresses: ExtentTable,
    direction: DataDirection,
    device: ARef<Device>,
    /// Kept until they are unmapped.
    pages: Arc<Pages>,
}

impl DmaMapping {
    /// Maps all pages for a device, which the calling process pays for. May sleep.
    ///
    /// `EOPNOTSUPP` when the device is not coherent with the CPU's caches.
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
        // INVARIANT: Nothing is mapped.
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

    /// Maps the pages.
    fn map(&mut self) -> Result {
        let (direction, attributes) = (self.direction, self.pages.dma_attributes());
        let runs = self.pages.runs().entries();
        let count = if self.range.is_some() { 1 } else { runs.len() };
        self.addresses.entries.reserve(count, GFP_KERNEL_ACCOUNT)?;
        for run in runs {
            let (phys, len) = (run.extent.address(), usize::try_from(run.extent.len())?);
            let bus = if let Some(range) = &self.range {
                let done = self.addresses.len();
                // SAFETY: The pages are kept, and unlinked when this is dropped; what is behind those that are
                // linked is free.
                unsafe { range.link(phys, done as usize, len, direction, attributes) }?;
                range.base + done
            } else {
                // SAFETY: The pages are kept, and unmapped when this is dropped.
                unsafe { map_phys(&self.device, phys, len, direction, attributes) }?
            };
            // INVARIANT: It has just been mapped.
            let may_join = self.range.is_some();
            let added = Extent::new(bus, len as u64)
                .and_then(|extent| self.addresses.add(extent, may_join));
            if added.is_none() {
                // SAFETY: It has just been mapped, and is not in the table.
                unsafe { self.unmap(bus, len) };
                return Err(EINVAL);
            }
        }
        match &self.range {
            Some(range) => range.sync(0, self.addresses.len() as usize),
            None => Ok(()),
        }
    }

    /// Unmaps what was mapped at an address.
    ///
    /// # Safety
    ///
    /// So many bytes are mapped there as the type invariant says, and are used no more.
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

    /// Where the device finds the pages, all of them. Few extents where the memory or the IOMMU allows, though
    /// neighbours may still touch.
    pub(crate) fn addresses(&self) -> &ExtentTable {
        &self.addresses
    }

    /// A walk over them from an offset on.
    pub(crate) fn walk(&self, offset: u64) -> BusWalk<'_, ExtentWalk<'_>> {
        // SAFETY: By the type invariant they are mapped, until this is dropped.
        unsafe { BusWalk::new(&self.device, self.addresses.walk(offset)) }
    }
}

impl Drop for DmaMapping {
    fn drop(&mut self) {
        for entry in self.addresses.entries() {
            // SAFETY: By the type invariant it is mapped.
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
    fn a_device_with_few_address_bits_gets_an_error_and_no_warning() -> Result {
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
    fn extents_are_all_of_the_pages() -> Result {
        const PAGES: usize = 40;

        let device = device()?;
        let address = map_pages(PAGES, true)?;
        let pages = Arc::new(Pages::pin(address, PAGES, true, None)?, GFP_KERNEL)?;
        let mapping = DmaMapping::new(&pages, &device)?;
        // The same pages again, and for reading only: neither is an error.
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
