// SPDX-License-Identifier: GPL-2.0

//! What one end of a channel has registered: memory of this node that the other end may reach.
//!
//! A window has its pages exported, so that the peer reaches them, and is pushed to the peer once, as
//! extents. It is mapped for the DMA engine when this end uses it as the local side of a transfer.
//! `register` returns when the peer has taken it, or finds it by looking: whoever gets a message that
//! was sent afterwards finds the window that it speaks of. The life of a window is in `window.rs`.
//!
//! Locks: `tables` comes after all locks but the leaves, see `scif_main.rs`, and none is taken under
//! it; `revoking` is a leaf.

mod register;
mod unlisted;
mod unregister;

use super::{
    exports::Exports,
    local::{
        Holder,
        LocalMemory,
        LocalPiece,
        Reclaim, //
    },
    range_tree::{
        holder,
        take_first,
        Few, //
    },
    window::Window, //
};
use crate::{
    logic::address_space::{
        self,
        Range, //
    },
    peer::channel::Channel,
    sync::call_lock::CallLock,
    sys::wait::WaitQueue,
};
use kernel::{
    new_mutex, new_spinlock,
    page::PAGE_SIZE,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        Mutex,
        SpinLock, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    },
};
use unregister::Revocation;

/// Where windows are placed that have no offset of their own choice: away from the small offsets
/// that programs like to fix. Both ends start here, so symmetric programs get equal offsets.
const FIRST_OFFSET: u64 = 1 << 32;

/// How long who has lent memory waits for a peer to let go of it.
const LENT_TIMEOUT: Delta = Delta::from_secs(10);
const DOES_NOT_LET_GO: &str = "it does not let go of memory that was lent";
const RELEASE_INTERVAL: Delta = Delta::from_millis(2);

/// A window in use, as the local side of a transfer.
struct WindowUse {
    window: Arc<Window>,
    owner: Arc<Windows>,
}

impl Holder for WindowUse {
    fn memory(&self) -> &LocalMemory {
        &self.window.memory
    }
}

impl Drop for WindowUse {
    fn drop(&mut self) {
        if self.window.uses.leave() {
            self.owner.remove_if_gone(&self.window);
        }
    }
}

/// How many windows there are, those included that only wait for their last use, and how long they
/// are all together.
#[derive(Clone, Copy, Default)]
pub(crate) struct Held {
    pub(crate) windows: u64,
    pub(crate) bytes: u64,
}

struct Tables {
    /// The windows that can be found.
    active: RBTree<u64, Arc<Window>>,
    /// All places that are taken, by offered, active and revoked windows.
    taken: RBTree<u64, Range>,
    /// How many those are, and how long all together.
    held: Held,
    /// Where to look for a free place first.
    next: u64,
    /// The channel is closed: no new windows.
    closed: bool,
}

