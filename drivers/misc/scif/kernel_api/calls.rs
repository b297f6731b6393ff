// SPDX-License-Identifier: GPL-2.0

//! The functions on endpoints, and on memory that outlives a call: windows, pinned pages, pages of a peer.

use super::door::{
    Door,
    HeldPages, //
};
use crate::{
    arguments::{
        self,
        Direction,
        LocalSide,
        PortId,
        SignalOptions,
        SignalTarget,
        TransferOptions,
        WindowOptions, //
    },
    endpoint::Endpoint,
    sys::{
        kernel_calls::{
            exported,
            off_t,
            scif_endpt,
            scif_pinned_pages,
            scif_pollepd,
            scif_port_id,
            scif_range,
            Address,
            Entries,
            Handle,
            In,
            Memory,
            Offset,
            Out,
            OutArray,
            PageList,
            Plain, //
        },
        published::TheOnly,
        wait::WaitAny, //
    },
};
use kernel::{
    bindings, ffi,
    prelude::*,
    sync::Arc,
    time::{
        Delta,
        Instant,
        Monotonic, //
    },
};

/// Entries of one call of `scif_poll`.
const MAX_POLLED: usize = 65536;

exported! {
    fn __scif_open(TheOnly<Door>[], Address[owner: *mut bindings::module]) -> *mut scif_endpt
        = open;
    fn scif_close(TheOnly<Door>[], Address[epd: *mut scif_endpt]) -> ffi::c_int = close;
    fn scif_bind(Handle<Endpoint>[epd: *mut scif_endpt], Plain<u16>[pn: u16]) -> ffi::c_int = bind;
    fn scif_listen(
        Handle<Endpoint>[epd: *mut scif_endpt],
        Plain<ffi::c_int>[backlog: ffi::c_int]
    ) -> ffi::c_int = listen;
    fn scif_connect(
        Handle<Endpoint>[epd: *mut scif_endpt],
        In<scif_port_id>[dst: *mut scif_port_id]
    ) -> ffi::c_int = connect;
    fn scif_accept(
        TheOnly<Door>[],
        Handle<Endpoint>[epd: *mut scif_endpt],
        Out<scif_port_id>[peer: *mut scif_port_id],
        Out<*mut scif_endpt>[newepd: *mut *mut scif_endpt],
        Plain<ffi::c_int>[flags: ffi::c_int]
    ) -> ffi::c_int = accept;
    fn scif_send(
        Handle<Endpoint>[epd: *mut scif_endpt],
        Memory[msg: *mut ffi::c_void, len: ffi::c_int],
        Plain<ffi::c_int>[flags: ffi::c_int]
    ) -> ffi::c_int = send;
    fn scif_recv(
        Handle<Endpoint>[epd: *mut scif_endpt],
        Memory[msg: *mut ffi::c_void, len: ffi::c_int],
        Plain<ffi::c_int>[flags: ffi::c_int]
    ) -> ffi::c_int = receive;
    fn scif_readfrom(
        Handle<Endpoint>[epd: *mut scif_endpt],
        Offset[loffset: off_t],
        Plain<usize>[len: usize],
        Offset[roffset: off_t],
        Plain<ffi::c_int>[rma_flags: ffi::c_int]
    ) -> ffi::c_int = read_from;
    fn scif_writeto(
        Handle<Endpoint>[epd: *mut scif_endpt],
        Offset[loffset: off_t],
        Plain<usize>[len: usize],
        Offset[roffset: off_t],
        Plain<ffi::c_int>[rma_flags: ffi::c_int]
    ) -> ffi::c_int = write_to;
    fn scif_vreadfrom(
        Handle<Endpoint>[epd: *mut scif_endpt],
        Memory[addr: *mut ffi::c_void, len: usize],
        Offset[roffset: off_t],
        Plain<ffi::c_int>[rma_flags: ffi::c_int]
    ) -> ffi::c_int = read_into_memory;
    fn scif_vwriteto(
        Handle<Endpoint>[epd: *mut scif_endpt],
        Memory[addr: *mut ffi::c_void, len: usize],
        Offset[roffset: off_t],
        Plain<ffi::c_int>[rma_flags: ffi::c_int]
    ) -> ffi::c_int = write_from_memory;
    fn scif_fence_mark(
        Handle<Endpoint>[epd: *mut scif_endpt],
        Plain<ffi::c_int>[flags: ffi::c_int],
        Out<ffi::c_int>[mark: *mut ffi::c_int]
    ) -> ffi::c_int = fence_mark;
    fn scif_fence_wait(
        Handle<Endpoint>[epd: *mut scif_endpt],
        Plain<ffi::c_int>[mark: ffi::c_int]
    ) -> ffi::c_int = fence_wait;
    fn scif_fence_signal(
        Handle<Endpoint>[epd: *mut scif_endpt],
        Offset[loff: off_t],
        Plain<u64>[lval: u64],
        Offset[roff: off_t],
        Plain<u64>[rval: u64],
        Plain<ffi::c_int>[flags: ffi::c_int]
    ) -> ffi::c_int = fence_signal;
    fn scif_get_node_ids(
        TheOnly<Door>[],
        OutArray<u16>[nodes: *mut u16, len: ffi::c_int],
        Out<u16>[own: *mut u16]
    ) -> ffi::c_int = node_ids;
    fn scif_poll(
        Entries<Endpoint>[epds: *mut scif_pollepd, nepds: ffi::c_uint],
        Plain<ffi::c_long>[timeout: ffi::c_long]
    ) -> ffi::c_int = poll;
}

