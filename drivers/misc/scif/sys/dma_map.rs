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
        Arc, //
    },
    types::Opaque, //
};

use super::{
    bindings as own,
    pin::PinnedPages, //
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

/// A run of contiguous bus addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The bus address of the first byte.
    pub(crate) address: u64,
    /// The length in bytes, not 0.
    pub(crate) len: u64,
}

/// Pinned pages as a device reaches them.
///
/// The mapping is coherent: the CPU and the device may use the pages at the same time. Drop it
/// before the driver of the device is unbound from it, and when the device is done with it.
///
/// # Invariants
///
/// - `table` is mapped for `device` in `direction`.
/// - `extents` are its addresses, none of them empty, in the order of the pages.
#[pin_data(PinnedDrop)]
pub(crate) struct DmaMapping {
    #[pin]
    table: Opaque<bindings::sg_table>,
    direction: DataDirection,
    extents: KVVec<Extent>,
    device: ARef<Device>,
    /// Kept until they are unmapped.
    pages: Arc<PinnedPages>,
}

// SAFETY: A mapping belongs to no thread.
unsafe impl Send for DmaMapping {}
// SAFETY: Through `&self` only `extents` are read.
unsafe impl Sync for DmaMapping {}

impl DmaMapping {
    /// Maps all pages for a device. May sleep.
    ///
    /// `EACCES` when the device is to write to pages that are read-only, `EOPNOTSUPP` when it is not
    /// coherent with the CPU's caches.
    pub(crate) fn new(
        pages: Arc<PinnedPages>,
        device: &ARef<Device>,
        direction: DataDirection,
    ) -> Result<Pin<KBox<Self>>> {
        if direction != DataDirection::ToDevice {
            pages.require_writable()?;
        }
        let device = device.clone();

        // INVARIANT: The device's part of the invariant holds from `mapped_table` on; the extents
        // are filled in below, before anybody else sees them.
        let mut this = KBox::try_pin_init(
            try_pin_init!(Self {
                table <- Self::mapped_table(pages.clone(), device.clone(), direction),
                direction,
                extents: KVVec::new(),
                device,
                pages,
            }? Error),
            GFP_KERNEL,
        )?;

        let mut extents = KVVec::new();
        // SAFETY: The table is mapped, by the type invariant.
        unsafe { collect_extents(this.table.get(), &mut extents) }?;
        *this.as_mut().project().extents = extents;
        Ok(this)
    }

    fn mapped_table(
        pages: Arc<PinnedPages>,
        device: ARef<Device>,
        direction: DataDirection,
    ) -> impl PinInit<Opaque<bindings::sg_table>, Error> {
        Opaque::try_ffi_init(move |table: *mut bindings::sg_table| {
            // SAFETY: The device is valid. A segment is whole pages, so at least one.
            let segment = unsafe { own::scif_helper_dma_segment_size(raw(&device)) };
            // SAFETY: `table` is valid for writes; the pages are, and their number fits as
            // `PinnedPages` bounds it.
            to_result(unsafe {
                bindings::sg_alloc_table_from_pages_segment(
                    table,
                    pages.as_array(),
                    pages.len() as c_uint,
                    0,
                    pages.size(),
                    segment,
                    bindings::GFP_KERNEL,
                )
            })?;
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

    /// Where the device finds the pages: few extents where the memory or the IOMMU allows.
    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The pages.
    pub(crate) fn pages(&self) -> &Arc<PinnedPages> {
        &self.pages
    }
}

/// Reads the addresses of a mapped table, and joins those that are neighbours.
///
/// # Safety
///
/// `table` is mapped.
unsafe fn collect_extents(table: *mut bindings::sg_table, extents: &mut KVVec<Extent>) -> Result {
    // SAFETY: The table is valid.
    let (mut entry, mapped) = unsafe { ((*table).sgl, (*table).nents) };
    for _ in 0..mapped {
        // SAFETY: The first `nents` entries of a mapped table hold addresses.
        let (address, len) =
            unsafe { (bindings::sg_dma_address(entry), bindings::sg_dma_len(entry)) };
        let len = u64::from(len);
        match extents.last_mut() {
            Some(last) if last.address.checked_add(last.len) == Some(address) => last.len += len,
            _ if len == 0 => (),
            _ => extents.push(Extent { address, len }, GFP_KERNEL)?,
        }
        // SAFETY: As above; null behind the last one.
        entry = unsafe { bindings::sg_next(entry) };
    }
    Ok(())
}

#[pinned_drop]
impl PinnedDrop for DmaMapping {
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
