// SPDX-License-Identifier: GPL-2.0

//! Functions that other modules of the kernel call, and their parameters.
//!
//! [`exported!`](exported) defines a C function whose body is safe Rust. Each parameter of the body
//! is made from one or more C parameters by a type of this file. The type also tells what the
//! caller has to guarantee. The compiler checks the signature against the header, `linux/scif.h`.
//! `kernel_api/exports.c` exports the symbol.
//!
//! Unlike programs, other modules are trusted: a wrong pointer from a module is a bug of the
//! kernel. Parameters are checked all the same where a check costs nothing.

use core::marker::PhantomData;

use kernel::{
    bindings,
    ffi,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    uaccess::UserPtr, //
};

use super::{
    bindings as own,
    buffer::{
        Buffer,
        KernelRange, //
    },
};

pub(crate) use kernel::bindings::off_t;
pub(crate) use own::{
    scif_client,
    scif_endpt,
    scif_pinned_pages,
    scif_pollepd,
    scif_port_id,
    scif_range, //
};

/// Declarations of the functions in the header.
pub(crate) mod header {
    pub(crate) use super::own::{
        __scif_client_register,
        __scif_open,
        __scif_pin_pages,
        scif_accept,
        scif_bind,
        scif_client_unregister,
        scif_close,
        scif_connect,
        scif_fence_mark,
        scif_fence_signal,
        scif_fence_wait,
        scif_get_node_ids,
        scif_get_pages,
        scif_listen,
        scif_poll,
        scif_put_pages,
        scif_readfrom,
        scif_recv,
        scif_register,
        scif_register_pinned_pages,
        scif_send,
        scif_unpin_pages,
        scif_unregister,
        scif_vreadfrom,
        scif_vwriteto,
        scif_writeto, //
    };
}

/// Defines C functions with bodies of safe Rust. Each parameter has a name for the body, a type of
/// this file, and in brackets the C parameters that it is made of. `as` names the type that the
/// body returns.
///
/// ```ignore
/// exported! {
///     fn scif_listen(
///         endpoint: Handle<Endpoint>[epd: *mut scif_endpt],
///         backlog: Plain<c_int>[backlog: c_int],
///     ) -> c_int as Result {
///         endpoint?.listen(backlog)
///     }
/// }
/// ```
macro_rules! exported {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident($(
            $parameter:ident: $wrapper:ty [$($raw:ident: $type:ty),*]
        ),* $(,)?) -> $result:ty as $returned:ty $body:block
    )*) => {
        $(
            $(#[$attribute])*
            /// Implements the function of this name in `linux/scif.h`.
            ///
            /// # Safety
            ///
            /// The caller keeps this module loaded. Its arguments fulfil the contracts of the types
            /// in `sys/kernel_calls.rs`.
            #[no_mangle]
            unsafe extern "C" fn $name($($($raw: $type,)*)*) -> $result {
                $(
                    // SAFETY: By the contract of this function.
                    let $parameter = unsafe { <$wrapper>::from_raw($($raw),*) };
                )*
                $crate::sys::kernel_calls::call(move || -> $returned { $body })
            }

            // Checks that the signature is the one of the header.
            const _: () = {
                if true {
                    $crate::sys::kernel_calls::header::$name
                } else {
                    $name
                };
            };
        )*
    };
}
pub(crate) use exported;

// ----- parameters ----------------------------------------------------------------------------------

/// A parameter that is passed on as it is.
pub(crate) struct Plain<T>(PhantomData<T>);

impl<T> Plain<T> {
    /// # Safety
    ///
    /// None: for [`exported`].
    pub(crate) unsafe fn from_raw(value: T) -> T {
        value
    }
}

/// A parameter that is an offset in a registered address space.
pub(crate) struct Offset;

impl Offset {
    /// # Safety
    ///
    /// None: for [`exported`].
    pub(crate) unsafe fn from_raw(offset: bindings::off_t) -> i64 {
        offset as i64
    }
}

/// A parameter that is an address, which is only compared.
pub(crate) struct Address;

impl Address {
    /// # Safety
    ///
    /// None: for [`exported`].
    pub(crate) unsafe fn from_raw<T>(pointer: *mut T) -> usize {
        pointer.addr()
    }
}

/// A parameter that is a handle of an object: `EBADF` for a null or invalid handle.
pub(crate) struct Handle<T>(PhantomData<T>);

