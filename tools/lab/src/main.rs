// SPDX-License-Identifier: GPL-2.0
//! The command `lab`: starts a lab in the background and drives it.
//!
//! It only parses, calls `lab::client`, and prints.

use std::process::ExitCode;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use clap::Parser;
use lab::GuestCounters;
use lab::Terminal;
use lab::arguments::Arguments;
use lab::arguments::Command;
use lab::client;
use lab::control::Control;
use lab::control::Report;
use lab::wire::Exec;
use lab::wire::Outcome;

/// The exit status for problems of this program itself, as in env(1) and docker(1).
const TROUBLE: u8 = 125;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(code) => code,
        // Exits as if SIGPIPE had ended this program: "lab exec 0 -- seq 1000000 | head".
        Err(error) if is_broken_pipe(&error) => ExitCode::from(128 + 13),
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::from(TROUBLE)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .root_cause()
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let name = arguments.name.as_str();
    match arguments.command {
        Command::Up(up) => {
            let nodes = up.nodes;
            let progress = Terminal::new();
            client::up(&up.config(name), &progress)?;
            drop(progress);
            let option = if name == "default" {
                String::new()
            } else {
                format!("--name {name} ")
            };
            eprintln!(
                "try: scripts/lab {option}exec {} -- uname -a; end it with: scripts/lab {option}down",
                nodes - 1
            );
        }
        Command::Down => client::down(name)?,
        Command::Exec {
            no_stdin,
            env,
            cwd,
            node,
            command,
        } => {
            let exec = Exec {
                argv: command,
                env,
                cwd,
                stdin: !no_stdin,
            };
            return Ok(exit_code(client::exec(name, node, exec)?));
        }
        Command::Push {
            node,
            local,
            remote,
        } => whole(client::push(name, node, &local, &remote)?)?,
        Command::Pull {
            node,
            remote,
            local,
        } => whole(client::pull(name, node, &remote, &local)?)?,
        Command::Console { node, log: false } => lab::console::attach(name, node)?,
        Command::Console { node, log: true } => {
            let file = lab::paths::LabPaths::new(name)?.console_log(node);
            let log = std::fs::read(&file)
                .with_context(|| format!("cannot read the console of node {node}"))?;
            print!("{}", lab::printable(&String::from_utf8_lossy(&log)));
        }
        Command::Kill { node } => {
            client::call(name, &Control::Kill { node })?;
        }
        Command::Restart { node } => {
            client::call(name, &Control::Restart { node })?;
        }
        Command::Pause { node } => {
            client::call(name, &Control::Pause { node })?;
        }
        Command::Resume { node } => {
            client::call(name, &Control::Resume { node })?;
        }
        Command::Link { state, a, b } => {
            let up = state == "up";
            client::call(name, &Control::Link { a, b, up })?;
        }
        Command::Reseed { seed } => {
            client::call(name, &Control::Reseed { seed })?;
        }
        Command::Counters { json } => {
            let value = client::call(name, &Control::Counters)?;
            if json {
                println!("{}", serde_json::to_string_pretty(&value)?);
            } else {
                let counters: Vec<GuestCounters> = serde_json::from_value(value)?;
                print!("{}", lab::control::counters_table(&counters));
            }
        }
        Command::Status { json } => {
            let value = client::call(name, &Control::Report)?;
            if json {
                println!("{}", serde_json::to_string_pretty(&value)?);
            } else {
                let report: Report = serde_json::from_value(value)?;
                print!("{report}");
            }
        }
        Command::List => {
            for name in client::running() {
                println!("{name}");
            }
        }
        Command::Dmesg { node, check } => {
            let argv = if check {
                ["dmesg", "--raw"]
            } else {
                ["dmesg", "--color=never"]
            };
            let exec = Exec {
                argv: argv.map(str::to_owned).to_vec(),
                ..Exec::default()
            };
            if !check {
                return Ok(exit_code(client::exec(name, node, exec)?));
            }
            let log = client::output(name, node, exec)?;
            let reports = lab::kernel_log::scan(&log, &[]);
            for report in &reports {
                println!("{report}\n");
            }
            if !reports.is_empty() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Owner => lab::owner::main(),
    }
    Ok(ExitCode::SUCCESS)
}

fn exit_code(outcome: Outcome) -> ExitCode {
    const NOT_FOUND: i32 = 2;
    let code = match outcome {
        Outcome::Exited(code) => u8::try_from(code).unwrap_or(1),
        Outcome::Signaled(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        Outcome::File { .. } => 0,
        Outcome::Failed { message, errno } => {
            eprintln!("lab: {message}");
            if errno == NOT_FOUND { 127 } else { 126 }
        }
        Outcome::Lost(reason) => {
            eprintln!("lab: {reason}");
            TROUBLE
        }
    };
    ExitCode::from(code)
}

fn whole(outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::File { .. } => Ok(()),
        Outcome::Failed { message, .. } => bail!("{message}"),
        Outcome::Lost(reason) => bail!("{reason}"),
        other => bail!("the copy {}", lab::describe(&other)),
    }
}
