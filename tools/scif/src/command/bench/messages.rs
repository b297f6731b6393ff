// SPDX-License-Identifier: GPL-2.0

//! `send-lat` and `send-bw`: messages, and nothing but their bytes.

use super::figures::Row;
use super::figures::Setup;
use super::figures::show;
use super::measure::Plan;
use super::measure::measure;
use super::options::Carrier;
use super::options::Common;
use super::options::Parallel;
use super::options::Sizes;
use super::options::Transport;
use super::options::Waiting;
use super::peer;
use super::work::Times;
use super::work::Work;
use crate::error::Result;
use crate::protocol::Message;
use crate::protocol::Raw;
use crate::session::Session;
use crate::transport::Bytes;
use crate::transport::Wait;

/// Round trips of messages
///
/// The client sends a message, the server sends it back, and then the client sends the next one.
/// Each side sends and receives by one call. The receiver sleeps in that call until the message
/// arrives. With --poll the receiver calls again and again instead.
#[derive(Debug, clap::Args)]
pub struct Latency {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    sizes: Sizes,
    #[command(flatten)]
    parallel: Parallel,
    #[command(flatten)]
    transport: Transport,
    #[command(flatten)]
    waiting: Waiting,
}

/// A stream of messages in one direction
///
/// The time ends when the server has received the last message.
#[derive(Debug, clap::Args)]
pub struct Bandwidth {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    sizes: Sizes,
    #[command(flatten)]
    parallel: Parallel,
    #[command(flatten)]
    transport: Transport,
    #[command(flatten)]
    waiting: Waiting,
}

impl Latency {
    pub(super) fn run(&self) -> Result<()> {
        let stream = Stream {
            measurement: "send-lat",
            common: &self.common,
            sizes: self.sizes.list(1),
            parallel: self.parallel,
            carrier: self.transport.transport,
            wait: self.waiting.wait(),
            back: true,
        };
        peer::over(stream.carrier, &self.common, &stream)
    }
}

impl Bandwidth {
    pub(super) fn run(&self) -> Result<()> {
        let wait = self.waiting.wait();
        let carrier = self.transport.transport;
        one_way(
            "send-bw",
            &self.common,
            &self.sizes,
            self.parallel,
            carrier,
            wait,
        )
    }
}

/// Measures bytes in one direction, under the name of any measurement.
pub fn one_way(
    measurement: &'static str,
    common: &Common,
    sizes: &Sizes,
    parallel: Parallel,
    carrier: Carrier,
    wait: Wait,
) -> Result<()> {
    let stream = Stream {
        measurement,
        common,
        sizes: sizes.list(1),
        parallel,
        carrier,
        wait,
        back: false,
    };
    peer::over(carrier, common, &stream)
}

/// A measurement of messages.
struct Stream<'a> {
    measurement: &'static str,
    common: &'a Common,
    sizes: Vec<u64>,
    parallel: Parallel,
    carrier: Carrier,
    wait: Wait,
    back: bool,
}

impl peer::Both for Stream<'_> {
    fn over<T: Bytes + Send>(&self, open: &dyn Fn() -> Result<Session<T>>) -> Result<()> {
        let mut sessions = peer::several(&self.parallel, open)?;
        let parts: &[&str] = if self.back { &["round trip"] } else { &[] };
        let plan = Plan::new(self.common, parts.len());
        let mut rows = Vec::new();
        for &size in &self.sizes {
            let raw = Raw {
                size: size as u32,
                count: 0,
                back: self.back,
                polling: self.wait == Wait::Polling,
            };
            let mut works: Vec<Vec<_>> = sessions
                .iter_mut()
                .map(|thread| {
                    (thread.iter_mut())
                        .map(|session| Messages::new(session, raw))
                        .collect()
                })
                .collect();
            rows.push(Row::of(Some(size), measure(&mut works, &plan)?, parts));
        }
        let setup = Setup {
            measurement: self.measurement,
            peer: self.common.peer.clone(),
            transport: self.carrier,
            polling: Some(self.wait == Wait::Polling),
            threads: sessions.len(),
            connections: sessions.iter().map(Vec::len).sum(),
            ..Setup::default()
        };
        show(setup, rows, self.common.json)
    }
}

/// Messages of one size on one connection.
pub struct Messages<'a, T: Bytes> {
    session: &'a mut Session<T>,
    raw: Raw,
    buffer: Vec<u8>,
}

impl<'a, T: Bytes> Messages<'a, T> {
    /// Prepares messages of one size.
    pub fn new(session: &'a mut Session<T>, raw: Raw) -> Self {
        Self {
            session,
            raw,
            buffer: (0..raw.size).map(|index| index as u8).collect(),
        }
    }

    fn go(&self) -> Result<()> {
        match self.session.receive()? {
            Message::Go => Ok(()),
            message => Err(self.session.unexpected(&message)),
        }
    }
}

impl<T: Bytes + Send> Work for Messages<'_, T> {
    fn begin(&mut self, count: u64) -> Result<()> {
        self.session.set_activity("the measurement");
        self.session
            .send(&Message::Raw(Raw { count, ..self.raw }))?;
        self.go()
    }

    fn step(&mut self, times: &mut Times) -> Result<()> {
        let wait = match self.raw.polling {
            true => Wait::Polling,
            false => Wait::Sleeping,
        };
        let (transport, buffer) = (self.session.transport(), &mut self.buffer);
        let back = self.raw.back;
        times
            .part(0, || {
                transport.send_measured(buffer, wait)?;
                match back {
                    true => transport.recv_measured(buffer, wait),
                    false => Ok(()),
                }
            })
            .map_err(|error| self.session.explain(error))
    }

    fn end(&mut self, _times: &mut Times) -> Result<()> {
        match self.raw.back {
            true => Ok(()),
            false => self.go(),
        }
    }
}
