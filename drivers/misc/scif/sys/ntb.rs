// SPDX-License-Identifier: GPL-2.0

//! Clients of the NTB bus, and what they do with an NTB device.
//!
//! Every call of an [`NtbDevice`] goes to the hardware driver, so to registers: reads stall the CPU
//! for microseconds. None belongs on a data path except [`NtbDevice::peer_db_set`] and the masking
//! of doorbells.
//!
//! Peers are given as an index, 0 on a device that joins two hosts.
//!
//! C header: [`include/linux/ntb.h`](srctree/include/linux/ntb.h)

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    device::Device,
    error::{
        from_result,
        to_result, //
    },
    module::this_module,
    prelude::*,
    str::CString,
    sync::{
        aref::ARef,
        Arc,
        ArcBorrow, //
    },
    types::Opaque, //
};

use super::bindings as own;
use crate::LocalModule;

/// A driver of the devices on the NTB bus.
pub(crate) trait Client: Send + Sync + Sized + 'static {
    /// A device has come. May sleep.
    ///
    /// No event is delivered before this has returned, so it only prepares; the link is enabled in
    /// [`Client::start`].
    fn probe(device: NtbDevice) -> Result<Arc<Self>>;

    /// Events are delivered from now on. May sleep. After an error [`Client::remove`] is called.
    ///
    /// The link may have been up before it was enabled here, and then some hardware raises no event:
    /// look at [`NtbDevice::link_is_up`] once.
    fn start(this: ArcBorrow<'_, Self>) -> Result;

    /// The device is going: no event is delivered any more. May sleep.
    ///
    /// The unbinding of the hardware's driver waits until the [`NtbDevice`] and all its clones are
    /// dropped, so drop them soon.
    fn remove(this: Arc<Self>);

    /// The link has gone up or down. Called with interrupts off and a spinlock of the device held:
    /// it must not sleep, and takes only locks that are safe in hard interrupts.
    fn link_event(this: ArcBorrow<'_, Self>);

    /// Doorbells that belong to this vector have been rung. A hard interrupt; as
    /// [`Client::link_event`]. Calls for one device do not overlap.
    fn db_event(this: ArcBorrow<'_, Self>, vector: u32);
}

/// A registered [`Client`]; dropping it removes the client from all devices.
pub(crate) struct Registration<T: Client> {
    _inner: Pin<KBox<RegistrationInner<T>>>,
}

impl<T: Client> Registration<T> {
    /// Registers the client, and probes all devices that are there.
    pub(crate) fn new(name: &'static CStr) -> Result<Self> {
        Ok(Self {
            _inner: KBox::try_pin_init(RegistrationInner::new(name), GFP_KERNEL)?,
        })
    }
}

/// # Invariants
///
/// `client` is registered on the NTB bus.
#[pin_data(PinnedDrop)]
struct RegistrationInner<T: Client> {
    #[pin]
    client: Opaque<own::ntb_client>,
    _client: PhantomData<T>,
}

// SAFETY: A client may be unregistered by another thread than the one that registered it.
unsafe impl<T: Client> Send for RegistrationInner<T> {}
// SAFETY: Nothing is done through `&self`.
unsafe impl<T: Client> Sync for RegistrationInner<T> {}

impl<T: Client> RegistrationInner<T> {
    fn new(name: &'static CStr) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            client <- Opaque::try_ffi_init(move |slot: *mut own::ntb_client| {
                // SAFETY: `slot` is valid for writes. `__ntb_register_client` clears `drv` itself,
                // it reads `ops` only.
                unsafe {
                    (&raw mut (*slot).ops).write(own::ntb_client_ops {
                        probe: Some(Self::probe_callback),
                        remove: Some(Self::remove_callback),
                    });
                }
                let module = this_module::<LocalModule>().as_ptr();
                // INVARIANT: It is registered when this returns 0.
                //
                // SAFETY: `slot` is pinned and stays valid until `drop` has unregistered it; `name`
                // is static.
                to_result(unsafe { own::__ntb_register_client(slot, module, name.as_char_ptr()) })
            }),
            _client: PhantomData,
        }? Error)
    }

    const CONTEXT_OPS: own::ntb_ctx_ops = own::ntb_ctx_ops {
        link_event: Some(Self::link_event_callback),
        db_event: Some(Self::db_event_callback),
        msg_event: None,
    };

    /// # Safety
    ///
    /// `ntb` is a device on the bus that stays valid during this call.
    unsafe extern "C" fn probe_callback(
        _client: *mut own::ntb_client,
        ntb: *mut own::ntb_dev,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The bus passes a valid device, that stays so during this call.
            let device = unsafe { NtbDevice::get(ntb) }?;
            let this = T::probe(device)?;
            let context = Arc::into_raw(this.clone());

            // SAFETY: `ntb` is valid, the operations are static. `context` owns a reference that is
            // given back after `ntb_clear_ctx`, so it is valid in every callback.
            let result = to_result(unsafe {
                own::ntb_set_ctx(ntb, context.cast_mut().cast(), &Self::CONTEXT_OPS)
            });
            if let Err(error) = result {
                // SAFETY: This is the pointer from `into_raw` above, and nobody has got it.
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
    /// `probe_callback` has succeeded for `ntb`, and this is called once after that.
    unsafe extern "C" fn remove_callback(_client: *mut own::ntb_client, ntb: *mut own::ntb_dev) {
        // SAFETY: The bus calls this once for a device whose probe has succeeded, so the context is
        // set.
        unsafe { Self::detach(ntb) };
    }

    /// Ends the events and hands the client's data to [`Client::remove`].
    ///
    /// # Safety
    ///
    /// `probe_callback` has set the context of `ntb`, and it has not been cleared.
    unsafe fn detach(ntb: *mut own::ntb_dev) {
        // SAFETY: `ntb` is valid by the contract of this function.
        let context = unsafe { own::scif_helper_ntb_context(ntb) };
        // SAFETY: As above. It takes the lock that the callbacks run under, so none of them runs
        // any more when it returns.
        unsafe { own::ntb_clear_ctx(ntb) };
        // SAFETY: The context is what `probe_callback` got from `into_raw`.
        T::remove(unsafe { Arc::from_raw(context.cast::<T>()) });
    }

    /// # Safety
    ///
    /// `context` is what `probe_callback` has set, and it is not cleared during this call.
    unsafe extern "C" fn link_event_callback(context: *mut c_void) {
        // SAFETY: `context` is a `T` that is owned until `ntb_clear_ctx` has returned, and that
        // waits for this call.
        T::link_event(unsafe { ArcBorrow::from_raw(context.cast::<T>()) });
    }

    /// # Safety
    ///
    /// As that of `link_event_callback`.
    unsafe extern "C" fn db_event_callback(context: *mut c_void, vector: c_int) {
        // SAFETY: As in `link_event_callback`.
        let this = unsafe { ArcBorrow::from_raw(context.cast::<T>()) };
        T::db_event(this, vector.max(0) as u32);
    }
}

#[pinned_drop]
impl<T: Client> PinnedDrop for RegistrationInner<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant it is registered. When this returns all devices are
        // removed from the client.
        unsafe { own::ntb_unregister_client(self.client.get()) };
    }
}

