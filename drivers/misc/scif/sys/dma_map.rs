// SPDX-License-Identifier: GPL-2.0

//! Mapping memory for devices.
//!
//! C header: [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)

use core::ptr;

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
            Full, //
        },
        Arc, //
    },
    types::Opaque, //
};

use crate::logic::plan::Walk;

use super::{
    bindings as own,
    pages::Pages, //
};

/// The attributes of memory that a device and the CPU use at the same time, for long.
///
/// `DMA_ATTR_REQUIRE_COHERENT` says just that: no bounce buffers, no cache maintenance, and an error
/// where the platform cannot do without. It also allows the same page to be mapped more than once,
/// as it is when a process registers its memory twice or when there are two devices.
pub(super) const SHARED: c_ulong = bindings::DMA_ATTR_REQUIRE_COHERENT as c_ulong;

/// The attributes of another device's memory.
pub(super) const DEVICE_MEMORY: c_ulong = bindings::DMA_ATTR_MMIO as c_ulong;

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
/// `len` bytes are mapped for `device` at `bus`, in `direction`, while `is_mapped`.
pub(super) struct MappedRun {
    device: ARef<Device>,
    bus: u64,
    len: usize,
    direction: DataDirection,
    is_mapped: Atomic<bool>,
}

impl MappedRun {
    /// Maps `len` bytes at a physical address. May sleep.
    ///
    /// # Safety
    ///
    /// The memory stays until this is dropped. The device may do with it what `direction` says until then,
    /// or until it was unmapped.
    pub(super) unsafe fn new(
        device: &ARef<Device>,
        phys: u64,
        len: usize,
        direction: DataDirection,
    ) -> Result<Self> {
        // SAFETY: By the contract of this function, and it is unmapped when this is dropped.
        let bus = unsafe { map_phys(device, phys, len, direction, SHARED) }?;
        // INVARIANT: It has just been mapped.
        Ok(Self {
            device: device.clone(),
            bus,
            len,
            direction,
            is_mapped: Atomic::new(true),
        })
    }

    /// Where it begins, as the device names it.
    pub(super) fn address(&self) -> u64 {
        self.bus
    }

    /// Takes it away from the device, which must have been told not to use it any more. May sleep.
    pub(super) fn unmap(&self) {
        if self.is_mapped.xchg(false, Full) {
            // SAFETY: By the type invariant it is mapped like this.
            unsafe { unmap_phys(&self.device, self.bus, self.len, self.direction, SHARED) };
        }
    }
}

impl Drop for MappedRun {
    fn drop(&mut self) {
        self.unmap();
    }
}

/// Whether an IOMMU stands between the device and the memory, so that it reaches mapped memory only.
pub(crate) fn has_iommu(device: &Device) -> bool {
    // SAFETY: The device is valid.
    unsafe { own::scif_helper_has_iommu(raw(device)) }
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
pub(crate) enum DmaMapping {
    /// By a table of all pages, of which an IOMMU makes as few addresses as it can.
    Table(Pin<KBox<MappedTable>>),
    /// Each run of pages by itself: the device uses physical addresses, or others that follow from
    /// those, and all that a table would do is to cut up long runs.
    Runs(MappedRuns),
}

/// Addresses and lengths of a mapping.
enum MappedExtents<'a> {
    Table(*mut bindings::scatterlist, c_uint),
    Runs(core::slice::Iter<'a, (u64, usize)>),
}

impl DmaMapping {
    /// Maps all pages for a device, which the calling process pays for. May sleep.
    ///
    /// `EOPNOTSUPP` when the device is not coherent with the CPU's caches.
    pub(crate) fn new(pages: &Arc<Pages>, device: &ARef<Device>) -> Result<Self> {
        if pages.are_of_device() || (!has_iommu(device) && has_long_runs(pages)) {
            return Ok(Self::Runs(MappedRuns::new(pages, device)?));
        }
        let table = KBox::try_pin_init(
            MappedTable::new(pages.clone(), device.clone()),
            GFP_KERNEL_ACCOUNT,
        )?;
        Ok(Self::Table(table))
    }

    /// Where the device finds the pages: bus addresses and lengths, in order. Few where the memory
    /// or the IOMMU allows, though neighbours may still touch.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut extents = match self {
            Self::Table(table) => {
                let table = table.table.get();
                // SAFETY: By the invariant of `MappedTable` it is mapped, and it stays so while
                // `self` is borrowed.
                unsafe { MappedExtents::Table((*table).sgl, (*table).nents) }
            }
            Self::Runs(runs) => MappedExtents::Runs(runs.runs.iter()),
        };
        core::iter::from_fn(move || match &mut extents {
            MappedExtents::Table(entry, left) => {
                *left = left.checked_sub(1)?;
                // SAFETY: The first `nents` entries of a mapped table hold addresses.
                let address = unsafe { bindings::sg_dma_address(*entry) };
                // SAFETY: As above.
                let len = unsafe { bindings::sg_dma_len(*entry) };
                // SAFETY: As above; null behind the last one, which is not looked at.
                *entry = unsafe { bindings::sg_next(*entry) };
                Some((address, u64::from(len)))
            }
            MappedExtents::Runs(runs) => {
                let (address, len) = runs.next()?;
                Some((*address, *len as u64))
            }
        })
    }
}

