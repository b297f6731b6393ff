// SPDX-License-Identifier: GPL-2.0

//! The nodes: this node, and the remote nodes that it knows.
//!
//! There is one [`Nodes`] while the module is loaded. It knows the nodes that are online, this one
//! among them. It hands out their peers, and remembers nodes that were lost. [`Arrivals`] makes a
//! peer of each node that a transport introduces.
//!
//! Lock: `table` is a leaf. Nothing is called under it that takes another lock of the module.

pub(crate) mod statuses;

use crate::{
    logic::envelope::ServiceId,
    peer::{
        service::Service,
        Common,
        Observer,
        Peer, //
    },
    sys::random,
    transport::{
        path::Path,
        sink::{
            Introduction,
            Session,
            Sink, //
        },
    },
};
use kernel::{
    new_mutex,
    prelude::*,
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
use statuses::NodeStatuses;

/// A node that is or was online, with its properties when it came.
pub(crate) struct KnownNode {
    pub(crate) id: u16,
    pub(crate) link: CString,
    pub(crate) generation: u64,
    /// Number of the session: a new one each time that any node comes.
    pub(crate) session: u64,
    is_this: bool,
    /// The node's peer, until all users of the peer know that it is lost. Watchers see the node as
    /// online until then.
    pub(crate) peer: Option<Arc<Peer>>,
}

impl KnownNode {
    fn try_clone(&self) -> Result<Self> {
        Ok(Self {
            link: CString::try_from(&*self.link)?,
            peer: self.peer.clone(),
            ..*self
        })
    }

    /// Returns whether `other` is a session of the same node.
    fn is_same_node(&self, other: &Self) -> bool {
        self.is_this == other.is_this && (self.is_this || self.id == other.id)
    }

    /// Returns the node's peer, while the node is online.
    pub(crate) fn online(&self) -> Option<&Arc<Peer>> {
        self.peer.as_ref().filter(|peer| !peer.is_over())
    }

    /// Returns the state of the node, in a word for users.
    pub(crate) fn state(&self) -> &'static str {
        if self.is_this {
            "self"
        } else if self.online().is_some() {
            "online"
        } else {
            "lost"
        }
    }
}

/// A callback for a change of the nodes that are online. There may have been more than one change.
/// When a node has gone, all that was connected with it already knows.
/// Context: may sleep, waits for no other task.
pub(crate) type Watcher = KBox<dyn Fn() + Send + Sync>;

/// The registration of a watcher, until it is dropped.
pub(crate) struct Watching(Arc<Nodes>);

impl Drop for Watching {
    fn drop(&mut self) {
        let _removed = self.0.watcher.lock().take();
    }
}

#[derive(Default)]
struct Table {
    /// The known nodes, this one first. A node that is back stands behind its old session until
    /// that has been torn down.
    nodes: KVec<KnownNode>,
    /// Number of sessions so far.
    sessions: u64,
}

/// All nodes that this one knows, itself among them.
#[pin_data]
pub(crate) struct Nodes {
    /// A random number, new each time the module is loaded.
    pub(crate) generation: u64,
    own_id: Atomic<u32>,
    /// The statuses of nodes, which need not be online.
    pub(crate) statuses: Arc<NodeStatuses>,
    #[pin]
    table: Mutex<Table>,
    /// The watcher. It is called with the lock held, so that no call begins after it was removed.
    #[pin]
    watcher: Mutex<Option<Watcher>>,
}

const ID_UNSET: u32 = u32::MAX;

impl Nodes {
    /// Creates the table without a node. `own_id` is the id of this node, if it was chosen.
    /// Context: may sleep.
    pub(crate) fn new(own_id: Option<u16>) -> Result<Arc<Self>> {
        // Never 0, which stands for an unknown boot id.
        let generation = random() | 1;
        let statuses = NodeStatuses::new(own_id.unwrap_or(0), generation)?;
        Arc::pin_init(
            pin_init!(Self {
                generation,
                own_id: Atomic::new(own_id.map_or(ID_UNSET, u32::from)),
                statuses,
                table <- new_mutex!(Table::default(), "Nodes::table"),
                watcher <- new_mutex!(None, "Nodes::watcher"),
            }),
            GFP_KERNEL,
        )
    }

