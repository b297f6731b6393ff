// SPDX-License-Identifier: GPL-2.0
//! Puts a topology together: RAM files, links, functions, sockets and threads.
//!
//! Threads: one for each function and its socket, and one for each DMA engine. Each direction of a
//! link that takes time has one for its doorbells. Each direction of a link whose order is weak has
//! one for the writes in flight. One thread accepts control connections, and each connection has
//! one. None of them ends while all is well. If one has to end, it reports [`Event::Failed`], and
//! the process must end, as guests can't do without it.

use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;
use std::sync::mpsc::Sender;
use std::thread;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use parking_lot::Mutex;

use crate::address::GuestBus;
use crate::config::Topology;
use crate::config::control_socket;
use crate::control;
use crate::control::FunctionCounters;
use crate::control::FunctionState;
use crate::control::GuestCounters;
use crate::control::GuestState;
use crate::control::LinkState;
use crate::control::Request;
use crate::control::Response;
use crate::control::State;
use crate::dma::DmaFunction;
use crate::guest_memory::GuestMemory;
use crate::model::bells::bells;
use crate::model::clock::Clock;
use crate::model::clock::Monotonic;
use crate::model::link::Crossing;
use crate::model::link::LinkModel;
use crate::model::pace::Pace;
use crate::model::pacer::Pacer;
use crate::ntb::function::NtbFunction;
use crate::ntb::line::Timing;
use crate::ntb::link::Link;
use crate::ntb::port::Port;
use crate::ntb::window::Window;
use crate::order::WeakOrder;
use crate::order::direction::Direction;
use crate::raid::Loot;
use crate::raid::Writes;
use crate::raid::raid;
use crate::ram::Ram;
use crate::server::Function;
use crate::server::Served;

/// The reason why the process must end.
#[derive(Debug)]
pub enum Event {
    /// A client or a signal has asked for it.
    Shutdown,
    /// A thread can't go on.
    Failed(anyhow::Error),
}

/// A running emulator. Its sockets are removed when it is dropped; its threads end with
/// the process.
pub struct Emulator {
    sockets: Vec<PathBuf>,
}

/// The state that the control socket can read and change.
struct Machine {
    topology: Topology,
    guests: Vec<Vec<Entry>>,
    links: Vec<Arc<Link>>,
    /// The seed of the order of writes, if the order is weak.
    seed: Mutex<Option<u64>>,
}

struct Entry {
    name: String,
    function: Arc<dyn Function>,
    connected: Arc<AtomicBool>,
}

