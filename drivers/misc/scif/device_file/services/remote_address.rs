// SPDX-License-Identifier: GPL-2.0

//! `SCIF_REMOTE_ADDRESS`: where another device of this node finds memory of the peer.

use crate::{
    endpoint::Endpoint,
    sys::uapi::{
        self,
        place, //
    },
};
use kernel::prelude::*;

/// The bytes of the first version.
const LEAST: usize = 48;

static_assert!(size_of::<uapi::scif_remote_address>() >= LEAST);

pub(super) fn find(endpoint: &Endpoint, at: usize) -> Result {
    let request: uapi::scif_remote_address = uapi::read_sized(at, LEAST)?;
    if request.flags != 0 || request.reserved != 0 {
        return Err(EINVAL);
    }
    let (address, contiguous) = endpoint.remote_address(request.offset, request.len)?;
    place!(at, uapi::scif_remote_address, address)
        .writable()?
        .write(&address)?;
    place!(at, uapi::scif_remote_address, contiguous)
        .writable()?
        .write(&contiguous)
}
