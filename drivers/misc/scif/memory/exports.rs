// SPDX-License-Identifier: GPL-2.0

//! All windows that one peer may be using, by the ids that it was told.
//!
//! A window stays here until the peer has released it, or can't reach it any more. As long as there
//! are no more than the peer has granted, it takes every one, and nobody waits for its answer.
//!
//! Lock: `table` comes after all locks but the leaves, see `scif_main.rs`; nothing is called under it.

pub(crate) use super::window::Facts as WindowFacts;
use super::{
    window::Window,
    windows::Windows, //
};
use crate::{
    logic::messages::{
        Grant,
        WindowId, //
    },
    peer::Peer, //
};
use kernel::{
    new_mutex,
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
        Mutex, //
    },
};

/// A window that the peer has been offered, and whose it is.
struct Entry {
    window: Arc<Window>,
    owner: Arc<Windows>,
}

/// The windows that one peer may be using.
#[pin_data]
pub(crate) struct Exports {
    next_id: Atomic<u32>,
    #[pin]
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    windows: RBTree<u32, Entry>,
    /// How many, and how many extents those have for the peer.
    count: usize,
    extents: u64,
    /// Nothing, until the peer has said what.
    granted: Option<Grant>,
}

impl Exports {
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                next_id: Atomic::new(1),
                table <- new_mutex!(Table::default(), "Exports::table"),
            }),
            GFP_KERNEL,
        )
    }

    /// A new id for a window.
    pub(super) fn new_id(&self) -> WindowId {
        WindowId(self.next_id.fetch_add(1, Relaxed))
    }

    /// Keeps a window until `peer`, whose table this is, has released it. ENODEV if the peer is lost.
    /// Says whether the peer has granted it.
    pub(super) fn add(
        &self,
        peer: &Peer,
        window: &Arc<Window>,
        owner: &Arc<Windows>,
    ) -> Result<bool> {
        let entry = Entry {
            window: window.clone(),
            owner: owner.clone(),
        };
        // Before the lock, which the control work takes: who pays may have to wait.
        let node = RBTreeNode::new(window.id.0, entry, GFP_KERNEL_ACCOUNT)?;
        let mut table = self.table.lock();
        // Under the lock, so that `release_all` either sees it or has been seen.
        if peer.is_over() {
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
        Ok(table.granted.is_some_and(|granted| {
            count <= u64::from(granted.windows)
                && extents <= granted.extents
                && window.lies_in(granted.from, granted.len)
        }))
    }

    /// The peer says what it takes without being asked. That does not change.
    pub(super) fn set_grant(&self, grant: Grant) {
        self.table.lock().granted.get_or_insert(grant);
    }

    /// Finds a window that the peer was offered.
    pub(crate) fn get(&self, id: WindowId) -> Option<Arc<Window>> {
        let table = self.table.lock();
        let entry = table.windows.get(&id.0)?;
        Some(entry.window.clone())
    }

    /// The peer has released a window, or never had it. May sleep.
    pub(crate) fn release(&self, id: WindowId) {
        let mut table = self.table.lock();
        let Some(Entry { window, owner }) = table.windows.remove(&id.0) else {
            return;
        };
        table.count -= 1;
        table.extents -= u64::from(window.packed_extents);
        drop(table);
        window.release_by_peer();
        owner.released(&window);
    }

    /// The peer can't reach any of them any more. May sleep.
    pub(crate) fn release_all(&self) {
        let first = || self.table.lock().windows.keys().next().copied();
        while let Some(id) = first() {
            self.release(WindowId(id));
        }
    }

    /// Walks over what there is to see of each, without the lock: no window is kept from going meanwhile.
    /// May sleep.
    pub(crate) fn facts(self: &Arc<Self>) -> impl Iterator<Item = WindowFacts> {
        let (this, mut next) = (self.clone(), Some(0));
        core::iter::from_fn(move || {
            let table = this.table.lock();
            let cursor = table.windows.cursor_lower_bound(&next?)?;
            let (id, Entry { window, owner }) = cursor.current();
            next = id.checked_add(1);
            Some(window.facts(owner.channel.id))
        })
    }

    /// Whether the peer may be using one of this owner's whose memory is used for something else as soon
    /// as its owner gives it up. May sleep.
    pub(super) fn any_unheld(&self, owner: &Windows) -> bool {
        let table = self.table.lock();
        let mut entries = table.windows.values();
        entries.any(|entry| {
            core::ptr::eq::<Windows>(&*entry.owner, owner)
                && !entry.window.is_unlisted()
                && !entry.window.memory.pages.are_held()
        })
    }

    /// How many windows the peer may be using.
    pub(crate) fn count(&self) -> usize {
        self.table.lock().count
    }
}
