// SPDX-License-Identifier: GPL-2.0

//! What one end of a channel has registered: memory of this node that the other end may reach.
//!
//! A window has its pages exported, so that the peer reaches them, and is pushed to the peer once, as
//! extents. It is mapped for the DMA engine when this end uses it as the local side of a transfer.
//! `register` returns when the peer has taken it, or finds it by looking: whoever gets a message that
//! was sent afterwards finds the window that it speaks of. The life of a window is in `window.rs`.
//!
//! Lock: `active` is a spinlock, as the control work takes it; nothing is called under it.

mod register;
mod unlisted;
mod unregister;

use super::{
    exports::Exports,
    local::{
        LocalPiece,
        Reclaim, //
    },
    range_tree::{
        self,
        holder,
        take_first,
        Few, //
    },
    window::Window, //
};
use crate::{
    logic::address_space::{
        Range,
        LIMIT, //
    },
    peer::channel::Channel,
    sync::{
        call_lock::CallLock,
        fair_share::FairShare, //
    },
    sys::{
        range_allocator::RangeAllocator,
        wait::WaitQueue, //
    }, //
};
use kernel::{
    alloc::Flags,
    new_spinlock,
    page::PAGE_SIZE,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    },
};

/// Where windows are placed that have no offset of their own choice: away from the small offsets
/// that programs like to fix. Both ends start here, so symmetric programs get equal offsets.
const FIRST_OFFSET: u64 = 1 << 32;

/// How long who has lent memory waits for a peer to let go of it.
const LENT_TIMEOUT: Delta = Delta::from_secs(10);
const DOES_NOT_LET_GO: &str = "it does not let go of memory that was lent";
const RELEASE_INTERVAL: Delta = Delta::from_millis(2);

/// Where a window lies, until this is dropped, which may sleep.
pub(crate) struct Place {
    pub(crate) owner: Arc<Windows>,
    /// In the registered address space, unless it is not listed.
    pub(crate) range: Range,
    /// Whether it lies there, and not nowhere.
    pub(super) is_listed: bool,
    /// None of one that is not listed.
    pub(super) _share: Option<FairShare>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let owner = &self.owner;
        if self.is_listed {
            owner.places.give_back(self.range.start() as usize);
            owner.bytes.fetch_sub(self.range.len(), Relaxed);
            owner.count.fetch_sub(1, Relaxed);
        } else {
            owner.unlisted.fetch_sub(1, Full);
            owner.channel.wake();
        }
    }
}

/// How many windows there are, those included that only wait for their last use, and how long they
/// are all together.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) windows: u64,
    pub(crate) bytes: u64,
}

#[derive(Default)]
struct Active {
    /// The windows that can be found.
    windows: RBTree<u64, Arc<Window>>,
    /// The channel is closed: no new windows.
    closed: bool,
}

/// The windows that one end of a channel has registered.
#[pin_data]
pub(crate) struct Windows {
    pub(crate) channel: Arc<Channel>,
    exports: Arc<Exports>,
    reclaim: Arc<dyn Reclaim>,
    used: Atomic<bool>,
    /// Whether there ever was one whose memory is only lent: its owner, who can't be told that it is
    /// in use, has to wait until it is not.
    lent: Atomic<bool>,
    /// The bytes that are taken, by offered, active and revoked windows.
    #[pin]
    places: RangeAllocator,
    /// How many windows have those, and how long they are all together.
    count: Atomic<u64>,
    bytes: Atomic<u64>,
    /// Where to look for a free place first.
    next: Atomic<u64>,
    /// How many there are that lie nowhere.
    unlisted: Atomic<usize>,
    #[pin]
    active: SpinLock<Active>,
    /// Who offers a window to the peer.
    #[pin]
    offering: CallLock,
    /// How often the peer was told that a window is revoked, and how often it has said that it begins no new uses: in
    /// the same order.
    revocations: Atomic<u64>,
    revoked: Atomic<u64>,
}

