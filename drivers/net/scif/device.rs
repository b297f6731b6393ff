// SPDX-License-Identifier: GPL-2.0

//! The network device of one peer.
//!
//! A device has *ports* (`port.rs`), through which its frames go. The device outlives the sessions
//! with its peer. Its carrier is on while the peer has the other end of the rings.

use crate::{
    port::Port,
    sys::{
        bottom_halves_disabled,
        Counts,
        Direction,
        Napi,
        NetDev,
        Outgoing,
        Owner,
        PacketOut, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SetOnce, //
    }, //
};
use scif_main::{
    client::own_node,
    sister::{
        Client,
        PeerInfo,
        Queue, //
    },
};

/// The ports of a device, and the device.
#[pin_data]
pub(crate) struct Ports {
    // Dropped before the device.
    ports: KVec<Pin<KBox<Port>>>,
    device: SetOnce<NetDev>,
    /// The wishes. Held while the peer is told, so that it is told in order, and while ports lose
    /// their queues, so that no caller uses one afterwards.
    #[pin]
    wishes: Mutex<Wishes>,
}

/// The administrator's wishes.
struct Wishes {
    /// This node's requests to the peer, as flags of `sys/helpers.h`.
    to_peer: u32,
    /// Buffers of each queue, or 0 for the usual number.
    slots: u32,
}

impl Ports {
    /// Creates and registers the device of a peer.
    /// Context: may sleep.
    pub(crate) fn register(peer: &PeerInfo) -> Result<Arc<Self>> {
        let mut ports = KVec::new();
        for _ in 0..peer.queues {
            ports.push(KBox::pin_init(Port::new(), GFP_KERNEL)?, GFP_KERNEL)?;
        }
        let this = Arc::pin_init(
            pin_init!(Self {
                ports,
                device: SetOnce::new(),
                wishes <- new_mutex!(
                    Wishes { to_peer: 0, slots: 0 },
                    "scif_net::Ports::wishes"
                ),
            }),
            GFP_KERNEL,
        )?;
        // The ports drop the device after the contexts.
        this.device.populate(NetDev::new(&this, own_node()?, peer)?);
        if let Some(device) = this.device.as_ref() {
            for (number, port) in (0..).zip(&this.ports) {
                port.napi.populate(Napi::new(device, number)?);
            }
            device.register()?;
        }
        Ok(this)
    }

    /// Returns a port.
    fn port(&self, number: u32) -> Option<&Port> {
        self.ports.get(number as usize).map(|port| &**port)
    }

    /// Returns a queue with the peer, while the rings are joined. The caller holds `wishes`, and drops
    /// the queue before.
    fn queue(&self) -> Option<Arc<Queue>> {
        self.ports.first()?.queue()
    }

    /// Returns the device, which is there as soon as there are frames.
    fn device(&self) -> Option<&NetDev> {
        self.device.as_ref()
    }
}

impl Owner for Ports {
    fn send(&self, queue: u32, frame: Outgoing) -> Option<Outgoing> {
        self.port(queue)?.send(self.device()?, queue, frame)
    }

    fn poll(&self, queue: u32, budget: usize) -> usize {
        match (self.port(queue), self.device()) {
            (Some(port), Some(device)) => port.poll(device, queue, budget),
            _ => 0,
        }
    }

    fn send_packets(&self, queue: u32, frames: &[PacketOut]) -> usize {
        self.port(queue).map_or(0, |port| port.send_packets(frames))
    }

    fn counts(&self, queue: u32, direction: Direction) -> Option<&Counts> {
        self.port(queue).map(|port| match direction {
            Direction::Sent => &port.sent,
            Direction::Received => &port.received,
        })
    }

    fn ask(&self, wishes: u32) -> Result {
        let mut present = self.wishes.lock();
        present.to_peer = wishes;
        self.queue().map_or(Ok(()), |queue| queue.ask(wishes))
    }

    fn resize(&self, slots: u32) -> Result {
        // The size counts from the next time on that the rings are joined, and they are joined anew.
        let mut wishes = self.wishes.lock();
        if wishes.slots == slots {
            return Ok(());
        }
        let before = core::mem::replace(&mut wishes.slots, slots);
        match self.queue().map(|queue| queue.rejoin()) {
            // Rings that are being joined are joined once more afterwards.
            None | Some(Ok(()) | Err(ENODEV)) => Ok(()),
            Some(Err(error)) => {
                wishes.slots = before;
                Err(error)
            }
        }
    }
}

impl Client for Ports {
    fn up(&self, queues: &[Arc<Queue>]) -> Result {
        for (port, queue) in self.ports.iter().zip(queues) {
            port.attach(Some(queue));
            if let Some(napi) = port.napi.as_ref() {
                napi.enable();
                // The first poll posts the buffers.
                bottom_halves_disabled(|| napi.schedule());
            }
        }
        let asked = {
            let wishes = self.wishes.lock();
            match (wishes.to_peer, queues.first()) {
                (0, _) | (_, None) => Ok(()),
                (to_peer, Some(queue)) => queue.ask(to_peer),
            }
        };
        // Not under `wishes`, as RTNL is taken.
        asked.inspect_err(|_| Client::down(self))?;
        let slots = queues.first().map_or(0, |queue| queue.slots());
        match self.device() {
            Some(device) => device
                .up(queues.len(), slots)
                .inspect_err(|_| Client::down(self)),
            None => Ok(()),
        }
    }

    fn down(&self) {
        if let Some(device) = self.device() {
            device.down();
        }
        for port in &self.ports {
            if let Some(napi) = port.napi.as_ref() {
                napi.disable();
            }
        }
        let wishes = self.wishes.lock();
        for port in &self.ports {
            port.attach(None);
        }
        drop(wishes);
        if let Some(device) = self.device() {
            device.none_aloft();
        }
    }

    fn slots(&self) -> Option<u32> {
        Some(self.wishes.lock().slots).filter(|slots| *slots != 0)
    }

    fn asked(&self, word: u32) {
        if let Some(device) = self.device() {
            device.asked(word);
        }
    }

    fn remove(&self) {
        if let Some(device) = self.device() {
            device.unregister();
        }
    }

    fn rung(&self, queue: usize) {
        if let Some(napi) = self.ports.get(queue).and_then(|port| port.napi.as_ref()) {
            napi.rung();
        }
    }

    fn landed(&self, queue: usize) {
        if let Some(napi) = self.ports.get(queue).and_then(|port| port.napi.as_ref()) {
            napi.schedule();
        }
    }
}
