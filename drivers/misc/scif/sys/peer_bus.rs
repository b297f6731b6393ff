// SPDX-License-Identifier: GPL-2.0

//! The bus on which other modules of the kernel find nodes: its devices, their attributes, and its
//! clients.
//!
//! A client (`struct scif_client`) is a subsystem interface of the bus. The kernel calls the
//! client's `probe` for each device, including earlier ones, and `remove` before a device goes, one
//! call at a time. `helpers_bus.c` has the C side.
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

/// A callback that writes the contents of the device attribute with this name, without the end of
/// the line. It may sleep.
pub(crate) type Show = KBox<dyn Fn(&CStr, &mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync>;

/// The registered bus, which is unregistered on drop. Drop its devices first.
pub(crate) struct Bus {
    _private: (),
}

impl Bus {
    /// Registers the bus.
    /// Context: may sleep.
    pub(crate) fn register() -> Result<Self> {
        // SAFETY: A second registration fails. `drop` unregisters the bus once for each success.
        to_result(unsafe { own::scif_helper_peer_bus_register() })?;
        Ok(Self { _private: () })
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        // SAFETY: The bus is registered.
        unsafe { own::scif_helper_peer_bus_unregister() };
    }
}

/// A device as C accesses it, and its callback.
#[repr(C)]
struct Inner {
    device: own::scif_peer_dev,
    show: Show,
}

/// A device on the bus. The drop removes it, after the last client's `remove` has returned.
///
/// # Invariants
///
/// `inner` is a registered device. This owns it, except for the references that others have.
pub(crate) struct PeerDevice {
    inner: core::ptr::NonNull<Inner>,
}

// SAFETY: Any thread may unregister a device.
unsafe impl Send for PeerDevice {}
// SAFETY: No method changes anything through `&self`.
unsafe impl Sync for PeerDevice {}

impl PeerDevice {
    /// Creates a device for a node. Clients are told of the device before this returns.
    /// Context: may sleep, as long as the clients like.
    pub(crate) fn new(_bus: &Bus, node: u16, show: Show) -> Result<Self> {
        let inner = Inner {
            // SAFETY: C expects a zeroed device.
            device: unsafe { core::mem::zeroed() },
            show,
        };
        let inner = KBox::into_raw(KBox::new(inner, GFP_KERNEL)?);
        // SAFETY: The device is zeroed and does not move. On an error, too, `release` frees it,
        // once the initial reference is given back.
        let added = to_result(unsafe {
            own::scif_helper_peer_device_add(&raw mut (*inner).device, node, Some(release))
        });
        if let Err(error) = added {
            // SAFETY: This owns the initial reference.
            unsafe { bindings::put_device(&raw mut (*inner).device.dev) };
            return Err(error);
        }
        // INVARIANT: The device has just been registered.
        Ok(Self {
            inner: core::ptr::NonNull::new(inner).ok_or(EINVAL)?,
        })
    }
}

impl Drop for PeerDevice {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the device is registered.
        unsafe { own::scif_helper_peer_device_remove(&raw mut (*self.inner.as_ptr()).device) };
    }
}

/// # Safety
///
/// `device` belongs to an [`Inner`].
unsafe fn inner_of(device: *mut bindings::device) -> *mut Inner {
    // SAFETY: By the contract of this function.
    unsafe {
        let device = container_of!(device, own::scif_peer_dev, dev);
        container_of!(device, Inner, device)
    }
}

/// # Safety
///
/// `device` belongs to an [`Inner`], to which no reference exists any more.
unsafe extern "C" fn release(device: *mut bindings::device) {
    // SAFETY: By the contract of this function. `PeerDevice::new` has taken the pointer out of a
    // box.
    drop(unsafe { KBox::from_raw(inner_of(device)) });
}

/// Shows an attribute, for `helpers_bus.c`.
///
/// # Safety
///
/// `device` belongs to an [`Inner`], which exists while this runs. `attribute` is a text that ends
/// with 0, and `text` has room for a page.
#[no_mangle]
unsafe extern "C" fn scif_peer_device_show(
    device: *mut bindings::device,
    attribute: *const c_char,
    text: *mut c_char,
) -> isize {
    from_result(|| {
        // SAFETY: By the contract of this function. The callback never changes.
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
        // SAFETY: There is room for a page, which only this function uses.
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

/// A registered client of another module, of which only the address is used.
///
/// # Invariants
///
/// `client` is a registered client, which exists until it is unregistered.
pub(crate) struct Client {
    client: *mut own::scif_client,
}

// SAFETY: Any thread may unregister a client.
unsafe impl Send for Client {}
// SAFETY: No method changes anything through `&self`.
unsafe impl Sync for Client {}

/// A client of another module that is not registered yet.
pub(crate) struct NewClient(*mut own::scif_client);

impl NewClient {
    /// # Safety
    ///
    /// `client` is null, or a client that is not registered. The client, and everything that it
    /// refers to, does not move until it has been unregistered.
    pub(crate) unsafe fn from_raw(client: *mut own::scif_client) -> Self {
        Self(client)
    }

    /// Returns the address, which identifies the client.
    pub(crate) fn address(&self) -> usize {
        self.0.addr()
    }

    /// Registers the client, which is told of all devices before this returns.
    /// Context: may sleep, as long as the client likes.
    pub(crate) fn register(self) -> Result<Client> {
        if self.0.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: By the contract of `from_raw`.
        to_result(unsafe { own::scif_helper_client_register(self.0) })?;
        // INVARIANT: The client has just been registered.
        Ok(Client { client: self.0 })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the client is registered.
        unsafe { own::scif_helper_client_unregister(self.client) };
    }
}
