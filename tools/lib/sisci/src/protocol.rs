// SPDX-License-Identifier: LGPL-2.1

//! The protocol of two ends of this library on a SCIF connection.
//!
//! A frame is a head of 16 bytes, little endian, and a body:
//!
//! ```text
//!  0  magic    u32   "SISC"
//!  4  kind     u16
//!  6  version  u16   1
//!  8  length   u32   bytes that follow, 4096 at most
//! 12  argument u32   by kind
//! ```
//!
//! The connecting side first sends `Hello` and gets `Welcome` or `Refuse`. Then `Trigger` carries
//! interrupts, `Notice` tells the importer of a segment what its exporter has done, and `Bye`
//! announces the end of the connection. Each frame is sent as a whole or not at all. Each side
//! checks all it receives, and disconnects a peer that sends an impossible frame.

/// Size of a head in bytes.
pub const HEAD: usize = 16;

/// Largest size of a body.
pub const MOST: usize = 4096;

const MAGIC: u32 = u32::from_le_bytes(*b"SISC");
const VERSION: u16 = 1;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The request of the connecting side.
    Hello(Hello),
    /// The acceptance of the request.
    Welcome(Welcome),
    /// The refusal of the request, with an error of SISCI.
    Refuse(u32),
    /// An interrupt, with its data.
    Trigger(Vec<u8>),
    /// A message of the exporter of a segment to its importers.
    Notice(Notice),
    /// The announcement that the sender releases its end.
    Bye,
}

/// The request of the connecting side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The number of the segment or interrupt. A name that is free may be given to another
    /// resource, so the number is checked.
    pub number: u32,
    /// The token of a `Welcome` before the link went; 0 for a new connection.
    pub token: u64,
    /// Whether the sender, on the same node, wants to share the memory of the segment.
    pub attach: bool,
}

impl Hello {
    /// Makes the request for a new connection.
    pub fn new(number: u32) -> Self {
        Self {
            number,
            token: 0,
            attach: false,
        }
    }
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Welcome {
    /// The size of the segment in bytes.
    pub size: u64,
    /// The token for a `Hello` after the link was down. For a process that wants to share the
    /// memory, the name under which the memory is handed over.
    pub token: u64,
    /// Whether each trigger of the interrupt counts.
    pub counting: bool,
    /// Whether other interrupts may have the same number.
    pub shared: bool,
}

/// An action of an exporter on its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The segment is not available any more; connections stay.
    Unavailable,
    /// The segment is taken away.
    Removed,
}

/// The error for bytes that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

const HELLO: u16 = 1;
const WELCOME: u16 = 2;
const REFUSE: u16 = 3;
const TRIGGER: u16 = 4;
const NOTICE: u16 = 5;
const BYE: u16 = 6;

/// Unused bytes at the end of a welcome.
const RESERVED: usize = 8;

const ATTACH: u32 = 1;
const COUNTING: u32 = 1;
const SHARED: u32 = 2;

