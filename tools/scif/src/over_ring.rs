// SPDX-License-Identifier: GPL-2.0

//! A connection whose bytes go through a ring that both ends map: no system call for a message.
//!
//! The ring only carries bytes: windows belong to the connection below, which also carries the
//! bells of the ring.

use crate::transport::Bytes;
use crate::transport::Connection;
use crate::transport::Port;
use crate::transport::Wait;
use scif_ring::Ready;
use scif_ring::Ring;
use std::borrow::Borrow;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::time::Instant;

/// Bytes in flight to an end.
const SIZE: usize = 256 << 10;

/// A connection whose bytes go through a ring.
pub struct OverRing<C> {
    /// The ring, which is dropped before the connection.
    ring: Ring,
    connection: C,
}

const TO_SEND: Ready = Ready {
    to_recv: false,
    to_send: true,
    over: false,
};

const TO_RECV: Ready = Ready {
    to_recv: true,
    to_send: false,
    over: false,
};

impl<C: Borrow<Connection>> OverRing<C> {
    /// Makes a ring over a connection. Waits for the other side, which makes one, too.
    pub fn new(connection: C) -> io::Result<Self> {
        let fd = connection.borrow().endpoint().as_fd().as_raw_fd();
        // SAFETY: The connection is dropped after the ring, and closes its descriptor then.
        let ring = unsafe { Ring::new(fd, SIZE) }?;
        Ok(Self { ring, connection })
    }

    /// Returns an error if the connection carries the bytes, with the reason.
    pub fn is_mapped(&self) -> io::Result<()> {
        Ok(self.ring.is_mapped()?)
    }

    fn connection(&self) -> &Connection {
        self.connection.borrow()
    }

    /// Moves `length` bytes by `some`, which gets the number of bytes done and does not wait.
    fn all(
        &self,
        length: usize,
        wanted: Ready,
        deadline: Instant,
        mut some: impl FnMut(usize) -> io::Result<usize>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < length {
            match some(done)? {
                0 if self.ring.ready(wanted)? == Ready::default() => {
                    self.connection().poll(self.ring.wakes(wanted), deadline)?;
                }
                moved => done += moved,
            }
        }
        Ok(())
    }
}

impl<C: Borrow<Connection>> Bytes for OverRing<C> {
    type Listener = Port;

    fn send(&self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.all(bytes.len(), TO_SEND, deadline, |done| {
            Ok(self.ring.send(&bytes[done..], false)?)
        })
    }

    fn recv(&self, bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
        self.all(bytes.len(), TO_RECV, deadline, |done| {
            Ok(self.ring.recv(&mut bytes[done..], false)?)
        })
    }

    fn send_measured(&self, bytes: &[u8], wait: Wait) -> io::Result<()> {
        (self.connection()).all_measured(bytes.len(), wait, |done, block| {
            Ok(self.ring.send(&bytes[done..], block)?)
        })
    }

    fn recv_measured(&self, bytes: &mut [u8], wait: Wait) -> io::Result<()> {
        (self.connection()).all_measured(bytes.len(), wait, |done, block| {
            Ok(self.ring.recv(&mut bytes[done..], block)?)
        })
    }

    fn listen(&self, backlog: i32) -> io::Result<Port> {
        self.connection().listen(backlog)
    }
}
