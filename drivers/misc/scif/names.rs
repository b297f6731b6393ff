// SPDX-License-Identifier: GPL-2.0

//! Names: numbers of 32 bits, in classes, by which a port is found.
//!
//! A port is 16 bits and belongs to whoever comes first; programs that have numbers of their own for
//! what they offer bind those, and others look them up at the node. It is a service of peers beside
//! SCIF's, which knows ports as numbers and nothing of endpoints: `table.rs` has the names of this node,
//! `lookups.rs` asks one peer for its, `service.rs` puts both together.

pub(crate) mod lookups;
pub(crate) mod service;
pub(crate) mod table;
