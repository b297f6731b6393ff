// SPDX-License-Identifier: GPL-2.0

//! All windows that one peer may be using, by the ids that the peer was told.
//!
//! A window stays in the table until the peer has released it, or can't reach it any more. While
//! the peer's windows are within its grant, the peer takes every one, and no caller waits for its
//! answer.
//!
//! Lock: `table` is a spinlock, as the control work takes it. No function walks over all windows
//! under it.

use super::{
    remote_window::MAX_WINDOWS,
    window::Window,
    windows::Windows, //
};
use crate::{
    logic::messages::{
        Grant,
        WindowId, //
    },
    sync::fair_share::FairShares, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SetOnce,
        SpinLock, //
    },
};

/// The windows that one peer may be using.
#[pin_data]
pub(crate) struct Exports {
    next_id: Atomic<u32>,
    /// The peer's grant. Empty until the peer has sent it.
    granted: SetOnce<Grant>,
    /// The users' shares of the windows that the peer takes.
    pub(super) shares: FairShares,
    #[pin]
    table: SpinLock<Table>,
}

#[derive(Default)]
struct Table {
    windows: RBTree<u32, Arc<Window>>,
    /// Number of windows, and of their extents for the peer.
    count: usize,
    extents: u64,
}

impl Exports {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let shares = FairShares::of(MAX_WINDOWS as usize)?;
        Arc::pin_init(
            pin_init!(Self {
                next_id: Atomic::new(1),
                granted: SetOnce::new(),
                shares,
                table <- new_spinlock!(Table::default(), "Exports::table"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns a new id for a window.
    pub(super) fn new_id(&self) -> WindowId {
        WindowId(self.next_id.fetch_add(1, Relaxed))
    }

    /// Stores a window until the peer has released it. Returns whether the peer has granted the
    /// window. ENODEV if the peer is lost.
    pub(super) fn add(&self, window: &Arc<Window>) -> Result<bool> {
        // Allocates before taking the lock, which the control work takes: the paying process may
        // have to wait.
        let node = RBTreeNode::new(window.id.0, window.clone(), GFP_KERNEL_ACCOUNT)?;
        let granted = self.granted.as_ref();
        let granted = granted.filter(|granted| window.lies_in(granted.from, granted.len));
        let mut table = self.table.lock();
        // Checks under the lock, so that either `release_all` sees the window, or this sees the
        // loss.
        if window.registered.owner.channel.is_over() {
            return Err(ENODEV);
        }
        // After 2^32 windows the ids begin again.
        if table.windows.get(&window.id.0).is_some() {
            return Err(EAGAIN);
        }
        // No entry is replaced.
        table.windows.insert(node);
        table.count += 1;
        table.extents += u64::from(window.packed_extents);
        let (count, extents) = (table.count as u64, table.extents);
        Ok(granted.is_some_and(|granted| {
            count <= u64::from(granted.windows) && extents <= granted.extents
        }))
    }

    /// Sets the peer's grant. Only the first call counts.
    pub(super) fn set_grant(&self, grant: Grant) {
        self.granted.populate(grant);
    }

    /// Finds a window that the peer was offered.
    pub(crate) fn get(&self, id: WindowId) -> Option<Arc<Window>> {
        self.table.lock().windows.get(&id.0).cloned()
    }

    /// Removes a window that the peer has released, or never had.
    /// Context: may sleep.
    pub(crate) fn release(&self, id: WindowId) {
        let mut table = self.table.lock();
        let Some(window) = table.windows.remove(&id.0) else {
            return;
        };
        table.count -= 1;
        table.extents -= u64::from(window.packed_extents);
        drop(table);
        // Drops the window without the lock.
        drop(window);
    }

    /// Removes all windows, as the peer can't reach them any more.
    /// Context: may sleep.
    pub(crate) fn release_all(&self) {
        let first = || self.table.lock().windows.keys().next().copied();
        while let Some(id) = first() {
            self.release(WindowId(id));
        }
    }

    /// Calls `f` with each window, until the first error. The table is locked during each call, so
    /// `f` does not sleep and calls no function of this table. Between two calls the table is not
    /// locked.
    pub(crate) fn for_each<E>(&self, mut f: impl FnMut(&Window) -> Result<(), E>) -> Result<(), E> {
        let mut next = Some(0);
        while let Some(from) = next {
            let table = self.table.lock();
            let Some(cursor) = table.windows.cursor_lower_bound(&from) else {
                break;
            };
            let (id, window) = cursor.current();
            next = id.checked_add(1);
            f(window)?;
        }
        Ok(())
    }

    /// Returns whether the peer may be using a listed, unpinned window of `owner`. The memory of
    /// such a window gets another use as soon as its owner, which registers no more, gives the
    /// window up.
    pub(super) fn any_unheld(&self, owner: &Windows) -> bool {
        self.for_each(|window| {
            let is_unheld = core::ptr::eq::<Windows>(&*window.registered.owner, owner)
                && window.registered.is_listed
                && !window.memory.pages.are_held();
            if is_unheld {
                Err(())
            } else {
                Ok(())
            }
        })
        .is_err()
    }

    /// Returns the number of windows that the peer may be using.
    pub(crate) fn count(&self) -> usize {
        self.table.lock().count
    }
}
