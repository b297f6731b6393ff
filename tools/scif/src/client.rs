// SPDX-License-Identifier: GPL-2.0

//! Requests to a `scif serve`: the client's side of the conversation.
//!
//! Generic over the transport, like the server's side. Local files are opened and named by the
//! callers in [`crate::command`].

use crate::confine::Found;
use crate::error::Error;
use crate::error::Result;
use crate::new_file::NewFile;
use crate::protocol::Hash;
use crate::protocol::Message;
use crate::protocol::Window;
use crate::session::Session;
use crate::transfer::Receiver;
use crate::transfer::send_content;
use crate::transfer::tell;
use crate::transport::Transport;
use std::time::Duration;
use std::time::Instant;

/// A caller that watches a transfer.
pub trait Observer {
    /// Notes that the transfer starts, and that `size` bytes are to come.
    fn start(&mut self, size: u64);
    /// Notes that `bytes` more have been moved.
    fn advance(&mut self, bytes: u64);
}

impl Observer for () {
    fn start(&mut self, _size: u64) {}
    fn advance(&mut self, _bytes: u64) {}
}

/// The result of a copy. Both ends have found the same hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Number of bytes.
    pub bytes: u64,
    /// The hash of this end.
    pub own: Hash,
    /// The hash of the other end.
    pub peer: Hash,
}

/// Sends a ping and waits for its echo.
pub fn ping<T: Transport>(session: &Session<T>, bytes: &[u8]) -> Result<Duration> {
    session.set_activity("a ping");
    let ping = Message::Ping {
        bytes: bytes.to_vec(),
    };
    let started = Instant::now();
    session.send(&ping)?;
    let answer = session.receive()?;
    let took = started.elapsed();
    match answer {
        Message::Pong { bytes: echo } if echo == bytes => Ok(took),
        Message::Pong { .. } => Err(session.protocol("other bytes came back than were sent")),
        message => Err(session.unexpected(&message)),
    }
}

/// Sends a file to `path` of the server, or to `name` in `path` if that is a directory.
pub fn put<T: Transport>(
    session: &Session<T>,
    mut source: Found,
    path: &[u8],
    name: &[u8],
    observer: &mut dyn Observer,
) -> Result<Copied> {
    session.set_activity("the copy");
    session.send(&Message::Put {
        mode: source.mode,
        size: source.size,
        path: path.to_vec(),
        name: name.to_vec(),
    })?;
    let window = ready(session)?;
    observer.start(source.size);
    let mut advance = |bytes| observer.advance(bytes);
    let size = source.size;
    let hash = send_content(session, &mut source.file, size, window, &mut advance)
        .inspect_err(|error| tell(session, error))?;
    Ok(Copied {
        bytes: size,
        own: hash,
        peer: hash,
    })
}

/// Gets the file `path` of the server into `target`.
pub fn get<T: Transport>(
    session: &Session<T>,
    path: &[u8],
    target: NewFile,
    observer: &mut dyn Observer,
) -> Result<Copied> {
    session.set_activity("the copy");
    receive(session, path, target, observer).inspect_err(|error| tell(session, error))
}

fn receive<T: Transport>(
    session: &Session<T>,
    path: &[u8],
    mut target: NewFile,
    observer: &mut dyn Observer,
) -> Result<Copied> {
    let receiver = Receiver::new(session, None)?;
    session.send(&Message::Get {
        path: path.to_vec(),
        window: receiver.window(),
    })?;
    let (mode, size) = match session.receive()? {
        Message::Found { mode, size } => (mode, size),
        message => return Err(session.unexpected(&message)),
    };
    observer.start(size);
    let hash = receiver.receive(&mut target, size, &mut |bytes| observer.advance(bytes))?;
    target
        .commit(mode)
        .map_err(Error::local("cannot complete the received file"))?;
    // The file is complete and correct; whether the server learns of it changes nothing.
    let _ = session.send(&Message::Done { hash });
    Ok(Copied {
        bytes: size,
        own: hash,
        peer: hash,
    })
}

/// Asks for a window of `size` bytes for measurements. It lives until the next request for a
/// window, or the end of the conversation.
pub fn bench_window<T: Transport>(session: &Session<T>, size: u32) -> Result<Window> {
    session.set_activity("the measurement");
    session.send(&Message::Bench { size })?;
    let window = ready(session)?;
    if window.buffer < size {
        return Err(session.protocol("a smaller window than asked for"));
    }
    Ok(window)
}

fn ready<T: Transport>(session: &Session<T>) -> Result<Window> {
    match session.receive()? {
        Message::Ready { window } => Ok(window),
        message => Err(session.unexpected(&message)),
    }
}
