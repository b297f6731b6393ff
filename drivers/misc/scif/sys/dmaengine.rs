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

use core::ptr::{
    NonNull, //
};

use kernel::{
    bindings,
    container_of,
    device::Device,
    dma::DataDirection,
    error::to_result,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        rcu,
        Arc, //
    },
    types::Opaque, //
};

use super::{
    bindings as own, dma_map,
    wait::{
        new_wait_queue,
        WaitQueue, //
    },
};

mod batch;

pub(crate) use batch::{
    Batch,
    Completion,
    CopyCount, //
};

const RUNNING: u32 = 0;
const STOPPING: u32 = 1;
const STOPPED: u32 = 2;

/// A channel of a DMA engine that copies memory, for the use of this module only.
///
/// It is stopped by [`Channel::stop`], by dropping it, and when the engine's driver is unbound from its
/// device; see the head of this file.
pub(crate) struct Channel {
    inner: Pin<KBox<Inner>>,
}

/// # Invariants
///
/// - `chan` is a channel that was requested. Who takes `state` away from RUNNING releases it, after a
///   grace period of RCU: it may be used inside a read-side section in which `state` was RUNNING.
/// - `notifier` is registered on the bus of `device`, and is removed in `Drop` and nowhere else.
#[pin_data(PinnedDrop)]
struct Inner {
    chan: NonNull<own::dma_chan>,
    name: [u8; 32],
    device: ARef<Device>,
    max_segment: usize,
    state: Atomic<u32>,
    /// Woken when `state` is STOPPED.
    #[pin]
    stopped: WaitQueue,
    // Last: the callback may come as soon as this has been made, and uses the others.
    #[pin]
    notifier: Opaque<bindings::notifier_block>,
}

// SAFETY: A channel may be used and released by any thread, and so may a notifier.
unsafe impl Send for Inner {}
// SAFETY: Drivers lock their rings: submitting from several threads is allowed. It is released once,
// when nobody uses it.
unsafe impl Sync for Inner {}

impl Inner {
    /// # Safety
    ///
    /// `chan` has just been requested, and its driver is kept where it is. If this fails, the channel is
    /// the caller's.
    unsafe fn new(chan: NonNull<own::dma_chan>) -> impl PinInit<Self, Error> {
        let mut name = [0; 32];
        // SAFETY: By the contract of this function; so its device is valid, too.
        let (device, max_segment) = unsafe {
            own::scif_helper_dma_copy_name(chan.as_ptr(), name.as_mut_ptr().cast(), name.len());
            (
                Device::get_device(own::scif_helper_dma_device(chan.as_ptr())),
                own::scif_helper_dma_max_segment(chan.as_ptr()),
            )
        };
        // INVARIANT: `chan` has just been requested, and the notifier is registered here.
        try_pin_init!(Self {
            chan,
            name,
            device,
            max_segment,
            state: Atomic::new(RUNNING),
            stopped <- new_wait_queue!("scif::Channel::stopped"),
            notifier <- Opaque::try_ffi_init(move |slot: *mut bindings::notifier_block| {
                // SAFETY: `slot` is pinned and valid for writes, and stays so until it has been
                // unregistered; the channel is valid.
                unsafe {
                    slot.write(bindings::notifier_block {
                        notifier_call: Some(Self::notify),
                        ..pin_init::zeroed()
                    });
                    to_result(own::scif_helper_dma_watch(chan.as_ptr(), slot))
                }
            }),
        }? Error)
    }

    /// # Safety
    ///
    /// `notifier` is that of an `Inner`, which stays while this runs, and `device` is valid.
    unsafe extern "C" fn notify(
        notifier: *mut bindings::notifier_block,
        event: c_ulong,
        device: *mut c_void,
    ) -> c_int {
        let notifier: *mut Opaque<bindings::notifier_block> = notifier.cast();
        // SAFETY: By the contract of this function. All other fields were initialised before the
        // notifier was registered, and are dropped after it was removed.
        let this = unsafe { &*container_of!(notifier, Self, notifier) };
        let unbinding = bindings::bus_notifier_event_BUS_NOTIFY_UNBIND_DRIVER;
        if event == unbinding as c_ulong && device == dma_map::raw(&this.device).cast() {
            this.stop();
        }
        bindings::NOTIFY_OK as c_int
    }

    /// Uses the channel, unless it has been stopped. `f` must not sleep.
    #[inline]
    fn with<R>(&self, f: impl FnOnce(*mut own::dma_chan) -> R) -> Option<R> {
        let _reading = rcu::read_lock();
        (self.state.load(Relaxed) == RUNNING).then(|| f(self.chan.as_ptr()))
    }