// ----- connections ---------------------------------------------------------------------------------

fn open(door: Result<Arc<Door>>, owner: usize) -> Result<*mut scif_endpt> {
    let door = door?;
    let endpoint = Endpoint::new(&door.scif)?;
    door.keep(endpoint, owner)
}

fn close(door: Result<Arc<Door>>, handle: usize) -> Result {
    let endpoint = door?.endpoints.take(handle).ok_or(EBADF)?;
    // Calls that run keep it until they return.
    endpoint.close();
    Ok(())
}

fn bind(endpoint: Result<Arc<Endpoint>>, port: u16) -> Result<ffi::c_int> {
    Ok(endpoint?.bind(port)?.into())
}

fn listen(endpoint: Result<Arc<Endpoint>>, backlog: ffi::c_int) -> Result {
    endpoint?.listen(backlog)
}

/// Returns 0, as the original driver did, and not the port, as its documentation said.
fn connect(endpoint: Result<Arc<Endpoint>>, peer: Result<scif_port_id>) -> Result {
    let peer = peer?;
    let peer = PortId {
        node: peer.node,
        port: peer.port,
    };
    endpoint?.connect(peer, false).map(|_| ())
}

fn accept(
    door: Result<Arc<Door>>,
    listener: Result<Arc<Endpoint>>,
    peer: Out<scif_port_id>,
    new: Out<*mut scif_endpt>,
    flags: ffi::c_int,
) -> Result {
    let (door, listener) = (door?, listener?);
    peer.check()?;
    new.check()?;
    let block = arguments::accept_blocks(flags)?;
    let owner = door.owner_of(&listener)?;
    let (connected, endpoint) = listener.accept_endpoint(block)?;
    // If it can't be kept it is closed.
    new.write(door.keep(endpoint, owner)?);
    peer.write(scif_port_id {
        node: connected.node,
        port: connected.port,
    });
    Ok(())
}

fn node_ids(door: Result<Arc<Door>>, nodes: OutArray<u16>, own: Out<u16>) -> Result<ffi::c_int> {
    let door = door?;
    nodes.check()?;
    let online = door.nodes.online()?;
    nodes.write(&online);
    own.write(door.nodes.own_id());
    Ok(i32::try_from(online.len())?)
}

// ----- messages ------------------------------------------------------------------------------------

fn send(endpoint: Result<Arc<Endpoint>>, message: Memory, flags: ffi::c_int) -> Result<ffi::c_int> {
    let endpoint = endpoint?;
    let block = arguments::message_blocks(flags)?;
    match message.len()? {
        0 => Ok(0),
        _ => Ok(endpoint.send(&message.kernel()?, block)? as ffi::c_int),
    }
}

fn receive(
    endpoint: Result<Arc<Endpoint>>,
    message: Memory,
    flags: ffi::c_int,
) -> Result<ffi::c_int> {
    let endpoint = endpoint?;
    let block = arguments::message_blocks(flags)?;
    match message.len()? {
        0 => Ok(0),
        _ => Ok(endpoint.receive(&message.kernel()?, block)? as ffi::c_int),
    }
}

