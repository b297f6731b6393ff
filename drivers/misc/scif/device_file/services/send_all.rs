// SPDX-License-Identifier: GPL-2.0

//! The call that sends all bytes or none: its arguments.

use crate::{
    device_file::call::Pointer,
    endpoint::Endpoint,
    sys::{
        buffer::Buffer,
        uapi::{
            self,
            read_sized, //
        }, //
    },
};
use kernel::{
    prelude::*,
    uaccess::UserPtr, //
};

/// Bytes of the structure's first version.
const SEND: usize = 32;

pub(super) fn perform(endpoint: &Endpoint, at: usize, pointer: Pointer) -> Result {
    let request: uapi::scif_send_all = read_sized(at, SEND)?;
    if request.flags & !uapi::SCIF_SEND_ALL_BLOCK != 0 || request.reserved != 0 {
        return Err(EINVAL);
    }
    // As SEND, on any endpoint.
    if request.len == 0 {
        return Ok(());
    }
    let len = usize::try_from(request.len).map_err(|_| EMSGSIZE)?;
    let message = Buffer::user(UserPtr::from_addr(pointer(request.msg)), len);
    let block = request.flags & uapi::SCIF_SEND_ALL_BLOCK != 0;
    endpoint.send_all(&message, block)
}
