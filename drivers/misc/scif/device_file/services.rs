// SPDX-License-Identifier: GPL-2.0

//! The calls of `linux/scif_services.h`.
//!
//! Each has its arm in [`perform`], and what takes it apart in a file of its own. Layouts are the
//! same for processes of 32 and 64 bits. What is common to all of them, sizes that grow and what
//! has to be zero, is read by [`read_sized`](crate::sys::uapi::read_sized).

mod memory;
mod names;
mod remote_address;
mod send_all;
mod status;

use super::call::Pointer;
use crate::{
    endpoint::Endpoint,
    sys::{
        chardev::nonblocking,
        uapi, //
    },
};
use kernel::{
    fs::File,
    prelude::*, //
};

/// Performs the call with that number, whose argument lies at `at`, of a caller with such pointers; ENOTTY if it is
/// none of these.
pub(super) fn perform(
    endpoint: &Endpoint,
    file: &File,
    cmd: u32,
    at: usize,
    pointer: Pointer,
) -> Result<isize> {
    match cmd {
        uapi::SCIF_BIND_NAME => names::bind(endpoint, at),
        uapi::SCIF_CONNECT_NAME => names::connect(endpoint, at, nonblocking(file)),
        uapi::SCIF_SEND_ALL => send_all::perform(endpoint, at, pointer),
        uapi::SCIF_NODE_STATUS => status::node_status(endpoint, at),
        uapi::SCIF_MAP_POLICY => status::map_policy(endpoint, at),
        uapi::SCIF_MEMORY_CREATE => memory::create(endpoint, at, pointer),
        uapi::SCIF_MEMORY_REGISTER => memory::register(endpoint, at),
        uapi::SCIF_REMOTE_ADDRESS => remote_address::find(endpoint, at),
        _ => Err(ENOTTY),
    }?;
    Ok(0)
}
