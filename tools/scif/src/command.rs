// SPDX-License-Identifier: GPL-2.0

//! The command line: the options and the output of the tool.
//!
//! Results go to standard output, as text or with `--json` as one JSON value; progress and errors
//! go to standard error. Each command has a file below, and so have the parts that they share.

pub mod bench;
pub mod columns;
pub mod connect;
mod cp;
mod doctor;
mod metrics;
mod node;
mod nodes;
pub mod output;
mod ping;
pub mod port;
mod progress;
mod screen;
mod serve;
mod status;
mod top;

use crate::error::EXIT_STATUS_HELP;
use crate::error::Error;
use clap::CommandFactory;
use clap::Parser;
use clap::Subcommand;
use serde::Serialize;
use std::process::ExitCode;

const ABOUT: &str = "Files, messages and node states over SCIF, between hosts joined by PCIe.";

const EXAMPLES: &str = "\
Examples:
  scif doctor                         check this machine, and print advice
  scif nodes                          list the nodes
  scif serve --root /srv/files        on node 1: let other nodes copy files below /srv/files
  scif cp disk.img 1:images/          on node 0: copy a file to node 1
  scif cp 1:images/disk.img copy.img  on node 0: copy a file from node 1
  scif ping 1                         measure message round trips
  scif bench 1                        measure copies and messages
  scif status                         show endpoints, connections and the bytes they have moved
  scif top                            show the current rates of processes and connections";

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
    Doctor(doctor::Arguments),
    Ping(ping::Arguments),
    Cp(cp::Arguments),
    Serve(serve::Arguments),
    Bench(bench::Arguments),
    Status(status::Arguments),
    Top(top::Arguments),
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
        Command::Doctor(arguments) => (doctor::run(arguments), false),
        Command::Ping(arguments) => (ping::run(arguments), arguments.json),
        Command::Cp(arguments) => (cp::run(arguments), arguments.json),
        Command::Serve(arguments) => (serve::run(arguments), false),
        Command::Bench(arguments) => (bench::run(arguments), arguments.json()),
        Command::Status(arguments) => (status::run(arguments), arguments.json),
        Command::Top(arguments) => (top::run(arguments), arguments.json),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(format_args!("scif: {error}"));
            if json {
                // If the JSON can't be printed, the line above must do.
                let _ = output::print_json(&Failure::from(&error));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_consistent() {
        definition().debug_assert();
    }
}
