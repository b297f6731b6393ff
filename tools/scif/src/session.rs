// SPDX-License-Identifier: GPL-2.0

//! A connection on which messages are exchanged, and the greeting.
//!
//! A session turns errors of the transport into errors about the peer, waits with a deadline
//! always, and searches for the peer's own explanation when a connection breaks. The modules above
//! decide what messages mean.

use crate::error::Error;
use crate::error::Result;
use crate::error::errno_name;
use crate::protocol::HEADER;
use crate::protocol::Header;
use crate::protocol::Message;
use crate::protocol::VERSION;
use crate::region::Region;
use crate::transport::Bytes;
use crate::transport::Transport;
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use crate::device::Protection;

/// Time within which a peer must answer.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Time within which the peer must give the reason why its window is gone.
const REASON_TIMEOUT: Duration = Duration::from_secs(5);

/// Time within which a client must greet. It then has the same time for its first request.
const FIRST_TIMEOUT: Duration = Duration::from_secs(20);

/// Time within which the peer must have written a whole file to its disk.
pub const SYNC_TIMEOUT: Duration = Duration::from_secs(1800);

/// One end of a conversation.
pub struct Session<T> {
    transport: T,
    peer: String,
    timeout: Duration,
    activity: Cell<&'static str>,
    node_lost: Box<dyn Fn() -> bool + Send>,
}

impl<T: Bytes> Session<T> {
    /// Starts a conversation over a connection; the peer is called `peer` in errors.
    pub fn new(transport: T, peer: impl Into<String>) -> Self {
        Self {
            transport,
            peer: peer.into(),
            timeout: TIMEOUT,
            activity: Cell::new("the greeting"),
            node_lost: Box::new(|| false),
        }
    }

    /// Sets the function that tells whether the peer's node is gone, when the connection is.
    pub fn with_node_lost(mut self, node_lost: impl Fn() -> bool + Send + 'static) -> Self {
        self.node_lost = Box::new(node_lost);
        self
    }

    /// Sets how long the peer may be silent.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Returns the connection.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Goes on over another connection, which `make` makes of this one. `failure` is for errors of this
    /// machine.
    pub fn over<U>(
        self,
        make: impl FnOnce(T) -> io::Result<U>,
        failure: &str,
    ) -> Result<Session<U>> {
        let (transport, rest) = self.exchange(());
        match make(transport) {
            Ok(transport) => Ok(rest.exchange(transport).1),
            Err(error) => Err(rest.failed(failure, error)),
        }
    }

    /// Returns the name of the peer.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Sets the present activity, for errors.
    pub fn set_activity(&self, activity: &'static str) {
        self.activity.set(activity);
    }

    /// Greets the other side after connecting.
    pub fn greet(&self) -> Result<()> {
        self.send(&Message::Hello { version: VERSION })?;
        self.expect_greeting()
    }

    /// Answers the greeting of a side that has connected.
    pub fn answer_greeting(&self) -> Result<()> {
        self.expect_greeting()?;
        self.send(&Message::Hello { version: VERSION })
    }

    /// Returns how long to wait for the peer's next message, or for its first.
    pub fn patience(&self, first: bool) -> Duration {
        match first {
            true => FIRST_TIMEOUT.min(self.timeout),
            false => self.timeout,
        }
    }

    fn expect_greeting(&self) -> Result<()> {
        match self.receive_within(self.patience(true))? {
            Message::Hello { version: VERSION } => Ok(()),
            Message::Hello { version } => Err(self.protocol(format!(
                "it speaks version {version}, this is version {VERSION}"
            ))),
            message => Err(self.unexpected(&message)),
        }
    }

    /// Sends a message.
    pub fn send(&self, message: &Message) -> Result<()> {
        let deadline = Instant::now() + self.timeout;
        self.transport
            .send(&message.encode(), deadline)
            .map_err(|error| self.explain(error))
    }

    /// Tells the peer that a request failed. A failure of this message is ignored.
    pub fn send_failure(&self, error: &Error) {
        let text = error.to_string();
        let deadline = Instant::now() + self.timeout.min(Duration::from_secs(5));
        let _ = self
            .transport
            .send(&Message::Failure { text }.encode(), deadline);
    }

    /// Receives a message; a [`Message::Failure`] becomes an error.
    pub fn receive(&self) -> Result<Message> {
        self.receive_within(self.timeout)
    }