    // ----- this node ---------------------------------------------------------------------------

    /// Returns the id of this node, which is 0 until a parameter or a device sets another.
    pub(crate) fn own_id(&self) -> u16 {
        match self.own_id.load(Relaxed) {
            ID_UNSET => 0,
            id => id as u16,
        }
    }

    /// Returns the id of this node, which becomes `default` unless it was chosen before.
    fn own_id_or(&self, default: u16) -> u16 {
        if let Err(id) = self.own_id.cmpxchg(ID_UNSET, u32::from(default), Relaxed) {
            return id as u16;
        }
        let mut table = self.table.lock();
        let Table { nodes, sessions } = &mut *table;
        for this in nodes.iter_mut().filter(|known| known.is_this) {
            this.id = default;
            // Watchers see a new session.
            *sessions += 1;
            this.session = *sessions;
            if let Some(peer) = &this.peer {
                peer.set_node(default);
            }
        }
        drop(table);
        self.statuses.set_own_id(default);
        self.tell_watcher();
        default
    }

    // ----- nodes -------------------------------------------------------------------------------

    /// Returns the peer of a node that is online. ENODEV if the node is not.
    pub(crate) fn peer(&self, node: u16) -> Result<Arc<Peer>> {
        let is_this = node == self.own_id();
        let table = self.table.lock();
        let mut known = table
            .nodes
            .iter()
            .filter(|known| known.is_this == is_this && (is_this || known.id == node));
        known.find_map(KnownNode::online).cloned().ok_or(ENODEV)
    }

    /// Calls `f` with each node that is or was known, this one first. A lock is held, so `f` must
    /// not sleep for long.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&KnownNode)) {
        let table = self.table.lock();
        for (index, known) in table.nodes.iter().enumerate() {
            let mut later = table.nodes.iter().skip(index + 1);
            if !later.any(|later| later.is_same_node(known)) {
                f(known);
            }
        }
    }

    /// Returns the ids of the nodes that are online, this one first.
    pub(crate) fn online(&self) -> Result<KVec<u16>> {
        let mut ids = KVec::new();
        ids.push(self.own_id(), GFP_KERNEL)?;
        for known in &self.table.lock().nodes {
            if !known.is_this && known.online().is_some() {
                // Not charged to a process: the charge could wait under a lock that all processes
                // need.
                ids.push(known.id, GFP_KERNEL)?;
            }
        }
        Ok(ids)
    }

    /// Returns the nodes that watchers see as online, this one among them. A node that is back is
    /// not among them until its old session has been torn down.
    /// Context: may sleep.
    pub(crate) fn online_nodes(&self) -> Result<KVec<KnownNode>> {
        let table = self.table.lock();
        let mut nodes: KVec<KnownNode> = KVec::new();
        for node in table.nodes.iter().filter(|known| known.peer.is_some()) {
            if nodes.iter().all(|earlier| earlier.id != node.id) {
                nodes.push(node.try_clone()?, GFP_KERNEL)?;
            }
        }
        Ok(nodes)
    }

    /// Registers the only watcher, which is called for nodes that come and go, and once at the
    /// beginning.
    /// Context: may sleep.
    pub(crate) fn watch(self: &Arc<Self>, watcher: Watcher) -> Watching {
        *self.watcher.lock() = Some(watcher);
        self.tell_watcher();
        Watching(self.clone())
    }

    fn tell_watcher(&self) {
        if let Some(watcher) = &*self.watcher.lock() {
            watcher();
        }
    }

    /// Adds a node that has come. EEXIST if a node with its id is online already, over another
    /// link.
    fn add(&self, peer: &Arc<Peer>, link: &CStr, is_this: bool) -> Result {
        let mut known = KnownNode {
            id: peer.node(),
            link: CString::try_from(link)?,
            generation: peer.generation,
            session: 0,
            is_this,
            peer: Some(peer.clone()),
        };
        let mut table = self.table.lock();
        if is_this {
            // A device may have given this node its id meanwhile.
            peer.set_node(self.own_id());
            known.id = self.own_id();
        } else if known.id == self.own_id() {
            return Err(EEXIST);
        }
        let mut same = table
            .nodes
            .iter()
            .filter(|other| other.is_same_node(&known));
        if same.any(|other| other.online().is_some()) {
            return Err(EEXIST);
        }
        table.nodes.reserve(1, GFP_KERNEL)?;
        table.sessions += 1;
        known.session = table.sessions;
        // Drops old entries. Only the last torn-down session of each link is remembered, as a peer
        // may claim another id each time.
        table.nodes.retain(|other| {
            other.peer.is_some() || !other.is_same_node(&known) && *other.link != *known.link
        });
        let others = table.nodes.iter().position(|other| !other.is_this);
        let place = others.filter(|_| is_this).unwrap_or(table.nodes.len());
        // Marks the node as online before it can be found: a process that has connected must not
        // see its node as lost.
        if !is_this {
            peer.status.online(peer.generation);
        }
        let _ = table.nodes.insert_within_capacity(place, known);
        Ok(())
    }
}

