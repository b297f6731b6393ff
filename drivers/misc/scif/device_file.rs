// SPDX-License-Identifier: GPL-2.0

//! The front door for user space: `/dev/scif`.
//!
//! Each file is an [`Endpoint`]. The files below take the arguments of the ioctls apart: `call.rs`
//! with the numbers and layouts of `linux/scif_ioctl.h` and those of the MIC library, `compat.rs` with those
//! of 32-bit processes, `services.rs` with those of `linux/scif_services.h`. This file checks sizes and puts results back,
//! for all of them; flags are in `arguments.rs`, and what the calls do in `endpoint.rs`.
//!
//! Of the structures only the fields that are results are written back. Before a call does
//! anything, the places of its results are found writable: EFAULT for one of them costs neither
//! data nor a connection, unless another thread takes the memory away in between.

#[cfg(CONFIG_COMPAT)]
mod compat;

mod call;
mod services;

use crate::{
    arguments::{
        self,
        PortId,
        SignalOptions,
        SignalTarget,
        TransferOptions,
        WindowOptions, //
    },
    endpoint::{
        counts::TRAFFIC_FIELDS,
        scif::Scif,
        standing::Facts,
        Endpoint, //
    },
    sys::{
        buffer::Buffer,
        chardev::{
            is_last_descriptor,
            nonblocking,
            Device,
            FileOperations,
            PollContext, //
        },
        uapi::{
            self,
            Place, //
        },
    },
};
use call::{
    native_pointer,
    parse_mic,
    Call,
    Message,
    Registration,
    VERSION, //
};
use kernel::{
    fmt,
    fs::File,
    mm::virt::VmaNew,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    uaccess::UserPtr,
};

/// Who may open the devices where udev does not say: RMA pins memory, and a peer's memory can be
/// written to.
const DEVICE_MODE: u16 = 0o600;

/// What a file of the devices knows of the rest.
pub(crate) struct Context {
    scif: Arc<Scif>,
    /// Whether the numbers of the MIC library are served, see `call.rs`.
    mic_compat: bool,
}

/// The devices; they go when this is dropped.
pub(crate) struct Devices {
    _scif: Pin<KBox<Device<ScifFile>>>,
    _mic: Option<Pin<KBox<Device<ScifFile>>>>,
}

impl Devices {
    /// Opens the door: files may be opened before this returns. May sleep.
    pub(crate) fn register(scif: &Arc<Scif>, mic_compat: bool) -> Result<Self> {
        let context = || Context {
            scif: scif.clone(),
            mic_compat,
        };
        let mic = match mic_compat {
            true => Some(Device::register(
                c"mic_scif",
                c"mic/scif",
                DEVICE_MODE,
                context(),
            )?),
            false => None,
        };
        Ok(Self {
            _scif: Device::register(c"scif", c"scif", DEVICE_MODE, context())?,
            _mic: mic,
        })
    }
}

/// See the head of this file.
pub(crate) struct ScifFile {
    endpoint: Arc<Endpoint>,
    mic_compat: bool,
}

impl FileOperations for ScifFile {
    type Context = Context;

    fn open(context: &Context) -> Result<Arc<Self>> {
        let file = Self {
            endpoint: Endpoint::new(&context.scif)?,
            mic_compat: context.mic_compat,
        };
        Ok(Arc::new(file, GFP_KERNEL_ACCOUNT)?)
    }

    fn release(this: Arc<Self>) {
        this.endpoint.close();
    }

    fn flush(this: ArcBorrow<'_, Self>, file: &File, table: usize) -> Result {
        this.endpoint
            .flush(table, || is_last_descriptor(file, table));
        Ok(())
    }

    #[inline]
    fn ioctl(this: ArcBorrow<'_, Self>, file: &File, cmd: u32, arg: usize) -> Result<isize> {
        match Call::parse(cmd, arg, native_pointer) {
            Ok(call) => perform(&this.endpoint, file, call),
            Err(ENOTTY) if this.mic_compat => Self::ioctl_of_mic(this, file, cmd, arg),
            Err(ENOTTY) => services::perform(&this.endpoint, file, cmd, arg, native_pointer),
            Err(error) => Err(error),
        }
    }

    #[cfg(CONFIG_COMPAT)]
    fn compat_ioctl(this: ArcBorrow<'_, Self>, file: &File, cmd: u32, arg: usize) -> Result<isize> {
        match compat::parse(cmd, arg) {
            Ok(call) => perform(&this.endpoint, file, call),
            Err(ENOTTY) => services::perform(
                &this.endpoint,
                file,
                cmd,
                compat::pointer(arg),
                compat::POINTER,
            ),
            Err(error) => Err(error),
        }
    }

    fn poll<'file>(&'file self, context: &PollContext<'file>) -> u32 {
        context.wait_on(self.endpoint.waiters());
        self.endpoint.poll_state()
    }

    fn mmap(this: ArcBorrow<'_, Self>, vma: &VmaNew) -> Result {
        this.endpoint.map(vma)
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.endpoint, f)
    }
}

