// SPDX-License-Identifier: GPL-2.0
//! The guest's end: runs commands and moves files for the lab, over virtio-serial.
//!
//! It consists of two processes: process 1 ([`init`]), and the worker that it forks. The worker
//! serves the port. It has one reader thread that never blocks on a command, and a few threads for
//! each channel.

mod channel;
mod exec;
mod files;
mod init;
mod port;
mod request;
mod sender;
mod shell;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread;

use crate::lock::lock;
use crate::wire::Frame;
use crate::wire::Hello;
use crate::wire::Kind;
use crate::wire::VERSION;
use channel::Channel;
use init::WORKER;
use sender::Sender;

/// Runs the agent; returns only if it is started wrongly.
pub fn main() {
    if std::env::var_os(WORKER).is_some() {
        if let Err(error) = work() {
            eprintln!("lab-agent: {error}");
        }
    } else if rustix::process::getpid().is_init() {
        init::rule();
    } else {
        eprintln!(
            "lab-agent: this is the agent of a lab's guest and runs there as process 1; you want 'lab'"
        );
        std::process::exit(2);
    }
}

/// The port and the channels open on it.
struct Agent {
    sender: Arc<Sender>,
    channels: Mutex<HashMap<u32, Arc<Channel>>>,
}

impl Agent {
    fn channel(&self, number: u32) -> Option<Arc<Channel>> {
        lock(&self.channels).get(&number).cloned()
    }
}

fn work() -> io::Result<()> {
    let port = port::open()?;
    let agent = Arc::new(Agent {
        sender: Arc::new(Sender::new(port.try_clone()?)),
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
            agent.sender.send(&Frame::json(Kind::Hello, 0, &reply)?);
        }
        Kind::Open => {
            let request = frame.parse()?;
            let channel = Arc::new(Channel::new(number, Arc::clone(&agent.sender)));
            lock(&agent.channels).insert(number, Arc::clone(&channel));
            let agent = Arc::clone(agent);
            thread::spawn(move || {
                let outcome = request::serve(&channel, request);
                lock(&agent.channels).remove(&number);
                match Frame::json(Kind::Done, number, &outcome) {
                    Ok(frame) => agent.sender.send(&frame),
                    Err(error) => eprintln!("lab-agent: cannot encode an outcome: {error}"),
                }
            });
        }
        // The frame may be late, and its channel may be done already.
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
