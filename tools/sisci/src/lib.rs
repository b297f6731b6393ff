// SPDX-License-Identifier: GPL-2.0

//! The parts of `sisci-info` and `sisci-bench`.
//!
//! The parts from the bottom: [`ffi`] is the C interface of libsisci, found and opened at run time,
//! and [`api`] its safe wrapper. [`info`] shows what exists, [`bench`] measures. No other file has
//! unsafe code.

pub mod api;
pub mod bench;
pub mod error;
pub mod ffi;
pub mod info;