impl Windows {
    /// No windows yet. May sleep.
    pub(crate) fn new(
        channel: &Arc<Channel>,
        exports: &Arc<Exports>,
        reclaim: Arc<dyn Reclaim>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                channel: channel.clone(),
                exports: exports.clone(),
                reclaim,
                used: Atomic::new(false),
                lent: Atomic::new(false),
                places <- RangeAllocator::new(),
                count: Atomic::new(0),
                bytes: Atomic::new(0),
                next: Atomic::new(FIRST_OFFSET),
                unlisted: Atomic::new(0),
                active <- new_spinlock!(Active::default(), "Windows::active"),
                offering <- CallLock::new(),
                revocations: Atomic::new(0),
                revoked: Atomic::new(0),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    // ----- places ------------------------------------------------------------------------------

    /// Takes a place: at `offset` if `fixed`, else the first one from there on, else the first one of all. EAGAIN if the
    /// caller's user has its share of windows.
    fn take_place(self: &Arc<Self>, offset: i64, len: u64, fixed: bool) -> Result<Place> {
        let mut range = Range::new(offset, len).map_err(|_| EINVAL)?;
        let share = self.exports.shares.take()?.ok_or(EAGAIN)?;
        if fixed {
            let taken = range.start() as usize..range.end() as usize;
            self.places.take_these(taken, GFP_KERNEL_ACCOUNT)?;
        } else {
            let hint = match range.start() & !(PAGE_SIZE as u64 - 1) {
                0 => self.next.load(Relaxed),
                hint => hint,
            };
            let from = |first| {
                let all = first as usize..LIMIT as usize;
                self.places.take(len as usize, all, GFP_KERNEL_ACCOUNT)
            };
            let start = from(hint).or_else(|_| from(0)).map_err(|_| ENOMEM)?;
            range = Range::from_parts(start as u64, len).map_err(|_| ENOMEM)?;
            if offset == 0 {
                self.next.store(range.end(), Relaxed);
            }
        }
        self.count.fetch_add(1, Relaxed);
        self.bytes.fetch_add(len, Relaxed);
        Ok(Place {
            owner: self.clone(),
            range,
            is_listed: true,
            _share: Some(share),
        })
    }

    /// How many there are, and how long. Any context.
    pub(crate) fn held(&self) -> Held {
        Held {
            windows: self.count.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }

    /// Whether there ever was a window.
    pub(crate) fn were_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    /// Whether memory is lent. Any context.
    pub(crate) fn are_lent(&self) -> bool {
        self.lent.load(Relaxed)
    }

    /// If memory is lent, waits until the peer, which has been told, has answered: who has lent it takes
    /// it back then. One that does not answer is lost. Says whether any is lent.
    pub(crate) fn wait_if_lent(
        &self,
        waiters: &WaitQueue,
        answered: impl FnMut() -> Option<()>,
    ) -> bool {
        if !self.are_lent() {
            return false;
        }
        let waited = waiters.wait_uninterruptible_timeout(LENT_TIMEOUT, answered);
        if waited.is_none() {
            self.channel.fail(DOES_NOT_LET_GO);
        }
        true
    }

    /// Waits as long as the peer, which has been told, `is_held`s memory that is lent. One that does not
    /// let go of it is lost, and if it can still reach it then, the log says so. May sleep.
    fn wait_for_release(&self, is_held: impl Fn() -> bool) {
        let waited = |limit: Delta| {
            let started = Instant::<Monotonic>::now();
            while is_held() {
                if started.elapsed() >= limit {
                    return false;
                }
                fsleep(RELEASE_INTERVAL);
            }
            true
        };
        if waited(LENT_TIMEOUT) {
            return;
        }
        self.channel.fail(DOES_NOT_LET_GO);
        if !waited(LENT_TIMEOUT) && self.channel.may_log() {
            pr_warn!(
                "node {} may still write to memory that was lent\n",
                self.channel.node()
            );
        }
    }

    /// If memory was lent, waits until the peer can't reach it, and fails the peer after ten seconds. May sleep.
    pub(crate) fn wait_until_unreachable(&self) {
        if self.are_lent() {
            self.wait_for_release(|| self.exports.any_unheld(self));
        }
    }

    /// Makes the window findable, by what was reserved for that; not if the channel was closed before it came to that.
    fn activate(
        &self,
        window: &Arc<Window>,
        reservation: RBTreeNodeReservation<u64, Arc<Window>>,
    ) -> Result {
        let node = reservation.into_node(window.place.range.start(), window.clone());
        let mut active = self.active.lock();
        if active.closed {
            return Err(ECONNRESET);
        }
        active.windows.insert(node);
        Ok(())
    }

    // ----- use ---------------------------------------------------------------------------------

    /// The windows that hold all of `range`, each taken into use. ENXIO for a gap, EACCES if one
    /// of them does not allow `protection`. The caller is inside the peer as long as it has them.
    pub(crate) fn cover(
        &self,
        range: Range,
        protection: u32,
        flags: fn(usize) -> Flags,
    ) -> Result<Few<LocalPiece>> {
        let (mut from, end) = (range.start(), range.end());
        // On an error those that were taken are let go after the lock.
        Few::collect(flags, |pieces| {
            let active = self.active.lock();
            range_tree::cover(
                &active.windows,
                &mut from,
                end,
                ENXIO,
                |window, offset, len| {
                    if window.protection & protection != protection {
                        return Err(EACCES);
                    }
                    pieces.push(LocalPiece {
                        holder: window.clone(),
                        offset,
                        len,
                    })
                },
            )
        })
    }

    /// The window that holds all of `range`, taken into use, and where in it that begins: none if there is none, or none
    /// that allows `protection`. As [`Self::cover`].
    pub(crate) fn holder(&self, range: Range, protection: u32) -> Option<(Arc<Window>, usize)> {
        let active = self.active.lock();
        let (window, offset) = holder(&active.windows, range)?;
        let offset = usize::try_from(offset).ok()?;
        (window.protection & protection == protection).then(|| (window.clone(), offset))
    }

    /// Revokes all windows for good. The peer, which is told that the channel is closed, or is lost,
    /// lets go of them by itself. May sleep.
    pub(crate) fn revoke_all(&self) {
        self.active.lock().closed = true;
        let first = || take_first(&mut self.active.lock().windows);
        while let Some(window) = first() {
            let unused = window.take_revocation();
            drop(unused);
        }
    }
}
