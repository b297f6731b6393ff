// SPDX-License-Identifier: GPL-2.0

//! Frames for a program of XDP, and frames that such programs send.
//!
//! C header: [`include/net/xdp.h`](srctree/include/net/xdp.h)

use super::{
    bindings as own,
    netdev::Napi, //
};
use core::{
    ptr::NonNull,
    slice, //
};
use kernel::{
    bindings,
    page::PAGE_SIZE, //
};
use scif_main::sister::{
    CopyTarget,
    Received, //
};

const META: usize = own::SCIF_NET_META as usize;

/// A frame of the peer, in a page that only this node writes to. The drop frees it.
///
/// # Invariants
///
/// This owns the page, in which a frame of `len` bytes has room behind the headroom.
pub(crate) struct Packet {
    page: NonNull<bindings::page>,
    len: u32,
}

impl Packet {
    /// Copies a frame. `None`: there is no memory, or a program can't see such a frame.
    /// Context: NAPI.
    pub(crate) fn copy_of(frame: &Received<'_>) -> Option<Self> {
        let meta: &[u8; META] = frame.meta();
        let meta = own::scif_net_meta { bytes: *meta };
        let (len, mut address) = (frame.total(), core::ptr::null_mut());
        // SAFETY: The description and the place for the address are valid.
        let page = unsafe { own::scif_net_helper_packet(&meta, len, &mut address) };
        // INVARIANT: The page has just been allocated for so many bytes.
        let packet = Self {
            page: NonNull::new(page)?,
            len,
        };
        let mut done = 0;
        for piece in 0..frame.count() {
            let size = frame.len(piece);
            let room = (len as usize).checked_sub(done)?.min(PAGE_SIZE);
            if size > room {
                return None;
            }
            // SAFETY: The page has so much room behind `done` bytes, and only this uses it.
            let target = unsafe { CopyTarget::from_raw(address.wrapping_add(done), size) };
            frame.copy(piece, 0, target).ok()?;
            done += size;
        }
        (done == len as usize).then_some(packet)
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { own::scif_net_helper_put_page(self.page.as_ptr()) };
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
        let (page, len) = (packet.page, packet.len);
        core::mem::forget(packet);
        // SAFETY: The page is given up, and has a frame of so many bytes; the context is being
        // polled.
        unsafe { own::scif_net_helper_filter(self.0.raw(), page.as_ptr(), len) };
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
/// The pointer is a frame without parts elsewhere. Its owner changes it only after this value is gone.
#[repr(transparent)]
pub(crate) struct PacketOut(NonNull<own::xdp_frame>);

impl PacketOut {
    /// The description of such a frame, which is one packet with all checksums.
    pub(crate) const META: [u8; META] = [0; META];

    /// Returns the bytes of the frame.
    pub(crate) fn bytes(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: By the type invariant; the place for the length is valid.
        let first = unsafe { own::scif_net_helper_bytes(self.0.as_ptr(), &mut len) };
        // SAFETY: By the type invariant.
        unsafe { slice::from_raw_parts(first, len as usize) }
    }
}
