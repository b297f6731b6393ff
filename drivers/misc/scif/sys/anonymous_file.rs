// SPDX-License-Identifier: GPL-2.0

//! Files without a name in any folder, and descriptors of them that a process gets.
//!
//! What is behind a file is an [`Arc`], which is dropped when the last descriptor of the file is gone. The
//! file keeps the module loaded. There are two kinds:
//!
//! - [`descriptor`]: a file that can be read, polled and mapped, for what a process watches;
//! - [`object_descriptor`]: one that stands for an object of the module's, and does nothing by itself. It can
//!   be passed to other processes, and is inherited by `fork`; [`object_behind`] finds the object.
//!
//! C header: [`include/linux/anon_inodes.h`](srctree/include/linux/anon_inodes.h)

use core::{
    any::Any,
    ptr, //
};
use kernel::{
    bindings,
    error::from_err_ptr,
    fs::{
        file::{
            flags,
            FileDescriptorReservation, //
        },
        File,
        LocalFile, //
    },
    module::this_module,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
};

use super::{
    bindings as own,
    chardev::{
        FileOperations,
        Files, //
    },
};
use crate::LocalModule;

/// A file with these operations. `name` is what `/proc/PID` shows. May sleep.
///
/// It is opened for writing as well, since otherwise no mapping of it counts as shared.
///
/// # Safety
///
/// The operations take the private data of a file for a pointer from [`Arc::into_raw`], and release it as
/// [`release`] does.
pub(super) unsafe fn anonymous_file<T: Send + Sync>(
    name: &'static CStr,
    operations: &'static bindings::file_operations,
    data: Arc<T>,
) -> Result<ARef<File>> {
    let data = Arc::into_raw(data).cast_mut();
    // SAFETY: The name and the operations are static; the rest by the contract of this function.
    let file = from_err_ptr(unsafe {
        own::anon_inode_create_getfile(
            name.as_char_ptr(),
            operations,
            data.cast(),
            bindings::O_RDWR as c_int,
            ptr::null(),
        )
    });
    let file = file.inspect_err(|_| {
        // SAFETY: It is from `into_raw`, and there is no file that would own it.
        drop(unsafe { Arc::from_raw(data) });
    })?;
    let file = ptr::NonNull::new(file).ok_or(ENOMEM)?;
    // SAFETY: It has just been made, and the reference is ours; nobody reads or writes it at a position.
    Ok(unsafe { ARef::from_raw(file.cast()) })
}

/// Drops what is behind a file.
///
/// # Safety
///
/// `file` was made by [`anonymous_file`] with an `Arc<T>`, and is being released.
pub(super) unsafe extern "C" fn release<T>(
    _inode: *mut bindings::inode,
    file: *mut bindings::file,
) -> c_int {
    // SAFETY: `anonymous_file` has put it there, and nothing else uses it any more.
    drop(unsafe { Arc::from_raw((*file).private_data.cast::<T>()) });
    0
}

/// Gives the calling process a descriptor of a file, once `tell` has told it the number: on an error it was never
/// there. It does not outlive an `exec`. EMFILE if the process has too many. May sleep.
fn hand_out(file: ARef<File>, tell: impl FnOnce(&i32) -> Result) -> Result {
    let reserved = FileDescriptorReservation::get_unused_fd_flags(flags::O_CLOEXEC)?;
    tell(&(reserved.reserved_fd() as i32))?;
    reserved.fd_install(file);
    Ok(())
}

// ----- files that are watched ----------------------------------------------------------------------

/// Gives the calling process a descriptor of a file of this, whose number `tell` tells it. `name` is what
/// `/proc/PID/fd` shows. EMFILE if the process has too many. May sleep.
pub(crate) fn descriptor<T: FileOperations>(
    name: &'static CStr,
    operations: Arc<T>,
    tell: impl FnOnce(&i32) -> Result,
) -> Result {
    // SAFETY: The operations are for files with an `Arc<T>`.
    let file = unsafe { anonymous_file(name, &Files::<T>::OPERATIONS, operations) };
    hand_out(file?, tell)
}

// ----- files that stand for objects ----------------------------------------------------------------

/// What is behind each of them: an [`Arc`] of the object, whatever that is.
type Object = KBox<dyn Any + Send + Sync>;

/// By their address the files of this module are known, so there is one of them.
struct Operations(bindings::file_operations);

// SAFETY: They do not change.
unsafe impl Sync for Operations {}

static OPERATIONS: Operations = Operations(bindings::file_operations {
    owner: this_module::<LocalModule>().as_ptr(),
    release: Some(release::<Object>),
    ..pin_init::zeroed()
});

/// Gives the calling process a descriptor of an object, as [`descriptor`]. May sleep.
pub(crate) fn object_descriptor<T: Send + Sync + 'static>(
    name: &'static CStr,
    object: Arc<T>,
    tell: impl FnOnce(&i32) -> Result,
) -> Result {
    let object: Object = KBox::new(object, GFP_KERNEL_ACCOUNT)?;
    let object = Arc::new(object, GFP_KERNEL_ACCOUNT)?;
    // SAFETY: The operations are for files with an `Arc<Object>`.
    let file = unsafe { anonymous_file(name, &OPERATIONS.0, object) }?;
    hand_out(file, tell)
}

/// The object behind a descriptor of the calling process. EBADF if that is none, EINVAL if there is
/// something else behind it.
pub(crate) fn object_behind<T: Send + Sync + 'static>(descriptor: i32) -> Result<Arc<T>> {
    let number = u32::try_from(descriptor).map_err(|_| EBADF)?;
    let file = LocalFile::fget(number).map_err(|_| EBADF)?;
    // SAFETY: The file is valid, and so are its operations, which do not change.
    let operations = unsafe { (*file.as_ptr()).f_op };
    if !ptr::eq(operations, &OPERATIONS.0) {
        return Err(EINVAL);
    }
    // SAFETY: Its operations say that `object_descriptor` has made it, and it lives as long as `file`.
    let object = unsafe { &*(*file.as_ptr()).private_data.cast::<Object>() };
    object.downcast_ref::<Arc<T>>().cloned().ok_or(EINVAL)
}
