// SPDX-License-Identifier: GPL-2.0

//! The calls of `linux/scif_services.h`.
//!
//! Each call has its arm in [`perform`], and a function that parses its argument. Layouts are the
//! same for processes of 32 and 64 bits. [`read_sized`] does what all structures need: it accepts
//! sizes that grow, and checks bytes that have to be zero.

use super::call::Pointer;
use crate::{
    arguments::{
        self,
        WindowOptions, //
    },
    endpoint::{
        pinned::PinnedPages,
        Endpoint, //
    },
    names::Name,
    node::statuses::{
        StatusView,
        STATUS_NAME, //
    },
    sys::{
        anonymous_file,
        buffer::Buffer,
        uapi::{
            self,
            read_sized,
            result_ptr, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    uaccess::UserPtr, //
};

/// Name in `/proc/PID/fd` of memory that was pinned once.
const MEMORY_NAME: &CStr = c"[scif-memory]";

/// Sizes in bytes of the structures' first versions.
const BIND_NAME: usize = 24;
const CONNECT_NAME: usize = 32;
const SEND_ALL: usize = 32;
const NODE_STATUS: usize = 24;
const MAP_POLICY: usize = 16;
const MEMORY_CREATE: usize = 40;
const MEMORY_REGISTER: usize = 48;
const REMOTE_ADDRESS: usize = 48;

static_assert!(size_of::<uapi::scif_memory_create>() >= MEMORY_CREATE);
static_assert!(size_of::<uapi::scif_memory_register>() >= MEMORY_REGISTER);
static_assert!(size_of::<uapi::scif_remote_address>() >= REMOTE_ADDRESS);

/// Performs the call `cmd`, whose argument lies at `at`, for a caller whose pointers `pointer`
/// reads. ENOTTY: the number is unknown.
pub(super) fn perform(
    endpoint: &Endpoint,
    cmd: u32,
    at: usize,
    pointer: Pointer,
    nonblocking: bool,
) -> Result {
    match cmd {
        uapi::SCIF_BIND_NAME => bind_name(endpoint, at),
        uapi::SCIF_CONNECT_NAME => connect_name(endpoint, at, nonblocking),
        uapi::SCIF_SEND_ALL => send_all(endpoint, at, pointer),
        uapi::SCIF_NODE_STATUS => node_status(endpoint, at),
        uapi::SCIF_MAP_POLICY => map_policy(endpoint, at),
        uapi::SCIF_MEMORY_CREATE => memory_create(endpoint, at, pointer),
        uapi::SCIF_MEMORY_REGISTER => memory_register(endpoint, at),
        uapi::SCIF_REMOTE_ADDRESS => remote_address(endpoint, at),
        _ => Err(ENOTTY),
    }
}

/// Returns whether `flag` is set. EINVAL: another flag is set, or a reserved field is not zero.
fn is_set(flags: u32, flag: u32, reserved: u64) -> Result<bool> {
    if flags & !flag != 0 || reserved != 0 {
        return Err(EINVAL);
    }
    Ok(flags != 0)
}

/// Gives the caller's port a name.
fn bind_name(endpoint: &Endpoint, at: usize) -> Result {
    let request: uapi::scif_bind_name = read_sized(at, BIND_NAME)?;
    let any = is_set(request.flags, uapi::SCIF_NAME_ANY, request.reserved)?;
    let number = (!any).then_some(request.name);
    let name = result_ptr!(at, uapi::scif_bind_name, name).writable()?;
    name.write(&endpoint.bind_name(request.name_class, number)?)
}

/// Connects to the port that has a name.
fn connect_name(endpoint: &Endpoint, at: usize, nonblocking: bool) -> Result {
    let request: uapi::scif_connect_name = read_sized(at, CONNECT_NAME)?;
    is_set(
        request.flags,
        0,
        request.reserved2 | u64::from(request.reserved),
    )?;
    let name = Name {
        class: request.name_class,
        number: request.name,
    };
    let own_port = result_ptr!(at, uapi::scif_connect_name, own_port).writable()?;
    let peer_port = result_ptr!(at, uapi::scif_connect_name, peer_port).writable()?;
    let connected = endpoint.connect_name(request.node, name, nonblocking)?;
    own_port.write(&connected.own)?;
    peer_port.write(&connected.peer)
}

/// Sends all bytes or none.
fn send_all(endpoint: &Endpoint, at: usize, pointer: Pointer) -> Result {
    let request: uapi::scif_send_all = read_sized(at, SEND_ALL)?;
    let block = is_set(request.flags, uapi::SCIF_SEND_ALL_BLOCK, request.reserved)?;
    // Like SEND, succeeds on any endpoint.
    if request.len == 0 {
        return Ok(());
    }
    let len = usize::try_from(request.len).map_err(|_| EMSGSIZE)?;
    let message = Buffer::user(UserPtr::from_addr(pointer(request.msg)), len);
    endpoint.send_all(&message, block)
}

/// Gives the caller a descriptor of the status of a node.
fn node_status(endpoint: &Endpoint, at: usize) -> Result {
    let request: uapi::scif_node_status = read_sized(at, NODE_STATUS)?;
    is_set(
        request.flags,
        0,
        request.reserved2 | u64::from(request.reserved),
    )?;
    let number = result_ptr!(at, uapi::scif_node_status, fd).writable()?;
    let view = StatusView::new(endpoint.scif.nodes.statuses.get(request.node)?)?;
    anonymous_file::descriptor(STATUS_NAME, view, |fd| number.write(fd))
}

/// Sets the policy of later mappings: the bytes that such a mapping shows once the peer is lost.
fn map_policy(endpoint: &Endpoint, at: usize) -> Result {
    let request: uapi::scif_map_policy = read_sized(at, MAP_POLICY)?;
    let ones = is_set(
        request.flags,
        uapi::SCIF_MAP_ONES_AFTER_LOSS,
        request.reserved,
    )?;
    endpoint.ones_after_loss.store(ones, Relaxed);
    Ok(())
}

/// Pins memory that many connections may register. Gives the caller a descriptor of it.
fn memory_create(endpoint: &Endpoint, at: usize, pointer: Pointer) -> Result {
    let request: uapi::scif_memory_create = read_sized(at, MEMORY_CREATE)?;
    let of_device = is_set(request.flags, uapi::SCIF_MEMORY_DEVICE, request.reserved)?;
    let protection = arguments::protection(request.prot)?;
    let told = result_ptr!(at, uapi::scif_memory_create, fd).writable()?;
    let pinned = if of_device {
        endpoint
            .scif
            .pin_device(request.address, request.len, protection)?
    } else {
        let address = UserPtr::from_addr(pointer(request.address));
        let memory = Buffer::user(address, usize::try_from(request.len)?);
        endpoint.scif.pin(&memory, protection)?
    };
    let pinned = Arc::new(pinned, GFP_KERNEL_ACCOUNT)?;
    anonymous_file::object_descriptor(MEMORY_NAME, pinned, |fd| told.write(fd))
}

/// Makes a window of memory that was pinned before.
fn memory_register(endpoint: &Endpoint, at: usize) -> Result {
    let request: uapi::scif_memory_register = read_sized(at, MEMORY_REGISTER)?;
    if request.reserved != 0 {
        return Err(EINVAL);
    }
    let flags = i32::try_from(request.flags).map_err(|_| EINVAL)?;
    let options = WindowOptions::parse(request.prot as i32, flags)?;
    let told = result_ptr!(at, uapi::scif_memory_register, offset).writable()?;
    let pinned = anonymous_file::object_behind::<PinnedPages>(request.fd)?;
    let offset =
        endpoint.register_part(&pinned, request.from, request.len, request.offset, options)?;
    told.write(&offset).inspect_err(|_| {
        // Unregisters the window, as the caller can't know of it.
        let _ = endpoint.unregister(offset, request.len);
    })
}

/// Returns the address at which another device of this node reaches memory of the peer.
fn remote_address(endpoint: &Endpoint, at: usize) -> Result {
    let request: uapi::scif_remote_address = read_sized(at, REMOTE_ADDRESS)?;
    is_set(request.flags, 0, request.reserved)?;
    let (address, contiguous) = endpoint.remote_address(request.offset, request.len)?;
    result_ptr!(at, uapi::scif_remote_address, address)
        .writable()?
        .write(&address)?;
    result_ptr!(at, uapi::scif_remote_address, contiguous)
        .writable()?
        .write(&contiguous)
}
