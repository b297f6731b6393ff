// SPDX-License-Identifier: GPL-2.0

//! Who is out there: this node, and the nodes it knows.
//!
//! There is one [`Nodes`] while the module is loaded. It knows the nodes that are online, this one
//! among them, hands out their peers, and remembers those that were lost. [`Arrivals`] makes a peer
//! of each node that a transport introduces.
//!
//! Lock: `table` is a leaf; nothing is called from under it that takes another lock of the module.

pub(crate) mod statuses;

use crate::{
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
use statuses::Statuses;

/// A node that is or was there, as it was when it came.
pub(crate) struct KnownNode {
    pub(crate) id: u16,
    pub(crate) link: CString,
    pub(crate) generation: u64,
    /// Another one each time that a node, any node, comes.
    pub(crate) session: u64,
    is_this: bool,
    /// Until all that hangs on it knows that it is lost: to who watches it is online as long.
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

    /// Whether it is another session of the same node.
    fn is_same_node(&self, other: &Self) -> bool {
        self.is_this == other.is_this && (self.is_this || self.id == other.id)
    }

    /// Its peer, while it is online.
    pub(crate) fn online(&self) -> Option<&Arc<Peer>> {
        self.peer.as_ref().filter(|peer| !peer.is_over())
    }

    /// How it is now, in a word for users.
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

/// Who wants to hear of nodes that come and go: who is online has changed, maybe more than once. When a
/// node has gone, all that was connected with it knows already. May sleep, but waits for nobody.
pub(crate) type Watcher = KBox<dyn Fn() + Send + Sync>;

/// Has the watcher told until it is dropped.
pub(crate) struct Watching(Arc<Nodes>);

impl Drop for Watching {
    fn drop(&mut self) {
        let _removed = self.0.watcher.lock().take();
    }
}

#[derive(Default)]
struct Table {
    /// This node first. One that is back stands behind what it was until that has been torn down.
    nodes: KVec<KnownNode>,
    /// How often one has come.
    sessions: u64,
}

/// All nodes that this one knows, itself among them.
#[pin_data]
pub(crate) struct Nodes {
    /// Random, new each time the module is loaded.
    pub(crate) generation: u64,
    own_id: Atomic<u32>,
    /// How nodes stand, which need not be there.
    pub(crate) statuses: Arc<Statuses>,
    #[pin]
    table: Mutex<Table>,
    /// Told with the lock held, so that one that goes is told no more.
    #[pin]
    watcher: Mutex<Option<Watcher>>,
}

const ID_UNSET: u32 = u32::MAX;

impl Nodes {
    /// Nobody is known yet. `own_id` is that of this node, if it was chosen. May sleep.
    pub(crate) fn new(own_id: Option<u16>) -> Result<Arc<Self>> {
        // Not zero, which stands for a boot id that is not known.
        let generation = random() | 1;
        let statuses = Statuses::new(own_id.unwrap_or(0), generation)?;
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

    /// The id of this node; 0 as long as neither a parameter nor a device has set another.
    pub(crate) fn own_id(&self) -> u16 {
        match self.own_id.load(Relaxed) {
            ID_UNSET => 0,
            id => id as u16,
        }
    }

    /// As [`Self::own_id`], which is `default` from now on unless it was chosen before.
    fn own_id_or(&self, default: u16) -> u16 {
        if let Err(id) = self.own_id.cmpxchg(ID_UNSET, u32::from(default), Relaxed) {
            return id as u16;
        }
        let mut table = self.table.lock();
        let Table { nodes, sessions } = &mut *table;
        for this in nodes.iter_mut().filter(|known| known.is_this) {
            this.id = default;
            // To watchers it is another one.
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

    /// A node that is online, as a peer: ENODEV if it is not.
    pub(crate) fn peer(&self, node: u16) -> Result<Arc<Peer>> {
        let is_this = node == self.own_id();
        let table = self.table.lock();
        let mut known = table
            .nodes
            .iter()
            .filter(|known| known.is_this == is_this && (is_this || known.id == node));
        known.find_map(KnownNode::online).cloned().ok_or(ENODEV)
    }

    /// Calls `f` with each node that is or was known, this one first. Under a lock: `f` must not sleep for
    /// long.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&KnownNode)) {
        let table = self.table.lock();
        for (index, known) in table.nodes.iter().enumerate() {
            let mut later = table.nodes.iter().skip(index + 1);
            if !later.any(|later| later.is_same_node(known)) {
                f(known);
            }
        }
    }

    /// The ids of the nodes that are online, this one first.
    pub(crate) fn online(&self) -> Result<KVec<u16>> {
        let mut ids = KVec::new();
        ids.push(self.own_id(), GFP_KERNEL)?;
        for known in &self.table.lock().nodes {
            if !known.is_this && known.online().is_some() {
                // Nobody pays: all processes need the lock.
                ids.push(known.id, GFP_KERNEL)?;
            }
        }
        Ok(ids)
    }

    /// The nodes that are online to those who watch, this one among them. One that is back is not
    /// until the one that it was has been torn down. May sleep.
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

    /// Tells the one watcher there is when nodes come and go, and of those that are there. May sleep.
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

    /// EEXIST if a node with its id is online already, over another link.
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
        // Of one that was torn down nothing is left but how it was: the last one behind each link, as a peer may say
        // another id each time.
        table.nodes.retain(|other| {
            other.peer.is_some() || !other.is_same_node(&known) && *other.link != *known.link
        });
        let others = table.nodes.iter().position(|other| !other.is_this);
        let place = others.filter(|_| is_this).unwrap_or(table.nodes.len());
        // Before it is found: a process that has connected must not see its node as lost.
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

/// Makes peers of the nodes that transports introduce, for [`Nodes`].
pub(crate) struct Arrivals {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) common: Common,
    pub(crate) services: KVec<Arc<dyn Service>>,
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

    fn online(&self, path: Arc<dyn Path>, who: Introduction<'_>) -> Result<Arc<dyn Session>> {
        let node = who.node.unwrap_or_else(|| self.nodes.own_id());
        let status = self.nodes.statuses.of_peer(who.node)?;
        let peer = Peer::new(&self.common, path, &who, node, status)?;
        let mut services = self.services.iter();
        let added = services
            .try_for_each(|service| {
                peer.attach(service.id(), service.as_arc_borrow().attach(&peer)?)
            })
            .and_then(|()| self.nodes.add(&peer, who.link, who.node.is_none()));
        if let Err(error) = added {
            // Tells the peer, which has begun its session, that this one is over.
            peer.tear_down();
            peer.unreachable();
            peer.detach_services();
            return Err(error);
        }
        self.nodes.tell_watcher();
        Ok(peer)
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
    fn a_lost_node_is_there_to_watchers_until_it_is_torn_down() -> Result {
        let (bed, nodes) = (Bed::new()?, Nodes::new(Some(OWN))?);
        let peer = bed.peer.clone();
        nodes.add(&peer, c"test", false)?;
        assert_eq!(*sessions(&nodes)?, [1]);
        peer.going();
        assert!(nodes.peer(peer.node()).is_err());
        // Whatever else changes at that moment.
        assert_eq!(*sessions(&nodes)?, [1]);
        nodes.torn_down(&peer);
        assert!(sessions(&nodes)?.is_empty());
        drop((peer, nodes));
        bed.end().map(|_| ())
    }

    #[test]
    fn a_node_that_is_back_waits_for_the_end_of_what_it_was() -> Result {
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
    fn a_peer_that_is_another_node_each_time_is_remembered_once() -> Result {
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
