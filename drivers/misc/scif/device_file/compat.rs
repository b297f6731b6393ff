// SPDX-License-Identifier: GPL-2.0

//! The calls of 32-bit processes.
//!
//! On 32-bit x86 a 64-bit number is aligned to four bytes. So some structures of
//! `linux/scif_ioctl.h` end earlier there, and in one of them a field lies elsewhere:
//!
//! | Structure              | 64-bit | i386 | What differs          |
//! |------------------------|--------|------|-----------------------|
//! | scifioctl_connect      | 8      | 8    |                       |
//! | scifioctl_accept       | 16     | 16   |                       |
//! | scifioctl_msg          | 24     | 20   | its end               |
//! | scifioctl_reg          | 40     | 40   |                       |
//! | scifioctl_unreg        | 16     | 16   |                       |
//! | scifioctl_copy         | 40     | 36   | its end               |
//! | scifioctl_fence_mark   | 16     | 12   | `mark` at 4, not at 8 |
//! | scifioctl_fence_signal | 40     | 36   | its end               |
//! | scifioctl_node_ids     | 24     | 20   | its end               |
//!
//! The size is part of the number, so the number tells which layout the caller means. A structure
//! that differs only at its end is read as far as both layouts have it, see
//! [`uapi::read_unpadded`]. Numbers with the 64-bit layout are served as well, because x32 and
//! 32-bit processes of other architectures use this layout.
//!
//! Pointers are 64-bit fields here, too. C may sign-extend a pointer on its way into such a field,
//! so only the lower half is taken.

use super::call::{
    self,
    Pointer, //
};
use crate::{
    endpoint::Endpoint,
    sys::{
        chardev::compat_pointer,
        uapi, //
    },
};
use kernel::{
    ioctl::{
        _IOC_NR,
        _IOC_TYPE,
        _IOWR, //
    },
    prelude::*,
    uapi::_IOC_SIZESHIFT, //
};

/// Calls whose structure has no padding at its end on i386.
const UNPADDED: [u32; 8] = [
    uapi::SCIF_SEND,
    uapi::SCIF_RECV,
    uapi::SCIF_READFROM,
    uapi::SCIF_WRITETO,
    uapi::SCIF_VREADFROM,
    uapi::SCIF_VWRITETO,
    uapi::SCIF_GET_NODEIDS,
    uapi::SCIF_FENCE_SIGNAL,
];
const FENCE_MARK: u32 = _IOWR::<[u32; 3]>(
    _IOC_TYPE(uapi::SCIF_FENCE_MARK),
    _IOC_NR(uapi::SCIF_FENCE_MARK),
);

/// Returns the number of a call whose structure is four bytes shorter on i386.
const fn number(native: u32) -> u32 {
    native - (4 << _IOC_SIZESHIFT)
}

// Numbers that `gcc -m32` makes from the header.
static_assert!(number(uapi::SCIF_SEND) == 0xc014_7306);
static_assert!(number(uapi::SCIF_RECV) == 0xc014_7307);
static_assert!(number(uapi::SCIF_READFROM) == 0xc024_730a);
static_assert!(number(uapi::SCIF_WRITETO) == 0xc024_730b);
static_assert!(number(uapi::SCIF_VREADFROM) == 0xc024_730c);
static_assert!(number(uapi::SCIF_VWRITETO) == 0xc024_730d);
static_assert!(number(uapi::SCIF_GET_NODEIDS) == 0xc014_730e);
static_assert!(number(uapi::SCIF_FENCE_SIGNAL) == 0xc024_7311);
static_assert!(FENCE_MARK == 0xc00c_730f);

/// Pointer function for 32-bit callers.
const POINTER: Pointer = |pointer| compat_pointer(pointer as usize);

/// Performs a call of a 32-bit process. ENOTTY: the number is unknown.
pub(super) fn perform(
    endpoint: &Endpoint,
    cmd: u32,
    arg: usize,
    nonblocking: bool,
) -> Result<isize> {
    if cmd == FENCE_MARK {
        let at = compat_pointer(arg);
        let request = uapi::scifioctl_fence_mark {
            flags: uapi::read(at)?,
            mark: uapi::read(at.wrapping_add(4))?,
        };
        call::fence_mark(endpoint, &request, POINTER)?;
        return Ok(0);
    }
    let mut unpadded = UNPADDED.into_iter();
    let native = unpadded
        .find(|native| number(*native) == cmd)
        .unwrap_or(cmd);
    call::perform(endpoint, native, arg, POINTER, nonblocking)
}
