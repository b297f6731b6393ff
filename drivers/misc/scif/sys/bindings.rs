// SPDX-License-Identifier: GPL-2.0

//! The module's own bindings: NTB, dmaengine, `linux/scif_ioctl.h` and the C helpers.
//!
//! The build generates them (`Kbuild`, `bindings_helper.h`, `bindgen_parameters`). Only the
//! wrappers in `sys/` use them: no other code calls C.

#![allow(
    clippy::all,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]
#![allow(
    clippy::as_underscore,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks
)]

use kernel::{
    bindings::*,
    ffi, //
};

include!(concat!(env!("SCIF_OBJ"), "/sys/bindings_generated.rs"));
