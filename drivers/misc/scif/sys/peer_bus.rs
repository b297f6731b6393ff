// SPDX-License-Identifier: GPL-2.0

//! The bus on which other modules of the kernel find nodes: devices, their attributes, clients.
//!
//! A client (`struct scif_client`) is a subsystem interface of the bus: the kernel calls its `probe`
//! for each device, also for those that were there first, and its `remove` before one goes, one call
//! at a time. The C side is in `helpers_bus.c`.
//!
//! C header: [`include/linux/device/bus.h`](srctree/include/linux/device/bus.h)

use kernel::{
    bindings,
    container_of,
    error::{
        from_result,
        to_result, //
    },
    fmt,
    page::PAGE_SIZE,
    prelude::*,
    str::CString, //
};

use super::{
    bindings as own,
    calls::Shown, //
};

/// Writes what is in the file of a device with this name, without the end of the line. May sleep.
pub(crate) type Show = KBox<dyn Fn(&CStr, &mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync>;

/// The bus; registered as long as this exists. Its devices go first.
pub(crate) struct Bus {
    _private: (),
}

impl Bus {
    /// May sleep.
    pub(crate) fn register() -> Result<Self> {
        // SAFETY: Called once for each time it is unregistered; a second time fails.
        to_result(unsafe { own::scif_helper_peer_bus_register() })?;
        Ok(Self { _private: () })
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        // SAFETY: It is registered.
        unsafe { own::scif_helper_peer_bus_unregister() };
    }
}

/// What C has of a device.
#[repr(C)]
struct Inner {
    device: own::scif_peer_dev,
    show: Show,
}

/// A device on the bus; dropping it takes it away, after the last client has let go of it.
///
/// # Invariants
///
/// `inner` is a registered device that belongs to this but for the references that others have.
pub(crate) struct PeerDevice {
    inner: core::ptr::NonNull<Inner>,
}

// SAFETY: A device may be unregistered by any thread.
unsafe impl Send for PeerDevice {}
// SAFETY: Nothing is done through `&self`.
unsafe impl Sync for PeerDevice {}

impl PeerDevice {
    /// Makes a device for a node; clients are told of it before this returns. May sleep, as long as
    /// they like.
    pub(crate) fn new(_bus: &Bus, node: u16, show: Show) -> Result<Self> {
        let inner = Inner {
            // SAFETY: Zeros are what C makes one of.
            device: unsafe { core::mem::zeroed() },
            show,
        };
        let inner = KBox::into_raw(KBox::new(inner, GFP_KERNEL)?);
        // SAFETY: The device is zeroed and stays where it is; `release` frees it, on an error, too,
        // once the reference that was made with it is given back.
        let added = to_result(unsafe {
            own::scif_helper_peer_device_add(&raw mut (*inner).device, node, Some(release))
        });
        if let Err(error) = added {
            // SAFETY: That reference is ours.
            unsafe { bindings::put_device(&raw mut (*inner).device.dev) };
            return Err(error);
        }
        // INVARIANT: It has just been registered.
        Ok(Self {
            inner: core::ptr::NonNull::new(inner).ok_or(EINVAL)?,
        })
    }
}

impl Drop for PeerDevice {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { own::scif_helper_peer_device_remove(&raw mut (*self.inner.as_ptr()).device) };
    }
}

/// # Safety
///
/// `device` is that of an [`Inner`].
unsafe fn inner_of(device: *mut bindings::device) -> *mut Inner {
    // SAFETY: By the contract of this function.
    unsafe {
        let device = container_of!(device, own::scif_peer_dev, dev);
        container_of!(device, Inner, device)
    }
}

/// # Safety
///
/// `device` is that of an [`Inner`] to which nobody refers any more.
unsafe extern "C" fn release(device: *mut bindings::device) {
    // SAFETY: By the contract of this function; `PeerDevice::new` has taken it out of a box.
    drop(unsafe { KBox::from_raw(inner_of(device)) });
}

/// Shows an attribute. Called by `helpers_bus.c`.
///
/// # Safety
///
/// `device` is that of an [`Inner`], which stays while this runs, `attribute` is a text that ends with 0, and `text` has
/// room for a page.
#[no_mangle]
unsafe extern "C" fn scif_peer_device_show(
    device: *mut bindings::device,
    attribute: *const c_char,
    text: *mut c_char,
) -> isize {
    from_result(|| {
        // SAFETY: By the contract of this function. It does not change.
        let show = unsafe { &(*inner_of(device)).show };
        // SAFETY: By the contract of this function.
        let attribute = unsafe { CStr::from_char_ptr(attribute) };
        let line = CString::try_from_fmt(fmt!(
            "{}\n",
            Shown(|f: &mut fmt::Formatter<'_>| show(attribute, f))
        ))?;
        let bytes = line.to_bytes_with_nul();
        if bytes.len() > PAGE_SIZE {
            return Err(EINVAL);
        }
        // SAFETY: There is room for a page, and it is nobody else's.
        unsafe { bindings::memcpy(text.cast(), bytes.as_ptr().cast(), bytes.len()) };
        Ok(bytes.len() as isize - 1)
    })
}

const _: () = {
    if true {
        own::scif_peer_device_show
    } else {
        scif_peer_device_show
    };
};

/// A client that somebody has registered. It knows the address only.
///
/// # Invariants
///
/// `client` is a registered client, which stays until it is unregistered.
pub(crate) struct Client {
    client: *mut own::scif_client,
}

// SAFETY: A client may be unregistered by any thread.
unsafe impl Send for Client {}
// SAFETY: Nothing is done through `&self`.
unsafe impl Sync for Client {}

/// A client that is not registered, as other modules pass it.
pub(crate) struct NewClient(*mut own::scif_client);

impl NewClient {
    /// # Safety
    ///
    /// `client` is null or a client that is not registered, and that stays where it is, with what it
    /// refers to, until it has been unregistered.
    pub(crate) unsafe fn from_raw(client: *mut own::scif_client) -> Self {
        Self(client)
    }

    /// By which it is known.
    pub(crate) fn address(&self) -> usize {
        self.0.addr()
    }

    /// Registers it: it is told of all devices before this returns. May sleep, as long as it likes.
    pub(crate) fn register(self) -> Result<Client> {
        if self.0.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: By the contract of `from_raw`.
        to_result(unsafe { own::scif_helper_client_register(self.0) })?;
        // INVARIANT: It has just been registered.
        Ok(Client { client: self.0 })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { own::scif_helper_client_unregister(self.client) };
    }
}
