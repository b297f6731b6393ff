// SPDX-License-Identifier: GPL-2.0

//! SCIF for Rust code **in the same kernel tree**: connections and messages, without `unsafe`.
//!
//! A crate that uses this is compiled against the metadata of this one, by the same compiler and with
//! the same configuration (see `Kbuild`). There is no stable interface between Rust modules: what is
//! built elsewhere uses `linux/scif.h`, which has the rest, too.
//!
//! # Examples
//!
//! ```ignore
//! use scif_main::client::{Endpoint, Handler, PortId, Service};
//!
//! struct Echo;
//!
//! impl Handler for Echo {
//!     fn serve(&self, connection: &Endpoint, _peer: PortId) {
//!         let mut byte = [0];
//!         while matches!(connection.receive(&mut byte), Ok(1)) {
//!             if connection.send(&byte).is_err() {
//!                 break;
//!             }
//!         }
//!     }
//! }
//!
//! // Until it is dropped.
//! let service = Service::new(c"echo", 3000, Arc::new(Echo, GFP_KERNEL)?)?;
//! ```

use super::door::DOOR;
pub use crate::arguments::PortId;
use crate::{
    endpoint,
    sync::list::{
        List,
        Listed, //
    },
    sys::{
        buffer::Buffer,
        kernel_calls::told,
        workqueue::Queue, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// More connections than this at once a [`Service`] closes.
const MAX_CONNECTIONS: usize = 64;
/// After an error that may pass.
const PAUSE: Delta = Delta::from_millis(100);

/// The id of this node: `ENODEV` before SCIF has been initialised.
pub fn own_node() -> Result<u16> {
    Ok(DOOR.get()?.scif.nodes.own_id())
}

/// An endpoint, closed when it is dropped.
///
/// It may be used by several threads at a time. All functions may sleep. Those that wait can be
/// interrupted (`EINTR`), and end when another thread closes the endpoint.
pub struct Endpoint {
    inner: Arc<endpoint::Endpoint>,
}

impl Endpoint {
    /// One that is neither bound nor connected.
    pub fn new() -> Result<Self> {
        let door = DOOR.get()?;
        Ok(Self {
            inner: endpoint::Endpoint::new(&door.scif)?,
        })
    }

    /// Takes a port, or any that is free for 0. Returns it. `EINVAL` if it is taken.
    pub fn bind(&self, port: u16) -> Result<u16> {
        self.inner.bind(port)
    }

    /// Lets others connect to the bound port; so many may wait to be accepted.
    pub fn listen(&self, backlog: u16) -> Result {
        self.inner.listen(backlog.into())
    }

    /// Connects, and waits until the other side has accepted. `ECONNREFUSED` if nobody listens there,
    /// `ENODEV` if there is no such node.
    pub fn connect(&self, to: PortId) -> Result {
        self.inner.connect(to, false).map_err(told)?;
        Ok(())
    }

    /// Waits for somebody to connect. Returns who it is, and the endpoint of the connection.
    pub fn accept(&self) -> Result<(PortId, Self)> {
        let (peer, inner) = self.inner.accept_endpoint(true).map_err(told)?;
        Ok((peer, Self { inner }))
    }

    /// Sends all bytes, unless the connection ends or a signal comes in between. Returns how many.
    /// `ECONNRESET` once the other end is closed.
    pub fn send(&self, bytes: &[u8]) -> Result<usize> {
        Buffer::with_bytes(bytes, |buffer| self.inner.send(buffer, true)).map_err(told)
    }

    /// Waits until all bytes have come, unless the connection ends or a signal comes in between.
    /// Returns how many. `ECONNRESET` once the other end is closed and all it sent is received.
    pub fn receive(&self, bytes: &mut [u8]) -> Result<usize> {
        Buffer::with_room(bytes, |buffer| self.inner.receive(buffer, true)).map_err(told)
    }

    /// Closes it before it is dropped: whoever waits in a call on it returns.
    pub fn close(&self) {
        self.inner.close();
    }
}

/// Who serves connections.
pub trait Handler: Send + Sync + 'static {
    /// Somebody has connected. The connection is closed when this returns, or before, when the
    /// [`Service`] ends: then this has to return soon. In a thread of its own.
    fn serve(&self, connection: &Endpoint, peer: PortId);
}

/// A port that is listened on, and its connections, at most 64 at once. When it is dropped, all of
/// them are closed and all handlers have returned, so a module can be unloaded then.
pub struct Service {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
}

struct Shared {
    listener: Endpoint,
    handler: Arc<dyn Handler>,
    /// Those that are being served.
    connections: Arc<List<endpoint::Endpoint>>,
    /// No more.
    closing: Atomic<bool>,
}

impl Shared {
    /// Lists a connection, which is to end with the service; an error if it may not be served.
    fn begin(&self, connection: &Endpoint) -> Result<Listed<endpoint::Endpoint>> {
        let others = self.connections.iter().count();
        let listed = self.connections.add(&connection.inner)?;
        // After it was listed: so who ends the service finds it, or has said so before.
        if others >= MAX_CONNECTIONS || self.closing.load(Relaxed) {
            return Err(EBUSY);
        }
        Ok(listed)
    }

    /// Accepts until the listener is closed, and has the handler serve each connection in the queue.
    fn accept_all(self: &Arc<Self>, queue: &Queue) {
        loop {
            let (peer, connection) = match self.listener.accept() {
                Ok(accepted) => accepted,
                // It is closed.
                Err(EINTR | EINVAL | EBADF) => return,
                Err(_) => {
                    fsleep(PAUSE);
                    continue;
                }
            };
            // One that is not served is closed by being dropped.
            let Ok(listed) = self.begin(&connection) else {
                continue;
            };
            let shared = self.clone();
            let _ = queue.spawn(move || {
                shared.handler.serve(&connection, peer);
                drop(listed);
            });
        }
    }
}

impl Service {
    /// Listens on a port, and has the handler serve whoever connects. `name` is for people.
    pub fn new(name: &CStr, port: u16, handler: Arc<dyn Handler>) -> Result<Self> {
        let listener = Endpoint::new()?;
        listener.bind(port)?;
        listener.listen(16)?;
        let shared = Shared {
            listener,
            handler,
            connections: List::new()?,
            closing: Atomic::new(false),
        };
        let shared = Arc::new(shared, GFP_KERNEL)?;
        let queue = Arc::new(Queue::background(name)?, GFP_KERNEL)?;
        let (accepting, beside) = (shared.clone(), queue.clone());
        queue.spawn(move || accepting.accept_all(&beside))?;
        Ok(Self { shared, queue })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.closing.store(true, Relaxed);
        self.shared.listener.close();
        for connection in self.shared.connections.iter() {
            connection.close();
        }
        // Who accepts, and then those that it has let in. They hold the queue, too, and have let go of
        // it after this.
        self.queue.flush();
        self.queue.flush();
    }
}
