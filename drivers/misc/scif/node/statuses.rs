// SPDX-License-Identifier: GPL-2.0

//! The statuses of all nodes that have a peer, or that a process watches.
//!
//! There is a [`NodeStatus`] for each node that has a peer, or that a process has asked for. A
//! status without a holder is removed when another one is needed. A process gets no new status if
//! there are [`MOST`], or if its user, as the first to ask, has used up its share. A peer always
//! gets one, as there are no more peers than links.
//!
//! This node's own status exists from the beginning, and follows this node when it gets its id.
//!
//! Lock: `table` is a leaf.

use crate::{
    peer::status::{
        NodeStatus,
        StatusHolder, //
    },
    sync::fair_share::{
        FairShare,
        FairShares, //
    },
    sys::{
        chardev::{
            poll_events,
            FileOperations,
            PollContext, //
        },
        user_mapping::{
            Fault,
            MappedFile,
            MappedPages,
            Wanted, //
        }, //
    }, //
};
use kernel::{
    mm::virt::VmaNew,
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        Mutex, //
    },
    uaccess::UserSliceWriter,
};

/// Number of statuses from which on processes get no new ones.
const MOST: usize = 1024;

/// A status, and its part of the share of the user that was the first to ask for it.
struct Watched {
    status: Arc<NodeStatus>,
    _share: Option<FairShare>,
}

struct Table {
    this: Arc<NodeStatus>,
    others: KVec<Watched>,
}

/// The status of each node that has one.
#[pin_data]
pub(crate) struct NodeStatuses {
    /// The generation of this node.
    generation: u64,
    shares: FairShares,
    #[pin]
    table: Mutex<Table>,
}

impl NodeStatuses {
    /// Creates the table with the status of this node only, which has this id for now.
    /// Context: may sleep.
    pub(super) fn new(own_id: u16, generation: u64) -> Result<Arc<Self>> {
        let this = NodeStatus::new(own_id, false)?;
        this.is_this(generation);
        let others = KVec::new();
        let shares = FairShares::of(MOST)?;
        Arc::pin_init(
            pin_init!(Self {
                generation,
                shares,
                table <- new_mutex!(Table { this, others }, "NodeStatuses::table"),
            }),
            GFP_KERNEL,
        )
    }

    /// Sets the id of this node, which this node may learn only after the module was loaded.
    /// Context: may sleep.
    pub(super) fn set_own_id(&self, id: u16) {
        let replaced = {
            let mut table = self.table.lock();
            table.this.set_node(id);
            let mut others = table.others.iter();
            let position = others.position(|other| other.status.node() == id);
            position.and_then(|position| table.others.remove(position).ok())
        };
        if let Some(replaced) = replaced {
            // Holders that asked for this id before now watch this node.
            replaced.status.is_this(self.generation);
        }
    }

    /// Returns the status of a node, which need not be online. ENOSPC if processes watch too many
    /// nodes, or the caller's user has its share.
    /// Context: may sleep.
    pub(crate) fn get(&self, node: u16) -> Result<StatusHolder> {
        self.hold(node, true)
    }

    /// Returns the status of a node, and makes it if there is none: then the process pays, if it is
    /// `for_process`. A peer is always served.
    fn hold(&self, node: u16, for_process: bool) -> Result<StatusHolder> {
        if let Some(held) = Self::find(&self.table.lock(), node) {
            return Ok(held);
        }
        // Statuses without a holder make room.
        while self.take_idle().is_some() {}
        let _share = match for_process {
            true => Some(self.shares.take()?.ok_or(ENOSPC)?),
            false => None,
        };
        let new = Watched {
            status: NodeStatus::new(node, for_process)?,
            _share,
        };
        // Declared after `new`, so that a status that is not added is dropped without the lock.
        let mut table = self.table.lock();
        if let Some(held) = Self::find(&table, node) {
            return Ok(held);
        }
        if table.others.len() >= MOST && for_process {
            return Err(ENOSPC);
        }
        table.others.reserve(1, GFP_KERNEL)?;
        let held = StatusHolder::new(&new.status);
        let _ = table.others.push_within_capacity(new);
        Ok(held)
    }

    /// Removes a status that has no holder.
    /// Context: may sleep.
    fn take_idle(&self) -> Option<Watched> {
        let mut table = self.table.lock();
        let idle = table
            .others
            .iter()
            .position(|other| other.status.is_idle())?;
        table.others.remove(idle).ok()
    }

    fn find(table: &Table, node: u16) -> Option<StatusHolder> {
        let others = table.others.iter().map(|other| &other.status);
        let mut all = Iterator::chain(core::iter::once(&table.this), others);
        all.find(|status| status.node() == node)
            .map(StatusHolder::new)
    }