/// In milliseconds; negative is for ever. Returns for how many something is to be said.
fn poll(entries: Entries<Endpoint>, timeout: ffi::c_long) -> Result<ffi::c_int> {
    if entries.len() > MAX_POLLED {
        return Err(EINVAL);
    }
    let mut polled = KVVec::with_capacity(entries.len(), GFP_KERNEL)?;
    for index in 0..entries.len() {
        let _ = polled.push_within_capacity(entries.get(index).ok());
    }
    // Noticed from here on: the states are looked at afterwards.
    let any = WaitAny::new(
        polled
            .iter()
            .flatten()
            .map(|(endpoint, _)| endpoint.waiters()),
    )?;
    let started = Instant::<Monotonic>::now();
    let total = u32::try_from(timeout)
        .ok()
        .map(|milliseconds| Delta::from_millis(milliseconds.into()));
    loop {
        let ready = look(&entries, &polled);
        let left = match total {
            _ if ready > 0 => return Ok(ready),
            None if timeout >= 0 => Some(Delta::from_millis(i32::MAX.into())),
            None => None,
            Some(total) => Some(total - started.elapsed()),
        };
        if left.is_some_and(|left| left.as_nanos() <= 0) || !any.wait(left)? {
            // What has come with the end of the time counts.
            return Ok(look(&entries, &polled));
        }
    }
}

fn look(entries: &Entries<Endpoint>, polled: &[Option<(Arc<Endpoint>, u32)>]) -> ffi::c_int {
    let mut ready = 0;
    for (index, polled) in polled.iter().enumerate() {
        let events = match polled {
            Some((endpoint, wanted)) => {
                endpoint.poll_state() & (wanted | bindings::POLLERR | bindings::POLLHUP)
            }
            None => bindings::POLLNVAL,
        };
        entries.set(index, events);
        ready += ffi::c_int::from(events != 0);
    }
    ready
}

// ----- transfers -----------------------------------------------------------------------------------

/// Between windows of the peer and what `local` finds.
fn transfer(
    endpoint: Result<Arc<Endpoint>>,
    direction: Direction,
    local: Result<(LocalSide, usize)>,
    remote: i64,
    flags: ffi::c_int,
) -> Result {
    let (local, len) = local?;
    let options = TransferOptions::parse(flags)?;
    endpoint?.transfer(direction, &local, remote, len as u64, options)
}

fn windows(offset: i64, len: usize) -> Result<(LocalSide, usize)> {
    Ok((LocalSide::Windows(offset), len))
}

fn memory(memory: &Memory) -> Result<(LocalSide, usize)> {
    Ok((LocalSide::Memory(memory.either()?), memory.len()?))
}

/// The endpoint of a call, if it is one.
type Connected = Result<Arc<Endpoint>>;

fn read_from(on: Connected, local: i64, len: usize, remote: i64, flags: ffi::c_int) -> Result {
    transfer(on, Direction::Read, windows(local, len), remote, flags)
}

fn write_to(on: Connected, local: i64, len: usize, remote: i64, flags: ffi::c_int) -> Result {
    transfer(on, Direction::Write, windows(local, len), remote, flags)
}

fn read_into_memory(on: Connected, local: Memory, remote: i64, flags: ffi::c_int) -> Result {
    transfer(on, Direction::Read, memory(&local), remote, flags)
}

fn write_from_memory(on: Connected, local: Memory, remote: i64, flags: ffi::c_int) -> Result {
    transfer(on, Direction::Write, memory(&local), remote, flags)
}

// ----- fences --------------------------------------------------------------------------------------

fn fence_mark(endpoint: Result<Arc<Endpoint>>, flags: ffi::c_int, mark: Out<ffi::c_int>) -> Result {
    mark.check()?;
    let origin = arguments::origin(flags)?;
    mark.write(endpoint?.fence_mark(origin)?);
    Ok(())
}

fn fence_wait(endpoint: Result<Arc<Endpoint>>, mark: ffi::c_int) -> Result {
    endpoint?.fence_wait(mark)
}

fn fence_signal(
    endpoint: Result<Arc<Endpoint>>,
    local_offset: i64,
    local_value: u64,
    remote_offset: i64,
    remote_value: u64,
    flags: ffi::c_int,
) -> Result {
    let options = SignalOptions::parse(flags)?;
    let target = |wanted: bool, offset, value| wanted.then_some(SignalTarget { offset, value });
    endpoint?.fence_signal(
        options.origin,
        target(options.local, local_offset, local_value),
        target(options.remote, remote_offset, remote_value),
    )
}

