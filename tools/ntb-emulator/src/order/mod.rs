// SPDX-License-Identifier: GPL-2.0
//! Writes that are seen later than they were made, and in another order.
//!
//! Without this module every write is seen at once. On hardware a write is posted: the initiator
//! goes on, and the write arrives some time after. Writes that the rules of PCI Express keep in
//! order stay in order here, and no others do. `Documentation/pcie-order.rst` has the rules one by
//! one.
//!
//! ```text
//! chance      for how long a write is held, drawn from a seed
//! traffic     which of the writes in flight arrive when: the model, without memory and threads
//! direction   one direction of a link: lets held writes arrive in time
//! ```
//!
//! The writes of each initiator of an end are a *stream*: those of its CPUs, its doorbells, and
//! each DMA engine. A stream keeps its order; two streams have no order between them. A read pushes
//! streams ahead of it: those that share its way.

pub mod chance;
pub mod direction;
pub mod traffic;

#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde::Serialize;

/// The way in which writes are reordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeakOrder {
    /// The seed of all decisions.
    pub seed: u64,
    /// The place of the DMA engines.
    #[serde(default)]
    pub engines: Engines,
}

/// The place of DMA engines in the tree of bridges. It decides which requests share the engines'
/// way to the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engines {
    /// In the switch that contains the bridge, as the emulated engines are. They share the way with
    /// no other initiator, and only their own reads push their writes.
    #[default]
    Switch,
    /// At the root: they share the way with the CPUs. Any read across the link pushes their writes.
    Root,
}

/// The source of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initiator {
    /// The CPUs, through windows.
    Processor,
    /// The bridge, which interrupts the other end.
    Bell,
    /// The DMA engine with this number.
    Engine(usize),
}

impl Initiator {
    /// Returns the number of its stream.
    pub(crate) fn stream(self) -> usize {
        match self {
            Self::Processor => 0,
            Self::Bell => 1,
            Self::Engine(number) => 2 + number,
        }
    }

    /// Returns the number of streams of an end with this many engines.
    pub(crate) fn streams(engines: usize) -> usize {
        Self::Engine(engines).stream()
    }
}
