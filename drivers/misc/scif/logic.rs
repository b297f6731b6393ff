// SPDX-License-Identifier: GPL-2.0

//! The part of the module that needs only `core`: formats, arithmetic, tables.
//!
//! These files hold no I/O, no locks and no allocation. They are compiled a second time on the
//! host (`tests/host`), where unit, property and loom tests run against models.

pub(crate) mod address_space;
pub(crate) mod atomic;
pub(crate) mod awake;
pub(crate) mod budget;
pub(crate) mod control_block;
pub(crate) mod copy_costs;
pub(crate) mod doorbells;
pub(crate) mod envelope;
pub(crate) mod extents;
pub(crate) mod frame_messages;
pub(crate) mod frame_ring;
pub(crate) mod gate;
pub(crate) mod handshake;
pub(crate) mod hello;
pub(crate) mod link_rate;
pub(crate) mod log_limit;
pub(crate) mod marks;
pub(crate) mod messages;
pub(crate) mod news;
pub(crate) mod parts;
pub(crate) mod plan;
pub(crate) mod registrations;
pub(crate) mod ring;
pub(crate) mod staging;
pub(crate) mod stores;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;
pub(crate) mod update;
pub(crate) mod window_set;