impl Observer for Nodes {
    fn torn_down(&self, peer: &Peer) {
        let mut table = self.table.lock();
        let is_of_peer = |known: &&mut KnownNode| {
            let known = known.peer.as_ref();
            known.is_some_and(|known| core::ptr::eq::<Peer>(&**known, peer))
        };
        let found = table.nodes.iter_mut().find(is_of_peer);
        let gone = found.and_then(|known| known.peer.take());
        drop(table);
        drop(gone);
        self.tell_watcher();
    }
}

/// The maker of peers for the nodes that transports introduce, which [`Nodes`] then knows.
#[pin_data]
pub(crate) struct Arrivals {
    nodes: Arc<Nodes>,
    common: Common,
    /// The services of this node. Held while a peer comes, so that each service is attached to each
    /// peer once.
    #[pin]
    services: Mutex<KVec<Arc<dyn Service>>>,
}

impl Arrivals {
    /// Creates the maker of peers, for the `nodes`, without a service.
    /// Context: may sleep.
    pub(crate) fn new(nodes: &Arc<Nodes>, common: Common) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                nodes: nodes.clone(),
                common,
                services <- new_mutex!(KVec::new(), "Arrivals::services"),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds a service, and attaches it to all peers that are online. If it can't be attached to
    /// one, that peer has to do without it. EEXIST: there is a service with this id.
    /// Context: may sleep.
    pub(crate) fn add_service(&self, service: Arc<dyn Service>) -> Result {
        let mut services = self.services.lock();
        if services.iter().any(|other| other.id() == service.id()) {
            return Err(EEXIST);
        }
        // Nothing fails after the push: the caller's module goes if this fails.
        let nodes = self.nodes.online_nodes()?;
        services.push(service.clone(), GFP_KERNEL)?;
        for peer in nodes.iter().filter_map(KnownNode::online) {
            let attached = service.as_arc_borrow().attach(peer);
            let attached = attached.and_then(|attached| peer.attach(service.id(), attached));
            match attached {
                Ok(()) => peer.begin(service.id()),
                // It was lost meanwhile.
                Err(_) if peer.is_over() => (),
                Err(error) => {
                    let (id, node) = (service.id().0, peer.node());
                    pr_warn!("node {node}: without service {id}: {error:?}\n");
                }
            }
        }
        Ok(())
    }

    /// Removes a service: from now on it is attached to no peer.
    /// Context: may sleep.
    pub(crate) fn remove_service(&self, service: ServiceId) {
        let mut services = self.services.lock();
        if let Some(place) = services.iter().position(|other| other.id() == service) {
            let removed = services.remove(place);
            drop(services);
            drop(removed);
        }
    }
}