/// What a memory window demands of the memory behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowAlignment {
    /// The bus address is a multiple of this.
    pub(crate) address: u64,
    /// The size is a multiple of this.
    pub(crate) size: u64,
    /// The size is not larger than this.
    pub(crate) max_size: u64,
}

/// An NTB device, as a client uses it.
///
/// While one exists the hardware's driver does not finish its unbinding, so the registers stay
/// mapped; see [`Client::remove`].
///
/// # Invariants
///
/// `ntb` is a registered NTB device, and this owns a reference to it.
pub(crate) struct NtbDevice {
    ntb: NonNull<own::ntb_dev>,
}

// SAFETY: References to devices may be released by any thread.
unsafe impl Send for NtbDevice {}
// SAFETY: The operations of an NTB device may be called by any thread.
unsafe impl Sync for NtbDevice {}

impl Clone for NtbDevice {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant the device is valid.
        unsafe { bindings::get_device(own::scif_helper_ntb_device(self.as_ptr())) };
        // INVARIANT: The reference has been taken above.
        Self { ntb: self.ntb }
    }
}

impl Drop for NtbDevice {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this owns a reference.
        unsafe { bindings::put_device(own::scif_helper_ntb_device(self.as_ptr())) };
    }
}

impl NtbDevice {
    /// # Safety
    ///
    /// `ntb` is null or a device that stays valid during this call.
    unsafe fn get(ntb: *mut own::ntb_dev) -> Result<Self> {
        let ntb = NonNull::new(ntb).ok_or(ENODEV)?;
        // SAFETY: The device is valid by the contract of this function.
        unsafe { bindings::get_device(own::scif_helper_ntb_device(ntb.as_ptr())) };
        // INVARIANT: The reference has been taken above.
        Ok(Self { ntb })
    }