impl ScifFile {
    /// An ioctl whose number is none of SCIF's own, where those of the MIC library are served.
    #[cold]
    fn ioctl_of_mic(this: ArcBorrow<'_, Self>, file: &File, cmd: u32, arg: usize) -> Result<isize> {
        match parse_mic(cmd, arg) {
            Ok(call) => perform(&this.endpoint, file, call),
            Err(ENOTTY) => services::perform(&this.endpoint, file, cmd, arg, native_pointer),
            Err(error) => Err(error),
        }
    }
}

/// Always inline, and so is [`Call::parse`]: then what is known of the number of an ioctl is known here, too,
/// and a call that takes little is not carried from place to place as one of twenty.
#[inline(always)]
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
        Call::TakeOver { handle } => endpoint.take_over(handle),
        Call::Send(request) => message(request, |from, block| endpoint.send(from, block)),
        Call::Receive(request) => message(request, |to, block| endpoint.receive(to, block)),
        Call::Register(request) => register(endpoint, request),
        Call::Unregister { offset, len } => endpoint.unregister(offset, len),
        Call::Transfer {
            direction,
            local,
            remote,
            len,
            flags,
        } => TransferOptions::parse(flags)
            .and_then(|options| endpoint.transfer(direction, &local, remote, len, options)),
        Call::NodeIds {
            nodes,
            room,
            own,
            count,
        } => return node_ids(endpoint, nodes, room, own, count),
        Call::FenceMark { flags, mark } => fence_mark(endpoint, flags, mark),
        Call::FenceWait { mark } => endpoint.fence_wait(mark),
        Call::FenceSignal(request) => fence_signal(endpoint, &request),
        Call::Version => return Ok(VERSION),
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
    let block = arguments::accept_blocks(flags)?;
    let (peer, handle) = (peer.writable()?, handle.writable()?);
    let (connected, number) = endpoint.accept(block)?;
    let told = peer
        .write(&to_user(connected))
        .and_then(|()| handle.write(&number));
    if told.is_err() {
        endpoint.forget_accepted(number);
    }
    told
}

fn message(request: Message, call: impl FnOnce(&Buffer, bool) -> Result<usize>) -> Result {
    let block = arguments::message_blocks(request.flags)?;
    let len = usize::try_from(request.len).map_err(|_| EINVAL)?;
    let count = request.count.writable_holding(&request.said)?;
    let moved = match len {
        0 => 0,
        _ => call(
            &Buffer::user(UserPtr::from_addr(request.memory), len),
            block,
        )?,
    };
    count.write(&(moved as i32))
}

fn register(endpoint: &Endpoint, request: Registration) -> Result {
    // MAP_KERNEL is for kernel memory, which user space has none of.
    let options = WindowOptions::parse(request.protection, request.flags)?;
    let result = request.result.writable()?;
    let len = usize::try_from(request.len)?;
    let memory = Buffer::user(UserPtr::from_addr(request.address), len);
    let offset = endpoint.register(&memory, request.offset, options)?;
    let told = result.write(&offset);
    if told.is_err() {
        // The caller can't know of the window.
        let _ = endpoint.unregister(offset, request.len);
    }
    told
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
    let online = endpoint.online_nodes()?;
    for (index, node) in online.iter().take(room).enumerate() {
        let address = nodes.wrapping_add(index * size_of::<u16>());
        uapi::write(address, node)?;
    }
    own.write(&endpoint.own_node())?;
    let online = i32::try_from(online.len())?;
    count.write(&online)?;
    Ok(online as isize)
}

fn fence_mark(endpoint: &Endpoint, flags: i32, mark: Place<i32>) -> Result {
    let origin = arguments::origin(flags)?;
    let mark = mark.writable()?;
    mark.write(&endpoint.fence_mark(origin)?)
}

fn fence_signal(endpoint: &Endpoint, request: &uapi::scifioctl_fence_signal) -> Result {
    let options = SignalOptions::parse(request.flags)?;
    let target = |wanted: bool, offset, value| wanted.then_some(SignalTarget { offset, value });
    endpoint.fence_signal(
        options.origin,
        target(options.local, request.loff, request.lval),
        target(options.remote, request.roff, request.rval),
    )
}

/// Shows what `/proc/PID/fdinfo/FD` says of a file, to whom may look into that process: a line
/// `scif-NAME:<tab>VALUE` for each thing there is to know; new ones come at the end.
fn show(endpoint: &Endpoint, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let facts = endpoint.facts();
    writeln!(f, "scif-state:\t{}", facts.state)?;
    if let Some(port) = facts.own_port {
        writeln!(f, "scif-own:\t{}:{port}", endpoint.own_node())?;
    }
    if let Facts {
        peer: Some(peer),
        channel: Some(channel),
        ..
    } = facts
    {
        writeln!(f, "scif-peer:\t{}:{}", peer.node, peer.port)?;
        writeln!(f, "scif-channel:\t{channel:#x}")?;
    }
    if let Some(opener) = &facts.opener {
        writeln!(f, "scif-pid:\t{}", opener.pid_for_reader())?;
    }
    writeln!(f, "scif-queued:\t{}", facts.queued)?;
    if let Some(traffic) = &facts.traffic {
        for (name, number) in TRAFFIC_FIELDS.iter().zip(traffic.fields()) {
            writeln!(f, "scif-{name}:\t{number}")?;
        }
    }
    Ok(())
}
