// SPDX-License-Identifier: GPL-2.0

//! The parts of `sisci-info` and `sisci-bench`.
//!
//! From the bottom: [`ffi`] is the C interface of libsisci, found and opened at run time, [`api`] what is
//! safe to call of it; [`info`] says what there is, [`bench`] how fast it is. No other file has
//! anything that is unsafe.

pub mod api;
pub mod bench;
pub mod error;
pub mod ffi;
pub mod info;
