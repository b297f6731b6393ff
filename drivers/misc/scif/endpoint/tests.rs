// SPDX-License-Identifier: GPL-2.0

//! What endpoints do, tried on a node that is made for it and has nobody but itself.
//!
//! The node is in `endpoint/tests/bed.rs`. Both ends of a connection are in the hands of one thread:
//! it has one end say that it wants something, does what the other has to, and comes back for the
//! result. Only where a test is about somebody who waits there is a second thread (`waiting.rs`).
//! Nobody waits for a time to pass.

mod bed;
mod connections;
mod fences;
mod growth;
mod messages;
mod pushes;
mod streams;
mod waiting;
mod windows;