impl Emulator {
    /// Starts everything. When this returns, QEMU and control clients can connect.
    pub fn start(topology: Topology, events: Sender<Event>) -> Result<Self> {
        topology.validate()?;
        let mut emulator = Self {
            sockets: Vec::new(),
        };
        for socket in topology.sockets() {
            claim(&socket)?;
            emulator.sockets.push(socket);
        }
        let control = control_socket(&topology.directory);
        let listener = UnixListener::bind(&control)
            .with_context(|| format!("cannot listen on {}", control.display()))?;
        let machine = Arc::new(machine(topology, &events)?);
        spawn("control", &events.clone(), move || {
            control_loop(&listener, &machine, &events)
        })?;
        Ok(emulator)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        for socket in &self.sockets {
            // A file that can't be removed is not an error of this process.
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// Removes a socket that a killed emulator has left. Fails if a living one listens on it.
fn claim(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    if UnixStream::connect(path).is_ok() {
        bail!(
            "another emulator listens on {}; end it, or use another directory",
            path.display()
        );
    }
    std::fs::remove_file(path)
        .with_context(|| format!("cannot remove the stale socket {}", path.display()))
}

/// Starts a thread whose body does not return while all is well.
fn spawn(
    name: &str,
    events: &Sender<Event>,
    body: impl FnOnce() -> anyhow::Error + Send + 'static,
) -> Result<()> {
    let events = events.clone();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            // If the receiver is gone, the process is about to end.
            let _ = events.send(Event::Failed(body()));
        })
        .with_context(|| format!("cannot start the thread {name}"))?;
    Ok(())
}

fn machine(topology: Topology, events: &Sender<Event>) -> Result<Machine> {
    let rams = topology
        .guests
        .iter()
        .map(|guest| Ram::open(&guest.ram_file, guest.ram_size).map(Arc::new))
        .collect::<Result<Vec<_>>>()?;
    // The clock is set up before the threads that use it.
    let clock: Option<Arc<dyn Clock>> = match topology.has_model() {
        true => Some(Arc::new(Monotonic::start()?)),
        false => None,
    };
    let links = (0..topology.links.len())
        .map(|number| link(&topology, number, &rams, clock.as_ref(), events))
        .collect::<Result<Vec<_>>>()?;
    let mut guests = Vec::new();
    for (guest, ram) in rams.iter().enumerate() {
        let ports: Vec<_> = topology
            .ntb_functions(guest)
            .map(|entry| Port::new(&links[entry.link], entry.end))
            .collect();
        let pacer = || pacer(&topology, guest, &ports, clock.as_ref());
        guests.push(functions(&topology, guest, ram, &ports, &pacer, events)?);
    }
    let seed = topology.weak_order.map(|order| order.seed);
    Ok(Machine {
        topology,
        guests,
        links,
        seed: Mutex::new(seed),
    })
}

/// Makes a link. Starts the threads for its doorbells if the link takes time.
fn link(
    topology: &Topology,
    number: usize,
    rams: &[Arc<Ram>],
    clock: Option<&Arc<dyn Clock>>,
    events: &Sender<Event>,
) -> Result<Arc<Link>> {
    let entry = &topology.links[number];
    let ends = [entry.upstream, entry.downstream];
    let memory = ends.map(|guest| Arc::new(GuestMemory::new(Arc::clone(&rams[guest]))));
    if let Some(order) = topology.weak_order {
        return weak_link(topology, number, memory, order, events);
    }
    let (Some(figures), Some(clock)) = (entry.model, clock) else {
        return Ok(Link::new(entry, memory, None));
    };
    let model = Arc::new(LinkModel::new(figures.slowed(topology.slowdown)));
    let (upstream, downstream) = (bells(), bells());
    let timing = Timing {
        clock: Arc::clone(clock),
        crossings: [0, 1].map(|end| Crossing::new(&model, end)),
        ropes: [upstream.0, downstream.0],
    };
    let link = Link::new(entry, memory, Some(timing));
    for (end, bells) in [(1, upstream.1), (0, downstream.1)] {
        let (link, clock) = (Arc::clone(&link), Arc::clone(clock));
        spawn(&format!("bells {number} {end}"), events, move || {
            while let Some(source) = bells.next(&*clock) {
                link.arrive(end, source);
            }
            anyhow!("no source of doorbells is left")
        })?;
    }
    Ok(link)
}

/// Makes a link whose order is weak, and starts the threads for the writes in flight.
fn weak_link(
    topology: &Topology,
    number: usize,
    memory: [Arc<GuestMemory>; 2],
    order: WeakOrder,
    events: &Sender<Event>,
) -> Result<Arc<Link>> {
    let entry = &topology.links[number];
    let windows = Window::of(entry, [0, 1].map(|end: usize| memory[end].ram().size()));
    let guests = [entry.upstream, entry.downstream];
    let directions = [0, 1].map(|end| {
        let engines = topology.guests[guests[end]].dma_channels;
        let sees_stores = windows[end].iter().all(Window::traps);
        Direction::new(order, 2 * number + end, engines, sees_stores)
    });
    let link = Link::with_order(entry, memory, None, Some(directions));
    for end in 0..2 {
        let port = Port::new(&link, end);
        spawn(&format!("order {number} {end}"), events, move || {
            port.carry();
            anyhow!("the thread that delivers writes in flight has ended")
        })?;
    }
    Ok(link)
}

/// Makes the pacer of an engine, if a model says how long copies take.
fn pacer(
    topology: &Topology,
    guest: usize,
    ports: &[Port],
    clock: Option<&Arc<dyn Clock>>,
) -> Option<Pacer> {
    let engine = topology.guests[guest].engine;
    let crossings: Vec<_> = ports.iter().map(|port| port.crossing().cloned()).collect();
    if engine.is_none() && crossings.iter().all(Option::is_none) {
        return None;
    }
    let engine = engine.map(|engine| engine.slowed(topology.slowdown));
    let pace = Pace::new(engine, crossings);
    Some(Pacer::new(pace, Arc::clone(clock?)))
}

fn functions(
    topology: &Topology,
    guest: usize,
    ram: &Arc<Ram>,
    ports: &[Port],
    pacer: &dyn Fn() -> Option<Pacer>,
    events: &Sender<Event>,
) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for (index, (port, socket)) in ports.iter().zip(topology.ntb_sockets(guest)).enumerate() {
        let name = format!("ntb-{index}");
        let function = NtbFunction::new(format!("guest {guest} {name}"), port.clone());
        entries.push(serve(name, Arc::new(function), &socket, events)?);
    }
    for (index, socket) in topology.dma_sockets(guest).into_iter().enumerate() {
        let memory = Arc::new(GuestMemory::new(Arc::clone(ram)));
        let bus = GuestBus::of_engine(index, Arc::clone(&memory), ports.to_vec());
        let name = format!("dma-{index}");
        let function = DmaFunction::new(format!("guest {guest} {name}"), memory, bus, pacer());
        let function = Arc::new(function);
        let engine = Arc::clone(&function);
        spawn(&format!("{guest} {name} engine"), events, move || {
            engine.run()
        })?;
        entries.push(serve(name, function, &socket, events)?);
    }
    Ok(entries)
}

