// SPDX-License-Identifier: GPL-2.0

//! A network device, its NAPI contexts, and counts.
//!
//! C header: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use super::{
    bindings as own,
    calls::{
        Owner,
        OwnerPointer, //
    },
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    bindings,
    device::Device,
    error::to_result,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
};
use scif_main::sister::{
    Landed,
    PeerInfo, //
};

/// Calls a function with bottom halves disabled.
pub(crate) fn bottom_halves_disabled<R>(call: impl FnOnce() -> R) -> R {
    // SAFETY: The two calls are a pair.
    unsafe { own::scif_net_helper_bh(true) };
    let result = call();
    // SAFETY: As above.
    unsafe { own::scif_net_helper_bh(false) };
    result
}

/// A network device. The drop frees it.
///
/// # Invariants
///
/// `raw` is a device that was allocated, whose owner is `owner`, and `is_registered` tells whether it is
/// registered.
pub(crate) struct NetDev {
    raw: NonNull<bindings::net_device>,
    is_registered: Atomic<bool>,
    /// C has its address.
    _owner: KBox<OwnerPointer>,
}

// SAFETY: A device belongs to no thread.
unsafe impl Send for NetDev {}
// SAFETY: All functions of C may be called by several threads at once.
unsafe impl Sync for NetDev {}

impl NetDev {
    /// Allocates the device of this owner, which drops it before itself.
    /// Context: may sleep.
    pub(crate) fn new<T>(owner: &Arc<T>, own_node: u16, peer: &PeerInfo) -> Result<Self>
    where
        T: Owner + 'static,
    {
        // INVARIANT: The owner owns the device, which has the pointer.
        let owner = KBox::new(OwnerPointer(Arc::<T>::as_ptr(owner)), GFP_KERNEL)?;
        let parent = peer.device.as_ref().map_or(ptr::null_mut(), |device| {
            // `Device` is a transparent wrapper of an `Opaque`, which may be written to through `&`.
            ptr::from_ref::<Device>(device).cast_mut().cast()
        });
        let link = own::scif_net_link {
            parent,
            queues: peer.queues,
            megabits: peer.megabits.unwrap_or(0),
            own_node,
            node: peer.node,
        };
        let pointer: *const OwnerPointer = &*owner;
        // SAFETY: The link and its device are valid; a registered device holds its parent. The device
        // has the owner's pointer, so that it exists as long as C calls with it.
        let raw = unsafe { own::scif_net_helper_alloc(pointer.cast_mut().cast(), &link) };
        // INVARIANT: The device has just been allocated.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            is_registered: Atomic::new(false),
            _owner: owner,
        })
    }

    /// Registers the device. From now on C calls its owner.
    /// Context: may sleep.
    pub(crate) fn register(&self) -> Result {
        // SAFETY: The device is valid, and was not registered.
        to_result(unsafe { own::scif_net_helper_register(self.raw.as_ptr()) })?;
        self.is_registered.store(true, Relaxed);
        Ok(())
    }

    /// Unregisters the device, if it is registered. C calls its owner no more.
    /// Context: may sleep.
    pub(crate) fn unregister(&self) {
        if self.is_registered.xchg(false, Full) {
            // SAFETY: The device is registered.
            unsafe { own::scif_net_helper_unregister(self.raw.as_ptr()) };
        }
    }

    /// Sets the number of queues and of their buffers, and turns the carrier on.
    /// Context: may sleep.
    pub(crate) fn up(&self, queues: usize, slots: u32) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe { own::scif_net_helper_up(self.raw.as_ptr(), queues as u32, slots) })
    }

    /// Turns the carrier off, and waits for senders.
    /// Context: may sleep.
    pub(crate) fn down(&self) {
        // SAFETY: The device is valid.
        unsafe { own::scif_net_helper_down(self.raw.as_ptr()) };
    }

    /// Takes what the peer asks for, as flags of `helpers.h`.
    /// Context: any.
    pub(crate) fn asked(&self, wishes: u32) {
        // SAFETY: The device is valid.
        unsafe { own::scif_net_helper_asked(self.raw.as_ptr(), wishes) };
    }

    /// Returns whether the administrator has set the device up.
    pub(crate) fn is_running(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { own::scif_net_helper_is_running(self.raw.as_ptr()) }
    }

    /// Returns whether [`Self::stop`] was called for a queue of the device, and [`Self::wake`] was
    /// not.
    pub(crate) fn is_stopped(&self, queue: u32) -> bool {
        // SAFETY: The device is valid, and has the queue.
        unsafe { own::scif_net_helper_is_stopped(self.raw.as_ptr(), queue) }
    }

    /// Keeps the stack from sending by a queue.
    pub(crate) fn stop(&self, queue: u32) {
        // SAFETY: As above.
        unsafe { own::scif_net_helper_stop(self.raw.as_ptr(), queue) };
    }

    /// Notes that an engine copies a frame of a queue. If too many bytes wait for the engine, the
    /// stack sends no more by the queue.
    pub(crate) fn began(&self, queue: u32, bytes: u32) {
        // SAFETY: As above.
        unsafe { own::scif_net_helper_began(self.raw.as_ptr(), queue, bytes) };
    }

    /// Notes that an engine has copied frames of a queue.
    pub(crate) fn landed(&self, queue: u32, landed: Landed) {
        let Landed { frames, bytes } = landed;
        if frames != 0 {
            // SAFETY: As above.
            unsafe { own::scif_net_helper_landed(self.raw.as_ptr(), queue, frames, bytes) };
        }
    }

    /// Notes that no frame of the device is with an engine, and none is being sent.
    pub(crate) fn none_aloft(&self) {
        // SAFETY: The device is valid.
        unsafe { own::scif_net_helper_none_aloft(self.raw.as_ptr()) };
    }

    /// Lets the stack send by a queue again.
    pub(crate) fn wake(&self, queue: u32) {
        // SAFETY: As above.
        unsafe { own::scif_net_helper_wake(self.raw.as_ptr(), queue) };
    }
}

