// SPDX-License-Identifier: LGPL-2.1

//! The library as a whole, virtual devices, queries.

use std::ffi::CStr;
use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;

use super::ErrorPlace;
use super::ask;
use super::call;
use super::exported;
use super::put;
use super::required;
use crate::device;
use crate::error;
use crate::error::Error;
use crate::error::OK;
use crate::flags;
use crate::handles::Handle;
use crate::library;
use crate::nodes;
use crate::queries;
use crate::release;

exported! {
    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// `error` is null or can be written to.
    fn SCIInitialize(flags: u32, error: ErrorPlace) {
        let code = ask(Error::SYSTEM.code(), || {
            let done = flags::check(flags, 0).and_then(|()| library::initialize());
            Ok(done.err().map_or(OK, Error::code))
        });
        // SAFETY: By the contract of this function.
        unsafe { put(error, code) };
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// No callback calls this function.
    fn SCITerminate() {
        ask((), || {
            library::terminate(release::all);
            Ok(())
        });
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIOpen(sd: *mut Handle, flags: u32, error: ErrorPlace) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, flags::THREAD_SAFE)?;
                required(sd)?.write(device::open()?);
                Ok(())
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// `error` is null or can be written to.
    fn SCIClose(sd: Handle, flags: u32, error: ErrorPlace) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                device::close(sd)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// None.
    fn SCIGetErrorString(code: u32) -> *const c_char {
        error::text(code).as_ptr()
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// `data` is what the command needs; `error` is null or can be written to.
    fn SCIQuery(command: u32, data: *mut c_void, flags: u32, error: ErrorPlace) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                queries::query(command, data)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// `error` is null or can be written to.
    fn SCIProbeNode(sd: Handle, adapter: u32, node: u32, flags: u32, error: ErrorPlace) -> c_int {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, 0, || {
                flags::check(flags, 0)?;
                let _device = device::using(sd)?;
                nodes::check_adapter(adapter)?;
                nodes::check_reachable(nodes::scif_node(node)?)?;
                Ok(1)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIGetLocalNodeId(adapter: u32, node: *mut u32, flags: u32, error: ErrorPlace) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                nodes::check_adapter(adapter)?;
                required(node)?.write(nodes::sisci_id(nodes::own()?));
                Ok(())
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// `name` is a string; the other pointers are null or can be written to.
    fn SCIGetNodeIdByAdapterName(
        name: *mut c_char,
        nodes: *mut [u32; 256],
        kind: *mut u32,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                let nodes = required(nodes)?;
                let name = CStr::from_ptr(required(name)?).to_string_lossy();
                let mut list = [0; 256];
                list[0] = crate::names::node_of(&name)?;
                nodes.write(list);
                put(kind, 1);
                Ok(())
            })
        }
    }
}
