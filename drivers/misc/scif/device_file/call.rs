// SPDX-License-Identifier: GPL-2.0

//! The calls of `linux/scif_ioctl.h`, and those of the MIC library.
//!
//! The number of an ioctl names the call. As the size is part of the number, it also names the
//! layout of the argument. [`perform`] has an arm for each number of `linux/scif_ioctl.h`. If a
//! field lies elsewhere in another layout of a call, the call's function takes the native structure
//! and the pointers to the results. [`compat`](super::compat) and this file make the native
//! structure from the other layout.
//!
//! Only the fields that are results are written back. Before a call does anything, it checks that
//! its results can be written. So an EFAULT for a result costs neither data nor a connection,
//! unless another thread takes the memory away in between.
//!
//! # The numbers of the MIC library, behind the module parameter `mic_compat`
//!
//! The MIC library came before `linux/scif_ioctl.h`. It opens `/dev/mic/scif`. For calls with a
//! structure, its numbers have the size of a pointer instead of the size of the structure. The
//! structures are the same, except for one, and the other numbers are the same. So no number stands
//! for two layouts, and both devices serve both sets.
//!
//! The library was 64-bit only. So these numbers are unknown to 32-bit processes. SCIF_GET_VERSION
//! is unknown, too, because it would promise the others.

use super::services;
use crate::{
    arguments::{
        self,
        Direction,
        LocalSide,
        PortId,
        SignalTarget,
        SignalTargets,
        TransferOptions,
        WindowOptions, //
    },
    endpoint::Endpoint,
    sys::{
        buffer::Buffer,
        uapi::{
            self,
            result_ptr,
            ResultPtr, //
        },
    },
};
use kernel::{
    ioctl::{
        _IO,
        _IOC_NR,
        _IOC_TYPE,
        _IOWR, //
    },
    prelude::*,
    uaccess::UserPtr, //
};

/// A function that turns a pointer field into the address that the caller means.
pub(super) type Pointer = fn(u64) -> usize;

/// Returns the address in a pointer field of a 64-bit caller.
pub(super) fn native_pointer(pointer: u64) -> usize {
    pointer as usize
}

/// Performs the call with a number of `linux/scif_ioctl.h` or `linux/scif_services.h`. ENOTTY: the
/// number is unknown.
#[inline]
pub(super) fn perform(
    endpoint: &Endpoint,
    cmd: u32,
    arg: usize,
    pointer: Pointer,
    nonblocking: bool,
) -> Result<isize> {
    let at = pointer(arg as u64);
    match cmd {
        // The number says 8 bytes, but callers pass 2 or 4.
        uapi::SCIF_BIND => bind(endpoint, ResultPtr::at(at)),
        // For LISTEN and FENCE_WAIT, the argument is the value itself.
        uapi::SCIF_LISTEN => endpoint.listen(arg as i32),
        uapi::SCIF_CONNECT => connect(endpoint, at, nonblocking),
        uapi::SCIF_ACCEPTREQ => accept(endpoint, at),
        uapi::SCIF_ACCEPTREG => endpoint.take_over(uapi::read(at)?),
        uapi::SCIF_SEND => message(endpoint, true, at, pointer),
        uapi::SCIF_RECV => message(endpoint, false, at, pointer),
        uapi::SCIF_REG => register(endpoint, at, pointer),
        uapi::SCIF_UNREG => {
            let range: uapi::scifioctl_unreg = uapi::read(at)?;
            endpoint.unregister(range.offset, range.len)
        }
        uapi::SCIF_READFROM => copy(endpoint, Direction::Read, at, None),
        uapi::SCIF_WRITETO => copy(endpoint, Direction::Write, at, None),
        uapi::SCIF_VREADFROM => copy(endpoint, Direction::Read, at, Some(pointer)),
        uapi::SCIF_VWRITETO => copy(endpoint, Direction::Write, at, Some(pointer)),
        uapi::SCIF_GET_NODEIDS => {
            let count = result_ptr!(at, uapi::scifioctl_node_ids, len);
            return node_ids(endpoint, &uapi::read_unpadded(at)?, count, pointer);
        }
        uapi::SCIF_FENCE_MARK => fence_mark(endpoint, &uapi::read(at)?, pointer),
        uapi::SCIF_FENCE_WAIT => endpoint.fence_wait(arg as i32),
        uapi::SCIF_FENCE_SIGNAL => fence_signal(endpoint, &uapi::read_unpadded(at)?),
        _ => services::perform(endpoint, cmd, at, pointer, nonblocking),
    }?;
    Ok(0)
}

fn bind(endpoint: &Endpoint, port: ResultPtr<u16>) -> Result {
    let wanted = port.read()?;
    let port = port.writable()?;
    port.write(&endpoint.bind(wanted)?)
}

