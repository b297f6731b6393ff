// SPDX-License-Identifier: GPL-2.0
//! The commands' end of the owner's socket.

use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use serde_json::Value;

use crate::config::Config;
use crate::control::Answer;
use crate::control::Control;
use crate::control::Start;
use crate::lock::lock;
use crate::paths;
use crate::paths::LabPaths;
use crate::progress::Progress;
use crate::transfer::name_of;
use crate::whole_file::WholeFile;
use crate::wire::CHUNK;
use crate::wire::Exec;
use crate::wire::Frame;
use crate::wire::Kind;
use crate::wire::Outcome;
use crate::wire::Request;
use crate::wire::Stream;
use crate::wire::WINDOW;

/// Starts the owner of a lab in the background and returns when the lab is up.
pub fn up(config: &Config, progress: &dyn Progress) -> Result<()> {
    config.check()?;
    paths::require_environment()?;
    let paths = LabPaths::new(&config.name)?;
    fs::create_dir_all(paths.folder())
        .with_context(|| format!("cannot make {}", paths.folder().display()))?;
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(paths.log())
        .with_context(|| format!("cannot open {}", paths.log().display()))?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command
        .arg("owner")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log);
    // SAFETY: setsid() is a plain system call, allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
    let mut owner = command.spawn().context("cannot start the lab's owner")?;
    let mut input = owner.stdin.take().context("the owner has no input")?;
    let output = owner.stdout.take().context("the owner has no output")?;
    let mut line = serde_json::to_string(config)?;
    line.push('\n');
    input
        .write_all(line.as_bytes())
        .context("cannot tell the lab's owner what to start")?;
    for line in BufReader::new(output).lines() {
        match serde_json::from_str(&line?)? {
            Start::Step(step) => progress.step(step),
            Start::Up => return Ok(()),
            Start::Failed(reason) => {
                let _ = owner.wait();
                bail!("{reason}");
            }
        }
    }
    let status = owner.wait()?;
    bail!("the lab's owner ended ({status}) before the lab was up")
}

/// Returns the names of the running labs.
pub fn running() -> Vec<String> {
    let Ok(entries) = fs::read_dir(paths::runs()) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let name = name.strip_prefix("lab-")?.to_owned();
            LabPaths::new(&name).ok()?.is_running().then_some(name)
        })
        .collect();
    names.sort();
    names
}

/// Connects to the owner of the lab `name`.
fn connect(name: &str) -> Result<UnixStream> {
    paths::require_environment()?;
    let paths = LabPaths::new(name)?;
    UnixStream::connect(paths.control()).map_err(|error| {
        let running = running();
        if running.iter().any(|running| running == name) {
            return anyhow!(
                "the lab '{name}' runs but does not listen ({error}): it is just starting or ending, or a test has it"
            );
        }
        let others = if running.is_empty() {
            String::new()
        } else {
            format!("; running: {} (choose with --name)", running.join(", "))
        };
        anyhow!("the lab '{name}' is not running; start it with 'scripts/lab up'{others}")
    })
}

/// Makes a request and returns the value of its answer.
pub fn call(name: &str, control: &Control) -> Result<Value> {
    let mut stream = connect(name)?;
    Frame::json(Kind::Control, 0, control)?.write(&mut stream)?;
    match Frame::read(&mut stream)? {
        Some(frame) if frame.kind == Kind::Answer => match frame.parse()? {
            Answer::Done(value) => Ok(value),
            Answer::Failed(reason) => bail!("{reason}"),
        },
        Some(frame) => bail!("the lab's owner answered with a {:?} frame", frame.kind),
        None => bail!("the lab '{name}' ended before it answered"),
    }
}

