// SPDX-License-Identifier: GPL-2.0

//! One-sided access: transfers, fences, mappings. Knows windows, channels and paths, not endpoints.
//!
//! A caller's copy begins in `transfers.rs`. There is one decision on how it goes, in `ways.rs`, and one path for each
//! way: by the processor (`cpu_copy.rs`), by an engine (`transfer.rs`), through slots (`staging.rs`), or by the peer
//! (`pulls.rs`, whose requests arrive in `pushes.rs`). All ways share and end one `operation.rs`. A transfer has a
//! number of `marks.rs`, on which fences (`fence.rs`, `signal.rs`) rest; what waits for those is in `deferred.rs`.
//!
//! - `registration_cache.rs`, `registration.rs`: memory that is kept for later transfers
//! - `caches.rs`: all registration caches, and how they give memory up that the kernel is short of
//! - `mapping.rs`: loads and stores of processes with no system call, and pages of the peer for a device of
//!   somebody else

pub(crate) mod caches;
mod cpu_copy;
mod deferred;
pub(crate) mod fence;
pub(crate) mod mapping;
pub(crate) mod marks;
mod operation;
mod pulls;
pub(crate) mod pushes;
mod registration;
pub(crate) mod registration_cache;
mod signal;
pub(crate) mod staging;
mod transfer;
pub(crate) mod transfers;
pub(crate) mod ways;