impl Frame {
    /// Returns the bytes to send.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello(hello) => {
                let flags = if hello.attach { ATTACH } else { 0 };
                let mut body = hello.token.to_le_bytes().to_vec();
                body.extend(hello.number.to_le_bytes());
                encoded(HELLO, flags, &body)
            }
            Self::Welcome(welcome) => {
                let counting = if welcome.counting { COUNTING } else { 0 };
                let shared = if welcome.shared { SHARED } else { 0 };
                let flags = counting | shared;
                let mut body = welcome.size.to_le_bytes().to_vec();
                body.extend(welcome.token.to_le_bytes());
                body.extend([0; RESERVED]);
                encoded(WELCOME, flags, &body)
            }
            Self::Refuse(error) => encoded(REFUSE, *error, &[]),
            Self::Trigger(data) => encoded(TRIGGER, 0, data),
            Self::Notice(Notice::Unavailable) => encoded(NOTICE, 1, &[]),
            Self::Notice(Notice::Removed) => encoded(NOTICE, 2, &[]),
            Self::Bye => encoded(BYE, 0, &[]),
        }
    }

    fn decode(kind: u16, argument: u32, body: &[u8]) -> Result<Self, Malformed> {
        let mut body = Body(body);
        let frame = match kind {
            HELLO => Self::Hello(Hello {
                token: body.u64()?,
                number: body.u32()?,
                attach: argument & ATTACH != 0,
            }),
            WELCOME => {
                let welcome = Welcome {
                    size: body.u64()?,
                    token: body.u64()?,
                    counting: argument & COUNTING != 0,
                    shared: argument & SHARED != 0,
                };
                body.take::<RESERVED>()?;
                Self::Welcome(welcome)
            }
            REFUSE => Self::Refuse(argument),
            TRIGGER => Self::Trigger(core::mem::take(&mut body.0).to_vec()),
            NOTICE if argument == 1 => Self::Notice(Notice::Unavailable),
            NOTICE if argument == 2 => Self::Notice(Notice::Removed),
            BYE => Self::Bye,
            _ => return Err(Malformed),
        };
        match body.0 {
            [] => Ok(frame),
            _ => Err(Malformed),
        }
    }
}

fn encoded(kind: u16, argument: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + body.len());
    bytes.extend(MAGIC.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((body.len() as u32).to_le_bytes());
    bytes.extend(argument.to_le_bytes());
    bytes.extend(body);
    bytes
}

struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn u16(&mut self) -> Result<u16, Malformed> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*head)
    }
}

/// Received bytes, from which whole frames are taken.
#[derive(Default)]
pub struct Reader {
    bytes: Vec<u8>,
    /// Number of bytes that belong to frames taken before.
    done: usize,
}

impl Reader {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.done);
        self.done = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next frame, if it is complete.
    pub fn next(&mut self) -> Result<Option<Frame>, Malformed> {
        let rest = self.bytes.get(self.done..).unwrap_or_default();
        let Some((head, body)) = rest.split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let mut head = Body(head);
        let (magic, kind, version) = (head.u32()?, head.u16()?, head.u16()?);
        let (length, argument) = (head.u32()? as usize, head.u32()?);
        if magic != MAGIC || version != VERSION || length > MOST {
            return Err(Malformed);
        }
        let Some(body) = body.get(..length) else {
            return Ok(None);
        };
        let frame = Frame::decode(kind, argument, body)?;
        self.done += HEAD + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<Frame> {
        vec![
            Frame::Hello(Hello {
                number: 7,
                token: u64::MAX,
                attach: true,
            }),
            Frame::Welcome(Welcome {
                size: 1 << 40,
                token: 3,
                counting: true,
                shared: true,
            }),
            Frame::Refuse(0x4000_090c),
            Frame::Trigger(Vec::new()),
            Frame::Trigger(vec![9; MOST]),
            Frame::Notice(Notice::Unavailable),
            Frame::Notice(Notice::Removed),
            Frame::Bye,
        ]
    }

    #[test]
    fn frames_are_decoded_from_pieces_of_any_size() {
        let bytes: Vec<u8> = frames().iter().flat_map(Frame::encode).collect();
        for size in [1, 7, 16, 100, bytes.len()] {
            let mut reader = Reader::default();
            let mut received = Vec::new();
            for piece in bytes.chunks(size) {
                reader.push(piece);
                while let Some(frame) = reader.next().expect("well-formed") {
                    received.push(frame);
                }
            }
            assert_eq!(received, frames());
        }
    }

    #[test]
    fn malformed_frame_is_refused() {
        let good = Frame::Refuse(1).encode();
        for (place, value) in [(0, 0), (4, 99), (6, 2), (8, 1), (9, 0x20)] {
            let mut bytes = good.clone();
            bytes[place] = value;
            bytes.push(0);
            let mut reader = Reader::default();
            reader.push(&bytes);
            assert_eq!(reader.next(), Err(Malformed), "byte {place}");
        }
    }
}
