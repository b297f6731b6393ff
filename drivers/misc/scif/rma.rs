// SPDX-License-Identifier: GPL-2.0

//! One-sided access: transfers, fences, mappings. Knows windows, channels and paths, not endpoints.
//!
//! A transfer goes `transfers.rs` (what is asked for: which memory, which way) -> `transfer.rs` (by
//! engine: segments, completion) or `cpu_copy.rs`; both walk along `pieces.rs`. It gets a number of
//! `marks.rs`, on which fences (`fence.rs`, `signal.rs`) rest. A small copy by CPU has a shorter way:
//! `at_once.rs`.
//!
//! - `operation.rs`: what is to be copied, and the report of its end
//! - `ways.rs`: which way it goes, by its size
//! - `pulls.rs`, `pushes.rs`: reads that the peer's engine makes
//! - `staging.rs`: what is for memory that the other side does not reach
//! - `registration_cache.rs`, `registration.rs`: memory that is kept for later transfers;
//!   `caches.rs`: all of that, and `memory_pressure.rs`: giving it up
//! - `mapping.rs`: loads and stores of processes with no system call; `ones.rs`: what they may see once
//!   the node is lost
//! - `remote_pages.rs`: pages of the peer for a device of somebody else

pub(crate) mod caches;
mod cpu_copy;
pub(crate) mod fence;
pub(crate) mod mapping;
pub(crate) mod marks;
mod operation;
pub(crate) mod pulls;
pub(crate) mod pushes;
mod registration;
mod registration_cache;
mod signal;
pub(crate) mod staging;
mod transfer;
pub(crate) mod transfers;
pub(crate) mod ways;
