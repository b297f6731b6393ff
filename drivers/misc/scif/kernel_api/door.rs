// SPDX-License-Identifier: GPL-2.0

//! The state behind the functions of the interface, and a record of what other modules hold.

use crate::{
    endpoint::{
        pinned::PinnedPages,
        scif::Scif,
        Endpoint,
        RemotePages, //
    },
    sys::{
        kernel_calls::{handle_of, scif_endpt},
        peer_bus::Client,
        published::Published,
        workqueue::Queue, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        Arc,
        Mutex, //
    },
};

/// The state behind the functions of the interface.
#[pin_data]
pub(super) struct Door {
    pub(super) scif: Arc<Scif>,
    /// Queue of the work that makes devices of nodes.
    pub(super) bus_work: Arc<Queue>,
    #[pin]
    pub(super) endpoints: Registry<Arc<Endpoint>>,
    /// Held while a client is registered, so that no client is registered twice.
    #[pin]
    pub(super) registering: Mutex<()>,
    #[pin]
    pub(super) clients: Registry<Client>,
    #[pin]
    pub(super) pinned: Registry<Arc<PinnedPages>>,
    /// Pages of peers, and the structure by which modules know them. This structure is dropped
    /// before the pages that it describes.
    #[pin]
    pub(super) held: Registry<RemotePages>,
}

/// The state of the open door, for the functions.
pub(super) static DOOR: Published<Door> = Published::new();

impl Door {
    /// Creates the state, with nothing held.
    /// Context: may sleep.
    pub(super) fn new(scif: &Arc<Scif>, bus_work: Arc<Queue>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                scif: scif.clone(),
                bus_work,
                endpoints <- Registry::new(),
                registering <- new_mutex!((), "Door::registering"),
                clients <- Registry::new(),
                pinned <- Registry::new(),
                held <- Registry::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Hands out an endpoint.
    pub(super) fn keep(&self, endpoint: Arc<Endpoint>, owner: usize) -> Result<*mut scif_endpt> {
        let handle: *mut scif_endpt = handle_of(&endpoint);
        self.endpoints.add(handle.addr(), owner, endpoint)?;
        Ok(handle)
    }

    /// Returns the owner of an endpoint. EBADF: the endpoint was not handed out.
    pub(super) fn owner_of(&self, endpoint: &Arc<Endpoint>) -> Result<usize> {
        let handle: *mut scif_endpt = handle_of(endpoint);
        self.endpoints.owner(handle.addr()).ok_or(EBADF)
    }
}

struct Entry<T> {
    /// Address of the module. 0 for built-in code, or for no module.
    owner: usize,
    value: T,
}

/// Things that other modules hold, by the address or number that the modules know, and their
/// owners.
///
/// Lock: `table` is a leaf. The caller that takes an entry out drops it without the lock.
#[pin_data]
pub(super) struct Registry<T> {
    #[pin]
    table: Mutex<Table<T>>,
}

struct Table<T> {
    entries: RBTree<usize, Entry<T>>,
    next_number: usize,
}

impl<T: Unpin> Registry<T> {
    /// Creates a registry without entries.
    fn new() -> impl PinInit<Self> {
        let table = Table {
            entries: RBTree::new(),
            next_number: 1,
        };
        pin_init!(Self {
            table <- new_mutex!(table, "Registry::table"),
        })
    }

    /// Adds an entry under a key that no other entry has.
    /// Context: may sleep.
    pub(super) fn add(&self, key: usize, owner: usize, value: T) -> Result {
        let node = RBTreeNode::new(key, Entry { owner, value }, GFP_KERNEL)?;
        let _replaced = self.table.lock().entries.insert(node);
        Ok(())
    }

    /// Adds an entry under a new number, which is not 0. Returns the number.
    /// Context: may sleep.
    pub(super) fn number(&self, owner: usize, value: T) -> Result<usize> {
        let number = {
            let mut table = self.table.lock();
            table.next_number += 1;
            table.next_number
        };
        self.add(number, owner, value)?;
        Ok(number)
    }

    /// Takes out the entry with this key.
    pub(super) fn take(&self, key: usize) -> Option<T> {
        let node = self.table.lock().entries.remove_node(&key);
        Some(node?.to_key_value().1.value)
    }

    /// Takes out all entries of a module, and calls `let_go` with each, without the lock. Returns
    /// how many there were.
    pub(super) fn clear_of(&self, owner: usize, mut let_go: impl FnMut(T)) -> usize {
        // Finds and takes out the entry under one hold of the lock: the key can belong to another
        // module right after.
        let take_next = || {
            let mut table = self.table.lock();
            let mut entries = table.entries.iter();
            let key = entries.find_map(|(key, entry)| (entry.owner == owner).then_some(*key))?;
            let node = table.entries.remove_node(&key);
            drop(table);
            Some(node?.to_key_value().1.value)
        };
        let mut count = 0;
        while let Some(value) = take_next() {
            let_go(value);
            count += 1;
        }
        count
    }

    /// Returns the owner of an entry, if it is there.
    pub(super) fn owner(&self, key: usize) -> Option<usize> {
        let table = self.table.lock();
        table.entries.get(&key).map(|entry| entry.owner)
    }
}

impl<T: Clone + Unpin> Registry<T> {
    /// Returns the value of an entry.
    pub(super) fn get(&self, key: usize) -> Option<T> {
        let table = self.table.lock();
        table.entries.get(&key).map(|entry| entry.value.clone())
    }
}
