// SPDX-License-Identifier: GPL-2.0

//! The calls of `linux/scif_ioctl.h`, and those of the MIC library.
//!
//! The number of an ioctl names the call and, since the size is part of it, the layout of its
//! argument. [`perform`] has an arm for each number of `linux/scif_ioctl.h`. Where a field lies elsewhere in
//! another layout of the same call, its function takes the native structure, which [`compat`](super::compat) and
//! this file make of theirs, and the places of the results.
//!
//! Of the structures only the fields that are results are written back. Before a call does
//! anything, the places of its results are found writable: EFAULT for one of them costs neither
//! data nor a connection, unless another thread takes the memory away in between.
//!
//! # The numbers of the MIC library, behind the module parameter `mic_compat`
//!
//! That library came before `linux/scif_ioctl.h`. It opens `/dev/mic/scif`, and its numbers for
//! calls with a structure carry the size of a pointer instead of the structure's. The structures
//! are the same, but for one; the remaining numbers are, too. So no number stands for two layouts,
//! and both sets are served on both devices.
//!
//! The library was 64-bit only: to 32-bit processes these numbers are unknown, with the version,
//! which would promise them.

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
            place,
            Place, //
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

/// Turns a field that holds a pointer into the address that the caller means.
pub(super) type Pointer = fn(u64) -> usize;

/// The pointers of 64-bit callers.
pub(super) fn native_pointer(pointer: u64) -> usize {
    pointer as usize
}

/// Performs the call with a number of `linux/scif_ioctl.h` or `linux/scif_services.h`; ENOTTY for another number.
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
        // The number says 8 bytes; callers pass 2 or 4.
        uapi::SCIF_BIND => bind(endpoint, Place::at(at)),
        // Here and in FENCE_WAIT the argument is the value itself.
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
            let count = place!(at, uapi::scifioctl_node_ids, len);
            return node_ids(endpoint, &uapi::read_unpadded(at)?, count, pointer);
        }
        uapi::SCIF_FENCE_MARK => fence_mark(endpoint, &uapi::read(at)?, pointer),
        uapi::SCIF_FENCE_WAIT => endpoint.fence_wait(arg as i32),
        uapi::SCIF_FENCE_SIGNAL => fence_signal(endpoint, &uapi::read_unpadded(at)?),
        _ => services::perform(endpoint, cmd, at, pointer, nonblocking),
    }?;
    Ok(0)
}

fn bind(endpoint: &Endpoint, port: Place<u16>) -> Result {
    let wanted = port.read()?;
    let port = port.writable()?;
    port.write(&endpoint.bind(wanted)?)
}

fn connect(endpoint: &Endpoint, at: usize, nonblocking: bool) -> Result {
    let request: uapi::scifioctl_connect = uapi::read(at)?;
    let uapi::scif_port_id { node, port } = request.peer;
    let own = place!(at, uapi::scifioctl_connect, self_).writable()?;
    let connected = endpoint.connect(PortId { node, port }, nonblocking)?;
    own.write(&uapi::scif_port_id {
        node: endpoint.scif.nodes.own_id(),
        port: connected.own,
    })
}

/// ACCEPTREQ
fn accept(endpoint: &Endpoint, at: usize) -> Result {
    let request: uapi::scifioctl_accept = uapi::read(at)?;
    let block = arguments::is_set(request.flags, arguments::ACCEPT_SYNC)?;
    let peer = place!(at, uapi::scifioctl_accept, peer).writable()?;
    let handle = place!(at, uapi::scifioctl_accept, endpt).writable()?;
    let (PortId { node, port }, number) = endpoint.accept(block)?;
    let told = peer.write(&uapi::scif_port_id { node, port });
    told.and_then(|()| handle.write(&number))
        // The caller does not learn the handle, so this closes the accepted connection.
        .inspect_err(|_| drop(endpoint.take_accepted(number)))
}

/// Sends, or receives.
fn message(endpoint: &Endpoint, sends: bool, at: usize, pointer: Pointer) -> Result {
    let request: uapi::scifioctl_msg = uapi::read_unpadded(at)?;
    let count = place!(at, uapi::scifioctl_msg, out_len);
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
    // MAP_KERNEL is for kernel memory, which user space has none of.
    let options = WindowOptions::parse(request.prot, request.flags)?;
    let result = place!(at, uapi::scifioctl_reg, out_offset).writable()?;
    let address = UserPtr::from_addr(pointer(request.addr));
    let memory = Buffer::user(address, usize::try_from(request.len)?);
    let offset = endpoint.register(&memory, request.offset, options)?;
    result.write(&offset).inspect_err(|_| {
        // The caller can't know of the window.
        let _ = endpoint.unregister(offset, request.len);
    })
}

/// READFROM and WRITETO, between windows; with a `pointer` VREADFROM and VWRITETO, between the caller's memory
/// and windows.
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

/// Returns how many nodes are online, this one included, whether or not all fitted. The original
/// driver returned 0 and put the number where the room had been said, at `count`: that is done, too.
fn node_ids(
    endpoint: &Endpoint,
    request: &uapi::scifioctl_node_ids,
    count: Place<i32>,
    pointer: Pointer,
) -> Result<isize> {
    let room = usize::try_from(request.len).map_err(|_| EINVAL)?;
    let own = Place::at(pointer(request.self_)).writable()?;
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
    let mark: Place<i32> = Place::at(pointer(request.mark));
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

/// What SCIF_GET_VERSION returns.
const VERSION: isize = 1;

/// The MIC library's number of a call.
const fn number(newer: u32) -> u32 {
    _IOWR::<u64>(_IOC_TYPE(newer), _IOC_NR(newer))
}

/// The calls that have another number there, and the same structure.
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

/// Performs the call with a number of the MIC library that [`perform`] does not know; ENOTTY for another number.
pub(super) fn perform_mic(
    endpoint: &Endpoint,
    cmd: u32,
    arg: usize,
    nonblocking: bool,
) -> Result<isize> {
    match cmd {
        GET_NODEIDS => {
            // Here `len` comes before `self`.
            let count = Place::at(arg.wrapping_add(8));
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

#[kunit_tests(scif_device_file_mic)]
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

    /// An endpoint of a node that has nobody.
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
    fn no_number_stands_for_two_layouts() -> Result {
        let endpoint = endpoint()?;
        // These have the same structure in both sets.
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
