// SPDX-License-Identifier: GPL-2.0

//! Copies by a DMA engine, and engines that go away.
//!
//! # The end of an engine
//!
//! An engine may stand still, and its driver may be unbound from it, at any time; the reference that a
//! channel holds keeps the driver's module loaded, not the device bound. Until the engine has been
//! stopped, it may read and write all that was submitted. So there is one way to the end,
//! [`Channel::stop`]: nothing new is submitted, the channel is released, for which its driver stops
//! the hardware, and what was never reported is [abandoned](Channel::abandon). Only then may the memory
//! be used for something else.
//!
//! The same is done before a driver is unbound, while it still works: a channel listens to the bus of
//! its device. A channel must not be released later, since `dma_release_channel` then looks at
//! what the driver has freed. Memory that is still mapped for the device stays so; it is unmapped
//! later, of which a kernel with CONFIG_DMA_API_DEBUG warns.
//!
//! # No tests here
//!
//! KUnit tests run beside the module that they are loaded with, and would take its channel away from
//! it. Also, when a channel of `plx_dma` is released, that driver takes a mutex inside an RCU read-side
//! section (in `pci_irq_vector()`): a debug kernel reports it, and lockdep is off from then on. So
//! channels are better kept than released and requested again.
//!
//! C header: [`include/linux/dmaengine.h`](srctree/include/linux/dmaengine.h)

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
    bus_range::BusCopy,
    dma_map,
    notifiers::{
        Chain,
        Event,
        Watch, //
    }, //
};
use crate::logic::plan::Segment;

/// A channel of a DMA engine that copies memory, for the use of this module only.
///
/// It is stopped by [`Channel::stop`], by dropping it, and when the engine's driver is unbound from its
/// device; see the head of this file.
pub(crate) struct Channel {
    inner: Arc<Inner>,
    name: [u8; 32],
    /// The device that memory is mapped for, so that this engine can reach it.
    pub(crate) device: ARef<Device>,
    /// The largest segment that the channel's device declares.
    pub(crate) max_segment: usize,
    // Waits for a call that stops the channel.
    _watch: Pin<KBox<Watch>>,
}

/// # Invariants
///
/// It is a channel that was requested, and that is released when this is dropped.
struct Requested(NonNull<own::dma_chan>);

// SAFETY: A channel may be used and released by any thread.
unsafe impl Send for Requested {}
// SAFETY: Drivers lock their rings: submitting from several threads is allowed.
unsafe impl Sync for Requested {}

impl Drop for Requested {
    fn drop(&mut self) {
        // Some engines cannot be terminated; releasing the channel stops those.
        //
        // SAFETY: By the type invariant the channel is valid, and nobody uses it any more.
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
    /// The channel was released.
    is_stopped: Atomic<bool>,
    /// Tells those of that who wait for it.
    #[pin]
    stopped: sync::Completion,
}

impl Inner {
    /// Uses the channel, unless it has been stopped. `f` must not sleep.
    #[inline]
    fn with<R>(&self, f: impl FnOnce(*mut own::dma_chan) -> R) -> Option<R> {
        self.chan.try_access_with(|chan| f(chan.0.as_ptr()))
    }

    fn stop(&self) {
        // The notifier is registered, so the driver is not unbound before this has returned: the release of a
        // channel whose driver is gone would touch what it has freed.
        if self.chan.revoke() {
            self.is_stopped.store(true, Release);
            self.stopped.complete_all();
        } else {
            self.stopped.wait_for_completion();
        }
    }
}

/// What is asked of a copy besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyFlags {
    /// Its end is reported at once; otherwise not before that of a later copy which asks for it.
    pub(crate) interrupt: bool,
    /// Those that come after it do not begin before it has ended (`DMA_PREP_FENCE`): an engine may have
    /// several under way at the same time.
    pub(crate) fence: bool,
}

impl CopyFlags {
    /// Nothing.
    pub(crate) const NONE: Self = Self {
        interrupt: false,
        fence: false,
    };
    /// Nothing overtakes it.
    pub(crate) const FENCE: Self = Self {
        interrupt: false,
        fence: true,
    };
}

impl Channel {
    /// Takes a free channel that can copy memory; `None` when there is none. May sleep.
    ///
    /// A channel whose driver is just bound or unbound is not there. Not for callbacks of drivers.
    pub(crate) fn request() -> Option<Self> {
        // SAFETY: No preconditions.
        let chan = NonNull::new(unsafe { own::scif_helper_dma_request_memcpy() })?;
        // SAFETY: It was requested; its driver stays until the device is unlocked below.
        let device = unsafe { Device::get_device(own::scif_helper_dma_device(chan.as_ptr())) };
        // SAFETY: As above.
        let channel = unsafe { Self::of(chan, &device) };
        // SAFETY: The request has locked it for this thread. Its driver has not gone meanwhile.
        unsafe { own::scif_helper_dma_requested(dma_map::raw(&device)) };
        channel.ok()
    }

