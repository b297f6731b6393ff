// SPDX-License-Identifier: GPL-2.0

//! Frames for a program of XDP, and frames that such programs send.
//!
//! C header: [`include/net/xdp.h`](srctree/include/net/xdp.h)

use super::{
    bindings as own,
    netdev::Napi, //
};
use core::{
    ptr::{
        self,
        NonNull, //
    },
    slice, //
};
use kernel::{
    bindings,
    prelude::*, //
};
use scif_main::sister::{
    CopyTarget,
    Received,
    Room, //
};

const META: usize = own::SCIF_NET_META as usize;

/// A frame of the peer, in pages that only this node writes to. The drop frees it.
///
/// # Invariants
///
/// This owns the first page, and with it the other ones. Once made, they have `len` bytes.
pub(crate) struct Packet {
    first: NonNull<bindings::page>,
    len: u32,
}

impl Packet {
    /// Copies a frame. `None`: there is no memory, or no program can see such a frame.
    /// Context: NAPI.
    pub(crate) fn copy_of(frame: &Received<'_>) -> Option<Self> {
        let meta: &[u8; META] = frame.meta();
        let meta = own::scif_net_meta { bytes: *meta };
        let len = frame.total();
        let mut room = own::scif_net_room {
            address: ptr::null_mut(),
            size: 0,
        };
        // SAFETY: The description and the place for the room are valid.
        let first = unsafe { own::scif_net_helper_packet(&meta, len, &mut room) };
        // INVARIANT: The page has just been allocated. Others are added below.
        let packet = Self {
            first: NonNull::new(first)?,
            len,
        };
        let mut rest = len;
        for piece in 0..frame.count() {
            let (mut at, end) = (0, frame.len(piece));
            while at < end {
                if room.size == 0 {
                    // SAFETY: The page is the first one of a frame.
                    let has_grown = unsafe {
                        own::scif_net_helper_packet_grow(packet.first.as_ptr(), rest, &mut room)
                    };
                    has_grown.then_some(())?;
                }
                let size = (room.size as usize).min(end - at);
                // SAFETY: The room is a part of a page, which only this uses.
                let target = unsafe { CopyTarget::from_raw(room.address, size) };
                frame.copy(piece, at, target).ok()?;
                at += size;
                room.address = room.address.wrapping_add(size);
                room.size -= size as u32;
                rest = rest.checked_sub(size as u32)?;
            }
        }
        (rest == 0).then_some(packet)
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { own::scif_net_helper_packet_free(self.first.as_ptr()) };
    }
}

/// The program of a device, at work on the frames of a poll. The drop sends what it has decided to
/// send.
pub(crate) struct Filter<'a>(&'a Napi);

impl<'a> Filter<'a> {
    /// Begins to filter frames.
    /// Context: NAPI.
    pub(crate) fn new(napi: &'a Napi) -> Self {
        Self(napi)
    }

    /// Returns whether the device has a program, so that frames are to be filtered.
    /// Context: NAPI.
    pub(crate) fn is_wanted(napi: &Napi) -> bool {
        // SAFETY: The context is valid.
        unsafe { own::scif_net_helper_has_program(napi.raw()) }
    }

    /// Has the program decide what becomes of a frame.
    pub(crate) fn decide(&self, packet: Packet) {
        let (first, len) = (packet.first, packet.len);
        core::mem::forget(packet);
        // SAFETY: The pages are given up, and have a frame of so many bytes; the context is being
        // polled.
        unsafe { own::scif_net_helper_filter(self.0.raw(), first.as_ptr(), len) };
    }
}

impl Drop for Filter<'_> {
    fn drop(&mut self) {
        // SAFETY: The context is valid, and is being polled.
        unsafe { own::scif_net_helper_filter_end(self.0.raw()) };
    }
}

/// A frame that a program sends, which belongs to the caller of C.
///
/// # Invariants
///
/// The pointer is a frame. Its owner changes it only after this value is gone.
#[repr(transparent)]
pub(crate) struct PacketOut(NonNull<own::xdp_frame>);

impl PacketOut {
    /// The description of such a frame, which is one packet with all checksums.
    pub(crate) const META: [u8; META] = [0; META];

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { own::scif_net_helper_frame_len(self.0.as_ptr()) }
    }

    /// Returns the bytes of the frame, part by part.
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        (0..).map_while(|index| {
            let mut len = 0;
            // SAFETY: By the type invariant; the place for the length is valid.
            let part = unsafe { own::scif_net_helper_frame_part(self.0.as_ptr(), index, &mut len) };
            // SAFETY: By the type invariant.
            (!part.is_null()).then(|| unsafe { slice::from_raw_parts(part, len as usize) })
        })
    }

    /// Stores the bytes from an offset on, as many as the room has. EINVAL: there are not so many.
    pub(crate) fn copy_to(&self, from: u32, room: &Room<'_>) -> Result {
        let (mut skipped, mut stored) = (from as usize, 0);
        for part in self.parts() {
            let Some(bytes) = part.get(skipped..) else {
                skipped -= part.len();
                continue;
            };
            skipped = 0;
            let size = bytes.len().min(room.size() - stored);
            room.store(stored, bytes.get(..size).ok_or(EINVAL)?)?;
            stored += size;
            if stored == room.size() {
                return Ok(());
            }
        }
        Err(EINVAL)
    }
}
