// SPDX-License-Identifier: LGPL-2.1

//! A byte stream between two processes of two nodes, each of whose messages takes no system call.
//!
//! SCIF gives a process windows of another node's memory that it can store to. That is all that a ring
//! takes: each end registers one in which it receives, and maps the peer's. Nothing of it is in the kernel,
//! which so has nobody to trust; it takes the memory away when the connection or the node goes, as it does
//! with every window. The connection itself carries the bells for who sleeps.
//!
//! From top to bottom, and imports point down:
//!
//! - `exports`: the functions, as C sees them;
//! - `ring`: one end of a ring, [`Ring`]; `setup`: how two ends find each other's memory;
//! - `sender`, `receiver`: the two directions, and in `direction` what they do alike;
//! - `bells`: who is woken, and how one sleeps;
//! - the machine: `area`, `endpoint`, `barriers`;
//! - `header`, `counters`: where what lies in a ring, and its arithmetic.
//!
//! # What both ends rely on
//!
//! Everything that the peer writes is read once and checked. A peer that lies can make this process receive
//! bytes that nobody has sent, or end the connection, and nothing else.

mod area;
mod barriers;
mod bells;
mod counters;
mod direction;
mod endpoint;
pub mod exports;
mod header;
mod receiver;
mod ring;
mod sender;
mod setup;
#[cfg(test)]
mod tests;

pub use ring::Ready;
pub use ring::Ring;
pub use rustix::io::Errno;
