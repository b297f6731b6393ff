// SPDX-License-Identifier: GPL-2.0

//! The status of a node as processes see it: a page that tells whether the node is within reach,
//! and always was.

use crate::sys::{
    shared_memory::{
        Payer,
        StatusPage, //
    },
    user_mapping::Frame,
    wait::{
        new_wait_queue,
        WaitQueue, //
    },
};
use core::ops::Deref;
use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        barrier,
        Arc,
        SpinLockIrq, //
    },
};

/// The status of one node.
#[pin_data]
pub(crate) struct NodeStatus {
    page: StatusPage,
    /// Number of holders, apart from the table in which the status is found.
    holders: Atomic<usize>,
    /// Number of sessions by which the node is within reach. This node has one that never ends.
    #[pin]
    sessions: SpinLockIrq<u32>,
    /// Woken when the epoch has changed.
    #[pin]
    pub(crate) waiters: WaitQueue,
}

impl NodeStatus {
    /// Creates the status of a node that was never seen. If `charged`, the calling process pays.
    /// Context: may sleep.
    pub(crate) fn new(node: u16, charged: bool) -> Result<Arc<Self>> {
        let payer = if charged { Payer::Caller } else { Payer::None };
        let page = StatusPage::new(node, payer)?;
        Arc::pin_init(
            pin_init!(Self {
                page,
                holders: Atomic::new(0),
                sessions <- new_spinlock_irq!(0, "NodeStatus::sessions"),
                waiters <- new_wait_queue!("scif::NodeStatus::waiters"),
            }),
            match charged {
                true => GFP_KERNEL_ACCOUNT,
                false => GFP_KERNEL,
            },
        )
    }

    /// Returns the id of the node.
    pub(crate) fn node(&self) -> u16 {
        self.page.node.load(Relaxed) as u16
    }

    /// Sets the id, which this node may learn only after its status was made.
    pub(crate) fn set_node(&self, node: u16) {
        self.page.node.store(node.into(), Relaxed);
    }

    /// Returns the epoch, which is odd while the node is within reach.
    pub(crate) fn epoch(&self) -> u64 {
        self.page.epoch.load(Acquire)
    }

    /// Returns the frame of the page that processes see.
    pub(crate) fn frame(&self) -> Result<Frame<'_>> {
        self.page.frame()
    }

    /// Returns whether only the table holds the status. Then only a lookup in the table can make a
    /// holder.
    pub(crate) fn is_idle(&self) -> bool {
        self.holders.load(Acquire) == 0
    }

    /// Marks this node as within reach, for good. Called once for a status.
    /// Context: any.
    pub(crate) fn is_this(&self, generation: u64) {
        self.begin_session(&mut self.sessions.lock(), generation);
        self.waiters.wake_all();
    }

    fn begin_session(&self, sessions: &mut u32, generation: u64) {
        *sessions += 1;
        // A previous session may not have been marked as lost yet.
        self.end_epoch();
        // A process that sees any part of the new boot id must see that the epoch has ended.
        barrier::smp_mb(barrier::Write);
        let [boot_id, _] = &self.page.boot_id;
        boot_id.store(generation, Relaxed);
        let epoch = self.page.epoch.load(Relaxed);
        self.page.epoch.store(epoch.wrapping_add(1), Release);
    }

    /// Ends the current epoch. The caller holds the `sessions` lock.
    fn end_epoch(&self) {
        let epoch = self.page.epoch.load(Relaxed);
        if epoch % 2 == 1 {
            self.page.epoch.store(epoch.wrapping_add(1), Release);
        }
    }
}

/// A reference to a [`NodeStatus`]. The table keeps the status as long as a reference exists.
pub(crate) struct StatusHolder(Arc<NodeStatus>);

impl StatusHolder {
    /// Makes a holder of a status found in a table. The caller holds the table's lock.
    pub(crate) fn new(status: &Arc<NodeStatus>) -> Self {
        status.holders.fetch_add(1, Relaxed);
        Self(status.clone())
    }
}

impl Deref for StatusHolder {
    type Target = NodeStatus;

