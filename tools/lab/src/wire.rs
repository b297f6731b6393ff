// SPDX-License-Identifier: GPL-2.0
//! The frames that the lab and its guests exchange, and the lab's own commands.
//!
//! One format serves both hops: over virtio-serial between the lab and the agent of a
//! guest, and over a Unix socket between `lab exec` and the process that owns the lab,
//! which forwards frames and only renumbers their channel.
//!
//! A frame is `length: u32 | kind: u8 | channel: u32 | payload`, little-endian, where the length
//! counts the payload. A channel is one request (a command, a file). Credit bounds its streams: a
//! sender may have [`WINDOW`] bytes of one stream in flight, and gets more only as the other end
//! consumes. So a stalled reader of one command never stalls another.
//!
//! # Invariants
//! - No payload is longer than [`MAX_PAYLOAD`]; a longer one ends the connection.
//! - `Open` is the first frame of a channel and `Done` its last.

use std::io;
use std::io::Read;
use std::io::Write;

use serde::Deserialize;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The virtio-serial port that the agent listens on.
pub const PORT_NAME: &str = "org.scif.lab.agent";
/// Changes with every incompatible change of frames or requests.
pub const VERSION: u32 = 1;
/// The longest payload of a frame.
pub const MAX_PAYLOAD: usize = 256 * 1024;
/// Largest part of a stream that goes into one frame.
pub const CHUNK: usize = 32 * 1024;
/// Number of bytes of one stream that may be in flight.
pub const WINDOW: u32 = 512 * 1024;

/// The kind of a frame. The direction is seen from the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Both ways, channel 0: a [`Hello`].
    Hello = 1,
    /// To the guest: a [`Request`] that opens the channel.
    Open = 2,
    /// To the guest: bytes of the standard input or of a pushed file.
    Stdin = 3,
    /// To the guest: no more input.
    StdinEnd = 4,
    /// To the guest: a signal number (`u32`) for the command and its group.
    Signal = 5,
    /// Both ways: a [`Stream`] number (`u8`) and how many bytes of it (`u32`) were consumed.
    Credit = 6,
    /// From the guest: bytes of the standard output or of a pulled file.
    Stdout = 7,
    /// From the guest: bytes of the standard error.
    Stderr = 8,
    /// From the guest: the [`Outcome`]; the channel ends.
    Done = 9,
    /// Between `lab` and the lab's owner: a request of `control`.
    Control = 16,
    /// Between `lab` and the lab's owner: the answer.
    Answer = 17,
}

impl Kind {
    fn from_number(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::Hello,
            2 => Kind::Open,
            3 => Kind::Stdin,
            4 => Kind::StdinEnd,
            5 => Kind::Signal,
            6 => Kind::Credit,
            7 => Kind::Stdout,
            8 => Kind::Stderr,
            9 => Kind::Done,
            16 => Kind::Control,
            17 => Kind::Answer,
            _ => return None,
        })
    }
}

/// A stream of a channel, as `Credit` frames name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stream {
    /// To the guest.
    Stdin = 0,
    /// From the guest.
    Stdout = 1,
    /// From the guest.
    Stderr = 2,
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The kind.
    pub kind: Kind,
    /// The request that the frame belongs to.
    pub channel: u32,
    /// The contents, by kind.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Makes a frame of bytes.
    pub fn new(kind: Kind, channel: u32, payload: impl Into<Vec<u8>>) -> Frame {
        Frame {
            kind,
            channel,
            payload: payload.into(),
        }
    }

    /// Makes a frame that carries a value as JSON.
    pub fn json(kind: Kind, channel: u32, value: &impl Serialize) -> io::Result<Frame> {
        Ok(Frame::new(kind, channel, serde_json::to_vec(value)?))
    }

    /// Makes a frame that returns credit.
    pub fn credit(channel: u32, stream: Stream, bytes: u32) -> Frame {
        let mut payload = vec![stream as u8];
        payload.extend_from_slice(&bytes.to_le_bytes());
        Frame::new(Kind::Credit, channel, payload)
    }

    /// Makes a frame that carries a signal.
    pub fn signal(channel: u32, signal: u32) -> Frame {
        Frame::new(Kind::Signal, channel, signal.to_le_bytes())
    }

    /// Returns the value of a frame made by [`Frame::json`].
    pub fn parse<T: DeserializeOwned>(&self) -> io::Result<T> {
        serde_json::from_slice(&self.payload)
            .map_err(|error| invalid(format!("bad {:?} frame: {error}", self.kind)))
    }

    /// Returns the contents of a frame made by [`Frame::credit`].
    pub fn parse_credit(&self) -> io::Result<(Stream, u32)> {
        let [stream, bytes @ ..] = self.payload.as_slice() else {
            return Err(invalid("empty Credit frame"));
        };
        let stream = match stream {
            0 => Stream::Stdin,
            1 => Stream::Stdout,
            2 => Stream::Stderr,
            other => return Err(invalid(format!("Credit for unknown stream {other}"))),
        };
        Ok((stream, parse_u32(bytes)?))
    }

    /// Returns the contents of a frame made by [`Frame::signal`].
    pub fn parse_signal(&self) -> io::Result<u32> {
        parse_u32(&self.payload)
    }

    /// Writes the frame with one call, so that concurrent writers need only a lock.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let length = u32::try_from(self.payload.len())
            .ok()
            .filter(|_| self.payload.len() <= MAX_PAYLOAD)
            .ok_or_else(|| invalid(format!("a frame of {} bytes", self.payload.len())))?;
        let mut bytes = Vec::with_capacity(9 + self.payload.len());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.push(self.kind as u8);
        bytes.extend_from_slice(&self.channel.to_le_bytes());
        bytes.extend_from_slice(&self.payload);
        to.write_all(&bytes)
    }

    /// Reads the next frame; `None` at the end of the connection.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
        let mut head = [0; 9];
        loop {
            match from.read(&mut head[..1]) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        from.read_exact(&mut head[1..])?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if length > MAX_PAYLOAD {
            return Err(invalid(format!("a frame of {length} bytes")));
        }
        let kind = Kind::from_number(head[4])
            .ok_or_else(|| invalid(format!("a frame of unknown kind {}", head[4])))?;
        let channel = u32::from_le_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        from.read_exact(&mut payload)?;
        Ok(Some(Frame {
            kind,
            channel,
            payload,
        }))
    }
}

