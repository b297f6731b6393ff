// SPDX-License-Identifier: GPL-2.0

//! Notifications by the kernel: sleep and shutdown, unloaded modules, and drivers that are being
//! unbound.
//!
//! C headers: [`include/linux/notifier.h`](srctree/include/linux/notifier.h),
//! [`include/linux/suspend.h`](srctree/include/linux/suspend.h),
//! [`include/linux/reboot.h`](srctree/include/linux/reboot.h),
//! [`include/linux/module.h`](srctree/include/linux/module.h)

use kernel::{
    bindings,
    container_of,
    device::Device,
    error::to_result,
    prelude::*,
    sync::aref::ARef,
    types::Opaque, //
};

use super::{
    bindings as own,
    dma_map::raw, //
};

/// An event that has happened, or is about to.
#[derive(Clone, Copy)]
pub(crate) enum Event<'a> {
    /// The machine is about to sleep, or to be replaced by an image from disk. Processes run, and
    /// drivers work.
    Sleeps,
    /// The machine has woken up, or did not sleep after all. Drivers work again.
    Woke {
        /// Whether devices may have lost power, and have their state after a reset.
        was_off: bool,
    },
    /// The machine reboots or stops, or another kernel is started.
    Ends,
    /// A module has run its exit function, or its init function has failed. Its memory still
    /// exists.
    ModuleGone {
        /// The address of the module's `struct module`.
        module: usize,
        name: &'a CStr,
    },
    /// A driver is about to be unbound from its device, while it still works.
    Unbinds,
}

/// A notifier chain of the kernel. It calls one notifier at a time, and each may sleep.
pub(crate) enum Chain {
    /// Reports [`Event::Sleeps`] and [`Event::Woke`].
    Sleep,
    /// Reports [`Event::Ends`].
    End,
    /// Reports [`Event::ModuleGone`].
    Modules,
    /// Reports [`Event::Unbinds`] of this device.
    Driver(ARef<Device>),
}

impl Chain {
    /// Adds a notifier.
    /// Context: may sleep.
    ///
    /// # Safety
    ///
    /// `notifier` is pinned and initialised, and stays so until it is removed.
    unsafe fn add(&self, notifier: *mut bindings::notifier_block) -> Result {
        // SAFETY: By the contract of this function; a device stays on its bus.
        to_result(unsafe {
            match self {
                Self::Sleep => own::scif_helper_register_pm_notifier(notifier),
                Self::End => own::register_reboot_notifier(notifier),
                Self::Modules => bindings::register_module_notifier(notifier),
                Self::Driver(device) => {
                    bindings::bus_register_notifier((*raw(device)).bus, notifier)
                }
            }
        })
    }

    /// Removes a notifier. When this returns, no call of it is running, and none comes later.
    /// Context: may sleep.
    ///
    /// # Safety
    ///
    /// `notifier` was added to this chain.
    unsafe fn remove(&self, notifier: *mut bindings::notifier_block) {
        // SAFETY: By the contract of this function. Every chain holds a semaphore around each call.
        let _ = unsafe {
            match self {
                Self::Sleep => own::scif_helper_unregister_pm_notifier(notifier),
                Self::End => own::unregister_reboot_notifier(notifier),
                Self::Modules => bindings::unregister_module_notifier(notifier),
                Self::Driver(device) => {
                    bindings::bus_unregister_notifier((*raw(device)).bus, notifier)
                }
            }
        };
    }

    /// Returns the event that a call of a notifier reports, if any.
    ///
    /// # Safety
    ///
    /// A notifier of this chain was called with these arguments. The event is used during the call
    /// only.
    unsafe fn event<'a>(&self, event: c_ulong, data: *mut c_void) -> Option<Event<'a>> {
        let event = u32::try_from(event).unwrap_or(0);
        match self {
            Self::Sleep => match event {
                own::PM_SUSPEND_PREPARE | own::PM_HIBERNATION_PREPARE | own::PM_RESTORE_PREPARE => {
                    Some(Event::Sleeps)
                }
                own::PM_POST_SUSPEND => Some(Event::Woke {
                    // SAFETY: No preconditions.
                    was_off: unsafe { own::scif_helper_resumed_via_firmware() },
                }),
                own::PM_POST_HIBERNATION => Some(Event::Woke { was_off: true }),
                own::PM_POST_RESTORE => Some(Event::Woke { was_off: false }),
                _ => None,
            },
            Self::End => Some(Event::Ends),
            Self::Modules => {
                let goes = event == bindings::module_state_MODULE_STATE_GOING;
                let module = data.cast::<bindings::module>();
                // SAFETY: The chain passes a valid module, and its name ends with 0.
                let name = unsafe { CStr::from_char_ptr((&raw const (*module).name).cast()) };
                let module = module.addr();
                goes.then_some(Event::ModuleGone { module, name })
            }
            Self::Driver(device) => {
                let unbinds = event == bindings::bus_notifier_event_BUS_NOTIFY_UNBIND_DRIVER;
                (unbinds && data == raw(device).cast()).then_some(Event::Unbinds)
            }
        }
    }
}

/// A callback for events.
pub(crate) type Told = KBox<dyn Fn(Event<'_>) + Send + Sync>;

/// A registration of a callback for the events of a chain, until it is dropped.
///
/// # Invariants
///
/// `notifier` is in `chain`.
#[pin_data(PinnedDrop)]
pub(crate) struct Watch {
    chain: Chain,
    told: Told,
    // Initialised last: the callback may run as soon as the notifier is added, and uses the other
    // fields.
    #[pin]
    notifier: Opaque<bindings::notifier_block>,
}

// SAFETY: Any thread may remove a notifier, whichever thread added it.
unsafe impl Send for Watch {}
// SAFETY: `&self` only allows calls of `told`, which is `Sync`.
unsafe impl Sync for Watch {}

impl Watch {
    /// Begins to report events to `told`.
    /// Context: may sleep.
    pub(crate) fn new(chain: Chain, told: Told) -> Result<Pin<KBox<Self>>> {
        KBox::try_pin_init(
            try_pin_init!(Self {
                chain,
                told,
                notifier <- Opaque::try_ffi_init(|slot: *mut bindings::notifier_block| {
                    // INVARIANT: The notifier is in the chain when this returns without an error.
                    //
                    // SAFETY: `slot` is pinned and valid for writes, and stays so until `drop` has
                    // removed it.
                    unsafe {
                        slot.write(bindings::notifier_block {
                            notifier_call: Some(Self::notify),
                            ..pin_init::zeroed()
                        });
                        chain.add(slot)
                    }
                }),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// # Safety
    ///
    /// `notifier` belongs to a `Watch`, which exists while this runs. The other arguments come from
    /// its chain.
    unsafe extern "C" fn notify(
        notifier: *mut bindings::notifier_block,
        event: c_ulong,
        data: *mut c_void,
    ) -> c_int {
        let notifier: *mut Opaque<bindings::notifier_block> = notifier.cast();
        // SAFETY: By the contract of this function. The other fields were initialised before the
        // notifier was added, and are dropped after its removal.
        let this = unsafe { &*container_of!(notifier, Self, notifier) };
        // SAFETY: By the contract of this function.
        if let Some(event) = unsafe { this.chain.event(event, data) } {
            (this.told)(event);
        }
        bindings::NOTIFY_OK as c_int
    }
}

#[pinned_drop]
impl PinnedDrop for Watch {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant the notifier was added.
        unsafe { self.chain.remove(self.notifier.get()) };
    }
}
