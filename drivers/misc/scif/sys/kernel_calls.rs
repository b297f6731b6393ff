// SPDX-License-Identifier: GPL-2.0

//! Functions that other modules of the kernel call, and what they pass.
//!
//! [`exported!`](exported) makes a C function whose body is safe Rust: each parameter of that is
//! made of one or more of the C function's, by a type of this file, which says what who calls has to
//! vouch for. The signature is checked against the header, `linux/scif.h`, when this is compiled;
//! the symbol itself is exported by `kernel_api/exports.c`.
//!
//! Unlike programs, other modules are trusted: a wrong pointer of theirs is a bug of the kernel. What
//! costs nothing to check is checked all the same.

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

/// The functions as the header declares them.
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

/// Makes C functions of safe Rust; see the head of this file. Each parameter has a name for the body, and in
/// brackets the parameters of C that it is made of; `as` says what the body returns.
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
            /// See `linux/scif.h`.
            ///
            /// # Safety
            ///
            /// Who calls keeps this module loaded, and vouches for what it passes, as the types of
            /// `sys/kernel_calls.rs` ask for.
            #[no_mangle]
            unsafe extern "C" fn $name($($($raw: $type,)*)*) -> $result {
                $(
                    // SAFETY: By the contract of this function.
                    let $parameter = unsafe { <$wrapper>::from_raw($($raw),*) };
                )*
                $crate::sys::kernel_calls::call(move || -> $returned { $body })
            }

            // The signature is that of the header.
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

/// A value that means nothing but itself.
pub(crate) struct Plain<T>(PhantomData<T>);

impl<T> Plain<T> {
    /// # Safety
    ///
    /// None: for [`exported`].
    pub(crate) unsafe fn from_raw(value: T) -> T {
        value
    }
}

/// An offset in a registered address space.
pub(crate) struct Offset;

impl Offset {
    /// # Safety
    ///
    /// None: for [`exported`].
    pub(crate) unsafe fn from_raw(offset: bindings::off_t) -> i64 {
        offset as i64
    }
}

/// The address of something, which is only compared.
pub(crate) struct Address;

impl Address {
    /// # Safety
    ///
    /// None: for [`exported`].
    pub(crate) unsafe fn from_raw<T>(pointer: *mut T) -> usize {
        pointer.addr()
    }
}

/// A reference to something that was handed out as a pointer: `EBADF` for none.
pub(crate) struct Handle<T>(PhantomData<T>);