impl Sink for Arrivals {
    fn own_node(&self, default: u16) -> u16 {
        self.nodes.own_id_or(default)
    }

    fn generation(&self) -> u64 {
        self.nodes.generation
    }

    fn is_taken(&self, node: u16) -> bool {
        node == self.nodes.own_id() || self.nodes.peer(node).is_ok()
    }

    fn online(
        &self,
        path: Arc<dyn Path>,
        introduction: Introduction<'_>,
    ) -> Result<Arc<dyn Session>> {
        let node = introduction.node.unwrap_or_else(|| self.nodes.own_id());
        let status = self.nodes.statuses.of_peer(introduction.node)?;
        let peer = Peer::new(&self.common, path, &introduction, node, status)?;
        let services = self.services.lock();
        let added = services
            .iter()
            .try_for_each(|service| {
                peer.attach(service.id(), service.as_arc_borrow().attach(&peer)?)
            })
            .and_then(|()| {
                self.nodes
                    .add(&peer, introduction.link, introduction.node.is_none())
            });
        if let Err(error) = added {
            // Tells the peer, which has begun its session, that this session is over.
            peer.tear_down();
            peer.unreachable();
            peer.detach_services();
            return Err(error);
        }
        for service in services.iter() {
            peer.begin(service.id());
        }
        drop(services);
        self.nodes.tell_watcher();
        Ok(peer)
    }

    fn link_gone(&self, link: &CStr) {
        for service in self.services.lock().iter() {
            service.link_gone(link);
        }
    }
}

#[kunit_tests(scif_node)]
mod tests {
    use super::*;
    use crate::peer::tests::toy::Bed;

    const OWN: u16 = 1;

    fn sessions(nodes: &Nodes) -> Result<KVec<u64>> {
        let mut sessions = KVec::new();
        for node in nodes.online_nodes()? {
            sessions.push(node.session, GFP_KERNEL)?;
        }
        Ok(sessions)
    }

    #[test]
    fn lost_node_is_visible_to_watchers_until_torn_down() -> Result {
        let (bed, nodes) = (Bed::new()?, Nodes::new(Some(OWN))?);
        let peer = bed.peer.clone();
        nodes.add(&peer, c"test", false)?;
        assert_eq!(*sessions(&nodes)?, [1]);
        peer.going();
        assert!(nodes.peer(peer.node()).is_err());
        // Other changes at that moment do not matter.
        assert_eq!(*sessions(&nodes)?, [1]);
        nodes.torn_down(&peer);
        assert!(sessions(&nodes)?.is_empty());
        drop((peer, nodes));
        bed.end().map(|_| ())
    }

    #[test]
    fn returning_node_waits_for_teardown_of_its_old_session() -> Result {
        let (first, second) = (Bed::new()?, Bed::new()?);
        let nodes = Nodes::new(Some(OWN))?;
        nodes.add(&first.peer, c"test", false)?;
        assert!(nodes.add(&second.peer, c"test", false).is_err());
        first.peer.going();
        nodes.add(&second.peer, c"test", false)?;
        assert!(nodes.peer(second.peer.node()).is_ok());
        assert_eq!(*sessions(&nodes)?, [1]);
        nodes.torn_down(&first.peer);
        assert_eq!(*sessions(&nodes)?, [2]);
        drop(nodes);
        first.end()?;
        second.end().map(|_| ())
    }

    #[test]
    fn peer_with_changing_node_id_is_remembered_once() -> Result {
        let nodes = Nodes::new(Some(OWN))?;
        for id in [7, 8, 9] {
            let bed = Bed::new()?;
            bed.peer.set_node(id);
            nodes.add(&bed.peer, c"test", false)?;
            bed.peer.going();
            nodes.torn_down(&bed.peer);
            bed.end()?;
        }
        let mut known = 0;
        nodes.for_each(|node| {
            assert_eq!(node.id, 9);
            known += 1;
        });
        assert_eq!(known, 1);
        Ok(())
    }
}
