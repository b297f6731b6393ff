// SPDX-License-Identifier: GPL-2.0
//! One request in the guest: a command with its streams, or a file.
//!
//! # Invariants
//! - Whoever takes bytes from the input queue returns their credit; the lab never sends
//!   more than the window, so the queue is bounded without ever blocking the port's reader.
//! - The process id in `command` is that of a child that has not been reaped.

use std::collections::VecDeque;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;

use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::WaitId;
use rustix::process::WaitIdOptions;

use super::Agent;
use super::files;
use crate::lock;
use crate::wire::CHUNK;
use crate::wire::Exec;
use crate::wire::Frame;
use crate::wire::Kind;
use crate::wire::Outcome;
use crate::wire::Request;
use crate::wire::Stream;
use crate::wire::WINDOW;

#[derive(Default)]
struct Input {
    queue: VecDeque<Vec<u8>>,
    ended: bool,
    /// It ended because the lab lost interest.
    cancelled: bool,
}

/// The state of one request.
pub(super) struct Channel {
    number: u32,
    input: Mutex<Input>,
    input_changed: Condvar,
    /// What may still be sent of the standard output and error.
    credit: Mutex<[u32; 2]>,
    credit_changed: Condvar,
    command: Mutex<Option<Pid>>,
}

impl Channel {
    pub(super) fn new(number: u32) -> Channel {
        Channel {
            number,
            input: Mutex::default(),
            input_changed: Condvar::new(),
            credit: Mutex::new([WINDOW; 2]),
            credit_changed: Condvar::new(),
            command: Mutex::new(None),
        }
    }

    /// Queues input; `None` ends it.
    pub(super) fn input(&self, bytes: Option<Vec<u8>>) {
        let mut input = lock(&self.input);
        match bytes {
            Some(bytes) => input.queue.push_back(bytes),
            None => input.ended = true,
        }
        self.input_changed.notify_all();
    }

    /// The next input and its credit back to the lab; `None` at its end.
    pub(super) fn next_input(&self, agent: &Agent) -> Option<Vec<u8>> {
        let mut input = lock(&self.input);
        loop {
            if let Some(bytes) = input.queue.pop_front() {
                drop(input);
                agent.send(&Frame::credit(
                    self.number,
                    Stream::Stdin,
                    bytes.len() as u32,
                ));
                return Some(bytes);
            }
            if input.ended {
                return None;
            }
            input = self
                .input_changed
                .wait(input)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn add_credit(&self, stream: Stream, bytes: u32) {
        let index = match stream {
            Stream::Stdin => return,
            Stream::Stdout => 0,
            Stream::Stderr => 1,
        };
        let mut credit = lock(&self.credit);
        credit[index] = credit[index].saturating_add(bytes);
        self.credit_changed.notify_all();
    }

    fn take_credit(&self, index: usize, bytes: u32) {
        let mut credit = lock(&self.credit);
        while credit[index] < bytes {
            credit = self
                .credit_changed
                .wait(credit)
                .unwrap_or_else(PoisonError::into_inner);
        }
        credit[index] -= bytes;
    }

    /// Signals the command and everything in its process group.
    pub(super) fn signal(&self, signal: u32) {
        let signal = i32::try_from(signal).ok().and_then(Signal::from_named_raw);
        if let (Some(pid), Some(signal)) = (*lock(&self.command), signal) {
            let _ = rustix::process::kill_process_group(pid, signal);
        }
        // A file that is being received has no process: its input ends.
        lock(&self.input).cancelled = true;
        self.input(None);
    }

    /// Whether the input ended before its end.
    pub(super) fn cancelled(&self) -> bool {
        lock(&self.input).cancelled
    }

    /// Sends all that can be read.
    pub(super) fn pump_out(
        &self,
        agent: &Agent,
        mut from: impl Read,
        kind: Kind,
    ) -> io::Result<u64> {
        let index = usize::from(kind == Kind::Stderr);
        let mut buffer = vec![0; CHUNK];
        let mut total = 0;
        loop {
            let length = match from.read(&mut buffer) {
                Ok(0) => return Ok(total),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.take_credit(index, length as u32);
            agent.send(&Frame::new(kind, self.number, &buffer[..length]));
            total += length as u64;
        }
    }
}

/// Does what the request asks and says how it ended.
pub(super) fn serve(agent: &Arc<Agent>, channel: &Arc<Channel>, request: Request) -> Outcome {
    let (what, result) = match request {
        Request::Exec(exec) => (
            exec.argv.first().cloned().unwrap_or_default(),
            run(agent, channel, exec),
        ),
        Request::Push { path, name, mode } => (
            format!("cannot write {path}"),
            files::receive(agent, channel, &path, &name, mode),
        ),
        Request::Pull { path } => (
            format!("cannot read {path}"),
            files::send(agent, channel, &path),
        ),
    };
    result.unwrap_or_else(|error| Outcome::Failed {
        message: format!("{what}: {error}"),
        errno: error.raw_os_error().unwrap_or(0),
    })
}

fn run(agent: &Arc<Agent>, channel: &Arc<Channel>, exec: Exec) -> io::Result<Outcome> {
    let Some((program, arguments)) = exec.argv.split_first() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "no command given",
        ));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_remove(super::WORKER)
        .envs(exec.env)
        .current_dir(exec.cwd.as_deref().unwrap_or("/root"))
        .stdin(if exec.stdin {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    *lock(&channel.command) = pid;

    if let Some(mut stdin) = child.stdin.take() {
        let (agent, channel) = (Arc::clone(agent), Arc::clone(channel));
        thread::spawn(move || {
            while let Some(bytes) = channel.next_input(&agent) {
                if stdin.write_all(&bytes).is_err() {
                    // The command closed its input: swallow the rest, so that the lab is
                    // not left without credit.
                    while channel.next_input(&agent).is_some() {}
                    break;
                }
            }
        });
    }
    let pump = |from: Option<Box<dyn Read + Send>>, kind| {
        let (agent, channel) = (Arc::clone(agent), Arc::clone(channel));
        thread::spawn(move || {
            if let Some(from) = from {
                if let Err(error) = channel.pump_out(&agent, from, kind) {
                    eprintln!("lab-agent: cannot read a command's output: {error}");
                }
            }
        })
    };
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let out = pump(stdout.map(|s| Box::new(s) as Box<_>), Kind::Stdout);
    let err = pump(stderr.map(|s| Box::new(s) as Box<_>), Kind::Stderr);
    // Wait without reaping first: until `command` is cleared, its number must stay ours.
    if let Some(pid) = pid {
        let _ = rustix::io::retry_on_intr(|| {
            rustix::process::waitid(
                WaitId::Pid(pid),
                WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
            )
        });
    }
    // As with ssh, the request lasts until nobody holds the output any more. A signal
    // still reaches the rest of the group meanwhile, as the leader is not reaped yet.
    let _ = out.join();
    let _ = err.join();
    let status = {
        let mut command = lock(&channel.command);
        *command = None;
        child.wait()?
    };
    // Lets the input thread end.
    channel.input(None);
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => Outcome::Exited(code),
        (None, signal) => Outcome::Signaled(signal.unwrap_or(0)),
    })
}
