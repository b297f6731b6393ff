// SPDX-License-Identifier: GPL-2.0

//! Tells the module that the machine goes to sleep, wakes up, and comes to its end.
//!
//! The kernel tells it while processes run and drivers work: before the first device is suspended, and
//! after the last one was resumed.
//!
//! C headers: [`include/linux/suspend.h`](srctree/include/linux/suspend.h),
//! [`include/linux/reboot.h`](srctree/include/linux/reboot.h)

use core::marker::PhantomData;
use kernel::{
    bindings,
    container_of,
    error::to_result,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

use super::bindings as own;

/// A listener. Its functions may sleep; the kernel calls one at a time, but for [`Power::ends`].
pub(crate) trait Power: Send + Sync + 'static {
    /// The machine is about to sleep, or to be replaced by one that slept on a disk.
    fn sleeps(&self);

    /// It has woken up, or did not sleep after all. `was_off` says that devices may have been without
    /// power, and have the state after a reset.
    fn woke(&self, was_off: bool);

    /// The machine reboots or stops, or another kernel is started.
    fn ends(&self);
}

/// A chain of notifiers that the kernel has.
///
/// # Safety
///
/// `add` and `remove` are of the same chain. None of a notifier's calls runs any more when `remove` returns,
/// and none comes later.
pub(crate) unsafe trait Chain {
    /// Adds a notifier; 0, or an error as a negative number. May sleep.
    ///
    /// # Safety
    ///
    /// `notifier` is pinned and initialised, and stays so until it was removed.
    unsafe fn add(notifier: *mut bindings::notifier_block) -> c_int;

    /// Removes a notifier. May sleep.
    ///
    /// # Safety
    ///
    /// `notifier` was added.
    unsafe fn remove(notifier: *mut bindings::notifier_block);

    /// Says what an event of this chain means.
    fn tell(power: &impl Power, event: c_ulong);
}

/// The chain that is told of sleep.
pub(crate) enum Sleep {}

// SAFETY: Both are of the chain of power management, which holds a semaphore around each call.
unsafe impl Chain for Sleep {
    unsafe fn add(notifier: *mut bindings::notifier_block) -> c_int {
        // SAFETY: By the contract of this function.
        unsafe { own::scif_helper_register_pm_notifier(notifier) }
    }

    unsafe fn remove(notifier: *mut bindings::notifier_block) {
        // SAFETY: By the contract of this function.
        unsafe { own::scif_helper_unregister_pm_notifier(notifier) };
    }

    fn tell(power: &impl Power, event: c_ulong) {
        match u32::try_from(event).unwrap_or(0) {
            own::PM_SUSPEND_PREPARE | own::PM_HIBERNATION_PREPARE | own::PM_RESTORE_PREPARE => {
                power.sleeps();
            }
            own::PM_POST_SUSPEND => {
                // SAFETY: No preconditions.
                let was_off = unsafe { own::scif_helper_resumed_via_firmware() };
                power.woke(was_off);
            }
            own::PM_POST_HIBERNATION => power.woke(true),
            own::PM_POST_RESTORE => power.woke(false),
            _ => {}
        }
    }
}

/// The chain that is told of a reboot, of a stop, and of another kernel.
pub(crate) enum End {}

// SAFETY: Both are of the reboot chain, which holds a semaphore around each call.
unsafe impl Chain for End {
    unsafe fn add(notifier: *mut bindings::notifier_block) -> c_int {
        // SAFETY: By the contract of this function.
        unsafe { own::register_reboot_notifier(notifier) }
    }

    unsafe fn remove(notifier: *mut bindings::notifier_block) {
        // SAFETY: By the contract of this function.
        unsafe { own::unregister_reboot_notifier(notifier) };
    }

    fn tell(power: &impl Power, _event: c_ulong) {
        power.ends();
    }
}

/// Has a [`Power`] told of the events of a chain, until it is dropped.
///
/// # Invariants
///
/// `notifier` is in the chain `C`.
#[pin_data(PinnedDrop)]
pub(crate) struct Watch<C: Chain, T: Power> {
    power: Arc<T>,
    chain: PhantomData<C>,
    // Last: the callback may come as soon as this has been made, and uses the others.
    #[pin]
    notifier: Opaque<bindings::notifier_block>,
}

// SAFETY: A notifier may be removed by another thread than the one that added it.
unsafe impl<C: Chain, T: Power> Send for Watch<C, T> {}
// SAFETY: Nothing is done through `&self` but telling `power`, which is `Sync`.
unsafe impl<C: Chain, T: Power> Sync for Watch<C, T> {}

impl<C: Chain, T: Power> Watch<C, T> {
    /// Begins to tell. May sleep. ENOMEM.
    pub(crate) fn new(power: Arc<T>) -> Result<Pin<KBox<Self>>> {
        KBox::try_pin_init(
            try_pin_init!(Self {
                power,
                chain: PhantomData,
                notifier <- Opaque::try_ffi_init(move |slot: *mut bindings::notifier_block| {
                    // INVARIANT: It is in the chain when this returns 0.
                    //
                    // SAFETY: `slot` is pinned and valid for writes, and stays so until `drop` has
                    // removed it.
                    unsafe {
                        slot.write(bindings::notifier_block {
                            notifier_call: Some(Self::notify),
                            ..pin_init::zeroed()
                        });
                        to_result(C::add(slot))
                    }
                }),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// # Safety
    ///
    /// `notifier` is that of a `Watch<C, T>`, which stays while this runs.
    unsafe extern "C" fn notify(
        notifier: *mut bindings::notifier_block,
        event: c_ulong,
        _unused: *mut c_void,
    ) -> c_int {
        let notifier: *mut Opaque<bindings::notifier_block> = notifier.cast();
        // SAFETY: By the contract of this function. `power` was initialised before the notifier was
        // added, and is dropped after it was removed.
        let this = unsafe { &*container_of!(notifier, Self, notifier) };
        C::tell(&*this.power, event);
        bindings::NOTIFY_OK as c_int
    }
}

#[pinned_drop]
impl<C: Chain, T: Power> PinnedDrop for Watch<C, T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant it was added.
        unsafe { C::remove(self.notifier.get()) };
    }
}