impl Drop for NetDev {
    fn drop(&mut self) {
        self.unregister();
        // SAFETY: By the type invariant. Its NAPI contexts were removed before.
        unsafe { own::scif_net_helper_free(self.raw.as_ptr()) };
    }
}

/// A NAPI context. The drop removes it.
///
/// # Invariants
///
/// The pointer is a context that was made.
pub(crate) struct Napi {
    raw: NonNull<own::scif_net_napi>,
    is_enabled: Atomic<bool>,
}

// SAFETY: A context belongs to no thread.
unsafe impl Send for Napi {}
// SAFETY: All functions of C may be called by several threads at once.
unsafe impl Sync for Napi {}

impl Napi {
    /// Creates the context that polls a queue, for the owner of the device. It is disabled, and is to be
    /// dropped before the device.
    /// Context: may sleep.
    pub(crate) fn new(device: &NetDev, queue: u32) -> Result<Self> {
        // SAFETY: The device is valid.
        let raw = unsafe { own::scif_net_helper_napi_new(device.raw.as_ptr(), queue) };
        // INVARIANT: The context has just been made.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            is_enabled: Atomic::new(false),
        })
    }

    /// Returns the pointer for C.
    pub(super) fn raw(&self) -> *mut own::scif_net_napi {
        self.raw.as_ptr()
    }

    /// Enables the context.
    /// Context: may sleep.
    pub(crate) fn enable(&self) {
        if !self.is_enabled.xchg(true, Full) {
            // SAFETY: The context is valid and disabled.
            unsafe { own::scif_net_helper_napi_enable(self.raw()) };
        }
    }

    /// Disables the context, and waits for a poll.
    /// Context: may sleep.
    pub(crate) fn disable(&self) {
        if self.is_enabled.xchg(false, Full) {
            // SAFETY: The context is valid and enabled.
            unsafe { own::scif_net_helper_napi_disable(self.raw()) };
        }
    }

    /// Schedules a poll, if the context is enabled.
    /// Context: any.
    pub(crate) fn schedule(&self) {
        // SAFETY: The context is valid; one that is disabled is not scheduled.
        unsafe { own::scif_net_helper_napi_schedule(self.raw()) };
    }

    /// Counts a doorbell of the peer, and schedules a poll as [`Self::schedule`] does.
    /// Context: hard interrupt.
    pub(crate) fn rung(&self) {
        // SAFETY: As above.
        unsafe { own::scif_net_helper_napi_rung(self.raw()) };
    }

    /// Ends the present poll. Returns whether the context sleeps now, until it is scheduled.
    pub(crate) fn complete(&self, done: usize) -> bool {
        // SAFETY: The context is valid, and is being polled.
        unsafe { own::scif_net_helper_napi_complete(self.raw(), done as i32) }
    }
}

impl Drop for Napi {
    fn drop(&mut self) {
        self.disable();
        // SAFETY: By the type invariant; the context is disabled.
        unsafe { own::scif_net_helper_napi_free(self.raw()) };
    }
}

/// Counts of a port in one direction, with one writer at a time.
pub(crate) struct Counts {
    packets: Atomic<u64>,
    bytes: Atomic<u64>,
    dropped: Atomic<u64>,
    errors: Atomic<u64>,
}

fn add(to: &Atomic<u64>, count: u64) {
    to.store(to.load(Relaxed).wrapping_add(count), Relaxed);
}

impl Counts {
    /// Counts of 0, for C.
    pub(super) const NONE: own::scif_net_counts = own::scif_net_counts {
        packets: 0,
        bytes: 0,
        dropped: 0,
        errors: 0,
    };

    /// Creates counts of 0.
    pub(crate) fn new() -> Self {
        Self {
            packets: Atomic::new(0),
            bytes: Atomic::new(0),
            dropped: Atomic::new(0),
            errors: Atomic::new(0),
        }
    }

    /// Counts the packets of a frame, and its bytes.
    pub(crate) fn add(&self, packets: u32, bytes: u32) {
        add(&self.packets, packets.into());
        add(&self.bytes, bytes.into());
    }

    /// Counts a frame that was dropped for lack of something.
    pub(crate) fn drop_one(&self) {
        add(&self.dropped, 1);
    }

    /// Counts a frame that was wrong.
    pub(crate) fn fail_one(&self) {
        add(&self.errors, 1);
    }

    /// Returns the counts.
    pub(super) fn get(&self) -> own::scif_net_counts {
        own::scif_net_counts {
            packets: self.packets.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            errors: self.errors.load(Relaxed),
        }
    }
}
