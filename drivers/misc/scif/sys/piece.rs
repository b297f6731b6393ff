// SPDX-License-Identifier: GPL-2.0

//! A part of a range of bytes that lies in one page, and how the CPU copies from and to it: a page of RAM is
//! mapped for that time only, memory of a device is mapped already.

use core::ptr::NonNull;

use kernel::{
    prelude::*,
    sync::barrier, //
};

use super::bindings as own;

/// See the head of this file.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) place: Place,
    pub(super) len: usize,
    /// Where it begins in the range.
    pub(super) done: usize,
}

/// Where the bytes of a piece are; its maker keeps them there as long as there is the piece.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// In a page of RAM, at this physical address.
    Page(u64),
    /// In memory of a device, which the CPU has mapped there.
    Device(NonNull<u8>),
}

/// What was stored in memory of a device arrives before what is stored later.
fn flush() {
    barrier::mb(barrier::Write);
}

impl Piece {
    /// Copies the bytes out, to their place in the range that begins at `to`.
    ///
    /// # Safety
    ///
    /// The range is valid for writes, and the piece is in it.
    pub(super) unsafe fn copy_to(&self, to: *mut u8) {
        // SAFETY: By the contract of this function.
        unsafe {
            let to = to.add(self.done).cast();
            match self.place {
                Place::Page(address) => own::scif_helper_copy_from_page(to, address, self.len),
                Place::Device(from) => {
                    own::scif_helper_copy_from_io(to, from.as_ptr().cast(), self.len)
                }
            }
        }
    }

    /// Copies the bytes in, from their place in the range that begins at `from`.
    ///
    /// # Safety
    ///
    /// The range is valid for reads, and the piece is in it.
    pub(super) unsafe fn copy_from(&self, from: *const u8) {
        // SAFETY: By the contract of this function.
        unsafe {
            let from = from.add(self.done).cast();
            match self.place {
                Place::Page(address) => own::scif_helper_copy_to_page(address, from, self.len),
                Place::Device(to) => {
                    own::scif_helper_copy_to_io(to.as_ptr().cast(), from, self.len);
                    flush();
                }
            }
        }
    }

    /// As [`Self::copy_to`], to memory of a device.
    ///
    /// # Safety
    ///
    /// As there; the range is `ioremap`ped.
    pub(super) unsafe fn copy_to_device(&self, to: *mut u8) {
        // SAFETY: By the contract of this function.
        unsafe {
            let to = to.add(self.done).cast();
            match self.place {
                Place::Page(address) => own::scif_helper_copy_page_to_io(to, address, self.len),
                Place::Device(from) => {
                    own::scif_helper_copy_io_to_io(to, from.as_ptr().cast(), self.len)
                }
            }
        }
    }

    /// As [`Self::copy_from`], from memory of a device.
    ///
    /// # Safety
    ///
    /// As there; the range is `ioremap`ped.
    pub(super) unsafe fn copy_from_device(&self, from: *const u8) {
        // SAFETY: By the contract of this function.
        unsafe {
            let from = from.add(self.done).cast();
            match self.place {
                Place::Page(address) => own::scif_helper_copy_page_from_io(address, from, self.len),
                Place::Device(to) => {
                    own::scif_helper_copy_io_to_io(to.as_ptr().cast(), from, self.len);
                    flush();
                }
            }
        }
    }

    /// Stores a number, which is all of the piece, little-endian: in one access where it is aligned, else in
    /// two, the lower half last. EINVAL unless it is aligned to 4 bytes, and that long.
    pub(super) fn store_u64(&self, value: u64) -> Result {
        if self.len != size_of::<u64>() {
            return Err(EINVAL);
        }
        match self.place {
            Place::Page(address) if address % 4 != 0 => return Err(EINVAL),
            // SAFETY: Its maker keeps the page; the piece lies in it, and is aligned to 4 bytes.
            Place::Page(address) => unsafe { own::scif_helper_store_u64(address, value) },
            Place::Device(to) => {
                let to = to.as_ptr().cast::<u64>();
                if to.is_aligned() {
                    // SAFETY: It is mapped, as long, and aligned.
                    unsafe { own::scif_helper_io_write_u64(to.cast(), value) };
                } else {
                    let half = to.cast::<u32>();
                    if !half.is_aligned() {
                        return Err(EINVAL);
                    }
                    // SAFETY: Both halves are in the piece, and aligned.
                    unsafe {
                        own::scif_helper_io_write_u32(half.add(1).cast(), (value >> 32) as u32)
                    };
                    flush();
                    // SAFETY: As above.
                    unsafe { own::scif_helper_io_write_u32(half.cast(), value as u32) };
                }
                flush();
            }
        }
        Ok(())
    }
}
