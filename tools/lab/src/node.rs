// SPDX-License-Identifier: GPL-2.0
//! One node: a QEMU and the agent in its guest, from boot to death.
//!
//! # Invariants
//! - `state` is `Running` from the moment QEMU is started until the node is killed. Whether that
//!   QEMU still lives is never remembered: the process itself tells.

use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;

use crate::error::Error;
use crate::guest::Guest;
use crate::kernel::Kernel;
use crate::kernel_log;
use crate::limits::hang_limit;
use crate::lock::lock;
use crate::monitor;
use crate::paths::LabPaths;
use crate::process::Supervised;
use crate::process::describe;
use crate::qemu::Machine;
use crate::text::last_lines;
use crate::text::printable;

/// Number of lines of the console that an error message quotes.
const QUOTED: usize = 15;

/// A guest that was booted.
pub(crate) struct Running {
    pub(crate) qemu: Arc<Supervised>,
    pub(crate) guest: Guest,
    /// The release of its kernel.
    pub(crate) release: String,
    /// Time from power-on to the agent's answer.
    pub(crate) boot_time: Duration,
    pub(crate) since: Instant,
    /// Set before the lab kills QEMU, so that the end does not count as an accident.
    killed: Arc<AtomicBool>,
}

enum State {
    Off,
    Running(Arc<Running>),
    Killed,
    /// The node did not come up.
    Failed(String),
}

/// A node of the lab.
pub(crate) struct Node {
    number: usize,
    paths: LabPaths,
    state: Mutex<State>,
}

impl Node {
    pub(crate) fn new(number: usize, paths: LabPaths) -> Node {
        Node {
            number,
            paths,
            state: Mutex::new(State::Off),
        }
    }

    /// Boots the node. Returns when its agent answers.
    pub(crate) fn boot(&self, machine: &Machine<'_>, limit: Duration) -> Result<()> {
        let number = self.number;
        if let State::Running(running) = &*lock(&self.state) {
            if running.qemu.exited().is_none() {
                bail!("node {number} is running already");
            }
        }
        let result = self.boot_now(machine, limit);
        let mut state = lock(&self.state);
        match result {
            Ok(running) => {
                *state = State::Running(Arc::new(running));
                Ok(())
            }
            Err(error) => {
                let reason = format!("node {number} did not boot: {error:#}");
                *state = State::Failed(reason.clone());
                Err(anyhow!(Error::NodeLost {
                    node: number,
                    reason
                }))
            }
        }
    }

