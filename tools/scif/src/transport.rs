// SPDX-License-Identifier: GPL-2.0

//! The interface of a connection that the protocol needs, and its implementation by SCIF.
//!
//! The protocol is written against [`Transport`], and its parts without windows against [`Bytes`],
//! so the tests run on any machine (see [`crate::in_process`]). [`Connection`] adds deadlines and
//! cancellation to an endpoint. It never sleeps in a blocking send or receive, so that Ctrl-C or
//! the deadline for a silent peer ends every wait. The only exceptions are calls that are measured.

use crate::cancel::Cancel;
use crate::device::Endpoint;
use crate::device::Initiator;
use crate::device::Mark;
use crate::device::PortId;
use crate::device::Protection;
use crate::device::Rma;
use crate::region::Region;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

/// The way to wait for the peer during a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Waits in a call that sleeps. Only the peer ends the call, neither a deadline nor [`Cancel`].
    Sleeping,
    /// Waits by polling.
    Polling,
}

/// A connection that carries bytes.
///
/// Errors carry error numbers: ECONNRESET or ENODEV if the peer is gone, EINTR if cancelled; a
/// deadline that passes is `TimedOut`.
pub trait Bytes {
    /// A place where connections of the same kind arrive.
    type Listener: Listener;

    /// Sends all bytes.
    fn send(&self, bytes: &[u8], deadline: Instant) -> io::Result<()>;
    /// Receives exactly as many bytes as fit.
    fn recv(&self, bytes: &mut [u8], deadline: Instant) -> io::Result<()>;
    /// Sends all bytes by as few calls as possible, to measure these calls.
    fn send_measured(&self, bytes: &[u8], wait: Wait) -> io::Result<()>;
    /// Receives exactly as many bytes as fit by as few calls as possible, to measure these calls.
    fn recv_measured(&self, bytes: &mut [u8], wait: Wait) -> io::Result<()>;
    /// Listens on any free port.
    fn listen(&self, backlog: i32) -> io::Result<Self::Listener>;
    /// Returns the SCIF connection, if this is one.
    fn scif(&self) -> Option<&Connection> {
        None
    }
}

/// A listener that takes connections to hold them, and no more.
pub trait Listener {
    /// The connections of this kind.
    type Connection;

    /// The port.
    fn port(&self) -> u16;
    /// Waits for the next connection.
    fn accept(&self, deadline: Instant) -> io::Result<Self::Connection>;
}

/// A connection with windows.
///
/// Errors are those of [`Bytes`].
pub trait Transport: Bytes {
    /// Registers a region and returns its offset.
    fn register(&self, region: &Arc<Region>, protection: Protection) -> io::Result<i64>;
    /// Registers a region at an offset.
    fn register_at(
        &self,
        region: &Arc<Region>,
        protection: Protection,
        offset: i64,
    ) -> io::Result<()>;
    /// Unregisters the window at `offset`.
    fn unregister(&self, offset: i64, length: usize) -> io::Result<()>;
    /// Copies from the own window at `local` to the peer's at `remote`.
    fn write_to(&self, local: i64, length: usize, remote: i64, how: Rma) -> io::Result<()>;
    /// Copies from the peer's window at `remote` to the own one at `local`.
    fn read_from(&self, local: i64, length: usize, remote: i64, how: Rma) -> io::Result<()>;
    /// Marks the copies started so far.
    fn mark(&self) -> io::Result<Mark>;
    /// Waits until the copies below a mark are complete.
    fn wait(&self, mark: Mark) -> io::Result<()>;
}

/// Number of polls in vain after which a poller checks for a signal.
const LOOK_UP: u64 = 1 << 14;

/// Number of polls in vain after which a poller gives up.
const LONGEST_POLL: u64 = 1 << 26;

/// A connected endpoint.
#[derive(Debug)]
pub struct Connection {
    endpoint: Endpoint,
    cancel: Option<Cancel>,
}

/// Repeats a call that a signal interrupted. For calls that do not wait for the peer.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            result => return result,
        }
    }
}

