// SPDX-License-Identifier: GPL-2.0

//! What the functions of the interface find, and what other modules hold of it.

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

/// What is behind the functions of the interface.
#[pin_data]
pub(super) struct Door {
    pub(super) scif: Arc<Scif>,
    /// Where devices are made of nodes.
    pub(super) bus_work: Arc<Queue>,
    #[pin]
    pub(super) endpoints: Registry<Arc<Endpoint>>,
    /// Held while a client is registered, which is to be done once.
    #[pin]
    pub(super) registering: Mutex<()>,
    #[pin]
    pub(super) clients: Registry<Client>,
    #[pin]
    pub(super) pinned: Registry<Arc<PinnedPages>>,
    /// Pages of peers, and as what modules have them: that goes before what it names.
    #[pin]
    pub(super) held: Registry<RemotePages>,
}

/// Where the functions find it.
pub(super) static DOOR: Published<Door> = Published::new();

impl Door {
    /// Nothing is held yet. May sleep.
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

    /// Hands an endpoint out.
    pub(super) fn keep(&self, endpoint: Arc<Endpoint>, owner: usize) -> Result<*mut scif_endpt> {
        let handle: *mut scif_endpt = handle_of(&endpoint);
        self.endpoints.add(handle.addr(), owner, endpoint)?;
        Ok(handle)
    }

    /// Whose an endpoint is: EBADF if it was not handed out.
    pub(super) fn owner_of(&self, endpoint: &Arc<Endpoint>) -> Result<usize> {
        let handle: *mut scif_endpt = handle_of(endpoint);
        self.endpoints.owner(handle.addr()).ok_or(EBADF)
    }
}

struct Entry<T> {
    /// The module, as an address; 0 for what is built in or nobody's.
    owner: usize,
    value: T,
}

/// What other modules hold, by the address or number that they know it by, and whose it is.
///
/// Lock: `table` is a leaf. What is taken out is dropped by who takes it, without the lock.
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
    /// Nothing yet.
    fn new() -> impl PinInit<Self> {
        let table = Table {
            entries: RBTree::new(),
            next_number: 1,
        };
        pin_init!(Self {
            table <- new_mutex!(table, "Registry::table"),
        })
    }

    /// Keeps something under a key that nothing else has. May sleep.
    pub(super) fn add(&self, key: usize, owner: usize, value: T) -> Result {
        let node = RBTreeNode::new(key, Entry { owner, value }, GFP_KERNEL)?;
        let _replaced = self.table.lock().entries.insert(node);
        Ok(())
    }

    /// Keeps something under a number of its own, which is not 0. May sleep.
    pub(super) fn number(&self, owner: usize, value: T) -> Result<usize> {
        let number = {
            let mut table = self.table.lock();
            table.next_number += 1;
            table.next_number
        };
        self.add(number, owner, value)?;
        Ok(number)
    }

    /// Takes it out.
    pub(super) fn take(&self, key: usize) -> Option<T> {
        let node = self.table.lock().entries.remove_node(&key);
        Some(node?.to_key_value().1.value)
    }

    /// Takes out all that belong to a module, and has each let go of without the lock. Returns how many
    /// there were.
    pub(super) fn clear_of(&self, owner: usize, mut let_go: impl FnMut(T)) -> usize {
        // Found and taken out under one hold of the lock: a key can be another module's right after.
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

    /// Whose it is, if it is there.
    pub(super) fn owner(&self, key: usize) -> Option<usize> {
        let table = self.table.lock();
        table.entries.get(&key).map(|entry| entry.owner)
    }
}

impl<T: Clone + Unpin> Registry<T> {
    /// What is kept under a key.
    pub(super) fn get(&self, key: usize) -> Option<T> {
        let table = self.table.lock();
        table.entries.get(&key).map(|entry| entry.value.clone())
    }
}
