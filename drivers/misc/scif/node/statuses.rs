// SPDX-License-Identifier: GPL-2.0

//! How all the nodes stand that are here, or that anybody watches.
//!
//! There is a [`NodeStatus`] for each node that has a peer, or that was asked for; those that nobody has any more
//! go when another one is needed. Where there are so many already, or so many that the caller's user was the first to ask
//! for, processes get no further one; a peer gets one in any case, and of peers there are no more than links.
//!
//! This node's own status is there from the beginning, and follows it when it gets its id.
//!
//! Lock: `table` is a leaf.

use crate::{
    peer::status::{
        Held,
        NodeStatus, //
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

/// With so many statuses, processes get no further ones.
const MOST: usize = 1024;

/// A status, and what it takes of the share of the user who was the first to ask for it.
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
pub(crate) struct Statuses {
    /// Of this node.
    generation: u64,
    shares: FairShares,
    #[pin]
    table: Mutex<Table>,
}

impl Statuses {
    /// With this node alone, which has this id for now. May sleep.
    pub(super) fn new(own_id: u16, generation: u64) -> Result<Arc<Self>> {
        let this = NodeStatus::new(own_id, false)?;
        this.is_this(generation);
        let others = KVec::new();
        let shares = FairShares::of(MOST)?;
        Arc::pin_init(
            pin_init!(Self {
                generation,
                shares,
                table <- new_mutex!(Table { this, others }, "Statuses::table"),
            }),
            GFP_KERNEL,
        )
    }

    /// This node has got its id only now. May sleep.
    pub(super) fn set_own_id(&self, id: u16) {
        let replaced = {
            let mut table = self.table.lock();
            table.this.set_node(id);
            let mut others = table.others.iter();
            let position = others.position(|other| other.status.node() == id);
            position.and_then(|position| table.others.remove(position).ok())
        };
        if let Some(replaced) = replaced {
            // Whoever has asked for that node before watches this one.
            replaced.status.is_this(self.generation);
        }
    }

    /// That of a node, which need not be there: ENOSPC if processes watch too many, or the caller's user has its share.
    /// May sleep.
    pub(crate) fn get(&self, node: u16) -> Result<Held> {
        self.hold(node, true)
    }

    /// A process that wants a status pays if there is none yet; a peer is served in any case.
    fn hold(&self, node: u16, for_process: bool) -> Result<Held> {
        if let Some(held) = Self::find(&self.table.lock(), node) {
            return Ok(held);
        }
        // Those that nobody has give way.
        while self.take_idle().is_some() {}
        let _share = match for_process {
            true => Some(self.shares.take()?.ok_or(ENOSPC)?),
            false => None,
        };
        let new = Watched {
            status: NodeStatus::new(node, for_process)?,
            _share,
        };
        // What is not added is dropped after the lock.
        let mut table = self.table.lock();
        if let Some(held) = Self::find(&table, node) {
            return Ok(held);
        }
        if table.others.len() >= MOST && for_process {
            return Err(ENOSPC);
        }
        table.others.reserve(1, GFP_KERNEL)?;
        let held = Held::new(&new.status);
        let _ = table.others.push_within_capacity(new);
        Ok(held)
    }

    /// Takes out one that nobody has. May sleep.
    fn take_idle(&self) -> Option<Watched> {
        let mut table = self.table.lock();
        let idle = table
            .others
            .iter()
            .position(|other| other.status.is_idle())?;
        table.others.remove(idle).ok()
    }

    fn find(table: &Table, node: u16) -> Option<Held> {
        let others = table.others.iter().map(|other| &other.status);
        let mut all = Iterator::chain(core::iter::once(&table.this), others);
        all.find(|status| status.node() == node).map(Held::new)
    }

    /// For a peer that has just come; none is this node itself, which may be getting its id right now.
    pub(super) fn of_peer(&self, node: Option<u16>) -> Result<Held> {
        match node {
            Some(node) => self.hold(node, false),
            None => Ok(Held::new(&self.table.lock().this)),
        }
    }
}

#[kunit_tests(scif_node_statuses)]
mod tests {
    use super::*;

    #[test]
    fn those_that_nobody_has_give_way() -> Result {
        let statuses = Statuses::new(0, 1)?;
        let mut held = KVec::new();
        for node in 1..=MOST as u16 {
            held.push(statuses.get(node)?, GFP_KERNEL)?;
        }
        assert_eq!(statuses.get(2000).map(|_| ()), Err(ENOSPC));
        // Those that are there can be had, and so can this node's.
        assert_eq!(statuses.get(1)?.node(), 1);
        assert_eq!(statuses.get(0)?.epoch(), 1);
        // A peer is served in any case.
        let peer = statuses.of_peer(Some(3000))?;
        drop((held.pop(), peer));
        assert_eq!(statuses.get(2000)?.node(), 2000);
        Ok(())
    }

    #[test]
    fn a_node_that_gets_its_id_takes_its_status_along() -> Result {
        let statuses = Statuses::new(0, 1)?;
        let (own, early) = (statuses.get(0)?, statuses.get(5)?);
        assert_eq!((own.epoch(), early.epoch()), (1, 0));
        statuses.set_own_id(5);
        assert_eq!((own.node(), own.epoch(), early.epoch()), (5, 1, 1));
        assert_eq!(statuses.get(0)?.epoch(), 0);
        assert_eq!(statuses.get(5)?.epoch(), 1);
        Ok(())
    }

    #[test]
    fn this_node_is_its_own_peer_whatever_its_id() -> Result {
        let statuses = Statuses::new(0, 1)?;
        statuses.set_own_id(5);
        // Who asks by the id that it had gets another node.
        let itself = statuses.of_peer(None)?;
        assert!(statuses.table.lock().others.is_empty());
        let another = statuses.of_peer(Some(0))?;
        assert_eq!(statuses.table.lock().others.len(), 1);
        drop((itself, another));
        Ok(())
    }
}

/// What `/proc/PID/fd` and `/proc/PID/maps` call it.
pub(crate) const STATUS_NAME: &CStr = c"[scif-status]";

/// What one process sees of a node's status: the page, and whether the epoch is another than the one that
/// it has seen last.
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
}

impl FileOperations for StatusView {
    fn read(&self, to: &mut UserSliceWriter) -> Result<usize> {
        if to.len() < size_of::<u64>() {
            return Err(EINVAL);
        }
        // One that could not be handed over does not count as seen.
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

    /// The page is to be read and shared; the mapping keeps the view. EINVAL for another page or a private
    /// mapping, EACCES for more than reading.
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
