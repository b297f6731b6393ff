// SPDX-License-Identifier: LGPL-2.1

//! Who is woken, and how one sleeps: a byte on the connection is a bell.
//!
//! Nobody rings for who is awake. Who is about to sleep writes into the peer's memory which count he waits for,
//! *reads that back*, and looks at the count once more; who moves a count looks whether somebody waits for it. What
//! is read back can't overtake the wish on its way there, nor its answer what the peer has stored before, so one of the two
//! sees the other.
//!
//! Of those who sleep, one for room and one for data at most, one is in the kernel; he tells the other one what
//! has rung. A bell may ring for what is long over: whoever is woken looks.

use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering;

use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::endpoint::Endpoint;

/// What somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Room,
    Data,
}

/// The byte that says that the peer has left the ring.
const LEFT: u8 = b'c';

impl What {
    fn byte(self) -> u8 {
        match self {
            Self::Room => b'r',
            Self::Data => b'd',
        }
    }
}

/// What the two directions take.
pub trait Bells {
    /// Wakes the peer, who waits for this. Does not wait.
    fn ring(&self, what: What);
    /// Sleeps until the peer rings for this, or probably. EINTR after a signal.
    fn wait(&self, what: What) -> Result<(), Errno>;
    /// Why the ring is over, if it is.
    fn check(&self) -> Result<(), Errno>;
    /// Looks for that in the kernel: for who never sleeps.
    fn look(&self);
    /// It is over.
    fn end(&self, why: Errno) -> Errno;
}

#[derive(Default)]
struct Heard {
    room: bool,
    data: bool,
    /// Somebody is in the kernel.
    listening: bool,
}

impl Heard {
    fn of(&mut self, what: What) -> &mut bool {
        match what {
            What::Room => &mut self.room,
            What::Data => &mut self.data,
        }
    }
}

/// Those of a connection.
pub struct StreamBells {
    endpoint: Endpoint,
    /// An error number, once it is over.
    over: AtomicI32,
    heard: Mutex<Heard>,
    changed: Condvar,
    /// Held while a byte is sent: the kernel would turn away the second one of two who do not wait.
    ringing: Mutex<()>,
}

impl StreamBells {
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            over: AtomicI32::new(0),
            heard: Mutex::default(),
            changed: Condvar::new(),
            ringing: Mutex::default(),
        }
    }

    /// A panic leaves it consistent.
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, byte: u8) {
        let _ringing = self.ringing.lock().unwrap_or_else(PoisonError::into_inner);
        // Where no byte finds room any more there are thousands that nobody has heard: whoever listens, wakes up.
        if let Err(error) = self.endpoint.send(&[byte], false) {
            self.end(error);
        }
    }

    /// Tells the peer that we have left.
    pub fn leave(&self) {
        self.send(LEFT);
    }

    /// Takes the bells that have rung, for who does not sleep here.
    pub fn take(&self) {
        let mut heard = self.heard();
        let mut bytes = [0; 64];
        loop {
            match self.endpoint.recv(&mut bytes, false) {
                Ok(0) => break,
                Ok(count) => {
                    (bytes.iter().take(count)).for_each(|&byte| self.note(byte, &mut heard))
                }
                Err(Errno::INTR) => {}
                Err(error) => {
                    self.end(error);
                    break;
                }
            }
        }
        self.changed.notify_all();
    }

    fn note(&self, byte: u8, heard: &mut Heard) {
        match byte {
            b'r' => heard.room = true,
            b'd' => heard.data = true,
            LEFT => (heard.room, heard.data) = (true, true),
            // Somebody has sent on the connection by himself.
            _ => drop(self.end(Errno::PROTO)),
        }
    }
}

impl Bells for StreamBells {
    fn ring(&self, what: What) {
        self.send(what.byte());
    }

    fn wait(&self, what: What) -> Result<(), Errno> {
        let mut heard = self.heard();
        loop {
            self.check()?;
            if std::mem::take(heard.of(what)) {
                return Ok(());
            }
            if heard.listening {
                heard = (self.changed.wait(heard)).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            heard.listening = true;
            drop(heard);
            let mut byte = [0];
            let received = self.endpoint.recv(&mut byte, true);
            heard = self.heard();
            heard.listening = false;
            match received {
                Ok(0) => drop(self.end(Errno::CONNRESET)),
                Ok(_) => self.note(byte[0], &mut heard),
                Err(Errno::INTR) => {}
                Err(error) => drop(self.end(error)),
            }
            // Of the others, one goes into the kernel when this one leaves.
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
        match self.endpoint.poll_now(PollFlags::empty()) {
            Ok(flags) if flags.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) => {
                self.end(Errno::CONNRESET);
            }
            _ => {}
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