    /// # Safety
    ///
    /// `chan`, a channel of `device`, has just been requested, and its driver is kept where it is.
    unsafe fn of(chan: NonNull<own::dma_chan>, device: &ARef<Device>) -> Result<Self> {
        let mut name = [0; 32];
        // SAFETY: By the contract of this function.
        let max_segment = unsafe {
            own::scif_helper_dma_copy_name(chan.as_ptr(), name.as_mut_ptr().cast(), name.len());
            own::scif_helper_dma_max_segment(chan.as_ptr())
        };
        // INVARIANT: It has just been requested. Where this fails, it is released.
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

    /// Whether this engine can copy between these addresses.
    pub(crate) fn is_aligned(&self, dst: u64, src: u64, len: usize) -> bool {
        let aligned = self.inner.with(|chan| {
            // SAFETY: The channel is valid inside `with`.
            unsafe { own::scif_helper_dma_is_aligned(chan, dst as usize, src as usize, len) }
        });
        aligned.unwrap_or(false)
    }

    /// Stops the channel for good, and returns when the engine moves nothing any more. May sleep, for
    /// seconds where the hardware does not answer. Not from a completion.
    ///
    /// Some drivers report the end of what they stop (`ECANCELED`), before this returns; others
    /// never do: see [`Channel::abandon`].
    pub(crate) fn stop(&self) {
        self.inner.stop();
    }

    /// A number that no other channel has as long as this exists.
    fn id(&self) -> usize {
        core::ptr::from_ref(&*self.inner).addr()
    }

    /// Whether the engine moves nothing any more, and never will: [`Channel::stop`] has returned, or
    /// its driver is being unbound or is gone. Any context.
    pub(crate) fn is_stopped(&self) -> bool {
        self.inner.is_stopped.load(Acquire)
    }

    /// Ends, with `EIO`, the copies of a batch that the engine has left without saying so. Any
    /// context that completions may run in.
    ///
    /// Nothing happens while the channel is not stopped, or if they were submitted to another one.
    pub(crate) fn abandon<T: Completion + ?Sized>(&self, target: &Arc<T>) {
        let copies = target.copies();
        if !self.is_stopped() || copies.channel.load(Relaxed) != self.id() {
            return;
        }
        if copies.target.load(Relaxed) != Arc::as_ptr(target).addr() {
            // They were said to be another one's.
            return;
        }
        // The channel has been released, so completions are not called any more.
        let mut left = copies.count.load(Acquire);
        // The batch is open while its submitter adds copies, and abandons them itself.
        while left != 0 && left & OPEN == 0 {
            // Before its end counts: after it there may be nobody who would hear of it.
            target.copy_ended(Err(EIO));
            match copies.count.cmpxchg(left, left - 1, Full) {
                Ok(1) => {
                    // SAFETY: This has taken the count to zero, so the reference of the batch is
                    // ours.
                    unsafe { Arc::from_raw(Arc::as_ptr(target)) }.all_ended();
                    break;
                }
                Ok(_) => left -= 1,
                // The batch was dropped, or somebody else abandons them, too.
                Err(now) => left = now,
            }
        }
    }

    /// Submits a copy.
    ///
    /// It begins with the next [`Channel::issue_pending`]. Copies of a channel end in the order
    /// they were submitted. What the flags say is in [`CopyFlags`].
    ///
    /// Returns whether it was submitted: if not, the ring is full for now, or the channel was
    /// stopped ([`Channel::is_stopped`]). All copies of a batch go to one channel. EINVAL if the memory is
    /// mapped for another device.
    ///
    /// May be called from any context but hard interrupts and with interrupts on, and not from a
    /// completion.
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
        // All go to the channel to which the first one does.
        let is_ours = copies.channel.load(Relaxed) == self.id();
        if !is_ours && copies.channel.cmpxchg(0, self.id(), Relaxed).is_err() {
            return Ok(false);
        }
        copies.count.add(1, Relaxed);
        let submitted = self.inner.with(|chan| {
            // SAFETY: The channel is valid inside `with`. The memory is mapped as long as `'t`, so until the
            // batch has ended: see `Batch::submit`. `ended` is called once for the copy at most, with a pointer
            // that is valid until then, since the copy is counted.
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
            // The batch itself is counted, so this is not the end.
            copies.count.fetch_sub(1, Relaxed);
            return Ok(false);
        }
        Ok(true)
    }

    /// Reports the end of copies that have ended without having been reported. Not from a
    /// completion.
    pub(crate) fn reap(&self) {
        self.inner.with(|chan| {
            // SAFETY: The channel is valid inside `with`.
            unsafe { own::scif_helper_dma_reap(chan) }
        });
    }

    /// Makes the engine begin with what has been submitted.
    pub(crate) fn issue_pending(&self) {
        self.inner.with(|chan| {
            // SAFETY: The channel is valid inside `with`.
            unsafe { own::scif_helper_dma_issue_pending(chan) }
        });
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // First: the notifier waits for it, and its removal waits for the notifier.
        self.inner.stop();
    }
}

// ----- copies that belong together -----------------------------------------------------------------

/// What is told about the end of copies that belong together.
pub(crate) trait Completion: Send + Sync + 'static {
    /// Where they are counted.
    fn copies(&self) -> &CopyCount;

