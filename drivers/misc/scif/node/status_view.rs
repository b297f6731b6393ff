// SPDX-License-Identifier: GPL-2.0

//! What one process sees of a node's status: the page, and whether the epoch is another than the one that
//! it has seen last.

use crate::{
    peer::status::Held,
    sys::{
        user_mapping::{
            Fault,
            MappedFile,
            MappedPages,
            Wanted, //
        },
        wait::WaitQueue, //
    },
};
use kernel::{
    mm::virt::VmaNew,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

/// See the head of this file.
pub(crate) struct StatusView {
    status: Held,
    /// The epoch that was seen last.
    seen: Atomic<u64>,
}

impl StatusView {
    pub(crate) fn new(status: Held) -> Result<Arc<Self>> {
        let seen = Atomic::new(status.epoch());
        Ok(Arc::new(Self { status, seen }, GFP_KERNEL_ACCOUNT)?)
    }

    /// Whether the epoch is another than at the beginning, or than was last [seen](Self::saw). Any context.
    pub(crate) fn has_changed(&self) -> bool {
        self.status.epoch() != self.seen.load(Relaxed)
    }

    /// The epoch.
    pub(crate) fn epoch(&self) -> u64 {
        self.status.epoch()
    }

    /// The process knows of this epoch from now on.
    pub(crate) fn saw(&self, epoch: u64) {
        self.seen.store(epoch, Relaxed);
    }

    /// Woken when [`Self::has_changed`] does.
    pub(crate) fn waiters(&self) -> &WaitQueue {
        &self.status.waiters
    }

    /// Maps the page into an area that is being set up, to be read and shared; the mapping does not need
    /// the view. EINVAL for another page or a private mapping, EACCES for more than reading. May sleep.
    pub(crate) fn map(&self, vma: &VmaNew) -> Result {
        let wanted = Wanted::of(vma);
        if wanted.offset != 0 || wanted.len != PAGE_SIZE as u64 || !wanted.shared {
            return Err(EINVAL);
        }
        if wanted.write || wanted.execute || !wanted.read {
            return Err(EACCES);
        }
        let mapping = StatusMapping(self.status.another());
        let mapping = Arc::new(mapping, GFP_KERNEL_ACCOUNT)?;
        MappedFile::new(c"[scif-status]", mapping)?.attach(vma, false)
    }
}

/// The page, as long as it is mapped.
struct StatusMapping(Held);

impl MappedPages for StatusMapping {
    fn fault(&self, fault: &Fault<'_>) -> Result {
        match fault.page() {
            0 => fault.map(0, self.0.frame()),
            _ => Err(EFAULT),
        }
    }
}
