// SPDX-License-Identifier: GPL-2.0

//! An NTB device, as a client uses it.
//!
//! Every call of an [`NtbDevice`] goes to the hardware driver, and so to registers. Reads stall the
//! CPU for microseconds. On a data path, only [`NtbDevice::peer_db_set`] and the masking of
//! doorbells are allowed.
//!
//! The peer is always the first one: devices that join more than two hosts are not supported so
//! far.
//!
//! C header: [`include/linux/ntb.h`](srctree/include/linux/ntb.h)

use core::{
    convert::identity,
    ptr::NonNull, //
};

use kernel::{
    device::Device,
    error::to_result,
    prelude::*,
    sync::aref::ARef, //
};

use crate::{
    logic::link_rate,
    sys::{
        bindings as own,
        dma_map,
        reached::DeviceMemory,
        shared_memory::MemoryUser, //
    }, //
};

/// Requirements of a memory window for the memory behind it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowAlignment {
    /// Number of bytes that the bus address is a multiple of.
    pub(crate) address: u64,
    /// Number of bytes that the size is a multiple of.
    pub(crate) size: u64,
    /// Largest size in bytes.
    pub(crate) max_size: u64,
}

/// Index of the only peer.
const PEER: u32 = 0;

/// Unbinds the driver of a bridge and binds it again, which initialises all registers. The
/// [`NtbDevice`] goes, and another one comes.
/// Context: may sleep. Not from a callback of the client or a driver.
pub(crate) fn rebind(hardware: &Device) -> Result {
    // SAFETY: The device is valid.
    to_result(unsafe { own::device_reprobe(dma_map::raw(hardware)) })
}

/// An NTB device of a client.
///
/// While one exists, the hardware's driver can't finish its unbinding, so the registers stay
/// mapped. [`Client::remove`](super::Client::remove) has to drop it soon.
///
/// # Invariants
///
/// `ntb` is a registered NTB device, and `device` is its device.
pub(crate) struct NtbDevice {
    ntb: NonNull<own::ntb_dev>,
    device: ARef<Device>,
}

// SAFETY: Any thread may release references to devices.
unsafe impl Send for NtbDevice {}
// SAFETY: Any thread may call the operations of an NTB device.
unsafe impl Sync for NtbDevice {}

impl NtbDevice {
    /// # Safety
    ///
    /// `ntb` is null, or a device that stays valid during this call.
    pub(super) unsafe fn get(ntb: *mut own::ntb_dev) -> Result<Self> {
        let ntb = NonNull::new(ntb).ok_or(ENODEV)?;
        // SAFETY: The device is valid by the contract of this function; this takes a reference.
        let device = unsafe { Device::get_device(own::scif_helper_ntb_device(ntb.as_ptr())) };
        // INVARIANT: The reference has been taken above.
        Ok(Self { ntb, device })
    }

    fn as_ptr(&self) -> *mut own::ntb_dev {
        self.ntb.as_ptr()
    }

    /// Returns the device's name on its bus, for example `0000:00:05.0`.
    pub(crate) fn name(&self) -> &CStr {
        self.device.name()
    }

    /// Returns the device that memory is mapped for, so that the peer can access it.
    pub(crate) fn dma_device(&self) -> ARef<Device> {
        // SAFETY: The device is valid, so is its parent; this takes a reference.
        unsafe { Device::get_device(own::scif_helper_ntb_dma_device(self.as_ptr())) }
    }

    /// Returns the device whose driver has created this one.
    pub(crate) fn hardware(&self) -> ARef<Device> {
        // SAFETY: The device is valid, so is that of its hardware; this takes a reference.
        unsafe { Device::get_device(own::scif_helper_ntb_hardware(self.as_ptr())) }
    }

    /// Returns whether the link to the peer is up.
    pub(crate) fn link_is_up(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { own::scif_helper_ntb_link_is_up(self.as_ptr()) & 1 << PEER != 0 }
    }

    /// Returns the Mb/s of data that the link carries, if its speed is known.
    pub(crate) fn megabits(&self) -> Option<u32> {
        let (mut generation, mut lanes, mut payload) = (0, 0, 0);
        // SAFETY: The device is valid, and so are the pointers.
        unsafe {
            own::scif_helper_ntb_link(self.as_ptr(), &mut generation, &mut lanes, &mut payload);
        }
        link_rate::megabits(generation, lanes, payload)
    }

