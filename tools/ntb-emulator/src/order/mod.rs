// SPDX-License-Identifier: GPL-2.0
//! Writes that are seen later than they were made, and not in the order in which they were.
//!
//! Without it every write is seen at once. On hardware it is posted: who has made it goes on, and it
//! arrives some time after. What the rules of PCI Express keep in order stays in order here, and
//! nothing else does; `Documentation/pcie-order.rst` has the rules one by one.
//!
//! ```text
//! chance      for how long a write is held, drawn from a seed
//! traffic     which of those under way arrive when: the model, without memory and threads
//! direction   one direction of a link: what is held is let arrive in time
//! ```
//!
//! What the initiators of one end send to the other is a *stream* of each: its processors, its
//! doorbells, each DMA engine. A stream keeps its order; two streams have none. A read pushes streams
//! ahead of it: those that it shares the way with.

pub mod chance;
pub mod direction;
pub mod traffic;

#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde::Serialize;

/// How writes are reordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeakOrder {
    /// What all decisions follow from.
    pub seed: u64,
    /// Where the DMA engines are.
    #[serde(default)]
    pub engines: Engines,
}

/// Where DMA engines are, and so with what they share the way to the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engines {
    /// In the switch that the bridge is in, as those that are emulated: with nothing. No read but
    /// their own pushes what they have written.
    #[default]
    Switch,
    /// At the root: with the processors. Any read across the link pushes what they have written.
    Root,
}

/// Who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initiator {
    /// The processors, through windows.
    Processor,
    /// The bridge, which interrupts the other end.
    Bell,
    /// The DMA engine with this number.
    Engine(usize),
}

impl Initiator {
    /// The number of its stream.
    pub(crate) fn stream(self) -> usize {
        match self {
            Self::Processor => 0,
            Self::Bell => 1,
            Self::Engine(number) => 2 + number,
        }
    }

    /// How many streams there are with so many engines.
    pub(crate) fn streams(engines: usize) -> usize {
        Self::Engine(engines).stream()
    }
}
