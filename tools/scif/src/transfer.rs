// SPDX-License-Identifier: GPL-2.0

//! Moving the content of one file, in either direction.
//!
//! The receiver offers a window of a few buffers. The sender reads the file into a buffer of its
//! own while DMA moves the buffer before into the receiver's window. When its fence has passed, the
//! sender announces the buffer. The receiver copies an announced buffer out of the window once,
//! hashes and writes that copy, and returns the buffer as a credit. Neither side trusts its peer
//! beyond the agreement: order, lengths and total are checked.

use crate::device::Mark;
use crate::device::Protection;
use crate::device::Rma;
use crate::error::Error;
use crate::error::Result;
use crate::protocol::Hash;
use crate::protocol::Message;
use crate::protocol::Window;
use crate::region::Region;
use crate::session::SYNC_TIMEOUT;
use crate::session::Session;
use crate::transport::Transport;
use sha2::Digest;
use sha2::Sha256;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::io::Read;
use std::io::Write;
use std::sync::Arc;

/// The size of a buffer.
pub const BUFFER: usize = 1 << 20;

/// The buffers of a receiver.
pub const BUFFERS: usize = 4;

/// The buffers of a sender: one is being filled, one is in flight.
const OWN_BUFFERS: usize = 2;

/// Size of the pieces that are copied out of a window: a piece stays in the cache until it is
/// hashed and written.
const PIECE: usize = 128 * 1024;

/// A callback that gets the number of bytes moved since the last call.
pub type Progress<'a> = &'a mut dyn FnMut(u64);

/// Tells the peer why a request ends here, unless the peer knows. The conversation is over then.
pub fn tell<T: Transport>(session: &Session<T>, error: &Error) {
    match error {
        Error::Peer { .. }
        | Error::Lost { .. }
        | Error::Unconfirmed(_)
        | Error::Mismatch { .. } => {}
        error => session.send_failure(error),
    }
}

/// Returns a hash as people write it.
pub fn hexadecimal(hash: &Hash) -> String {
    hash.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The sender's side of a transfer in progress.
struct Sender<'a, T> {
    session: &'a Session<T>,
    window: Window,
    /// Copies whose fence has not been waited for, with their lengths.
    flying: VecDeque<(Mark, usize)>,
    started: u64,
    announced: u64,
    credited: u64,
}

impl<T: Transport> Sender<'_, T> {
    /// Waits for the oldest copy and announces it to the receiver.
    fn announce(&mut self) -> Result<()> {
        let Some((mark, length)) = self.flying.pop_front() else {
            return Ok(());
        };
        let session = self.session;
        let explain = |error| session.explain(error);
        session.transport().wait(mark).map_err(explain)?;
        session.send(&Message::Chunk {
            sequence: self.announced,
            length: length as u32,
        })?;
        self.announced += 1;
        Ok(())
    }

    fn credit(&mut self, sequence: u64) -> Result<()> {
        if sequence != self.credited || sequence >= self.announced {
            return Err(self.session.protocol("a credit for nothing"));
        }
        self.credited += 1;
        Ok(())
    }

    /// Starts the copy of a filled buffer.
    fn start(&mut self, local: i64, length: usize) -> Result<()> {
        while self.started - self.credited >= u64::from(self.window.buffers) {
            while !self.flying.is_empty() {
                self.announce()?;
            }
            match self.session.receive()? {
                Message::Credit { sequence } => self.credit(sequence)?,
                message => return Err(self.session.unexpected(&message)),
            }
        }
        let session = self.session;
        let transport = session.transport();
        let remote = self.window.start(self.started);
        let mark = transport
            .write_to(local, length, remote, Rma::default())
            .and_then(|()| transport.mark())
            .map_err(|error| session.explain(error))?;
        self.flying.push_back((mark, length));
        self.started += 1;
        Ok(())
    }
}

/// Sends the `size` bytes of `source` into the peer's window. Returns the hash of the sent bytes.
///
/// The caller must report an error to the peer by [`tell`].
pub fn send_content<T: Transport>(
    session: &Session<T>,
    source: &mut impl Read,
    size: u64,
    window: Window,
    progress: Progress<'_>,
) -> Result<Hash> {
    let buffer = BUFFER.min(window.buffer as usize);
    let region = Arc::new(
        Region::new(buffer * OWN_BUFFERS).map_err(Error::local("cannot allocate buffers"))?,
    );
    let local = session.register(&region, Protection::Read)?;
    let sent = send_registered(session, source, size, window, &region, local, progress);
    // This must not fail unnoticed: the next transfer of the connection registers a buffer of its
    // own.
    let ended = session.transport().unregister(local, region.len());
    let hash = sent?;
    ended.map_err(|error| session.explain(error))?;
    Ok(hash)
}

