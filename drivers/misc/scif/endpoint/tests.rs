// SPDX-License-Identifier: GPL-2.0

//! Tests of endpoints, on a node that is made for the test and has no peer but itself.
//!
//! The node is in `endpoint/tests/bed.rs`. One thread drives both ends of a connection: it starts a
//! call on one end, does the part of the other end, and comes back for the result. Only tests of a
//! waiter have a second thread (`waiting.rs`). No test waits for a time to pass.

mod bed;
mod connections;
mod fences;
mod growth;
mod messages;
mod peer_write_requests;
mod streams;
mod waiting;
mod windows;