exported! {
    fn scif_register(
        Handle<Endpoint>[epd: *mut scif_endpt],
        Memory[addr: *mut ffi::c_void, len: usize],
        Offset[offset: off_t],
        Plain<ffi::c_int>[prot_flags: ffi::c_int],
        Plain<ffi::c_int>[map_flags: ffi::c_int]
    ) -> off_t = register;
    fn scif_unregister(
        Handle<Endpoint>[epd: *mut scif_endpt],
        Offset[offset: off_t],
        Plain<usize>[len: usize]
    ) -> ffi::c_int = unregister;
    fn __scif_pin_pages(
        TheOnly<Door>[],
        Memory[addr: *mut ffi::c_void, len: usize],
        Plain<ffi::c_int>[prot_flags: ffi::c_int],
        Plain<ffi::c_int>[map_flags: ffi::c_int],
        Address[owner: *mut bindings::module],
        Out<*mut scif_pinned_pages>[pinned_pages: *mut *mut scif_pinned_pages]
    ) -> ffi::c_int = pin_pages;
    fn scif_unpin_pages(
        TheOnly<Door>[],
        Address[pinned_pages: *mut scif_pinned_pages]
    ) -> ffi::c_int = unpin_pages;
    fn scif_register_pinned_pages(
        TheOnly<Door>[],
        Handle<Endpoint>[epd: *mut scif_endpt],
        Address[pinned_pages: *mut scif_pinned_pages],
        Offset[offset: off_t],
        Plain<ffi::c_int>[map_flags: ffi::c_int]
    ) -> off_t = register_pinned_pages;
    fn scif_get_pages(
        TheOnly<Door>[],
        Handle<Endpoint>[epd: *mut scif_endpt],
        Offset[offset: off_t],
        Plain<usize>[len: usize],
        Out<*mut scif_range>[pages: *mut *mut scif_range]
    ) -> ffi::c_int = get_pages;
    fn scif_put_pages(TheOnly<Door>[], Address[pages: *mut scif_range]) -> ffi::c_int = put_pages;
}

fn register(
    endpoint: Result<Arc<Endpoint>>,
    memory: Memory,
    offset: i64,
    protection: ffi::c_int,
    flags: ffi::c_int,
) -> Result<i64> {
    let (of_kernel, flags) = arguments::take_map_kernel(flags);
    let options = WindowOptions::parse(protection, flags)?;
    let memory = memory.owned_by_kernel(of_kernel)?;
    endpoint?.register(&memory, offset, options)
}

fn unregister(endpoint: Result<Arc<Endpoint>>, offset: i64, len: usize) -> Result {
    endpoint?.unregister(offset, len as u64)
}

fn pin_pages(
    door: Result<Arc<Door>>,
    memory: Memory,
    protection: ffi::c_int,
    flags: ffi::c_int,
    owner: usize,
    pinned: Out<*mut scif_pinned_pages>,
) -> Result {
    let door = door?;
    pinned.check()?;
    let (of_kernel, flags) = arguments::take_map_kernel(flags);
    let options = WindowOptions::parse(protection, flags)?;
    if options.fixed {
        return Err(EINVAL);
    }
    let memory = memory.owned_by_kernel(of_kernel)?;
    let pages = Arc::new(door.scif.pin(&memory, options.protection)?, GFP_KERNEL)?;
    let number = door.pinned.number(owner, pages)?;
    // Never looked behind, by nobody.
    pinned.write(core::ptr::without_provenance_mut(number));
    Ok(())
}

fn unpin_pages(door: Result<Arc<Door>>, pinned: usize) -> Result {
    let pages = door?.pinned.take(pinned).ok_or(EINVAL)?;
    drop(pages);
    Ok(())
}

fn register_pinned_pages(
    door: Result<Arc<Door>>,
    endpoint: Result<Arc<Endpoint>>,
    pinned: usize,
    offset: i64,
    flags: ffi::c_int,
) -> Result<i64> {
    let pages = door?.pinned.get(pinned).ok_or(EINVAL)?;
    let fixed = arguments::map_fixed(flags)?;
    endpoint?.register_pinned(&pages, offset, fixed)
}

fn get_pages(
    door: Result<Arc<Door>>,
    endpoint: Result<Arc<Endpoint>>,
    offset: i64,
    len: usize,
    range: Out<*mut scif_range>,
) -> Result {
    let door = door?;
    range.check()?;
    let endpoint = endpoint?;
    let owner = door.owner_of(&endpoint)?;
    let mut pages = endpoint.remote_pages(offset, len as u64)?;
    let (physical, mapped) = pages.take_addresses();
    let list = PageList::new(physical, &mapped, pages.protection())?;
    let raw = list.as_raw();
    let held = HeldPages {
        _list: list,
        _pages: pages,
    };
    door.held.add(raw.addr(), owner, held)?;
    range.write(raw);
    Ok(())
}

fn put_pages(door: Result<Arc<Door>>, range: usize) -> Result {
    let held = door?.held.take(range).ok_or(EINVAL)?;
    drop(held);
    Ok(())
}