fn send_registered<T: Transport>(
    session: &Session<T>,
    source: &mut impl Read,
    size: u64,
    window: Window,
    region: &Region,
    local: i64,
    progress: Progress<'_>,
) -> Result<Hash> {
    let buffer = region.len() / OWN_BUFFERS;
    // Rounding up to pages may have made our buffers larger than the peer's.
    let largest = buffer.min(window.buffer as usize);
    let mut sender = Sender {
        session,
        window,
        flying: VecDeque::new(),
        started: 0,
        announced: 0,
        credited: 0,
    };
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut left = size;
    while left > 0 {
        let slot = (sender.started % OWN_BUFFERS as u64) as usize * buffer;
        let length = usize::try_from(left).map_or(largest, |left| left.min(largest));
        let mut filled = 0;
        while filled < length {
            let piece = &mut piece[..PIECE.min(length - filled)];
            source
                .read_exact(piece)
                .and_then(|()| region.write(slot + filled, piece))
                .map_err(shrunk)?;
            hash.update(&*piece);
            filled += piece.len();
        }
        sender.start(local + slot as i64, length)?;
        // The other buffer is filled next, so its copy must be complete by then.
        while sender.flying.len() >= OWN_BUFFERS {
            sender.announce()?;
        }
        left -= length as u64;
        progress(length as u64);
    }
    if source.read(&mut piece[..1]).is_ok_and(|more| more > 0) {
        return Err(changed("longer"));
    }
    while !sender.flying.is_empty() {
        sender.announce()?;
    }
    let hash = hash.finalize().into();
    session.send(&Message::End { hash })?;
    loop {
        let message = session
            .receive_within(SYNC_TIMEOUT)
            .map_err(|error| match error {
                Error::Lost { .. } => Error::Unconfirmed(Box::new(error)),
                error => error,
            })?;
        match message {
            Message::Credit { sequence } => sender.credit(sequence)?,
            Message::Done { hash: received } if received == hash => return Ok(hash),
            Message::Done { hash: received } => return Err(mismatch(&hash, &received)),
            message => return Err(session.unexpected(&message)),
        }
    }
}

fn changed(how: &str) -> Error {
    Error::Refused(format!(
        "the file became {how} while it was being sent: copy it again when no program writes to it"
    ))
}

fn shrunk(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        changed("shorter")
    } else {
        Error::local("cannot read the file to send")(error)
    }
}

fn mismatch(sent: &Hash, received: &Hash) -> Error {
    Error::Mismatch {
        sent: hexadecimal(sent),
        received: hexadecimal(received),
    }
}

/// The receiver's buffers, registered.
pub struct Receiver<'a, T: Transport> {
    session: &'a Session<T>,
    region: Arc<Region>,
    window: Window,
}

impl<'a, T: Transport> Receiver<'a, T> {
    /// Registers buffers for a file of `size` bytes, if the size is known.
    pub fn new(session: &'a Session<T>, size: Option<u64>) -> Result<Self> {
        let size = size.and_then(|size| usize::try_from(size).ok());
        let buffer = size.map_or(BUFFER, |size| size.clamp(1, BUFFER));
        let buffer = buffer.next_multiple_of(crate::region::page_size());
        let buffers = size.map_or(BUFFERS, |size| size.div_ceil(buffer).clamp(1, BUFFERS));
        let region = Arc::new(
            Region::new(buffer * buffers).map_err(Error::local("cannot allocate buffers"))?,
        );
        let offset = session.register(&region, Protection::Write)?;
        Ok(Self {
            session,
            region,
            window: Window {
                offset,
                buffer: buffer as u32,
                buffers: buffers as u32,
            },
        })
    }

    /// Returns the window for the sender.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Receives `size` bytes into `target`. Returns their hash, which is the sender's as well.
    ///
    /// The caller sends [`Message::Done`] when the file has its name, and reports errors by
    /// [`tell`].
    pub fn receive(
        &self,
        target: &mut impl Write,
        size: u64,
        progress: Progress<'_>,
    ) -> Result<Hash> {
        let session = self.session;
        let mut hash = Sha256::new();
        let mut piece = vec![0; PIECE];
        let mut received = 0u64;
        let mut expected = 0u64;
        loop {
            match session.receive()? {
                Message::Chunk { sequence, length } => {
                    let end = received.checked_add(length.into());
                    if sequence != expected || length == 0 || length > self.window.buffer {
                        return Err(session.protocol("a chunk that was not agreed on"));
                    }
                    let Some(end) = end.filter(|end| *end <= size) else {
                        return Err(session.protocol("more content than announced"));
                    };
                    let start = (sequence % u64::from(self.window.buffers)) as usize
                        * self.window.buffer as usize;
                    let length = length as usize;
                    for done in (0..length).step_by(PIECE) {
                        let piece = &mut piece[..PIECE.min(length - done)];
                        self.region
                            .read(start + done, piece)
                            .and_then(|()| target.write_all(piece))
                            .map_err(Error::local("cannot write the file"))?;
                        hash.update(&*piece);
                    }
                    session.send(&Message::Credit { sequence })?;
                    progress(length as u64);
                    received = end;
                    expected += 1;
                }
                Message::End { .. } if received != size => {
                    return Err(session.protocol("less content than announced"));
                }
                Message::End { hash: sent } => {
                    let received: Hash = hash.finalize().into();
                    if received != sent {
                        // The message tells the sender of the mismatch: see `protocol`.
                        session.send(&Message::Done { hash: received })?;
                        return Err(mismatch(&sent, &received));
                    }
                    return Ok(received);
                }
                message => return Err(session.unexpected(&message)),
            }
        }
    }
}

impl<T: Transport> Drop for Receiver<'_, T> {
    fn drop(&mut self) {
        // If this fails, the connection is gone and the window with it.
        let _ = self
            .session
            .transport()
            .unregister(self.window.offset, self.region.len());
    }
}
