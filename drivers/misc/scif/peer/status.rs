// SPDX-License-Identifier: GPL-2.0

//! How a node stands, as processes see it: a page that tells whether it is within reach, and whether it
//! was all the time.
//!
//! A [`NodeStatus`] outlives the peers that come and go with the node's id. Each of these has a
//! [`PeerStatus`] of its own, by which it turns the page: online once it can be connected to, lost as soon
//! as anybody knows of the loss. The peer sees to the latter before it tells anybody else, so that whoever
//! learns of the loss in another way finds it in the page.
//!
//! The boot id is the node's generation, which is drawn when its module is loaded: what a peer remembers of a
//! node is gone when the node's module is, so unloading that ends a life as a reboot does.
//!
//! The epoch is odd while the node is within reach. It is the last to be written when a node comes, and the boot
//! id before it does not change until the epoch has: a process that finds the same odd epoch
//! before and after it reads the boot id has read that of this epoch.
//!
//! Lock: `NodeStatus::sessions` is a leaf, taken in any context.

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

/// See the head of this file.
#[pin_data]
pub(crate) struct NodeStatus {
    page: StatusPage,
    /// Whoever has it, but for the table that it is found in.
    holders: Atomic<usize>,
    /// How many there are with the node, for each of which it is within reach; this node has one that never ends.
    #[pin]
    sessions: SpinLockIrq<u32>,
    /// Woken when the epoch has changed.
    #[pin]
    pub(crate) waiters: WaitQueue,
}

impl NodeStatus {
    /// Of a node that was never seen. `charged` says whether the calling process pays. May sleep.
    pub(crate) fn new(node: u16, charged: bool) -> Result<Arc<Self>> {
        let payer = if charged {
            Payer::Caller
        } else {
            Payer::Nobody
        };
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

    /// The id of the node.
    pub(crate) fn node(&self) -> u16 {
        self.page.node.load(Relaxed) as u16
    }

    /// This node has got its id only now.
    pub(crate) fn set_node(&self, node: u16) {
        self.page.node.store(node.into(), Relaxed);
    }

    /// Odd while the node is within reach.
    pub(crate) fn epoch(&self) -> u64 {
        self.page.epoch.load(Acquire)
    }

    /// The frame of the page that processes see.
    pub(crate) fn frame(&self) -> Result<Frame<'_>> {
        self.page.frame()
    }

    /// Whether nobody has it but the table in which it is found; nobody gets it by itself then.
    pub(crate) fn is_idle(&self) -> bool {
        self.holders.load(Acquire) == 0
    }

    /// It is this node's, which is always within reach: said once. Any context.
    pub(crate) fn is_this(&self, generation: u64) {
        self.begin_session(&mut self.sessions.lock(), generation);
        self.waiters.wake_all();
    }

    fn begin_session(&self, sessions: &mut u32, generation: u64) {
        *sessions += 1;
        // One that was there has not been told to be lost yet.
        self.end_epoch();
        // Who sees anything of the new boot id sees that the epoch has ended.
        barrier::smp_mb(barrier::Write);
        let [boot_id, _] = &self.page.boot_id;
        boot_id.store(generation, Relaxed);
        let epoch = self.page.epoch.load(Relaxed);
        self.page.epoch.store(epoch.wrapping_add(1), Release);
    }

    /// The caller has `sessions` locked.
    fn end_epoch(&self) {
        let epoch = self.page.epoch.load(Relaxed);
        if epoch % 2 == 1 {
            self.page.epoch.store(epoch.wrapping_add(1), Release);
        }
    }
}

/// One who has a [`NodeStatus`], which stays findable as long.
pub(crate) struct Held(Arc<NodeStatus>);

impl Held {
    /// Takes it out of a table, with the table's lock held.
    pub(crate) fn new(status: &Arc<NodeStatus>) -> Self {
        status.holders.fetch_add(1, Relaxed);
        Self(status.clone())
    }
}

impl Deref for Held {
    type Target = NodeStatus;

    fn deref(&self) -> &NodeStatus {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.holders.fetch_sub(1, Release);
    }
}

/// How far a peer has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    New = 0,
    Online = 1,
    Lost = 2,
}

/// One peer's hand on the status of its node.
pub(crate) struct PeerStatus {
    held: Held,
    /// A [`Phase`], as its number; only touched with `NodeStatus::sessions` locked.
    phase: Atomic<u32>,
}

impl PeerStatus {
    /// Of a peer that has just come.
    pub(super) fn new(held: Held) -> Self {
        Self {
            held,
            phase: Atomic::new(Phase::New as u32),
        }
    }

    /// The peer can be connected to: to be said once, and not of this node itself. Any context.
    pub(crate) fn online(&self, generation: u64) {
        let mut sessions = self.held.sessions.lock();
        // It may be lost already.
        if self.phase.load(Relaxed) == Phase::New as u32 {
            self.phase.store(Phase::Online as u32, Relaxed);
            self.held.begin_session(&mut sessions, generation);
        }
        drop(sessions);
        self.held.waiters.wake_all();
    }

    /// The peer is lost: to be said before anybody else can know. Any context, any number of times.
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

    /// A transfer, or another access to the node, has failed: counts that. Any context.
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
        PeerStatus::new(Held::new(status))
    }

    #[test]
    fn the_epoch_is_odd_while_a_peer_is_there() -> Result {
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
        // One that is lost before it could be connected to was never there.
        let second = peer(&status);
        second.lost();
        second.online(7);
        assert_eq!((status.epoch(), boot_id(&status)), (2, 5));
        drop(second);
        assert!(status.is_idle());
        Ok(())
    }

    #[test]
    fn a_peer_that_is_back_early_is_not_lost_with_the_old_one() -> Result {
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
    fn this_node_is_never_lost() -> Result {
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