/// How long runs are at least, on average, that are better mapped by themselves. Measured: a page by
/// itself costs twice as much as one in a table.
const LONG_RUN: usize = 16;

/// Whether the pages are in few enough runs.
fn has_long_runs(pages: &Pages) -> bool {
    pages.runs().entries().len() <= pages.len() / LONG_RUN
}

/// Which way data goes to and from these pages.
fn direction_for(pages: &Pages) -> DataDirection {
    match pages.is_writable() {
        true => DataDirection::Bidirectional,
        false => DataDirection::ToDevice,
    }
}

/// # Invariants
///
/// Each of `runs`, a bus address and a length, is mapped for `device` in `direction`, with `attributes`.
pub(crate) struct MappedRuns {
    runs: KVVec<(u64, usize)>,
    direction: DataDirection,
    attributes: c_ulong,
    device: ARef<Device>,
    /// Kept until they are unmapped.
    _pages: Arc<Pages>,
}

impl MappedRuns {
    fn new(pages: &Arc<Pages>, device: &ARef<Device>) -> Result<Self> {
        // INVARIANT: There are none.
        let mut this = Self {
            runs: KVVec::new(),
            direction: direction_for(pages),
            attributes: match pages.are_of_device() {
                true => DEVICE_MEMORY,
                false => SHARED,
            },
            device: device.clone(),
            _pages: pages.clone(),
        };
        this.runs
            .reserve(pages.runs().entries().len(), GFP_KERNEL_ACCOUNT)?;
        for run in pages.runs().entries() {
            let phys = run.extent.address();
            let len = usize::try_from(run.extent.len())?;
            // SAFETY: The pages are kept, and it is unmapped when `this` is dropped.
            let bus = unsafe { map_phys(device, phys, len, this.direction, this.attributes) }?;
            // INVARIANT: It has just been mapped. There is room.
            let _ = this.runs.push_within_capacity((bus, len));
        }
        Ok(this)
    }
}

impl Drop for MappedRuns {
    fn drop(&mut self) {
        for (bus, len) in self.runs.iter() {
            // SAFETY: By the type invariant it is mapped like this.
            unsafe { unmap_phys(&self.device, *bus, *len, self.direction, self.attributes) };
        }
    }
}

/// # Invariants
///
/// `table` lists the pages and is mapped for `device` in `direction`.
#[pin_data(PinnedDrop)]
pub(crate) struct MappedTable {
    #[pin]
    table: Opaque<bindings::sg_table>,
    direction: DataDirection,
    device: ARef<Device>,
    /// Kept until they are unmapped.
    _pages: Arc<Pages>,
}

// SAFETY: A mapping belongs to no thread.
unsafe impl Send for MappedTable {}
// SAFETY: Through `&self` the table is only read.
unsafe impl Sync for MappedTable {}

