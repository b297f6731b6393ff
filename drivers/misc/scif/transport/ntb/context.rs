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

/// What a link needs of the rest.
pub(crate) struct Context {
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) engines: Arc<Engines>,
    pub(crate) links: Arc<Links>,
    pub(crate) queues: Arc<WorkQueues>,
    /// Whether a peer may reach all memory although an IOMMU could prevent it.
    pub(crate) allow_flat: bool,
}