    fn as_ptr(&self) -> *mut own::ntb_dev {
        self.ntb.as_ptr()
    }

    /// The device's name on its bus, for example `0000:00:05.0`.
    pub(crate) fn name(&self) -> Result<CString> {
        // SAFETY: The device is valid; it is not renamed while it is registered.
        let name = unsafe { CStr::from_char_ptr(own::scif_helper_ntb_name(self.as_ptr())) };
        Ok(CString::try_from(name)?)
    }

    /// The device on the NTB bus, for messages in the log.
    pub(crate) fn device(&self) -> &Device {
        // SAFETY: The device is valid as long as `self` is.
        unsafe { Device::from_raw(own::scif_helper_ntb_device(self.as_ptr())) }
    }

    /// The device that memory is mapped for, so that the peer can reach it.
    pub(crate) fn dma_device(&self) -> ARef<Device> {
        // SAFETY: The device is valid, so is its parent; this takes a reference.
        unsafe { Device::get_device(own::scif_helper_ntb_dma_device(self.as_ptr())) }
    }

    /// The number of the port of this side: of two the lower is the upstream side.
    pub(crate) fn port_number(&self) -> Result<u32> {
        // SAFETY: The device is valid.
        count(unsafe { own::scif_helper_ntb_port_number(self.as_ptr()) })
    }

    /// How many peers there are.
    pub(crate) fn peer_port_count(&self) -> Result<u32> {
        // SAFETY: The device is valid.
        count(unsafe { own::scif_helper_ntb_peer_port_count(self.as_ptr()) })
    }

    /// The number of the port of a peer.
    pub(crate) fn peer_port_number(&self, peer: u32) -> Result<u32> {
        // SAFETY: The device is valid.
        count(unsafe { own::scif_helper_ntb_peer_port_number(self.as_ptr(), index(peer)?) })
    }

