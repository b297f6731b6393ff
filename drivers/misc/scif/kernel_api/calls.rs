// SPDX-License-Identifier: GPL-2.0

//! The functions on endpoints, and on memory that outlives a call: windows, pinned pages, pages of
//! a peer.

use super::door::DOOR;
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
            Plain, //
        },
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

/// Largest number of entries of one call of `scif_poll`.
const MAX_POLLED: usize = 65536;

/// The endpoint of a call, or the error if the handle is not one of an endpoint.
type Connected = Result<Arc<Endpoint>>;

// ----- connections ---------------------------------------------------------------------------------

exported! {
    fn __scif_open(
        owner: Address[owner: *mut bindings::module],
    ) -> *mut scif_endpt as Result<*mut scif_endpt> {
        let door = DOOR.get()?;
        let endpoint = Endpoint::new(&door.scif)?;
        door.keep(endpoint, owner)
    }

    fn scif_close(
        handle: Address[epd: *mut scif_endpt],
    ) -> ffi::c_int as Result {
        let endpoint = DOOR.get()?.endpoints.take(handle).ok_or(EBADF)?;
        // Running calls keep the endpoint until they return.
        endpoint.close();
        Ok(())
    }

    fn scif_bind(
        endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
        port: Plain<u16>[pn: u16],
    ) -> ffi::c_int as Result<ffi::c_int> {
        Ok(endpoint?.bind(port)?.into())
    }

    fn scif_listen(
        endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
        backlog: Plain<ffi::c_int>[backlog: ffi::c_int],
    ) -> ffi::c_int as Result {
        endpoint?.listen(backlog)
    }

    // Returns 0, as the original driver did. That driver's documentation named the port instead.
    fn scif_connect(
        endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
        peer: In<scif_port_id>[dst: *mut scif_port_id],
    ) -> ffi::c_int as Result {
        let scif_port_id { node, port } = peer?;
        endpoint?.connect(PortId { node, port }, false).map(|_| ())
    }

    fn scif_accept(
        listener: Handle<Endpoint>[epd: *mut scif_endpt],
        peer: Out<scif_port_id>[peer: *mut scif_port_id],
        new: Out<*mut scif_endpt>[newepd: *mut *mut scif_endpt],
        flags: Plain<ffi::c_int>[flags: ffi::c_int],
    ) -> ffi::c_int as Result {
        let (door, listener) = (DOOR.get()?, listener?);
        peer.check()?;
        new.check()?;
        let block = arguments::is_set(flags, arguments::ACCEPT_SYNC)?;
        let owner = door.owner_of(&listener)?;
        let (PortId { node, port }, endpoint) = listener.accept_endpoint(block)?;
        // If the endpoint can't be kept, the drop closes it.
        new.write(door.keep(endpoint, owner)?);
        peer.write(scif_port_id { node, port });
        Ok(())
    }

    fn scif_get_node_ids(
        nodes: OutArray<u16>[nodes: *mut u16, len: ffi::c_int],
        own: Out<u16>[own: *mut u16],
    ) -> ffi::c_int as Result<ffi::c_int> {
        let (door, nodes) = (DOOR.get()?, nodes?);
        let online = door.scif.nodes.online()?;
        nodes.write(&online);
        own.write(door.scif.nodes.own_id());
        Ok(i32::try_from(online.len())?)
    }
}

// ----- messages ------------------------------------------------------------------------------------

exported! {
    fn scif_send(
        endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
        message: Memory[msg: *mut ffi::c_void, len: ffi::c_int],
        flags: Plain<ffi::c_int>[flags: ffi::c_int],
    ) -> ffi::c_int as Result<ffi::c_int> {
        move_message(endpoint, Endpoint::send, &message, flags)
    }

    fn scif_recv(
        endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
        message: Memory[msg: *mut ffi::c_void, len: ffi::c_int],
        flags: Plain<ffi::c_int>[flags: ffi::c_int],
    ) -> ffi::c_int as Result<ffi::c_int> {
        move_message(endpoint, Endpoint::receive, &message, flags)
    }

    fn scif_poll(
        entries: Entries<Endpoint>[epds: *mut scif_pollepd, nepds: ffi::c_uint],
        timeout: Plain<ffi::c_long>[timeout: ffi::c_long],
    ) -> ffi::c_int as Result<ffi::c_int> {
        poll(&entries, timeout)
    }
}

