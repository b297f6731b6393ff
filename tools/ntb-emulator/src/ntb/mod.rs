// SPDX-License-Identifier: GPL-2.0
//! NTB functions, in pairs: one in each of two guests.
//!
//! ```text
//! function             one end as a PCI function
//! port                 one end as its function uses it
//! link                 both ends, and the state that they share
//! intel   idt   amd    the families: the registers, and the effects of accesses
//! bridge               the interface of a family
//! line                 everything between the ends of any family
//! window               the memory windows
//! ```
//!
//! Order: all that a guest has written before it rings a doorbell is in the peer's memory before
//! the interrupt is raised. Mapped windows are that memory. Writes through trapped windows are
//! served by the same thread as the doorbell, one after the other. With a weak order this does not
//! hold: see [`crate::order`].

mod amd;
mod bridge;
pub mod function;
mod idt;
mod intel;
pub mod line;
pub mod link;
pub mod port;
pub mod window;
