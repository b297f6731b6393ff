// SPDX-License-Identifier: GPL-2.0
//! NTB functions, in pairs: one in each of two guests.
//!
//! ```text
//! function             one end as a PCI function
//! port                 one end as its function uses it
//! block                its registers while a guest accesses them
//! link                 both ends, and the state that they share
//! gen3   gen5          the two personalities
//! identity             what a personality is
//! register_map         where the registers are
//! registers            what the registers of one end hold
//! window               the memory windows
//! ```
//!
//! Order: whatever a guest has written before it rings a doorbell is in the peer's memory
//! before the interrupt is raised. Mapped windows are that memory; writes through trapped
//! ones are served by the same thread as the doorbell, one after the other.

pub mod block;
pub mod function;
mod gen3;
mod gen5;
pub mod identity;
pub mod link;
pub mod port;
pub mod register_map;
pub mod registers;
pub mod window;