    /// Returns the requirements of a memory window.
    ///
    /// # Errors
    ///
    /// - `ENOTCONN`: the link is down.
    /// - `EOVERFLOW`: the driver's answer makes no sense.
    pub(crate) fn mw_align(&self, window: u32) -> Result<WindowAlignment> {
        let mut align = WindowAlignment::default();
        // SAFETY: The device is valid, and so are the pointers.
        to_result(unsafe {
            own::scif_helper_ntb_mw_get_align(
                self.as_ptr(),
                PEER,
                window,
                &mut align.address,
                &mut align.size,
                &mut align.max_size,
            )
        })?;
        check_size(0, align.max_size)?;
        Ok(align)
    }

    /// Makes a memory window of the peer lead to `size` bytes at a bus address of this host.
    /// Returns `EINVAL` if `behind` does not contain all of these bytes.
    ///
    /// From now on the peer can read and write the bytes, so the caller keeps them until the window
    /// is closed.
    pub(crate) fn lead_to(&self, window: u32, behind: &MemoryUser, bus: u64, size: u64) -> Result {
        if !behind.has(bus, size) {
            return Err(EINVAL);
        }
        // SAFETY: The device is valid. Any access that the peer makes is expected: the memory is
        // not used as Rust memory.
        to_result(unsafe {
            own::scif_helper_ntb_mw_set_trans(self.as_ptr(), PEER, window, bus, size)
        })
    }

    /// Returns the place where this host accesses a peer's memory through a window.
    pub(crate) fn peer_mw(&self, window: u32) -> Result<DeviceMemory> {
        let (mut base, mut size) = (0, 0);
        // SAFETY: The device is valid, and so are the pointers.
        to_result(unsafe {
            own::scif_helper_ntb_peer_mw_get_addr(self.as_ptr(), window, &mut base, &mut size)
        })?;
        check_size(base, size)?;
        // SAFETY: The driver of the device says that this is the window.
        Ok(unsafe { DeviceMemory::new(base, size) })
    }

    /// Returns whether a ring of the peer's doorbell also reaches the ringing side, because both
    /// sides share one doorbell register.
    ///
    /// The interface does not tell. Of the drivers in the kernel, this applies to the one that has
    /// message registers instead of scratchpads (IDT).
    pub(crate) fn shares_doorbells(&self) -> bool {
        self.spad_count() == 0 && self.msg_count() > 0
    }
}

/// Defines methods of a device that only call a function of C, with the device and the listed
/// arguments. The function named before the call converts its result.
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $type:ty),*) -> $returned:ty
            = $answer:ident($function:ident($($passed:expr),*));
    )*) => {
        impl NtbDevice {
            $(
                $(#[$doc])*
                pub(crate) fn $name(&self, $($argument: $type),*) -> $returned {
                    // SAFETY: The device is valid. The caller is responsible for the accesses that
                    // the peer makes through a window, as with every DMA: the memory is not used as
                    // Rust memory.
                    $answer(unsafe { own::$function(self.as_ptr() $(, $passed)*) })
                }
            )*
        }
    };
}

