// SPDX-License-Identifier: GPL-2.0

//! The front door for user space: `/dev/scif`.
//!
//! Each file is an [`Endpoint`]. The files below take the arguments of the ioctls apart: `call.rs`
//! with the numbers and layouts of `linux/scif_ioctl.h`, `compat.rs` with those of 32-bit
//! processes, `older.rs` with those of an older library. This file checks flags and sizes and
//! puts results back, for all of them; what the calls do is in `endpoint.rs`.
//!
//! Of the structures only the fields that are results are written back. Before a call does
//! anything, the places of its results are found writable: EFAULT for one of them costs neither
//! data nor a connection, unless another thread takes the memory away in between.

#[cfg(CONFIG_COMPAT)]
mod compat;

mod call;
mod older;

use crate::{
    endpoint::{
        Endpoint,
        PortId, //
    },
    logic::marks::Origin,
    rma::TransferOptions,
    signal::Target,
    sys::{
        chardev::{
            nonblocking,
            FileOperations,
            PollContext, //
        },
        random,
        uapi::{
            self,
            Place, //
        },
    },
    window::{
        PROTECTION_READ,
        PROTECTION_WRITE, //
    },
};
use call::{
    native_pointer,
    Call,
    Message,
    Registration, //
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
        let call = match Call::parse(cmd, arg, native_pointer) {
            Err(error) if error == ENOTTY && crate::serves_older_numbers() => {
                older::parse(cmd, arg)
            }
            call => call,
        }?;
        perform(&this, file, call)
    }

    #[cfg(CONFIG_COMPAT)]
    fn compat_ioctl(this: ArcBorrow<'_, Self>, file: &File, cmd: u32, arg: usize) -> Result<isize> {
        perform(&this, file, compat::parse(cmd, arg)?)
    }

    fn poll<'file>(&'file self, context: &PollContext<'file>) -> u32 {
        context.wait_on(self.waiters());
        self.poll_state()
    }

    fn mmap(this: ArcBorrow<'_, Self>, _file: &File, vma: &VmaNew) -> Result {
        this.map(vma)
    }
}

