// SPDX-License-Identifier: LGPL-2.1

//! SISCI, the API of Dolphin's PCIe networks, over `/dev/scif`.
//!
//! `Documentation/sisci.rst` explains what each notion of SISCI stands for here. The modules from
//! top to bottom; a module imports only modules below it:
//!
//! - `exports`: the functions, as C sees them; `release`: releases everything that a program leaves
//!   behind;
//! - the resources behind handles: `queries`, `sequences`, `copies`, `maps`, `dma`,
//!   `remote_segment`, `local_segment`, `local_interrupts`, `remote_interrupts`, `device`;
//! - the parts of these resources: `import`, `importers`, `transfers`, `outcomes`, `remote_map`,
//!   `remote_copies`, `broadcast_map`, `store_log`, `members`, `receiver`, `segment_memory`,
//!   `memory`;
//! - how processes find each other and communicate: `listener`, `channel`, `protocol`, `attendant`,
//!   `handover`, `life`, `nodes`;
//! - tools: `handles`, `events`, `callback`, `threads`, `deadline`, `lock`, `process`, `random`, `flags`, `error`, `changes`;
//! - the kernel: `endpoint`, `descriptors`, `mapping`, `write_protection`, `barrier`.

mod attendant;
mod barrier;
mod broadcast_map;
mod callback;
mod changes;
mod channel;
mod copies;
mod deadline;
mod descriptors;
mod device;
mod dma;
mod endpoint;
mod error;
mod events;
pub mod exports;
mod flags;
mod handles;
mod handover;
#[cfg(test)]
mod headers;
mod import;
mod importers;
mod library;
mod life;
mod listener;
mod local_interrupts;
mod local_segment;
mod lock;
mod mapping;
mod maps;
mod members;
mod memory;
mod names;
mod nodes;
mod outcomes;
mod process;
mod protocol;
mod queries;
mod random;
mod reason;
mod receiver;
mod release;
mod remote_copies;
mod remote_interrupts;
mod remote_map;
mod remote_segment;
mod segment_memory;
mod sequences;
mod store_log;
mod threads;
mod transfers;
mod write_protection;
