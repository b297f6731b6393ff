// SPDX-License-Identifier: LGPL-2.1

//! Sleeps and wake-ups of the two ends. To wake up its peer, an end sends a byte on the connection:
//! a bell.
//!
//! An end that is awake gets no bell. Before an end sleeps, it stores its wake-up request, the
//! count that it waits for, into the peer's memory, *reads the request back*, and reads the count
//! once more. After an end has moved a count, it reads whether the peer's wake-up request is
//! reached. The read-back can't overtake the request on its way to the peer, and the answer can't
//! overtake what the peer has stored before. So at least one of the two sees the store of the
//! other.
//!
//! At most two threads of an end sleep: one waits for room, one for data. One of them waits in the
//! kernel, and tells the other one when a bell has rung. A bell may be for a count that was reached
//! long ago, so a waiter that wakes up always reads its count again.
//!
//! A bell is dropped if the connection has no room for another byte. The connection then holds
//! bells that this end has not read yet, and any of them wakes up every waiter, whatever it was
//! for. So a waiter whose own bell was dropped reads its count nevertheless, and later than the
//! peer has moved that count.

use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::endpoint::Stream;

/// The event that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Room,
    Data,
}

/// The byte of each bell, and of the message that the peer has left the ring. The receiver treats
/// all bells alike; the different bytes only help people who read a trace.
const ROOM: u8 = b'r';
const DATA: u8 = b'd';
const LEFT: u8 = b'c';
const BYTES: [u8; 3] = [ROOM, DATA, LEFT];

impl Event {
    fn byte(self) -> u8 {
        match self {
            Self::Room => ROOM,
            Self::Data => DATA,
        }
    }
}

/// The bells as the two directions use them.
pub trait Bells {
    /// Wakes up the peer, which waits for this event. Does not wait.
    fn ring(&self, event: Event);
    /// Sleeps until the peer rings for this event, or for another one in its place. EINTR after a
    /// signal.
    fn wait(&self, event: Event) -> Result<(), Errno>;
    /// Returns the error that ended the ring, if it has ended.
    fn check(&self) -> Result<(), Errno>;
    /// Asks the kernel whether the peer is gone, for callers that never sleep.
    fn look(&self);
    /// Ends the ring with this error. Returns the error that has ended it first.
    fn end(&self, why: Errno) -> Errno;
}

#[derive(Default)]
struct Heard {
    room: bool,
    data: bool,
    /// Whether a thread waits in the kernel.
    listening: bool,
}

impl Heard {
    fn of(&mut self, event: Event) -> &mut bool {
        match event {
            Event::Room => &mut self.room,
            Event::Data => &mut self.data,
        }
    }
}

/// Number of bells that are read at once.
const MANY: usize = 64;

/// Number of such reads for a caller that does not sleep: a peer that rings without end can't keep
/// it for ever.
const MOST: usize = 64;

/// The bells of a connection.
pub struct StreamBells<S> {
    stream: S,
    /// The error number that ended the ring, or 0.
    over: AtomicI32,
    heard: Mutex<Heard>,
    changed: Condvar,
    /// Held while a byte is sent: of two senders that do not wait, the kernel would refuse the
    /// second one.
    ringing: Mutex<()>,
}

impl<S: Stream> StreamBells<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            over: AtomicI32::new(0),
            heard: Mutex::default(),
            changed: Condvar::new(),
            ringing: Mutex::default(),
        }
    }

    /// Locks the record of received bells. A panic leaves the record consistent.
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, byte: u8) {
        let _ringing = self.ringing.lock().unwrap_or_else(PoisonError::into_inner);
        // If the connection has no room, the bell is dropped: unread bells wake up every waiter.
        if let Err(error) = self.stream.send(&[byte], false) {
            self.end(error);
        }
    }

    /// Tells the peer that this end has left.
    pub fn leave(&self) {
        self.send(LEFT);
    }

    /// Reads the bells that have rung and wakes up all waiters. For a caller that does not sleep
    /// here.
    pub fn take(&self) {
        let mut heard = self.heard();
        for _ in 0..MOST {
            match self.hear_some(&mut heard) {
                Ok(MANY) | Err(Errno::INTR) => {}
                _ => break,
            }
        }
        self.changed.notify_all();
    }

    /// Reads bells that have rung, without waiting. Returns their number.
    fn hear_some(&self, heard: &mut Heard) -> Result<usize, Errno> {
        let mut bytes = [0; MANY];
        let received = self.stream.recv(&mut bytes, false);
        match received {
            Ok(count) => self.note(bytes.get(..count).unwrap_or(&bytes), heard),
            Err(Errno::INTR) => {}
            Err(error) => drop(self.end(error)),
        }
        received
    }

    fn note(&self, bytes: &[u8], heard: &mut Heard) {
        if bytes.is_empty() {
            return;
        }
        (heard.room, heard.data) = (true, true);
        if !bytes.iter().all(|byte| BYTES.contains(byte)) {
            // The peer's program has sent on the connection itself.
            self.end(Errno::PROTO);
        }
    }
}

impl<S: Stream> Bells for StreamBells<S> {
    fn ring(&self, event: Event) {
        self.send(event.byte());
    }

    fn wait(&self, event: Event) -> Result<(), Errno> {
        let mut heard = self.heard();
        loop {
            self.check()?;
            if std::mem::take(heard.of(event)) {
                return Ok(());
            }
            if heard.listening {
                heard = (self.changed.wait(heard)).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            // A waiter that read bells starts over: all bells so far wake up every waiter once.
            if self.hear_some(&mut heard) != Ok(0) {
                self.changed.notify_all();
                continue;
            }
            heard.listening = true;
            drop(heard);
            let mut byte = [0];
            let received = self.stream.recv(&mut byte, true);
            heard = self.heard();
            heard.listening = false;
            match received {
                Ok(0) => drop(self.end(Errno::CONNRESET)),
                Ok(_) => self.note(&byte, &mut heard),
                Err(Errno::INTR) => {}
                Err(error) => drop(self.end(error)),
            }
            // One of the other waiters goes into the kernel in place of this one.
            self.changed.notify_all();
            if received == Err(Errno::INTR) {
                return Err(Errno::INTR);
            }
        }
    }

    #[inline]
    fn check(&self) -> Result<(), Errno> {
        match self.over.load(Ordering::Relaxed) {
            0 => Ok(()),
            error => Err(Errno::from_raw_os_error(error)),
        }
    }

    fn look(&self) {
        if self.stream.is_over() {
            self.end(Errno::CONNRESET);
        }
    }

    fn end(&self, why: Errno) -> Errno {
        let number = why.raw_os_error();
        let first = self
            .over
            .compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
        match first {
            Ok(_) => why,
            Err(before) => Errno::from_raw_os_error(before),
        }
    }
}
