// SPDX-License-Identifier: GPL-2.0

//! The command line: what a person types and sees.
//!
//! Results go to standard output, as text or with `--json` as one JSON value; progress and errors go to
//! standard error. One file for each command below.

mod bench;
mod cp;
mod nodes;
mod ping;
mod progress;
mod serve;

use crate::abi;
use crate::abi::PortId;
use crate::cancel::Cancel;
use crate::device::Endpoint;
use crate::error::EXIT_STATUS_HELP;
use crate::error::Error;
use crate::error::Result;
use crate::session::Session;
use crate::transport::Connection;
use clap::CommandFactory;
use clap::Parser;
use clap::Subcommand;
use serde::Serialize;
use std::fmt::Display;
use std::io;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// The port of `scif serve`, unless told otherwise.
pub const DEFAULT_PORT: u16 = 2050;

const ABOUT: &str = "Files, messages and node states over SCIF, between hosts joined by PCIe.";

const EXAMPLES: &str = "\
Examples:
  scif nodes                          who is out there
  scif serve --root /srv/files        on node 1: give and take files below /srv/files
  scif cp disk.img 1:images/          on node 0: copy a file to node 1
  scif cp 1:images/disk.img copy.img  and back
  scif ping 1                         message round trips
  scif bench 1                        throughput of remote memory access";

/// Everything on the command line.
#[derive(Debug, Parser)]
#[command(name = "scif", version, about = ABOUT,
    after_help = format!("{EXAMPLES}\n\n{EXIT_STATUS_HELP}"))]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Nodes(nodes::Arguments),
    Ping(ping::Arguments),
    Cp(cp::Arguments),
    Serve(serve::Arguments),
    Bench(bench::Arguments),
}

/// The definition of the command line, for man pages and completions (`tools/manuals`).
pub fn definition() -> clap::Command {
    Arguments::command()
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let (result, json) = match &arguments.command {
        Command::Nodes(arguments) => (nodes::run(arguments), arguments.json),
        Command::Ping(arguments) => (ping::run(arguments), arguments.json),
        Command::Cp(arguments) => (cp::run(arguments), arguments.json),
        Command::Serve(arguments) => (serve::run(arguments), false),
        Command::Bench(arguments) => (bench::run(arguments), arguments.json),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scif: {error}");
            if json {
                // If it cannot be printed, the line above has to do.
                let _ = print_json(&Failure::from(&error));
            }
            ExitCode::from(error.exit_status())
        }
    }
}

/// A failure in JSON.
#[derive(Serialize)]
struct Failure {
    ok: bool,
    error: String,
    errno: Option<String>,
    exit_status: u8,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self {
            ok: false,
            error: error.to_string(),
            errno: error.errno(),
            exit_status: error.exit_status(),
        }
    }
}

/// Prints a line to standard output. A reader that has seen enough is no error.
fn print(text: impl Display) -> Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::local("cannot write to standard output")(error))
        }
        _ => Ok(()),
    }
}

fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::Refused(format!("cannot make JSON: {error}")))?;
    print(text)
}

/// Opens an endpoint, or says why there is no SCIF here.
fn open() -> Result<Endpoint> {
    Endpoint::open().map_err(|source| {
        let advice = match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                "this user may not use SCIF; see the mode of the file"
            }
            Some(libc::EMFILE | libc::ENFILE) => "too many open files; see `ulimit -n`",
            Some(libc::ENOMEM) => "the machine is out of memory",
            _ => "is the module loaded? (modprobe scif, or insmod scif.ko)",
        };
        Error::NoDevice { advice, source }
    })
}

/// Connects to the `scif serve` on a node and greets it.
fn connect(node: u16, port: u16, cancel: Option<Cancel>) -> Result<Session<Connection>> {
    let endpoint = open()?;
    let timeout = Duration::from_secs(10);
    let connection = Connection::connect(endpoint, PortId { node, port }, timeout, cancel)
        .map_err(|source| unreachable(node, port, source))?;
    let session =
        Session::new(connection, format!("node {node}")).with_node_lost(move || is_lost(node));
    session.greet()?;
    Ok(session)
}

fn unreachable(node: u16, port: u16, source: io::Error) -> Error {
    let timed_out = source.kind() == io::ErrorKind::TimedOut;
    let advice = match source.raw_os_error() {
        Some(libc::EINTR) => return Error::Interrupted,
        Some(libc::ENODEV) => "there is no such node online; `scif nodes` lists them",
        Some(libc::ECONNREFUSED) => {
            "nobody listens there, or too many want to; run `scif serve --root DIR` on that node"
        }
        Some(libc::EINVAL) => "that is not a port one can connect to",
        _ if timed_out => "the program that listens there does not accept; is it stopped?",
        _ => "see the kernel log of both nodes",
    };
    let source = if timed_out {
        io::Error::from_raw_os_error(libc::ETIMEDOUT)
    } else {
        source
    };
    Error::Unreachable {
        node,
        port,
        advice,
        source,
    }
}

/// Whether a node is not online any more, as far as one can tell.
fn is_lost(node: u16) -> bool {
    Endpoint::open()
        .and_then(|endpoint| endpoint.node_ids())
        .is_ok_and(|nodes| !nodes.online.contains(&node))
}

/// Reads a port that can be listened to or connected to.
fn parse_port(text: &str) -> std::result::Result<u16, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!(
            "'{text}' is not a port from 1 to 65535 (below {} needs a privilege to serve)",
            abi::ADMIN_PORT_END
        )),
        Ok(port) => Ok(port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        definition().debug_assert();
    }
}
