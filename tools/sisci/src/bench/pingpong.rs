// SPDX-License-Identifier: GPL-2.0

//! `scipp`: messages through shared memory, which the server sends back.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use scif::command::bench::work::Times;
use scif::command::bench::work::Work;

use super::control;
use super::control::Kind;
use super::control::Request;
use super::report;
use super::server::PATIENCE;
use super::server::send;
use super::server::spin;
use super::test::Bench;
use super::test::Test;
use crate::api::LocalInterrupt;
use crate::api::LocalSegment;
use crate::api::Map;
use crate::api::RemoteDataInterrupt;
use crate::api::RemoteSegment;
use crate::api::Sequence;
use crate::error::Result;
use crate::info::sisci_id;

type WorkResult = scif::error::Result<()>;

/// The last id of this process, in the bits above the process id.
static LAST: AtomicU32 = AtomicU32::new(0);

/// The resources of a client to which the server's answers come: memory and an interrupt.
pub struct Answers {
    /// Memory of this side.
    pub memory: Map,
    /// An interrupt of this side.
    pub interrupt: LocalInterrupt,
    requests: RemoteDataInterrupt,
    request: Request,
}

impl Answers {
    /// Takes the numbers, until this is dropped.
    pub fn new(bench: &Bench) -> Result<Self> {
        // No other process on this node has this id, and a process makes only a few of them.
        let id = 0x4000_0000 | LAST.fetch_add(1 << 24, Ordering::Relaxed) | std::process::id();
        let segment = LocalSegment::new(&bench.sisci, id, control::CLIENT, 0)?;
        // A number that an earlier client has left in the server's memory must not look like an
        // answer.
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        let started = started.unwrap_or_default().as_nanos() as u64;
        let own = scif::command::connect::open()?.node_ids();
        let own = own.map_err(scif::error::Error::local("cannot ask for the own node"))?;
        Ok(Self {
            memory: segment.map(control::CLIENT)?,
            interrupt: LocalInterrupt::new(&bench.sisci, id)?,
            requests: RemoteDataInterrupt::connect(&bench.sisci, bench.node, bench.id)?,
            request: Request {
                kind: Kind::PingPong,
                node: sisci_id(own.own),
                id,
                client: started as u32,
                size: 8,
                first: started,
                count: 0,
            },
        })
    }

    /// Requests a task. Its numbers follow the earlier ones. Returns when the server is ready,
    /// which takes a while if the server waits for a client that has gone.
    pub fn request(&mut self, kind: Kind, size: usize, count: u64) -> Result<u64> {
        let request = Request {
            kind,
            size: size as u32,
            count,
            ..self.request
        };
        self.request.first += count;
        self.requests.send(&request.encode())?;
        spin(&self.memory, control::READY, request.first, 2 * PATIENCE)?;
        Ok(request.first)
    }
}

/// The test of messages through shared memory.
pub struct PingPong {
    answers: Answers,
    server: Arc<Map>,
    sequence: Sequence,
}

struct Step<'a> {
    of: &'a mut PingPong,
    payload: Vec<u8>,
    next: u64,
}

impl Work for Step<'_> {
    fn begin(&mut self, count: u64) -> WorkResult {
        let size = self.payload.len() + 8;
        self.next = self.of.answers.request(Kind::PingPong, size, count)?;
        Ok(())
    }

    fn step(&mut self, times: &mut Times) -> WorkResult {
        let (of, number) = (&*self.of, self.next);
        self.next += 1;
        times.part(0, || {
            send(&of.server, &of.sequence, &self.payload, number)?;
            spin(&of.answers.memory, self.payload.len(), number, PATIENCE)
        })?;
        Ok(())
    }

    fn end(&mut self, _times: &mut Times) -> WorkResult {
        Ok(())
    }
}

impl PingPong {
    /// Connects to the server's segment.
    pub fn new(bench: &Bench) -> Result<Self> {
        let segment = RemoteSegment::connect(&bench.sisci, bench.node, bench.id, 0)?;
        let server = Arc::new(segment.map(control::LARGEST)?);
        Ok(Self {
            answers: Answers::new(bench)?,
            sequence: server.sequence()?,
            server,
        })
    }
}

impl Test for PingPong {
    fn round(&mut self, bench: &mut Bench) -> Result<()> {
        for size in bench.sizes.clone() {
            let work = Step {
                of: self,
                payload: vec![0x5a; size - 8],
                next: 0,
            };
            bench.half_trip(report::PINGPONG, report::SISCI, size, work)?;
            bench.reference(|bench, reference| {
                let work = reference.messages(size, true);
                bench.half_trip(report::PINGPONG, report::MESSAGES_POLLING, size, work)
            })?;
        }
        Ok(())
    }
}