    fn stop(&self) {
        if self.state.cmpxchg(RUNNING, STOPPING, Full).is_err() {
            self.stopped
                .wait_uninterruptible(|| self.is_stopped().then_some(()));
            return;
        }
        // From here on nobody begins to use it, and after this nobody does.
        rcu::synchronize_rcu();
        // Some engines cannot be terminated; releasing the channel stops those. The notifier is
        // registered, so the driver is not unbound before this has returned: the release of a
        // channel whose driver is gone would touch what it has freed.
        //
        // SAFETY: By the type invariant the channel is valid and has not been released.
        unsafe {
            let _ = own::scif_helper_dma_terminate(self.chan.as_ptr());
            own::scif_helper_dma_synchronize(self.chan.as_ptr());
            own::dma_release_channel(self.chan.as_ptr());
        }
        self.state.store(STOPPED, Release);
        self.stopped.wake_all();
    }

    fn is_stopped(&self) -> bool {
        self.state.load(Acquire) == STOPPED
    }
}

#[pinned_drop]
impl PinnedDrop for Inner {
    fn drop(self: Pin<&mut Self>) {
        // First: the notifier waits for it, and its removal waits for the notifier.
        self.stop();
        // SAFETY: By the type invariant it is registered, and nobody else removes it.
        unsafe {
            own::scif_helper_dma_unwatch(dma_map::raw(&self.device), self.notifier.get());
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
        // First the memory, so that there is nothing to undo.
        let place = KBox::<Inner>::new_uninit(GFP_KERNEL).ok()?;
        // SAFETY: No preconditions.
        let chan = NonNull::new(unsafe { own::scif_helper_dma_request_memcpy() })?;
        // SAFETY: It was requested; its driver stays until the device is unlocked below.
        let (device, inner) = unsafe {
            (
                own::scif_helper_dma_device(chan.as_ptr()),
                place.write_pin_init(Inner::new(chan)),
            )
        };
        if inner.is_err() {
            // SAFETY: It was requested, and nothing has been done with it.
            unsafe { own::dma_release_channel(chan.as_ptr()) };
        }
        // SAFETY: The request has locked it for this thread. Its driver has not gone meanwhile.
        unsafe { own::scif_helper_dma_requested(device) };
        Some(Self { inner: inner.ok()? })
    }

    /// The channel's name, for example `dma0chan0`.
    pub(crate) fn name(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.inner.name).unwrap_or(c"dma")
    }

    /// The device that memory is mapped for, so that this engine can reach it.
    pub(crate) fn device(&self) -> ARef<Device> {
        self.inner.device.clone()
    }

    /// The largest segment that the channel's device declares.
    pub(crate) fn max_segment(&self) -> usize {
        self.inner.max_segment
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
        self.inner.is_stopped()
    }

    /// Ends, with `EIO`, the copies of a batch that the engine has left without saying so. Any
    /// context that completions may run in.
    ///
    /// `EBUSY` while the channel is not stopped, `EINVAL` if they were submitted to another one.
    pub(crate) fn abandon<T: Completion>(&self, target: &Arc<T>) -> Result {
        if !self.is_stopped() {
            return Err(EBUSY);
        }
        if !target.copies().belongs_to(self.id()) {
            return Err(EINVAL);
        }
        // SAFETY: The channel has been released, so completions are not called any more.
        unsafe { Batch::abandon(target) };
        Ok(())
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
    /// they were submitted. What the flags say is in [`CopyFlags`].
    ///
    /// Returns whether it was submitted: if not, the ring is full for now, or the channel was
    /// stopped ([`Channel::is_stopped`]). All copies of a batch go to one channel.
    ///
    /// Whoever submits keeps both ranges mapped until the batch has ended. May be called from any
    /// context but hard interrupts and with interrupts on, and not from a completion.
    pub(crate) fn submit<T: Completion>(
        &self,
        dst: u64,
        src: u64,
        len: usize,
        flags: CopyFlags,
        batch: &Batch<T>,
    ) -> bool {
        let copies = batch.copies();
        if !copies.claim(self.id()) {
            return false;
        }
        copies.add_one();
        let submitted = self.inner.with(|chan| {
            // SAFETY: The channel is valid inside `with`. `ended` is called once for the copy at
            // most, with a pointer that is valid until then, since the copy is counted.
            unsafe {
                own::scif_helper_dma_submit(
                    chan,
                    dst,
                    src,
                    len,
                    flags.interrupt,
                    flags.fence,
                    Some(Batch::<T>::ended),
                    batch.target(),
                )
            }
        });
        if submitted != Some(true) {
            copies.take_one_back();
            return false;
        }
        true
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
    /// The size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The bus address of the range's first byte.
    pub(crate) fn address(&self) -> u64 {
        self.address
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
