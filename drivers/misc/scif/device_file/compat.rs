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
//! The size is part of the number, so the number tells which layout was meant. Numbers with the
//! 64-bit layout are served as well: that is what x32 and 32-bit processes of other architectures
//! use.
//!
//! Pointers are 64-bit fields here, too. C may sign-extend a pointer on its way into one, so only
//! the lower half is taken.

use core::mem::offset_of;

use super::call::{
    self,
    Pointer, //
};
use crate::{
    arguments::Direction,
    endpoint::Endpoint,
    sys::{
        chardev::compat_pointer,
        uapi::{
            self,
            place,
            user_structure, //
        },
    },
};
use kernel::{
    ioctl::{
        _IOC_NR,
        _IOC_TYPE,
        _IOWR, //
    },
    prelude::*,
    transmute::FromBytes, //
};

user_structure! {
    #[repr(C, packed(4))]
    struct Msg as uapi::scifioctl_msg {
        msg: u64,
        len: i32,
        flags: i32,
        out_len: i32,
    }

    #[repr(C, packed(4))]
    struct Copied as uapi::scifioctl_copy {
        loffset: i64,
        len: u64,
        roffset: i64,
        addr: u64,
        flags: i32,
    }

    #[repr(C, packed(4))]
    struct FenceMark as uapi::scifioctl_fence_mark {
        flags: i32,
        mark: u64,
    }

    #[repr(C, packed(4))]
    struct FenceSignal as uapi::scifioctl_fence_signal {
        loff: i64,
        lval: u64,
        roff: i64,
        rval: u64,
        flags: i32,
    }

    #[repr(C, packed(4))]
    struct NodeIds as uapi::scifioctl_node_ids {
        nodes: u64,
        self_: u64,
        len: i32,
    }
}

static_assert!(size_of::<Msg>() == 20 && offset_of!(Msg, out_len) == 16);
static_assert!(size_of::<Copied>() == 36 && offset_of!(Copied, flags) == 32);
static_assert!(size_of::<FenceMark>() == 12 && offset_of!(FenceMark, mark) == 4);
static_assert!(size_of::<FenceSignal>() == 36 && offset_of!(FenceSignal, flags) == 32);
static_assert!(size_of::<NodeIds>() == 20 && offset_of!(NodeIds, len) == 16);

/// The number of a call whose argument is a `T` here.
const fn number<T>(native: u32) -> u32 {
    _IOWR::<T>(_IOC_TYPE(native), _IOC_NR(native))
}

const SEND: u32 = number::<Msg>(uapi::SCIF_SEND);
const RECV: u32 = number::<Msg>(uapi::SCIF_RECV);
const READFROM: u32 = number::<Copied>(uapi::SCIF_READFROM);
const WRITETO: u32 = number::<Copied>(uapi::SCIF_WRITETO);
const VREADFROM: u32 = number::<Copied>(uapi::SCIF_VREADFROM);
const VWRITETO: u32 = number::<Copied>(uapi::SCIF_VWRITETO);
const GET_NODEIDS: u32 = number::<NodeIds>(uapi::SCIF_GET_NODEIDS);
const FENCE_MARK: u32 = number::<FenceMark>(uapi::SCIF_FENCE_MARK);
const FENCE_SIGNAL: u32 = number::<FenceSignal>(uapi::SCIF_FENCE_SIGNAL);

// What "gcc -m32" makes of the header.
static_assert!(SEND == 0xc014_7306 && RECV == 0xc014_7307);
static_assert!(READFROM == 0xc024_730a && WRITETO == 0xc024_730b);
static_assert!(VREADFROM == 0xc024_730c && VWRITETO == 0xc024_730d);
static_assert!(GET_NODEIDS == 0xc014_730e);
static_assert!(FENCE_MARK == 0xc00c_730f && FENCE_SIGNAL == 0xc024_7311);

/// The pointers of 32-bit callers.
const POINTER: Pointer = |pointer| compat_pointer(pointer as usize);

/// Performs a call of a 32-bit process; ENOTTY for an unknown number.
pub(super) fn perform(
    endpoint: &Endpoint,
    cmd: u32,
    arg: usize,
    nonblocking: bool,
) -> Result<isize> {
    let at = compat_pointer(arg);
    match cmd {
        SEND | RECV => {
            let count = place!(at, Msg, out_len);
            let request = read::<Msg, _>(at)?;
            call::message(endpoint, cmd == SEND, &request, count, POINTER)
        }
        READFROM => call::copy_windows(endpoint, Direction::Read, &read::<Copied, _>(at)?),
        WRITETO => call::copy_windows(endpoint, Direction::Write, &read::<Copied, _>(at)?),
        VREADFROM => call::copy_memory(endpoint, Direction::Read, &read::<Copied, _>(at)?, POINTER),
        VWRITETO => call::copy_memory(endpoint, Direction::Write, &read::<Copied, _>(at)?, POINTER),
        GET_NODEIDS => {
            let count = place!(at, NodeIds, len);
            return call::node_ids(endpoint, &read::<NodeIds, _>(at)?, count, POINTER);
        }
        FENCE_MARK => call::fence_mark(endpoint, &read::<FenceMark, _>(at)?, POINTER),
        FENCE_SIGNAL => call::fence_signal(endpoint, &read::<FenceSignal, _>(at)?),
        _ => return call::perform(endpoint, cmd, arg, POINTER, nonblocking),
    }?;
    Ok(0)
}

/// Reads a structure, as the native one.
fn read<T: FromBytes, N: From<T>>(at: usize) -> Result<N> {
    uapi::read::<T>(at).map(N::from)
}
