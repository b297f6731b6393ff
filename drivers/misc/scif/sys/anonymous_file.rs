// SPDX-License-Identifier: GPL-2.0

//! Anonymous files, which have no name in any directory, and their descriptors in a process.
//!
//! The object behind a file is an [`Arc`], which is dropped when the last descriptor of the file is
//! closed. The file keeps the module loaded. There are two kinds:
//!
//! - [`descriptor`]: a file that can be read, polled and mapped, for objects that a process
//!   watches;
//! - [`object_descriptor`]: a file that stands for an object of this module, and has no operations.
//!   It can be passed to other processes, and is inherited by `fork`. [`object_behind`] finds the
//!   object.
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

/// Creates a file with these operations. `/proc/PID` shows `name`.
///
/// The file is also opened for writing, since otherwise no mapping of it counts as shared.
/// Context: may sleep.
///
/// # Safety
///
/// The operations expect the private data of a file to be a pointer from [`Arc::into_raw`], and
/// release it as [`release`] does.
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
        // SAFETY: The pointer is from `into_raw`, and no file owns it.
        drop(unsafe { Arc::from_raw(data) });
    })?;
    let file = ptr::NonNull::new(file).ok_or(ENOMEM)?;
    // SAFETY: The file has just been created, and this owns the reference. No thread reads or
    // writes the file at a position.
    Ok(unsafe { ARef::from_raw(file.cast()) })
}

/// Drops the object behind a file.
///
/// # Safety
///
/// `file` was made by [`anonymous_file`] with an `Arc<T>`, and is being released.
pub(super) unsafe extern "C" fn release<T>(
    _inode: *mut bindings::inode,
    file: *mut bindings::file,
) -> c_int {
    // SAFETY: `anonymous_file` has put the pointer there, and nothing else uses it any more.
    drop(unsafe { Arc::from_raw((*file).private_data.cast::<T>()) });
    0
}

/// Gives the calling process a descriptor of a file, after `write_number` has told the process the
/// number. If `write_number` fails, the descriptor never existed. An `exec` closes it.
///
/// Returns EMFILE if the process has too many descriptors.
/// Context: may sleep.
fn hand_out(file: ARef<File>, write_number: impl FnOnce(&i32) -> Result) -> Result {
    let reserved = FileDescriptorReservation::get_unused_fd_flags(flags::O_CLOEXEC)?;
    write_number(&(reserved.reserved_fd() as i32))?;
    reserved.fd_install(file);
    Ok(())
}

// ----- files that are watched ----------------------------------------------------------------------

/// Gives the calling process a descriptor of a file with these operations. `write_number` tells the
/// process the number. `/proc/PID/fd` shows `name`.
///
/// Returns EMFILE if the process has too many descriptors.
/// Context: may sleep.
pub(crate) fn descriptor<T: FileOperations>(
    name: &'static CStr,
    operations: Arc<T>,
    write_number: impl FnOnce(&i32) -> Result,
) -> Result {
    // SAFETY: The operations are for files with an `Arc<T>`.
    let file = unsafe { anonymous_file(name, &Files::<T>::OPERATIONS, operations) };
    hand_out(file?, write_number)
}

// ----- files that stand for objects ----------------------------------------------------------------

/// The private data of an object's file: an [`Arc`] of the object, of any type.
type Object = KBox<dyn Any + Send + Sync>;

/// The operations of object files. Their address identifies these files, so there is only one
/// instance.
struct Operations(bindings::file_operations);

// SAFETY: The operations never change.
unsafe impl Sync for Operations {}

static OPERATIONS: Operations = Operations(bindings::file_operations {
    owner: this_module::<LocalModule>().as_ptr(),
    release: Some(release::<Object>),
    ..pin_init::zeroed()
});

/// Gives the calling process a descriptor of an object, as [`descriptor`] does.
/// Context: may sleep.
pub(crate) fn object_descriptor<T: Send + Sync + 'static>(
    name: &'static CStr,
    object: Arc<T>,
    write_number: impl FnOnce(&i32) -> Result,
) -> Result {
    let object: Object = KBox::new(object, GFP_KERNEL_ACCOUNT)?;
    let object = Arc::new(object, GFP_KERNEL_ACCOUNT)?;
    // SAFETY: The operations are for files with an `Arc<Object>`.
    let file = unsafe { anonymous_file(name, &OPERATIONS.0, object) }?;
    hand_out(file, write_number)
}

/// Returns the object behind a descriptor of the calling process.
///
/// # Errors
///
/// - `EBADF`: there is no such descriptor.
/// - `EINVAL`: the descriptor does not stand for an object of type `T`.
pub(crate) fn object_behind<T: Send + Sync + 'static>(descriptor: i32) -> Result<Arc<T>> {
    let number = u32::try_from(descriptor).map_err(|_| EBADF)?;
    let file = LocalFile::fget(number).map_err(|_| EBADF)?;
    // SAFETY: The file is valid, and so are its operations, which never change.
    let operations = unsafe { (*file.as_ptr()).f_op };
    if !ptr::eq(operations, &OPERATIONS.0) {
        return Err(EINVAL);
    }
    // SAFETY: The operations show that `object_descriptor` has created the file. The object lives
    // as long as `file`.
    let object = unsafe { &*(*file.as_ptr()).private_data.cast::<Object>() };
    object.downcast_ref::<Arc<T>>().cloned().ok_or(EINVAL)
}
