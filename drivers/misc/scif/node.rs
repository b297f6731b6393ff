// SPDX-License-Identifier: GPL-2.0

//! Who is out there: this node, the nodes it knows, and its ports.
//!
//! There is one [`Fabric`] while the module is loaded. It knows a session for each node that is
//! online (this node's is loopback), remembers nodes that were lost, and holds the port space with
//! its listeners.
//!
//! Locks: `ports` and `nodes` are leaves; nothing is called from under them that takes another lock
//! of the module, but for `Listener::queue`, which is taken under `ports`.

use crate::{
    endpoint::Pending,
    engine::Engine,
    listener::{
        Listener,
        Request, //
    },
    logic::{
        ports::PortTable,
        wire::{
            ConnectionId,
            Message,
            Refusal,
            RingAddress, //
        },
    },
    registration_cache,
    session::Session,
    sys::{
        random,
        workqueue::Queue, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::RBTree,
    str::CString,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

/// What the administrator chose when loading the module.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// The id of this node; by default that of the first NTB port.
    pub(crate) node_id: Option<u16>,
    /// Whether a peer may reach all memory although an IOMMU could prevent it.
    pub(crate) allow_flat: bool,
    /// How many pages a connection keeps for later transfers.
    pub(crate) kept_pages: usize,
    /// After how many milliseconds without a sign of life a peer counts as lost.
    pub(crate) heartbeat_timeout: u32,
}

/// A node other than this one.
pub(crate) struct KnownNode {
    pub(crate) id: u16,
    pub(crate) link: CString,
    pub(crate) generation: u64,
    /// While it is online.
    pub(crate) session: Option<Arc<Session>>,
}

struct Ports {
    table: KBox<PortTable>,
    listeners: RBTree<u16, Arc<Listener>>,
}

/// See the head of this file.
#[pin_data]
pub(crate) struct Fabric {
    pub(crate) settings: Settings,
    /// Random, new each time the module is loaded.
    pub(crate) generation: u64,
    /// Where control messages are handled.
    pub(crate) control_queue: Queue,
    /// Where links come up and sessions are torn down.
    pub(crate) link_queue: Queue,
    /// Where what finished transfers held is let go, and what waits behind them runs.
    pub(crate) completion_queue: Queue,
    /// Where watches of address spaces end, which a process can draw out.
    pub(crate) watch_queue: Queue,
    /// What the registration caches of all connections have done.
    pub(crate) registrations: registration_cache::Counters,
    own_id: Atomic<u32>,
    #[pin]
    ports: Mutex<Ports>,
    #[pin]
    nodes: Mutex<KVec<KnownNode>>,
    #[pin]
    loopback: Mutex<Option<Arc<Session>>>,
    #[pin]
    engine: Mutex<Option<Arc<Engine>>>,
    /// What was accepted and not yet taken over.
    #[pin]
    pub(crate) pending: Mutex<Pending>,
}

const ID_UNSET: u32 = u32::MAX;

/// A port of this node that belongs to an endpoint or a connection; free again when dropped.
pub(crate) struct BoundPort {
    fabric: Arc<Fabric>,
    pub(crate) number: u16,
}

impl Drop for BoundPort {
    fn drop(&mut self) {
        self.fabric.ports.lock().table.free(self.number);
    }
}

impl Fabric {
    pub(crate) fn new(settings: Settings) -> Result<Arc<Self>> {
        let table = crate::sys::zeroed::boxed::<PortTable>()?;
        let own_id = settings.node_id.map_or(ID_UNSET, u32::from);
        Arc::try_pin_init(
            try_pin_init!(Self {
                settings,
                generation: random::number(),
                control_queue: Queue::ordered(c"scif_control")?,
                link_queue: Queue::ordered(c"scif_link")?,
                completion_queue: Queue::unbound_highpri(c"scif_completion")?,
                watch_queue: Queue::background(c"scif_watch")?,
                registrations: registration_cache::Counters::new(),
                own_id: Atomic::new(own_id),
                ports <- new_mutex!(
                    Ports { table, listeners: RBTree::new() },
                    "Fabric::ports"
                ),
                nodes <- new_mutex!(KVec::new(), "Fabric::nodes"),
                loopback <- new_mutex!(None, "Fabric::loopback"),
                engine <- new_mutex!(None, "Fabric::engine"),
                pending <- new_mutex!(Pending::new(), "Fabric::pending"),
            }),
            GFP_KERNEL,
        )
    }

    // ----- this node ---------------------------------------------------------------------------

    /// The id of this node; 0 as long as neither a parameter nor a device has set another.
    pub(crate) fn own_id(&self) -> u16 {
        match self.own_id.load(Relaxed) {
            ID_UNSET => 0,
            id => id as u16,
        }
    }

    /// The id of this node, which is `default` unless it was chosen before.
    pub(crate) fn own_id_or(&self, default: u16) -> u16 {
        match self.own_id.cmpxchg(ID_UNSET, u32::from(default), Relaxed) {
            Ok(_) => default,
            Err(id) => id as u16,
        }
    }

    /// The engine of this node, if it has one by now. May sleep.
    pub(crate) fn engine(&self) -> Option<Arc<Engine>> {
        let mut engine = self.engine.lock();
        if engine.is_none() {
            *engine = Engine::request();
        }
        engine.clone()
    }

    /// As [`Self::engine`], without asking for one.
    pub(crate) fn existing_engine(&self) -> Option<Arc<Engine>> {
        self.engine.lock().clone()
    }

    /// Gives the engine back once nobody uses it.
    pub(crate) fn drop_engine(&self) {
        let engine = self.engine.lock().take();
        drop(engine);
    }

    // ----- nodes -------------------------------------------------------------------------------

    /// Makes this node its own peer.
    pub(crate) fn set_loopback(&self, session: Option<Arc<Session>>) {
        let old = core::mem::replace(&mut *self.loopback.lock(), session);
        drop(old);
    }

    /// This node as its own peer.
    pub(crate) fn loopback(&self) -> Option<Arc<Session>> {
        self.loopback.lock().clone()
    }

    /// The session with a node that is online: ENODEV if it is not.
    pub(crate) fn session_with(&self, node: u16) -> Result<Arc<Session>> {
        if node == self.own_id() {
            return self.loopback.lock().clone().ok_or(ENODEV);
        }
        self.nodes
            .lock()
            .iter()
            .find(|known| known.id == node)
            .and_then(|known| known.session.clone())
            .filter(|session| !session.is_over())
            .ok_or(ENODEV)
    }

    /// A node has come online. EEXIST if one with its id is online already, over another link.
    pub(crate) fn node_online(&self, link: &CStr, session: &Arc<Session>) -> Result {
        let peer = session.peer;
        let name = CString::try_from(link)?;
        let mut nodes = self.nodes.lock();
        if peer.node == self.own_id() {
            return Err(EEXIST);
        }
        if let Some(known) = nodes.iter_mut().find(|known| known.id == peer.node) {
            if known.session.is_some() {
                return Err(EEXIST);
            }
            known.link = name;
            known.generation = peer.generation;
            known.session = Some(session.clone());
            return Ok(());
        }
        nodes.push(
            KnownNode {
                id: peer.node,
                link: name,
                generation: peer.generation,
                session: Some(session.clone()),
            },
            GFP_KERNEL,
        )?;
        Ok(())
    }

    /// The node of this session is gone; it stays known as lost.
    pub(crate) fn node_lost(&self, session: &Arc<Session>) {
        let mut removed = None;
        for known in self.nodes.lock().iter_mut() {
            if known
                .session
                .as_ref()
                .is_some_and(|known| Arc::ptr_eq(known, session))
            {
                removed = known.session.take();
            }
        }
        drop(removed);
    }

    /// Calls `f` with each node that is or was known, under a lock: `f` must not sleep for long.
    pub(crate) fn for_each_node(&self, mut f: impl FnMut(&KnownNode)) {
        for known in self.nodes.lock().iter() {
            f(known);
        }
    }

    /// The sessions with the nodes that are online, but for this one.
    pub(crate) fn sessions(&self) -> Result<KVec<Arc<Session>>> {
        let mut sessions = KVec::new();
        for known in self.nodes.lock().iter() {
            if let Some(session) = &known.session {
                sessions.push(session.clone(), GFP_KERNEL)?;
            }
        }
        Ok(sessions)
    }

    /// The ids of the nodes that are online, this one first.
    pub(crate) fn online_nodes(&self) -> Result<KVec<u16>> {
        let mut ids = KVec::new();
        ids.push(self.own_id(), GFP_KERNEL)?;
        for known in self.nodes.lock().iter() {
            if known
                .session
                .as_ref()
                .is_some_and(|session| !session.is_over())
            {
                ids.push(known.id, GFP_KERNEL)?;
            }
        }
        Ok(ids)
    }

    /// Gives up what connections keep of the calling process' memory for later transfers. Returns
    /// whether there may have been any. May sleep.
    pub(crate) fn forget_registrations_of_caller(&self) -> bool {
        if self.registrations.pages.load(Relaxed) == 0 {
            return false;
        }
        let forget = |session: &Session| {
            session.for_each_connection(|connection| connection.registrations.forget_caller());
        };
        if let Some(session) = self.loopback() {
            forget(&session);
        }
        for session in self.sessions().iter().flatten() {
            forget(session);
        }
        self.release_what_ended();
        true
    }

    /// Waits until transfers that have ended have let go of what they used. May sleep.
    pub(crate) fn release_what_ended(&self) {
        self.completion_queue.flush();
    }

    // ----- ports -------------------------------------------------------------------------------

    /// Takes a port: `number`, or any that is free for 0. EINVAL if it is taken, ENOSPC if none is
    /// left.
    pub(crate) fn bind(self: &Arc<Self>, number: u16) -> Result<Arc<BoundPort>> {
        let mut ports = self.ports.lock();
        let number = if number == 0 {
            ports.table.allocate_any().ok_or(ENOSPC)?
        } else {
            ports.table.allocate(number).map_err(|_| EINVAL)?;
            number
        };
        drop(ports);
        // From here on dropping the port frees it, but it has to exist for that.
        let port = BoundPort {
            fabric: self.clone(),
            number,
        };
        Ok(Arc::new(port, GFP_KERNEL)?)
    }

    /// Lets requests for the listener's port come in.
    pub(crate) fn add_listener(&self, listener: &Arc<Listener>) -> Result {
        let replaced = self.ports.lock().listeners.try_create_and_insert(
            listener.port.number,
            listener.clone(),
            GFP_KERNEL,
        )?;
        drop(replaced);
        Ok(())
    }

    /// Lets no more requests come in. Returns after the last one has been queued.
    pub(crate) fn remove_listener(&self, listener: &Listener) {
        let removed = self.ports.lock().listeners.remove(&listener.port.number);
        drop(removed);
    }

    /// A peer asks for a connection: queues the request, or refuses it.
    pub(crate) fn connection_requested(
        &self,
        session: &Arc<Session>,
        source: ConnectionId,
        source_port: u16,
        port: u16,
        ring: RingAddress,
    ) -> Result {
        let request = Request {
            session: session.clone(),
            source,
            source_port,
            ring,
        };
        let queued = {
            let ports = self.ports.lock();
            match ports.listeners.get(&port) {
                Some(listener) => listener.push(request),
                None => Err((Refusal::NoListener, request)),
            }
        };
        match queued {
            Ok(()) => Ok(()),
            Err((reason, _request)) => session.post(&Message::Refuse {
                target: source,
                reason,
            }),
        }
    }

    /// A connector has given up: forgets its request, if it is still queued, and says so.
    pub(crate) fn connection_cancelled(
        &self,
        session: &Arc<Session>,
        source: ConnectionId,
    ) -> Result {
        let mut found = None;
        for listener in self.ports.lock().listeners.values() {
            found = listener.take_if(|request| {
                request.source == source && Arc::ptr_eq(&request.session, session)
            });
            if found.is_some() {
                break;
            }
        }
        match found {
            Some(_request) => session.post(&Message::Refuse {
                target: source,
                reason: Refusal::ListenerClosed,
            }),
            None => Ok(()),
        }
    }

    /// Drops the queued requests of a session that is over.
    pub(crate) fn forget_requests(&self, session: &Session) {
        loop {
            let mut found = None;
            for listener in self.ports.lock().listeners.values() {
                found = listener
                    .take_if(|request| core::ptr::eq::<Session>(&*request.session, session));
                if found.is_some() {
                    break;
                }
            }
            if found.is_none() {
                return;
            }
        }
    }
}
