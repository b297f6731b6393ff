// SPDX-License-Identifier: GPL-2.0

//! Hearing that the machine goes to sleep, wakes up, and comes to its end.
//!
//! What is told here is told while processes run and drivers work: before the first device is suspended,
//! and after the last one was resumed.
//!
//! C headers: [`include/linux/suspend.h`](srctree/include/linux/suspend.h),
//! [`include/linux/reboot.h`](srctree/include/linux/reboot.h)

use kernel::{
    bindings,
    container_of,
    error::to_result,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

use super::bindings as own;

/// Who hears of it. All may sleep; they are not called at the same time but for [`Power::ends`].
pub(crate) trait Power: Send + Sync + 'static {
    /// The machine is about to sleep, or to be replaced by one that slept on a disk.
    fn sleeps(&self);

    /// It has woken up, or did not sleep after all. `was_off` says that devices may have been without
    /// power, and have the state after a reset.
    fn woke(&self, was_off: bool);

    /// The machine reboots or stops, or another kernel is started.
    fn ends(&self);
}

/// Has somebody told of sleep, until it is dropped.
///
/// # Invariants
///
/// `notifier` is registered.
#[pin_data(PinnedDrop)]
pub(crate) struct SleepWatch<T: Power> {
    power: Arc<T>,
    // Last: the callback may come as soon as this has been made, and uses the other.
    #[pin]
    notifier: Opaque<bindings::notifier_block>,
}

// SAFETY: A notifier may be unregistered by another thread than the one that registered it.
unsafe impl<T: Power> Send for SleepWatch<T> {}
// SAFETY: Nothing is done through `&self` but telling `power`, which is `Sync`.
unsafe impl<T: Power> Sync for SleepWatch<T> {}

impl<T: Power> SleepWatch<T> {
    /// May sleep.
    pub(crate) fn new(power: Arc<T>) -> Result<Pin<KBox<Self>>> {
        KBox::try_pin_init(
            try_pin_init!(Self {
                power,
                notifier <- Opaque::try_ffi_init(move |slot: *mut bindings::notifier_block| {
                    // INVARIANT: It is registered when this returns 0.
                    //
                    // SAFETY: `slot` is pinned and valid for writes, and stays so until `drop` has
                    // unregistered it.
                    unsafe {
                        slot.write(bindings::notifier_block {
                            notifier_call: Some(Self::notify),
                            ..pin_init::zeroed()
                        });
                        to_result(own::scif_helper_register_pm_notifier(slot))
                    }
                }),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// # Safety
    ///
    /// `notifier` is that of a `SleepWatch`, which stays while this runs.
    unsafe extern "C" fn notify(
        notifier: *mut bindings::notifier_block,
        event: c_ulong,
        _unused: *mut c_void,
    ) -> c_int {
        let notifier: *mut Opaque<bindings::notifier_block> = notifier.cast();
        // SAFETY: By the contract of this function. `power` was initialised before the notifier was
        // registered, and is dropped after it was removed.
        let this = unsafe { &*container_of!(notifier, Self, notifier) };
        match u32::try_from(event).unwrap_or(0) {
            own::PM_SUSPEND_PREPARE | own::PM_HIBERNATION_PREPARE | own::PM_RESTORE_PREPARE => {
                this.power.sleeps();
            }
            own::PM_POST_SUSPEND => {
                // SAFETY: No preconditions.
                let was_off = unsafe { own::scif_helper_resumed_via_firmware() };
                this.power.woke(was_off);
            }
            own::PM_POST_HIBERNATION => this.power.woke(true),
            own::PM_POST_RESTORE => this.power.woke(false),
            _ => {}
        }
        bindings::NOTIFY_OK as c_int
    }
}

#[pinned_drop]
impl<T: Power> PinnedDrop for SleepWatch<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant it is registered. None runs any more when this returns.
        unsafe { own::scif_helper_unregister_pm_notifier(self.notifier.get()) };
    }
}

/// Has somebody told of the end, until it is dropped.
///
/// # Invariants
///
/// `notifier` is registered.
#[pin_data(PinnedDrop)]
pub(crate) struct EndWatch<T: Power> {
    power: Arc<T>,
    // Last, as in `SleepWatch`.
    #[pin]
    notifier: Opaque<bindings::notifier_block>,
}

// SAFETY: A notifier may be unregistered by another thread than the one that registered it.
unsafe impl<T: Power> Send for EndWatch<T> {}
// SAFETY: Nothing is done through `&self` but telling `power`, which is `Sync`.
unsafe impl<T: Power> Sync for EndWatch<T> {}

impl<T: Power> EndWatch<T> {
    /// May sleep.
    pub(crate) fn new(power: Arc<T>) -> Result<Pin<KBox<Self>>> {
        KBox::try_pin_init(
            try_pin_init!(Self {
                power,
                notifier <- Opaque::try_ffi_init(move |slot: *mut bindings::notifier_block| {
                    // INVARIANT: It is registered when this returns 0.
                    //
                    // SAFETY: `slot` is pinned and valid for writes, and stays so until `drop` has
                    // unregistered it.
                    unsafe {
                        slot.write(bindings::notifier_block {
                            notifier_call: Some(Self::notify),
                            ..pin_init::zeroed()
                        });
                        to_result(own::register_reboot_notifier(slot))
                    }
                }),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// # Safety
    ///
    /// `notifier` is that of an `EndWatch`, which stays while this runs.
    unsafe extern "C" fn notify(
        notifier: *mut bindings::notifier_block,
        _event: c_ulong,
        _unused: *mut c_void,
    ) -> c_int {
        let notifier: *mut Opaque<bindings::notifier_block> = notifier.cast();
        // SAFETY: By the contract of this function. `power` was initialised before the notifier was
        // registered, and is dropped after it was removed.
        let this = unsafe { &*container_of!(notifier, Self, notifier) };
        this.power.ends();
        bindings::NOTIFY_OK as c_int
    }
}

#[pinned_drop]
impl<T: Power> PinnedDrop for EndWatch<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant it is registered. None runs any more when this returns.
        unsafe { own::unregister_reboot_notifier(self.notifier.get()) };
    }
}