    /// Returns the status for a peer that has just come. Without a `node` the peer is this node
    /// itself, whose id may be changing right now.
    pub(super) fn of_peer(&self, node: Option<u16>) -> Result<StatusHolder> {
        match node {
            Some(node) => self.hold(node, false),
            None => Ok(StatusHolder::new(&self.table.lock().this)),
        }
    }
}

#[kunit_tests(scif_node_statuses)]
mod tests {
    use super::*;

    #[test]
    fn unreferenced_status_is_evicted_when_the_table_is_full() -> Result {
        let statuses = NodeStatuses::new(0, 1)?;
        let mut held = KVec::new();
        for node in 1..=MOST as u16 {
            held.push(statuses.get(node)?, GFP_KERNEL)?;
        }
        assert_eq!(statuses.get(2000).map(|_| ()), Err(ENOSPC));
        // Existing statuses are still available, this node's among them.
        assert_eq!(statuses.get(1)?.node(), 1);
        assert_eq!(statuses.get(0)?.epoch(), 1);
        // A peer is always served.
        let peer = statuses.of_peer(Some(3000))?;
        drop((held.pop(), peer));
        assert_eq!(statuses.get(2000)?.node(), 2000);
        Ok(())
    }

    #[test]
    fn own_status_follows_a_change_of_the_node_id() -> Result {
        let statuses = NodeStatuses::new(0, 1)?;
        let (own, early) = (statuses.get(0)?, statuses.get(5)?);
        assert_eq!((own.epoch(), early.epoch()), (1, 0));
        statuses.set_own_id(5);
        assert_eq!((own.node(), own.epoch(), early.epoch()), (5, 1, 1));
        assert_eq!(statuses.get(0)?.epoch(), 0);
        assert_eq!(statuses.get(5)?.epoch(), 1);
        Ok(())
    }

    #[test]
    fn own_peer_gets_own_status_for_any_node_id() -> Result {
        let statuses = NodeStatuses::new(0, 1)?;
        statuses.set_own_id(5);
        // The old id stands for another node.
        let itself = statuses.of_peer(None)?;
        assert!(statuses.table.lock().others.is_empty());
        let another = statuses.of_peer(Some(0))?;
        assert_eq!(statuses.table.lock().others.len(), 1);
        drop((itself, another));
        Ok(())
    }
}

/// Name of the file in `/proc/PID/fd` and `/proc/PID/maps`.
pub(crate) const STATUS_NAME: &CStr = c"[scif-status]";

/// The view that one process has of a node's status: the page, and whether the epoch has changed
/// since the process last read it.
pub(crate) struct StatusView {
    status: StatusHolder,
    /// The epoch that the process has read last.
    seen: Atomic<u64>,
}

impl StatusView {
    pub(crate) fn new(status: StatusHolder) -> Result<Arc<Self>> {
        let seen = Atomic::new(status.epoch());
        Ok(Arc::new(Self { status, seen }, GFP_KERNEL_ACCOUNT)?)
    }
}

impl FileOperations for StatusView {
    fn read(&self, to: &mut UserSliceWriter) -> Result<usize> {
        if to.len() < size_of::<u64>() {
            return Err(EINVAL);
        }
        // An epoch that could not be copied out does not count as seen.
        let epoch = self.status.epoch();
        to.write(&epoch)?;
        self.seen.store(epoch, Relaxed);
        Ok(size_of::<u64>())
    }

    fn poll<'file>(&'file self, context: &PollContext<'file>) -> u32 {
        context.wait_on(&self.status.waiters);
        if self.status.epoch() == self.seen.load(Relaxed) {
            return 0;
        }
        poll_events::PRI | poll_events::IN | poll_events::RDNORM
    }

    /// Maps the page, shared and read-only. The mapping keeps the view.
    ///
    /// # Errors
    ///
    /// - EINVAL: another page, or a private mapping.
    /// - EACCES: an access other than reading.
    fn mmap(this: ArcBorrow<'_, Self>, vma: &VmaNew) -> Result {
        let wanted = Wanted::of(vma);
        if wanted.offset != 0 || wanted.len != PAGE_SIZE as u64 || !wanted.shared {
            return Err(EINVAL);
        }
        if wanted.write || wanted.execute || !wanted.read {
            return Err(EACCES);
        }
        MappedFile::new(STATUS_NAME, Arc::from(this))?.attach(vma, false)
    }
}

impl MappedPages for StatusView {
    fn fault<'m>(&'m self, fault: &Fault<'m>) -> Result {
        match fault.page() {
            0 => fault.map(0, &self.status.frame()?),
            _ => Err(EFAULT),
        }
    }
}
