// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers of kernel interfaces that exist only in C.
//!
//! Nearly all `unsafe` of the module lives here: the layers above use these types and hold no raw
//! pointers. A wrapper undoes in `Drop` what its constructor did, and knows nothing of SCIF.

pub(crate) mod anonymous_file;
pub(crate) mod arena;
mod bindings;
pub(crate) mod buffer;
pub(crate) mod bus_range;
mod calls;
pub(crate) mod chardev;
pub(crate) mod current;
pub(crate) mod dma_map;
pub(crate) mod dmaengine;
pub(crate) mod extent_table;
pub(crate) mod fate;
pub(crate) mod kernel_calls;
pub(crate) mod ledger;
pub(crate) mod memory_group;
pub(crate) mod mmu_notifier;
pub(crate) mod notifiers;
pub(crate) mod ntb;
pub(crate) mod pages;
pub(crate) mod payload;
pub(crate) mod peer_bus;
mod pin;
pub(crate) mod places;
pub(crate) mod pool;
pub(crate) mod published;
pub(crate) mod range_allocator;
pub(crate) mod reached;
pub(crate) mod shared_memory;
pub(crate) mod shared_table;
pub(crate) mod shrinker;
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) mod tests;
pub(crate) mod timer;
pub(crate) mod trace;
pub(crate) mod tunables;
pub(crate) mod uapi;
pub(crate) mod user_mapping;
pub(crate) mod wait;
pub(crate) mod workqueue;

pub(crate) use calls::random;