    /// Receives a message like [`Self::receive`], with a timeout of its own.
    pub fn receive_within(&self, timeout: Duration) -> Result<Message> {
        let message = self.receive_any(Instant::now() + timeout)?;
        match message {
            Message::Failure { text } => Err(self.says(text)),
            message => Ok(message),
        }
    }

    fn receive_any(&self, deadline: Instant) -> Result<Message> {
        let mut header = [0; HEADER];
        let lost = |error| self.lost(error);
        self.transport.recv(&mut header, deadline).map_err(lost)?;
        let header = Header::decode(header).map_err(|error| self.protocol(error.to_string()))?;
        let mut payload = vec![0; header.length];
        self.transport.recv(&mut payload, deadline).map_err(lost)?;
        Message::decode(header, &payload).map_err(|error| self.protocol(error.to_string()))
    }

    /// Returns the error for a failed call on the connection. The peer's own reason comes first, if
    /// the peer has sent one: a peer that gives up a request takes its window away, and sends the
    /// reason at about that time.
    pub fn explain(&self, error: io::Error) -> Error {
        let wait = match error.raw_os_error() {
            Some(libc::EINTR) => return Error::Interrupted,
            Some(libc::ENXIO | libc::EACCES) => REASON_TIMEOUT.min(self.timeout),
            _ => Duration::ZERO,
        };
        let deadline = Instant::now() + wait;
        // No more messages than these can be in flight.
        for _ in 0..64 {
            match self.receive_any(deadline) {
                Ok(Message::Failure { text }) => return self.says(text),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        self.lost(error)
    }
}

impl<T> Session<T> {
    /// Puts another connection in the place of this one. Returns both.
    fn exchange<U>(self, transport: U) -> (T, Session<U>) {
        let session = Session {
            transport,
            peer: self.peer,
            timeout: self.timeout,
            activity: self.activity,
            node_lost: self.node_lost,
        };
        (self.transport, session)
    }

    /// Returns the error for a failed call that needs the peer, which may be gone. `failure` is for
    /// errors of this machine.
    pub fn failed(&self, failure: &str, source: io::Error) -> Error {
        match self.lost(source) {
            Error::Local { source, .. } => Error::local(failure)(source),
            error => error,
        }
    }

    fn lost(&self, source: io::Error) -> Error {
        match source.raw_os_error() {
            Some(libc::EINTR) => Error::Interrupted,
            Some(libc::ENXIO | libc::EACCES) => {
                self.protocol(format!("its window cannot be used: {source}"))
            }
            Some(libc::ECONNRESET | libc::ENODEV | libc::ENOTCONN | libc::EPIPE) => Error::Lost {
                peer: self.peer.clone(),
                activity: self.activity.get(),
                node_lost: (self.node_lost)(),
                source,
            },
            None if source.kind() == io::ErrorKind::TimedOut => Error::Lost {
                peer: self.peer.clone(),
                activity: self.activity.get(),
                node_lost: false,
                source: io::Error::from_raw_os_error(libc::ETIMEDOUT),
            },
            _ => Error::Local {
                failure: format!(
                    "the connection to {} failed during {}",
                    self.peer,
                    self.activity.get()
                ),
                source,
            },
        }
    }

    fn says(&self, text: String) -> Error {
        Error::Peer {
            peer: self.peer.clone(),
            text,
        }
    }

    /// Returns the error for a message that must not come now.
    pub fn unexpected(&self, message: &Message) -> Error {
        self.protocol(format!("{} came out of turn", message.name()))
    }

    /// Returns the error for a peer that breaks the protocol.
    pub fn protocol(&self, text: impl Into<String>) -> Error {
        Error::Protocol {
            peer: self.peer.clone(),
            text: text.into(),
        }
    }
}

impl<T: Transport> Session<T> {
    /// Registers memory. The error explains the usual limit.
    pub fn register(&self, region: &Arc<Region>, protection: Protection) -> Result<i64> {
        self.transport
            .register(region, protection)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::ENOMEM | libc::EAGAIN) => {
                    Error::Refused(memory_advice(region.len(), &error))
                }
                _ => self.lost(error),
            })
    }
}

fn memory_advice(length: usize, error: &io::Error) -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    let limit = limit.map_or("none".to_owned(), |limit| format!("{} KiB", limit / 1024));
    format!(
        "cannot pin {} KiB of memory for remote access ({}, limit on locked memory: {limit}): raise \
         the limit (`ulimit -l`, LimitMEMLOCK= of a service), or run with CAP_IPC_LOCK, as root does; \
         each transfer at a time needs that much",
        length / 1024,
        errno_name(error)
    )
}
