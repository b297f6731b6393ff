// SPDX-License-Identifier: GPL-2.0

//! Copies by a DMA engine, which may stall or go away at any time.
//!
//! # Stop of an engine
//!
//! An engine may stall, and its driver may be unbound, at any time. A channel holds a reference
//! that keeps the driver's module loaded, but not the device bound. Until the engine is stopped, it
//! may read and write all memory of the submitted copies.
//!
//! So only [`Channel::stop`] ends the use of an engine:
//!
//! 1. Nothing new is submitted.
//! 2. The channel is released, for which its driver stops the hardware.
//! 3. Copies that the driver never reported are [abandoned](Channel::abandon).
//!
//! Only then may the memory be used for something else.
//!
//! A channel also watches the bus of its device, and stops before the driver is unbound, while the
//! driver still works. A channel must not be released later, because `dma_release_channel` then
//! reads memory that the driver has freed. Memory that is still mapped for the device stays mapped.
//! It is unmapped later, and a kernel with CONFIG_DMA_API_DEBUG warns of this.
//!
//! # No tests here
//!
//! KUnit tests run beside the module that they are loaded with, and would take its channel away
//! from it. Also, when a channel of `plx_dma` is released, that driver takes a mutex inside an RCU
//! read-side section (in `pci_irq_vector()`). A debug kernel reports this, and lockdep is off from
//! then on. So channels are better kept than released and requested again.
//!
//! C header: [`include/linux/dmaengine.h`](srctree/include/linux/dmaengine.h)
//!
//! This file has more than 500 lines because contracts of `unsafe` blocks stand beside them.

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    device::Device,
    prelude::*,
    revocable::Revocable,
    sync::{
        self,
        aref::ARef,
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    },
};

use super::{
    bindings as own,
    bus_range::{
        BusCopy,
        MappedView, //
    },
    dma_map,
    notifiers::{
        Chain,
        Event,
        Watch, //
    }, //
};
use crate::logic::plan::Segment;

/// A channel of a DMA engine that copies memory, for the exclusive use of this module.
///
/// [`Channel::stop`], a drop, and the unbinding of the engine's driver stop the channel.
pub(crate) struct Channel {
    inner: Arc<Inner>,
    name: [u8; 32],
    /// Device for which memory is mapped, so that this engine can access it.
    pub(crate) device: ARef<Device>,
    /// The largest segment that the channel's device declares.
    pub(crate) max_segment: usize,
    // Its removal waits for a callback that is stopping the channel.
    _watch: Pin<KBox<Watch>>,
}

/// A channel that is released on drop.
///
/// # Invariants
///
/// The channel was requested, and is released when this is dropped.
struct Requested(NonNull<own::dma_chan>);

// SAFETY: Any thread may use and release a channel.
unsafe impl Send for Requested {}
// SAFETY: Drivers lock their rings, so several threads may submit.
unsafe impl Sync for Requested {}

impl Drop for Requested {
    fn drop(&mut self) {
        // Engines that can't be terminated are stopped by the release of the channel.
        //
        // SAFETY: By the type invariant the channel is valid, and it has no user any more.
        unsafe {
            let _ = own::scif_helper_dma_terminate(self.0.as_ptr());
            own::scif_helper_dma_synchronize(self.0.as_ptr());
            own::dma_release_channel(self.0.as_ptr());
        }
    }
}

#[pin_data]
struct Inner {
    #[pin]
    chan: Revocable<Requested>,
    /// Whether the channel was released.
    is_stopped: Atomic<bool>,
    /// Completed when the channel was released, for callers that wait for the release.
    #[pin]
    stopped: sync::Completion,
}

impl Inner {
    /// Calls `f` with the channel, unless it has been stopped. `f` must not sleep.
    #[inline]
    fn with<R>(&self, f: impl FnOnce(*mut own::dma_chan) -> R) -> Option<R> {
        self.chan.try_access_with(|chan| f(chan.0.as_ptr()))
    }

    fn stop(&self) {
        // The notifier is registered, so the driver stays bound until this has returned. Releasing
        // a channel whose driver is gone would touch memory that the driver has freed.
        if self.chan.revoke() {
            self.is_stopped.store(true, Release);
            self.stopped.complete_all();
        } else {
            self.stopped.wait_for_completion();
        }
    }
}

/// Options of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyFlags {
    /// Whether the engine reports the completion at once. If not, it may report it only with that
    /// of a later copy that has this flag.
    pub(crate) interrupt: bool,
    /// Whether later copies begin only after this one has completed (`DMA_PREP_FENCE`). Without it,
    /// an engine may have several in flight.
    pub(crate) fence: bool,
}