impl MappedTable {
    fn new(pages: Arc<Pages>, device: ARef<Device>) -> impl PinInit<Self, Error> {
        let direction = direction_for(&pages);
        // INVARIANT: `mapped_table` lists and maps them.
        try_pin_init!(Self {
            table <- Self::mapped_table(pages.clone(), device.clone(), direction),
            direction,
            device,
            _pages: pages,
        }? Error)
    }

    fn mapped_table(
        pages: Arc<Pages>,
        device: ARef<Device>,
        direction: DataDirection,
    ) -> impl PinInit<Opaque<bindings::sg_table>, Error> {
        Opaque::try_ffi_init(move |table: *mut bindings::sg_table| {
            // SAFETY: The device is valid.
            let segment = unsafe { own::scif_helper_dma_segment_size(raw(&device)) };
            let segments = || segments(&pages, segment);
            // SAFETY: `table` is valid for writes.
            to_result(unsafe {
                bindings::sg_alloc_table(
                    table,
                    c_uint::try_from(segments().count())?,
                    bindings::GFP_KERNEL_ACCOUNT,
                )
            })?;
            // SAFETY: The table has just been made.
            let mut entry = unsafe { (*table).sgl };
            for (address, len) in segments() {
                // SAFETY: It has an entry for each, which this has not filled in yet; the memory is kept.
                entry = unsafe { own::scif_helper_sg_fill(entry, address, len) };
            }
            // SAFETY: The table has been filled in, and the device is valid.
            let result = to_result(unsafe {
                bindings::dma_map_sgtable(raw(&device), table, direction.into(), SHARED)
            });
            if result.is_err() {
                // SAFETY: The table has been allocated above, and nobody else gets it.
                unsafe { bindings::sg_free_table(table) };
            }
            result
        })
    }
}

/// The pages as runs of at most so many bytes.
fn segments(pages: &Pages, longest: c_uint) -> impl Iterator<Item = (u64, c_uint)> + '_ {
    let mut walk = pages.runs().walk(0);
    core::iter::from_fn(move || {
        let (address, len) = walk.next(longest.into())?;
        // It is no longer than `longest`.
        Some((address, len as c_uint))
    })
}

#[pinned_drop]
impl PinnedDrop for MappedTable {
    fn drop(self: Pin<&mut Self>) {
        let table = self.table.get();
        // SAFETY: By the type invariant it is mapped like this. What is unmapped is what was
        // allocated, `orig_nents`, not what mapping made of it.
        unsafe {
            bindings::dma_unmap_sg_attrs(
                raw(&self.device),
                (*table).sgl,
                (*table).orig_nents as c_int,
                self.direction.into(),
                SHARED,
            );
            bindings::sg_free_table(table);
        }
    }
}

#[kunit_tests(scif_sys_dma_map)]
pub(super) mod tests {
    use super::*;
    use crate::sys::pin::tests::map_pages;
    use kernel::error::from_err_ptr;

    /// A device that can be mapped for, as long as the test runs.
    ///
    /// Not that of a DMA engine: a test that took a channel would take it from the module that it
    /// is loaded with.
    pub(in crate::sys) fn device() -> Result<ARef<Device>> {
        // SAFETY: This runs in the thread of a KUnit test, which `kunit_test` belongs to.
        let device = from_err_ptr(unsafe {
            own::kunit_device_register(
                (*bindings::get_current()).kunit_test,
                c"scif_test".as_char_ptr(),
            )
        })?;
        // SAFETY: The device is valid, and has masks.
        to_result(unsafe { bindings::dma_set_mask_and_coherent(device, u64::MAX) })?;
        // SAFETY: The device is valid; this takes a reference.
        Ok(unsafe { Device::get_device(device) })
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
            assert_eq!(mapping.extents().map(|(_, len)| len).sum::<u64>(), size);
        }
        if !has_iommu(&device) {
            let (address, _) = mapping.extents().next().ok_or(EINVAL)?;
            assert_eq!(Some(address), read_only.phys(0));
        }
        Ok(())
    }
}