fn serve(
    name: String,
    function: Arc<dyn Function>,
    socket: &Path,
    events: &Sender<Event>,
) -> Result<Entry> {
    let connected = Arc::new(AtomicBool::new(false));
    let served = Served::bind(socket, Arc::clone(&function), Arc::clone(&connected))?;
    spawn(function.name(), events, move || served.run())?;
    Ok(Entry {
        name,
        function,
        connected,
    })
}

fn control_loop(
    listener: &UnixListener,
    machine: &Arc<Machine>,
    events: &Sender<Event>,
) -> anyhow::Error {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                return anyhow::Error::new(error).context("cannot accept control connections");
            }
        };
        let machine = Arc::clone(machine);
        let events = events.clone();
        let client = thread::Builder::new()
            .name("control client".to_owned())
            .spawn(move || {
                let result = control::serve(stream, |request| machine.answer(request, &events));
                if let Err(error) = result {
                    log::info!("a control client has gone: {error:#}");
                }
            });
        if let Err(error) = client {
            return anyhow::Error::new(error).context("cannot start a thread for a control client");
        }
    }
}

impl Machine {
    fn answer(&self, request: Request, events: &Sender<Event>) -> Response {
        match request {
            Request::Counters => Response::Counters {
                guests: self
                    .guests
                    .iter()
                    .map(|entries| counters(entries))
                    .collect(),
            },
            Request::ResetCounters => {
                for entry in self.guests.iter().flatten() {
                    entry.function.counters().reset();
                }
                Response::Done
            }
            Request::State => Response::State(self.state()),
            Request::Link { a, b, up } => self.link(a, b, up),
            Request::Raid { from, into, writes } => self.raid(from, into, writes),
            Request::Reseed { seed } => self.reseed(seed),
            Request::Shutdown => match events.send(Event::Shutdown) {
                Ok(()) => Response::Done,
                Err(_) => Response::Error {
                    message: "it is ending already".to_owned(),
                },
            },
        }
    }

    fn state(&self) -> State {
        let guests = self.guests.iter().map(|entries| {
            let functions: Vec<_> = entries
                .iter()
                .map(|entry| FunctionState {
                    name: entry.name.clone(),
                    connected: entry.connected.load(Acquire),
                })
                .collect();
            GuestState {
                connected: functions.iter().all(|function| function.connected),
                functions,
            }
        });
        let links = self.topology.links.iter().zip(&self.links);
        let links = links.map(|(entry, link)| {
            let (plugged, up) = link.state();
            LinkState {
                upstream: entry.upstream,
                downstream: entry.downstream,
                plugged,
                up,
            }
        });
        State {
            guests: guests.collect(),
            links: links.collect(),
            seed: *self.seed.lock(),
        }
    }

    fn reseed(&self, seed: u64) -> Response {
        let mut current = self.seed.lock();
        if current.is_none() {
            return Response::Error {
                message: "writes arrive in the order in which they were made, and no seed \
                          changes that; start it with a weak_order"
                    .to_owned(),
            };
        }
        *current = Some(seed);
        for link in &self.links {
            for end in 0..2 {
                if let Some(direction) = Port::new(link, end).order() {
                    direction.reseed(seed);
                }
            }
        }
        Response::Done
    }

    fn raid(&self, from: usize, into: usize, writes: Writes) -> Response {
        let links = self.topology.ntb_functions(from);
        let found = links
            .filter(|function| function.peer == into)
            .map(|function| {
                let port = Port::new(&self.links[function.link], function.end);
                raid(&port, writes)
            });
        match found.reduce(Loot::plus) {
            Some(loot) => Response::Loot(loot),
            None => Response::Error {
                message: format!("no link leads from guest {from} to guest {into}"),
            },
        }
    }

    fn link(&self, a: usize, b: usize, up: bool) -> Response {
        let links = self.topology.links.iter().zip(&self.links);
        let mut found = false;
        for (entry, link) in links {
            let ends = (entry.upstream, entry.downstream);
            if ends == (a, b) || ends == (b, a) {
                link.allow(up);
                found = true;
            }
        }
        if found {
            Response::Done
        } else {
            Response::Error {
                message: format!("there is no link between guests {a} and {b}"),
            }
        }
    }
}

fn counters(entries: &[Entry]) -> GuestCounters {
    let mut result = GuestCounters::default();
    for entry in entries {
        let counters = entry.function.counters().snapshot();
        result.total += counters;
        result.functions.push(FunctionCounters {
            name: entry.name.clone(),
            counters,
        });
    }
    result
}
