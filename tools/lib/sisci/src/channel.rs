// SPDX-License-Identifier: LGPL-2.1

//! A connection that carries frames in both directions.
//!
//! Lock: `reader` is a leaf. It is held while frames are received, so that they are handed out in
//! order.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::deadline::Deadline;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::error::Result;
use crate::lock::lock;
use crate::protocol::Frame;
use crate::protocol::Hello;
use crate::protocol::Reader;
use crate::protocol::Welcome;

/// Bytes that are received at once, in pieces of [`PIECE`]. The limit gives other connections their
/// turn while a peer sends without end.
const MOST_AT_ONCE: usize = 4 * PIECE;

const PIECE: usize = 4096;

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The peer has closed the channel, or its process has ended, or its node is lost.
    Gone,
    /// The peer has sent bytes that are no frame.
    Malformed,
}

/// A connection and the frames that arrived on it.
pub struct Channel {
    /// The endpoint, for operations other than frames.
    pub endpoint: Endpoint,
    /// The node of the other end.
    pub node: u16,
    reader: Mutex<Reader>,
    /// Frames that came right behind the welcome.
    early: Mutex<Vec<Frame>>,
    said_bye: AtomicBool,
}

impl Channel {
    /// Makes a channel of a connected endpoint.
    pub fn new(endpoint: Endpoint, node: u16) -> Self {
        Self {
            endpoint,
            node,
            reader: Mutex::new(Reader::default()),
            early: Mutex::new(Vec::new()),
            said_bye: AtomicBool::new(false),
        }
    }

    /// Connects to a name and sends the hello. Returns the welcome.
    pub fn connect(
        node: u16,
        class: u32,
        hello: Hello,
        deadline: Deadline,
    ) -> Result<(Self, Welcome)> {
        let endpoint = Endpoint::connected(node, class, hello.number, deadline);
        let channel = Self::new(endpoint.map_err(|error| connect_error(node, error))?, node);
        channel.send(&Frame::Hello(hello))?;
        let mut answer = None;
        while answer.is_none() {
            let mut early = Vec::new();
            let ended = channel.receive(|frame| match answer {
                None => answer = Some(frame),
                Some(_) => early.push(frame),
            });
            *lock(&channel.early) = early;
            if answer.is_some() {
                break;
            }
            if ended.is_err() {
                return Err(Error::CONNECTION_REFUSED);
            }
            if !channel.endpoint.wait(PollFlags::IN, deadline)? {
                return Err(Error::TIMEOUT);
            }
        }
        match answer {
            Some(Frame::Welcome(welcome)) => Ok((channel, welcome)),
            Some(Frame::Refuse(code)) => Err(Error::from_code(code)),
            _ => Err(Error::CONNECTION_REFUSED),
        }
    }

    /// Sends a frame as a whole. EWOULD_BLOCK: there is no room for it now.
    pub fn send(&self, frame: &Frame) -> Result<()> {
        self.endpoint
            .send(&frame.encode())
            .map_err(|error| match error {
                Errno::AGAIN => Error::EWOULD_BLOCK,
                _ => Error::NOT_CONNECTED,
            })
    }

    /// Hands received frames to `take`, at most [`MOST_AT_ONCE`] bytes. Does not wait. The endpoint
    /// stays readable while bytes are left.
    pub fn receive(&self, mut take: impl FnMut(Frame)) -> core::result::Result<(), End> {
        let early = core::mem::take(&mut *lock(&self.early));
        early.into_iter().for_each(&mut take);
        let mut reader = lock(&self.reader);
        let mut bytes = [0; PIECE];
        for _ in 0..MOST_AT_ONCE / PIECE {
            let count = match self.endpoint.receive(&mut bytes) {
                Ok(count) => count,
                Err(Errno::AGAIN) => 0,
                Err(_) => return Err(End::Gone),
            };
            reader.push(bytes.get(..count).unwrap_or_default());
            while let Some(frame) = reader.next().map_err(|_| End::Malformed)? {
                match frame {
                    Frame::Bye => self.said_bye.store(true, Relaxed),
                    frame => take(frame),
                }
            }
            if count < bytes.len() {
                break;
            }
        }
        Ok(())
    }

    /// Returns whether the peer has announced the end of the connection.
    pub fn said_bye(&self) -> bool {
        self.said_bye.load(Relaxed)
    }

    /// Announces that this side ends the connection.
    pub fn say_bye(&self) {
        // If the message does not fit, the peer still sees the connection end.
        let _ = self.send(&Frame::Bye);
    }
}

/// Translates the error of a connect to a name.
fn connect_error(node: u16, error: Errno) -> Error {
    match error {
        Errno::NOENT => Error::NO_SUCH_SEGMENT,
        Errno::CONNREFUSED => Error::CONNECTION_REFUSED,
        Errno::TIMEDOUT => Error::TIMEOUT,
        Errno::NODEV | Errno::CONNRESET => match crate::nodes::check_reachable(node) {
            Err(error) => error,
            Ok(()) => Error::NODE_NOT_RESPONDING,
        },
        error => error.into(),
    }
}
