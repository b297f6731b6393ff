// SPDX-License-Identifier: GPL-2.0
//! The lab's end of a guest's agent: requests over one connection, many at a time.
//!
//! One thread reads the connection and hands each frame to the sink of its channel; a sink must not
//! block. When the connection ends, the sink of every open channel gets the reason.

use std::collections::HashMap;
use std::io;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use crate::limits::hang_limit;
use crate::lock::lock;
use crate::wire::Frame;
use crate::wire::Hello;
use crate::wire::Kind;
use crate::wire::Request;
use crate::wire::VERSION;

/// An event for a channel's sink.
#[derive(Debug)]
pub enum Event {
    /// A frame of this channel; one of kind `Done` is the last event.
    Frame(Frame),
    /// The guest is gone, with the reason; the last event.
    Lost(String),
}

type Sink = Arc<dyn Fn(Event) + Send + Sync>;
type Reason = Box<dyn Fn() -> String + Send + Sync>;

#[derive(Default)]
struct Channels {
    last: u32,
    open: HashMap<u32, Sink>,
    lost: Option<String>,
}

struct Shared {
    writer: Mutex<UnixStream>,
    channels: Mutex<Channels>,
}

/// The connection to one agent. Clones share it.
#[derive(Clone)]
pub struct Guest {
    shared: Arc<Shared>,
}

impl Guest {
    /// Greets the agent behind `stream`, and waits at most `limit` for its answer. `reason` is
    /// called when the connection has ended, and tells why.
    pub fn greet(
        stream: UnixStream,
        limit: Duration,
        reason: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<(Guest, Hello)> {
        // A guest that stops reading must not make the lab hang for ever.
        stream.set_write_timeout(Some(hang_limit(60)))?;
        let reader = stream.try_clone()?;
        let guest = Guest {
            shared: Arc::new(Shared {
                writer: Mutex::new(stream),
                channels: Mutex::default(),
            }),
        };
        let (sender, receiver) = mpsc::channel();
        // Channel 0 is that of the greeting.
        lock(&guest.shared.channels).open.insert(
            0,
            Arc::new(move |event| {
                let _ = sender.send(event);
            }),
        );
        let shared = Arc::clone(&guest.shared);
        thread::spawn(move || read_frames(&shared, reader, Box::new(reason)));
        let hello = guest.exchange_hello(&receiver, limit).inspect_err(|_| {
            // The reader's thread would keep the connection, and QEMU takes only one at a time.
            guest.close();
        })?;
        Ok((guest, hello))
    }

    /// Sends this end's greeting. Returns the agent's.
    fn exchange_hello(&self, receiver: &mpsc::Receiver<Event>, limit: Duration) -> Result<Hello> {
        let hello = Hello {
            version: VERSION,
            kernel: String::new(),
        };
        self.write(&Frame::json(Kind::Hello, 0, &hello)?)
            .context("cannot greet the agent")?;
        let hello: Hello = match receiver.recv_timeout(limit) {
            Ok(Event::Frame(frame)) => frame.parse()?,
            Ok(Event::Lost(reason)) => bail!("{reason}"),
            Err(_) => bail!("its agent did not answer within {} s", limit.as_secs()),
        };
        if hello.version != VERSION {
            bail!(
                "its agent speaks version {} and the lab version {VERSION}: build both from the same source",
                hello.version
            );
        }
        Ok(hello)
    }

    /// Opens a channel. The sink is called from the reader's thread and must not block.
    pub fn open(
        &self,
        request: &Request,
        sink: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<u32> {
        let number = {
            let mut channels = lock(&self.shared.channels);
            if let Some(reason) = &channels.lost {
                bail!("{reason}");
            }
            loop {
                channels.last = channels.last.wrapping_add(1).max(1);
                if !channels.open.contains_key(&channels.last) {
                    break;
                }
            }
            let number = channels.last;
            channels.open.insert(number, Arc::new(sink));
            number
        };
        let frame = Frame::json(Kind::Open, number, request)?;
        if frame.payload.len() > crate::wire::MAX_PAYLOAD {
            lock(&self.shared.channels).open.remove(&number);
            bail!(
                "the command line is too long: {} bytes",
                frame.payload.len()
            );
        }
        // If this fails, the reader sees the end of the connection as well, and tells the sink.
        let _ = self.write(&frame);
        Ok(number)
    }

    /// Sends a frame of an open channel.
    pub fn send(&self, frame: &Frame) -> io::Result<()> {
        self.write(frame)
    }

    fn write(&self, frame: &Frame) -> io::Result<()> {
        let mut writer = lock(&self.shared.writer);
        frame.write(&mut *writer).inspect_err(|_| {
            // A part of a frame may be sent: no later frame would make sense.
            let _ = writer.shutdown(std::net::Shutdown::Both);
        })
    }

    /// Ends the connection.
    pub fn close(&self) {
        let _ = lock(&self.shared.writer).shutdown(std::net::Shutdown::Both);
    }
}

fn read_frames(shared: &Shared, stream: UnixStream, reason: Reason) {
    let mut stream = BufReader::with_capacity(64 * 1024, stream);
    let broken = loop {
        match Frame::read(&mut stream) {
            Ok(Some(frame)) => dispatch(shared, frame),
            Ok(None) => break None,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                break Some(format!("its agent talks nonsense: {error}"));
            }
            Err(_) => break None,
        }
    };
    let reason = broken.unwrap_or_else(reason);
    let open = {
        let mut channels = lock(&shared.channels);
        channels.lost = Some(reason.clone());
        std::mem::take(&mut channels.open)
    };
    for sink in open.into_values() {
        sink(Event::Lost(reason.clone()));
    }
}

fn dispatch(shared: &Shared, frame: Frame) {
    let sink = {
        let mut channels = lock(&shared.channels);
        match frame.kind {
            Kind::Done | Kind::Hello => channels.open.remove(&frame.channel),
            _ => channels.open.get(&frame.channel).cloned(),
        }
    };
    if let Some(sink) = sink {
        sink(Event::Frame(frame));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn unanswered_greeting_closes_the_connection() {
        let (stream, mut agent) = UnixStream::pair().unwrap();
        let limit = Duration::from_millis(10);
        assert!(Guest::greet(stream, limit, || "gone".to_owned()).is_err());
        agent.set_read_timeout(Some(hang_limit(60))).unwrap();
        // The agent gets the greeting, and then the end.
        let mut said = Vec::new();
        agent.read_to_end(&mut said).unwrap();
        assert!(!said.is_empty());
    }
}