fn connect(endpoint: &Endpoint, at: usize, nonblocking: bool) -> Result {
    let request: uapi::scifioctl_connect = uapi::read(at)?;
    let uapi::scif_port_id { node, port } = request.peer;
    let own = result_ptr!(at, uapi::scifioctl_connect, self_).writable()?;
    let connected = endpoint.connect(PortId { node, port }, nonblocking)?;
    own.write(&uapi::scif_port_id {
        node: endpoint.scif.nodes.own_id(),
        port: connected.own,
    })
}

/// Accepts a connection (ACCEPTREQ).
fn accept(endpoint: &Endpoint, at: usize) -> Result {
    let request: uapi::scifioctl_accept = uapi::read(at)?;
    let block = arguments::is_set(request.flags, arguments::ACCEPT_SYNC)?;
    let peer = result_ptr!(at, uapi::scifioctl_accept, peer).writable()?;
    let handle = result_ptr!(at, uapi::scifioctl_accept, endpt).writable()?;
    let (PortId { node, port }, number) = endpoint.accept(block)?;
    let told = peer.write(&uapi::scif_port_id { node, port });
    told.and_then(|()| handle.write(&number))
        // Closes the accepted connection, as the caller does not learn its handle.
        .inspect_err(|_| drop(endpoint.take_accepted(number)))
}

/// Sends or receives.
fn message(endpoint: &Endpoint, sends: bool, at: usize, pointer: Pointer) -> Result {
    let request: uapi::scifioctl_msg = uapi::read_unpadded(at)?;
    let count = result_ptr!(at, uapi::scifioctl_msg, out_len);
    let block = arguments::is_set(request.flags, arguments::MESSAGE_BLOCK)?;
    let len = usize::try_from(request.len).map_err(|_| EINVAL)?;
    let count = count.writable_holding(&request.out_len)?;
    let mut moved = 0;
    if len > 0 {
        let memory = Buffer::user(UserPtr::from_addr(pointer(request.msg)), len);
        moved = if sends {
            endpoint.send(&memory, block)?
        } else {
            endpoint.receive(&memory, block)?
        };
    }
    count.write(&(moved as i32))
}

fn register(endpoint: &Endpoint, at: usize, pointer: Pointer) -> Result {
    let request: uapi::scifioctl_reg = uapi::read(at)?;
    // Refuses MAP_KERNEL: it is for kernel memory, which user space does not have.
    let options = WindowOptions::parse(request.prot, request.flags)?;
    let result = result_ptr!(at, uapi::scifioctl_reg, out_offset).writable()?;
    let address = UserPtr::from_addr(pointer(request.addr));
    let memory = Buffer::user(address, usize::try_from(request.len)?);
    let offset = endpoint.register(&memory, request.offset, options)?;
    result.write(&offset).inspect_err(|_| {
        // Unregisters the window, as the caller can't know of it.
        let _ = endpoint.unregister(offset, request.len);
    })
}

/// Copies between windows (READFROM, WRITETO), or, with a `pointer`, between the caller's memory
/// and windows (VREADFROM, VWRITETO).
fn copy(endpoint: &Endpoint, direction: Direction, at: usize, pointer: Option<Pointer>) -> Result {
    let request: uapi::scifioctl_copy = uapi::read_unpadded(at)?;
    let options = TransferOptions::parse(request.flags)?;
    let local = match pointer {
        Some(pointer) => {
            let address = UserPtr::from_addr(pointer(request.addr));
            LocalSide::Memory(Buffer::user(address, request.len as usize))
        }
        None => LocalSide::Windows(request.loffset),
    };
    endpoint.transfer(direction, &local, request.roffset, request.len, options)
}

/// Returns how many nodes are online, including this one, even if not all have fitted into the
/// caller's array. The original driver returned 0 and replaced the length of the array by the
/// number. So this function also writes the number to `count`.
fn node_ids(
    endpoint: &Endpoint,
    request: &uapi::scifioctl_node_ids,
    count: ResultPtr<i32>,
    pointer: Pointer,
) -> Result<isize> {
    let room = usize::try_from(request.len).map_err(|_| EINVAL)?;
    let own = ResultPtr::at(pointer(request.self_)).writable()?;
    let count = count.writable()?;
    let online = endpoint.scif.nodes.online()?;
    for (index, node) in online.iter().take(room).enumerate() {
        let address = pointer(request.nodes).wrapping_add(index * size_of::<u16>());
        uapi::write(address, node)?;
    }
    own.write(&endpoint.scif.nodes.own_id())?;
    let online = i32::try_from(online.len())?;
    count.write(&online)?;
    Ok(online as isize)
}

pub(super) fn fence_mark(
    endpoint: &Endpoint,
    request: &uapi::scifioctl_fence_mark,
    pointer: Pointer,
) -> Result {
    let origin = arguments::origin(request.flags)?;
    let mark: ResultPtr<i32> = ResultPtr::at(pointer(request.mark));
    let mark = mark.writable()?;
    mark.write(&endpoint.fence_mark(origin)?)
}

