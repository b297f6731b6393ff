// SPDX-License-Identifier: GPL-2.0

//! The numbers of the MIC library, behind the module parameter `mic_compat`.
//!
//! That library came before `linux/scif_ioctl.h`. It opens `/dev/mic/scif`, and its numbers for
//! calls with a structure carry the size of a pointer instead of the structure's. The structures
//! are the same, but for one; the remaining numbers are, too. So no number stands for two layouts,
//! and both sets are served on both devices.
//!
//! The library was 64-bit only: to 32-bit processes these numbers are unknown, with the version,
//! which would promise them.

use core::mem::offset_of;

use super::call::{
    native_pointer,
    Call, //
};
use crate::sys::uapi::{
    self,
    place,
    user_structure,
    Place, //
};
use kernel::{
    ioctl::{
        _IO,
        _IOC_NR,
        _IOC_TYPE,
        _IOWR, //
    },
    prelude::*,
};

/// What SCIF_GET_VERSION returns.
pub(super) const VERSION: isize = 1;

user_structure! {
    /// The argument of GET_NODEIDS.
    #[repr(C)]
    struct NodeIds {
        nodes: u64,
        len: i32,
        self_: u64,
    }
}

static_assert!(size_of::<NodeIds>() == 24);
static_assert!(offset_of!(NodeIds, len) == 8 && offset_of!(NodeIds, self_) == 16);

/// The MIC library's number of a call.
const fn number(newer: u32) -> u32 {
    _IOWR::<u64>(_IOC_TYPE(newer), _IOC_NR(newer))
}

const ACCEPTREQ: u32 = number(uapi::SCIF_ACCEPTREQ);
const SEND: u32 = number(uapi::SCIF_SEND);
const RECV: u32 = number(uapi::SCIF_RECV);
const REG: u32 = number(uapi::SCIF_REG);
const UNREG: u32 = number(uapi::SCIF_UNREG);
const READFROM: u32 = number(uapi::SCIF_READFROM);
const WRITETO: u32 = number(uapi::SCIF_WRITETO);
const VREADFROM: u32 = number(uapi::SCIF_VREADFROM);
const VWRITETO: u32 = number(uapi::SCIF_VWRITETO);
const GET_NODEIDS: u32 = number(uapi::SCIF_GET_NODEIDS);
const FENCE_MARK: u32 = number(uapi::SCIF_FENCE_MARK);
const FENCE_SIGNAL: u32 = number(uapi::SCIF_FENCE_SIGNAL);
const GET_VERSION: u32 = _IO(_IOC_TYPE(uapi::SCIF_BIND), 23);

static_assert!(ACCEPTREQ == 0xc008_7304 && FENCE_SIGNAL == 0xc008_7311);
static_assert!(GET_VERSION == 0x7317);

/// A call with a number that only the MIC library has; ENOTTY for another number.
pub(super) fn parse(cmd: u32, arg: usize) -> Result<Call> {
    let newer = match cmd {
        ACCEPTREQ => uapi::SCIF_ACCEPTREQ,
        SEND => uapi::SCIF_SEND,
        RECV => uapi::SCIF_RECV,
        REG => uapi::SCIF_REG,
        UNREG => uapi::SCIF_UNREG,
        READFROM => uapi::SCIF_READFROM,
        WRITETO => uapi::SCIF_WRITETO,
        VREADFROM => uapi::SCIF_VREADFROM,
        VWRITETO => uapi::SCIF_VWRITETO,
        FENCE_MARK => uapi::SCIF_FENCE_MARK,
        FENCE_SIGNAL => uapi::SCIF_FENCE_SIGNAL,
        GET_NODEIDS => {
            let request: NodeIds = uapi::read(arg)?;
            return Ok(Call::NodeIds {
                nodes: native_pointer(request.nodes),
                room: request.len,
                own: Place::at(native_pointer(request.self_)),
                count: place!(arg, NodeIds, len),
            });
        }
        GET_VERSION => return Ok(Call::Version),
        _ => return Err(ENOTTY),
    };
    Call::parse(newer, arg, native_pointer)
}

#[kunit_tests(scif_device_file_mic)]
mod tests {
    use super::*;

    fn assert_newer_do_not_know(number: u32) {
        let call = Call::parse(number, 0, native_pointer);
        assert!(matches!(call, Err(error) if error == ENOTTY));
        #[cfg(CONFIG_COMPAT)]
        {
            let call = crate::device_file::compat::parse(number, 0);
            assert!(matches!(call, Err(error) if error == ENOTTY));
        }
    }

    #[test]
    fn no_number_stands_for_two_layouts() {
        // These have the same structure in both sets.
        let common = [uapi::SCIF_BIND, uapi::SCIF_CONNECT, uapi::SCIF_ACCEPTREG];
        for nr in 0..=255 {
            let mic = _IOWR::<u64>(_IOC_TYPE(uapi::SCIF_BIND), nr);
            if !common.contains(&mic) {
                assert_newer_do_not_know(mic);
            }
        }
        assert_newer_do_not_know(GET_VERSION);
        assert!(matches!(parse(GET_VERSION, 0), Ok(Call::Version)));
        assert!(matches!(parse(uapi::SCIF_BIND, 0), Err(error) if error == ENOTTY));
    }
}