impl<T: Send + Sync> Handle<T> {
    /// # Safety
    ///
    /// `pointer` is null, `(T *)-1`, or [`handle_of`] an `Arc`. A reference to that `Arc` exists
    /// until this has returned.
    pub(crate) unsafe fn from_raw<R>(pointer: *mut R) -> Result<Arc<T>> {
        if pointer.is_null() || pointer.addr() == usize::MAX {
            return Err(EBADF);
        }
        // SAFETY: By the contract of this function.
        Ok(unsafe { ArcBorrow::<'_, T>::from_raw(pointer.cast()) }.into())
    }
}

/// Returns the handle of an object, which owns no reference.
pub(crate) fn handle_of<T, R>(value: &Arc<T>) -> *mut R {
    Arc::as_ptr(value).cast_mut().cast()
}

/// A parameter that is a range of the caller's memory.
pub(crate) struct Memory {
    start: *mut ffi::c_void,
    /// Length in bytes; `None` if it was negative.
    len: Option<usize>,
}

impl Memory {
    /// # Safety
    ///
    /// If [`Memory::kernel`] or [`Memory::either`] treat it as kernel memory, the `len` bytes at
    /// `start` are kernel memory. They stay so as long as the documentation of the call says.
    pub(crate) unsafe fn from_raw(start: *mut ffi::c_void, len: impl TryInto<usize>) -> Self {
        Self {
            start,
            len: len.try_into().ok(),
        }
    }

    /// Returns the length in bytes; `EINVAL` if it was negative.
    pub(crate) fn len(&self) -> Result<usize> {
        self.len.ok_or(EINVAL)
    }

    fn is_of_process(&self) -> Result<bool> {
        // SAFETY: The helper only compares addresses.
        Ok(unsafe { own::scif_helper_access_ok(self.start, self.len()?) })
    }

    /// Returns the range as kernel memory; `EINVAL` if the address belongs to a process.
    pub(crate) fn kernel(&self) -> Result<Buffer> {
        self.owned_by_kernel(true)
    }

    /// Returns the range as memory of the kernel or of the calling process, as `of_kernel` says;
    /// `EINVAL` if the address contradicts that.
    pub(crate) fn owned_by_kernel(&self, of_kernel: bool) -> Result<Buffer> {
        if self.is_of_process()? == of_kernel {
            return Err(EINVAL);
        }
        let len = self.len()?;
        Ok(if of_kernel {
            // SAFETY: By the contract of `from_raw`.
            Buffer::kernel(unsafe { KernelRange::new(self.start, len) }?)
        } else {
            Buffer::user(UserPtr::from_addr(self.start.addr()), len)
        })
    }

    /// Returns the range as memory of the calling process or of the kernel, as its address says.
    pub(crate) fn either(&self) -> Result<Buffer> {
        self.owned_by_kernel(!self.is_of_process()?)
    }
}

/// A parameter that points to a value of the caller.
pub(crate) struct In<T>(PhantomData<T>);

impl<T> In<T> {
    /// Returns the value; `EINVAL` for a null pointer.
    ///
    /// # Safety
    ///
    /// `pointer` is null or valid for reading a `T`, which is plain data.
    pub(crate) unsafe fn from_raw(pointer: *const T) -> Result<T> {
        if pointer.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: By the contract of this function.
        Ok(unsafe { pointer.read() })
    }
}

/// A parameter that points to a place for a result.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    ///
    /// `pointer` is null or valid for writing a `T`, until the call has returned.
    pub(crate) unsafe fn from_raw(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// Returns `EINVAL` if there is no place for the result. Call this before anything is done.
    pub(crate) fn check(&self) -> Result {
        if self.0.is_null() {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Writes the result, if there is a place for it.
    pub(crate) fn write(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: By the contract of `from_raw`.
            unsafe { self.0.write(value) };
        }
    }
}

/// A parameter that points to a place for several results.
pub(crate) struct OutArray<T> {
    start: *mut T,
    len: usize,
}

impl<T: Copy> OutArray<T> {
    /// Takes a place for `len` results; `EINVAL` if `len` is negative.
    ///
    /// # Safety
    ///
    /// `start` is null or valid for writing `len` of `T`, until the call has returned.
    pub(crate) unsafe fn from_raw(start: *mut T, len: ffi::c_int) -> Result<Self> {
        let len = usize::try_from(len)?;
        Ok(Self { start, len })
    }

    /// Writes as many values as there is room for.
    pub(crate) fn write(&self, values: &[T]) {
        if self.start.is_null() {
            return;
        }
        for (index, value) in values.iter().take(self.len).enumerate() {
            // SAFETY: By the contract of `from_raw`.
            unsafe { self.start.add(index).write(*value) };
        }
    }
}

/// A parameter that points to the entries of a caller of `scif_poll`.
pub(crate) struct Entries<T> {
    start: *mut scif_pollepd,
    len: usize,
    _type: PhantomData<Arc<T>>,
}

impl<T: Send + Sync> Entries<T> {
    /// # Safety
    ///
    /// `start` is null, or valid for `len` entries until the call has returned. Each handle in the
    /// entries fulfils the contract of [`Handle`].
    pub(crate) unsafe fn from_raw(start: *mut scif_pollepd, len: ffi::c_uint) -> Self {
        Self {
            start,
            len: len as usize,
            _type: PhantomData,
        }
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn at(&self, index: usize) -> Result<*mut scif_pollepd> {
        if self.start.is_null() || index >= self.len {
            return Err(EINVAL);
        }
        // SAFETY: By the contract of `from_raw`, and as just checked.
        Ok(unsafe { self.start.add(index) })
    }

    /// Returns the object of an entry and its requested events; `EBADF` if it has no valid handle.
    pub(crate) fn get(&self, index: usize) -> Result<(Arc<T>, u32)> {
        // SAFETY: By the contract of `from_raw`.
        let (entry, handle) = unsafe {
            let entry = self.at(index)?.read();
            (entry, Handle::<T>::from_raw(entry.epd)?)
        };
        Ok((handle, u32::from(entry.events as u16)))
    }

    /// Stores the events that have happened in an entry.
    pub(crate) fn set(&self, index: usize, events: u32) {
        if let Ok(entry) = self.at(index) {
            // SAFETY: By the contract of `from_raw`.
            unsafe { (*entry).revents = events as ffi::c_short };
        }
    }
}

// ----- results -------------------------------------------------------------------------------------

/// A result of Rust that can be converted to the result of a C function.
pub(crate) trait Returned<R> {
    fn into_raw(self) -> R;
}

/// Runs the body of a function that other modules call, for [`exported`].
/// Context: may sleep.
pub(crate) fn call<T: Returned<R>, R>(body: impl FnOnce() -> T) -> R {
    kernel::task::might_sleep();
    body().into_raw()
}

/// Returns the error that other modules get: the kernel does not restart their calls after a
/// signal.
pub(crate) fn told(error: Error) -> Error {
    match error {
        ERESTARTSYS => EINTR,
        error => error,
    }
}

fn errno(error: Error) -> ffi::c_int {
    told(error).to_errno()
}

impl Returned<ffi::c_int> for Result<ffi::c_int> {
    fn into_raw(self) -> ffi::c_int {
        self.unwrap_or_else(errno)
    }
}

impl Returned<ffi::c_int> for Result {
    fn into_raw(self) -> ffi::c_int {
        self.map_or_else(errno, |()| 0)
    }
}

impl Returned<bindings::off_t> for Result<i64> {
    fn into_raw(self) -> bindings::off_t {
        self.map_or_else(
            |error| errno(error) as bindings::off_t,
            |offset| offset as bindings::off_t,
        )
    }
}

impl<T> Returned<*mut T> for Result<*mut T> {
    fn into_raw(self) -> *mut T {
        self.unwrap_or(core::ptr::null_mut())
    }
}

impl Returned<()> for () {
    fn into_raw(self) {}
}

// ----- results with a layout -----------------------------------------------------------------------

/// A `struct scif_range`, and the arrays that it points to.
pub(crate) struct PageList {
    pub(crate) range: KBox<scif_range>,
    _physical: KVVec<u64>,
    _mapped: KVVec<*mut ffi::c_void>,
}

// SAFETY: The pointers are to memory that this owns.
unsafe impl Send for PageList {}
// SAFETY: No method changes anything through `&self`.
unsafe impl Sync for PageList {}

impl PageList {
    /// Makes a list of pages with their physical addresses and their addresses in the kernel.
    /// Context: may sleep.
    pub(crate) fn new(
        mut physical: KVVec<u64>,
        mut mapped: KVVec<*mut ffi::c_void>,
        protection: u32,
    ) -> Result<Self> {
        let range = scif_range {
            cookie: core::ptr::null_mut(),
            nr_pages: ffi::c_int::try_from(physical.len())?,
            prot_flags: protection as ffi::c_int,
            phys_addr: physical.as_mut_ptr(),
            va: mapped.as_mut_ptr(),
        };
        Ok(Self {
            range: KBox::new(range, GFP_KERNEL)?,
            _physical: physical,
            _mapped: mapped,
        })
    }

    /// Returns the pointer that the caller gets.
    pub(crate) fn as_raw(&self) -> *mut scif_range {
        core::ptr::from_ref::<scif_range>(&self.range).cast_mut()
    }
}
