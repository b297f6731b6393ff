// SPDX-License-Identifier: GPL-2.0

//! Copies by a DMA engine.
//!
//! There are no KUnit tests here: they run beside the module that they are loaded with, and would
//! take its channel away from it. Also, when a channel of `plx_dma` is released, that driver takes a
//! mutex inside an RCU read-side section (in `pci_irq_vector()`): a debug kernel reports it, and
//! lockdep is off from then on. So channels are better kept than released and requested again.
//!
//! C header: [`include/linux/dmaengine.h`](srctree/include/linux/dmaengine.h)

use core::{
    ops::Deref,
    ptr::NonNull, //
};

use kernel::{
    device::Device,
    dma::DataDirection,
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
};

use super::{
    bindings as own,
    dma_map, //
};

/// What is told about the end of copies that belong together.
pub(crate) trait Completion: Send + Sync + Sized + 'static {
    /// How many of them have not ended.
    fn copies(&self) -> &CopyCount;

    /// One copy has ended, with this result. Called once for every submitted copy.
    ///
    /// `EIO`: the engine could not read or write; `ECANCELED`: it was stopped before.
    ///
    /// Called in a soft interrupt, by some drivers with the lock of their ring held: it must not
    /// sleep and must not submit to any channel of that driver.
    fn copy_ended(&self, result: Result);

    /// All copies have ended, and no more will be submitted. Called once, in the same context, or
    /// where the [`Batch`] is dropped. If `self` is the last reference, the destructor runs here as
    /// well, so hand it to a work queue where that matters: those who called `copy_ended` before
    /// hold no reference any more.
    fn all_ended(self: Arc<Self>);
}

/// Counts the copies of a [`Batch`], and the batch itself.
pub(crate) struct CopyCount(Atomic<u32>);

impl CopyCount {
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }
}

/// Copies that belong together: submit them with it, then drop it.
///
/// # Invariants
///
/// `target` is from `Arc::into_raw`. That reference belongs to who takes the count to zero; the
/// batch and each copy under way are counted.
pub(crate) struct Batch<T: Completion> {
    target: NonNull<T>,
}

// SAFETY: It is a reference to a `T`, which is `Send` and `Sync`.
unsafe impl<T: Completion> Send for Batch<T> {}
// SAFETY: As above.
unsafe impl<T: Completion> Sync for Batch<T> {}

impl<T: Completion> Batch<T> {
    /// Begins a batch. `target` must not have been in one before.
    pub(crate) fn new(target: Arc<T>) -> Self {
        target.copies().0.store(1, Relaxed);
        // INVARIANT: The batch has just been counted.
        let raw = Arc::into_raw(target).cast_mut();
        // SAFETY: `into_raw` returns no null pointer.
        let target = unsafe { NonNull::new_unchecked(raw) };
        Self { target }
    }

    /// Ends the part of one that was counted.
    ///
    /// # Safety
    ///
    /// `target` is that of a batch, and the caller has been counted and was not ended before.
    unsafe fn part_ended(target: *const T) {
        // SAFETY: The reference of the batch lives as long as somebody is counted.
        let left = unsafe { &*target }.copies().0.fetch_sub(1, Full);
        if left == 1 {
            // SAFETY: By the invariant the reference is ours now. Nobody else uses `target`.
            unsafe { Arc::from_raw(target) }.all_ended();
        }
    }
}

impl<T: Completion> Deref for Batch<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: The batch is counted, so the reference lives.
        unsafe { self.target.as_ref() }
    }
}

impl<T: Completion> Drop for Batch<T> {
    fn drop(&mut self) {
        // SAFETY: The batch is counted, and this is its end.
        unsafe { Self::part_ended(self.target.as_ptr()) };
    }
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
    /// Returns whether it was submitted: if not, the ring is full for now, or the engine is gone.
    ///
    /// Whoever submits keeps both ranges mapped until the batch has ended. May be called from any
    /// context but hard interrupts and with interrupts on, and not from a completion.
    pub(crate) fn submit<T: Completion>(
        &self,
        dst: u64,
        src: u64,
        len: usize,
        interrupt: bool,
        batch: &Batch<T>,
    ) -> bool {
        batch.copies().0.add(1, Relaxed);
        // SAFETY: The channel is valid. `done` is called once for the copy, with a pointer that is
        // valid until then, since the copy is counted.
        let submitted = unsafe {
            own::scif_helper_dma_submit(
                self.chan.as_ptr(),
                dst,
                src,
                len,
                interrupt,
                Some(done::<T>),
                batch.target.as_ptr().cast(),
            )
        };
        if !submitted {
            // The batch itself is counted, so this is not the end.
            batch.copies().0.fetch_sub(1, Relaxed);
        }
        submitted
    }

    /// Reports the end of copies that have ended without having been reported. Not from a
    /// completion.
    pub(crate) fn reap(&self) {
        // SAFETY: The channel is valid.
        unsafe { own::scif_helper_dma_reap(self.chan.as_ptr()) };
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
/// `param` is the target of a [`Batch`] that the copy was submitted with.
unsafe extern "C" fn done<T: Completion>(param: *mut c_void, result: *const own::dmaengine_result) {
    let target = param.cast::<T>().cast_const();
    // SAFETY: The result is valid during this call, or null.
    let result = unsafe { result.as_ref() };
    let code = result.map_or(own::dmaengine_tx_result_DMA_TRANS_NOERROR, |r| r.result);
    // SAFETY: The copy is counted until `part_ended`.
    unsafe { &*target }.copy_ended(match code {
        own::dmaengine_tx_result_DMA_TRANS_NOERROR => Ok(()),
        own::dmaengine_tx_result_DMA_TRANS_ABORTED => Err(ECANCELED),
        _ => Err(EIO),
    });
    // SAFETY: The copy was counted when it was submitted, and this is its end.
    unsafe { Batch::<T>::part_ended(target) };
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