/// Sends or receives. Returns how many bytes were moved.
fn move_message(
    endpoint: Connected,
    how: impl FnOnce(&Endpoint, &Buffer, bool) -> Result<usize>,
    message: &Memory,
    flags: ffi::c_int,
) -> Result<ffi::c_int> {
    let endpoint = endpoint?;
    let block = arguments::is_set(flags, arguments::MESSAGE_BLOCK)?;
    if message.len()? == 0 {
        return Ok(0);
    }
    Ok(how(&endpoint, &message.kernel()?, block)? as ffi::c_int)
}

/// Polls for at most `timeout` milliseconds, or without limit if that is negative. Returns how many
/// entries have events.
fn poll(entries: &Entries<Endpoint>, timeout: ffi::c_long) -> Result<ffi::c_int> {
    if entries.len() > MAX_POLLED {
        return Err(EINVAL);
    }
    let mut polled = KVVec::with_capacity(entries.len(), GFP_KERNEL)?;
    for index in 0..entries.len() {
        let _ = polled.push_within_capacity(entries.get(index).ok());
    }
    // From here on wake-ups are noticed. The states are read after that, so that no event is
    // missed.
    let any = WaitAny::new(
        polled
            .iter()
            .flatten()
            .map(|(endpoint, _)| &endpoint.waiters),
    )?;
    let started = Instant::<Monotonic>::now();
    let total = (timeout >= 0).then(|| Delta::from_millis(timeout as i64));
    loop {
        let ready = look(entries, &polled);
        let left = total.map(|total| total - started.elapsed());
        if ready > 0 || left.is_some_and(|left| left.as_nanos() <= 0) {
            return Ok(ready);
        }
        // Polls once more after a timeout, so that an event at that moment counts.
        any.wait(left)?;
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

// ----- transfers and fences ------------------------------------------------------------------------

exported! {
    fn scif_readfrom(
        endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
        local: Offset[loffset: off_t],
        len: Plain<usize>[len: usize],
        remote: Offset[roffset: off_t],
        flags: Plain<ffi::c_int>[rma_flags: ffi::c_int],
    ) -> ffi::c_int as Result {
        copy_windows(endpoint, Direction::Read, local, len, remote, flags)
    }

    fn scif_writeto(
        endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
        local: Offset[loffset: off_t],
        len: Plain<usize>[len: usize],
        remote: Offset[roffset: off_t],
        flags: Plain<ffi::c_int>[rma_flags: ffi::c_int],
    ) -> ffi::c_int as Result {
        copy_windows(endpoint, Direction::Write, local, len, remote, flags)
    }

    fn scif_vreadfrom(
        endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
        local: Memory[addr: *mut ffi::c_void, len: usize],
        remote: Offset[roffset: off_t],
        flags: Plain<ffi::c_int>[rma_flags: ffi::c_int],
    ) -> ffi::c_int as Result {
        copy_memory(endpoint, Direction::Read, &local, remote, flags)
    }

    fn scif_vwriteto(
        endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
        local: Memory[addr: *mut ffi::c_void, len: usize],
        remote: Offset[roffset: off_t],
        flags: Plain<ffi::c_int>[rma_flags: ffi::c_int],
    ) -> ffi::c_int as Result {
        copy_memory(endpoint, Direction::Write, &local, remote, flags)
    }

    fn scif_fence_mark(
        endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
        flags: Plain<ffi::c_int>[flags: ffi::c_int],
        mark: Out<ffi::c_int>[mark: *mut ffi::c_int],
    ) -> ffi::c_int as Result {
        mark.check()?;
        let origin = arguments::origin(flags)?;
        mark.write(endpoint?.fence_mark(origin)?);
        Ok(())
    }

    fn scif_fence_wait(
        endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
        mark: Plain<ffi::c_int>[mark: ffi::c_int],
    ) -> ffi::c_int as Result {
        endpoint?.fence_wait(mark)
    }

    fn scif_fence_signal(
        endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
        local_offset: Offset[loff: off_t],
        local_value: Plain<u64>[lval: u64],
        remote_offset: Offset[roff: off_t],
        remote_value: Plain<u64>[rval: u64],
        flags: Plain<ffi::c_int>[flags: ffi::c_int],
    ) -> ffi::c_int as Result {
        let target = |offset, value| SignalTarget { offset, value };
        let local = target(local_offset, local_value);
        let remote = target(remote_offset, remote_value);
        let (origin, targets) = SignalTargets::parse(flags, local, remote)?;
        endpoint?.fence_signal(origin, targets)
    }
}

fn copy_windows(
    endpoint: Connected,
    direction: Direction,
    local: i64,
    len: usize,
    remote: i64,
    flags: ffi::c_int,
) -> Result {
    let options = TransferOptions::parse(flags)?;
    let local = LocalSide::Windows(local);
    endpoint?.transfer(direction, &local, remote, len as u64, options)
}

fn copy_memory(
    endpoint: Connected,
    direction: Direction,
    local: &Memory,
    remote: i64,
    flags: ffi::c_int,
) -> Result {
    let (memory, len) = (LocalSide::Memory(local.either()?), local.len()?);
    let options = TransferOptions::parse(flags)?;
    endpoint?.transfer(direction, &memory, remote, len as u64, options)
}

// ----- memory that outlives a call -----------------------------------------------------------------

exported! {
    fn scif_register(
        endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
        memory: Memory[addr: *mut ffi::c_void, len: usize],
        offset: Offset[offset: off_t],
        protection: Plain<ffi::c_int>[prot_flags: ffi::c_int],
        flags: Plain<ffi::c_int>[map_flags: ffi::c_int],
    ) -> off_t as Result<i64> {
        let (of_kernel, flags) = arguments::take_map_kernel(flags);
        let options = WindowOptions::parse(protection, flags)?;
        let memory = memory.owned_by_kernel(of_kernel)?;
        endpoint?.register(&memory, offset, options)
    }

    fn scif_unregister(
        endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
        offset: Offset[offset: off_t],
        len: Plain<usize>[len: usize],
    ) -> ffi::c_int as Result {
        endpoint?.unregister(offset, len as u64)
    }

    fn __scif_pin_pages(
        memory: Memory[addr: *mut ffi::c_void, len: usize],
        protection: Plain<ffi::c_int>[prot_flags: ffi::c_int],
        flags: Plain<ffi::c_int>[map_flags: ffi::c_int],
        owner: Address[owner: *mut bindings::module],
        pinned: Out<*mut scif_pinned_pages>[pinned_pages: *mut *mut scif_pinned_pages],
    ) -> ffi::c_int as Result {
        let door = DOOR.get()?;
        pinned.check()?;
        let (of_kernel, flags) = arguments::take_map_kernel(flags);
        let options = WindowOptions::parse(protection, flags)?;
        if options.fixed {
            return Err(EINVAL);
        }
        let memory = memory.owned_by_kernel(of_kernel)?;
        let pages = Arc::new(door.scif.pin(&memory, options.protection)?, GFP_KERNEL)?;
        let number = door.pinned.number(owner, pages)?;
        // An opaque number that no code dereferences.
        pinned.write(core::ptr::without_provenance_mut(number));
        Ok(())
    }

    fn scif_unpin_pages(
        pinned: Address[pinned_pages: *mut scif_pinned_pages],
    ) -> ffi::c_int as Result {
        drop(DOOR.get()?.pinned.take(pinned).ok_or(EINVAL)?);
        Ok(())
    }

    fn scif_register_pinned_pages(
        endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
        pinned: Address[pinned_pages: *mut scif_pinned_pages],
        offset: Offset[offset: off_t],
        flags: Plain<ffi::c_int>[map_flags: ffi::c_int],
    ) -> off_t as Result<i64> {
        let pages = DOOR.get()?.pinned.get(pinned).ok_or(EINVAL)?;
        let fixed = arguments::is_set(flags, arguments::MAP_FIXED)?;
        endpoint?.register_pinned(&pages, offset, fixed)
    }

    fn scif_get_pages(
        endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
        offset: Offset[offset: off_t],
        len: Plain<usize>[len: usize],
        range: Out<*mut scif_range>[pages: *mut *mut scif_range],
    ) -> ffi::c_int as Result {
        let door = DOOR.get()?;
        range.check()?;
        let endpoint = endpoint?;
        let owner = door.owner_of(&endpoint)?;
        let pages = endpoint.remote_pages(offset, len as u64)?;
        let raw = pages.list.as_raw();
        door.held.add(raw.addr(), owner, pages)?;
        range.write(raw);
        Ok(())
    }

    fn scif_put_pages(
        range: Address[pages: *mut scif_range],
    ) -> ffi::c_int as Result {
        drop(DOOR.get()?.held.take(range).ok_or(EINVAL)?);
        Ok(())
    }
}
