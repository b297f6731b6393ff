// SPDX-License-Identifier: LGPL-2.1

//! A byte stream between two processes on two nodes, in which a message takes no system call.
//!
//! SCIF gives a process windows of another node's memory that the process can store to. A ring
//! needs nothing else: each end registers the memory in which it receives, and maps the memory of
//! the peer. The kernel has no part in a ring and so need not trust either end. When the connection
//! or the node goes, the kernel takes the mapped memory away, as for every window. The connection
//! itself carries bells, bytes that wake up an end that sleeps.
//!
//! The modules from top to bottom; a module imports only modules below it:
//!
//! - `exports`: the functions, as C sees them;
//! - `ring`: one end of a ring, [`Ring`]; `setup`: how the two ends find each other's memory;
//! - `sender`, `receiver`: the two directions, and in `direction` the code that they share;
//! - `bells`: sleeps of an end, and wake-ups by the peer;
//! - the machine: `area`, `endpoint`, `barriers`;
//! - `header`, `counters`: the layout of a ring in memory, and its arithmetic.
//!
//! # What both ends rely on
//!
//! Each end reads every value that the peer writes once, and checks it. A peer that lies can make
//! this process receive bytes that the peer has never sent, or end the connection, and nothing
//! else.

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
