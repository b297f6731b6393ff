// SPDX-License-Identifier: GPL-2.0

//! How all the nodes stand that are here, or that anybody watches; and the service by which nodes tell
//! each other which life of theirs this is.
//!
//! There is a [`NodeStatus`] for each node that has a peer, that was asked for, or that was there. So many
//! of them at most are kept for processes; one that nobody has any more gives way to others. What a peer has
//! comes on top, and of peers there are no more than links.
//!
//! The *boot id* is drawn when the module is loaded: what a peer remembers of a node is gone when its
//! module is, so unloading it ends a life as a reboot does.
//!
//! This node's own status is there from the beginning, and follows it when it gets its id.
//!
//! Lock: `table` is a leaf.

use crate::{
    logic::{
        envelope::{
            Envelope,
            ServiceId, //
        },
        messages::StatusMessage, //
    },
    peer::{
        control::AnnexOf,
        service::{
            Attachment,
            Service,
            Violation, //
        },
        status::{BootId, Held, NodeStatus},
        Peer, //
    },
    sys::{
        chardev::{
            poll_events,
            FileOperations,
            PollContext, //
        },
        random,
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

/// Nodes of which the status is kept for processes.
const MOST: usize = 1024;

struct Table {
    this: Arc<NodeStatus>,
    others: KVec<Arc<NodeStatus>>,
    /// Sessions of peers until now.
    sessions: u64,
}

/// The status of each node that has one.
#[pin_data]
pub(crate) struct Statuses {
    boot_id: BootId,
    #[pin]
    table: Mutex<Table>,
}

impl Statuses {
    /// With this node alone, which has this id for now. May sleep.
    pub(super) fn new(own_id: u16) -> Result<Arc<Self>> {
        // Never all zero, which means that it is not known.
        let boot_id = [random() | 1, random()];
        let this = NodeStatus::new(own_id, false)?;
        this.is_this(boot_id);
        Arc::pin_init(
            pin_init!(Self {
                boot_id,
                table <- new_mutex!(
                    Table {
                        this,
                        others: KVec::new(),
                        sessions: 0,
                    },
                    "Statuses::table"
                ),
            }),
            GFP_KERNEL,
        )
    }

    /// This node has got its id only now. May sleep.
    pub(super) fn set_own_id(&self, id: u16) {
        let replaced = {
            let mut table = self.table.lock();
            table.this.set_node(id);
            let position = table.others.iter().position(|other| other.node() == id);
            position.and_then(|position| table.others.remove(position).ok())
        };
        if let Some(replaced) = replaced {
            // Whoever has asked for that node before watches this one.
            replaced.is_this(self.boot_id);
        }
    }

    /// That of a node, which need not be there: ENOSPC if processes watch too many. May sleep.
    pub(crate) fn get(&self, node: u16) -> Result<Held> {
        self.hold(node, true)
    }

    /// A process that wants a status pays if there is none yet; a peer is served in any case.
    fn hold(&self, node: u16, for_process: bool) -> Result<Held> {
        if let Some(held) = Self::find(&self.table.lock(), node) {
            return Ok(held);
        }
        // What is not needed is dropped after the lock, which is taken later.
        let new = NodeStatus::new(node, for_process)?;
        let mut evicted = None;
        let mut table = self.table.lock();
        if let Some(held) = Self::find(&table, node) {
            return Ok(held);
        }
        if table.others.len() >= MOST {
            evicted = Self::evict(&mut table.others);
            if evicted.is_none() && for_process {
                return Err(ENOSPC);
            }
        }
        let held = Held::new(&new);
        table.others.push(new.clone(), GFP_KERNEL)?;
        drop(table);
        drop(evicted);
        Ok(held)
    }

    fn find(table: &Table, node: u16) -> Option<Held> {
        let mut all = Iterator::chain(core::iter::once(&table.this), table.others.iter());
        all.find(|status| status.node() == node).map(Held::new)
    }

    /// Takes out one that nobody has: of these the one of which there is the least to say.
    fn evict(others: &mut KVec<Arc<NodeStatus>>) -> Option<Arc<NodeStatus>> {
        let all = others.iter().enumerate();
        let idle = all.filter(|(_, status)| status.is_idle());
        let (position, _) = idle.min_by_key(|(_, status)| status.epoch())?;
        others.remove(position).ok()
    }

    /// For a peer that has just come; none is this node itself, which may be getting its id right now.
    fn of_peer(&self, node: Option<u16>) -> Result<(Held, u64)> {
        let other = node.map(|node| self.hold(node, false)).transpose()?;
        let mut table = self.table.lock();
        table.sessions = table.sessions.wrapping_add(1);
        let held = other.unwrap_or_else(|| Held::new(&table.this));
        Ok((held, table.sessions))
    }
}

/// The service by which peers say which life of theirs this is. It has to be attached before those whose
/// waiters look at the page.
impl Service for Statuses {
    fn id(&self) -> ServiceId {
        ServiceId::STATUS
    }

    fn attach(&self, peer: &Arc<Peer>) -> Result<Arc<dyn Attachment>> {
        let node = (!peer.is_this).then(|| peer.node());
        let (held, session) = self.of_peer(node)?;
        peer.status.set(held, session);
        let attached = Arc::new(Attached(peer.clone()), GFP_KERNEL)?;
        let [low, high] = self.boot_id;
        peer.post(&StatusMessage::BootId { low, high })?;
        Ok(attached)
    }
}

/// What the service has for a peer.
struct Attached(Arc<Peer>);

impl Attached {
    fn online(&self, boot_id: BootId) -> Result<(), Violation> {
        if !self.0.status.online(boot_id) {
            return Err("it says its boot id again".into());
        }
        Ok(())
    }
}

impl Attachment for Attached {
    fn message(&self, envelope: &Envelope, _annex: &AnnexOf<'_>) -> Result<(), Violation> {
        let StatusMessage::BootId { low, high } = StatusMessage::from_envelope(envelope)?;
        self.online([low, high])
    }

    fn refused(&self) -> Result<(), Violation> {
        // It is within reach all the same.
        self.online([0, 0])
    }

    // The peer has said so itself, before anybody else was told.
    fn lost(&self) {}
}

#[kunit_tests(scif_node_statuses)]
mod tests {
    use super::*;

    #[test]
    fn one_that_nobody_has_gives_way() -> Result {
        let statuses = Statuses::new(0)?;
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
        drop(held.pop());
        let other = statuses.get(2000);
        drop(peer);
        drop(held);
        assert_eq!(other?.node(), 2000);
        Ok(())
    }

    #[test]
    fn a_node_that_gets_its_id_takes_its_status_along() -> Result {
        let statuses = Statuses::new(0)?;
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
        let statuses = Statuses::new(0)?;
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

    /// The page is to be read and shared; the mapping does not need the view. EINVAL for another page or a private
    /// mapping, EACCES for more than reading.
    fn mmap(this: ArcBorrow<'_, Self>, vma: &VmaNew) -> Result {
        let wanted = Wanted::of(vma);
        if wanted.offset != 0 || wanted.len != PAGE_SIZE as u64 || !wanted.shared {
            return Err(EINVAL);
        }
        if wanted.write || wanted.execute || !wanted.read {
            return Err(EACCES);
        }
        let mapping = StatusMapping(this.status.another());
        let mapping = Arc::new(mapping, GFP_KERNEL_ACCOUNT)?;
        MappedFile::new(STATUS_NAME, mapping)?.attach(vma, false)
    }
}

/// The page, as long as it is mapped.
struct StatusMapping(Held);

impl MappedPages for StatusMapping {
    fn fault(&self, fault: &Fault<'_>) -> Result {
        match fault.page() {
            0 => fault.map(0, self.0.frame(), false),
            _ => Err(EFAULT),
        }
    }
}