fn fence_signal(endpoint: &Endpoint, request: &uapi::scifioctl_fence_signal) -> Result {
    let target = |offset, value| SignalTarget { offset, value };
    let local = target(request.loff, request.lval);
    let remote = target(request.roff, request.rval);
    let (origin, targets) = SignalTargets::parse(request.flags, local, remote)?;
    endpoint.fence_signal(origin, targets)
}

// ----- the numbers of the MIC library ---------------------------------------------------------------

/// Result of SCIF_GET_VERSION.
const VERSION: isize = 1;

/// Returns the MIC library's number of a call.
const fn number(newer: u32) -> u32 {
    _IOWR::<u64>(_IOC_TYPE(newer), _IOC_NR(newer))
}

/// Calls that have another number in the MIC library, but the same structure.
const RENUMBERED: [u32; 11] = [
    uapi::SCIF_ACCEPTREQ,
    uapi::SCIF_SEND,
    uapi::SCIF_RECV,
    uapi::SCIF_REG,
    uapi::SCIF_UNREG,
    uapi::SCIF_READFROM,
    uapi::SCIF_WRITETO,
    uapi::SCIF_VREADFROM,
    uapi::SCIF_VWRITETO,
    uapi::SCIF_FENCE_MARK,
    uapi::SCIF_FENCE_SIGNAL,
];
const GET_NODEIDS: u32 = number(uapi::SCIF_GET_NODEIDS);
const GET_VERSION: u32 = _IO(_IOC_TYPE(uapi::SCIF_BIND), 23);

static_assert!(number(uapi::SCIF_ACCEPTREQ) == 0xc008_7304);
static_assert!(number(uapi::SCIF_FENCE_SIGNAL) == 0xc008_7311);
static_assert!(GET_VERSION == 0x7317);

/// Performs the call with a number of the MIC library that [`perform`] does not know. ENOTTY: the
/// number is unknown.
pub(super) fn perform_mic(
    endpoint: &Endpoint,
    cmd: u32,
    arg: usize,
    nonblocking: bool,
) -> Result<isize> {
    match cmd {
        GET_NODEIDS => {
            // In this layout, `len` comes before `self`.
            let count = ResultPtr::at(arg.wrapping_add(8));
            let request = uapi::scifioctl_node_ids {
                nodes: uapi::read(arg)?,
                len: count.read()?,
                self_: uapi::read(arg.wrapping_add(16))?,
            };
            return node_ids(endpoint, &request, count, native_pointer);
        }
        GET_VERSION => return Ok(VERSION),
        _ => (),
    }
    let mut renumbered = RENUMBERED.into_iter();
    let newer = renumbered
        .find(|newer| number(*newer) == cmd)
        .ok_or(ENOTTY)?;
    perform(endpoint, newer, arg, native_pointer, nonblocking)
}

#[kunit_tests(scif_device_file_call)]
mod tests {
    use super::*;
    use crate::{
        endpoint::scif::Scif,
        names::Names,
        node::Nodes,
        rma::caches::Caches,
        sync::work_queues::WorkQueues, //
    };
    use kernel::sync::Arc;

    /// Creates an endpoint of a node that has no peers.
    fn endpoint() -> Result<Arc<Endpoint>> {
        let caches = Caches::new(0, &WorkQueues::new()?)?;
        let scif = Scif::new(&Nodes::new(Some(0))?, &Names::new()?, &caches, 4096, true)?;
        Endpoint::new(&scif)
    }

    fn assert_newer_do_not_know(endpoint: &Endpoint, number: u32) {
        let result = perform(endpoint, number, 0, native_pointer, true);
        assert!(matches!(result, Err(error) if error == ENOTTY));
        #[cfg(CONFIG_COMPAT)]
        {
            let result = crate::device_file::compat::perform(endpoint, number, 0, true);
            assert!(matches!(result, Err(error) if error == ENOTTY));
        }
    }

    #[test]
    fn ioctl_number_of_one_layout_is_unknown_to_the_other() -> Result {
        let endpoint = endpoint()?;
        // These calls have the same structure in both sets.
        let common = [uapi::SCIF_BIND, uapi::SCIF_CONNECT, uapi::SCIF_ACCEPTREG];
        for nr in 0..=255 {
            let mic = _IOWR::<u64>(_IOC_TYPE(uapi::SCIF_BIND), nr);
            if !common.contains(&mic) {
                assert_newer_do_not_know(&endpoint, mic);
            }
        }
        assert_newer_do_not_know(&endpoint, GET_VERSION);
        let version = perform_mic(&endpoint, GET_VERSION, 0, true);
        assert!(matches!(version, Ok(VERSION)));
        Ok(())
    }
}