    fn deref(&self) -> &NodeStatus {
        &self.0
    }
}

impl Drop for StatusHolder {
    fn drop(&mut self) {
        self.0.holders.fetch_sub(1, Release);
    }
}

/// The phase of a peer's life.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    New = 0,
    Online = 1,
    Lost = 2,
}

/// The part of one peer in the status of its node.
pub(crate) struct PeerStatus {
    held: StatusHolder,
    /// A [`Phase`], as its number. Only accessed under the lock `NodeStatus::sessions`.
    phase: Atomic<u32>,
}

impl PeerStatus {
    /// Creates the part of a new peer.
    pub(super) fn new(held: StatusHolder) -> Self {
        Self {
            held,
            phase: Atomic::new(Phase::New as u32),
        }
    }

    /// Marks the peer as online: it can be connected to. Called once, and not for this node itself.
    /// Context: any.
    pub(crate) fn online(&self, generation: u64) {
        let mut sessions = self.held.sessions.lock();
        // The peer may be lost already.
        if self.phase.load(Relaxed) == Phase::New as u32 {
            self.phase.store(Phase::Online as u32, Relaxed);
            self.held.begin_session(&mut sessions, generation);
        }
        drop(sessions);
        self.held.waiters.wake_all();
    }

    /// Marks the peer as lost, before any other code can know. May be called more than once.
    /// Context: any.
    pub(super) fn lost(&self) {
        let mut sessions = self.held.sessions.lock();
        let phase = self.phase.load(Relaxed);
        self.phase.store(Phase::Lost as u32, Relaxed);
        if phase == Phase::Online as u32 {
            *sessions -= 1;
            if *sessions == 0 {
                self.held.end_epoch();
            }
        }
        drop(sessions);
        self.held.waiters.wake_all();
    }

    /// Counts a failed transfer, or another failed access to the node.
    /// Context: any.
    pub(crate) fn access_failed(&self) {
        self.held.page.errors.add(1, Relaxed);
    }
}

#[kunit_tests(scif_peer_status)]
mod tests {
    use super::*;

    fn boot_id(status: &NodeStatus) -> u64 {
        let [boot_id, _] = &status.page.boot_id;
        boot_id.load(Relaxed)
    }

    fn peer(status: &Arc<NodeStatus>) -> PeerStatus {
        PeerStatus::new(StatusHolder::new(status))
    }

    #[test]
    fn epoch_is_odd_while_a_peer_is_online() -> Result {
        let status = NodeStatus::new(3, true)?;
        assert!(status.is_idle());
        let first = peer(&status);
        assert!(!status.is_idle());
        assert_eq!(status.epoch(), 0);
        first.online(5);
        assert_eq!((status.epoch(), boot_id(&status)), (1, 5));
        first.lost();
        first.lost();
        assert_eq!((status.epoch(), boot_id(&status)), (2, 5));
        drop(first);
        // A peer that is lost before it could be connected to was never online.
        let second = peer(&status);
        second.lost();
        second.online(7);
        assert_eq!((status.epoch(), boot_id(&status)), (2, 5));
        drop(second);
        assert!(status.is_idle());
        Ok(())
    }

    #[test]
    fn loss_of_the_old_session_keeps_the_new_peer_online() -> Result {
        let status = NodeStatus::new(3, false)?;
        let (first, second) = (peer(&status), peer(&status));
        first.online(1);
        second.online(2);
        assert_eq!((status.epoch(), boot_id(&status)), (3, 2));
        first.lost();
        assert_eq!(status.epoch(), 3);
        second.lost();
        assert_eq!(status.epoch(), 4);
        Ok(())
    }

    #[test]
    fn own_node_is_never_lost() -> Result {
        let status = NodeStatus::new(0, false)?;
        status.is_this(1);
        let itself = peer(&status);
        itself.access_failed();
        itself.lost();
        status.set_node(9);
        assert_eq!((status.epoch(), boot_id(&status)), (1, 1));
        assert_eq!(status.page.errors.load(Relaxed), 1);
        assert_eq!(status.node(), 9);
        Ok(())
    }
}
