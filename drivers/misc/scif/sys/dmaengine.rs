// SPDX-License-Identifier: GPL-2.0

//! Copies by a DMA engine.
//!
//! There are no KUnit tests here: they run beside the module that they are loaded with, and would
//! take its channel away from it. Also, when a channel of `plx_dma` is released, that driver takes a
//! mutex inside an RCU read-side section (in `pci_irq_vector()`): a debug kernel reports it, and
//! lockdep is off from then on. So channels are better kept than released and requested again.
//!
//! C header: [`include/linux/dmaengine.h`](srctree/include/linux/dmaengine.h)

use core::ptr::NonNull;

use kernel::{
    device::Device,
    dma::DataDirection,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
};

use super::{
    bindings as own,
    dma_map, //
};

/// What is told about the end of a copy.
pub(crate) trait Completion: Send + Sync + 'static {
    /// The copy has ended, with this result. Called once for every submitted copy.
    ///
    /// `EIO`: the engine could not read or write; `ECANCELED`: it was stopped before.
    ///
    /// Called in a soft interrupt, by some drivers with the lock of their ring held: it must not
    /// sleep and must not submit to any channel of that driver. If `self` is the last reference,
    /// the destructor runs here as well, so hand it to a work queue where that matters.
    fn segment_done(self: Arc<Self>, result: Result);
}

/// A channel of a DMA engine that copies memory, for the use of this module only.
///
/// Dropping it releases the channel, which waits for the engine to stop. Wait for all completions
/// first: a copy that is still under way then may go on until the engine is reset, and what a driver
/// does with its completion differs.
///
/// # Invariants
///
/// `chan` is a channel that was requested, and it is released in `Drop` only.
pub(crate) struct Channel {
    chan: NonNull<own::dma_chan>,
}

// SAFETY: A channel may be used and released by any thread.
unsafe impl Send for Channel {}
// SAFETY: Drivers lock their rings: submitting from several threads is allowed.
unsafe impl Sync for Channel {}

impl Channel {
    /// Takes a free channel that can copy memory; `None` when there is none. May sleep.
    pub(crate) fn request() -> Option<Self> {
        // SAFETY: No preconditions.
        let chan = unsafe { own::scif_helper_dma_request_memcpy() };
        // INVARIANT: It has just been requested.
        NonNull::new(chan).map(|chan| Self { chan })
    }

    /// The channel's name, for example `dma0chan0`.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: The channel is valid as long as `self` is, and so is its name.
        unsafe { CStr::from_char_ptr(own::scif_helper_dma_name(self.chan.as_ptr())) }
    }

    /// The device that memory is mapped for, so that this engine can reach it.
    pub(crate) fn device(&self) -> ARef<Device> {
        // SAFETY: The channel is valid and so is its device; this takes a reference.
        unsafe { Device::get_device(own::scif_helper_dma_device(self.chan.as_ptr())) }
    }

    /// The largest copy that one [`Channel::submit`] should ask for.
    pub(crate) fn max_segment(&self) -> usize {
        // SAFETY: The channel is valid.
        unsafe { own::scif_helper_dma_max_segment(self.chan.as_ptr()) }
    }

    /// Whether this engine can copy between these addresses.
    pub(crate) fn is_aligned(&self, dst: u64, src: u64, len: usize) -> bool {
        // SAFETY: The channel is valid.
        unsafe {
            own::scif_helper_dma_is_aligned(self.chan.as_ptr(), dst as usize, src as usize, len)
        }
    }

    /// Maps a range of another device's memory for this engine. May sleep.
    pub(crate) fn map_peer(&self, phys: u64, size: usize) -> Result<PeerMapping> {
        let device = self.device();
        // SAFETY: The range is a device's and is not freed; it is unmapped when the result is
        // dropped.
        let address = unsafe {
            dma_map::map_phys(
                &device,
                phys,
                size,
                DataDirection::Bidirectional,
                dma_map::DEVICE_MEMORY,
            )
        }?;
        // INVARIANT: It has just been mapped.
        Ok(PeerMapping {
            device,
            address,
            size,
        })
    }

    /// Submits a copy of `len` bytes between two bus addresses of this engine.
    ///
    /// It begins with the next [`Channel::issue_pending`]. Copies of a channel end in the order
    /// they were submitted. With `interrupt` its end is reported at once, otherwise not before that
    /// of a later copy which asks for it.
    ///
    /// `Err` gives the completion back: the ring is full for now, or the engine is gone.
    ///
    /// Whoever submits keeps both ranges mapped until the completion has been called. Not in a
    /// completion, and not with interrupts off, so with no `SpinLockIrq` held: drivers use locks
    /// that turn soft interrupts off and on again.
    pub(crate) fn submit<T: Completion>(
        &self,
        dst: u64,
        src: u64,
        len: usize,
        interrupt: bool,
        completion: Arc<T>,
    ) -> Result<(), Arc<T>> {
        let param = Arc::into_raw(completion);
        // SAFETY: The channel is valid. `param` owns a reference, that `done` takes over if this
        // returns true.
        let submitted = unsafe {
            own::scif_helper_dma_submit(
                self.chan.as_ptr(),
                dst,
                src,
                len,
                interrupt,
                Some(done::<T>),
                param.cast_mut().cast(),
            )
        };
        if submitted {
            Ok(())
        } else {
            // SAFETY: From `into_raw` above; `done` is not called when nothing was submitted.
            Err(unsafe { Arc::from_raw(param) })
        }
    }

    /// Makes the engine begin with what has been submitted.
    pub(crate) fn issue_pending(&self) {
        // SAFETY: The channel is valid.
        unsafe { own::scif_helper_dma_issue_pending(self.chan.as_ptr()) };
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Some engines cannot be terminated; releasing the channel stops those.
        //
        // SAFETY: By the type invariant the channel is valid and has not been released.
        unsafe {
            let _ = own::scif_helper_dma_terminate(self.chan.as_ptr());
            own::scif_helper_dma_synchronize(self.chan.as_ptr());
            own::dma_release_channel(self.chan.as_ptr());
        }
    }
}

/// # Safety
///
/// `param` is from `Arc::<T>::into_raw`, and owns its reference. `result` is null or valid.
unsafe extern "C" fn done<T: Completion>(param: *mut c_void, result: *const own::dmaengine_result) {
    // SAFETY: By the contract of this function.
    let completion = unsafe { Arc::from_raw(param.cast::<T>()) };
    // SAFETY: By the contract of this function.
    let result = unsafe { result.as_ref() };
    let code = result.map_or(own::dmaengine_tx_result_DMA_TRANS_NOERROR, |r| r.result);
    completion.segment_done(match code {
        own::dmaengine_tx_result_DMA_TRANS_NOERROR => Ok(()),
        own::dmaengine_tx_result_DMA_TRANS_ABORTED => Err(ECANCELED),
        _ => Err(EIO),
    });
}

/// A range of a device's memory that another device, a DMA engine, can reach.
///
/// # Invariants
///
/// `size` bytes are mapped for `device` at `address`.
pub(crate) struct PeerMapping {
    device: ARef<Device>,
    address: u64,
    size: usize,
}

impl PeerMapping {
    /// The bus address of the range's first byte.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for PeerMapping {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is mapped like this.
        unsafe {
            dma_map::unmap_phys(
                &self.device,
                self.address,
                self.size,
                DataDirection::Bidirectional,
                dma_map::DEVICE_MEMORY,
            )
        };
    }
}
