// SPDX-License-Identifier: GPL-2.0
//! Commands in a guest, for programs: built, run or left running, their output collected.
//!
//! [`Command`] is made by `Lab::command`; [`Process`] is one that runs and is killed when
//! it is dropped; [`Output`] is one that ended.

use std::fmt;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;

use crate::error::Error;
use crate::guest::Event;
use crate::guest::Guest;
use crate::lock::lock;
use crate::wire::CHUNK;
use crate::wire::Exec;
use crate::wire::Frame;
use crate::wire::Kind;
use crate::wire::Outcome;
use crate::wire::Request;
use crate::wire::Stream;
use crate::wire::WINDOW;

/// Number of lines of output that an error message quotes.
const QUOTED: usize = 20;

/// A command to run in a guest.
pub struct Command {
    node: usize,
    guest: Guest,
    request: Request,
    input: Option<Vec<u8>>,
    limit: Duration,
}

impl Command {
    pub(crate) fn new(node: usize, guest: Guest, argv: Vec<String>, limit: Duration) -> Command {
        let exec = Exec {
            argv,
            ..Exec::default()
        };
        Command::request(node, guest, Request::Exec(exec), limit)
    }

    /// Makes a command of any other request that goes through a channel.
    pub(crate) fn request(node: usize, guest: Guest, request: Request, limit: Duration) -> Command {
        Command {
            node,
            guest,
            request,
            input: None,
            limit,
        }
    }

    fn change(mut self, change: impl FnOnce(&mut Exec)) -> Command {
        if let Request::Exec(exec) = &mut self.request {
            change(exec);
        }
        self
    }

    /// Adds a variable to the environment.
    pub fn env(self, name: &str, value: &str) -> Command {
        self.change(|exec| exec.env.push((name.to_owned(), value.to_owned())))
    }

    /// Sets the working folder; `/root` by default.
    pub fn cwd(self, folder: &str) -> Command {
        self.change(|exec| exec.cwd = Some(folder.to_owned()))
    }

    /// Gives the command this input; `/dev/null` by default.
    pub fn stdin(mut self, input: impl Into<Vec<u8>>) -> Command {
        self.input = Some(input.into());
        self.stdin_piped()
    }

    /// Gives the command an input that [`Process::write`] feeds.
    pub fn stdin_piped(self) -> Command {
        self.change(|exec| exec.stdin = true)
    }

    /// Sets how long [`Command::run`] and [`Process::wait`] wait before they kill the command.
    pub fn timeout(mut self, limit: Duration) -> Command {
        self.limit = limit;
        self
    }

    /// Runs the command to its end. A status other than 0 is no error here: see
    /// [`Output::success`].
    pub fn run(self) -> Result<Output> {
        self.spawn()?.wait()
    }

    /// Starts the command.
    pub fn spawn(self) -> Result<Process> {
        let command = match &self.request {
            Request::Exec(exec) => exec.argv.join(" "),
            Request::Push { path, .. } => format!("lab push {path}"),
            Request::Pull { path } => format!("lab pull {path}"),
        };
        let running = Arc::new(Running::default());
        lock(&running.state).credit = WINDOW;
        let sink = Arc::clone(&running);
        let guest = self.guest.clone();
        let channel = self
            .guest
            .open(&self.request, move |event| {
                if let Some(credit) = sink.take(event) {
                    let _ = guest.send(&credit);
                }
            })
            .map_err(|error| lost(self.node, &error.to_string()))?;
        let process = Process {
            node: self.node,
            guest: self.guest,
            channel,
            command,
            running,
            limit: self.limit,
            started: Instant::now(),
        };
        if let Some(input) = self.input {
            process.write(&input)?;
            process.close_stdin();
        }
        Ok(process)
    }
}

fn lost(node: usize, reason: &str) -> anyhow::Error {
    anyhow!(Error::NodeLost {
        node,
        reason: reason.to_owned(),
    })
}