/// Ends the lab. Returns when all of it is gone.
pub fn down(name: &str) -> Result<()> {
    let mut stream = connect(name)?;
    Frame::json(Kind::Control, 0, &Control::Down)?.write(&mut stream)?;
    // The owner ends and so closes the connection, or sends why it does not end.
    match Frame::read(&mut stream) {
        Ok(Some(frame)) if frame.kind == Kind::Answer => match frame.parse()? {
            Answer::Failed(reason) => bail!("{reason}"),
            Answer::Done(_) => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Runs a command with this process's standard streams.
pub fn exec(name: &str, node: usize, exec: Exec) -> Result<Outcome> {
    let input: Option<Box<dyn Read + Send>> = if exec.stdin {
        Some(Box::new(io::stdin()))
    } else {
        None
    };
    channel(name, node, Request::Exec(exec), input, &mut io::stdout())
}

/// Runs a command without input and returns its output, if it succeeds.
pub fn output(name: &str, node: usize, exec: Exec) -> Result<String> {
    let mut output = Vec::new();
    match channel(name, node, Request::Exec(exec), None, &mut output)? {
        Outcome::Exited(0) => Ok(String::from_utf8_lossy(&output).into_owned()),
        other => bail!(
            "node {node}: the command {}",
            crate::command::describe(&other)
        ),
    }
}

/// Copies a file, or the standard input for "-", into a guest.
pub fn push(name: &str, node: usize, local: &Path, remote: &str) -> Result<Outcome> {
    let (input, mode): (Box<dyn Read + Send>, u32) = if local == Path::new("-") {
        (Box::new(io::stdin()), 0o644)
    } else {
        let file = File::open(local).with_context(|| {
            format!(
                "cannot read {} (inside the environment there is only the repository; pipe other files: scripts/lab push {node} - PATH <FILE)",
                local.display()
            )
        })?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            bail!("{} is a directory: pack it with tar", local.display());
        }
        (Box::new(file), metadata.permissions().mode() & 0o7777)
    };
    let request = Request::Push {
        path: remote.to_owned(),
        name: name_of(local),
        mode,
    };
    channel(name, node, request, Some(input), &mut io::sink())
}

/// Copies a file out of a guest, to the standard output for "-". The file gets its name when it is
/// complete.
pub fn pull(name: &str, node: usize, remote: &str, local: &Path) -> Result<Outcome> {
    let request = Request::Pull {
        path: remote.to_owned(),
    };
    if local == Path::new("-") {
        return channel(name, node, request, None, &mut io::stdout());
    }
    let mut file = WholeFile::create(local, &name_of(Path::new(remote)))
        .with_context(|| format!("cannot write {}", local.display()))?;
    let outcome = channel(name, node, request, None, &mut file)?;
    if let Outcome::File { mode, .. } = outcome {
        file.keep(mode)
            .with_context(|| format!("cannot write {}", local.display()))?;
    }
    Ok(outcome)
}

/// Number of bytes that may still be sent, and whether the command still reads them.
#[derive(Default)]
struct Credit {
    bytes: Mutex<u32>,
    changed: Condvar,
}

impl Credit {
    fn take(&self, wanted: u32) {
        let mut bytes = lock(&self.bytes);
        while *bytes < wanted {
            bytes = self
                .changed
                .wait(bytes)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *bytes -= wanted;
    }

    fn add(&self, more: u32) {
        let mut bytes = lock(&self.bytes);
        *bytes = bytes.saturating_add(more);
        self.changed.notify_all();
    }
}

/// Opens a channel, feeds it `input` and writes its output.
fn channel(
    name: &str,
    node: usize,
    request: Request,
    input: Option<Box<dyn Read + Send>>,
    output: &mut dyn Write,
) -> Result<Outcome> {
    let mut stream = connect(name)?;
    Frame::json(Kind::Control, 0, &Control::Open { node, request })?.write(&mut stream)?;
    let writer = Arc::new(Mutex::new(stream.try_clone()?));
    let credit = Arc::new(Credit::default());
    credit.add(WINDOW);
    if let Some(input) = input {
        let (writer, credit) = (Arc::clone(&writer), Arc::clone(&credit));
        // Not joined: it may hang in a read of the terminal when the command has ended.
        thread::spawn(move || send_input(input, &writer, &credit));
    }
    let mut stream = BufReader::with_capacity(64 * 1024, stream);
    loop {
        let frame = Frame::read(&mut stream)?
            .ok_or_else(|| anyhow!("the lab '{name}' ended while the command ran"))?;
        let which = match frame.kind {
            Kind::Stdout => {
                output
                    .write_all(&frame.payload)
                    .and_then(|()| output.flush())
                    .context("cannot write the output")?;
                Stream::Stdout
            }
            Kind::Stderr => {
                io::stderr().write_all(&frame.payload)?;
                Stream::Stderr
            }
            Kind::Credit => {
                if let (Stream::Stdin, bytes) = frame.parse_credit()? {
                    credit.add(bytes);
                }
                continue;
            }
            Kind::Done => return Ok(frame.parse()?),
            Kind::Answer => match frame.parse()? {
                Answer::Failed(reason) => bail!("{reason}"),
                Answer::Done(_) => continue,
            },
            other => bail!("the lab's owner sent a {other:?} frame"),
        };
        let frame = Frame::credit(0, which, frame.payload.len() as u32);
        // If the owner is gone, the next read finds out.
        let _ = frame.write(&mut *lock(&writer));
    }
}

fn send_input(mut input: Box<dyn Read + Send>, writer: &Mutex<UnixStream>, credit: &Credit) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let frame = match input.read(&mut buffer) {
            Ok(0) => Frame::new(Kind::StdinEnd, 0, Vec::new()),
            Ok(length) => {
                credit.take(length as u32);
                Frame::new(Kind::Stdin, 0, &buffer[..length])
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                eprintln!("lab: cannot read the input: {error}");
                // The input is incomplete. So this kills the command, which could otherwise take
                // the part for the whole.
                Frame::signal(0, 9)
            }
        };
        let last = frame.kind != Kind::Stdin;
        if frame.write(&mut *lock(writer)).is_err() || last {
            return;
        }
    }
}
