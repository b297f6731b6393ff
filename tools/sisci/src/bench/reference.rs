// SPDX-License-Identifier: GPL-2.0

//! The calls of SCIF below SISCI, measured beside it: the same steps by SCIF, with a `scif serve`
//! on the other node.

use std::sync::Arc;

use scif::client;
use scif::command::bench::messages::Messages;
use scif::command::bench::work::Times;
use scif::command::bench::work::Work;
use scif::command::connect::connect;
use scif::device::Protection;
use scif::device::Rma;
use scif::error::Error;
use scif::mapping::Mapping;
use scif::mapping::drain;
use scif::protocol::Raw;
use scif::protocol::Window;
use scif::region::Region;
use scif::session::Session;
use scif::transport::Connection;
use scif::transport::Transport;

use crate::error::Result;

type WorkResult = scif::error::Result<()>;

/// The connections to the `scif serve`.
pub struct Reference {
    mapping: Mapping,
    copies: Session<Connection>,
    messages: Session<Connection>,
    window: Window,
    local: i64,
}

impl Reference {
    /// Connects to the server's node, by its SISCI id.
    pub fn connect(node: u32, port: u16, largest: usize) -> Result<Self> {
        let scif_node = (node / 4)
            .checked_sub(1)
            .and_then(|id| u16::try_from(id).ok());
        let scif_node = scif_node.filter(|_| node % 4 == 0);
        let scif_node = scif_node.ok_or_else(|| {
            Error::Usage(format!(
                "{node} is not a node's id; `sisci-info` lists them"
            ))
        })?;
        let copies = connect(scif_node, port, None)?;
        let window = client::bench_window(&copies, largest as u32)?;
        let mapping = Mapping::new(
            copies.transport().endpoint(),
            window.offset,
            window.buffer as usize,
            Protection::ReadWrite,
        );
        let region = Region::new(largest).map_err(Error::local("cannot allocate a window"))?;
        let local = copies.register(&Arc::new(region), Protection::ReadWrite)?;
        Ok(Self {
            mapping: mapping.map_err(Error::local("cannot map the peer's window"))?,
            copies,
            messages: connect(scif_node, port, None)?,
            window,
            local,
        })
    }

    /// Makes stores to mapped memory.
    pub fn stores(&mut self, size: usize, each_drained: bool) -> Stores<'_> {
        Stores {
            mapping: &mut self.mapping,
            bytes: vec![0xa5; size],
            each_drained,
        }
    }

    /// Makes copies, each of which waits until it has arrived.
    pub fn copies(&mut self, size: usize, way: Protection) -> Copies<'_> {
        Copies {
            of: self,
            size,
            way,
        }
    }

    /// Makes messages that are sent back.
    pub fn messages(&mut self, size: usize, polling: bool) -> Messages<'_, Connection> {
        let raw = Raw {
            size: size as u32,
            count: 0,
            back: true,
            polling,
        };
        Messages::new(&mut self.messages, raw)
    }
}

/// Stores to mapped memory, see [`Reference::stores`].
pub struct Stores<'a> {
    mapping: &'a mut Mapping,
    bytes: Vec<u8>,
    each_drained: bool,
}

impl Work for Stores<'_> {
    fn begin(&mut self, _count: u64) -> WorkResult {
        Ok(())
    }

    fn step(&mut self, _times: &mut Times) -> WorkResult {
        let stored = self.mapping.write(0, &self.bytes);
        // The error is made only when it is needed, as the step is measured.
        stored.map_err(|error| Error::local("cannot reach the mapping")(error))?;
        if self.each_drained {
            drain();
        }
        Ok(())
    }

    fn end(&mut self, _times: &mut Times) -> WorkResult {
        drain();
        Ok(())
    }
}

/// Copies, see [`Reference::copies`].
pub struct Copies<'a> {
    of: &'a mut Reference,
    size: usize,
    way: Protection,
}

impl Work for Copies<'_> {
    fn begin(&mut self, _count: u64) -> WorkResult {
        Ok(())
    }

    fn step(&mut self, _times: &mut Times) -> WorkResult {
        let session = &self.of.copies;
        let (local, remote, how) = (self.of.local, self.of.window.offset, Rma::default());
        let transport = session.transport();
        let started = match self.way {
            Protection::Read => transport.read_from(local, self.size, remote, how),
            _ => transport.write_to(local, self.size, remote, how),
        };
        let ended = started.and_then(|()| transport.mark());
        ended
            .and_then(|mark| transport.wait(mark))
            .map_err(|error| session.explain(error))
    }

    fn end(&mut self, _times: &mut Times) -> WorkResult {
        Ok(())
    }
}
