// SPDX-License-Identifier: GPL-2.0

//! What the functions of the interface find, and what other modules hold of it.

use super::registry::{
    new_registry,
    Registry, //
};
use crate::{
    endpoint::{
        pinned::PinnedPages,
        scif::Scif,
        Endpoint,
        RemotePages, //
    },
    node::Nodes,
    sys::{
        kernel_calls::{
            handle_of,
            scif_endpt,
            PageList, //
        },
        peer_bus::Client,
        published::{
            Global,
            Publication,
            Published, //
        },
        workqueue::Queue,
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// Pages of a peer that a module has, and as what it has them.
pub(super) struct HeldPages {
    // What the module knows goes before what it names.
    pub(super) _list: PageList,
    pub(super) _pages: RemotePages,
}

/// See the head of this file.
#[pin_data]
pub(super) struct Door {
    pub(super) scif: Arc<Scif>,
    pub(super) nodes: Arc<Nodes>,
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
    #[pin]
    pub(super) held: Registry<HeldPages>,
}

static DOOR: Published<Door> = Published::new();

impl Global for Door {
    fn place() -> &'static Published<Self> {
        &DOOR
    }
}

impl Door {
    /// Nothing is held yet. May sleep.
    pub(super) fn new(
        scif: &Arc<Scif>,
        nodes: &Arc<Nodes>,
        bus_work: Arc<Queue>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                scif: scif.clone(),
                nodes: nodes.clone(),
                bus_work,
                endpoints <- new_registry!("Door::endpoints"),
                registering <- new_mutex!((), "Door::registering"),
                clients <- new_registry!("Door::clients"),
                pinned <- new_registry!("Door::pinned"),
                held <- new_registry!("Door::held"),
            }),
            GFP_KERNEL,
        )
    }

    /// Has the functions find it.
    pub(super) fn publish(self: Arc<Self>) -> Publication<Self> {
        DOOR.publish(self)
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