impl<T: Send + Sync> Handle<T> {
    /// # Safety
    ///
    /// `pointer` is null, `(T *)-1`, or [`handle_of`] an `Arc` of which a reference exists until this
    /// has returned.
    pub(crate) unsafe fn from_raw<R>(pointer: *mut R) -> Result<Arc<T>> {
        if pointer.is_null() || pointer.addr() == usize::MAX {
            return Err(EBADF);
        }
        // SAFETY: By the contract of this function.
        Ok(unsafe { ArcBorrow::<'_, T>::from_raw(pointer.cast()) }.into())
    }
}

/// As what something is handed out. The pointer owns nothing.
pub(crate) fn handle_of<T, R>(value: &Arc<T>) -> *mut R {
    Arc::as_ptr(value).cast_mut().cast()
}

/// Memory of who calls.
pub(crate) struct Memory {
    start: *mut ffi::c_void,
    /// None if it was negative.
    len: Option<usize>,
}

impl Memory {
    /// # Safety
    ///
    /// Where [`Memory::kernel`] or [`Memory::either`] take it for memory of the kernel, `len` bytes at
    /// `start` are, and stay so as long as the call is documented to use them.
    pub(crate) unsafe fn from_raw(start: *mut ffi::c_void, len: impl TryInto<usize>) -> Self {
        Self {
            start,
            len: len.try_into().ok(),
        }
    }

    /// How many bytes: `EINVAL` if that was negative.
    pub(crate) fn len(&self) -> Result<usize> {
        self.len.ok_or(EINVAL)
    }

    fn is_of_process(&self) -> Result<bool> {
        // SAFETY: It only compares addresses.
        Ok(unsafe { own::scif_helper_access_ok(self.start, self.len()?) })
    }

    /// It is the kernel's: `EINVAL` where it can't be.
    pub(crate) fn kernel(&self) -> Result<Buffer> {
        self.owned_by_kernel(true)
    }

    /// It is the kernel's, or that of the calling process: `EINVAL` where it can't be.
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

    /// It is where its address says: of the calling process, or of the kernel.
    pub(crate) fn either(&self) -> Result<Buffer> {
        self.owned_by_kernel(!self.is_of_process()?)
    }
}

/// A value that who calls has put somewhere.
pub(crate) struct In<T>(PhantomData<T>);

impl<T> In<T> {
    /// The value; `EINVAL` for no pointer.
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

/// Where a result goes.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    ///
    /// `pointer` is null or valid for writing a `T`, until the call has returned.
    pub(crate) unsafe fn from_raw(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// `EINVAL` if there is no place for it: to be asked before anything is done.
    pub(crate) fn check(&self) -> Result {
        if self.0.is_null() {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Puts the result there, if there is a place for it.
    pub(crate) fn write(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: By the contract of `from_raw`.
            unsafe { self.0.write(value) };
        }
    }
}

/// Where several results go.
pub(crate) struct OutArray<T> {
    start: *mut T,
    len: usize,
}

impl<T: Copy> OutArray<T> {
    /// `EINVAL` if the number is negative.
    ///
    /// # Safety
    ///
    /// `start` is null or valid for writing `len` of `T`, until the call has returned.
    pub(crate) unsafe fn from_raw(start: *mut T, len: ffi::c_int) -> Result<Self> {
        let len = usize::try_from(len)?;
        Ok(Self { start, len })
    }

    /// Puts values there, as many as there is room for.
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

/// What somebody waits for in `scif_poll`.
pub(crate) struct Entries<T> {
    start: *mut scif_pollepd,
    len: usize,
    _type: PhantomData<Arc<T>>,
}

impl<T: Send + Sync> Entries<T> {
    /// # Safety
    ///
    /// `start` is null or valid for `len` entries until the call has returned, and each handle in them
    /// is one for [`Handle`].
    pub(crate) unsafe fn from_raw(start: *mut scif_pollepd, len: ffi::c_uint) -> Self {
        Self {
            start,
            len: len as usize,
            _type: PhantomData,
        }
    }

    /// How many there are.
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

    /// One of them: what is waited on, and for which events; `EBADF` for no handle.
    pub(crate) fn get(&self, index: usize) -> Result<(Arc<T>, u32)> {
        // SAFETY: By the contract of `from_raw`.
        let (entry, handle) = unsafe {
            let entry = self.at(index)?.read();
            (entry, Handle::<T>::from_raw(entry.epd)?)
        };
        Ok((handle, u32::from(entry.events as u16)))
    }

    /// Says what has happened.
    pub(crate) fn set(&self, index: usize, events: u32) {
        if let Ok(entry) = self.at(index) {
            // SAFETY: By the contract of `from_raw`.
            unsafe { (*entry).revents = events as ffi::c_short };
        }
    }
}

// ----- results -------------------------------------------------------------------------------------

/// How a result becomes one of C.
pub(crate) trait Returned<R> {
    fn into_raw(self) -> R;
}

/// Does what a function does that other modules call; for [`exported`].
pub(crate) fn call<T: Returned<R>, R>(body: impl FnOnce() -> T) -> R {
    kernel::task::might_sleep();
    body().into_raw()
}

/// What other modules are told of an error: no call is begun anew for them after a signal.
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

// ----- what is handed out and has a layout ---------------------------------------------------------

/// A `struct scif_range`, and the arrays that it points to.
pub(crate) struct PageList {
    pub(crate) range: KBox<scif_range>,
    _physical: KVVec<u64>,
    _mapped: KVVec<*mut ffi::c_void>,
}

// SAFETY: The pointers are to memory of this.
unsafe impl Send for PageList {}
// SAFETY: Nothing is changed through `&self`.
unsafe impl Sync for PageList {}

impl PageList {
    /// Pages at these physical addresses, and at these of the kernel. May sleep.
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

    /// As what it is handed out.
    pub(crate) fn as_raw(&self) -> *mut scif_range {
        core::ptr::from_ref::<scif_range>(&self.range).cast_mut()
    }
}
