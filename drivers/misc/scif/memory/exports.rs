// SPDX-License-Identifier: GPL-2.0

//! All windows that one peer may be using, by the ids that it was told.
//!
//! A window stays here until the peer has released it, or can't reach it any more. As long as there
//! are no more than the peer has granted, it takes every one, and nobody waits for its answer.
//!
//! Lock: `table` is a spinlock, as the control work takes it: nobody walks over all windows under it.

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
    /// Nothing, until the peer has said what.
    granted: SetOnce<Grant>,
    /// What users may have of the windows that the peer takes.
    pub(super) shares: FairShares,
    #[pin]
    table: SpinLock<Table>,
}

#[derive(Default)]
struct Table {
    windows: RBTree<u32, Arc<Window>>,
    /// How many, and how many extents those have for the peer.
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

    /// A new id for a window.
    pub(super) fn new_id(&self) -> WindowId {
        WindowId(self.next_id.fetch_add(1, Relaxed))
    }

    /// Keeps a window until the peer has released it. ENODEV if the peer is lost. Says whether the peer has granted
    /// it.
    pub(super) fn add(&self, window: &Arc<Window>) -> Result<bool> {
        // Before the lock, which the control work takes: who pays may have to wait.
        let node = RBTreeNode::new(window.id.0, window.clone(), GFP_KERNEL_ACCOUNT)?;
        let granted = self.granted.as_ref();
        let granted = granted.filter(|granted| window.lies_in(granted.from, granted.len));
        let mut table = self.table.lock();
        // Under the lock, so that `release_all` either sees it or has been seen.
        if window.place.owner.channel.is_over() {
            return Err(ENODEV);
        }
        // After 2^32 windows the numbers begin again.
        if table.windows.get(&window.id.0).is_some() {
            return Err(EAGAIN);
        }
        // None was there.
        table.windows.insert(node);
        table.count += 1;
        table.extents += u64::from(window.packed_extents);
        let (count, extents) = (table.count as u64, table.extents);
        Ok(granted.is_some_and(|granted| {
            count <= u64::from(granted.windows) && extents <= granted.extents
        }))
    }

    /// The peer says what it takes without being asked. That does not change.
    pub(super) fn set_grant(&self, grant: Grant) {
        self.granted.populate(grant);
    }

    /// Finds a window that the peer was offered.
    pub(crate) fn get(&self, id: WindowId) -> Option<Arc<Window>> {
        self.table.lock().windows.get(&id.0).cloned()
    }

    /// The peer has released a window, or never had it. May sleep.
    pub(crate) fn release(&self, id: WindowId) {
        let mut table = self.table.lock();
        let Some(window) = table.windows.remove(&id.0) else {
            return;
        };
        table.count -= 1;
        table.extents -= u64::from(window.packed_extents);
        drop(table);
        // Without the lock.
        drop(window);
    }

    /// The peer can't reach any of them any more. May sleep.
    pub(crate) fn release_all(&self) {
        let first = || self.table.lock().windows.keys().next().copied();
        while let Some(id) = first() {
            self.release(WindowId(id));
        }
    }

    /// Calls `f` with each window, until the first error. The table is locked for as long, so `f` does not sleep and asks
    /// nothing of this; between two windows it is not locked.
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

    /// Whether the peer may be using one of this owner's whose memory is used for something else as soon
    /// as its owner, which registers no more, gives it up.
    pub(super) fn any_unheld(&self, owner: &Windows) -> bool {
        self.for_each(|window| {
            let is_unheld = core::ptr::eq::<Windows>(&*window.place.owner, owner)
                && window.place.is_listed
                && !window.memory.pages.are_held();
            if is_unheld {
                Err(())
            } else {
                Ok(())
            }
        })
        .is_err()
    }

    /// How many windows the peer may be using.
    pub(crate) fn count(&self) -> usize {
        self.table.lock().count
    }
}
