// SPDX-License-Identifier: GPL-2.0

//! What a client does with an NTB device.
//!
//! Every call of an [`NtbDevice`] goes to the hardware driver, so to registers: reads stall the CPU
//! for microseconds. None belongs on a data path except [`NtbDevice::peer_db_set`] and the masking
//! of doorbells.
//!
//! The peer is the first one: devices that join more than two hosts are not supported so far.
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

use crate::sys::{
    bindings as own,
    dma_map,
    reached::DeviceMemory,
    shared_memory::User, //
};

/// What a memory window demands of the memory behind it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowAlignment {
    /// The bus address is a multiple of this.
    pub(crate) address: u64,
    /// The size is a multiple of this.
    pub(crate) size: u64,
    /// The size is not larger than this.
    pub(crate) max_size: u64,
}

/// The only peer.
const PEER: u32 = 0;

/// Takes the driver of a bridge away from its device, and has it begin anew, with all registers: the
/// [`NtbDevice`] goes, and another one comes. May sleep. Not from a callback of the client or a driver.
pub(crate) fn rebind(hardware: &Device) -> Result {
    // SAFETY: The device is valid.
    to_result(unsafe { own::device_reprobe(dma_map::raw(hardware)) })
}

/// An NTB device, as a client uses it.
///
/// While one exists the hardware's driver does not finish its unbinding, so the registers stay
/// mapped; see [`Client::remove`](super::Client::remove).
///
/// # Invariants
///
/// `ntb` is a registered NTB device, `device` is the device of that.
pub(crate) struct NtbDevice {
    ntb: NonNull<own::ntb_dev>,
    device: ARef<Device>,
}

// SAFETY: References to devices may be released by any thread.
unsafe impl Send for NtbDevice {}
// SAFETY: The operations of an NTB device may be called by any thread.
unsafe impl Sync for NtbDevice {}

impl NtbDevice {
    /// # Safety
    ///
    /// `ntb` is null or a device that stays valid during this call.
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

    /// The device's name on its bus, for example `0000:00:05.0`.
    pub(crate) fn name(&self) -> &CStr {
        self.device.name()
    }

    /// The device that memory is mapped for, so that the peer can reach it.
    pub(crate) fn dma_device(&self) -> ARef<Device> {
        // SAFETY: The device is valid, so is its parent; this takes a reference.
        unsafe { Device::get_device(own::scif_helper_ntb_dma_device(self.as_ptr())) }
    }

    /// The device whose driver has made this one.
    pub(crate) fn hardware(&self) -> ARef<Device> {
        // SAFETY: The device is valid, so is that of its hardware; this takes a reference.
        unsafe { Device::get_device(own::scif_helper_ntb_hardware(self.as_ptr())) }
    }

    /// Whether the link to the peer is up.
    pub(crate) fn link_is_up(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { own::scif_helper_ntb_link_is_up(self.as_ptr()) & 1 << PEER != 0 }
    }

    /// What a memory window demands. `ENOTCONN` while the link is down, `EOVERFLOW` if that makes no sense.
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

    /// Makes a memory window of the peer lead to `size` bytes at a bus address of this host: `EINVAL` if what is
    /// `behind` it does not have them all.
    ///
    /// From now on the peer can read and write them, so the caller keeps that until the window was closed.
    pub(crate) fn lead_to(&self, window: u32, behind: &User, bus: u64, size: u64) -> Result {
        if !behind.has(bus, size) {
            return Err(EINVAL);
        }
        // SAFETY: The device is valid. What the peer does with the memory is expected: it is not used as Rust memory.
        to_result(unsafe {
            own::scif_helper_ntb_mw_set_trans(self.as_ptr(), PEER, window, bus, size)
        })
    }

    /// Where this host reaches a peer's memory through a window.
    pub(crate) fn peer_mw(&self, window: u32) -> Result<DeviceMemory> {
        let (mut base, mut size) = (0, 0);
        // SAFETY: The device is valid, and so are the pointers.
        to_result(unsafe {
            own::scif_helper_ntb_peer_mw_get_addr(self.as_ptr(), window, &mut base, &mut size)
        })?;
        check_size(base, size)?;
        // SAFETY: It is what the driver of the device says that the window is.
        Ok(unsafe { DeviceMemory::new(base, size) })
    }

    /// Whether who rings hears himself, as both sides have the same register for doorbells.
    ///
    /// The interface does not tell. Of the drivers in the kernel it is so for the one that has message
    /// registers instead of scratchpads (IDT).
    pub(crate) fn shares_doorbells(&self) -> bool {
        self.spad_count() == 0 && self.msg_count() > 0
    }
}

/// Makes the methods of a device that do no more than to call a function of C: with the device, and what is named
/// behind it. The function around that makes what they return of its answer.
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
                    // SAFETY: The device is valid. What the peer does with memory to which a window leads is
                    // the caller's concern, as with every DMA: it is not used as Rust memory.
                    $answer(unsafe { own::$function(self.as_ptr() $(, $passed)*) })
                }
            )*
        }
    };
}

