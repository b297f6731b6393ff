// SPDX-License-Identifier: GPL-2.0

//! A TCP connection, for comparison: the measurements of SCIF's messages work over it, too.
//!
//! It carries bytes and has no windows, so files can't be copied over it.

use crate::transport::Bytes;
use crate::transport::Listener;
use crate::transport::Wait;
use rustix::net::RecvFlags;
use rustix::net::SendFlags;
use std::io;
use std::io::Read;
use std::io::Write;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::time::Duration;
use std::time::Instant;

/// Longest time that a call sleeps.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A connected socket.
#[derive(Debug)]
pub struct Tcp {
    socket: TcpStream,
}

impl Tcp {
    /// Connects.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::new(TcpStream::connect_timeout(
            &address,
            Duration::from_secs(10),
        )?)
    }

    /// Wraps a socket that was accepted.
    pub fn new(socket: TcpStream) -> io::Result<Self> {
        // As in SCIF, sent bytes leave at once.
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(LONGEST_WAIT))?;
        socket.set_write_timeout(Some(LONGEST_WAIT))?;
        Ok(Self { socket })
    }

    /// Moves `length` bytes by non-blocking calls of `some`, which gets the number of bytes done.
    fn poll(
        length: usize,
        mut some: impl FnMut(usize) -> rustix::io::Result<usize>,
    ) -> io::Result<()> {
        let deadline = Instant::now() + LONGEST_WAIT;
        let mut done = 0;
        let mut idle = 0u64;
        while done < length {
            match some(done) {
                Ok(0) => return Err(io::Error::from_raw_os_error(libc::ECONNRESET)),
                Ok(moved) => done += moved,
                Err(rustix::io::Errno::AGAIN) => {
                    idle += 1;
                    if idle % (1 << 14) == 0 && Instant::now() > deadline {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Translates an error to that of a SCIF connection.
fn as_scif(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::WriteZero => {
            io::Error::from_raw_os_error(libc::ECONNRESET)
        }
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Bytes for Tcp {
    type Listener = TcpPort;

    fn send(&self, bytes: &[u8], _deadline: Instant) -> io::Result<()> {
        (&self.socket).write_all(bytes).map_err(as_scif)
    }

    fn recv(&self, bytes: &mut [u8], _deadline: Instant) -> io::Result<()> {
        (&self.socket).read_exact(bytes).map_err(as_scif)
    }

    fn send_measured(&self, bytes: &[u8], wait: Wait) -> io::Result<()> {
        match wait {
            Wait::Sleeping => (&self.socket).write_all(bytes).map_err(as_scif),
            Wait::Polling => Self::poll(bytes.len(), |done| {
                rustix::net::send(&self.socket, &bytes[done..], SendFlags::DONTWAIT)
            }),
        }
    }

    fn recv_measured(&self, bytes: &mut [u8], wait: Wait) -> io::Result<()> {
        match wait {
            Wait::Sleeping => (&self.socket).read_exact(bytes).map_err(as_scif),
            Wait::Polling => Self::poll(bytes.len(), |done| {
                let (moved, _) =
                    rustix::net::recv(&self.socket, &mut bytes[done..], RecvFlags::DONTWAIT)?;
                Ok(moved)
            }),
        }
    }

    fn listen(&self, _backlog: i32) -> io::Result<TcpPort> {
        TcpPort::new(self.socket.local_addr()?.ip())
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct TcpPort {
    socket: TcpListener,
    port: u16,
}

impl TcpPort {
    fn new(address: IpAddr) -> io::Result<Self> {
        let socket = TcpListener::bind((address, 0))?;
        let port = socket.local_addr()?.port();
        socket.set_nonblocking(true)?;
        Ok(Self { socket, port })
    }
}

impl Listener for TcpPort {
    type Connection = TcpStream;

    fn port(&self) -> u16 {
        self.port
    }

    fn accept(&self, deadline: Instant) -> io::Result<TcpStream> {
        loop {
            match self.socket.accept() {
                Ok((socket, _)) => return Ok(socket),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    crate::transport::readable(&self.socket, deadline)?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_bytes_arrive_and_close_is_econnreset() {
        let listener = TcpPort::new([127, 0, 0, 1].into()).unwrap();
        let here = Tcp::connect(([127, 0, 0, 1], listener.port()).into()).unwrap();
        let deadline = Instant::now() + LONGEST_WAIT;
        let there = Tcp::new(listener.accept(deadline).unwrap()).unwrap();
        let mut bytes = [0; 3];
        for wait in [Wait::Sleeping, Wait::Polling] {
            here.send_measured(b"abc", wait).unwrap();
            there.recv_measured(&mut bytes, wait).unwrap();
            assert_eq!(&bytes, b"abc");
        }
        here.send(b"de", deadline).unwrap();
        drop(here);
        let error = there.recv(&mut bytes, deadline).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
        let error = there.recv_measured(&mut bytes, Wait::Polling).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
    }

    #[test]
    fn accept_without_a_client_times_out() {
        let listener = TcpPort::new([127, 0, 0, 1].into()).unwrap();
        let error = listener.accept(Instant::now()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
