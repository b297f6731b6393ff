// SPDX-License-Identifier: GPL-2.0

//! `sisci-bench server`: memory and interrupts for the tests, and an echo.

use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use scif::cancel::Cancel;
use scif::command::output::note;
use scif::command::output::print;

use super::control;
use super::control::Kind;
use super::control::Request;
use crate::api::LocalDataInterrupt;
use crate::api::LocalInterrupt;
use crate::api::LocalSegment;
use crate::api::Map;
use crate::api::RemoteInterrupt;
use crate::api::RemoteSegment;
use crate::api::Sequence;
use crate::api::Sisci;
use crate::error::Error;
use crate::error::Result;
use crate::ffi;

/// The time that a client may take for a message before the server takes it for gone.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Interval at which the server checks whether it must end.
const LOOK_MS: u32 = 200;

/// The arguments of the server.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The number of the server's segment and interrupts
    #[arg(long, default_value_t = control::ID)]
    id: u32,
}

/// Polls until a number is there.
pub fn spin(map: &Map, offset: usize, wanted: u64, patience: Duration) -> Result<()> {
    let mut turns = 0u32;
    let mut started = None;
    while map.load_word(offset)? != wanted {
        turns = turns.wrapping_add(1);
        if turns % 1024 == 0 {
            let started = started.get_or_insert_with(Instant::now);
            if started.elapsed() > patience {
                return Err(Error::Refused(
                    "the other side does not answer: its program has ended, or the link is down"
                        .into(),
                ));
            }
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// The connections to a client, which may last for several requests.
struct Client {
    of: (u32, u32, u32),
    memory: Arc<Map>,
    sequence: Sequence,
    interrupt: RemoteInterrupt,
}

impl Client {
    fn connect(sisci: &Arc<Sisci>, request: &Request) -> Result<Self> {
        let segment = RemoteSegment::connect(sisci, request.node, request.id, 0)?;
        let memory = Arc::new(segment.map(segment.size())?);
        Ok(Self {
            of: (request.node, request.id, request.client),
            sequence: memory.sequence()?,
            memory,
            interrupt: RemoteInterrupt::connect(sisci, request.node, request.id)?,
        })
    }
}

struct Server {
    sisci: Arc<Sisci>,
    memory: Map,
    interrupt: LocalInterrupt,
    client: Option<Client>,
}

impl Server {
    fn serve(&mut self, request: &Request) -> Result<()> {
        let of = (request.node, request.id, request.client);
        if self.client.as_ref().is_none_or(|client| client.of != of) {
            self.client = None;
            self.client = Some(Client::connect(&self.sisci, request)?);
        }
        let Some(client) = &self.client else {
            return Ok(());
        };
        client.memory.store_word(control::READY, request.first)?;
        client.sequence.flush();
        match request.kind {
            Kind::PingPong => self.pingpong(client, request),
            Kind::Interrupts => self.interrupts(client, request.count),
        }
    }

    fn pingpong(&self, client: &Client, request: &Request) -> Result<()> {
        let size = request.size as usize;
        let payload = vec![0x5a; size - 8];
        let last = request.first.saturating_add(request.count);
        for number in request.first..last {
            spin(&self.memory, size - 8, number, PATIENCE)?;
            send(&client.memory, &client.sequence, &payload, number)?;
        }
        Ok(())
    }

    fn interrupts(&self, client: &Client, count: u64) -> Result<()> {
        for _ in 0..count {
            if !self.interrupt.wait(PATIENCE.as_millis() as u32)? {
                return Err(Error::Refused(
                    "the client has triggered no interrupt in time".into(),
                ));
            }
            client.interrupt.trigger()?;
        }
        Ok(())
    }
}

/// Sends a message: its content, and behind that its number, which the peer never sees before the
/// content.
pub fn send(to: &Map, sequence: &Sequence, payload: &[u8], number: u64) -> Result<()> {
    if !payload.is_empty() {
        to.store(0, payload)?;
        sequence.flush();
    }
    to.store_word(payload.len(), number)?;
    sequence.flush();
    Ok(())
}

/// Serves until it is interrupted.
pub fn run(arguments: &Arguments) -> Result<()> {
    let cancel = Cancel::on_signals().map_err(scif::error::Error::local("cannot catch signals"))?;
    let sisci = Sisci::open()?;
    let id = arguments.id;
    let segment = LocalSegment::new(&sisci, id, control::LARGEST, 0)?;
    let flags = ffi::BROADCAST;
    let group = LocalSegment::new(&sisci, control::GROUP, control::LARGEST, flags);
    if let Err(error) = &group {
        note(format_args!(
            "sisci-bench: clients can't broadcast to this server: {error}"
        ));
    }
    let mut server = Server {
        memory: segment.map(control::LARGEST)?,
        interrupt: LocalInterrupt::new(&sisci, id)?,
        sisci: sisci.clone(),
        client: None,
    };
    let requests = LocalDataInterrupt::new(&sisci, id)?;
    print("serving")?;
    while !cancel.is_set() {
        let Some(message) = requests.wait(LOOK_MS)? else {
            continue;
        };
        let Some(request) = Request::decode(&message) else {
            note(
                "sisci-bench: ignoring a message that is no request; has the client this version?",
            );
            continue;
        };
        if let Err(error) = server.serve(&request) {
            note(format_args!(
                "sisci-bench: serving node {} has failed: {error}",
                request.node
            ));
            server.client = None;
            // Triggers of the former client are not for the next one.
            while server.interrupt.wait(0)? {}
        }
    }
    Ok(())
}
