// SPDX-License-Identifier: GPL-2.0

//! The rings that this node offers to a peer: how large they are, and the queues that are made of them.

use super::{
    buffers::Buffers,
    link::Link,
    queue::{
        self,
        Queue,
        User, //
    },
    Client, //
};
use crate::{
    logic::{
        frame_messages::{
            BlockOffer,
            FrameMessage, //
        },
        frame_ring::{
            Geometry,
            FEWEST_SLOTS,
            MOST_SLOTS, //
        },
    },
    peer::{
        doorbells::Subscription,
        Peer, //
    },
    sys::shared_memory::{
        Payer,
        SharedMemory, //
    },
    transport::path::Path,
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

/// The peer's block.
#[derive(Clone, Copy)]
pub(super) struct Remote {
    pub(super) address: u64,
    /// The common geometry, with the size of the peer's buffers.
    pub(super) geometry: Geometry,
}

/// Number of slots of a ring, and of its buffers, where the peer reaches all memory.
pub(super) const SLOTS: u32 = 256;

/// Bytes that the buffers for one peer take at most, unless the client wants another number of slots.
const MOST_MEMORY: u64 = 4 << 20;

/// Where the peer reaches little memory, buffers take at most one part in so many of the memory for
/// rings.
const PART: u64 = 4;

/// Returns how many queues to offer, and how many slots each has, if there may be `queues`, and the
/// client wants `slots`.
fn size_for(path: &dyn Path, queues: u32, slots: Option<u32>) -> (u32, u32) {
    let bytes = |queues: u32, slots: u32| u64::from(queues) * u64::from(slots) * PAGE_SIZE as u64;
    let room = path.limits().rings.map_or(u64::MAX, |bytes| bytes / PART);
    let usual = room.min(MOST_MEMORY);
    let (mut queues, mut size) = (queues, SLOTS);
    while bytes(queues, size) > usual && (queues > 1 || size > FEWEST_SLOTS) {
        // Few queues with many slots are worth less than the reverse, down to a frame or two.
        match size > 2 * FEWEST_SLOTS || queues == 1 {
            true => size /= 2,
            false => queues /= 2,
        }
    }
    // The client's wish changes the slots alone.
    let Some(slots) = slots else {
        return (queues, size);
    };
    size = slots.clamp(FEWEST_SLOTS, MOST_SLOTS).next_power_of_two();
    while bytes(queues, size) > room && size > FEWEST_SLOTS {
        size /= 2;
    }
    (queues, size)
}

/// Returns how many buffers each of `queues` queues may have while users hold many.
fn most_buffers(path: &dyn Path, queues: u32) -> usize {
    // Half of that part, so that there is room for the rings of SCIF beside grown queues.
    let each = |bytes: u64| bytes / PART / 2 / u64::from(queues) / PAGE_SIZE as u64;
    let most = path.limits().rings.map(each);
    most.map_or(usize::MAX, |most| most as usize)
}

/// The rings that this node has offered.
pub(super) struct Rings {
    // Dropped before the queues.
    pub(super) subscriptions: KVec<Subscription>,
    pub(super) queues: KVec<Arc<Queue>>,
    block: Arc<SharedMemory>,
    pub(super) offered: Geometry,
    /// The number of slots that the client wanted when they were offered.
    pub(super) wanted: Option<u32>,
}

impl Rings {
    /// Makes a block to offer.
    /// Context: may sleep.
    pub(super) fn new(peer: &Peer, queues: u32, slots: Option<u32>) -> Result<Self> {
        let buffer = u32::try_from(PAGE_SIZE)?;
        let (queues, slots) = size_for(peer.path(), queues, slots);
        let offered = Geometry::new(queues, slots, buffer).ok_or(EINVAL)?;
        let block = peer.path().share(offered.size(), Payer::None)?;
        Ok(Self {
            subscriptions: KVec::new(),
            queues: KVec::new(),
            block: Arc::new(block, GFP_KERNEL)?,
            offered,
            wanted: None,
        })
    }

    /// Returns the message that offers them.
    pub(super) fn offer(&self) -> FrameMessage {
        FrameMessage::Offer {
            offer: BlockOffer {
                address: self.block.bus_address(),
                queues: self.offered.queues(),
                slots: self.offered.slots(),
                buffer: self.offered.buffer(),
            },
        }
    }

    /// Makes the queues, once the peer's offer has come.
    /// Context: may sleep.
    pub(super) fn join(
        &mut self,
        link: &Arc<Link>,
        client: &Arc<dyn Client>,
        offer: &BlockOffer,
    ) -> Result {
        let peer = &link.peer;
        let queues = self.offered.queues().min(offer.queues);
        let slots = self.offered.slots().min(offer.slots);
        let common = |buffer| Geometry::new(queues, slots, buffer).ok_or(EINVAL);
        let own = common(self.offered.buffer())?;
        let remote = Remote {
            address: offer.address,
            geometry: common(offer.buffer)?,
        };
        let path = peer.path();
        path.reach(remote.address, remote.geometry.size() as u64)?;
        for number in 0..queues {
            let buffers = Buffers::new(path, slots, most_buffers(path, queues))?;
            let user = User {
                client: client.clone(),
                link: link.clone(),
            };
            let queue = Queue::new(peer, number, &self.block, (own, remote), buffers, user)?;
            self.queues.push(queue.clone(), GFP_KERNEL)?;
            let id = queue::channel(number);
            let subscription = Subscription::to_channel(&peer.doorbells, id, queue)?;
            self.subscriptions.push(subscription, GFP_KERNEL)?;
        }
        Ok(())
    }
}
