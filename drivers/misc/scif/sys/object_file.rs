// SPDX-License-Identifier: GPL-2.0

//! A descriptor that stands for an object of the module's, and does nothing by itself.
//!
//! Whoever has the descriptor has the object: it can be passed to other processes, and is inherited by
//! `fork`. The object is dropped when the last descriptor, and the last call that has looked it up, are
//! gone.

use core::{
    any::Any,
    ptr, //
};

use kernel::{bindings, fs::LocalFile, module::this_module, prelude::*, sync::Arc};

use super::new_descriptor::{
    anonymous_file,
    NewDescriptor, //
};
use crate::LocalModule;

/// What is behind each file: an [`Arc`] of the object, whatever that is.
type Object = KBox<dyn Any + Send + Sync>;

/// By their address the files of this module are known, so there is one of them.
struct Operations(bindings::file_operations);

// SAFETY: They do not change.
unsafe impl Sync for Operations {}

static OPERATIONS: Operations = Operations(bindings::file_operations {
    owner: this_module::<LocalModule>().as_ptr(),
    release: Some(release),
    ..pin_init::zeroed()
});

/// # Safety
///
/// `file` was made by [`descriptor`], and is being released.
unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    // SAFETY: `descriptor` has put it there, and nothing else uses it any more.
    drop(unsafe { KBox::from_raw((*file).private_data.cast::<Object>()) });
    0
}

/// A descriptor of an object, for the calling process. `name` is what `/proc/PID/fd` shows. EMFILE if the
/// process has too many. May sleep.
pub(crate) fn descriptor<T: Send + Sync + 'static>(
    name: &'static CStr,
    object: Arc<T>,
) -> Result<NewDescriptor> {
    NewDescriptor::new(|| {
        let object: Object = KBox::new(object, GFP_KERNEL_ACCOUNT)?;
        let data = KBox::into_raw(KBox::new(object, GFP_KERNEL_ACCOUNT)?);
        // SAFETY: The operations take the private data for what it is, and `release` drops it.
        unsafe { anonymous_file(name, &OPERATIONS.0, data.cast()) }.inspect_err(|_| {
            // SAFETY: There is no file that would own it.
            drop(unsafe { KBox::from_raw(data) });
        })
    })
}

/// The object behind a descriptor of the calling process. EBADF if that is none, EINVAL if there is
/// something else behind it.
pub(crate) fn behind<T: Send + Sync + 'static>(descriptor: i32) -> Result<Arc<T>> {
    let number = u32::try_from(descriptor).map_err(|_| EBADF)?;
    let file = LocalFile::fget(number).map_err(|_| EBADF)?;
    // SAFETY: The file is valid, and so are its operations, which do not change.
    let operations = unsafe { (*file.as_ptr()).f_op };
    if !ptr::eq(operations, &OPERATIONS.0) {
        return Err(EINVAL);
    }
    // SAFETY: Its operations say that `descriptor` has made it, and it lives as long as `file`.
    let object = unsafe { &*(*file.as_ptr()).private_data.cast::<Object>() };
    object.downcast_ref::<Arc<T>>().cloned().ok_or(EINVAL)
}