calls! {
    /// Returns the port number of this side. Of two sides, the lower number is the upstream side.
    fn port_number() -> Result<u32> = count(scif_helper_ntb_port_number());

    /// Returns the number of peers.
    fn peer_count() -> Result<u32> = count(scif_helper_ntb_peer_port_count());

    /// Returns the port number of a peer.
    fn peer_port_number(peer: u32) -> Result<u32> = count(scif_helper_ntb_peer_port_number(peer));

    /// Allows the link to come up.
    fn link_enable() -> Result = to_result(scif_helper_ntb_link_enable());

    /// Takes the link down. On some hardware, only the upstream side can.
    fn link_disable() -> Result = to_result(scif_helper_ntb_link_disable());

    /// Returns the number of memory windows that lead from the peer into this host.
    fn mw_count() -> Result<u32> = count(scif_helper_ntb_mw_count(PEER));

    /// Returns whether this side sets where the windows lead through which the peer accesses it. If
    /// not, [`Self::lead_to`] does nothing, and returns success.
    fn translates_inbound() -> bool = identity(scif_helper_ntb_translates_inbound());

    /// Returns whether the driver warns of scratchpads or doorbells: on some hardware, accesses may
    /// hang.
    fn has_unsafe_registers() -> bool = identity(scif_helper_ntb_has_unsafe_registers());

    /// Undoes [`NtbDevice::lead_to`].
    fn clear_translation(window: u32) -> Result
        = to_result(scif_helper_ntb_mw_clear_trans(PEER, window));

    /// Returns the number of memory windows that lead from this host to peers.
    fn peer_mw_count() -> Result<u32> = count(scif_helper_ntb_peer_mw_count());

    /// Makes a memory window of this host lead to `size` bytes at a bus address of the peer. For
    /// devices where [`Self::translates_inbound`] is false.
    fn set_peer_translation(window: u32, bus: u64, size: u64) -> Result
        = to_result(scif_helper_ntb_peer_mw_set_trans(PEER, window, bus, size));

    /// Undoes [`NtbDevice::set_peer_translation`].
    fn clear_peer_translation(window: u32) -> Result
        = to_result(scif_helper_ntb_peer_mw_clear_trans(PEER, window));

    /// Returns the number of scratchpad registers; 0 if the device has none.
    fn spad_count() -> u32 = count_or_none(scif_helper_ntb_spad_count());

    /// Reads a scratchpad of this side, which the peer writes. All ones if the scratchpad does not
    /// exist, or the device is gone.
    fn spad_read(number: u32) -> u32 = identity(scif_helper_ntb_spad_read(number));

    /// Writes a scratchpad of the peer.
    fn peer_spad_write(number: u32, value: u32) -> Result
        = to_result(scif_helper_ntb_peer_spad_write(PEER, number, value));

    /// Returns the number of message registers; 0 if the device has none.
    fn msg_count() -> u32 = count_or_none(scif_helper_ntb_msg_count());

    /// Returns the status bits that tell of an arrived message; the first register has the lowest
    /// bit.
    fn msg_inbits() -> u64 = identity(scif_helper_ntb_msg_inbits());

    /// Returns the status bits that tell of a message of this side that was not delivered, in the
    /// same order.
    fn msg_outbits() -> u64 = identity(scif_helper_ntb_msg_outbits());

    /// Returns the status of all message registers.
    fn msg_status() -> u64 = identity(scif_helper_ntb_msg_read_sts());

    /// Clears status bits. A register whose bit is cleared takes the next message.
    fn msg_clear(bits: u64) -> Result = to_result(scif_helper_ntb_msg_clear_sts(bits));

    /// Masks status bits, so that they raise no events. They stay set.
    fn msg_set_mask(bits: u64) -> Result = to_result(scif_helper_ntb_msg_set_mask(bits));

    /// Unmasks status bits. Bits that are set raise an event at once.
    fn msg_clear_mask(bits: u64) -> Result = to_result(scif_helper_ntb_msg_clear_mask(bits));

    /// Returns the message in a register.
    fn msg_read(number: u32) -> u32 = identity(scif_helper_ntb_msg_read(number));

    /// Writes a message for the peer. The status tells whether it is delivered, not this call.
    fn peer_msg_write(number: u32, message: u32) -> Result
        = to_result(scif_helper_ntb_peer_msg_write(PEER, number, message));

    /// Returns the usable doorbells, one bit each.
    fn db_valid_mask() -> u64 = identity(scif_helper_ntb_db_valid_mask());

    /// Returns the doorbells of a vector; 0 if the vector does not exist.
    fn db_vector_mask(vector: u32) -> u64 = identity(scif_helper_ntb_db_vector_mask(vector));

    /// Returns the doorbells that have been rung and not been cleared.
    fn db_read() -> u64 = identity(scif_helper_ntb_db_read());

    /// Clears doorbells of this side.
    fn db_clear(bits: u64) -> Result = to_result(scif_helper_ntb_db_clear(bits));

    /// Masks doorbells of this side, so that they raise no interrupts. They stay pending.
    fn db_set_mask(bits: u64) -> Result = to_result(scif_helper_ntb_db_set_mask(bits));

    /// Unmasks doorbells of this side. Pending doorbells raise an interrupt at once.
    fn db_clear_mask(bits: u64) -> Result = to_result(scif_helper_ntb_db_clear_mask(bits));

    /// Rings doorbells of the peer.
    fn peer_db_set(bits: u64) -> Result = to_result(scif_helper_ntb_peer_db_set(bits));
}

/// Checks an address and a size from a driver. The IDT driver keeps the size of a BAR in an `int`,
/// so 2 GiB become negative.
fn check_size(base: u64, size: u64) -> Result {
    let end = base.checked_add(size);
    match i64::try_from(size).ok().and(end) {
        Some(_) => Ok(()),
        None => Err(EOVERFLOW),
    }
}

/// Converts a number that C returns as an `int`, or a negative error.
fn count(value: c_int) -> Result<u32> {
    to_result(value)?;
    Ok(value.max(0) as u32)
}

/// Converts a number of registers; 0 if the device can't have them.
fn count_or_none(value: c_int) -> u32 {
    count(value).unwrap_or(0)
}