fn perform(endpoint: &Endpoint, file: &File, call: Call) -> Result<isize> {
    match call {
        Call::Bind { port } => bind(endpoint, port),
        Call::Listen { backlog } => endpoint.listen(backlog),
        Call::Connect { peer, own } => connect(endpoint, peer, own, nonblocking(file)),
        Call::Accept {
            flags,
            peer,
            handle,
        } => accept(endpoint, flags, peer, handle),
        Call::TakeOver { handle } => take_over(endpoint, handle),
        Call::Send(request) => message(request, |from, len, block| endpoint.send(from, len, block)),
        Call::Receive(request) => {
            message(request, |to, len, block| endpoint.receive(to, len, block))
        }
        Call::Register(request) => register(endpoint, request),
        Call::Unregister { offset, len } => endpoint.unregister(offset, len),
        Call::Transfer {
            direction,
            local,
            remote,
            len,
            flags,
        } => transfer_options(flags)
            .and_then(|options| endpoint.transfer(direction, local, remote, len, options)),
        Call::NodeIds {
            nodes,
            room,
            own,
            count,
        } => return node_ids(endpoint, nodes, room, own, count),
        Call::FenceMark { flags, mark } => fence_mark(endpoint, flags, mark),
        Call::FenceWait { mark } => endpoint.fence_wait(mark),
        Call::FenceSignal(request) => fence_signal(endpoint, &request),
        Call::Version => return Ok(older::VERSION),
    }?;
    Ok(0)
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

fn bind(endpoint: &Endpoint, port: Place<u16>) -> Result {
    let wanted = port.read()?;
    let port = port.writable()?;
    port.write(&endpoint.bind(wanted)?)
}

fn connect(
    endpoint: &Endpoint,
    peer: uapi::scif_port_id,
    own: Place<uapi::scif_port_id>,
    nonblocking: bool,
) -> Result {
    let own = own.writable()?;
    own.write(&to_user(endpoint.connect(port_id(peer), nonblocking)?))
}

fn accept(
    endpoint: &Endpoint,
    flags: i32,
    peer: Place<uapi::scif_port_id>,
    handle: Place<u64>,
) -> Result {
    if flags & !ACCEPT_SYNC != 0 {
        return Err(EINVAL);
    }
    let (peer, handle) = (peer.writable()?, handle.writable()?);
    let pending = &endpoint.fabric.pending;
    pending.lock().make_room(endpoint)?;
    let accepted = endpoint.accept(flags & ACCEPT_SYNC != 0)?;
    let connected = accepted.peer;
    let number = random::number();
    // Dropping a connection closes it, which must not happen under the lock.
    let added = pending.lock().add(number, endpoint, accepted);
    if let Err((error, _accepted)) = added {
        return Err(error);
    }
    let told = peer
        .write(&to_user(connected))
        .and_then(|()| handle.write(&number));
    if told.is_err() {
        // Nobody knows the handle.
        let accepted = pending.lock().take(number);
        drop(accepted);
    }
    told
}

fn take_over(endpoint: &Endpoint, handle: u64) -> Result {
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

fn message(request: Message, call: impl FnOnce(UserPtr, usize, bool) -> Result<usize>) -> Result {
    if request.flags & !MESSAGE_BLOCK != 0 || request.len < 0 {
        return Err(EINVAL);
    }
    let count = request.count.writable()?;
    let moved = match request.len {
        0 => 0,
        len => call(
            UserPtr::from_addr(request.memory),
            len as usize,
            request.flags & MESSAGE_BLOCK != 0,
        )?,
    };
    count.write(&(moved as i32))
}

fn register(endpoint: &Endpoint, request: Registration) -> Result {
    let all = (PROTECTION_READ | PROTECTION_WRITE) as i32;
    let protection = request.protection;
    // MAP_KERNEL is for kernel memory, which user space has none of.
    if request.flags & !MAP_FIXED != 0 || protection == 0 || protection & !all != 0 {
        return Err(EINVAL);
    }
    let result = request.result.writable()?;
    let offset = endpoint.register(
        request.address,
        request.len,
        request.offset,
        protection as u32,
        request.flags & MAP_FIXED != 0,
    )?;
    let told = result.write(&offset);
    if told.is_err() {
        // The caller can't know of the window.
        let _ = endpoint.unregister(offset, request.len);
    }
    told
}

fn transfer_options(flags: i32) -> Result<TransferOptions> {
    if flags & !(RMA_USECPU | RMA_USECACHE | RMA_SYNC | RMA_ORDERED) != 0 {
        return Err(EINVAL);
    }
    Ok(TransferOptions {
        use_cpu: flags & RMA_USECPU != 0,
        use_cache: flags & RMA_USECACHE != 0,
        synchronous: flags & RMA_SYNC != 0,
        ordered: flags & RMA_ORDERED != 0,
    })
}

/// Returns how many nodes are online, this one included, whether or not all fitted. The original
/// driver returned 0 and put the number where the room had been said: that is done, too.
fn node_ids(
    endpoint: &Endpoint,
    nodes: usize,
    room: i32,
    own: Place<u16>,
    count: Place<i32>,
) -> Result<isize> {
    let room = usize::try_from(room).map_err(|_| EINVAL)?;
    let own = own.writable()?;
    let count = count.writable()?;
    let online = endpoint.fabric.online_nodes()?;
    for (index, node) in online.iter().take(room).enumerate() {
        let address = nodes.wrapping_add(index * size_of::<u16>());
        uapi::write(address, node)?;
    }
    own.write(&endpoint.fabric.own_id())?;
    let online = i32::try_from(online.len())?;
    count.write(&online)?;
    Ok(online as isize)
}

fn fence_mark(endpoint: &Endpoint, flags: i32, mark: Place<i32>) -> Result {
    let origin = origin(flags)?;
    let mark = mark.writable()?;
    mark.write(&endpoint.fence_mark(origin)?)
}

/// Whose transfers are meant: exactly one side's.
fn origin(flags: i32) -> Result<Origin> {
    match flags {
        FENCE_INIT_SELF => Ok(Origin::Own),
        FENCE_INIT_PEER => Ok(Origin::Peer),
        _ => Err(EINVAL),
    }
}

fn fence_signal(endpoint: &Endpoint, request: &uapi::scifioctl_fence_signal) -> Result {
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
