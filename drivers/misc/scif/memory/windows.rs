// SPDX-License-Identifier: GPL-2.0

//! Windows that one end of a channel has registered: memory of this node that the other end may
//! reach.
//!
//! The pages of a window are exported, so that the peer reaches them. The window is sent to the
//! peer once, as extents. It is mapped for the DMA engine when this end uses it as the local side
//! of a transfer. `register` returns when the peer has taken the window, or will find it when it
//! handles its control messages. So a receiver of a later message finds the window that the message
//! speaks of. `window.rs` tells the life of a window.

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
        SmallList, //
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

/// First offset of windows without an offset of their own choice, away from the small offsets that
/// programs like to fix. Both ends start here, so symmetric programs get equal offsets.
const FIRST_OFFSET: u64 = 1 << 32;

/// Time that a lender of memory waits for a peer to release it.
const LENT_TIMEOUT: Delta = Delta::from_secs(10);
const DOES_NOT_LET_GO: &str = "it does not release memory that was lent to it";
const RELEASE_INTERVAL: Delta = Delta::from_millis(2);

/// The range of a window, which is reserved until this is dropped. The drop may sleep.
pub(crate) struct RegisteredRange {
    pub(crate) owner: Arc<Windows>,
    /// Range in the registered address space, if the window is listed.
    pub(crate) range: Range,
    /// Whether the window has a range in the registered address space.
    pub(super) is_listed: bool,
    /// The user's share that the window takes. `None` if it is not listed.
    pub(super) _share: Option<FairShare>,
}

impl Drop for RegisteredRange {
    fn drop(&mut self) {
        let owner = &self.owner;
        if self.is_listed {
            owner.ranges.give_back(self.range.start() as usize);
            owner.bytes.fetch_sub(self.range.len(), Relaxed);
            owner.count.fetch_sub(1, Relaxed);
        } else {
            owner.unlisted.fetch_sub(1, Full);
            owner.channel.wake();
        }
    }
}

/// Number of windows, and their total length. Windows that only wait for their last use count, too.
#[derive(Default)]
pub(crate) struct WindowTotals {
    pub(crate) windows: u64,
    pub(crate) bytes: u64,
}

#[derive(Default)]
struct Active {
    /// The windows that can be found, by their offsets.
    windows: RBTree<u64, Arc<Window>>,
    /// Whether the channel is closed, so that no windows are added.
    closed: bool,
}

/// The windows that one end of a channel has registered.
#[pin_data]
pub(crate) struct Windows {
    pub(crate) channel: Arc<Channel>,
    exports: Arc<Exports>,
    reclaim: Arc<dyn Reclaim>,
    used: Atomic<bool>,
    /// Whether memory of any window was only lent. The lender can't be told that its memory is in
    /// use, so it waits until the memory is not.
    lent: Atomic<bool>,
    /// The ranges taken by offered, active and revoked windows.
    #[pin]
    ranges: RangeAllocator,
    /// Number of these windows, and their total length.
    count: Atomic<u64>,
    bytes: Atomic<u64>,
    /// Offset at which the search for a free range begins.
    next: Atomic<u64>,
    /// Number of windows that are not listed.
    unlisted: Atomic<usize>,
    #[pin]
    active: SpinLock<Active>,
    /// Held by the caller that offers a window to the peer.
    #[pin]
    offering: CallLock,
    /// Number of revocations sent to the peer, and number of its answers that it begins no new
    /// uses. The answers come in the order of the revocations.
    revocations: Atomic<u64>,
    revoked: Atomic<u64>,
}

impl Windows {
    /// Creates an empty set of windows.
    /// Context: may sleep.
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
                ranges <- RangeAllocator::new(),
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

    // ----- ranges ------------------------------------------------------------------------------

