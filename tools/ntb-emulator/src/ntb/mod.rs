// SPDX-License-Identifier: GPL-2.0
//! NTB functions, in pairs: one in each of two guests.
//!
//! ```text
//! function             one end as a PCI function
//! port                 one end as its function uses it
//! link                 both ends, and the state that they share
//! intel   idt   amd    what the registers do, and what follows: the families
//! bridge               what a family has to do
//! line                 what is between the ends, whatever they look like
//! window               the memory windows
//! ```
//!
//! Order: whatever a guest has written before it rings a doorbell is in the peer's memory
//! before the interrupt is raised. Mapped windows are that memory; writes through trapped
//! ones are served by the same thread as the doorbell, one after the other. Unless the
//! order is to be weak: see [`crate::order`].

mod amd;
mod bridge;
pub mod function;
mod idt;
mod intel;
pub mod line;
pub mod link;
pub mod port;
pub mod window;
