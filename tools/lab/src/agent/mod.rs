// SPDX-License-Identifier: GPL-2.0
//! The guest's end: runs commands and moves files for the lab, over virtio-serial.
//!
//! Process 1 only forks the worker, reaps what the guest's programs orphan, and powers the
//! guest off when the worker ends, so that a broken agent shows as a dead node rather than
//! as a hang. The worker serves the port: one reader thread that never blocks on a command,
//! and a few threads for each channel.

mod channel;
mod exec;
mod files;
mod port;
mod request;
mod shell;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread;

use rustix::process::WaitOptions;
use rustix::system::RebootCommand;

use crate::lock::lock;
use crate::wire::Frame;
use crate::wire::Hello;
use crate::wire::Kind;
use crate::wire::VERSION;
use channel::Channel;

/// The environment variable that tells the worker from process 1.
const WORKER: &str = "LAB_AGENT_WORKER";
/// What commands find as their environment.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs the agent; returns only if it is started wrongly.
pub fn main() {
    if std::env::var_os(WORKER).is_some() {
        if let Err(error) = work() {
            eprintln!("lab-agent: {error}");
        }
    } else if rustix::process::getpid().is_init() {
        rule();
    } else {
        eprintln!(
            "lab-agent: this is the agent of a lab's guest and runs there as process 1; you want 'lab'"
        );
        std::process::exit(2);
    }
}

/// Process 1.
fn rule() -> ! {
    let worker = Command::new("/proc/self/exe")
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", "/root")
        .env("TERM", "vt100")
        .env("LC_ALL", "C.UTF-8")
        .env(WORKER, "1")
        .spawn();
    match worker {
        Ok(worker) => {
            let worker = i64::from(worker.id());
            // Every orphan of the guest ends here, too.
            loop {
                match rustix::process::waitpid(None, WaitOptions::empty()) {
                    Ok(Some((pid, status))) if i64::from(pid.as_raw_nonzero().get()) == worker => {
                        eprintln!("lab-agent: the worker ended ({status:?}): powering off");
                        break;
                    }
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => {
                        eprintln!("lab-agent: wait: {error}: powering off");
                        break;
                    }
                }
            }
        }
        Err(error) => eprintln!("lab-agent: cannot start the worker: {error}: powering off"),
    }
    rustix::fs::sync();
    let _ = rustix::system::reboot(RebootCommand::PowerOff);
    loop {
        thread::park();
    }
}

/// The port and the channels open on it.
struct Agent {
    writer: Mutex<File>,
    channels: Mutex<HashMap<u32, Arc<Channel>>>,
}

impl Agent {
    /// Sends a frame. A lab that is gone takes the whole guest with it, so nobody could act
    /// on an error here.
    fn send(&self, frame: &Frame) {
        if let Err(error) = frame.write(&mut *lock(&self.writer)) {
            eprintln!("lab-agent: cannot write to the lab: {error}");
        }
    }

    fn channel(&self, number: u32) -> Option<Arc<Channel>> {
        lock(&self.channels).get(&number).cloned()
    }
}

fn work() -> io::Result<()> {
    let port = port::open()?;
    let agent = Arc::new(Agent {
        writer: Mutex::new(port.try_clone()?),
        channels: Mutex::new(HashMap::new()),
    });
    thread::spawn(shell::serve_console);
    let mut reader = port::Reader::new(port);
    while let Some(frame) = Frame::read(&mut reader)? {
        handle(&agent, &frame)?;
    }
    Ok(())
}

fn handle(agent: &Arc<Agent>, frame: &Frame) -> io::Result<()> {
    let number = frame.channel;
    match frame.kind {
        Kind::Hello => {
            let hello: Hello = frame.parse()?;
            if hello.version != VERSION {
                eprintln!(
                    "lab-agent: the lab speaks version {}, this agent {VERSION}: build both from the same source",
                    hello.version
                );
            }
            let reply = Hello {
                version: VERSION,
                kernel: rustix::system::uname()
                    .release()
                    .to_string_lossy()
                    .into_owned(),
            };
            agent.send(&Frame::json(Kind::Hello, 0, &reply)?);
        }
        Kind::Open => {
            let request = frame.parse()?;
            let channel = Arc::new(Channel::new(number));
            lock(&agent.channels).insert(number, Arc::clone(&channel));
            let agent = Arc::clone(agent);
            thread::spawn(move || {
                let outcome = request::serve(&agent, &channel, request);
                lock(&agent.channels).remove(&number);
                match Frame::json(Kind::Done, number, &outcome) {
                    Ok(frame) => agent.send(&frame),
                    Err(error) => eprintln!("lab-agent: cannot encode an outcome: {error}"),
                }
            });
        }
        // A frame may be late: its channel is done already.
        Kind::Stdin => {
            if let Some(channel) = agent.channel(number) {
                channel.input(Some(frame.payload.clone()));
            }
        }
        Kind::StdinEnd => {
            if let Some(channel) = agent.channel(number) {
                channel.input(None);
            }
        }
        Kind::Signal => {
            if let Some(channel) = agent.channel(number) {
                channel.signal(frame.parse_signal()?);
            }
        }
        Kind::Credit => {
            if let Some(channel) = agent.channel(number) {
                let (stream, bytes) = frame.parse_credit()?;
                channel.add_credit(stream, bytes);
            }
        }
        Kind::Stdout | Kind::Stderr | Kind::Done | Kind::Control | Kind::Answer => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the lab sent a {:?} frame", frame.kind),
            ));
        }
    }
    Ok(())
}