impl CopyFlags {
    /// No options.
    pub(crate) const NONE: Self = Self {
        interrupt: false,
        fence: false,
    };
    /// No later copy overtakes this one.
    pub(crate) const FENCE: Self = Self {
        interrupt: false,
        fence: true,
    };
}

impl Channel {
    /// Takes a free channel that can copy memory; `None` if there is none.
    ///
    /// A channel whose driver is being bound or unbound is not found. Do not call this from
    /// callbacks of drivers.
    /// Context: may sleep.
    pub(crate) fn request() -> Option<Self> {
        // SAFETY: No preconditions.
        let chan = NonNull::new(unsafe { own::scif_helper_dma_request_memcpy() })?;
        // SAFETY: The channel was requested, and its driver stays until the device is unlocked
        // below.
        let device = unsafe { Device::get_device(own::scif_helper_dma_device(chan.as_ptr())) };
        // SAFETY: As above.
        let channel = unsafe { Self::of(chan, &device) };
        // SAFETY: The request has locked the device for this thread, and its driver is still bound.
        unsafe { own::scif_helper_dma_requested(dma_map::raw(&device)) };
        channel.ok()
    }

    /// # Safety
    ///
    /// `chan`, a channel of `device`, has just been requested, and its driver stays bound
    /// meanwhile.
    unsafe fn of(chan: NonNull<own::dma_chan>, device: &ARef<Device>) -> Result<Self> {
        let mut name = [0; 32];
        // SAFETY: By the contract of this function.
        let max_segment = unsafe {
            own::scif_helper_dma_copy_name(chan.as_ptr(), name.as_mut_ptr().cast(), name.len());
            own::scif_helper_dma_max_segment(chan.as_ptr())
        };
        // INVARIANT: The channel has just been requested, and is released if this function fails.
        let chan = Requested(chan);
        let inner = Arc::pin_init(
            try_pin_init!(Inner {
                chan <- Revocable::new::<Error>(Ok(chan)),
                is_stopped: Atomic::new(false),
                stopped <- sync::Completion::new(),
            }? Error),
            GFP_KERNEL,
        )?;
        let told = {
            let inner = inner.clone();
            move |_: Event<'_>| inner.stop()
        };
        let watch = Watch::new(Chain::Driver(device.clone()), KBox::new(told, GFP_KERNEL)?)?;
        Ok(Self {
            inner,
            name,
            device: device.clone(),
            max_segment,
            _watch: watch,
        })
    }

