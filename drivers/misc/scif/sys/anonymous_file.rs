// SPDX-License-Identifier: GPL-2.0

//! A file without a name that can be read, polled and mapped: for what a process watches.
//!
//! What is behind it is dropped when its last descriptor is gone. The file keeps the module loaded.

use core::marker::PhantomData;

use kernel::{
    bindings,
    error::from_result,
    fs::File,
    mm::virt::VmaNew,
    module::this_module,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        ArcBorrow, //
    },
    uaccess::{
        UserPtr,
        UserSlice,
        UserSliceWriter, //
    },
};

use super::{
    chardev::PollContext,
    new_descriptor::{
        anonymous_file,
        NewDescriptor, //
    }, //
};
use crate::LocalModule;

/// What is behind an anonymous file.
pub(crate) trait AnonymousOperations: Send + Sync + Sized + 'static {
    /// What `/proc/PID/fd` calls it.
    const NAME: &'static CStr;

    /// Puts into the reader's memory what there is; returns how many bytes. May sleep.
    fn read(&self, to: &mut UserSliceWriter) -> Result<usize>;

    /// As [`FileOperations::poll`](super::chardev::FileOperations::poll).
    fn poll<'file>(&'file self, context: &PollContext<'file>) -> u32;

    /// The file is mapped.
    fn mmap(this: ArcBorrow<'_, Self>, vma: &VmaNew) -> Result;
}

/// Makes such files of `T`.
struct AnonymousFile<T: AnonymousOperations>(PhantomData<Arc<T>>);

/// A descriptor of a file of this, for the calling process. EMFILE if the process has too many. May sleep.
pub(crate) fn descriptor<T: AnonymousOperations>(operations: Arc<T>) -> Result<NewDescriptor> {
    NewDescriptor::new(|| AnonymousFile::file(operations))
}

impl<T: AnonymousOperations> AnonymousFile<T> {
    const OPERATIONS: bindings::file_operations = bindings::file_operations {
        owner: this_module::<LocalModule>().as_ptr(),
        read: Some(Self::read),
        poll: Some(Self::poll),
        mmap: Some(Self::mmap),
        release: Some(Self::release),
        ..pin_init::zeroed()
    };

    fn file(operations: Arc<T>) -> Result<ARef<File>> {
        let data = Arc::into_raw(operations);
        // SAFETY: The operations take the private data for what it is, and `release` drops it.
        unsafe { anonymous_file(T::NAME, &Self::OPERATIONS, data.cast_mut().cast()) }.inspect_err(
            |_| {
                // SAFETY: There is no file that would own it.
                drop(unsafe { Arc::from_raw(data) });
            },
        )
    }

    /// # Safety
    ///
    /// `file` was made by [`Self::file`], and stays open for `'a`.
    unsafe fn data<'a>(file: *mut bindings::file) -> ArcBorrow<'a, T> {
        // SAFETY: `file` has put it there, and the file owns it until `release`.
        unsafe { ArcBorrow::from_raw((*file).private_data.cast()) }
    }

    /// # Safety
    ///
    /// `file` was made by [`Self::file`], and is open.
    unsafe extern "C" fn read(
        file: *mut bindings::file,
        to: *mut c_char,
        len: usize,
        _position: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: By the contract of this function.
        let data = unsafe { Self::data(file) };
        let to = UserSlice::new(UserPtr::from_addr(to as usize), len);
        match data.read(&mut to.writer()) {
            Ok(count) => count as isize,
            Err(error) => error.to_errno() as isize,
        }
    }

    /// # Safety
    ///
    /// `file` was made by [`Self::file`], and is open; `table` is null or valid.
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        // SAFETY: Both are valid during this call.
        let context = unsafe { PollContext::new(file, table) };
        // SAFETY: `file` has put it there, and the file owns it until `release`; that is the lifetime
        // that `poll` and its context are given.
        let data = unsafe { &*(*file).private_data.cast::<T>() };
        data.poll(&context)
    }

    /// # Safety
    ///
    /// `file` was made by [`Self::file`], and is open; `vma` is an area that is being set up for it.
    unsafe extern "C" fn mmap(
        file: *mut bindings::file,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the contract of this function.
            unsafe { T::mmap(Self::data(file), VmaNew::from_raw(vma)) }?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// `file` was made by [`Self::file`], and is being released.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `file` has put it there, and nothing else uses it any more.
        drop(unsafe { Arc::from_raw((*file).private_data.cast::<T>()) });
        0
    }
}
