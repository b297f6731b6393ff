// SPDX-License-Identifier: GPL-2.0

//! I/O addresses of a device that were taken in one piece, for memory to be linked there.
//!
//! C header: [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)

use core::mem::MaybeUninit;

use kernel::{
    bindings,
    device::Device,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        }, //
    },
    types::Opaque, //
};

use super::{
    bindings as own,
    dma_map::raw, //
};

/// Addresses that were taken from the device's.
///
/// # Invariants
///
/// `state` was filled in by C for `device`, and has not been given back.
pub(super) struct IoRange {
    pub(super) device: ARef<Device>,
    pub(super) state: Opaque<bindings::dma_iova_state>,
    pub(super) base: u64,
    /// Pieces that are linked.
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
