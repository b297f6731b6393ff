// SPDX-License-Identifier: GPL-2.0

//! One-sided access: transfers, fences and mappings. This module knows windows, channels and paths,
//! but not endpoints.
//!
//! A caller's copy starts in `transfers.rs`. `transfer_policy.rs` alone decides how the copy is
//! made. There is one module for each way: the CPU (`cpu_copy.rs`), a DMA engine (`transfer.rs`),
//! slots (`staging.rs`), or the peer (`peer_reads.rs`, whose requests arrive in
//! `peer_write_requests.rs`). All of them share an operation (`operation.rs`), and one of them
//! completes it. Each transfer gets a number from `marks.rs`. Fences (`fence.rs`, `signal.rs`) rest
//! on these numbers, and `deferred.rs` holds what waits for them.
//!
//! - `registration_cache.rs`, `registration.rs`: memory that stays pinned for later transfers
//! - `caches.rs`: all registration caches, and how they return memory when the kernel is short of
//!   it
//! - `mapping.rs`: loads and stores by processes without a system call, and pages of the peer for
//!   another driver's device

pub(crate) mod caches;
mod cpu_copy;
mod deferred;
pub(crate) mod fence;
pub(crate) mod mapping;
pub(crate) mod marks;
mod operation;
mod peer_reads;
pub(crate) mod peer_write_requests;
mod registration;
pub(crate) mod registration_cache;
mod signal;
pub(crate) mod staging;
mod transfer;
pub(crate) mod transfer_policy;
pub(crate) mod transfers;