calls! {
    /// The number of the port of this side: of two the lower is the upstream side.
    fn port_number() -> Result<u32> = count(scif_helper_ntb_port_number());

    /// How many peers there are.
    fn peer_count() -> Result<u32> = count(scif_helper_ntb_peer_port_count());

    /// The number of the port of a peer.
    fn peer_port_number(peer: u32) -> Result<u32> = count(scif_helper_ntb_peer_port_number(peer));

    /// Lets the link come up.
    fn link_enable() -> Result = to_result(scif_helper_ntb_link_enable());

    /// Takes the link down. Only the upstream side can do that on some hardware.
    fn link_disable() -> Result = to_result(scif_helper_ntb_link_disable());

    /// How many memory windows lead from the peer into this host.
    fn mw_count() -> Result<u32> = count(scif_helper_ntb_mw_count(PEER));

    /// Whether this side says where the windows lead through which the peer reaches it. If not,
    /// [`Self::lead_to`] does nothing, and says that it has.
    fn translates_inbound() -> bool = identity(scif_helper_ntb_translates_inbound());

    /// Whether the driver warns of scratchpads or of doorbells: on some hardware they may hang.
    fn has_unsafe_registers() -> bool = identity(scif_helper_ntb_has_unsafe_registers());

    /// Undoes [`NtbDevice::lead_to`].
    fn clear_translation(window: u32) -> Result
        = to_result(scif_helper_ntb_mw_clear_trans(PEER, window));

    /// How many memory windows lead from this host to peers.
    fn peer_mw_count() -> Result<u32> = count(scif_helper_ntb_peer_mw_count());

    /// Makes a memory window of this host lead to `size` bytes at a bus address of the peer: where it is
    /// not [`Self::translates_inbound`].
    fn set_peer_translation(window: u32, bus: u64, size: u64) -> Result
        = to_result(scif_helper_ntb_peer_mw_set_trans(PEER, window, bus, size));

    /// Undoes [`NtbDevice::set_peer_translation`].
    fn clear_peer_translation(window: u32) -> Result
        = to_result(scif_helper_ntb_peer_mw_clear_trans(PEER, window));

    /// How many scratchpad registers there are; 0 where the device has none.
    fn spad_count() -> u32 = count_or_none(scif_helper_ntb_spad_count());

    /// Reads a scratchpad of this side, which the peer writes. All ones: there is none, or the
    /// device is gone.
    fn spad_read(number: u32) -> u32 = identity(scif_helper_ntb_spad_read(number));

    /// Writes a scratchpad of the peer.
    fn peer_spad_write(number: u32, value: u32) -> Result
        = to_result(scif_helper_ntb_peer_spad_write(PEER, number, value));

    /// How many message registers there are; 0 where the device has none.
    fn msg_count() -> u32 = count_or_none(scif_helper_ntb_msg_count());

    /// The bits of the status that say that a message has come, of the first register the lowest.
    fn msg_inbits() -> u64 = identity(scif_helper_ntb_msg_inbits());

    /// The bits of the status that say that a message of this side was not delivered, in the same order.
    fn msg_outbits() -> u64 = identity(scif_helper_ntb_msg_outbits());

    /// The status of all message registers.
    fn msg_status() -> u64 = identity(scif_helper_ntb_msg_read_sts());

    /// Clears bits of the status: registers whose bit is cleared take the next message.
    fn msg_clear(bits: u64) -> Result = to_result(scif_helper_ntb_msg_clear_sts(bits));

    /// Keeps bits of the status from raising events. They stay set.
    fn msg_set_mask(bits: u64) -> Result = to_result(scif_helper_ntb_msg_set_mask(bits));

    /// Lets bits of the status raise events again; those that are set do at once.
    fn msg_clear_mask(bits: u64) -> Result = to_result(scif_helper_ntb_msg_clear_mask(bits));

    /// The message in a register.
    fn msg_read(number: u32) -> u32 = identity(scif_helper_ntb_msg_read(number));

    /// Writes a message for the peer. Whether it is delivered is said by the status, not by this.
    fn peer_msg_write(number: u32, message: u32) -> Result
        = to_result(scif_helper_ntb_peer_msg_write(PEER, number, message));

    /// The doorbells that may be used, one bit each.
    fn db_valid_mask() -> u64 = identity(scif_helper_ntb_db_valid_mask());

    /// The doorbells that belong to a vector; 0 where the vector does not exist.
    fn db_vector_mask(vector: u32) -> u64 = identity(scif_helper_ntb_db_vector_mask(vector));

    /// The doorbells that have been rung and not been cleared.
    fn db_read() -> u64 = identity(scif_helper_ntb_db_read());

    /// Clears doorbells of this side.
    fn db_clear(bits: u64) -> Result = to_result(scif_helper_ntb_db_clear(bits));

    /// Keeps doorbells of this side from raising interrupts. They stay pending.
    fn db_set_mask(bits: u64) -> Result = to_result(scif_helper_ntb_db_set_mask(bits));

    /// Lets doorbells of this side raise interrupts again; those that are pending do at once.
    fn db_clear_mask(bits: u64) -> Result = to_result(scif_helper_ntb_db_clear_mask(bits));

    /// Rings doorbells of the peer.
    fn peer_db_set(bits: u64) -> Result = to_result(scif_helper_ntb_peer_db_set(bits));
}

/// A driver may have miscounted: that of IDT keeps the size of a BAR in an `int`, which 2 GiB makes negative.
fn check_size(base: u64, size: u64) -> Result {
    let end = base.checked_add(size);
    match i64::try_from(size).ok().and(end) {
        Some(_) => Ok(()),
        None => Err(EOVERFLOW),
    }
}

/// A number that C returns as an `int`, or a negative error.
fn count(value: c_int) -> Result<u32> {
    to_result(value)?;
    Ok(value.max(0) as u32)
}

/// A number of things, none where the device can't have them.
fn count_or_none(value: c_int) -> u32 {
    count(value).unwrap_or(0)
}
