// SPDX-License-Identifier: GPL-2.0

//! `scif serve`: takes and gives files, answers pings.

mod tcp;

use crate::cancel::Cancel;
use crate::command::connect::is_lost;
use crate::command::connect::open;
use crate::command::output::note;
use crate::command::output::print;
use crate::command::port::DEFAULT_PORT;
use crate::command::port::parse_port;
use crate::confine::Root;
use crate::confine::show;
use crate::device::Endpoint;
use crate::device::PortId;
use crate::error::Error;
use crate::error::Result;
use crate::error::errno_name;
use crate::format::parse_size;
use crate::limits;
use crate::server;
use crate::server::Service;
use crate::server::room::Room;
use crate::server::shares::Limits;
use crate::server::shares::Origin;
use crate::server::shares::ResourceKind;
use crate::server::shares::Shares;
use crate::session::Session;
use crate::transport::Connection;
use clap::ValueHint;
use rustix::event::PollFlags;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Largest number of clients at a time, of all nodes: each takes a thread and a few MiB of pinned
/// memory.
const MOST_CLIENTS: usize = 128;

const BACKLOG: i32 = 64;

const EXAMPLES: &str = "\
Examples:
  scif serve --root /srv/files               until you press Ctrl-C
  scif serve --root /srv/files --read-only   send files, receive none
  scif serve --root . --once                 serve one client, then exit
  scif serve --root /srv/files --max-bytes 10G
                                             receive at most 10 GiB from each node
  scif serve --root /tmp --bench             answer `scif bench`, too";

/// Serve a folder: other nodes copy files to it and from it, and ping
///
/// Clients can't read or write files outside the folder, whatever paths they send and whatever
/// symbolic links are in the folder. Every process of every linked node may connect, as SCIF has no
/// users. So the server limits the clients of each node, and receives files only while room stays
/// free. Clients may measure only with --bench, as measurements take CPU time and pinned memory. The
/// server drops a client that is silent for 20 seconds at first, or for 60 seconds later. The server
/// prints one line when it is ready. It then prints one line for each request to standard error.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The folder to serve
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub root: PathBuf,
    /// The port to listen on
    #[arg(long, default_value_t = DEFAULT_PORT, value_parser = parse_port)]
    pub port: u16,
    /// Receive no files
    #[arg(long)]
    pub read_only: bool,
    /// Exit after N clients (1 if no number is given)
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub once: Option<u32>,
    /// Largest number of clients of each node at a time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub clients: u64,
    /// Largest number of bytes to receive from each node while this server runs
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_bytes: Option<u64>,
    /// Receive a file only if this many bytes stay free; by default 1 GiB, or a twentieth of the
    /// file system if that is less
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub keep_free: Option<u64>,
    /// Let clients measure (`scif bench`): any process of any node can then take CPU time and
    /// pinned memory on this machine
    #[arg(long)]
    pub bench: bool,
    /// Largest amount of memory that each node may use for measurements
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_size, requires = "bench")]
    pub bench_memory: u64,
    /// Also answer `scif bench --transport tcp` at this address; serve no files there
    #[arg(long, value_name = "ADDRESS:PORT", requires = "bench")]
    pub tcp: Option<SocketAddr>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<()> {
    let cancel = Cancel::on_signals().map_err(Error::local("cannot catch signals"))?;
    let shown = show(arguments.root.as_os_str().as_bytes());
    let root = Root::open(&arguments.root)?;
    let service = Service {
        bench: arguments.bench,
        room: Room::new(arguments.keep_free),
        shares: Shares::new(Limits {
            clients: arguments.clients,
            stored: arguments.max_bytes.unwrap_or(u64::MAX),
            memory: arguments.bench_memory,
            ..Limits::default()
        }),
        ..Service::new(root, arguments.read_only)
    };
    if let Some(address) = arguments.tcp {
        tcp::start(address)?;
    }
    // Clients that measure connections need many files.
    limits::many_files();
    let port = arguments.port;
    let listener = open()?;
    listener
        .bind(port)
        .map_err(|error| bind_failed(port, error))?;
    listener
        .listen(BACKLOG)
        .map_err(Error::local(format!("cannot listen on port {port}")))?;
    let node = listener
        .node_ids()
        .map_err(Error::local("cannot find out the own node id"))?
        .own;
    print(format_args!(
        "serving {shown} on node {node} port {port}{}",
        if service.read_only { ", read-only" } else { "" }
    ))?;
    accept_all(&service, &listener, arguments.once, &cancel)
}

