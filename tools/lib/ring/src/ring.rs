// SPDX-License-Identifier: LGPL-2.1

//! One end of a ring, as programs use it.
//!
//! Where the peer's memory can't be mapped, the connection itself carries the bytes, with the same
//! calls. So a program runs everywhere, and only its speed differs.

use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::RawFd;

use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::barriers;
use crate::bells::StreamBells;
use crate::counters::Size;
use crate::direction::Areas;
use crate::direction::check_open;
use crate::endpoint::Endpoint;
use crate::endpoint::Stream;
use crate::header::Word;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::setup;
use crate::setup::Window;

/// Bytes of a ring whose caller gives no size.
const USUAL: usize = 1 << 18;

/// The events that are ready, or that a caller wants to know of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Whether bytes can be received, or the ring is over.
    pub to_recv: bool,
    /// Whether bytes can be sent.
    pub to_send: bool,
    /// Whether the peer is gone. Bytes that it has sent can still be received.
    pub over: bool,
}

struct Mapped {
    areas: Areas,
    sender: Sender,
    receiver: Receiver,
    bells: StreamBells<Endpoint>,
    /// Unregistered after `drop` has told the peer.
    _window: Window,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        barriers::all();
        self.areas.peer.store(Word::Closed, 1);
        barriers::all();
        self.bells.leave();
    }
}

/// The way that carries the bytes.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each ring, which is boxed where it is given out"
)]
enum Carrier {
    Mapped(Mapped),
    Connection(Errno),
}

/// One end of a ring: its connection, and mapped memory or the connection as the carrier of the
/// bytes.
///
/// A thread that sends and a thread that receives do not wait for each other; further threads wait
/// for their turn.
pub struct Ring {
    endpoint: Endpoint,
    carrier: Carrier,
}

impl Ring {
    /// Makes a ring over a connection. Waits until the other end of the connection makes one, too.
    /// `size` is how many bytes may be in flight to this end, 0 for a usual number.
    ///
    /// From then on the connection carries the bells, or the bytes if there is no mapped memory.
    /// The caller must not send or receive on it by other means. If this fails, both ends must
    /// close the connection.
    ///
    /// # Errors
    ///
    /// EPROTO: the other end has sent something else. EINTR: a signal arrived. ECONNRESET and
    /// ENOTCONN: as for any call on a connection.
    ///
    /// # Safety
    ///
    /// The caller does not close the descriptor before the ring is dropped.
    pub unsafe fn new(fd: RawFd, size: usize) -> Result<Self, Errno> {
        // SAFETY: Passed on to the caller.
        let endpoint = unsafe { Endpoint::new(fd) }?;
        let size = match size {
            0 => Size::for_bytes(USUAL),
            size => Size::for_bytes(size),
        };
        let carrier = match setup::agree(&endpoint, size)? {
            Ok(agreed) => Carrier::Mapped(Mapped {
                areas: agreed.areas,
                sender: Sender::new(agreed.peer),
                receiver: Receiver::new(agreed.own),
                bells: StreamBells::new(endpoint),
                _window: agreed.window,
            }),
            Err(reason) => Carrier::Connection(reason),
        };
        Ok(Self { endpoint, carrier })
    }

    /// Returns an error if the connection carries the bytes, with the reason. EOPNOTSUPP: the
    /// peer's memory can't be mapped.
    pub fn is_mapped(&self) -> Result<(), Errno> {
        match self.carrier {
            Carrier::Mapped(_) => Ok(()),
            Carrier::Connection(reason) => Err(reason),
        }
    }

    /// Sends bytes; returns how many. With `block` it sends all of them, unless a signal (EINTR)
    /// arrives or the peer leaves (ECONNRESET). Without `block` it sends as many as there is room
    /// for.
    #[inline]
    pub fn send(&self, bytes: &[u8], block: bool) -> Result<usize, Errno> {
        match &self.carrier {
            Carrier::Mapped(it) => it.sender.send(&it.areas, &it.bells, bytes, block),
            Carrier::Connection(_) => self.endpoint.send(bytes, block),
        }
    }

    /// Receives bytes; returns how many. `block` and errors are as for [`Self::send`].
    #[inline]
    pub fn recv(&self, bytes: &mut [u8], block: bool) -> Result<usize, Errno> {
        match &self.carrier {
            Carrier::Mapped(it) => it.receiver.recv(&it.areas, &it.bells, bytes, block),
            Carrier::Connection(_) => self.endpoint.recv(bytes, block),
        }
    }

    /// Returns which of the wanted events are ready now. If none is, the descriptor becomes ready
    /// for the events of [`Self::wakes`] when that may have changed.
    pub fn ready(&self, wanted: Ready) -> Result<Ready, Errno> {
        match &self.carrier {
            Carrier::Mapped(it) => it.ready(wanted),
            Carrier::Connection(_) => self.connection_ready(wanted),
        }
    }

    fn connection_ready(&self, wanted: Ready) -> Result<Ready, Errno> {
        let flags = self.endpoint.poll_now(Self::events(wanted))?;
        let over = flags.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
        Ok(Ready {
            to_recv: wanted.to_recv && (over || flags.contains(PollFlags::IN)),
            to_send: flags.contains(PollFlags::OUT),
            over,
        })
    }

    fn events(wanted: Ready) -> PollFlags {
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, wanted.to_recv);
        events.set(PollFlags::OUT, wanted.to_send);
        events
    }

    /// Returns the events of the connection to wait for after [`Self::ready`].
    pub fn wakes(&self, wanted: Ready) -> PollFlags {
        match self.carrier {
            Carrier::Mapped(_) => PollFlags::IN,
            Carrier::Connection(_) => Self::events(wanted),
        }
    }

    /// Returns the descriptor of the connection.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: The descriptor is open as long as the ring exists, see `new`.
        unsafe { BorrowedFd::borrow_raw(std::os::fd::AsFd::as_fd(&self.endpoint).as_raw_fd()) }
    }
}

impl Mapped {
    fn ready(&self, wanted: Ready) -> Result<Ready, Errno> {
        self.bells.take();
        let mut ready = Ready::default();
        if wanted.to_recv {
            // If the peer contradicts itself, the next call returns the error.
            ready.to_recv = self
                .receiver
                .is_ready(&self.areas, &self.bells)
                .unwrap_or(true);
        }
        if wanted.to_send {
            ready.to_send = self
                .sender
                .is_ready(&self.areas, &self.bells)
                .unwrap_or(false);
        }
        if check_open(&self.areas, &self.bells).is_err() {
            ready.over = true;
            ready.to_recv = wanted.to_recv;
        }
        Ok(ready)
    }
}
