// SPDX-License-Identifier: GPL-2.0

//! The nodes that are online, including this one, as devices of the bus `/sys/bus/scif_peer`, and
//! the functions for clients that follow them.
//!
//! A work item updates the devices to match the nodes. Code that changes a node only starts this
//! work, and waits for no client. A node that is lost and comes back gets another device, even if
//! the work did not run in between.
//!
//! If there is no memory for a device, the log says so. The work tries again when another node
//! comes or goes.
//!
//! Devices are made and dropped with no lock held, because clients are told about them and may take
//! their time.

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

/// The bus with its devices. The drop removes both.
pub(super) struct PeerBus {
    // Dropped in this order: nothing can start the work any more, running work completes, and then
    // the devices go.
    _watching: Watching,
    /// Queue of the work, for callers that wait for the work.
    pub(super) queue: Arc<Queue>,
    _devices: Arc<Devices>,
}

impl PeerBus {
    /// Creates the devices, and has the work run when nodes change.
    /// Context: may sleep.
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
                // Fails only if the work is about to run anyway.
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
    /// Devices by the sessions of their nodes. Only the work changes this list.
    #[pin]
    list: Mutex<KVec<(u64, PeerDevice)>>,
    // Dropped after its devices.
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
            // The next change of a node runs the work again.
            Err(error) if this.log.admits(c"devices of nodes") => {
                pr_err!(
                    "updating the devices of nodes on the bus scif_peer has failed: {:?}; the next change of a node tries again\n",
                    error
                );
            }
            _ => (),
        }
    }
}

impl Devices {
    fn update(&self) -> Result {
        let online = self.scif.nodes.online_nodes()?;
        let mut list = core::mem::replace(&mut *self.list.lock(), KVec::new());
        // Drops the devices of lost nodes first, because a node that is back has the same name.
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

    /// Makes the device of a node, with attribute files that show its state.
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
        // After this, all nodes that are online have their devices.
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
            pr_warn!("scif_client_unregister(): ignoring a client that is not registered\n");
        }
    }
}
