// SPDX-License-Identifier: GPL-2.0

//! The serving side of measurements that need one: it takes messages, sends them back, and takes
//! connections.
//!
//! It works over anything that carries bytes, so over TCP as well. [`crate::server::shares`] limits
//! what the clients of a node can make the server hold. Measured messages are awaited in calls that
//! only the client ends, by a message or by its end. The server counts the threads in such a call
//! ([`Sleepers`]), and does not wait for them when it ends. Such threads hold nothing that must be
//! put in order.

use crate::error::Error;
use crate::error::Result;
use crate::over_ring::OverRing;
use crate::protocol::Message;
use crate::protocol::Raw;
use crate::server::shares::Origin;
use crate::server::shares::ResourceKind;
use crate::server::shares::Share;
use crate::server::shares::Shares;
use crate::session::Session;
use crate::session::TIMEOUT;
use crate::transport::Bytes;
use crate::transport::Listener;
use crate::transport::Wait;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// Number of threads that wait for nothing but a client.
#[derive(Debug, Default)]
pub struct Sleepers(AtomicUsize);

impl Sleepers {
    /// Returns the present number.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn during<R>(&self, work: impl FnOnce() -> R) -> R {
        self.0.fetch_add(1, Ordering::Relaxed);
        let result = work();
        self.0.fetch_sub(1, Ordering::Relaxed);
        result
    }
}

/// A client that measures, whose resources are counted.
#[derive(Clone, Copy, Debug)]
pub struct Guest<'a> {
    /// The origin of the client.
    pub origin: Origin,
    /// The resources of all clients.
    pub shares: &'a Shares,
    /// The threads that wait for their client.
    pub sleepers: &'a Sleepers,
}

impl<'a> Guest<'a> {
    /// Takes this amount for the client, or refuses.
    pub fn take(&self, kind: ResourceKind, amount: u64) -> Result<Share<'a>> {
        self.shares.take(self.origin, kind, amount)
    }
}

/// Answers a client that only measures, without files, until the client goes.
pub fn serve<T: Bytes>(session: &Session<T>, guest: &Guest<'_>) -> Result<()> {
    session.answer_greeting()?;
    loop {
        session.set_activity("its pause");
        match session.receive() {
            Ok(message) => answer(session, message, guest)?,
            Err(Error::Lost { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Answers a client that measures over a ring, until it goes.
pub(super) fn serve_over_ring<T: Bytes>(session: &Session<T>, guest: &Guest<'_>) -> Result<()> {
    let Some(connection) = session.transport().scif() else {
        return Err(session.unexpected(&Message::Ring));
    };
    session.send(&Message::Go)?;
    // The client may keep this thread waiting.
    let ring = (guest.sleepers.during(|| OverRing::new(connection)))
        .map_err(|error| session.failed("cannot make a ring", error))?;
    let over_ring = Session::new(ring, session.peer());
    serve(&over_ring, guest).inspect_err(|error| over_ring.send_failure(error))
}

/// Answers one request.
pub(super) fn answer<T: Bytes>(
    session: &Session<T>,
    message: Message,
    guest: &Guest<'_>,
) -> Result<()> {
    match message {
        Message::Ping { bytes } => session.send(&Message::Pong { bytes }),
        Message::Raw(raw) => {
            session.set_activity("the measurement");
            let _memory = guest.take(ResourceKind::Memory, raw.size.into())?;
            let _poller = guest.take(ResourceKind::Pollers, raw.polling.into())?;
            // This may fail, so it happens before the client is told to go on.
            let mut buffer = Vec::new();
            buffer.try_reserve_exact(raw.size as usize).map_err(|_| {
                Error::Refused(format!("no memory for a message of {} bytes", raw.size))
            })?;
            buffer.resize(raw.size as usize, 0);
            session.send(&Message::Go)?;
            (guest.sleepers)
                .during(|| take(session.transport(), &raw, &mut buffer))
                .map_err(|error| session.explain(error))?;
            match raw.back {
                true => Ok(()),
                false => session.send(&Message::Go),
            }
        }
        Message::Accept { count } => accept(session, count, guest),
        message => Err(session.unexpected(&message)),
    }
}

fn take<T: Bytes>(transport: &T, raw: &Raw, buffer: &mut [u8]) -> std::io::Result<()> {
    let wait = match raw.polling {
        true => Wait::Polling,
        false => Wait::Sleeping,
    };
    for _ in 0..raw.count {
        transport.recv_measured(buffer, wait)?;
        if raw.back {
            transport.send_measured(buffer, wait)?;
        }
    }
    Ok(())
}

fn accept<T: Bytes>(session: &Session<T>, count: u32, guest: &Guest<'_>) -> Result<()> {
    session.set_activity("the measurement");
    let _connections = guest.take(ResourceKind::Connections, count.into())?;
    let listener = (session.transport().listen(BACKLOG)).map_err(Error::local("cannot listen"))?;
    session.send(&Message::Listening {
        port: listener.port(),
    })?;
    let mut held = Vec::new();
    for _ in 0..count {
        let deadline = Instant::now() + TIMEOUT;
        held.push(
            listener
                .accept(deadline)
                .map_err(Error::local("cannot accept a connection to measure"))?,
        );
    }
    match session.receive()? {
        Message::Go => {}
        message => return Err(session.unexpected(&message)),
    }
    drop(held);
    session.send(&Message::Go)
}
