// SPDX-License-Identifier: GPL-2.0

//! The nodes that are online, this one among them, as devices of a bus:
//! `/sys/bus/scif_peer`, and the functions for who wants to hear of nodes that come and go.
//!
//! A work item makes the devices be what the nodes are: whoever has changed something only starts it,
//! and waits for no client. A node that is lost and comes back is another device, even if nobody has
//! looked in between.
//!
//! Where there is no memory for a device the log says so, and it is tried again when another node comes or goes.
//!
//! Devices are made and dropped with no lock held: clients are told of it, and may take their time.

use super::door::DOOR;
use crate::{
    endpoint::scif::Scif,
    node::{
        KnownNode,
        Watching, //
    },
    sync::log_budget::LogBudget,
    sys::{
        kernel_calls::{
            exported,
            scif_client,
            Address, //
        },
        peer_bus::{
            Bus,
            NewClient,
            PeerDevice, //
        },
        workqueue::Queue, //
    },
};
use kernel::{
    bindings, ffi, fmt, impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// The bus with its devices; it goes when this is dropped.
pub(super) struct PeerBus {
    // Dropped in this order: nobody starts the work, what runs of it ends, and then the devices go.
    _watching: Watching,
    /// Of the work, for who waits for it.
    pub(super) queue: Arc<Queue>,
    _devices: Arc<Devices>,
}

impl PeerBus {
    /// May sleep.
    pub(super) fn new(bus: Bus, scif: &Arc<Scif>) -> Result<Self> {
        let queue = Arc::new(Queue::ordered(c"scif_peer_bus")?, GFP_KERNEL)?;
        let devices = Arc::pin_init(
            pin_init!(Devices {
                list <- new_mutex!(KVec::new(), "Devices::list"),
                bus,
                scif: scif.clone(),
                log: LogBudget::new(),
                work <- new_work!("Devices::work"),
            }),
            GFP_KERNEL,
        )?;
        let start = {
            let (devices, queue) = (devices.clone(), queue.clone());
            move || {
                // An error says that it is about to run anyway.
                let _ = queue.enqueue(devices.clone());
            }
        };
        Ok(Self {
            _watching: scif.nodes.watch(KBox::new(start, GFP_KERNEL)?),
            queue,
            _devices: devices,
        })
    }
}

#[pin_data]
struct Devices {
    /// By sessions of nodes. Changed by the work only.
    #[pin]
    list: Mutex<KVec<(u64, PeerDevice)>>,
    // After its devices.
    bus: Bus,
    scif: Arc<Scif>,
    log: LogBudget,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Devices { self.work }
}

impl WorkItem for Devices {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        match this.update() {
            // Peers that come and go have it run.
            Err(error) if this.log.admits(c"devices of nodes") => {
                pr_err!("no device for a node: {:?}\n", error);
            }
            _ => (),
        }
    }
}

impl Devices {
    fn update(&self) -> Result {
        let online = self.scif.nodes.online_nodes()?;
        let mut list = core::mem::replace(&mut *self.list.lock(), KVec::new());
        // Those that are gone go first: one that is back has the same name.
        list.retain(|(session, _)| online.iter().any(|node| node.session == *session));
        let mut result = Ok(());
        for node in online {
            let session = node.session;
            if list.iter().any(|(known, _)| *known == session) {
                continue;
            }
            let added = self
                .device_of(node)
                .and_then(|device| Ok(list.push((session, device), GFP_KERNEL)?));
            result = result.and(added);
        }
        *self.list.lock() = list;
        result
    }

    /// Makes the device of a node, whose files say how that is.
    fn device_of(&self, node: KnownNode) -> Result<PeerDevice> {
        let (id, scif) = (node.id, self.scif.clone());
        let show = move |attribute: &CStr, f: &mut fmt::Formatter<'_>| match attribute.to_bytes() {
            b"node" => write!(f, "{}", node.id),
            b"generation" => write!(f, "{:016x}", node.generation),
            b"state" => f.write_str(node.state()),
            b"aperture" => {
                let mode = node.peer.as_ref().map(|peer| peer.mode());
                f.write_str(mode.unwrap_or("-"))
            }
            b"link" => f.write_str(node.link.to_str().unwrap_or("?")),
            b"connections" => write!(f, "{}", scif.counts(Some(node.id)).connections),
            b"windows" => write!(f, "{}", scif.counts(Some(node.id)).exported_windows),
            _ => Err(fmt::Error),
        };
        PeerDevice::new(&self.bus, id, KBox::new(show, GFP_KERNEL)?)
    }
}

// ----- clients -------------------------------------------------------------------------------------

exported! {
    fn __scif_client_register(
        client: NewClient[client: *mut scif_client],
        owner: Address[owner: *mut bindings::module],
    ) -> ffi::c_int as Result {
        let door = DOOR.get()?;
        // Nodes that are there have their devices after this.
        door.bus_work.flush();
        let address = client.address();
        let _registering = door.registering.lock();
        if door.clients.owner(address).is_some() {
            return Err(EEXIST);
        }
        door.clients.add(address, owner, client.register()?)
    }

    fn scif_client_unregister(
        client: Address[client: *mut scif_client],
    ) -> () as () {
        let taken = DOOR.get().ok().and_then(|door| door.clients.take(client));
        if taken.is_none() {
            pr_warn!("a client is unregistered that is not registered\n");
        }
    }
}
