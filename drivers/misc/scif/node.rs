// SPDX-License-Identifier: GPL-2.0

//! Who is out there: this node, and the nodes it knows.
//!
//! There is one [`Nodes`] while the module is loaded. It knows the nodes that are online, this one
//! among them, hands out their peers, and remembers those that were lost. [`Arrivals`] makes a peer
//! of each node that a transport introduces.
//!
//! Lock: `table` is a leaf; nothing is called from under it that takes another lock of the module.

use crate::{
    peer::{
        control,
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

/// A node that is or was there.
pub(crate) struct KnownNode {
    pub(crate) id: u16,
    pub(crate) link: CString,
    pub(crate) generation: u64,
    /// While it is online.
    pub(crate) peer: Option<Arc<Peer>>,
}

struct Table {
    /// This node as its own peer.
    this: Option<KnownNode>,
    others: KVec<KnownNode>,
}

/// See the head of this file.
#[pin_data]
pub(crate) struct Nodes {
    /// Random, new each time the module is loaded.
    pub(crate) generation: u64,
    own_id: Atomic<u32>,
    #[pin]
    table: Mutex<Table>,
}

const ID_UNSET: u32 = u32::MAX;

impl Nodes {
    /// Nobody is known yet. `own_id` is that of this node, if it was chosen. May sleep.
    pub(crate) fn new(own_id: Option<u16>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                generation: random::number(),
                own_id: Atomic::new(own_id.map_or(ID_UNSET, u32::from)),
                table <- new_mutex!(
                    Table {
                        this: None,
                        others: KVec::new(),
                    },
                    "Nodes::table"
                ),
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
        if let Some(this) = &mut self.table.lock().this {
            this.id = default;
            if let Some(peer) = &this.peer {
                peer.set_node(default);
            }
        }
        default
    }

    // ----- nodes -------------------------------------------------------------------------------

    /// A node that is online, as a peer: ENODEV if it is not.
    pub(crate) fn peer(&self, node: u16) -> Result<Arc<Peer>> {
        let table = self.table.lock();
        let known = match node == self.own_id() {
            true => table.this.as_ref(),
            false => table.others.iter().find(|known| known.id == node),
        };
        let peer = known.and_then(|known| known.peer.as_ref());
        peer.filter(|peer| !peer.is_over()).cloned().ok_or(ENODEV)
    }

    /// Calls `f` with each node that is or was known, this one first, and says which that is. Under a
    /// lock: `f` must not sleep for long.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&KnownNode, bool)) {
        let table = self.table.lock();
        if let Some(this) = &table.this {
            f(this, true);
        }
        for known in table.others.iter() {
            f(known, false);
        }
    }

    /// The ids of the nodes that are online, this one first.
    pub(crate) fn online(&self) -> Result<KVec<u16>> {
        let mut ids = KVec::new();
        ids.push(self.own_id(), GFP_KERNEL)?;
        for known in self.table.lock().others.iter() {
            if known.peer.as_ref().is_some_and(|peer| !peer.is_over()) {
                // Nobody pays: all processes need the lock.
                ids.push(known.id, GFP_KERNEL)?;
            }
        }
        Ok(ids)
    }

    /// EEXIST if a node with its id is online already, over another link.
    fn add(&self, peer: &Arc<Peer>, link: &CStr, is_this: bool) -> Result {
        let name = CString::try_from(link)?;
        let mut table = self.table.lock();
        if is_this {
            // A device may have given this node its id meanwhile.
            peer.set_node(self.own_id());
        }
        let known = KnownNode {
            id: peer.node(),
            link: name,
            generation: peer.generation,
            peer: Some(peer.clone()),
        };
        if is_this {
            table.this = Some(known);
            return Ok(());
        }
        if known.id == self.own_id() {
            return Err(EEXIST);
        }
        match table.others.iter_mut().find(|other| other.id == known.id) {
            Some(other) if other.peer.is_some() => return Err(EEXIST),
            Some(other) => *other = known,
            None => table.others.push(known, GFP_KERNEL)?,
        }
        Ok(())
    }

    fn remove(&self, peer: &Peer) {
        let is_it = |other: &mut Arc<Peer>| core::ptr::eq::<Peer>(&**other, peer);
        let mut table = self.table.lock();
        let Table { this, others } = &mut *table;
        let mut removed = None;
        for known in Iterator::chain(this.iter_mut(), others.iter_mut()) {
            removed = removed.or(known.peer.take_if(is_it));
        }
        drop(table);
        drop(removed);
    }
}

impl Observer for Nodes {
    fn lost(&self, peer: &Peer) {
        self.remove(peer);
    }
}

/// Makes peers of the nodes that transports introduce, for [`Nodes`].
pub(crate) struct Arrivals {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) common: Common,
    pub(crate) services: KVec<Arc<dyn Service>>,
}

impl Arrivals {
    fn attach_services(&self, peer: &Arc<Peer>) -> Result {
        for service in &self.services {
            peer.attach(service.id(), service.attach(peer)?)?;
        }
        Ok(())
    }
}

impl Sink for Arrivals {
    fn own_node(&self, default: u16) -> u16 {
        self.nodes.own_id_or(default)
    }

    fn generation(&self) -> u64 {
        self.nodes.generation
    }

    fn control_block_len(&self) -> usize {
        control::BLOCK_SIZE
    }

    fn online(&self, path: Arc<dyn Path>, who: Introduction<'_>) -> Result<Arc<dyn Session>> {
        let node = who.node.unwrap_or_else(|| self.nodes.own_id());
        let peer = Peer::new(&self.common, path, &who, node)?;
        let added = self
            .attach_services(&peer)
            .and_then(|()| self.nodes.add(&peer, who.link, who.node.is_none()));
        if let Err(error) = added {
            // Tells the peer, which has begun its session, that this one is over.
            peer.tear_down();
            peer.unreachable();
            peer.detach_services();
            return Err(error);
        }
        Ok(peer)
    }
}
