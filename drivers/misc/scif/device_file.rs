// SPDX-License-Identifier: GPL-2.0

//! The front door for user space: `/dev/scif`.
//!
//! Each file is an [`Endpoint`]. This file takes the arguments of the ioctls apart, checks flags
//! and sizes, and puts results back; what the calls do is in `endpoint.rs`. Numbers and layouts
//! come from `linux/scif_ioctl.h`.
//!
//! Of the structures only the fields that are results are written back.

use crate::{
    endpoint::{
        Endpoint,
        PortId, //
    },
    logic::marks::Origin,
    rma::{
        Direction,
        LocalSide,
        TransferOptions, //
    },
    signal::Target,
    sys::{
        chardev::{
            nonblocking,
            FileOperations,
            PollContext, //
        },
        random,
        uapi, //
    },
    window::{
        PROTECTION_READ,
        PROTECTION_WRITE, //
    },
};
use kernel::{
    fs::File,
    mm::virt::VmaNew,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    uaccess::UserPtr,
};

// Flags of the calls, from the documentation of the interface; the UAPI header has only the
// structures and numbers.
const ACCEPT_SYNC: i32 = 1;
const MESSAGE_BLOCK: i32 = 1;
const MAP_FIXED: i32 = 0x10;
const FENCE_INIT_SELF: i32 = 1;
const FENCE_INIT_PEER: i32 = 2;
const SIGNAL_LOCAL: i32 = 0x10;
const SIGNAL_REMOTE: i32 = 0x20;
const RMA_USECPU: i32 = 1;
const RMA_USECACHE: i32 = 2;
const RMA_SYNC: i32 = 4;
const RMA_ORDERED: i32 = 8;

impl FileOperations for Endpoint {
    fn open(_file: &File) -> Result<Arc<Self>> {
        Endpoint::new(crate::fabric()?)
    }

    fn release(this: Arc<Self>, _file: &File) {
        this.close();
        // What it has accepted and nobody took over ends with it.
        loop {
            let accepted = this.fabric.pending.lock().take_of(&this);
            if accepted.is_none() {
                break;
            }
        }
    }

    fn flush(this: ArcBorrow<'_, Self>, _file: &File, table: usize) -> Result {
        Endpoint::flush(&this, table);
        Ok(())
    }

    fn ioctl(this: ArcBorrow<'_, Self>, file: &File, cmd: u32, arg: usize) -> Result<isize> {
        let endpoint = &*this;
        match cmd {
            uapi::SCIF_BIND => bind(endpoint, arg),
            uapi::SCIF_LISTEN => endpoint.listen(arg as i32),
            uapi::SCIF_CONNECT => connect(endpoint, file, arg),
            uapi::SCIF_ACCEPTREQ => accept(endpoint, arg),
            uapi::SCIF_ACCEPTREG => take_over(endpoint, arg),
            uapi::SCIF_SEND => message(arg, |from, len, block| endpoint.send(from, len, block)),
            uapi::SCIF_RECV => message(arg, |to, len, block| endpoint.receive(to, len, block)),
            uapi::SCIF_REG => register(endpoint, arg),
            uapi::SCIF_UNREG => {
                let range: uapi::scifioctl_unreg = uapi::read(arg)?;
                endpoint.unregister(range.offset, range.len)
            }
            uapi::SCIF_READFROM => transfer(endpoint, arg, Direction::Read),
            uapi::SCIF_WRITETO => transfer(endpoint, arg, Direction::Write),
            uapi::SCIF_VREADFROM => transfer_memory(endpoint, arg, Direction::Read),
            uapi::SCIF_VWRITETO => transfer_memory(endpoint, arg, Direction::Write),
            uapi::SCIF_GET_NODEIDS => return node_ids(endpoint, arg),
            uapi::SCIF_FENCE_MARK => fence_mark(endpoint, arg),
            uapi::SCIF_FENCE_SIGNAL => fence_signal(endpoint, arg),
            uapi::SCIF_FENCE_WAIT => endpoint.fence_wait(arg as i32),
            _ => Err(ENOTTY),
        }?;
        Ok(0)
    }

    fn poll<'file>(&'file self, context: &PollContext<'file>) -> u32 {
        context.wait_on(self.waiters());
        self.poll_state()
    }

    fn mmap(this: ArcBorrow<'_, Self>, _file: &File, vma: &VmaNew) -> Result {
        this.map(vma)
    }
}

fn port_id(port: uapi::scif_port_id) -> PortId {
    PortId {
        node: port.node,
        port: port.port,
    }
}

fn to_user(port: PortId) -> uapi::scif_port_id {
    uapi::scif_port_id {
        node: port.node,
        port: port.port,
    }
}

/// The number of the ioctl says 8 bytes; callers pass 2 or 4. Two are copied, both ways.
fn bind(endpoint: &Endpoint, arg: usize) -> Result {
    let port: u16 = uapi::read(arg)?;
    let port = endpoint.bind(port)?;
    uapi::write(arg, &port)
}

fn connect(endpoint: &Endpoint, file: &File, arg: usize) -> Result {
    let request: uapi::scifioctl_connect = uapi::read(arg)?;
    let own = endpoint.connect(port_id(request.peer), nonblocking(file))?;
    uapi::write_field!(arg, scifioctl_connect, self_, to_user(own))
}