impl Connection {
    /// Connects to a listener, within a time.
    pub fn connect(
        endpoint: Endpoint,
        peer: PortId,
        timeout: Duration,
        cancel: Option<Cancel>,
    ) -> io::Result<Self> {
        endpoint.set_nonblocking(true)?;
        let connection = Self { endpoint, cancel };
        let deadline = Instant::now() + timeout;
        loop {
            match connection.endpoint.connect(peer) {
                Ok(_) => break,
                // The driver does not return EALREADY today; it would have the same meaning.
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EINPROGRESS | libc::EALREADY | libc::EINTR)
                    ) =>
                {
                    connection.poll(PollFlags::OUT, deadline)?;
                }
                Err(error) => return Err(error),
            }
        }
        connection.endpoint.set_nonblocking(false)?;
        Ok(connection)
    }

    /// Wraps an endpoint that a listener has accepted.
    pub fn accepted(endpoint: Endpoint, cancel: Option<Cancel>) -> Self {
        Self { endpoint, cancel }
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn poll(&self, events: PollFlags, deadline: Instant) -> io::Result<PollFlags> {
        let timeout = deadline.saturating_duration_since(Instant::now());
        let cancel = self.cancel.as_ref().map(AsFd::as_fd);
        match self.endpoint.poll(events, Some(timeout), cancel) {
            Ok(flags) if flags.is_empty() => Err(io::ErrorKind::TimedOut.into()),
            Err(error) if error.raw_os_error() == Some(libc::EINTR) && !self.cancelled() => {
                Ok(PollFlags::empty())
            }
            result => result,
        }
    }

    fn cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(Cancel::is_set)
    }

    /// Moves `length` bytes by non-blocking calls of `some`, which gets the number of bytes done.
    fn all(
        &self,
        length: usize,
        events: PollFlags,
        deadline: Instant,
        mut some: impl FnMut(usize) -> io::Result<usize>,
    ) -> io::Result<()> {
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let mut done = 0;
        let mut was_gone = false;
        while done < length {
            match retry(|| some(done))? {
                0 if was_gone => return Err(io::Error::from_raw_os_error(libc::ECONNRESET)),
                0 => was_gone = self.poll(events, deadline)?.intersects(gone),
                moved => done += moved,
            }
        }
        Ok(())
    }

    /// Moves `length` bytes by `some`, which gets the number of bytes done and whether to sleep.
    #[inline]
    pub(crate) fn all_measured(
        &self,
        length: usize,
        wait: Wait,
        mut some: impl FnMut(usize, bool) -> io::Result<usize>,
    ) -> io::Result<()> {
        let mut done = 0;
        let mut idle = 0;
        while done < length {
            match some(done, wait == Wait::Sleeping) {
                // A blocking call moves fewer bytes only when the connection ends.
                Ok(0) if wait == Wait::Sleeping => {
                    return Err(io::Error::from_raw_os_error(libc::ECONNRESET));
                }
                Ok(0) => {
                    idle += 1;
                    if idle % LOOK_UP == 0 {
                        self.look_up(idle)?;
                    }
                }
                Ok(moved) => {
                    done += moved;
                    idle = 0;
                }
                Err(error) if error.raw_os_error() == Some(libc::EINTR) && !self.cancelled() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Checks for cancellation and for the limit of a poller.
    fn look_up(&self, idle: u64) -> io::Result<()> {
        if self.cancelled() {
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        if idle > LONGEST_POLL {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl Bytes for Connection {
    type Listener = Port;

    fn send(&self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.all(bytes.len(), PollFlags::OUT, deadline, |done| {
            self.endpoint.send(&bytes[done..], false)
        })
    }

    fn recv(&self, bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
        self.all(bytes.len(), PollFlags::IN, deadline, |done| {
            self.endpoint.recv(&mut bytes[done..], false)
        })
    }

    fn send_measured(&self, bytes: &[u8], wait: Wait) -> io::Result<()> {
        self.all_measured(bytes.len(), wait, |done, block| {
            self.endpoint.send(&bytes[done..], block)
        })
    }

    fn recv_measured(&self, bytes: &mut [u8], wait: Wait) -> io::Result<()> {
        self.all_measured(bytes.len(), wait, |done, block| {
            self.endpoint.recv(&mut bytes[done..], block)
        })
    }

    fn scif(&self) -> Option<&Connection> {
        Some(self)
    }

    fn listen(&self, backlog: i32) -> io::Result<Port> {
        let endpoint = Endpoint::open()?;
        let port = endpoint.bind(0)?;
        endpoint.listen(backlog)?;
        Ok(Port {
            listener: Self::accepted(endpoint, self.cancel.clone()),
            port,
        })
    }
}

/// A listening endpoint.
#[derive(Debug)]
pub struct Port {
    listener: Connection,
    port: u16,
}

impl Listener for Port {
    type Connection = Endpoint;

    fn port(&self) -> u16 {
        self.port
    }

    fn accept(&self, deadline: Instant) -> io::Result<Endpoint> {
        loop {
            match self.listener.endpoint.accept(false) {
                Ok((endpoint, _)) => return Ok(endpoint),
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                    self.listener.poll(PollFlags::IN, deadline)?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Transport for Connection {
    fn register(&self, region: &Arc<Region>, protection: Protection) -> io::Result<i64> {
        retry(|| self.endpoint.register(region, protection, None))
    }

    fn register_at(
        &self,
        region: &Arc<Region>,
        protection: Protection,
        offset: i64,
    ) -> io::Result<()> {
        retry(|| self.endpoint.register(region, protection, Some(offset))).map(drop)
    }

    fn unregister(&self, offset: i64, length: usize) -> io::Result<()> {
        retry(|| self.endpoint.unregister(offset, length))
    }

    fn write_to(&self, local: i64, length: usize, remote: i64, how: Rma) -> io::Result<()> {
        retry(|| self.endpoint.writeto(local, length, remote, how))
    }

    fn read_from(&self, local: i64, length: usize, remote: i64, how: Rma) -> io::Result<()> {
        retry(|| self.endpoint.readfrom(local, length, remote, how))
    }

    fn mark(&self) -> io::Result<Mark> {
        retry(|| self.endpoint.fence_mark(Initiator::Own))
    }

    fn wait(&self, mark: Mark) -> io::Result<()> {
        loop {
            match self.endpoint.fence_wait(mark) {
                Err(error) if error.raw_os_error() == Some(libc::EINTR) && !self.cancelled() => {}
                result => return result,
            }
        }
    }
}

/// Waits until `file` is readable, or has a connection to accept.
pub(crate) fn readable(file: impl AsFd, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec {
        tv_sec: left.as_secs() as i64,
        tv_nsec: left.subsec_nanos().into(),
    };
    let mut files = [PollFd::new(&file, PollFlags::IN)];
    match rustix::event::poll(&mut files, Some(&timeout)) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