#[derive(Default)]
struct State {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// Number of bytes that may still be sent to the input.
    credit: u32,
    end: Option<Result<Outcome, String>>,
}

#[derive(Default)]
struct Running {
    state: Mutex<State>,
    changed: Condvar,
}

impl Running {
    /// Takes an event in. Returns the credit for it, if there is any.
    fn take(&self, event: Event) -> Option<Frame> {
        let mut state = lock(&self.state);
        let mut credit = None;
        match event {
            Event::Lost(reason) => state.end = Some(Err(reason)),
            Event::Frame(frame) => match frame.kind {
                Kind::Stdout => {
                    credit = Some(credit_for(Stream::Stdout, &frame));
                    state.stdout.extend_from_slice(&frame.payload);
                }
                Kind::Stderr => {
                    credit = Some(credit_for(Stream::Stderr, &frame));
                    state.stderr.extend_from_slice(&frame.payload);
                }
                Kind::Credit => {
                    if let Ok((Stream::Stdin, bytes)) = frame.parse_credit() {
                        state.credit = state.credit.saturating_add(bytes);
                    }
                }
                Kind::Done => {
                    state.end = Some(frame.parse().map_err(|error| error.to_string()));
                }
                _ => {}
            },
        }
        self.changed.notify_all();
        credit
    }
}

fn credit_for(stream: Stream, frame: &Frame) -> Frame {
    Frame::credit(frame.channel, stream, frame.payload.len() as u32)
}

/// A command that runs in a guest. Dropping it kills it.
pub struct Process {
    node: usize,
    guest: Guest,
    channel: u32,
    command: String,
    running: Arc<Running>,
    limit: Duration,
    started: Instant,
}

impl Process {
    /// Writes to the standard input of the command; waits while the command does not read. If the
    /// command ends, this returns early without an error.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        let deadline = self.started + self.limit;
        for chunk in bytes.chunks(CHUNK) {
            let mut state = lock(&self.running.state);
            while state.credit < chunk.len() as u32 {
                if state.end.is_some() {
                    return Ok(());
                }
                let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                    drop(state);
                    return Err(self.timeout());
                };
                state = self
                    .running
                    .changed
                    .wait_timeout(state, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
            state.credit -= chunk.len() as u32;
            drop(state);
            let _ = self
                .guest
                .send(&Frame::new(Kind::Stdin, self.channel, chunk));
        }
        Ok(())
    }

    /// Ends the standard input of the command.
    pub fn close_stdin(&self) {
        let _ = self
            .guest
            .send(&Frame::new(Kind::StdinEnd, self.channel, Vec::new()));
    }

    /// Sends a signal to the command and its process group.
    pub fn signal(&self, signal: u32) {
        let _ = self.guest.send(&Frame::signal(self.channel, signal));
    }

    /// Kills the command and its process group.
    pub fn kill(&self) {
        self.signal(9);
    }

    /// Returns whether the command still runs.
    pub fn is_running(&self) -> bool {
        lock(&self.running.state).end.is_none()
    }

