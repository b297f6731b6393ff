// SPDX-License-Identifier: GPL-2.0

//! The work of `scif serve` for one client.
//!
//! The server handles one request at a time. A request that fails is answered with the reason and
//! ends the conversation. No value of a client is trusted: see [`crate::confine`] for paths and
//! [`crate::transfer`] for content. [`crate::command`] listens and starts threads.

pub mod measure;
pub mod room;
pub mod shares;

use crate::confine::Root;
use crate::confine::show;
use crate::device::Protection;
use crate::error::Error;
use crate::error::Result;
use crate::protocol::Message;
use crate::protocol::Window;
use crate::region::Pages;
use crate::region::Region;
use crate::session::Session;
use crate::transfer::Receiver;
use crate::transfer::hexadecimal;
use crate::transfer::send_content;
use crate::transfer::tell;
use crate::transport::Transport;
use measure::Guest;
use measure::Sleepers;
use room::Room;
use shares::Origin;
use shares::ResourceKind;
use shares::Share;
use shares::Shares;
use std::sync::Arc;

/// The largest window a client may have for measurements.
pub const LARGEST_BENCH: usize = 64 << 20;

/// The service for all clients.
#[derive(Debug)]
pub struct Service {
    /// The folder.
    pub root: Root,
    /// Whether clients can get files and not put any.
    pub read_only: bool,
    /// Whether clients may measure.
    pub bench: bool,
    /// Room for files that are put.
    pub room: Room,
    /// The resources that the clients of each node hold.
    pub shares: Shares,
    /// Threads whose client measures messages.
    pub sleepers: Sleepers,
}

impl Service {
    /// Creates the service of a folder.
    pub fn new(root: Root, read_only: bool) -> Self {
        Self {
            root,
            read_only,
            bench: false,
            room: Room::default(),
            shares: Shares::default(),
            sleepers: Sleepers::default(),
        }
    }
}

/// Serves one client until it goes. Calls `log` with one line for each request.
pub fn serve<T: Transport>(
    service: &Service,
    origin: Origin,
    session: &Session<T>,
    log: &dyn Fn(&str),
) {
    if let Err(error) = requests(service, origin, session, log) {
        tell(session, &error);
        log(&error.to_string());
    }
}

/// Returns the refusal of a measurement if the server was started without `--bench`.
fn not_measuring() -> Error {
    Error::Refused("this server does not measure: start it with `scif serve --bench`".into())
}

fn requests<T: Transport>(
    service: &Service,
    origin: Origin,
    session: &Session<T>,
    log: &dyn Fn(&str),
) -> Result<()> {
    session.answer_greeting()?;
    let guest = Guest {
        origin,
        shares: &service.shares,
        sleepers: &service.sleepers,
    };
    let mut bench = None;
    // A client that measures first makes all its connections, and then its windows.
    let mut first = !service.bench;
    loop {
        session.set_activity(if first {
            "its first request"
        } else {
            "its pause"
        });
        let message = match session.receive_within(session.patience(first)) {
            Ok(message) => message,
            Err(error @ Error::Lost { .. }) if first && error.timed_out() => return Err(error),
            // This is the usual end of a conversation, whether or not the client announces it.
            Err(Error::Lost { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        first = false;
        match message {
            Message::Put {
                mode,
                size,
                path,
                name,
            } => {
                let file = Announced {
                    mode,
                    size,
                    path,
                    name,
                };
                put(service, origin, session, &file, log)?;
            }
            Message::Get { path, window } => get(service, session, &path, window, log)?,
            Message::Bench { .. } | Message::Ring | Message::Raw(_) | Message::Accept { .. }
                if !service.bench =>
            {
                return Err(not_measuring());
            }
            Message::Bench { size } => {
                // The former window goes first: a client has one window at a time.
                drop(bench.take());
                bench = Some(Bench::new(session, &guest, size)?);
            }
            Message::Ring => return measure::serve_over_ring(session, &guest),
            message => measure::answer(session, message, &guest)?,
        }
    }
}

/// A file that a client is about to send: the fields of [`Message::Put`].
struct Announced {
    mode: u32,
    size: u64,
    path: Vec<u8>,
    name: Vec<u8>,
}

fn put<T: Transport>(
    service: &Service,
    origin: Origin,
    session: &Session<T>,
    announced: &Announced,
    log: &dyn Fn(&str),
) -> Result<()> {
    session.set_activity("the copy");
    if service.read_only {
        return Err(Error::Refused(
            "cannot write: this server is read-only".into(),
        ));
    }
    let Announced { mode, size, .. } = *announced;
    let stored = service.shares.take(origin, ResourceKind::Stored, size)?;
    let (mut file, path) = service.root.create(&announced.path, &announced.name)?;
    let mut coming = service.room.admit(&file, size)?;
    let receiver = Receiver::new(session, Some(size))?;
    session.send(&Message::Ready {
        window: receiver.window(),
    })?;
    let hash = receiver
        .receive(&mut file, size, &mut |bytes| coming.written(bytes))
        .inspect_err(|_| log(&format!("nothing was written to {}", show(&path))))?;
    file.commit(mode)
        .map_err(Error::local(format!("cannot complete {}", show(&path))))?;
    stored.keep();
    log(&format!(
        "wrote {}, {size} bytes, sha256 {}",
        show(&path),
        hexadecimal(&hash)
    ));
    session.send(&Message::Done { hash })
}

fn get<T: Transport>(
    service: &Service,
    session: &Session<T>,
    path: &[u8],
    window: Window,
    log: &dyn Fn(&str),
) -> Result<()> {
    session.set_activity("the copy");
    let mut found = service.root.read(path)?;
    let (mode, size) = (found.mode, found.size);
    session.send(&Message::Found { mode, size })?;
    let hash = send_content(session, &mut found.file, size, window, &mut |_| ())?;
    log(&format!(
        "read {}, {size} bytes, sha256 {}",
        show(path),
        hexadecimal(&hash)
    ));
    Ok(())
}

/// A window for measurements.
struct Bench<'a, T: Transport> {
    session: &'a Session<T>,
    region: Arc<Region>,
    offset: i64,
    _memory: Share<'a>,
}

impl<'a, T: Transport> Bench<'a, T> {
    fn new(session: &'a Session<T>, guest: &Guest<'a>, size: u32) -> Result<Self> {
        let size = size as usize;
        if size > LARGEST_BENCH {
            return Err(Error::Refused(format!(
                "a window for measurements can have {LARGEST_BENCH} bytes, not {size}"
            )));
        }
        let memory = guest.take(ResourceKind::Memory, size as u64)?;
        // With huge pages, if the system has any, the memory consists of few pieces. So the client
        // measures the transfer, and not the handling of scatter lists.
        let region = Region::of_pages(size.max(1), Pages::Huge)
            .map_err(Error::local("cannot allocate a window"))?;
        let region = Arc::new(region);
        let offset = session.register(&region, Protection::ReadWrite)?;
        let bench = Self {
            session,
            region,
            offset,
            _memory: memory,
        };
        let window = Window {
            offset,
            buffer: bench.region.len() as u32,
            buffers: 1,
        };
        session.send(&Message::Ready { window })?;
        Ok(bench)
    }
}

impl<T: Transport> Drop for Bench<'_, T> {
    fn drop(&mut self) {
        // If this fails, the connection is gone and the window with it.
        let _ = self
            .session
            .transport()
            .unregister(self.offset, self.region.len());
    }
}
