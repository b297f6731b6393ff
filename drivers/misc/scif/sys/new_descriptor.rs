// SPDX-License-Identifier: GPL-2.0

//! Files without a name in any folder, and descriptors of them that a process gets.
//!
//! C header: [`include/linux/anon_inodes.h`](srctree/include/linux/anon_inodes.h)

use core::ptr;

use kernel::{
    bindings,
    error::from_err_ptr,
    fs::{
        file::{
            flags,
            FileDescriptorReservation, //
        },
        File, //
    },
    prelude::*,
    sync::aref::ARef,
};

use super::bindings as own;

/// A file with these operations. `name` is what `/proc/PID` shows. May sleep.
///
/// It is opened for writing as well, since otherwise no mapping of it counts as shared.
///
/// # Safety
///
/// The operations are for files whose private data is such as `data`, which is the file's if this
/// succeeds, and theirs to release.
pub(super) unsafe fn anonymous_file(
    name: &'static CStr,
    operations: &'static bindings::file_operations,
    data: *mut c_void,
) -> Result<ARef<File>> {
    // SAFETY: The name and the operations are static; the rest by the contract of this function.
    let file = from_err_ptr(unsafe {
        own::anon_inode_create_getfile(
            name.as_char_ptr(),
            operations,
            data,
            bindings::O_RDWR as c_int,
            ptr::null(),
        )
    })?;
    let file = ptr::NonNull::new(file).ok_or(ENOMEM)?;
    // SAFETY: It has just been made, and the reference is ours; nobody reads or writes it at a position.
    Ok(unsafe { ARef::from_raw(file.cast()) })
}

/// A descriptor of the calling process, which has it once it is [installed](Self::install): dropped
/// before, it was never there.
pub(crate) struct NewDescriptor {
    reserved: FileDescriptorReservation,
    file: ARef<File>,
}

impl NewDescriptor {
    /// Of the file that `make` makes; it does not outlive an `exec`. EMFILE if the process has too many.
    /// May sleep.
    pub(super) fn new(make: impl FnOnce() -> Result<ARef<File>>) -> Result<Self> {
        Ok(Self {
            reserved: FileDescriptorReservation::get_unused_fd_flags(flags::O_CLOEXEC)?,
            file: make()?,
        })
    }

    /// Its number.
    pub(crate) fn number(&self) -> i32 {
        self.reserved.reserved_fd() as i32
    }

    /// From here on the process has it.
    pub(crate) fn install(self) {
        self.reserved.fd_install(self.file);
    }
}
