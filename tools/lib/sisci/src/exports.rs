// SPDX-License-Identifier: LGPL-2.1

//! The functions of `sisci_api.h`, as C sees them.
//!
//! Each function exists under three names. One is its own; programs compiled with the original
//! header, for several threads or for one, are linked with the other two. Some have another
//! spelling, too. This layer checks pointers and flags, stores results, and turns a panic into an
//! error. The work is done elsewhere.

pub(crate) mod constants;
mod devices;
mod dma;
mod interrupts;
mod maps;
mod segments;
mod sequences;
mod whole;

use std::ffi::c_void;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use crate::error::Error;
use crate::error::OK;
use crate::error::Result;
use crate::library;
use crate::process;
use crate::release;
use crate::threads::NotCancelled;

/// Defines functions for C, each under its three names. A function that programs spell in another
/// way gets three more.
macro_rules! exported {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident $(| $spelling:ident)? ($($argument:ident: $type:ty),* $(,)?)
            $(-> $result:ty)? $body:block
    )*) => {
        $(
            $(#[$attribute])*
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? $body

            #[allow(non_snake_case)]
            mod $name {
                #[allow(unused_imports)]
                use super::*;

                exported!(@name of_many_threads "_SISCI_PUBLIC_FUNC_MT_" $name $name
                    ($($argument: $type),*) $(-> $result)?);
                exported!(@name of_one_thread "_SISCI_PUBLIC_FUNC_ST_" $name $name
                    ($($argument: $type),*) $(-> $result)?);
            }

            exported!(@spelling $($spelling)? of $name
                ($($argument: $type),*) $(-> $result)?);
        )*
    };
    (@spelling of $name:ident $arguments:tt $(-> $result:ty)?) => {};
    (@spelling $spelling:ident of $name:ident $arguments:tt $(-> $result:ty)?) => {
        #[allow(non_snake_case)]
        mod $spelling {
            #[allow(unused_imports)]
            use super::*;

            exported!(@name as_it_is "" $spelling $name $arguments $(-> $result)?);
            exported!(@name of_many_threads "_SISCI_PUBLIC_FUNC_MT_" $spelling $name
                $arguments $(-> $result)?);
            exported!(@name of_one_thread "_SISCI_PUBLIC_FUNC_ST_" $spelling $name
                $arguments $(-> $result)?);
        }
    };
    (@name $inside:ident $prefix:literal $spelling:ident $name:ident
        ($($argument:ident: $type:ty),*) $(-> $result:ty)?
    ) => {
        /// Another name of the function.
        ///
        /// # Safety
        ///
        /// The same as for the function.
        #[unsafe(export_name = concat!($prefix, stringify!($spelling)))]
        pub unsafe extern "C" fn $inside($($argument: $type),*) $(-> $result)? {
            // SAFETY: By the contract of this function.
            unsafe { super::$name($($argument),*) }
        }
    };
}
use exported;

/// The address where the caller wants the error; may be null.
pub type ErrorPlace = *mut u32;

/// Runs the body of a function. Returns its result, or `otherwise` after an error. Stores the error
/// at `place`.
///
/// # Safety
///
/// `place` is null or can be written to.
unsafe fn call<T>(place: ErrorPlace, otherwise: T, body: impl FnOnce() -> Result<T>) -> T {
    let _whole = NotCancelled::new();
    process::enter(release::forget);
    // State behind locks is consistent after a panic, see `lock.rs`.
    let run = || library::check_running().and_then(|()| body());
    let ended = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(Error::SYSTEM));
    // SAFETY: By the contract of this function.
    unsafe { put(place, ended.as_ref().err().map_or(OK, |error| error.code())) };
    ended.unwrap_or(otherwise)
}

/// Runs a query, like [`call`]: it reports no error, and the library need not be initialized.
fn ask<T>(otherwise: T, body: impl FnOnce() -> Result<T>) -> T {
    let _whole = NotCancelled::new();
    process::enter(release::forget);
    catch_unwind(AssertUnwindSafe(body))
        .unwrap_or(Err(Error::SYSTEM))
        .unwrap_or(otherwise)
}

/// Stores a result, unless the pointer is null.
///
/// # Safety
///
/// `place` is null or can be written to.
unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: By the contract of this function.
        unsafe { place.write(value) };
    }
}

/// Checks a pointer that must not be null.
fn required<T>(place: *mut T) -> Result<*mut T> {
    match place.is_null() {
        true => Err(Error::ILLEGAL_PARAMETER),
        false => Ok(place),
    }
}

/// Returns the callback, if the flags ask for one.
///
/// # Safety
///
/// The program keeps the contract of [`Callback::new`](crate::callback::Callback::new).
unsafe fn callback<F>(
    function: Option<F>,
    argument: *mut c_void,
    flags: u32,
) -> Result<Option<crate::callback::Callback<F>>> {
    match (function, flags & crate::flags::USE_CALLBACK) {
        // Without the flag the function is ignored.
        (_, 0) => Ok(None),
        (None, _) => Err(Error::ILLEGAL_PARAMETER),
        // SAFETY: By the contract of this function.
        (Some(function), _) => Ok(Some(unsafe {
            crate::callback::Callback::new(function, argument)
        })),
    }
}
