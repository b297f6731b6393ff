// SPDX-License-Identifier: GPL-2.0

//! Rings of frames between this node and a peer, for the sister modules of this one.
//!
//! A frame is a number of bytes and a few words about them, which only the users of the rings
//! understand. The sender's CPU or engine stores a frame in buffers of the receiver, where the
//! receiver's user finds it.
//!
//! - `frames/link.rs`: how the rings with a peer are joined, and how that ends;
//!   `frames/rings.rs`: how large they are
//! - `frames/queue.rs`: a queue with a peer, which borrows itself for
//!   `frames/sending.rs` and `frames/receiving.rs`
//! - `frames/flight.rs`: frames that an engine copies
//! - `frames/buffers.rs`: the buffers that the peer fills; `frames/growth.rs`: how many there are
//! - `logic/frame_ring.rs`: the layout and the rules
//!
//! A [`Driver`] is a kind of user, such as network devices. It makes a [`Client`] for the peer of
//! each link. The client is told when the peer has the other end of the rings ([`Client::up`]), and
//! when it has them no more ([`Client::down`]). It outlives the sessions with its peer: it is removed
//! with the driver or the link, or when another node comes by the link.
//!
//! Locks: `FrameService::stations` is held while a client is made or removed.

mod buffers;
mod fifo;
mod flight;
mod growth;
mod link;
mod queue;
mod receiving;
mod rings;
mod sending;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;

pub use crate::sys::{
    payload::Payload,
    reached::Room,
    shared_memory::{
        CopyTarget,
        GivenPage, //
    },
};
pub use queue::Queue;
pub use receiving::{
    Received,
    Receiving,
    MOST_BYTES, //
};
pub use sending::{
    FrameEngine,
    Landed,
    Sending, //
};

use crate::{
    logic::{
        envelope::{
            Envelope,
            ServiceId, //
        },
        frame_messages::FrameMessage,
        frame_ring::{
            self,
            MOST_QUEUES, //
        },
    },
    peer::{
        control::{
            AnnexOf,
            Reservation, //
        },
        service::{
            Attachment,
            Service,
            Violation, //
        },
        Peer, //
    },
    sync::list::{
        List,
        Listed, //
    },
};
use kernel::{
    device::Device,
    new_mutex,
    prelude::*,
    str::CString,
    sync::{
        aref::ARef,
        Arc,
        ArcBorrow,
        Mutex, //
    },
};
use link::{
    no_rings,
    Link,
    State, //
};

/// Fewest and most buffers that a client can want of each queue: a power of two.
pub const FEWEST_SLOTS: u32 = frame_ring::FEWEST_SLOTS;
/// See [`FEWEST_SLOTS`].
pub const MOST_SLOTS: u32 = frame_ring::MOST_SLOTS;

/// A kind of user of frame rings.
pub trait Driver: Send + Sync {
    /// Makes the client for the peer of a link, or none, if it has no use for this peer.
    /// Context: may sleep.
    fn attach(&self, peer: &PeerInfo) -> Result<Option<Arc<dyn Client>>>;
}

/// A user of the frame rings with one peer.
///
/// The functions but [`Client::rung`] and [`Client::landed`] are called one at a time, and `down` after each `up`.
pub trait Client: Send + Sync {
    /// Takes the queues, which are joined with the peer's.
    /// Context: control work, may sleep, does not wait for the peer.
    fn up(&self, queues: &[Arc<Queue>]) -> Result;

    /// Drops the queues. When this returns, the client uses them no more.
    /// Context: control work, may sleep, does not wait for the peer.
    fn down(&self);

    /// Returns the number of buffers that the client wants to post to each queue, or `None` for the
    /// usual number. Both ends use the smaller number of what they want and can have.
    /// Context: control work or a work item, may sleep, does not wait for the peer.
    fn slots(&self) -> Option<u32>;

    /// Takes a word by which the peer's client asks something. It replaces the one before, and counts
    /// until [`Client::down`].
    /// Context: control work, may sleep, does not wait for the peer.
    fn asked(&self, word: u32);

    /// Removes the client, for good. It is down.
    /// Context: may sleep.
    fn remove(&self);

    /// Notes that the peer has rung: a queue may have frames, or room that was waited for.
    /// Context: any, hard interrupts included.
    fn rung(&self, queue: usize);

    /// Notes that an engine has copied a frame of a queue, or has failed to. The client then
    /// publishes.
    /// Context: any but hard interrupts.
    fn landed(&self, queue: usize);
}

/// Facts about a peer, for a driver.
pub struct PeerInfo {
    /// The peer's node id.
    pub node: u16,
    /// Whether the peer is this node itself.
    pub is_this: bool,
    /// Maximum number of queues.
    pub queues: u32,
    /// The device of the link. `None` if the peer is this node itself.
    pub device: Option<ARef<Device>>,
    /// Mb/s of data that the link carries, if its speed is known.
    pub megabits: Option<u32>,
}

/// The service of one driver.
#[pin_data]
pub(crate) struct FrameService {
    driver: Arc<dyn Driver>,
    /// All links, so that they can be ended with the driver.
    links: Arc<List<Link>>,
    /// Number of queues that this node offers at most.
    queues: u32,
    #[pin]
    stations: Mutex<KVec<Station>>,
}

/// The client for the node that came last by a link.
struct Station {
    link: CString,
    node: u16,
    /// Maximum number of queues, by which the client was made.
    queues: u32,
    client: Arc<dyn Client>,
}