    /// The channel's name, for example `dma0chan0`.
    pub(crate) fn name(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.name).unwrap_or(c"dma")
    }

    /// Returns whether this engine can copy between these addresses.
    pub(crate) fn is_aligned(&self, dst: u64, src: u64, len: usize) -> bool {
        let aligned = self.inner.with(|chan| {
            // SAFETY: The channel is valid inside `with`.
            unsafe { own::scif_helper_dma_is_aligned(chan, dst as usize, src as usize, len) }
        });
        aligned.unwrap_or(false)
    }

    /// Stops the channel for good, and returns once the engine moves nothing any more.
    ///
    /// Some drivers report the copies that they stop (`ECANCELED`) before this returns. Other
    /// drivers never do: [`Channel::abandon`] completes their copies.
    /// Context: may sleep, for seconds if the hardware does not answer. Not from a completion.
    pub(crate) fn stop(&self) {
        self.inner.stop();
    }

    /// Returns a number that no other channel has while this one exists.
    pub(super) fn id(&self) -> usize {
        core::ptr::from_ref(&*self.inner).addr()
    }

    /// Returns whether the engine moves nothing any more, and never will. This is so once
    /// [`Channel::stop`] has returned, and when the driver is being unbound or is gone.
    /// Context: any.
    pub(crate) fn is_stopped(&self) -> bool {
        self.inner.is_stopped.load(Acquire)
    }

    /// Unmaps the view of a peer's memory that was made for this channel, if the channel is stopped.
    /// Context: may sleep.
    pub(crate) fn unmap_if_stopped(&self, view: &MappedView) {
        if self.is_stopped() && view.channel == self.id() {
            view.unmap_unused();
        }
    }

    /// Completes, with `EIO`, the copies of a batch that the engine has dropped without a report.
    ///
    /// Does nothing if the channel is not stopped, or if the copies were submitted to another
    /// channel.
    /// Context: any that completions may run in.
    pub(crate) fn abandon<T: Completion + ?Sized>(&self, target: &Arc<T>) {
        let copies = target.copies();
        if !self.is_stopped() || copies.channel.load(Relaxed) != self.id() {
            return;
        }
        if copies.target.load(Relaxed) != Arc::as_ptr(target).addr() {
            // The count belongs to the batch of another target.
            return;
        }
        // The channel has been released, so the driver calls no completions any more.
        let mut left = copies.count.load(Acquire);
        // An open batch is left alone: its submitter still adds copies, and abandons them itself.
        while left != 0 && left & OPEN == 0 {
            // Tells the target before the copy leaves the count: afterwards the target may be gone.
            target.copy_ended(Err(EIO));
            match copies.count.cmpxchg(left, left - 1, Full) {
                Ok(1) => {
                    // SAFETY: This has taken the count to zero, so it owns the reference of the
                    // batch.
                    unsafe { Arc::from_raw(Arc::as_ptr(target)) }.all_ended();
                    break;
                }
                Ok(_) => left -= 1,
                // The batch was closed, or another thread abandons its copies, too.
                Err(now) => left = now,
            }
        }
    }

    /// Submits a copy, which begins with the next [`Channel::issue_pending`].
    ///
    /// Copies of a channel complete in the order in which they were submitted. All copies of a
    /// batch go to one channel.
    ///
    /// Returns false if the copy was not submitted: the ring is full for now, the channel was
    /// stopped ([`Channel::is_stopped`]), or the batch went to another channel.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the memory is mapped for another device.
    ///
    /// Context: any with interrupts on, but no hard interrupt and no completion.
    pub(crate) fn submit<'t, T: Completion>(
        &self,
        copy: BusCopy<'t>,
        flags: CopyFlags,
        batch: &Batch<'t, T>,
    ) -> Result<bool> {
        let Segment {
            destination,
            source,
            len,
        } = copy.for_device(&self.device).ok_or(EINVAL)?;
        let copies = batch.copies;
        // All copies of a batch go to the channel of the first one.
        let is_ours = copies.channel.load(Relaxed) == self.id();
        if !is_ours && copies.channel.cmpxchg(0, self.id(), Relaxed).is_err() {
            return Ok(false);
        }
        copies.count.add(1, Relaxed);
        let submitted = self.inner.with(|chan| {
            // SAFETY: The channel is valid inside `with`. The memory is mapped as long as `'t`, and
            // so until all copies of the batch have completed (`Batch::submit`). `ended` is called
            // at most once for the copy, with a pointer that is valid until then, since the copy is
            // counted.
            unsafe {
                own::scif_helper_dma_submit(
                    chan,
                    destination,
                    source,
                    len as usize,
                    flags.interrupt,
                    flags.fence,
                    Some(Batch::<T>::ended),
                    core::ptr::from_ref(copies).cast_mut().cast(),
                )
            }
        });
        if submitted != Some(true) {
            // The batch itself is still counted, so the count does not become 0 here.
            copies.count.fetch_sub(1, Relaxed);
            return Ok(false);
        }
        Ok(true)
    }

    /// Reports copies that have completed without a report.
    /// Context: not from a completion.
    pub(crate) fn reap(&self) {
        self.inner.with(|chan| {
            // SAFETY: The channel is valid inside `with`.
            unsafe { own::scif_helper_dma_reap(chan) }
        });
    }

    /// Makes the engine begin with the submitted copies.
    pub(crate) fn issue_pending(&self) {
        self.inner.with(|chan| {
            // SAFETY: The channel is valid inside `with`.
            unsafe { own::scif_helper_dma_issue_pending(chan) }
        });
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Stops first: a running notifier waits for this, and the removal of the watch waits for
        // the notifier.
        self.inner.stop();
    }
}

// ----- copies that belong together -----------------------------------------------------------------

/// A target that is told when copies of a batch complete.
pub(crate) trait Completion: Send + Sync + 'static {
    /// Returns the count of the copies in flight.
    fn copies(&self) -> &CopyCount;

    /// Takes note that one copy has completed, with this result. Called once for each submitted
    /// copy.
    ///
    /// `EIO`: the engine could not read or write. `ECANCELED`: the engine was stopped before.
    /// Context: soft interrupt, with some drivers under the lock of their ring. It must not sleep,
    /// and must not submit to any channel of that driver.
    fn copy_ended(&self, result: Result);

    /// Takes note that all copies have completed, and that no more will be submitted. Called once.
    ///
    /// If `self` is the last reference, its destructor runs here, too. Where that matters, hand it
    /// to a work queue. Earlier callers of `copy_ended` hold no reference any more.
    /// Context: as [`Self::copy_ended`], or where [`Batch::submit`] returns.
    fn all_ended(self: Arc<Self>);
}