fn accept(endpoint: &Endpoint, arg: usize) -> Result {
    let request: uapi::scifioctl_accept = uapi::read(arg)?;
    if request.flags & !ACCEPT_SYNC != 0 {
        return Err(EINVAL);
    }
    let accepted = endpoint.accept(request.flags & ACCEPT_SYNC != 0)?;
    let peer = accepted.peer;
    let handle = random::number();
    let pending = &endpoint.fabric.pending;
    // Dropping a connection closes it, which must not happen under the lock.
    let added = pending.lock().add(handle, endpoint, accepted);
    if let Err((error, _accepted)) = added {
        return Err(error);
    }
    let told = uapi::write_field!(arg, scifioctl_accept, peer, to_user(peer))
        .and_then(|()| uapi::write_field!(arg, scifioctl_accept, endpt, handle));
    if told.is_err() {
        // Nobody knows the handle.
        let accepted = pending.lock().take(handle);
        drop(accepted);
    }
    told
}

fn take_over(endpoint: &Endpoint, arg: usize) -> Result {
    let handle: u64 = uapi::read(arg)?;
    // Looked at first, so that a mistake costs no connection.
    if !endpoint.is_fresh() {
        return Err(EINVAL);
    }
    let accepted = endpoint.fabric.pending.lock().take(handle);
    let accepted = accepted.ok_or(EINVAL)?;
    endpoint
        .take_over(accepted)
        .map_err(|(error, _accepted)| error)
}

fn message(arg: usize, call: impl FnOnce(UserPtr, usize, bool) -> Result<usize>) -> Result {
    let request: uapi::scifioctl_msg = uapi::read(arg)?;
    if request.flags & !MESSAGE_BLOCK != 0 || request.len < 0 {
        return Err(EINVAL);
    }
    let count = match request.len {
        0 => 0,
        len => call(
            UserPtr::from_addr(request.msg as usize),
            len as usize,
            request.flags & MESSAGE_BLOCK != 0,
        )?,
    };
    uapi::write_field!(arg, scifioctl_msg, out_len, count as i32)
}

fn register(endpoint: &Endpoint, arg: usize) -> Result {
    let request: uapi::scifioctl_reg = uapi::read(arg)?;
    let all = (PROTECTION_READ | PROTECTION_WRITE) as i32;
    // MAP_KERNEL is for kernel memory, which user space has none of.
    if request.flags & !MAP_FIXED != 0 || request.prot == 0 || request.prot & !all != 0 {
        return Err(EINVAL);
    }
    let offset = endpoint.register(
        request.addr as usize,
        request.len,
        request.offset,
        request.prot as u32,
        request.flags & MAP_FIXED != 0,
    )?;
    let told = uapi::write_field!(arg, scifioctl_reg, out_offset, offset);
    if told.is_err() {
        // The caller can't know of the window.
        let _ = endpoint.unregister(offset, request.len);
    }
    told
}

/// readfrom and writeto.
fn transfer(endpoint: &Endpoint, arg: usize, direction: Direction) -> Result {
    let request: uapi::scifioctl_copy = uapi::read(arg)?;
    let local = LocalSide::Windows(request.loffset);
    endpoint.transfer(
        direction,
        local,
        request.roffset,
        request.len,
        transfer_options(request.flags)?,
    )
}

/// vreadfrom and vwriteto.
fn transfer_memory(endpoint: &Endpoint, arg: usize, direction: Direction) -> Result {
    let request: uapi::scifioctl_copy = uapi::read(arg)?;
    let local = LocalSide::Memory(request.addr as usize);
    endpoint.transfer(
        direction,
        local,
        request.roffset,
        request.len,
        transfer_options(request.flags)?,
    )
}

/// SCIF_RMA_USECACHE is a hint, and not taken up yet.
fn transfer_options(flags: i32) -> Result<TransferOptions> {
    if flags & !(RMA_USECPU | RMA_USECACHE | RMA_SYNC | RMA_ORDERED) != 0 {
        return Err(EINVAL);
    }
    Ok(TransferOptions {
        use_cpu: flags & RMA_USECPU != 0,
        synchronous: flags & RMA_SYNC != 0,
        ordered: flags & RMA_ORDERED != 0,
    })
}

/// Returns how many nodes are online, this one included, whether or not all fitted.
fn node_ids(endpoint: &Endpoint, arg: usize) -> Result<isize> {
    let request: uapi::scifioctl_node_ids = uapi::read(arg)?;
    let room = usize::try_from(request.len).map_err(|_| EINVAL)?;
    let online = endpoint.fabric.online_nodes()?;
    for (index, node) in online.iter().take(room).enumerate() {
        let address = (request.nodes as usize).wrapping_add(index * size_of::<u16>());
        uapi::write(address, node)?;
    }
    uapi::write(request.self_ as usize, &endpoint.fabric.own_id())?;
    Ok(online.len() as isize)
}

fn fence_mark(endpoint: &Endpoint, arg: usize) -> Result {
    let request: uapi::scifioctl_fence_mark = uapi::read(arg)?;
    let mark = endpoint.fence_mark(origin(request.flags)?)?;
    uapi::write(request.mark as usize, &mark)
}

/// Whose transfers are meant: exactly one side's.
fn origin(flags: i32) -> Result<Origin> {
    match flags {
        FENCE_INIT_SELF => Ok(Origin::Own),
        FENCE_INIT_PEER => Ok(Origin::Peer),
        _ => Err(EINVAL),
    }
}

fn fence_signal(endpoint: &Endpoint, arg: usize) -> Result {
    let request: uapi::scifioctl_fence_signal = uapi::read(arg)?;
    let sides = SIGNAL_LOCAL | SIGNAL_REMOTE;
    if request.flags & sides == 0 {
        return Err(EINVAL);
    }
    let target =
        |side, offset, value| (request.flags & side != 0).then_some(Target { offset, value });
    endpoint.fence_signal(
        origin(request.flags & !sides)?,
        target(SIGNAL_LOCAL, request.loff, request.lval),
        target(SIGNAL_REMOTE, request.roff, request.rval),
    )
}
