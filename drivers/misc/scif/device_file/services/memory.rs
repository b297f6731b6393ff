// SPDX-License-Identifier: GPL-2.0

//! Memory that is pinned once and registered by many connections: `SCIF_MEMORY_CREATE` gives a
//! descriptor of it, `SCIF_MEMORY_REGISTER` makes windows of that.

use crate::{
    arguments::{
        self,
        WindowOptions, //
    },
    device_file::call::Pointer,
    endpoint::{
        pinned::PinnedPages,
        Endpoint, //
    },
    sys::{
        buffer::Buffer,
        object_file,
        uapi::{
            self,
            place, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::Arc,
    uaccess::UserPtr, //
};

/// `SCIF_MEMORY_DEVICE`.
const DEVICE: u32 = uapi::SCIF_MEMORY_DEVICE;

/// What `/proc/PID/fd` shows.
const NAME: &CStr = c"[scif-memory]";

/// The bytes of the first versions.
const CREATE_LEAST: usize = 40;
const REGISTER_LEAST: usize = 48;

static_assert!(size_of::<uapi::scif_memory_create>() >= CREATE_LEAST);
static_assert!(size_of::<uapi::scif_memory_register>() >= REGISTER_LEAST);

pub(super) fn create(endpoint: &Endpoint, at: usize, pointer: Pointer) -> Result {
    let request: uapi::scif_memory_create = uapi::read_sized(at, CREATE_LEAST)?;
    if request.flags & !DEVICE != 0 || request.reserved != 0 {
        return Err(EINVAL);
    }
    let protection = arguments::protection(request.prot)?;
    let told = place!(at, uapi::scif_memory_create, fd).writable()?;
    let pinned = match request.flags & DEVICE != 0 {
        true => endpoint.pin_device(request.address, request.len, protection)?,
        false => {
            let address = UserPtr::from_addr(pointer(request.address));
            let memory = Buffer::user(address, usize::try_from(request.len)?);
            endpoint.pin(&memory, protection)?
        }
    };
    let pinned = Arc::new(pinned, GFP_KERNEL_ACCOUNT)?;
    let descriptor = object_file::descriptor(NAME, pinned)?;
    told.write(&descriptor.number())?;
    descriptor.install();
    Ok(())
}

pub(super) fn register(endpoint: &Endpoint, at: usize) -> Result {
    let request: uapi::scif_memory_register = uapi::read_sized(at, REGISTER_LEAST)?;
    if request.reserved != 0 {
        return Err(EINVAL);
    }
    let options = WindowOptions {
        protection: arguments::protection(request.prot)?,
        fixed: arguments::map_fixed(i32::try_from(request.flags).map_err(|_| EINVAL)?)?,
    };
    let told = place!(at, uapi::scif_memory_register, offset).writable()?;
    let pinned = object_file::behind::<PinnedPages>(request.fd)?;
    let part = (request.from, request.len);
    let offset = endpoint.register_part(&pinned, part, request.offset, options)?;
    let result = told.write(&offset);
    if result.is_err() {
        // The caller can't know of the window.
        let _ = endpoint.unregister(offset, request.len);
    }
    result
}