    /// Takes a range: at `offset` if `fixed`, else the first free one from `offset` on, else the
    /// first free one of all. EAGAIN if the caller's user has its share of windows.
    fn take_range(self: &Arc<Self>, offset: i64, len: u64, fixed: bool) -> Result<RegisteredRange> {
        let mut range = Range::new(offset, len).map_err(|_| EINVAL)?;
        let share = self.exports.shares.take()?.ok_or(EAGAIN)?;
        if fixed {
            let taken = range.start() as usize..range.end() as usize;
            self.ranges.take_these(taken, GFP_KERNEL_ACCOUNT)?;
        } else {
            let hint = match range.start() & !(PAGE_SIZE as u64 - 1) {
                0 => self.next.load(Relaxed),
                hint => hint,
            };
            let from = |first| {
                let all = first as usize..LIMIT as usize;
                self.ranges.take(len as usize, all, GFP_KERNEL_ACCOUNT)
            };
            let start = from(hint).or_else(|_| from(0)).map_err(|_| ENOMEM)?;
            range = Range::from_parts(start as u64, len).map_err(|_| ENOMEM)?;
            if offset == 0 {
                self.next.store(range.end(), Relaxed);
            }
        }
        self.count.fetch_add(1, Relaxed);
        self.bytes.fetch_add(len, Relaxed);
        Ok(RegisteredRange {
            owner: self.clone(),
            range,
            is_listed: true,
            _share: Some(share),
        })
    }

    /// Returns the number of windows and their total length.
    /// Context: any.
    pub(crate) fn totals(&self) -> WindowTotals {
        WindowTotals {
            windows: self.count.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }

    /// Returns whether there ever was a window.
    pub(crate) fn have_resources(&self) -> bool {
        self.used.load(Relaxed)
    }

    /// Returns whether memory of a window was lent.
    /// Context: any.
    pub(crate) fn are_lent(&self) -> bool {
        self.lent.load(Relaxed)
    }

    /// If memory is lent, waits until the peer has `answered` the caller's message. The lender then
    /// takes the memory back. A peer that does not answer counts as lost. Returns whether memory is
    /// lent.
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

    /// Waits while the peer, which has been told to release it, `is_held`s lent memory. A peer that
    /// does not release it counts as lost. If the peer can still reach the memory after that, the
    /// log says so.
    /// Context: may sleep.
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
                "node {} may still write to memory of a kernel client, which the client takes back now\n",
                self.channel.node()
            );
        }
    }

    /// If memory was lent, waits until the peer can't reach it, and fails the peer after ten
    /// seconds.
    /// Context: may sleep.
    pub(crate) fn wait_until_unreachable(&self) {
        if self.are_lent() {
            self.wait_for_release(|| self.exports.any_unheld(self));
        }
    }

    /// Makes the window findable, using `reservation`. ECONNRESET if the channel was closed before.
    fn activate(
        &self,
        window: &Arc<Window>,
        reservation: RBTreeNodeReservation<u64, Arc<Window>>,
    ) -> Result {
        let node = reservation.into_node(window.registered.range.start(), window.clone());
        let mut active = self.active.lock();
        if active.closed {
            return Err(ECONNRESET);
        }
        active.windows.insert(node);
        Ok(())
    }

    // ----- use ---------------------------------------------------------------------------------

    /// Returns the windows that hold all of `range`, and takes a reference to each. The caller is
    /// inside the peer as long as it has them.
    ///
    /// # Errors
    ///
    /// - ENXIO: there is a gap.
    /// - EACCES: a window does not allow `protection`.
    pub(crate) fn cover(
        &self,
        range: Range,
        protection: u32,
        flags: fn(usize) -> Flags,
    ) -> Result<SmallList<LocalPiece>> {
        let (mut from, end) = (range.start(), range.end());
        // On an error, the references are dropped after the lock is released.
        SmallList::collect(flags, |pieces| {
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

    /// Returns the window that holds all of `range`, and the offset of `range` in it. `None` if
    /// there is none, or if it does not allow `protection`. The caller is inside the peer as long
    /// as it has it.
    pub(crate) fn holder(&self, range: Range, protection: u32) -> Option<(Arc<Window>, usize)> {
        let active = self.active.lock();
        let (window, offset) = holder(&active.windows, range)?;
        let offset = usize::try_from(offset).ok()?;
        (window.protection & protection == protection).then(|| (window.clone(), offset))
    }

    /// Revokes all windows for good. The peer is told that the channel is closed, or is lost, and
    /// releases the windows by itself.
    /// Context: may sleep.
    pub(crate) fn revoke_all(&self) {
        self.active.lock().closed = true;
        let first = || take_first(&mut self.active.lock().windows);
        while let Some(window) = first() {
            let unused = window.take_revocation();
            drop(unused);
        }
    }
}
