// SPDX-License-Identifier: GPL-2.0

//! What all links have in common.

use crate::{
    sync::work_queues::WorkQueues,
    transport::{
        engine::Engines,
        links::Links,
        sink::Sink, //
    },
};
use kernel::sync::Arc;

/// The only peer of the devices that are supported so far.
pub(super) const PEER: u32 = 0;

/// How the administrator wants peers to reach this node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// What is best of what can be.
    Auto,
    Arena,
    Bounce,
    Flat,
}

impl Wanted {
    /// From the number of the parameter.
    pub(crate) fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            0 => Self::Auto,
            1 => Self::Arena,
            2 => Self::Bounce,
            3 => Self::Flat,
            _ => return None,
        })
    }
}

/// Which apertures may be offered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) wanted: Wanted,
    /// A peer may reach all memory.
    pub(crate) allow_flat: bool,
    /// Of how many memory windows an aperture may be made.
    pub(crate) most_windows: u32,
}

/// What a link needs of the rest.
pub(crate) struct Context {
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) engines: Arc<Engines>,
    pub(crate) links: Arc<Links>,
    pub(crate) queues: Arc<WorkQueues>,
    pub(crate) policy: Policy,
}
