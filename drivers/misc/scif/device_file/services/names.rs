// SPDX-License-Identifier: GPL-2.0

//! The calls about names: their arguments, and where their results go.

use crate::{
    endpoint::Endpoint,
    names::table::Name,
    sys::uapi::{
        self,
        place,
        read_sized, //
    },
};
use kernel::prelude::*;

/// Bytes of the structures' first versions.
const BIND: usize = 24;
const CONNECT: usize = 32;

pub(super) fn bind(endpoint: &Endpoint, at: usize) -> Result {
    let request: uapi::scif_bind_name = read_sized(at, BIND)?;
    if request.flags & !uapi::SCIF_NAME_ANY != 0 || request.reserved != 0 {
        return Err(EINVAL);
    }
    let number = match request.flags & uapi::SCIF_NAME_ANY {
        0 => Some(request.name),
        _ => None,
    };
    let name = place!(at, uapi::scif_bind_name, name).writable()?;
    name.write(&endpoint.bind_name(request.name_class, number)?)
}

pub(super) fn connect(endpoint: &Endpoint, at: usize, nonblocking: bool) -> Result {
    let request: uapi::scif_connect_name = read_sized(at, CONNECT)?;
    if request.flags != 0 || request.reserved != 0 || request.reserved2 != 0 {
        return Err(EINVAL);
    }
    let name = Name {
        class: request.name_class,
        number: request.name,
    };
    let own_port = place!(at, uapi::scif_connect_name, own_port).writable()?;
    let peer_port = place!(at, uapi::scif_connect_name, peer_port).writable()?;
    let connected = endpoint.connect_name(request.node, name, nonblocking)?;
    own_port.write(&connected.own_port)?;
    peer_port.write(&connected.peer_port)
}