/// A link in the list of links. The drop removes it from the list.
struct Attached {
    link: Arc<Link>,
    _listed: Listed<Link>,
}

impl Attachment for Attached {
    fn begin(&self) {
        let Link { peer, queues, .. } = &*self.link;
        let mut inner = self.link.inner.lock();
        if inner.client.is_some() {
            // The peer's offer is the next occasion.
            if let Err(error) = inner.offer(peer, *queues) {
                no_rings(peer, error);
            }
        }
    }

    fn message(&self, envelope: &Envelope, _annex: &AnnexOf<'_>) -> Result<(), Violation> {
        let link = &self.link;
        match FrameMessage::from_envelope(envelope)? {
            FrameMessage::Offer { offer } => {
                link.admit_join()?;
                link.offered(&offer)
            }
            FrameMessage::Withdraw {} => {
                link.admit_join()?;
                let reservation = Reservation::new(GFP_KERNEL);
                let reservation = reservation.map_err(|_| "there is no memory for a Withdrawn")?;
                let mut inner = link.inner.lock();
                let next = match inner.client {
                    Some(_) => State::Idle,
                    None => State::Ended(None),
                };
                // The peer has ended its use before.
                let rings = inner.leave(next);
                drop(inner);
                drop(rings);
                link.peer.send(reservation, &FrameMessage::Withdrawn {});
                Ok(())
            }
            FrameMessage::Withdrawn {} => {
                link.release();
                Ok(())
            }
            FrameMessage::Ask { word } => {
                let inner = link.inner.lock();
                if let (State::Joined(_), Some(client)) = (&inner.state, &inner.client) {
                    client.asked(word);
                }
                Ok(())
            }
        }
    }

    fn refused(&self) -> Result<(), Violation> {
        let mut inner = self.link.inner.lock();
        let rings = match inner.client {
            // The peer makes an offer when it has the service.
            Some(_) => inner.leave(State::Idle),
            None => None,
        };
        drop(inner);
        drop(rings);
        self.link.release();
        Ok(())
    }

    fn lost(&self) {
        let mut inner = self.link.inner.lock();
        let rings = inner.leave(State::Ended(None));
        inner.state = State::Ended(rings);
        drop(inner);
        self.link.release();
    }

    fn forget(&self) {
        self.link.forget();
    }
}

impl FrameService {
    /// Creates the service of network devices.
    /// Context: may sleep.
    pub(crate) fn new(driver: Arc<dyn Driver>, queues: u32) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                driver,
                links: List::new()?,
                queues,
                stations <- new_mutex!(KVec::new(), "FrameService::stations"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the client for the peer of a link, and the maximum number of its queues. `None` if
    /// the driver has no use for the peer.
    fn client_for(&self, peer: &Peer) -> Result<Option<(Arc<dyn Client>, u32)>> {
        let (link, node) = (&peer.link, peer.node());
        let mut stations = self.stations.lock();
        let known = stations.iter().find(|station| *station.link == **link);
        if let Some(known) = known.filter(|station| station.node == node) {
            return Ok(Some((known.client.clone(), known.queues)));
        }
        remove_of_link(&mut stations, link);
        let doorbells = peer.doorbells.count_for_data();
        let queues = self.queues.min(doorbells).clamp(1, MOST_QUEUES);
        let link = CString::try_from(&**link)?;
        stations.reserve(1, GFP_KERNEL)?;
        let bridge = peer.path().bridge();
        let made = self.driver.attach(&PeerInfo {
            node,
            is_this: peer.is_this,
            queues,
            megabits: bridge.as_ref().and_then(|bridge| bridge.megabits),
            device: bridge.map(|bridge| bridge.device),
        })?;
        let Some(client) = made else {
            return Ok(None);
        };
        let station = Station {
            link,
            node,
            queues,
            client: client.clone(),
        };
        let _ = stations.push_within_capacity(station);
        Ok(Some((client, queues)))
    }

    /// Ends all links, and removes all clients. The service is attached to no peer any more.
    /// Context: may sleep, waits for peers.
    pub(crate) fn end(&self) {
        // All peers at once, as one that is silent takes a while to be given up.
        self.links.iter().for_each(|link| link.begin_end());
        for link in self.links.iter() {
            link.end();
            link.peer.detach(ServiceId::NET);
        }
        for station in self.stations.lock().drain_all() {
            station.client.remove();
        }
    }
}

/// Removes the client of a link, if there is one.
fn remove_of_link(stations: &mut KVec<Station>, link: &CStr) {
    let place = stations.iter().position(|station| *station.link == *link);
    let removed = place.and_then(|place| stations.remove(place).ok());
    if let Some(station) = removed {
        station.client.remove();
    }
}

impl Service for FrameService {
    fn id(&self) -> ServiceId {
        ServiceId::NET
    }

    fn attach(self: ArcBorrow<'_, Self>, peer: &Arc<Peer>) -> Result<Arc<dyn Attachment>> {
        let (client, queues) = self.client_for(peer)?.unzip();
        let link = Link::new(peer, queues.unwrap_or(1), client)?;
        let attached = Attached {
            _listed: self.links.add(&link)?,
            link,
        };
        Ok(Arc::new(attached, GFP_KERNEL)?)
    }

    fn link_gone(&self, link: &CStr) {
        remove_of_link(&mut self.stations.lock(), link);
    }
}