    /// Lets the link come up.
    pub(crate) fn link_enable(&self) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe { own::scif_helper_ntb_link_enable(self.as_ptr()) })
    }

    /// Takes the link down. Only the upstream side can do that on some hardware.
    pub(crate) fn link_disable(&self) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe { own::scif_helper_ntb_link_disable(self.as_ptr()) })
    }

    /// Whether the link to this peer is up.
    pub(crate) fn link_is_up(&self, peer: u32) -> bool {
        // SAFETY: The device is valid.
        let up = unsafe { own::scif_helper_ntb_link_is_up(self.as_ptr()) };
        1u64.checked_shl(peer).is_some_and(|bit| up & bit != 0)
    }

    /// How many memory windows lead from this peer into this host.
    pub(crate) fn mw_count(&self, peer: u32) -> Result<u32> {
        // SAFETY: The device is valid.
        count(unsafe { own::scif_helper_ntb_mw_count(self.as_ptr(), index(peer)?) })
    }

    /// What a memory window demands. `ENOTCONN` while the link is down.
    pub(crate) fn mw_align(&self, peer: u32, window: u32) -> Result<WindowAlignment> {
        let (mut address, mut size, mut max_size) = (0, 0, 0);
        // SAFETY: The device is valid, and so are the pointers.
        to_result(unsafe {
            own::scif_helper_ntb_mw_get_align(
                self.as_ptr(),
                index(peer)?,
                index(window)?,
                &mut address,
                &mut size,
                &mut max_size,
            )
        })?;
        Ok(WindowAlignment {
            address,
            size,
            max_size,
        })
    }

    /// Whether this side says where a memory window into its memory leads to. Otherwise the peer
    /// does, and [`NtbDevice::set_translation`] does nothing.
    pub(crate) fn sets_translation_here(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { own::scif_helper_ntb_mw_is_set_here(self.as_ptr()) }
    }

    /// Makes a memory window of this peer lead to `size` bytes at a bus address of this host.
    ///
    /// From now on the peer can read and write them.
    pub(crate) fn set_translation(&self, peer: u32, window: u32, bus: u64, size: u64) -> Result {
        // SAFETY: The device is valid. What the peer does with the memory is the caller's concern,
        // as with every DMA: it is not used as Rust memory.
        to_result(unsafe {
            own::scif_helper_ntb_mw_set_trans(
                self.as_ptr(),
                index(peer)?,
                index(window)?,
                bus,
                size,
            )
        })
    }

    /// Undoes [`NtbDevice::set_translation`].
    pub(crate) fn clear_translation(&self, peer: u32, window: u32) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe {
            own::scif_helper_ntb_mw_clear_trans(self.as_ptr(), index(peer)?, index(window)?)
        })
    }

    /// How many memory windows lead from this host to a peer.
    pub(crate) fn peer_mw_count(&self) -> Result<u32> {
        // SAFETY: The device is valid.
        count(unsafe { own::scif_helper_ntb_peer_mw_count(self.as_ptr()) })
    }

    /// Where this host reaches a peer's memory through a window: physical address and size.
    pub(crate) fn peer_mw(&self, window: u32) -> Result<(u64, u64)> {
        let (mut base, mut size) = (0, 0);
        // SAFETY: The device is valid, and so are the pointers.
        to_result(unsafe {
            own::scif_helper_ntb_peer_mw_get_addr(
                self.as_ptr(),
                index(window)?,
                &mut base,
                &mut size,
            )
        })?;
        Ok((base, size))
    }

    /// How many scratchpad registers there are; 0 where the device has none.
    pub(crate) fn spad_count(&self) -> u32 {
        // SAFETY: The device is valid.
        count(unsafe { own::scif_helper_ntb_spad_count(self.as_ptr()) }).unwrap_or(0)
    }

    /// Reads a scratchpad of this side, which the peer writes. All ones: there is none, or the
    /// device is gone.
    pub(crate) fn spad_read(&self, number: u32) -> u32 {
        let Ok(number) = index(number) else {
            return u32::MAX;
        };
        // SAFETY: The device is valid.
        unsafe { own::scif_helper_ntb_spad_read(self.as_ptr(), number) }
    }

    /// Writes a scratchpad of this side.
    pub(crate) fn spad_write(&self, number: u32, value: u32) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe { own::scif_helper_ntb_spad_write(self.as_ptr(), index(number)?, value) })
    }

    /// Writes a scratchpad of a peer.
    pub(crate) fn peer_spad_write(&self, peer: u32, number: u32, value: u32) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe {
            own::scif_helper_ntb_peer_spad_write(self.as_ptr(), index(peer)?, index(number)?, value)
        })
    }

    /// The doorbells that may be used, one bit each.
    pub(crate) fn db_valid_mask(&self) -> u64 {
        // SAFETY: The device is valid.
        unsafe { own::scif_helper_ntb_db_valid_mask(self.as_ptr()) }
    }

    /// How many interrupt vectors the doorbells are spread over.
    pub(crate) fn db_vector_count(&self) -> Result<u32> {
        // SAFETY: The device is valid.
        count(unsafe { own::scif_helper_ntb_db_vector_count(self.as_ptr()) })
    }

    /// The doorbells that belong to a vector; 0 where the vector does not exist.
    pub(crate) fn db_vector_mask(&self, vector: u32) -> u64 {
        let Ok(vector) = index(vector) else {
            return 0;
        };
        // SAFETY: The device is valid.
        unsafe { own::scif_helper_ntb_db_vector_mask(self.as_ptr(), vector) }
    }

    /// The doorbells that have been rung and not been cleared.
    pub(crate) fn db_read(&self) -> u64 {
        // SAFETY: The device is valid.
        unsafe { own::scif_helper_ntb_db_read(self.as_ptr()) }
    }

    /// Clears doorbells of this side.
    pub(crate) fn db_clear(&self, bits: u64) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe { own::scif_helper_ntb_db_clear(self.as_ptr(), bits) })
    }

    /// Keeps doorbells of this side from raising interrupts. They stay pending.
    pub(crate) fn db_set_mask(&self, bits: u64) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe { own::scif_helper_ntb_db_set_mask(self.as_ptr(), bits) })
    }

    /// Lets doorbells of this side raise interrupts again; those that are pending do at once.
    pub(crate) fn db_clear_mask(&self, bits: u64) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe { own::scif_helper_ntb_db_clear_mask(self.as_ptr(), bits) })
    }

    /// Rings doorbells of the peer.
    pub(crate) fn peer_db_set(&self, bits: u64) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe { own::scif_helper_ntb_peer_db_set(self.as_ptr(), bits) })
    }
}

/// A number that C returns as an `int`, or a negative error.
fn count(value: c_int) -> Result<u32> {
    to_result(value)?;
    Ok(value.max(0) as u32)
}

/// A number that C wants as an `int`.
fn index(value: u32) -> Result<c_int> {
    Ok(c_int::try_from(value)?)
}