/// The windows that one end of a channel has registered.
#[pin_data]
pub(crate) struct Windows {
    pub(super) channel: Arc<Channel>,
    exports: Arc<Exports>,
    reclaim: Arc<dyn Reclaim>,
    used: Atomic<bool>,
    /// Whether there ever was one whose memory is only lent: its owner, who can't be told that it is
    /// in use, has to wait until it is not.
    lent: Atomic<bool>,
    /// Whether there ever was one whose pages are used for something else when it gives them up.
    unheld: Atomic<bool>,
    /// How many the peer may be using that lie nowhere.
    unlisted: Atomic<usize>,
    #[pin]
    tables: Mutex<Tables>,
    /// Who offers a window to the peer.
    #[pin]
    offering: CallLock,
    /// The windows of which the peer has not said yet that it begins no new uses.
    #[pin]
    revoking: SpinLock<RBTree<u32, Arc<Revocation>>>,
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
                unheld: Atomic::new(false),
                unlisted: Atomic::new(0),
                tables <- new_mutex!(
                    Tables {
                        active: RBTree::new(),
                        taken: RBTree::new(),
                        held: Held::default(),
                        next: FIRST_OFFSET,
                        closed: false,
                    },
                    "Windows::tables"
                ),
                offering <- CallLock::new(),
                revoking <- new_spinlock!(RBTree::new(), "Windows::revoking"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    // ----- places ------------------------------------------------------------------------------

    /// Reserves a place: at `offset` if `fixed`, else near it, else anywhere.
    fn reserve(&self, offset: i64, len: u64, fixed: bool) -> Result<Range> {
        let wanted = Range::new(offset, len).map_err(|_| EINVAL)?;
        // Before the lock, which the control work takes: who pays may have to wait.
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut tables = self.tables.lock();
        if tables.closed {
            return Err(ECONNRESET);
        }
        let range = if fixed {
            if address_space::overlaps(&tables.taken, wanted) {
                return Err(EADDRINUSE);
            }
            wanted
        } else {
            let hint = match wanted.start() & !(PAGE_SIZE as u64 - 1) {
                0 => tables.next,
                hint => hint,
            };
            let start = address_space::choose_offset(&tables.taken, hint, len).ok_or(ENOMEM)?;
            Range::from_parts(start, len).map_err(|_| ENOMEM)?
        };
        tables.taken.insert(node.into_node(range.start(), range));
        tables.held.windows += 1;
        tables.held.bytes += range.len();
        if !fixed && offset == 0 {
            tables.next = range.end();
        }
        Ok(range)
    }

    /// How many there are, and how long. May sleep.
    pub(crate) fn held(&self) -> Held {
        self.tables.lock().held
    }

    /// Whether there ever was a window.
    pub(crate) fn were_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    /// If memory is lent, waits until the peer, which has been told, has answered: who has lent it takes
    /// it back then. One that does not answer is lost. Says whether any is lent.
    pub(crate) fn wait_if_lent(
        &self,
        waiters: &WaitQueue,
        answered: impl FnMut() -> Option<()>,
    ) -> bool {
        if !self.lent.load(Relaxed) {
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
        if !waited(LENT_TIMEOUT) {
            pr_warn!(
                "node {} may still write to memory that was lent\n",
                self.channel.node()
            );
        }
    }

    /// Waits until the peer can't reach memory that will be used for something else when the channel is
    /// closed. May sleep.
    pub(crate) fn wait_until_unreachable(&self) {
        if self.unheld.load(Relaxed) {
            self.wait_for_release(|| self.exports.any_unheld(self));
        }
    }

    fn give_back(&self, range: Range) {
        let mut tables = self.tables.lock();
        if let Some(range) = tables.taken.remove(&range.start()) {
            tables.held.windows -= 1;
            tables.held.bytes -= range.len();
        }
    }

    /// Makes the window findable; not if it was revoked before it came to that.
    fn activate(&self, window: &Arc<Window>) -> Result {
        let node = RBTreeNode::new(window.range.start(), window.clone(), GFP_KERNEL_ACCOUNT)?;
        let mut tables = self.tables.lock();
        if tables.closed || window.uses.is_closed() {
            return Err(ECONNRESET);
        }
        tables.active.insert(node);
        Ok(())
    }

    /// The peer has let go of a window. One that it releases though it was not revoked it has no more use for;
    /// so be it. May sleep.
    pub(super) fn released(&self, window: &Window) {
        if window.is_unlisted() {
            self.unlisted.fetch_sub(1, Full);
            self.channel.wake();
        } else {
            self.remove_if_gone(window);
        }
    }

    /// Gives the place of a window back if nothing uses it any more.
    fn remove_if_gone(&self, window: &Window) {
        if window.is_gone_now() {
            self.give_back(window.range);
        }
    }

    // ----- use ---------------------------------------------------------------------------------

    /// The windows that hold all of `range`, each taken into use. ENXIO for a gap, EACCES if one
    /// of them does not allow `protection`. The caller is inside the peer as long as it has them.
    pub(crate) fn cover(
        self: &Arc<Self>,
        range: Range,
        protection: u32,
    ) -> Result<Few<LocalPiece>> {
        // On an error those that were taken are let go after the lock.
        let mut pieces = Few::new();
        let tables = self.tables.lock();
        for piece in address_space::covering(&tables.active, range).ok_or(ENXIO)? {
            let window = tables.active.get(&piece.range.start()).ok_or(ENXIO)?;
            if window.protection & protection != protection {
                return Err(EACCES);
            }
            if !window.uses.enter_unscoped() {
                return Err(ENXIO);
            }
            let in_use = WindowUse {
                window: window.clone(),
                owner: self.clone(),
            };
            pieces.push(LocalPiece::new(in_use, piece.offset, piece.len)?)?;
        }
        Ok(pieces)
    }

    /// Calls `f` with the memory of the window that holds all of `range`, and where in it that begins: none
    /// if there is none, or none that allows `protection`. The table stays locked for as long, so
    /// nothing is asked of this in `f`, and no window goes.
    pub(crate) fn with<R>(
        &self,
        range: Range,
        protection: u32,
        f: impl FnOnce(&LocalMemory, usize) -> R,
    ) -> Option<R> {
        let tables = self.tables.lock();
        let (window, offset) = holder(&tables.active, range)?;
        let offset = usize::try_from(offset).ok()?;
        (window.protection & protection == protection).then(|| f(&window.memory, offset))
    }

    /// Revokes all windows for good. The peer, which is told that the channel is closed, or is lost,
    /// lets go of them by itself. May sleep.
    pub(crate) fn revoke_all(&self) {
        self.tables.lock().closed = true;
        let first = || take_first(&mut self.tables.lock().active);
        while let Some(window) = first() {
            window.uses.close();
            self.remove_if_gone(&window);
        }
    }
}