    fn boot_now(&self, machine: &Machine<'_>, limit: Duration) -> Result<Running> {
        let number = self.number;
        for socket in [
            self.paths.agent(number),
            self.paths.console(number),
            self.paths.monitor(number),
        ] {
            match fs::remove_file(&socket) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error)
                        .with_context(|| format!("cannot remove {}", socket.display()));
                }
                _ => {}
            }
        }
        let log = self.paths.qemu_log(number);
        let log = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        let mut command = machine.command()?;
        command.stdout(log.try_clone()?).stderr(log);
        let started = Instant::now();
        let (qemu, _) = Supervised::spawn(&format!("QEMU of node {number}"), command, |_| {})?;
        let qemu = Arc::new(qemu);
        let killed = Arc::new(AtomicBool::new(false));
        let stream = self.connect(&qemu, started + limit)?;
        let reason = self.reason(&qemu, &killed);
        let (guest, hello) = Guest::greet(stream, limit, reason).map_err(|error| {
            // The console has the story, whether QEMU lives or not.
            anyhow!(
                "{error}{}{}",
                self.processors(machine.kernel),
                console_tail(number, &self.paths, &error.to_string())
            )
        })?;
        Ok(Running {
            qemu,
            guest,
            release: hello.kernel,
            boot_time: started.elapsed(),
            since: started,
            killed,
        })
    }

    /// Returns a function that tells why a connection to the agent has ended.
    fn reason(
        &self,
        qemu: &Arc<Supervised>,
        killed: &Arc<AtomicBool>,
    ) -> impl Fn() -> String + Send + Sync + 'static {
        let (number, paths) = (self.number, self.paths.clone());
        let (qemu, killed) = (Arc::downgrade(qemu), Arc::clone(killed));
        move || match qemu.upgrade() {
            Some(qemu) if !killed.load(Ordering::Acquire) => epitaph(number, &paths, &qemu),
            _ => format!("node {number} was killed"),
        }
    }

    /// Greets the agent anew. It may be another agent: that of the kernel that the node's kernel
    /// has started in its place.
    pub(crate) fn greet_again(&self, limit: Duration) -> Result<()> {
        let old = self.running()?;
        old.killed.store(true, Ordering::Release);
        old.guest.close();
        let started = Instant::now();
        let killed = Arc::new(AtomicBool::new(false));
        let stream = self.connect(&old.qemu, started + limit)?;
        let reason = self.reason(&old.qemu, &killed);
        let (guest, hello) = Guest::greet(stream, limit, reason)?;
        *lock(&self.state) = State::Running(Arc::new(Running {
            qemu: Arc::clone(&old.qemu),
            guest,
            release: hello.kernel,
            boot_time: started.elapsed(),
            since: started,
            killed,
        }));
        Ok(())
    }

    /// Returns where the CPUs are, for a message; empty if QEMU does not tell.
    pub(crate) fn processors(&self, kernel: &Kernel) -> String {
        let map = kernel.tree().join("System.map");
        match monitor::processors(&self.paths.monitor(self.number), &map) {
            Ok(lines) if !lines.is_empty() => {
                format!("\n  its CPUs:\n    {}", lines.replace('\n', "\n    "))
            }
            _ => String::new(),
        }
    }

    /// Connects to the agent's port as soon as QEMU has made its socket.
    fn connect(&self, qemu: &Supervised, deadline: Instant) -> Result<UnixStream> {
        let socket = self.paths.agent(self.number);
        loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => return Ok(stream),
                Err(_) if qemu.exited().is_some() => {
                    bail!("{}", epitaph(self.number, &self.paths, qemu))
                }
                Err(error) if Instant::now() > deadline => {
                    return Err(error)
                        .with_context(|| format!("QEMU does not listen on {}", socket.display()));
                }
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Returns the running guest, or the reason why there is none.
    pub(crate) fn running(&self) -> Result<Arc<Running>> {
        let node = self.number;
        let reason = match &*lock(&self.state) {
            State::Running(running) if running.qemu.exited().is_none() => {
                return Ok(Arc::clone(running));
            }
            State::Running(running) => epitaph(node, &self.paths, &running.qemu),
            State::Killed => format!("node {node} was killed; 'lab restart {node}' boots it again"),
            State::Failed(reason) => reason.clone(),
            State::Off => format!("node {node} is not running"),
        };
        Err(anyhow!(Error::NodeLost { node, reason }))
    }

    /// Kills the node's QEMU at once, as a power failure would.
    pub(crate) fn kill(&self) {
        let state = std::mem::replace(&mut *lock(&self.state), State::Killed);
        if let State::Running(running) = state {
            running.killed.store(true, Ordering::Release);
            running.qemu.kill();
            running.guest.close();
        }
    }
}

/// Returns the message about a node whose QEMU has ended, or whose agent has closed the connection.
fn epitaph(node: usize, paths: &LabPaths, qemu: &Supervised) -> String {
    // The connection ends a moment before the process does.
    let end = match qemu.wait(hang_limit(2)) {
        Some(status) => format!("node {node} died: QEMU {}", describe(status)),
        None => format!("node {node}: its agent hung up"),
    };
    let said = fs::read_to_string(paths.qemu_log(node)).unwrap_or_default();
    let said: Vec<&str> = said
        .lines()
        // QEMU prints this line for every vfio-user device.
        .filter(|line| !line.contains("Could not enable error recovery"))
        .collect();
    let said = last_lines(&said.join("\n"), QUOTED);
    let said = if said.is_empty() {
        String::new()
    } else {
        format!("\n  QEMU said:\n    {}", said.replace('\n', "\n    "))
    };
    format!("{end}{said}{}", console_tail(node, paths, ""))
}

/// Returns the end of the console's output, for a message that does not have it yet: the begin of a
/// crash, or the last lines.
fn console_tail(node: usize, paths: &LabPaths, message: &str) -> String {
    const TITLE: &str = "its console:";
    let log = fs::read(paths.console_log(node)).unwrap_or_default();
    let log = printable(&String::from_utf8_lossy(&log));
    let quote = match kernel_log::crash(&log) {
        Some(crash) => crash,
        None => last_lines(&log, QUOTED),
    };
    if quote.is_empty() || message.contains(TITLE) {
        return String::new();
    }
    format!("\n  {TITLE}\n    {}", quote.replace('\n', "\n    "))
}