    /// Returns the standard output so far.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&lock(&self.running.state).stdout).into_owned()
    }

    /// Returns the standard error so far.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&lock(&self.running.state).stderr).into_owned()
    }

    /// Waits until the standard output or error contains `text`.
    pub fn wait_for(&self, text: &str, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        let mut state = lock(&self.running.state);
        loop {
            if contains(&state.stdout, text) || contains(&state.stderr, text) {
                return Ok(());
            }
            if let Some(end) = &state.end {
                let end = match end {
                    Ok(outcome) => describe(outcome),
                    Err(reason) => return Err(lost(self.node, reason)),
                };
                bail!(
                    "node {}: '{}' {end} before it said '{text}'{}",
                    self.node,
                    self.command,
                    quote(&state.stdout, &state.stderr)
                );
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                bail!(
                    "node {}: '{}' did not say '{text}' within {} s{}",
                    self.node,
                    self.command,
                    limit.as_secs(),
                    quote(&state.stdout, &state.stderr)
                );
            };
            state = self
                .running
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits until the command ends, at most for its timeout since the start.
    pub fn wait(self) -> Result<Output> {
        let deadline = self.started + self.limit;
        match self.wait_until(deadline)? {
            Some(output) => Ok(output),
            None => Err(self.timeout()),
        }
    }

    /// Waits until the command ends, at most `limit`. Returns `None` if it still runs then.
    pub fn wait_timeout(&self, limit: Duration) -> Result<Option<Output>> {
        self.wait_until(Instant::now() + limit)
    }

    fn wait_until(&self, deadline: Instant) -> Result<Option<Output>> {
        let mut state = lock(&self.running.state);
        loop {
            match &state.end {
                Some(Err(reason)) => return Err(lost(self.node, reason)),
                Some(Ok(outcome)) => {
                    return Ok(Some(Output {
                        node: self.node,
                        command: self.command.clone(),
                        outcome: outcome.clone(),
                        stdout: state.stdout.clone(),
                        stderr: state.stderr.clone(),
                        elapsed: self.started.elapsed(),
                    }));
                }
                None => {}
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Ok(None);
            };
            state = self
                .running
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Kills the command, and returns the error.
    fn timeout(&self) -> anyhow::Error {
        self.kill();
        let state = lock(&self.running.state);
        anyhow!(Error::Timeout {
            node: self.node,
            command: self.command.clone(),
            seconds: self.limit.as_secs(),
            output: quote(&state.stdout, &state.stderr),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_running() {
            self.kill();
        }
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(bytes).contains(text)
}

/// A command that has ended.
#[derive(Clone, Debug)]
pub struct Output {
    /// The node that ran the command.
    pub node: usize,
    /// The command.
    pub command: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The standard output.
    pub stdout: Vec<u8>,
    /// The standard error.
    pub stderr: Vec<u8>,
    /// Time that the command took, as the host measured it.
    pub elapsed: Duration,
}

impl Output {
    /// Returns the exit status; `None` if the command did not exit by itself.
    pub fn code(&self) -> Option<i32> {
        match self.outcome {
            Outcome::Exited(code) => Some(code),
            _ => None,
        }
    }

    /// Returns the output if the command exited with 0, and an error that quotes the output if not.
    pub fn success(self) -> Result<Output> {
        self.status(0)
    }

    /// Returns the output if the command exited with `code`, and an error that quotes the output if
    /// not.
    pub fn status(self, code: i32) -> Result<Output> {
        if self.code() == Some(code) {
            return Ok(self);
        }
        Err(anyhow!(Error::Command {
            node: self.node,
            command: self.command.clone(),
            status: describe(&self.outcome),
            output: quote(&self.stdout, &self.stderr),
        }))
    }

    /// Returns the standard output as text.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns the standard error as text.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "node {}: '{}' {}{}",
            self.node,
            self.command,
            describe(&self.outcome),
            quote(&self.stdout, &self.stderr)
        )
    }
}

/// Returns an outcome for people: a phrase that follows the command.
pub fn describe(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Exited(code) => format!("exited with status {code}"),
        Outcome::Signaled(signal) => format!("was ended by signal {signal}"),
        Outcome::File { size, .. } => format!("moved {size} bytes"),
        Outcome::Failed { message, .. } => format!("failed: {message}"),
        Outcome::Lost(reason) => format!("was lost: {reason}"),
    }
}

fn quote(stdout: &[u8], stderr: &[u8]) -> String {
    let mut text = String::new();
    for (name, bytes) in [("output", stdout), ("error output", stderr)] {
        let lossy = String::from_utf8_lossy(bytes);
        let lines: Vec<&str> = lossy.lines().collect();
        if !lines.is_empty() {
            let from = lines.len().saturating_sub(QUOTED);
            let cut = if from > 0 { " (its end)" } else { "" };
            text.push_str(&format!("\n  its {name}{cut}:\n    "));
            text.push_str(&lines[from..].join("\n    "));
        }
    }
    text
}
