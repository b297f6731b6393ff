// SPDX-License-Identifier: GPL-2.0

//! The functions that C calls for a device: see `helpers.h`. They call the device's [`Owner`].
//!
//! All have the owner as their first argument. C has it from [`NetDev::new`](super::NetDev::new), and
//! calls only while that device exists, which the owner owns.

use super::{
    bindings as own,
    netdev::Counts,
    skb::Outgoing,
    xdp::PacketOut, //
};
use core::slice;
use kernel::{
    bindings,
    prelude::*, //
};
use scif_main::sister::{
    FEWEST_SLOTS,
    MOST_SLOTS, //
};

/// The owner of a device: what the stack asks of the device, it asks of the owner.
pub(crate) trait Owner: Send + Sync {
    /// Sends a frame by a queue, or drops it. Returns the frame if the caller has to keep it until the
    /// queue is woken.
    /// Context: bottom halves disabled, one call at a time for each queue.
    fn send(&self, queue: u32, frame: Outgoing) -> Option<Outgoing>;

    /// Delivers frames of the peer from a queue, at most `budget`. Returns their number, or the budget if
    /// there may be more.
    /// Context: NAPI.
    fn poll(&self, queue: u32, budget: usize) -> usize;

    /// Copies frames of programs to the peer. Returns how many of them, the first ones, were sent or
    /// dropped. There is no room for the others.
    /// Context: bottom halves disabled.
    fn send_packets(&self, queue: u32, frames: &[PacketOut]) -> usize;

    /// Returns the counts of a queue in one direction, if the device has that queue.
    /// Context: any.
    fn counts(&self, queue: u32, direction: Direction) -> Option<&Counts>;

    /// Asks for these things of the peer, whenever the rings are joined. ENOMEM: there is no memory
    /// for a message.
    /// Context: may sleep.
    fn ask(&self, wishes: u32) -> Result;

    /// Has each queue have so many buffers, soon. ENOMEM: there is no memory for that.
    /// Context: may sleep, does not wait for the peer.
    fn resize(&self, slots: u32) -> Result;
}

/// The direction of frames.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the peer.
    Sent,
    /// From the peer.
    Received,
}

/// A pointer to the owner of a device, for C, which can't hold one to a `dyn`.
///
/// # Invariants
///
/// The owner exists as long as this.
pub(super) struct OwnerPointer(pub(super) *const dyn Owner);

/// Returns the owner of a device.
///
/// # Safety
///
/// C has the pointer from a device that exists for `'a`.
unsafe fn owner<'a>(pointer: *mut c_void) -> &'a dyn Owner {
    // SAFETY: It points to an `OwnerPointer` that the device has, and by that type's invariant the owner
    // exists.
    unsafe { &*(*pointer.cast_const().cast::<OwnerPointer>()).0 }
}

/// Sends a frame, which belongs to this function then. Returns 1 if it still belongs to the caller.
///
/// # Safety
///
/// `pointer` is a device's owner, as the module's head says. The caller gives up the frame.
#[no_mangle]
unsafe extern "C" fn scif_net_xmit(
    pointer: *mut c_void,
    queue: c_uint,
    skb: *mut bindings::sk_buff,
) -> c_int {
    // SAFETY: By the contract of this function.
    let (owner, frame) = unsafe { (owner(pointer), Outgoing::from_raw(skb)) };
    match owner.send(queue, frame) {
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
/// `pointer` is a device's owner, as the module's head says.
#[no_mangle]
unsafe extern "C" fn scif_net_poll(pointer: *mut c_void, queue: c_uint, budget: c_int) -> c_int {
    // SAFETY: By the contract of this function.
    let owner = unsafe { owner(pointer) };
    let budget = usize::try_from(budget).unwrap_or(0);
    owner.poll(queue, budget) as c_int
}

/// Returns what a port has counted.
///
/// # Safety
///
/// `pointer` is a device's owner, as the module's head says; `counts` is valid for writes.
#[no_mangle]
unsafe extern "C" fn scif_net_count(
    pointer: *mut c_void,
    queue: c_uint,
    sent: bool,
    counts: *mut own::scif_net_counts,
) {
    // SAFETY: By the contract of this function.
    let owner = unsafe { owner(pointer) };
    let direction = match sent {
        true => Direction::Sent,
        false => Direction::Received,
    };
    let found = owner.counts(queue, direction).map(Counts::get);
    // SAFETY: By the contract of this function.
    unsafe { counts.write(found.unwrap_or(Counts::NONE)) };
}

/// Copies frames of programs to the peer. Returns how many of them, the first ones, had room.
///
/// # Safety
///
/// `pointer` is a device's owner, as the module's head says. `frames` are `count` frames.
/// The caller owns them, and changes none during the call.
#[no_mangle]
unsafe extern "C" fn scif_net_send_packets(
    pointer: *mut c_void,
    queue: c_uint,
    frames: *mut *mut own::xdp_frame,
    count: c_uint,
) -> c_uint {
    // SAFETY: By the contract of this function. A frame is a transparent wrapper of its pointer.
    let (owner, frames) = unsafe {
        let frames = slice::from_raw_parts(frames.cast::<PacketOut>(), count as usize);
        (owner(pointer), frames)
    };
    owner.send_packets(queue, frames) as c_uint
}

/// Asks for something of the peer, from now on. Returns false if there is no memory for a message.
///
/// # Safety
///
/// `pointer` is a device's owner, as the module's head says.
#[no_mangle]
unsafe extern "C" fn scif_net_ask(pointer: *mut c_void, wishes: u32) -> bool {
    // SAFETY: By the contract of this function.
    unsafe { owner(pointer) }.ask(wishes).is_ok()
}

/// Has each queue have so many buffers, soon. Returns false if there is no memory for that.
///
/// # Safety
///
/// `pointer` is a device's owner, as the module's head says.
#[no_mangle]
unsafe extern "C" fn scif_net_resize(pointer: *mut c_void, slots: u32) -> bool {
    // SAFETY: By the contract of this function.
    unsafe { owner(pointer) }.resize(slots).is_ok()
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