fn bind_failed(port: u16, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::EADDRINUSE) => Error::Refused(format!(
            "port {port} is taken ({}): is another `scif serve` running? choose a port with --port",
            errno_name(&error)
        )),
        Some(libc::EACCES) => Error::Refused(format!(
            "port {port} needs a privilege (EACCES): run as root, or choose a port from 1024 with --port"
        )),
        _ => Error::local(format!("cannot bind to port {port}"))(error),
    }
}

fn accept_all(
    service: &Service,
    listener: &Endpoint,
    once: Option<u32>,
    cancel: &Cancel,
) -> Result<()> {
    let clients = AtomicUsize::new(0);
    let mut left = once;
    // At the end the scope waits for the threads. A signal ends their waits, too, or the process.
    std::thread::scope(|scope| {
        while left != Some(0) {
            let Some((endpoint, peer)) = accept(listener, cancel)? else {
                return finish(service, &clients);
            };
            left = left.map(|left| left - 1);
            let connection = Connection::accepted(endpoint, Some(cancel.clone()));
            let session = Session::new(connection, format!("node {}", peer.node))
                .with_node_lost(move || is_lost(peer.node));
            let origin = Origin::Node(peer.node);
            let share = match service.shares.take(origin, ResourceKind::Clients, 1) {
                Ok(share) => share,
                Err(refusal) => {
                    session.send_failure(&refusal);
                    continue;
                }
            };
            if clients.fetch_add(1, Ordering::Relaxed) >= MOST_CLIENTS {
                clients.fetch_sub(1, Ordering::Relaxed);
                session.send_failure(&Error::Refused(format!(
                    "there are {MOST_CLIENTS} clients already: try again later"
                )));
                continue;
            }
            let clients = &clients;
            let serve = move || {
                let log = |line: &str| {
                    note(format_args!(
                        "[node {} port {}] {line}",
                        peer.node, peer.port
                    ))
                };
                let _leaves = Leaves(clients);
                let _share = share;
                server::serve(service, origin, &session, &log);
            };
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, serve) {
                clients.fetch_sub(1, Ordering::Relaxed);
                note(format_args!(
                    "scif: closing the connection of node {}, as no thread can be started: {error}",
                    peer.node
                ));
            }
        }
        while clients.load(Ordering::Relaxed) > 0 {
            if cancel.is_set() {
                return finish(service, &clients);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    })
}

/// A count of a client, which ends when this is dropped.
struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for the clients that were cancelled, except for those that measure: their threads sleep
/// where no signal reaches them.
fn finish(service: &Service, clients: &AtomicUsize) -> Result<()> {
    loop {
        let clients = clients.load(Ordering::Relaxed);
        if clients == 0 {
            return Ok(());
        }
        if clients <= service.sleepers.count() {
            std::process::exit(0);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for a client. Returns `None` when cancelled.
fn accept(listener: &Endpoint, cancel: &Cancel) -> Result<Option<(Endpoint, PortId)>> {
    loop {
        let ready = match listener.poll(PollFlags::IN, None, Some(cancel.as_fd())) {
            Err(_) if cancel.is_set() => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result.map_err(Error::local("cannot wait for clients"))?,
        };
        match listener.accept(false) {
            Ok(accepted) => return Ok(Some(accepted)),
            // The client has given up meanwhile.
            Err(error)
                if error.raw_os_error() == Some(libc::EAGAIN) && ready.contains(PollFlags::IN) => {}
            Err(error) if !ready.contains(PollFlags::IN) => {
                return Err(Error::local("cannot accept clients any more")(error));
            }
            Err(error) => {
                // There are too few files or too little memory: other processes may free some.
                note(format_args!(
                    "scif: cannot accept a client, trying again ({})",
                    errno_name(&error)
                ));
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}
