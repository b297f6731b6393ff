// SPDX-License-Identifier: GPL-2.0

//! The functions that C calls for a device: see `helpers.h`.
//!
//! All have the device's [`Ports`] as their first argument. C has them from
//! [`NetDev::new`](super::NetDev::new), and calls only while that device exists, which the ports own.

use super::{
    bindings as own,
    netdev::Counts,
    skb::Outgoing,
    xdp::PacketOut, //
};
use crate::device::Ports;
use core::slice;
use kernel::{
    bindings,
    prelude::*, //
};
use scif_main::sister::{
    FEWEST_SLOTS,
    MOST_SLOTS, //
};

/// Returns the ports of a device.
///
/// # Safety
///
/// C has the pointer from a device that exists for `'a`.
unsafe fn ports<'a>(device: *mut c_void) -> &'a Ports {
    // SAFETY: The device is owned by these ports, so they exist.
    unsafe { &*device.cast_const().cast() }
}

/// Sends a frame, which belongs to this function then. Returns 1 if it still belongs to the caller.
///
/// # Safety
///
/// `device` is a device's ports, as the module's head says. The caller gives up the frame.
#[no_mangle]
unsafe extern "C" fn scif_net_xmit(
    device: *mut c_void,
    queue: c_uint,
    skb: *mut bindings::sk_buff,
) -> c_int {
    // SAFETY: By the contract of this function.
    let (ports, frame) = unsafe { (ports(device), Outgoing::from_raw(skb)) };
    let kept = match (ports.port(queue), ports.device()) {
        (Some(port), Some(device)) => port.send(device, queue, frame),
        _ => None,
    };
    match kept {
        None => 0,
        Some(frame) => {
            frame.give_back();
            1
        }
    }
}

/// Polls a port. Returns the number of frames.
///
/// # Safety
///
/// `device` is a device's ports, as the module's head says.
#[no_mangle]
unsafe extern "C" fn scif_net_poll(device: *mut c_void, queue: c_uint, budget: c_int) -> c_int {
    // SAFETY: By the contract of this function.
    let ports = unsafe { ports(device) };
    let budget = usize::try_from(budget).unwrap_or(0);
    match (ports.port(queue), ports.device()) {
        (Some(port), Some(device)) => port.poll(device, queue, budget) as c_int,
        _ => 0,
    }
}

/// Returns what a port has counted.
///
/// # Safety
///
/// `device` is a device's ports, as the module's head says; `counts` is valid for writes.
#[no_mangle]
unsafe extern "C" fn scif_net_count(
    device: *mut c_void,
    queue: c_uint,
    sent: bool,
    counts: *mut own::scif_net_counts,
) {
    // SAFETY: By the contract of this function.
    let ports = unsafe { ports(device) };
    let found = ports.port(queue).map(|port| match sent {
        true => port.sent.get(),
        false => port.received.get(),
    });
    // SAFETY: By the contract of this function.
    unsafe { counts.write(found.unwrap_or(Counts::NONE)) };
}

/// Copies frames of programs to the peer. Returns how many of them, the first ones, had room.
///
/// # Safety
///
/// `device` is a device's ports, as the module's head says. `frames` are `count` frames.
/// The caller owns them, and changes none during the call.
#[no_mangle]
unsafe extern "C" fn scif_net_send_packets(
    device: *mut c_void,
    queue: c_uint,
    frames: *mut *mut own::xdp_frame,
    count: c_uint,
) -> c_uint {
    // SAFETY: By the contract of this function. A frame is a transparent wrapper of its pointer.
    let (ports, frames) = unsafe {
        let frames = slice::from_raw_parts(frames.cast::<PacketOut>(), count as usize);
        (ports(device), frames)
    };
    let port = ports.port(queue);
    port.map_or(0, |port| port.send_packets(frames)) as c_uint
}

/// Asks for something of the peer, from now on. Returns false if there is no memory for a message.
///
/// # Safety
///
/// `device` is a device's ports, as the module's head says.
#[no_mangle]
unsafe extern "C" fn scif_net_ask(device: *mut c_void, wishes: u32) -> bool {
    // SAFETY: By the contract of this function.
    unsafe { ports(device) }.ask(wishes).is_ok()
}

/// Has each queue have so many buffers, soon. Returns false if there is no memory for that.
///
/// # Safety
///
/// `device` is a device's ports, as the module's head says.
#[no_mangle]
unsafe extern "C" fn scif_net_resize(device: *mut c_void, slots: u32) -> bool {
    // SAFETY: By the contract of this function.
    unsafe { ports(device) }.resize(slots).is_ok()
}

const _: () = {
    assert!(own::SCIF_NET_FEWEST_SLOTS == FEWEST_SLOTS);
    assert!(own::SCIF_NET_MOST_SLOTS == MOST_SLOTS);
    // The functions have the types that C declares.
    if true {
        own::scif_net_xmit
    } else {
        scif_net_xmit
    };
    if true {
        own::scif_net_poll
    } else {
        scif_net_poll
    };
    if true {
        own::scif_net_count
    } else {
        scif_net_count
    };
    if true {
        own::scif_net_send_packets
    } else {
        scif_net_send_packets
    };
    if true {
        own::scif_net_ask
    } else {
        scif_net_ask
    };
    if true {
        own::scif_net_resize
    } else {
        scif_net_resize
    };
};
