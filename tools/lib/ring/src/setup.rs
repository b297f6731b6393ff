// SPDX-License-Identifier: LGPL-2.1

//! How the two ends of a connection find each other's memory.
//!
//! Each end sends the place of its memory over the connection. After it has tried to map the memory
//! of the other end, it sends whether it could. There is a ring only if both ends could map. An end
//! that has no memory, or can't map any, sends the error, so both ends know the reason.

use rustix::io::Errno;

use crate::area::Area;
use crate::barriers;
use crate::counters::Size;
use crate::direction::Areas;
use crate::endpoint::Endpoint;
use crate::endpoint::Stream;

/// The first bytes of a hello, so that another program's bytes on the connection are not mistaken
/// for a ring.
const MAGIC: [u8; 8] = *b"SCIFRING";

const VERSION: u32 = 1;

/// Bytes of a hello: magic, version, size of the ring, offset of the window, error.
const HELLO: usize = 28;

/// The place of the memory of an end, or the reason why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub size: Size,
    pub window: Result<i64, Errno>,
}

impl Hello {
    pub fn encode(&self) -> [u8; HELLO] {
        let (offset, error) = match self.window {
            Ok(offset) => (offset, 0),
            Err(error) => (-1, error.raw_os_error()),
        };
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.size.bytes().to_le_bytes());
        bytes[16..24].copy_from_slice(&offset.to_le_bytes());
        bytes[24..].copy_from_slice(&error.to_le_bytes());
        bytes
    }

    /// Decodes a hello. EPROTO: no end of a ring sends these bytes.
    pub fn decode(bytes: &[u8; HELLO]) -> Result<Self, Errno> {
        let number = |at: usize| {
            let bytes = bytes[at..at + 4].try_into().unwrap_or([0; 4]);
            u32::from_le_bytes(bytes)
        };
        if bytes[..8] != MAGIC || number(8) != VERSION {
            return Err(Errno::PROTO);
        }
        let size = Size::new(number(12)).ok_or(Errno::PROTO)?;
        let offset = i64::from_le_bytes(bytes[16..24].try_into().unwrap_or([0; 8]));
        let window = match error_of(number(24)) {
            None if offset >= 0 => Ok(offset),
            None => return Err(Errno::PROTO),
            Some(error) => Err(error),
        };
        Ok(Self { size, window })
    }
}

/// Returns the error that a number of the peer stands for. A number that is no error stands for
/// EPROTO.
fn error_of(number: u32) -> Option<Errno> {
    match number {
        0 => None,
        1..4096 => Some(Errno::from_raw_os_error(number as i32)),
        _ => Some(Errno::PROTO),
    }
}

/// A window of ours. Dropping it unregisters the window.
pub struct Window {
    endpoint: Endpoint,
    offset: i64,
    len: usize,
}

impl Drop for Window {
    fn drop(&mut self) {
        // The connection's end unregisters the window in any case.
        let _ = scif_sys::unregister(self.endpoint, self.offset, self.len as u64);
    }
}

/// The result of an agreement between two ends.
pub struct Agreed {
    pub areas: Areas,
    pub own: Size,
    pub peer: Size,
    pub window: Window,
}

fn send_all(endpoint: &Endpoint, bytes: &[u8]) -> Result<(), Errno> {
    match endpoint.send(bytes, true)? {
        count if count == bytes.len() => Ok(()),
        _ => Err(Errno::INTR),
    }
}

fn recv_all(endpoint: &Endpoint, bytes: &mut [u8]) -> Result<(), Errno> {
    match endpoint.recv(bytes, true)? {
        count if count == bytes.len() => Ok(()),
        _ => Err(Errno::INTR),
    }
}

fn own_window(endpoint: &Endpoint, size: Size) -> Result<(Area, Window), Errno> {
    if !barriers::KNOWN {
        return Err(Errno::OPNOTSUPP);
    }
    let area = Area::own(size.bytes() as usize)?;
    let len = area.len();
    let offset = endpoint.register(&area)?;
    let window = Window {
        endpoint: *endpoint,
        offset,
        len,
    };
    Ok((area, window))
}

fn map(endpoint: &Endpoint, hello: &Hello) -> Result<Area, Errno> {
    let offset = hello.window?;
    // Without this a peer that goes would kill this process.
    scif_sys::map_ones_after_loss(endpoint)?;
    Area::of_peer(
        std::os::fd::AsFd::as_fd(endpoint),
        offset,
        hello.size.bytes() as usize,
    )
}

/// Agrees with the other end, which calls this, too. The inner error is why there is no ring, and
/// both ends know it. After the outer error the caller must close the connection.
pub fn agree(endpoint: &Endpoint, size: Size) -> Result<Result<Agreed, Errno>, Errno> {
    let own = own_window(endpoint, size);
    let window = match &own {
        Ok((_, window)) => Ok(window.offset),
        Err(error) => Err(*error),
    };
    send_all(endpoint, &Hello { size, window }.encode())?;
    let mut bytes = [0; HELLO];
    recv_all(endpoint, &mut bytes)?;
    let hello = Hello::decode(&bytes)?;
    let peer = match &own {
        Ok(_) => map(endpoint, &hello),
        Err(error) => Err(*error),
    };
    let number = match &peer {
        Ok(_) => 0,
        Err(error) => error.raw_os_error(),
    };
    send_all(endpoint, &number.to_le_bytes())?;
    let mut bytes = [0; 4];
    recv_all(endpoint, &mut bytes)?;
    let theirs = error_of(u32::from_le_bytes(bytes));
    // Up to here the peer may map our window, or learn why it can't.
    Ok(match (own, peer, theirs) {
        (Err(error), _, _) | (_, Err(error), _) | (_, _, Some(error)) => Err(error),
        (Ok((own, window)), Ok(peer), None) => Ok(Agreed {
            areas: Areas { own, peer },
            own: size,
            peer: hello.size,
            window,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_hello_decodes_to_itself() {
        for window in [Ok(0), Ok(1 << 40), Err(Errno::NOMEM)] {
            let hello = Hello {
                size: Size::for_bytes(8192),
                window,
            };
            assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
    }

    #[test]
    fn malformed_hello_is_refused() {
        let good = Hello {
            size: Size::for_bytes(8192),
            window: Ok(4096),
        };
        for (at, byte) in [(0, b'X'), (8, 2), (12, 1), (15, 0x80), (23, 0xff)] {
            let mut bytes = good.encode();
            bytes[at] = byte;
            assert_eq!(Hello::decode(&bytes), Err(Errno::PROTO), "byte {at}");
        }
        // A number that is no error counts as an error nevertheless.
        let mut bytes = good.encode();
        bytes[26] = 1;
        let hello = Hello::decode(&bytes);
        assert_eq!(hello.map(|hello| hello.window), Ok(Err(Errno::PROTO)));
    }
}
