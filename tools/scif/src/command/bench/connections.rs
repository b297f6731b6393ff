// SPDX-License-Identifier: GPL-2.0

//! `connect`: the time to make a connection and to close it, also with many others open.
//!
//! The server holds its ends until this side has made and closed all connections.

use super::figures::Row;
use super::figures::Setup;
use super::figures::show;
use super::measure::Plan;
use super::measure::measure;
use super::options::Carrier;
use super::options::Common;
use super::options::Transport;
use super::peer;
use super::work::Times;
use super::work::Work;
use crate::device::Endpoint;
use crate::device::PortId;
use crate::error::Error;
use crate::error::Result;
use crate::limits;
use crate::protocol::Message;
use crate::server::shares::MOST_CONNECTIONS;
use crate::session::Session;
use crate::transport::Bytes;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::net::TcpStream;

/// Connections: connect, accept and close
///
/// The time of a connection runs from the creation of its socket or endpoint to the return of
/// connect. This time includes the accept, as connect returns after it.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    transport: Transport,
    /// Number of connections to open before the first one is closed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    connections: u32,
}

impl Arguments {
    pub(super) fn run(&self) -> Result<()> {
        limits::many_files();
        peer::over(self.transport.transport, &self.common, self)
    }

    fn dial(&self) -> Result<Dial> {
        Ok(match self.transport.transport {
            Carrier::Scif => Dial::Scif(peer::node(&self.common)?),
            Carrier::Ring => {
                return Err(Error::Usage(
                    "a ring is made over a connection: measure those with --transport scif".into(),
                ));
            }
            Carrier::Tcp => Dial::Tcp(peer::address(&self.common)?.ip()),
        })
    }
}

impl peer::Both for Arguments {
    fn over<T: Bytes + Send>(&self, open: &dyn Fn() -> Result<Session<T>>) -> Result<()> {
        let parts = ["connect", "close"];
        let mut plan = Plan::new(&self.common, parts.len());
        // The server has all connections of a batch at once.
        plan.iterations =
            Some((plan.iterations).unwrap_or_else(|| self.connections.max(100).into()))
                .map(|count| count.min(MOST_CONNECTIONS.into()));
        plan.warm_up = plan.warm_up.min(plan.time);
        let mut works = vec![vec![Connections {
            session: open()?,
            dial: self.dial()?,
            port: 0,
            most: self.connections as usize,
            open: VecDeque::new(),
        }]];
        let rows = vec![Row::of(None, measure(&mut works, &plan)?, &parts)];
        let setup = Setup {
            measurement: "connect",
            peer: self.common.peer.clone(),
            transport: self.transport.transport,
            threads: 1,
            connections: self.connections as usize,
            ..Setup::default()
        };
        show(setup, rows, self.common.json)
    }
}

/// The way to make a connection.
enum Dial {
    /// A connection to a node.
    Scif(u16),
    /// A connection to an address.
    Tcp(IpAddr),
}

/// A connection that was made.
enum Connected {
    Scif(#[expect(dead_code, reason = "it is only held")] Endpoint),
    Tcp(#[expect(dead_code, reason = "it is only held")] TcpStream),
}

impl Dial {
    fn connect(&self, port: u16) -> io::Result<Connected> {
        match *self {
            Self::Scif(node) => {
                let endpoint = Endpoint::open()?;
                endpoint.connect(PortId { node, port })?;
                Ok(Connected::Scif(endpoint))
            }
            Self::Tcp(address) => TcpStream::connect((address, port)).map(Connected::Tcp),
        }
    }
}

/// Connections to one server.
struct Connections<T> {
    session: Session<T>,
    dial: Dial,
    port: u16,
    most: usize,
    open: VecDeque<Connected>,
}

impl<T: Bytes> Connections<T> {
    fn close(&mut self, times: &mut Times, left: usize) {
        while self.open.len() > left {
            times.part(1, || drop(self.open.pop_front()));
        }
    }
}

impl<T: Bytes + Send> Work for Connections<T> {
    fn begin(&mut self, count: u64) -> Result<()> {
        self.session.set_activity("the measurement");
        let count = count.min(MOST_CONNECTIONS.into()) as u32;
        self.session.send(&Message::Accept { count })?;
        self.port = match self.session.receive()? {
            Message::Listening { port } => port,
            message => return Err(self.session.unexpected(&message)),
        };
        Ok(())
    }

    fn step(&mut self, times: &mut Times) -> Result<()> {
        let connected = times
            .part(0, || self.dial.connect(self.port))
            .map_err(|error| self.session.failed("cannot make another connection", error))?;
        self.open.push_back(connected);
        self.close(times, self.most.saturating_sub(1));
        Ok(())
    }

    fn end(&mut self, times: &mut Times) -> Result<()> {
        self.close(times, 0);
        self.session.send(&Message::Go)?;
        match self.session.receive()? {
            Message::Go => Ok(()),
            message => Err(self.session.unexpected(&message)),
        }
    }
}
