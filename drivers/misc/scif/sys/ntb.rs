// SPDX-License-Identifier: GPL-2.0

//! Clients of the NTB bus: drivers of the devices on it.
//!
//! C header: [`include/linux/ntb.h`](srctree/include/linux/ntb.h)

use kernel::{
    container_of,
    error::{
        from_result,
        to_result, //
    },
    module::this_module,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    types::Opaque, //
};

mod device;

pub(crate) use device::{
    rebind,
    NtbDevice,
    WindowAlignment, //
};

use super::bindings as own;
use crate::LocalModule;

/// A driver of the devices on the NTB bus.
pub(crate) trait Client: Send + Sync + Sized + 'static {
    /// Data that all devices of the client share, passed to the [`Registration`].
    type Context: Send + Sync + 'static;

    /// Handles a new device.
    ///
    /// No event is delivered before this has returned, so this only prepares. [`Client::start`]
    /// enables the link.
    /// Context: may sleep.
    fn probe(context: &Self::Context, device: NtbDevice) -> Result<Arc<Self>>;

    /// Starts the client: events are delivered from now on. After an error, [`Client::remove`] is
    /// called.
    ///
    /// If the link was up before it was enabled here, some hardware raises no event. So check
    /// [`NtbDevice::link_is_up`] once.
    /// Context: may sleep.
    fn start(this: ArcBorrow<'_, Self>) -> Result;

    /// Handles the removal of the device; no event is delivered any more.
    ///
    /// The unbinding of the hardware's driver waits until the [`NtbDevice`] is dropped, so drop it
    /// soon.
    /// Context: may sleep.
    fn remove(this: Arc<Self>);

    /// Takes note that the link has gone up or down.
    /// Context: interrupts off, a spinlock of the device held. It must not sleep, and takes only
    /// locks that are safe in hard interrupts.
    fn link_event(this: ArcBorrow<'_, Self>);

    /// Handles doorbells of this vector. Calls for one device do not overlap.
    /// Context: hard interrupt, as [`Client::link_event`].
    fn db_event(this: ArcBorrow<'_, Self>, vector: u32);

    /// Handles the arrival of messages.
    /// Context: as [`Client::link_event`].
    fn msg_event(this: ArcBorrow<'_, Self>);
}

/// A registered [`Client`], which is removed from all devices on drop.
///
/// # Invariants
///
/// `client` is registered on the NTB bus.
#[pin_data(PinnedDrop)]
pub(crate) struct Registration<T: Client> {
    context: T::Context,
    // Initialised after the context, since devices are probed as soon as the client is registered.
    // `drop` removes them, and so before the context is dropped.
    #[pin]
    client: Opaque<own::ntb_client>,
}

// SAFETY: Any thread may unregister a client, whichever thread registered it.
unsafe impl<T: Client> Send for Registration<T> {}
// SAFETY: `&self` only allows reading the context, which is `Sync`.
unsafe impl<T: Client> Sync for Registration<T> {}

impl<T: Client> Registration<T> {
    /// Registers the client, and probes all existing devices.
    pub(crate) fn new(name: &'static CStr, context: T::Context) -> Result<Pin<KBox<Self>>> {
        KBox::try_pin_init(
            try_pin_init!(Self {
            context,
            client <- Opaque::try_ffi_init(move |slot: *mut own::ntb_client| {
                // SAFETY: `slot` is valid for writes. `__ntb_register_client` only reads `ops`, and
                // clears `drv` itself.
                unsafe {
                    (&raw mut (*slot).ops).write(own::ntb_client_ops {
                        probe: Some(Self::probe_callback),
                        remove: Some(Self::remove_callback),
                    });
                }
                let module = this_module::<LocalModule>().as_ptr();
                // INVARIANT: The client is registered when this returns 0.
                //
                // SAFETY: `slot` is pinned and stays valid until `drop` has unregistered it; `name`
                // is static.
                to_result(unsafe { own::__ntb_register_client(slot, module, name.as_char_ptr()) })
            }),
        }? Error),
            GFP_KERNEL,
        )
    }

    const CONTEXT_OPS: own::ntb_ctx_ops = own::ntb_ctx_ops {
        link_event: Some(Self::link_event_callback),
        db_event: Some(Self::db_event_callback),
        msg_event: Some(Self::msg_event_callback),
    };

    /// # Safety
    ///
    /// `client` belongs to a registration, which is not dropped during this call. `ntb` is a device
    /// on the bus that stays valid during this call.
    unsafe extern "C" fn probe_callback(
        client: *mut own::ntb_client,
        ntb: *mut own::ntb_dev,
    ) -> c_int {
        from_result(|| {
            let client: *mut Opaque<own::ntb_client> = client.cast();
            // SAFETY: By the contract of this function. The registration may not be complete yet,
            // so this creates no reference to all of it.
            let shared = unsafe { &(*container_of!(client, Self, client)).context };
            // SAFETY: The bus passes a valid device, which stays so during this call.
            let device = unsafe { NtbDevice::get(ntb) }?;
            let this = T::probe(shared, device)?;
            let context = Arc::into_raw(this.clone());

            // SAFETY: `ntb` is valid, and the operations are static. `context` owns a reference
            // that is given back after `ntb_clear_ctx`, so it is valid in every callback.
            let result = to_result(unsafe {
                own::ntb_set_ctx(ntb, context.cast_mut().cast(), &Self::CONTEXT_OPS)
            });
            if let Err(error) = result {
                // SAFETY: This is the pointer from `into_raw` above, and it was passed to no other
                // code.
                drop(unsafe { Arc::from_raw(context) });
                T::remove(this);
                return Err(error);
            }

            if let Err(error) = T::start(this.as_arc_borrow()) {
                drop(this);
                // SAFETY: The context has been set above.
                unsafe { Self::detach(ntb) };
                return Err(error);
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// `probe_callback` has succeeded for `ntb`, and this is called once afterwards.
    unsafe extern "C" fn remove_callback(_client: *mut own::ntb_client, ntb: *mut own::ntb_dev) {
        // SAFETY: The bus calls this once for a device whose probe has succeeded, so the context is
        // set.
        unsafe { Self::detach(ntb) };
    }

    /// Ends the events, and passes the client's data to [`Client::remove`].
    ///
    /// # Safety
    ///
    /// `probe_callback` has set the context of `ntb`, which has not been cleared since.
    unsafe fn detach(ntb: *mut own::ntb_dev) {
        // SAFETY: `ntb` is valid by the contract of this function.
        let context = unsafe { own::scif_helper_ntb_context(ntb) };
        // SAFETY: As above. The function takes the lock that callbacks run under, so no callback
        // runs any more when it returns.
        unsafe { own::ntb_clear_ctx(ntb) };
        // SAFETY: `probe_callback` has got the context from `into_raw`.
        T::remove(unsafe { Arc::from_raw(context.cast::<T>()) });
    }

    /// # Safety
    ///
    /// `probe_callback` has set `context`, which is not cleared during this call.
    unsafe extern "C" fn link_event_callback(context: *mut c_void) {
        // SAFETY: `context` is a `T` that is owned until `ntb_clear_ctx` has returned, which waits
        // for this call.
        T::link_event(unsafe { ArcBorrow::from_raw(context.cast::<T>()) });
    }

    /// # Safety
    ///
    /// The contract is that of `link_event_callback`.
    unsafe extern "C" fn db_event_callback(context: *mut c_void, vector: c_int) {
        // SAFETY: As in `link_event_callback`.
        let this = unsafe { ArcBorrow::from_raw(context.cast::<T>()) };
        T::db_event(this, vector.max(0) as u32);
    }

    /// # Safety
    ///
    /// The contract is that of `link_event_callback`.
    unsafe extern "C" fn msg_event_callback(context: *mut c_void) {
        // SAFETY: As in `link_event_callback`.
        T::msg_event(unsafe { ArcBorrow::from_raw(context.cast::<T>()) });
    }
}

#[pinned_drop]
impl<T: Client> PinnedDrop for Registration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant the client is registered. When this returns, all devices
        // are removed from the client.
        unsafe { own::ntb_unregister_client(self.client.get()) };
    }
}
