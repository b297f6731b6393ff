// SPDX-License-Identifier: GPL-2.0

//! `scif bench NODE`: an overview of how fast remote memory access and messages are.
//!
//! It measures with the window that a `scif serve` offers; the other node runs no other program.
//! Several DMA copies are started at a time, and fences wait for them. CPU copies are complete on
//! return.

use crate::cancel::Cancel;
use crate::client;
use crate::command::connect::connect;
use crate::command::node::parse_node;
use crate::command::output::print;
use crate::command::output::print_json;
use crate::command::ping::RoundTrips;
use crate::command::port::DEFAULT_PORT;
use crate::command::port::parse_port;
use crate::device::Protection;
use crate::device::Rma;
use crate::error::Error;
use crate::error::Result;
use crate::format;
use crate::protocol::Window;
use crate::region::Region;
use crate::server::LARGEST_BENCH;
use crate::session::Session;
use crate::transport::Transport;
use clap::ValueEnum;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

/// DMA copies in flight.
const DEPTH: usize = 8;

/// The parts of the overview.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// The node's number, which `scif nodes` lists
    #[arg(required = true, value_parser = parse_node)]
    pub node: Option<u16>,
    /// Sizes of a copy, 1 B to 64 MiB
    #[arg(long, value_delimiter = ',', default_value = "64,4K,64K,1M,16M", value_parser = parse_copy_size)]
    pub sizes: Vec<u64>,
    /// Measure only copies by this engine
    #[arg(long, value_enum)]
    pub engine: Option<Engine>,
    /// Measure only copies in this direction
    #[arg(long, value_enum)]
    pub direction: Option<Direction>,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 0.5, value_parser = parse_seconds)]
    pub seconds: f64,
    /// Number of message round trips
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub messages: u32,
    /// The port of the server
    #[arg(long, default_value_t = DEFAULT_PORT, value_parser = parse_port)]
    pub port: u16,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The engine of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// The DMA engine.
    Dma,
    /// The CPU.
    Cpu,
}

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the peer.
    Write,
    /// From the peer.
    Read,
}

pub fn parse_copy_size(text: &str) -> std::result::Result<u64, String> {
    match format::parse_size(text)? {
        size if (1..=LARGEST_BENCH as u64).contains(&size) => Ok(size),
        _ => Err(format!("'{text}' is not between 1 and 64M")),
    }
}

pub fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("'{text}' is not a number of seconds up to 3600")),
    }
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
struct Copies {
    engine: Engine,
    direction: Direction,
    /// The size of each copy in bytes.
    size: u64,
    /// Number of copies.
    count: u64,
    seconds: f64,
    bytes_per_second: f64,
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    node: u16,
    copies: Vec<Copies>,
    message_round_trip: Option<RoundTrips>,
}

/// Measures, and prints the results.
pub fn run(arguments: &Arguments) -> Result<()> {
    let node = arguments
        .node
        .ok_or_else(|| Error::Usage("which node? `scif nodes` lists them".into()))?;
    let cancel = Cancel::on_signals().map_err(Error::local("cannot catch signals"))?;
    let session = connect(node, arguments.port, Some(cancel.clone()))?;
    let largest = arguments.sizes.iter().copied().max().unwrap_or(1);
    let window = client::bench_window(&session, largest as u32)?;
    let region =
        Arc::new(Region::new(largest as usize).map_err(Error::local("cannot allocate a window"))?);
    // The content is not zero, in case any component treats zeroes in a special manner.
    let pattern: Vec<u8> = (0..region.len()).map(|index| (index % 251) as u8).collect();
    region
        .write(0, &pattern)
        .map_err(Error::local("cannot fill the window"))?;
    let local = session.register(&region, Protection::ReadWrite)?;
    let mut copies = Vec::new();
    if !arguments.json {
        print("engine  direction        size        rate    one copy")?;
    }
    for engine in [Engine::Dma, Engine::Cpu] {
        for direction in [Direction::Write, Direction::Read] {
            if arguments.engine.is_some_and(|only| only != engine)
                || arguments.direction.is_some_and(|only| only != direction)
            {
                continue;
            }
            for size in &arguments.sizes {
                let time = Duration::from_secs_f64(arguments.seconds);
                let measure = Measure {
                    session: &session,
                    cancel: &cancel,
                    window,
                    local,
                    span: (region.len() as u64).min(window.buffer.into()),
                };
                let result = measure.copies(engine, direction, *size, time)?;
                if !arguments.json {
                    print(line(&result))?;
                }
                copies.push(result);
            }
        }
    }
    let mut times = Vec::new();
    for _ in 0..arguments.messages {
        times.push(client::ping(&session, &[0; 8])?);
    }
    let message_round_trip = (arguments.messages > 0).then(|| RoundTrips::of(times));
    if arguments.json {
        return print_json(&Report {
            ok: true,
            node,
            copies,
            message_round_trip,
        });
    }
    match message_round_trip {
        Some(round_trips) => print(format_args!("messages of 8 bytes: {round_trips}")),
        None => Ok(()),
    }
}

