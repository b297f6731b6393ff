// SPDX-License-Identifier: GPL-2.0

//! SCIF for Rust code **in the same kernel tree**: connections and messages, without `unsafe`.
//!
//! A crate that uses this module is compiled against the metadata of this crate, by the same
//! compiler and with the same configuration (see `Kbuild`). There is no stable interface between
//! Rust modules. Code that is built elsewhere uses `linux/scif.h`, which also has all other calls.
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

/// Largest number of connections of a [`Service`] at once. It closes further ones.
const MAX_CONNECTIONS: usize = 64;
/// Pause after an accept that has failed, but may succeed later.
const PAUSE: Delta = Delta::from_millis(100);

/// Returns the id of this node. `ENODEV`: SCIF has not been initialised.
pub fn own_node() -> Result<u16> {
    Ok(DOOR.get()?.scif.nodes.own_id())
}

/// An endpoint. The drop closes it.
///
/// Several threads may use an endpoint at a time. All functions may sleep. A function that waits
/// can be interrupted (`EINTR`), and returns when another thread closes the endpoint.
pub struct Endpoint {
    inner: Arc<endpoint::Endpoint>,
}

impl Endpoint {
    /// Creates an endpoint that is neither bound nor connected.
    pub fn new() -> Result<Self> {
        let door = DOOR.get()?;
        Ok(Self {
            inner: endpoint::Endpoint::new(&door.scif)?,
        })
    }

    /// Binds the endpoint to `port`, or to any free port if `port` is 0. Returns the port.
    /// `EINVAL`: the port is taken.
    pub fn bind(&self, port: u16) -> Result<u16> {
        self.inner.bind(port)
    }

    /// Starts to listen on the bound port. At most `backlog` requests wait to be accepted.
    pub fn listen(&self, backlog: u16) -> Result {
        self.inner.listen(backlog.into())
    }

    /// Connects, and waits until the other side has accepted. `ECONNREFUSED`: no endpoint listens
    /// on the port. `ENODEV`: there is no such node.
    pub fn connect(&self, to: PortId) -> Result {
        self.inner.connect(to, false).map_err(told)?;
        Ok(())
    }

    /// Waits for a connection. Returns the node and the port of the peer, and the endpoint of the
    /// connection.
    pub fn accept(&self) -> Result<(PortId, Self)> {
        let (peer, inner) = self.inner.accept_endpoint(true).map_err(told)?;
        Ok((peer, Self { inner }))
    }

    /// Sends all bytes, unless the connection ends or a signal interrupts it. Returns how many were
    /// sent. `ECONNRESET`: the other end is closed.
    pub fn send(&self, bytes: &[u8]) -> Result<usize> {
        Buffer::with_bytes(bytes, |buffer| self.inner.send(buffer, true)).map_err(told)
    }

    /// Receives all bytes, unless the connection ends or a signal interrupts it. Returns how many
    /// were received. `ECONNRESET`: the other end is closed, and all that it sent is received.
    pub fn receive(&self, bytes: &mut [u8]) -> Result<usize> {
        Buffer::with_room(bytes, |buffer| self.inner.receive(buffer, true)).map_err(told)
    }

    /// Closes the endpoint before it is dropped. Calls that wait on it return.
    pub fn close(&self) {
        self.inner.close();
    }
}

/// The part of a [`Service`] that serves connections.
pub trait Handler: Send + Sync + 'static {
    /// Serves a new connection, in a thread of its own. The connection is closed when this returns,
    /// or before that, when the [`Service`] is dropped. Then this function has to return soon.
    fn serve(&self, connection: &Endpoint, peer: PortId);
}

/// A listening port and its connections, at most 64 at once. After the drop all connections are
/// closed and all handlers have returned, so that a module can be unloaded.
pub struct Service {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
}

struct Shared {
    listener: Endpoint,
    handler: Arc<dyn Handler>,
    /// Connections that are being served.
    connections: Arc<List<endpoint::Endpoint>>,
    /// Whether the service ends and accepts no more connections.
    closing: Atomic<bool>,
}

impl Shared {
    /// Lists a connection, so that it ends with the service. EBUSY: the connection may not be
    /// served.
    fn begin(&self, connection: &Endpoint) -> Result<Listed<endpoint::Endpoint>> {
        let others = self.connections.iter().count();
        let listed = self.connections.add(&connection.inner)?;
        // Checks after it has listed the connection: a drop of the service finds the connection, or
        // has set `closing` before.
        if others >= MAX_CONNECTIONS || self.closing.load(Relaxed) {
            return Err(EBUSY);
        }
        Ok(listed)
    }

    /// Accepts until the listener is closed, and has the handler serve each connection in the
    /// queue.
    fn accept_all(self: &Arc<Self>, queue: &Queue) {
        loop {
            let (peer, connection) = match self.listener.accept() {
                Ok(accepted) => accepted,
                // The listener is closed.
                Err(EINTR | EINVAL | EBADF) => return,
                Err(_) => {
                    fsleep(PAUSE);
                    continue;
                }
            };
            // The drop closes a connection that is not served.
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
    /// Listens on a port, and has the handler serve each connection. `name` is the name of the work
    /// queue.
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
        // The first flush waits for the accepting task, the second for the handlers that it has
        // started. These tasks hold the queue, too, and have released it after this.
        self.queue.flush();
        self.queue.flush();
    }
}