fn parse_u32(bytes: &[u8]) -> io::Result<u32> {
    let bytes: [u8; 4] = bytes
        .try_into()
        .map_err(|_| invalid("a number of the wrong length in a frame"))?;
    Ok(u32::from_le_bytes(bytes))
}

fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

/// The first message of both ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of the sender.
    pub version: u32,
    /// The kernel release of the guest; empty from the lab.
    pub kernel: String,
}

/// The request for which a channel is opened.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Run a command; the streams are its standard streams.
    Exec(Exec),
    /// Write the input stream to a file, which gets its name when it is complete.
    Push {
        /// The path in the guest. If it is a directory, the file gets `name` there.
        path: String,
        /// The name in case the path is a directory.
        name: String,
        /// The permission bits.
        mode: u32,
    },
    /// Read a file as the output stream.
    Pull {
        /// The path in the guest.
        path: String,
    },
}

/// A command to run in a guest.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Exec {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Variables added to the environment.
    pub env: Vec<(String, String)>,
    /// The working folder, `/root` by default.
    pub cwd: Option<String>,
    /// Whether an input stream follows; if not, the input is `/dev/null`.
    pub stdin: bool,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The command exited.
    Exited(i32),
    /// A signal ended the command.
    Signaled(i32),
    /// The file was copied as a whole.
    File {
        /// The permission bits.
        mode: u32,
        /// The size.
        size: u64,
    },
    /// The request failed. The number is an errno, 0 if there is none.
    Failed {
        /// The failure, for people.
        message: String,
        /// The errno of the failure.
        errno: i32,
    },
    /// The guest died meanwhile. The lab's owner makes this for its clients.
    Lost(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_frames_are_read_back() {
        let frames = [
            Frame::new(Kind::Stdin, 7, b"abc".to_vec()),
            Frame::credit(1, Stream::Stderr, 99),
            Frame::signal(u32::MAX, 9),
            Frame::new(Kind::StdinEnd, 0, Vec::new()),
        ];
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.write(&mut bytes).unwrap();
        }
        let mut from = bytes.as_slice();
        for frame in &frames {
            assert_eq!(Frame::read(&mut from).unwrap().as_ref(), Some(frame));
        }
        assert_eq!(Frame::read(&mut from).unwrap(), None);
        assert_eq!(frames[1].parse_credit().unwrap(), (Stream::Stderr, 99));
        assert_eq!(frames[2].parse_signal().unwrap(), 9);
    }

    #[test]
    fn malformed_frames_are_refused() {
        let mut long = (MAX_PAYLOAD as u32 + 1).to_le_bytes().to_vec();
        long.extend_from_slice(&[3, 0, 0, 0, 0]);
        assert!(Frame::read(&mut long.as_slice()).is_err());
        let unknown = [0, 0, 0, 0, 99, 0, 0, 0, 0];
        assert!(Frame::read(&mut unknown.as_slice()).is_err());
        let cut = [4, 0, 0, 0, 3, 0, 0, 0, 0, 1];
        assert!(Frame::read(&mut cut.as_slice()).is_err());
        assert!(
            Frame::new(Kind::Credit, 1, vec![9, 0, 0, 0, 0])
                .parse_credit()
                .is_err()
        );
        assert!(
            Frame::new(Kind::Stdin, 1, vec![0; MAX_PAYLOAD + 1])
                .write(&mut Vec::new())
                .is_err()
        );
    }
}