    /// One copy has ended, with this result. Called once for every submitted copy.
    ///
    /// `EIO`: the engine could not read or write; `ECANCELED`: it was stopped before.
    ///
    /// Called in a soft interrupt, by some drivers with the lock of their ring held: it must not
    /// sleep and must not submit to any channel of that driver.
    fn copy_ended(&self, result: Result);

    /// All copies have ended, and no more will be submitted. Called once, in the same context, or
    /// where [`Batch::submit`] returns. If `self` is the last reference, the destructor runs here as
    /// well, so hand it to a work queue where that matters: those who called `copy_ended` before
    /// hold no reference any more.
    fn all_ended(self: Arc<Self>);
}

/// The part of a count that stands for the [`Batch`] itself.
const OPEN: u32 = 1 << 31;

/// Counts the copies of a [`Batch`], and the batch itself.
///
/// # Invariants
///
/// `target` stays what it is once it is not 0. Unless the count is 0, there is a reference to it, which belongs to who
/// takes the count to zero; the batch and each copy under way are counted.
pub(crate) struct CopyCount {
    count: Atomic<u32>,
    /// Names the channel that has the copies, or 0.
    channel: Atomic<usize>,
    /// The address of what is told of the end.
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

    /// Ends `part` of what was counted: 1 for a copy, `OPEN` for the batch.
    ///
    /// # Safety
    ///
    /// The part has been counted, for a batch of a `T`, and was not ended before.
    unsafe fn part_ended<T: Completion>(this: *const Self, part: u32) {
        // SAFETY: It lies in what the target keeps, which lives as long as somebody is counted.
        let (target, before) =
            unsafe { ((*this).target::<T>(), (*this).count.fetch_sub(part, Full)) };
        if before == part {
            // SAFETY: By the type invariant the reference is ours now.
            unsafe { Arc::from_raw(target) }.all_ended();
        }
    }

    fn target<T>(&self) -> *const T {
        core::ptr::with_exposed_provenance(self.target.load(Relaxed))
    }
}

/// Copies that belong together, while they are submitted.
///
/// Nothing is allocated for it: the count lies in what is told of the end, and the engine holds a
/// pointer to that.
///
/// All memory that is copied is mapped as long as `'t`, for which the target is borrowed, whatever that is: so it borrows
/// from the target, which lives until all copies have ended.
///
/// # Invariants
///
/// `copies` counts the batch.
pub(crate) struct Batch<'t, T: Completion> {
    copies: &'t CopyCount,
    // It stays for what it was made, and is not taken for a shorter one.
    _target: PhantomData<fn(&'t T) -> &'t T>,
}

impl<T: Completion> Batch<'_, T> {
    /// Has `f` submit copies, of whose end `target` is told. EBUSY if it was given to this before, and has not been told.
    pub(crate) fn submit<R>(
        target: &Arc<T>,
        f: impl for<'t> FnOnce(&'t T, &Batch<'t, T>) -> R,
    ) -> Result<R> {
        let (copies, address) = (target.copies(), Arc::as_ptr(target).expose_provenance());
        // Not those of another one.
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

    /// The engine tells the end of a copy.
    ///
    /// # Safety
    ///
    /// `copies` is that of a batch of a `T`, with which a copy was submitted that has not ended; `result` is
    /// null or valid during this call.
    unsafe extern "C" fn ended(copies: *mut c_void, result: *const own::dmaengine_result) {
        let copies = copies.cast::<CopyCount>().cast_const();
        // SAFETY: By the contract of this function.
        let result = unsafe { result.as_ref() };
        let code = result.map_or(own::dmaengine_tx_result_DMA_TRANS_NOERROR, |r| r.result);
        // SAFETY: The copy is counted until `part_ended`, and so long both are there.
        unsafe { &*(*copies).target::<T>() }.copy_ended(match code {
            own::dmaengine_tx_result_DMA_TRANS_NOERROR => Ok(()),
            own::dmaengine_tx_result_DMA_TRANS_ABORTED => Err(ECANCELED),
            _ => Err(EIO),
        });
        // SAFETY: The copy was counted when it was submitted, and this is its end.
        unsafe { CopyCount::part_ended::<T>(copies, 1) };
    }
}

impl<T: Completion> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        // SAFETY: The batch is counted, and this is its end.
        unsafe { CopyCount::part_ended::<T>(self.copies, OPEN) };
    }
}
