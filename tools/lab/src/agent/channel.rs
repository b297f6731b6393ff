// SPDX-License-Identifier: GPL-2.0
//! The state of one request in the guest: its streams with their credit, and its process.
//!
//! # Invariants
//! - The code that takes bytes from the input queue returns their credit. The lab never sends more
//!   than the window, so the queue is bounded without ever blocking the port's reader.
//! - The process id in `command` is that of a child that has not been reaped.

use std::collections::VecDeque;
use std::io;
use std::io::Read;
use std::process::Child;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;

use rustix::process::Pid;
use rustix::process::Signal;

use super::sender::Sender;
use crate::lock::lock;
use crate::wire::CHUNK;
use crate::wire::Frame;
use crate::wire::Kind;
use crate::wire::Stream;
use crate::wire::WINDOW;

#[derive(Default)]
struct Input {
    queue: VecDeque<Vec<u8>>,
    ended: bool,
    /// Whether the input ended because the lab is not interested in the request any more.
    cancelled: bool,
}

/// The state of one request.
pub(super) struct Channel {
    number: u32,
    sender: Arc<Sender>,
    input: Mutex<Input>,
    input_changed: Condvar,
    /// Number of bytes of standard output and error that may still be sent.
    credit: Mutex<[u32; 2]>,
    credit_changed: Condvar,
    command: Mutex<Option<Pid>>,
}

impl Channel {
    pub(super) fn new(number: u32, sender: Arc<Sender>) -> Channel {
        Channel {
            number,
            sender,
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

    /// Waits for the next input, and returns its credit to the lab. `None` at the end of the input.
    pub(super) fn next_input(&self) -> Option<Vec<u8>> {
        let mut input = lock(&self.input);
        loop {
            if let Some(bytes) = input.queue.pop_front() {
                drop(input);
                self.sender.send(&Frame::credit(
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

    /// Makes signals reach this command.
    pub(super) fn started(&self, child: &Child) -> Option<Pid> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        *lock(&self.command) = pid;
        pid
    }

    /// Reaps the command. No signal reaches it from then on.
    pub(super) fn reap(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let mut command = lock(&self.command);
        *command = None;
        child.wait()
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

    /// Returns whether the input was cut off.
    pub(super) fn cancelled(&self) -> bool {
        lock(&self.input).cancelled
    }

    /// Sends everything that can be read.
    pub(super) fn pump_out(&self, mut from: impl Read, kind: Kind) -> io::Result<u64> {
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
            self.sender
                .send(&Frame::new(kind, self.number, &buffer[..length]));
            total += length as u64;
        }
    }
}
