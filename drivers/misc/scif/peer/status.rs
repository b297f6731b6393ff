// SPDX-License-Identifier: GPL-2.0

//! How a node stands, as processes see it: a page that tells whether it is within reach, and whether it
//! was all the time.
//!
//! A [`NodeStatus`] outlives the peers that come and go with the node's id. Each of these has a
//! [`PeerStatus`] of its own, by which it turns the page: online once it is known which life of the node
//! this is, lost as soon as anybody knows of the loss. The peer sees to the latter before it tells
//! anybody else, so that whoever learns of the loss in another way finds it in the page.
//!
//! The epoch is odd while the node is within reach. It is the last to be written when a node comes, and the boot
//! id before it does not change until the epoch has: a process that finds the same odd epoch
//! before and after it reads the boot id has read that of this epoch.
//!
//! Lock: `NodeStatus::current` is a leaf, taken in any context.

use crate::sys::{
    shared_memory::{
        Payer,
        StatusPage, //
    },
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
        SetOnce,
        SpinLockIrq, //
    },
};

/// Which life of a node's it is: zeroes if it does not say.
pub(crate) type BootId = [u64; 2];

/// Whose session it is that makes a node count as online.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Session {
    /// Nobody's.
    None,
    /// That of a peer, with this number.
    Peer(u64),
    /// It is this node itself, whatever becomes of peers.
    This,
}

/// See the head of this file.
#[pin_data]
pub(crate) struct NodeStatus {
    page: StatusPage,
    /// Whoever has it, but for the table that it is found in.
    holders: Atomic<usize>,
    #[pin]
    current: SpinLockIrq<Session>,
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
                current <- new_spinlock_irq!(Session::None, "NodeStatus::current"),
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
    pub(crate) fn frame(&self) -> u64 {
        self.page.frame()
    }

    /// Whether nobody has it but the table in which it is found; nobody gets it by itself then.
    pub(crate) fn is_idle(&self) -> bool {
        self.holders.load(Acquire) == 0
    }

    /// It is this node's, which is always within reach. Any context.
    pub(crate) fn is_this(&self, boot_id: BootId) {
        let mut current = self.current.lock();
        if *current != Session::This {
            *current = Session::This;
            self.begin_epoch(boot_id);
        }
        drop(current);
        self.waiters.wake_all();
    }

    /// The caller has `current` locked.
    fn begin_epoch(&self, boot_id: BootId) {
        // One that was there has not been told to be lost yet.
        self.end_epoch();
        // Who sees anything of the new boot id sees that the epoch has ended.
        barrier::smp_mb(barrier::Write);
        for (field, half) in self.page.boot_id.iter().zip(boot_id) {
            field.store(half, Relaxed);
        }
        let epoch = self.page.epoch.load(Relaxed);
        self.page.epoch.store(epoch.wrapping_add(1), Release);
    }

    /// The caller has `current` locked.
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

    /// Another one.
    pub(crate) fn another(&self) -> Self {
        Self::new(&self.0)
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

/// One peer's hand on the status of its node: on none until it is set, nor in tests that do without.
pub(crate) struct PeerStatus {
    held: SetOnce<(Held, Session)>,
    /// A [`Phase`], as its number; only touched with `NodeStatus::current` locked.
    phase: Atomic<u32>,
}

impl PeerStatus {
    /// Of a peer that has just come.
    pub(super) fn new() -> Self {
        Self {
            held: SetOnce::new(),
            phase: Atomic::new(Phase::New as u32),
        }
    }

    /// Has processes see from now on how it is, in a session with a number that no other one has. Only the first
    /// time counts.
    pub(crate) fn set(&self, held: Held, session: u64) {
        self.held.populate((held, Session::Peer(session)));
    }

    /// It is known which life of the node this is. Says whether it was not before. Any context.
    pub(crate) fn online(&self, boot_id: BootId) -> bool {
        let Some((held, session)) = self.held.as_ref() else {
            return true;
        };
        let mut current = held.current.lock();
        let phase = self.phase.load(Relaxed);
        if phase == Phase::New as u32 {
            self.phase.store(Phase::Online as u32, Relaxed);
            if *current != Session::This {
                *current = *session;
                held.begin_epoch(boot_id);
            }
        }
        drop(current);
        held.waiters.wake_all();
        phase != Phase::Online as u32
    }

    /// The peer is lost: to be said before anybody else can know. Any context, any number of times.
    pub(super) fn lost(&self) {
        let Some((held, session)) = self.held.as_ref() else {
            return;
        };
        let mut current = held.current.lock();
        self.phase.store(Phase::Lost as u32, Relaxed);
        if *current != *session {
            return;
        }
        *current = Session::None;
        held.end_epoch();
        drop(current);
        held.waiters.wake_all();
    }

    /// A transfer, or another access to the node, has failed: counts that. Any context.
    pub(crate) fn access_failed(&self) {
        if let Some((held, _)) = self.held.as_ref() {
            held.page.errors.add(1, Relaxed);
        }
    }
}

#[kunit_tests(scif_peer_status)]
mod tests {
    use super::*;

    fn boot_id(status: &NodeStatus) -> BootId {
        [0, 1].map(|half: usize| {
            let field = status.page.boot_id.get(half);
            field.map_or(0, |field| field.load(Relaxed))
        })
    }

    fn peer(status: &Arc<NodeStatus>, session: u64) -> PeerStatus {
        let peer = PeerStatus::new();
        peer.set(Held::new(status), session);
        peer
    }

    #[test]
    fn the_epoch_is_odd_while_a_peer_is_there() -> Result {
        let status = NodeStatus::new(3, true)?;
        assert!(status.is_idle());
        let first = peer(&status, 1);
        assert!(!status.is_idle());
        assert_eq!(status.epoch(), 0);
        assert!(first.online([5, 6]));
        assert_eq!((status.epoch(), boot_id(&status)), (1, [5, 6]));
        assert!(!first.online([7, 8]));
        assert_eq!((status.epoch(), boot_id(&status)), (1, [5, 6]));
        first.lost();
        first.lost();
        assert_eq!((status.epoch(), boot_id(&status)), (2, [5, 6]));
        // What comes late changes nothing.
        assert!(first.online([7, 8]));
        assert_eq!(status.epoch(), 2);
        drop(first);
        assert!(status.is_idle());
        Ok(())
    }

    #[test]
    fn a_peer_that_is_back_early_is_not_lost_with_the_old_one() -> Result {
        let status = NodeStatus::new(3, false)?;
        let first = peer(&status, 1);
        let second = peer(&status, 2);
        first.online([1, 1]);
        second.online([2, 2]);
        assert_eq!((status.epoch(), boot_id(&status)), (3, [2, 2]));
        first.lost();
        assert_eq!(status.epoch(), 3);
        second.lost();
        assert_eq!(status.epoch(), 4);
        Ok(())
    }

    #[test]
    fn this_node_is_never_lost() -> Result {
        let status = NodeStatus::new(0, false)?;
        status.is_this([1, 2]);
        let itself = peer(&status, 1);
        itself.online([3, 4]);
        itself.access_failed();
        itself.lost();
        status.is_this([1, 2]);
        status.set_node(9);
        assert_eq!((status.epoch(), boot_id(&status)), (1, [1, 2]));
        assert_eq!(status.page.errors.load(Relaxed), 1);
        assert_eq!(status.node(), 9);
        Ok(())
    }
}