/// The bit of a count that stands for the [`Batch`] itself.
const OPEN: u32 = 1 << 31;

/// A count of the copies of a [`Batch`] in flight, and of the batch itself.
///
/// # Invariants
///
/// `target` never changes once it is not 0. The batch and each copy in flight are counted. Unless
/// the count is 0, there is a reference to the target. The thread that takes the count to zero owns
/// that reference.
pub(crate) struct CopyCount {
    count: Atomic<u32>,
    /// Id of the channel to which the copies go, or 0.
    channel: Atomic<usize>,
    /// Address of the target that is told of completions.
    target: Atomic<usize>,
}

impl CopyCount {
    pub(crate) const fn new() -> Self {
        Self {
            count: Atomic::new(0),
            channel: Atomic::new(0),
            target: Atomic::new(0),
        }
    }

    /// Removes `part` from the count: 1 for a copy, `OPEN` for the batch.
    ///
    /// # Safety
    ///
    /// The part was counted for a batch of a `T`, and has not been removed before.
    unsafe fn part_ended<T: Completion>(this: *const Self, part: u32) {
        // SAFETY: The count lies in memory that the target keeps, and the target lives while any
        // part is counted.
        let (target, before) =
            unsafe { ((*this).target::<T>(), (*this).count.fetch_sub(part, Full)) };
        if before == part {
            // SAFETY: By the type invariant this thread owns the reference now.
            unsafe { Arc::from_raw(target) }.all_ended();
        }
    }

    fn target<T>(&self) -> *const T {
        core::ptr::with_exposed_provenance(self.target.load(Relaxed))
    }
}

/// An open batch of copies that share a target.
///
/// It needs no allocation: the count is part of the target, and the engine holds a pointer to the
/// count.
///
/// All copied memory is mapped as long as `'t`. Since `'t` may be any lifetime for which the target
/// is borrowed, the memory borrows from the target. The target lives until all copies have
/// completed.
///
/// # Invariants
///
/// `copies` counts the batch.
pub(crate) struct Batch<'t, T: Completion> {
    copies: &'t CopyCount,
    // Makes `'t` invariant, so that a batch never passes for one with a shorter lifetime.
    _target: PhantomData<fn(&'t T) -> &'t T>,
}

impl<T: Completion> Batch<'_, T> {
    /// Makes `f` submit copies, and tells `target` when they complete.
    ///
    /// # Errors
    ///
    /// - `EBUSY`: `target` still has copies in flight, or its count belongs to another target.
    pub(crate) fn submit<R>(
        target: &Arc<T>,
        f: impl for<'t> FnOnce(&'t T, &Batch<'t, T>) -> R,
    ) -> Result<R> {
        let (copies, address) = (target.copies(), Arc::as_ptr(target).expose_provenance());
        // Claims the count, unless it belongs to another target.
        let known = copies
            .target
            .cmpxchg(0, address, Relaxed)
            .unwrap_or_else(|known| known);
        if known != 0 && known != address || copies.count.cmpxchg(0, OPEN, Full).is_err() {
            return Err(EBUSY);
        }
        core::mem::forget(target.clone());
        // INVARIANT: The batch has just been counted, with a reference.
        let batch = Batch {
            copies,
            _target: PhantomData,
        };
        Ok(f(&**target, &batch))
    }

    /// Handles the completion of a copy, for the engine's driver.
    ///
    /// # Safety
    ///
    /// `copies` is the count of a batch of a `T`. A copy was submitted with that batch and has not
    /// completed. `result` is null or valid during this call.
    unsafe extern "C" fn ended(copies: *mut c_void, result: *const own::dmaengine_result) {
        let copies = copies.cast::<CopyCount>().cast_const();
        // SAFETY: By the contract of this function.
        let result = unsafe { result.as_ref() };
        let code = result.map_or(own::dmaengine_tx_result_DMA_TRANS_NOERROR, |r| r.result);
        // SAFETY: The copy is counted until `part_ended`, and the count and the target exist as
        // long.
        unsafe { &*(*copies).target::<T>() }.copy_ended(match code {
            own::dmaengine_tx_result_DMA_TRANS_NOERROR => Ok(()),
            own::dmaengine_tx_result_DMA_TRANS_ABORTED => Err(ECANCELED),
            _ => Err(EIO),
        });
        // SAFETY: The copy was counted when it was submitted, and completes here.
        unsafe { CopyCount::part_ended::<T>(copies, 1) };
    }
}

impl<T: Completion> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        // SAFETY: The batch is counted, and is closed here.
        unsafe { CopyCount::part_ended::<T>(self.copies, OPEN) };
    }
}
