// SPDX-License-Identifier: GPL-2.0

//! Hearing of other modules that go.
//!
//! C header: [`include/linux/module.h`](srctree/include/linux/module.h)

use kernel::{
    bindings,
    container_of,
    error::to_result,
    prelude::*,
    types::Opaque, //
};

/// Who hears of it.
pub(crate) trait Gone: Send + Sync + 'static {
    /// The module at this address (`struct module *`) has run its exit function, or its init function
    /// has failed; its memory is still there. May sleep.
    fn gone(&self, module: usize, name: &CStr);
}

/// Has somebody told, until it is dropped.
///
/// # Invariants
///
/// `notifier` is registered.
#[pin_data(PinnedDrop)]
pub(crate) struct ModuleWatch<T: Gone> {
    gone: T,
    // Last: the callback may come as soon as this has been made, and uses the others.
    #[pin]
    notifier: Opaque<bindings::notifier_block>,
}

// SAFETY: A notifier may be unregistered by another thread than the one that registered it.
unsafe impl<T: Gone> Send for ModuleWatch<T> {}
// SAFETY: Nothing is done through `&self` but telling `gone`, which is `Sync`.
unsafe impl<T: Gone> Sync for ModuleWatch<T> {}

impl<T: Gone> ModuleWatch<T> {
    /// May sleep.
    pub(crate) fn new(gone: T) -> Result<Pin<KBox<Self>>> {
        KBox::try_pin_init(
            try_pin_init!(Self {
                gone,
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
                        to_result(bindings::register_module_notifier(slot))
                    }
                }),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// # Safety
    ///
    /// `notifier` is that of a `ModuleWatch`, which stays while this runs, and `module` is valid.
    unsafe extern "C" fn notify(
        notifier: *mut bindings::notifier_block,
        event: c_ulong,
        module: *mut c_void,
    ) -> c_int {
        if event == bindings::module_state_MODULE_STATE_GOING as c_ulong {
            let notifier: *mut Opaque<bindings::notifier_block> = notifier.cast();
            // SAFETY: By the contract of this function. `gone` was initialised before the notifier was
            // registered, and is dropped after it was removed.
            let this = unsafe { &*container_of!(notifier, Self, notifier) };
            // SAFETY: The module is valid, and its name ends with 0.
            let name = unsafe {
                CStr::from_char_ptr(
                    (&raw const (*module.cast::<bindings::module>()).name).cast::<c_char>(),
                )
            };
            this.gone.gone(module.addr(), name);
        }
        bindings::NOTIFY_OK as c_int
    }
}

#[pinned_drop]
impl<T: Gone> PinnedDrop for ModuleWatch<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant it is registered. None runs any more when this returns.
        unsafe { bindings::unregister_module_notifier(self.notifier.get()) };
    }
}
