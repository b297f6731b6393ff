// SPDX-License-Identifier: GPL-2.0

//! The functions on memory that outlives a call: windows, pinned pages, pages of a peer.

use super::door::{
    Door,
    HeldPages, //
};
use crate::{
    arguments::{
        self,
        WindowOptions, //
    },
    endpoint::Endpoint,
    sys::{
        kernel_calls::{
            exported,
            off_t,
            scif_endpt,
            scif_pinned_pages,
            scif_range,
            Address,
            Handle,
            Memory,
            Offset,
            Out,
            PageList,
            Plain, //
        },
        published::TheOnly,
    },
};
use kernel::{
    bindings,
    ffi,
    prelude::*,
    sync::Arc, //
};

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