fn line(copies: &Copies) -> String {
    let each = copies.seconds / copies.count.max(1) as f64;
    format!(
        "{:6}  {:9}  {:>10}  {:>14}  {:>10}",
        match copies.engine {
            Engine::Dma => "DMA",
            Engine::Cpu => "CPU",
        },
        match copies.direction {
            Direction::Write => "write",
            Direction::Read => "read",
        },
        format::size(copies.size),
        format::per_second(copies.bytes_per_second),
        format::short_time(Duration::from_secs_f64(each))
    )
}

struct Measure<'a, T> {
    session: &'a Session<T>,
    cancel: &'a Cancel,
    window: Window,
    local: i64,
    /// The number of bytes that both windows have.
    span: u64,
}

impl<T: Transport> Measure<'_, T> {
    /// Copies for a time, at least once.
    fn copies(
        &self,
        engine: Engine,
        direction: Direction,
        size: u64,
        time: Duration,
    ) -> Result<Copies> {
        let cpu = engine == Engine::Cpu;
        let how = Rma {
            cpu,
            sync: cpu,
            ..Rma::default()
        };
        // The first copy also takes the time to set up resources that later copies use again.
        self.copy(direction, 0, size, Rma { sync: true, ..how })?;
        let mut flying = VecDeque::new();
        let mut count = 0;
        let started = Instant::now();
        loop {
            self.copy(direction, count, size, how)?;
            count += 1;
            if !cpu {
                flying.push_back(self.call(self.session.transport().mark())?);
            }
            let over = started.elapsed() >= time;
            while flying.len() >= if over { 1 } else { DEPTH } {
                if let Some(mark) = flying.pop_front() {
                    self.call(self.session.transport().wait(mark))?;
                }
            }
            if self.cancel.is_set() {
                return Err(Error::Interrupted);
            }
            if over {
                break;
            }
        }
        let elapsed = started.elapsed();
        Ok(Copies {
            engine,
            direction,
            size,
            count,
            seconds: elapsed.as_secs_f64(),
            bytes_per_second: format::rate(size * count, elapsed),
        })
    }

    /// Starts one copy; small copies go to different places in turn.
    fn copy(&self, direction: Direction, index: u64, size: u64, how: Rma) -> Result<()> {
        let step = size.next_multiple_of(64);
        let places = (self.span / step).max(1);
        let offset = (index % places * step) as i64;
        let (local, remote) = (self.local + offset, self.window.offset + offset);
        let transport = self.session.transport();
        self.call(match direction {
            Direction::Write => transport.write_to(local, size as usize, remote, how),
            Direction::Read => transport.read_from(local, size as usize, remote, how),
        })
    }

    fn call<R>(&self, result: std::io::Result<R>) -> Result<R> {
        result.map_err(|error| self.session.explain(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confine::Root;
    use crate::in_process;
    use crate::server;
    use crate::server::Service;
    use crate::server::shares::Origin;

    #[test]
    fn overview_copies_run_with_every_engine_and_size() {
        let temporary = tempfile::tempdir().unwrap();
        let mut service = Service::new(Root::open(temporary.path()).unwrap(), true);
        service.bench = true;
        let (here, there) = in_process::pair();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let session = Session::new(there, "client");
                server::serve(&service, Origin::Node(0), &session, &|_| ());
            });
            let session = Session::new(here, "server");
            session.greet().unwrap();
            let region = Arc::new(Region::new(5000).unwrap());
            let cancel = Cancel::new().unwrap();
            let measure = Measure {
                session: &session,
                cancel: &cancel,
                window: client::bench_window(&session, 5000).unwrap(),
                local: session.register(&region, Protection::ReadWrite).unwrap(),
                span: 5000,
            };
            for engine in [Engine::Dma, Engine::Cpu] {
                for direction in [Direction::Write, Direction::Read] {
                    for size in [1, 100, 5000] {
                        let copies = measure
                            .copies(engine, direction, size, Duration::from_millis(1))
                            .unwrap();
                        assert!(copies.count > 0);
                    }
                }
            }
            assert!(client::bench_window(&session, u32::MAX).is_err());
            drop(session);
        });
    }
}
