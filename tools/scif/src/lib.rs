// SPDX-License-Identifier: GPL-2.0

//! The parts of the command line tool `scif`: files, messages and node states over `/dev/scif`.
//!
//! The parts from the bottom: [`scif_sys`] and [`device`] are the interface of the kernel.
//! [`transport`] is a connection as the protocol needs it; [`over_ring`] and [`tcp`] are others
//! that only carry bytes. [`protocol`] has the messages, [`session`] their exchange, [`transfer`]
//! moves one file, [`server`] and [`client`] have the requests. [`watch`] reads the state that the
//! kernel shows, and [`doctor`] finds problems. [`command`] is the command line. Imports point down
//! only.

// These macros panic when standard error is full or closed; `command::output::note` does not.
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
