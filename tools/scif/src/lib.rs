// SPDX-License-Identifier: GPL-2.0

//! The parts of the command line tool `scif`: files, messages and node states over `/dev/scif`.
//!
//! From the bottom: [`abi`] and [`device`] are the kernel's interface, [`transport`] a connection as
//! the protocol needs it, [`over_ring`] and [`tcp`] others that only carry bytes, [`protocol`] the messages, [`session`] their exchange, [`transfer`] the
//! moving of one file, [`server`] and [`client`] the requests; [`watch`] is what the kernel shows of all
//! that goes on, and [`doctor`] says what is wrong; [`command`] what a person types.
//! Arrows point down only.

// These panic when standard error is full or closed: `command::output::note` does not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

#[cfg(not(target_endian = "little"))]
compile_error!("SCIF's user ABI is used on little-endian machines only");

pub mod cancel;
pub mod client;
pub mod command;
pub mod confine;
pub mod device;
pub mod doctor;
pub mod error;
pub mod format;
pub mod in_process;
pub mod limits;
pub mod mapping;
pub mod new_file;
pub mod nodes;
pub mod over_ring;
pub mod protocol;
pub mod region;
pub mod server;
pub mod session;
pub mod tcp;
pub mod transfer;
pub mod transport;
pub mod watch;
