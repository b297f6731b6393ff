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

use core::ptr::NonNull;

use kernel::{
    device::Device,
    error::to_result,
    prelude::*,
    sync::aref::ARef, //
};

use crate::sys::{
    bindings as own,
    dma_map, //
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

    /// The number of the port of this side: of two the lower is the upstream side.
    pub(crate) fn port_number(&self) -> Result<u32> {
        // SAFETY: The device is valid.
        count(unsafe { own::scif_helper_ntb_port_number(self.as_ptr()) })
    }

    /// How many peers there are.
    pub(crate) fn peer_count(&self) -> Result<u32> {
        // SAFETY: The device is valid.
        count(unsafe { own::scif_helper_ntb_peer_port_count(self.as_ptr()) })
    }

    /// The number of the port of a peer.
    pub(crate) fn peer_port_number(&self, peer: u32) -> Result<u32> {
        // SAFETY: The device is valid.
        count(unsafe { own::scif_helper_ntb_peer_port_number(self.as_ptr(), peer) })
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

    /// Whether the link to the peer is up.
    pub(crate) fn link_is_up(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { own::scif_helper_ntb_link_is_up(self.as_ptr()) & 1 << PEER != 0 }
    }

    /// How many memory windows lead from the peer into this host.
    pub(crate) fn mw_count(&self) -> Result<u32> {
        // SAFETY: The device is valid.
        count(unsafe { own::scif_helper_ntb_mw_count(self.as_ptr(), PEER) })
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

    /// Whether this side says where the windows lead through which the peer reaches it. If not,
    /// [`Self::set_translation`] does nothing, and says that it has.
    pub(crate) fn translates_inbound(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { own::scif_helper_ntb_translates_inbound(self.as_ptr()) }
    }

    /// Whether the driver warns of scratchpads or of doorbells: on some hardware they may hang.
    pub(crate) fn has_unsafe_registers(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { own::scif_helper_ntb_has_unsafe_registers(self.as_ptr()) }
    }

    /// Makes a memory window of the peer lead to `size` bytes at a bus address of this host.
    ///
    /// From now on the peer can read and write them.
    pub(crate) fn set_translation(&self, window: u32, bus: u64, size: u64) -> Result {
        // SAFETY: The device is valid. What the peer does with the memory is the caller's concern,
        // as with every DMA: it is not used as Rust memory.
        to_result(unsafe {
            own::scif_helper_ntb_mw_set_trans(self.as_ptr(), PEER, window, bus, size)
        })
    }

    /// Undoes [`NtbDevice::set_translation`].
    pub(crate) fn clear_translation(&self, window: u32) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe { own::scif_helper_ntb_mw_clear_trans(self.as_ptr(), PEER, window) })
    }

    /// Where this host reaches a peer's memory through a window: physical address and size.
    pub(crate) fn peer_mw(&self, window: u32) -> Result<(u64, u64)> {
        let (mut base, mut size) = (0, 0);
        // SAFETY: The device is valid, and so are the pointers.
        to_result(unsafe {
            own::scif_helper_ntb_peer_mw_get_addr(self.as_ptr(), window, &mut base, &mut size)
        })?;
        check_size(base, size)?;
        Ok((base, size))
    }

    /// How many memory windows lead from this host to peers.
    pub(crate) fn peer_mw_count(&self) -> Result<u32> {
        // SAFETY: The device is valid.
        count(unsafe { own::scif_helper_ntb_peer_mw_count(self.as_ptr()) })
    }

    /// Makes a memory window of this host lead to `size` bytes at a bus address of the peer: where it is
    /// not [`Self::translates_inbound`].
    pub(crate) fn set_peer_translation(&self, window: u32, bus: u64, size: u64) -> Result {
        // SAFETY: The device is valid. Whose memory that is, is the concern of the peer, which has told.
        to_result(unsafe {
            own::scif_helper_ntb_peer_mw_set_trans(self.as_ptr(), PEER, window, bus, size)
        })
    }

    /// Undoes [`NtbDevice::set_peer_translation`].
    pub(crate) fn clear_peer_translation(&self, window: u32) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe { own::scif_helper_ntb_peer_mw_clear_trans(self.as_ptr(), PEER, window) })
    }

    /// How many scratchpad registers there are; 0 where the device has none.
    pub(crate) fn spad_count(&self) -> u32 {
        // SAFETY: The device is valid.
        count(unsafe { own::scif_helper_ntb_spad_count(self.as_ptr()) }).unwrap_or(0)
    }

    /// Reads a scratchpad of this side, which the peer writes. All ones: there is none, or the
    /// device is gone.
    pub(crate) fn spad_read(&self, number: u32) -> u32 {
        // SAFETY: The device is valid.
        unsafe { own::scif_helper_ntb_spad_read(self.as_ptr(), number) }
    }

    /// Writes a scratchpad of the peer.
    pub(crate) fn peer_spad_write(&self, number: u32, value: u32) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe {
            own::scif_helper_ntb_peer_spad_write(self.as_ptr(), PEER, number, value)
        })
    }

    /// How many message registers there are; 0 where the device has none.
    pub(crate) fn msg_count(&self) -> u32 {
        // SAFETY: The device is valid.
        count(unsafe { own::scif_helper_ntb_msg_count(self.as_ptr()) }).unwrap_or(0)
    }

    /// The bits of the status that say that a message has come, of the first register the lowest.
    pub(crate) fn msg_inbits(&self) -> u64 {
        // SAFETY: The device is valid.
        unsafe { own::scif_helper_ntb_msg_inbits(self.as_ptr()) }
    }

    /// The bits of the status that say that a message of this side was not delivered, in the same order.
    pub(crate) fn msg_outbits(&self) -> u64 {
        // SAFETY: The device is valid.
        unsafe { own::scif_helper_ntb_msg_outbits(self.as_ptr()) }
    }

    /// The status of all message registers.
    pub(crate) fn msg_status(&self) -> u64 {
        // SAFETY: The device is valid.
        unsafe { own::scif_helper_ntb_msg_read_sts(self.as_ptr()) }
    }

    /// Clears bits of the status: registers whose bit is cleared take the next message.
    pub(crate) fn msg_clear(&self, bits: u64) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe { own::scif_helper_ntb_msg_clear_sts(self.as_ptr(), bits) })
    }

    /// Keeps bits of the status from raising events. They stay set.
    pub(crate) fn msg_set_mask(&self, bits: u64) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe { own::scif_helper_ntb_msg_set_mask(self.as_ptr(), bits) })
    }

    /// Lets bits of the status raise events again; those that are set do at once.
    pub(crate) fn msg_clear_mask(&self, bits: u64) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe { own::scif_helper_ntb_msg_clear_mask(self.as_ptr(), bits) })
    }

    /// The message in a register.
    pub(crate) fn msg_read(&self, number: u32) -> u32 {
        // SAFETY: The device is valid.
        unsafe { own::scif_helper_ntb_msg_read(self.as_ptr(), number) }
    }

    /// Writes a message for the peer. Whether it is delivered is said by the status, not by this.
    pub(crate) fn peer_msg_write(&self, number: u32, message: u32) -> Result {
        // SAFETY: The device is valid.
        to_result(unsafe {
            own::scif_helper_ntb_peer_msg_write(self.as_ptr(), PEER, number, message)
        })
    }

    /// Whether who rings hears himself, as both sides have the same register for doorbells.
    ///
    /// The interface does not tell. Of the drivers in the kernel it is so for the one that has message
    /// registers instead of scratchpads (IDT).
    pub(crate) fn shares_doorbells(&self) -> bool {
        self.spad_count() == 0 && self.msg_count() > 0
    }

    /// The doorbells that may be used, one bit each.
    pub(crate) fn db_valid_mask(&self) -> u64 {
        // SAFETY: The device is valid.
        unsafe { own::scif_helper_ntb_db_valid_mask(self.as_ptr()) }
    }

    /// The doorbells that belong to a vector; 0 where the vector does not exist.
    pub(crate) fn db_vector_mask(&self, vector: u32) -> u64 {
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
