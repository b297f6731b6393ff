// SPDX-License-Identifier: GPL-2.0

//! Frames of the network stack.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use super::{
    bindings as own,
    netdev::Napi, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    error::to_result,
    page::PAGE_SIZE,
    prelude::*, //
};
use scif_main::sister::{
    CopyTarget,
    Payload,
    Received,
    Room, //
};

/// Bytes of the room of an empty frame.
const ROOM: usize = own::SCIF_NET_HEADERS as usize;

const META: usize = own::SCIF_NET_META as usize;

/// A frame that is to be sent. The drop frees it.
///
/// # Invariants
///
/// This owns the frame.
pub(crate) struct Outgoing(NonNull<bindings::sk_buff>);

// SAFETY: A frame that belongs to the driver belongs to no thread.
unsafe impl Send for Outgoing {}
// SAFETY: The functions that take a reference only read the frame.
unsafe impl Sync for Outgoing {}

impl Outgoing {
    /// Takes a frame from the stack.
    ///
    /// # Safety
    ///
    /// The caller gives up the frame, which is valid.
    pub(super) unsafe fn from_raw(raw: *mut bindings::sk_buff) -> Self {
        // INVARIANT: By the contract of this function.
        // SAFETY: The pointer is valid, so it is not null.
        Self(unsafe { NonNull::new_unchecked(raw) })
    }

    /// Gives the frame back to the stack.
    pub(super) fn give_back(self) {
        core::mem::forget(self);
    }

    fn raw(&self) -> *mut bindings::sk_buff {
        self.0.as_ptr()
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { own::scif_net_helper_len(self.raw()) }
    }

    /// Returns the number of packets that the frame would be on a wire.
    pub(crate) fn segments(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { own::scif_net_helper_segments(self.raw()) }
    }

    /// Returns whether the stack calls again at once, with another frame for the same queue.
    pub(crate) fn has_more_behind(&self) -> bool {
        // SAFETY: The stack has called for this frame.
        unsafe { own::scif_net_helper_more() }
    }

    /// Returns the description that the peer needs. EINVAL: the frame can't be described.
    pub(crate) fn describe(&self) -> Result<[u8; META]> {
        let mut meta = own::scif_net_meta { bytes: [0; META] };
        // SAFETY: By the type invariant.
        match unsafe { own::scif_net_helper_describe(self.raw(), &mut meta) } {
            true => Ok(meta.bytes),
            false => Err(EINVAL),
        }
    }

    /// Returns whether the frame may wait for an engine.
    pub(crate) fn may_wait(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { own::scif_net_helper_may_wait(self.raw()) }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { own::scif_net_helper_sent(self.raw()) };
    }
}

// SAFETY: The frame keeps the memory of its pieces.
unsafe impl Payload for Outgoing {
    fn piece(&self, index: usize) -> Option<(u64, u32)> {
        let mut phys = 0;
        // SAFETY: By the type invariant; the place for the address is valid.
        let len = unsafe { own::scif_net_helper_piece(self.raw(), index as u32, &mut phys) };
        (len != 0).then_some((phys, len))
    }

    fn copy_to(&self, from: u32, room: &Room<'_>) -> Result {
        let (to, len) = (room.as_mut_ptr(), room.size() as u32);
        // SAFETY: By the type invariant; the room is valid for stores of so many bytes.
        to_result(unsafe { own::scif_net_helper_copy_out(self.raw(), from, to, len) })
    }
}

/// A frame that is being received. The drop frees it.
///
/// # Invariants
///
/// This owns the frame.
pub(crate) struct Incoming(NonNull<bindings::sk_buff>);

impl Incoming {
    /// Creates an empty frame. ENOMEM: there is no memory.
    /// Context: NAPI.
    pub(crate) fn new(napi: &Napi) -> Result<Self> {
        // SAFETY: The context is valid, and is being polled.
        let raw = unsafe { own::scif_net_helper_begin(napi.raw()) };
        // INVARIANT: The frame has just been made.
        Ok(Self(NonNull::new(raw).ok_or(ENOMEM)?))
    }

    fn raw(&self) -> *mut bindings::sk_buff {
        self.0.as_ptr()
    }

    /// Copies the first `len` bytes of the peer's frame, of `total` bytes, and keeps a small frame
    /// as a whole, or the headers. Returns the number of bytes that it keeps. The frame is empty,
    /// and has room for at most 256 bytes.
    pub(crate) fn copy_headers(
        &mut self,
        from: &Received<'_>,
        len: usize,
        total: u32,
    ) -> Result<usize> {
        // SAFETY: By the type invariant.
        let room = unsafe { own::scif_net_helper_room(self.raw()) };
        // SAFETY: The frame is empty, so there is room for 256 bytes, which only this uses.
        let target = unsafe { CopyTarget::from_raw(room, len.min(ROOM)) };
        from.copy(0, 0, target)?;
        // SAFETY: So many bytes were copied.
        let kept = unsafe { own::scif_net_helper_keep(self.raw(), len as u32, total) };
        Ok(kept as usize)
    }

    /// Adds bytes of a piece of the peer's frame: the page itself, or a copy. EMSGSIZE: there are
    /// too many pieces. ENOMEM: there is no memory for a copy.
    pub(crate) fn add(
        &mut self,
        from: &mut Received<'_>,
        piece: usize,
        offset: usize,
        len: usize,
    ) -> Result {
        let (page, offset, is_shared) = match from.give(piece) {
            Some(page) => (page.into_raw(), offset, true),
            None => {
                let mut address = core::ptr::null_mut();
                // SAFETY: By the type invariant; the place for the address is valid.
                let page = unsafe { own::scif_net_helper_page(self.raw(), &mut address) };
                if page.is_null() {
                    return Err(ENOMEM);
                }
                // SAFETY: The page was just allocated, and no piece is longer.
                let target = unsafe { CopyTarget::from_raw(address, len.min(PAGE_SIZE)) };
                if let Err(error) = from.copy(piece, offset, target) {
                    // SAFETY: This owns the page.
                    unsafe { own::scif_net_helper_put_page(page) };
                    return Err(error);
                }
                (page, 0, false)
            }
        };
        let (offset, len) = (offset as u32, len as u32);
        // SAFETY: By the type invariant; the bytes are in the page, whose reference is given up.
        match unsafe { own::scif_net_helper_add(self.raw(), page, offset, len, is_shared) } {
            true => Ok(()),
            false => Err(EMSGSIZE),
        }
    }

    /// Applies the peer's description of the frame. `None` if it is wrong.
    pub(crate) fn finish(self, napi: &Napi, meta: &[u8; META]) -> Option<Self> {
        let meta = own::scif_net_meta { bytes: *meta };
        // SAFETY: By the type invariant; the context is valid.
        unsafe { own::scif_net_helper_finish(napi.raw(), self.raw(), &meta) }.then_some(self)
    }

    /// Returns the number of packets that the frame would be on a wire.
    pub(crate) fn segments(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { own::scif_net_helper_segments(self.raw()) }
    }

    /// Hands the frame to the stack.
    /// Context: NAPI.
    pub(crate) fn deliver(self, napi: &Napi) {
        let raw = self.raw();
        core::mem::forget(self);
        // SAFETY: The frame is given up; the context is being polled.
        unsafe { own::scif_net_helper_deliver(napi.raw(), raw) };
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { own::scif_net_helper_drop(self.raw()) };
    }
}
