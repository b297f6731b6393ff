// SPDX-License-Identifier: GPL-2.0

//! `SCIF_NODE_STATUS`, and the file that it gives; `SCIF_MAP_POLICY`.

use crate::{
    endpoint::Endpoint,
    node::status_view::StatusView,
    sys::{
        anonymous_file::{
            self,
            AnonymousOperations, //
        },
        chardev::{
            poll_events,
            PollContext, //
        },
        uapi::{
            self,
            place, //
        },
    },
};
use kernel::{
    mm::virt::VmaNew,
    prelude::*,
    sync::ArcBorrow,
    uaccess::UserSliceWriter, //
};

/// Bytes of the structures' first versions.
const NODE_STATUS_LEAST: usize = 24;
const MAP_POLICY_LEAST: usize = 16;

/// Gives the caller a descriptor of the status of a node.
pub(super) fn node_status(endpoint: &Endpoint, at: usize) -> Result {
    let request: uapi::scif_node_status = uapi::read_sized(at, NODE_STATUS_LEAST)?;
    if request.flags != 0 || request.reserved != 0 || request.reserved2 != 0 {
        return Err(EINVAL);
    }
    let number = place!(at, uapi::scif_node_status, fd).writable()?;
    let view = StatusView::new(endpoint.node_status(request.node)?)?;
    let descriptor = anonymous_file::descriptor(view)?;
    number.write(&descriptor.number())?;
    descriptor.install();
    Ok(())
}

/// Says what mappings from now on show once the peer is lost.
pub(super) fn map_policy(endpoint: &Endpoint, at: usize) -> Result {
    let request: uapi::scif_map_policy = uapi::read_sized(at, MAP_POLICY_LEAST)?;
    if request.flags & !uapi::SCIF_MAP_ONES_AFTER_LOSS != 0 || request.reserved != 0 {
        return Err(EINVAL);
    }
    endpoint.set_ones_after_loss(request.flags & uapi::SCIF_MAP_ONES_AFTER_LOSS != 0);
    Ok(())
}

impl AnonymousOperations for StatusView {
    const NAME: &'static CStr = c"[scif-status]";

    fn read(&self, to: &mut UserSliceWriter) -> Result<usize> {
        if to.len() < size_of::<u64>() {
            return Err(EINVAL);
        }
        // One that could not be handed over does not count as seen.
        let epoch = self.epoch();
        to.write(&epoch)?;
        self.saw(epoch);
        Ok(size_of::<u64>())
    }

    fn poll<'file>(&'file self, context: &PollContext<'file>) -> u32 {
        context.wait_on(self.waiters());
        match self.has_changed() {
            true => poll_events::PRI | poll_events::IN | poll_events::RDNORM,
            false => 0,
        }
    }

    fn mmap(this: ArcBorrow<'_, Self>, vma: &VmaNew) -> Result {
        this.map(vma)
    }
}
