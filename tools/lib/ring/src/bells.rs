// SPDX-License-Identifier: LGPL-2.1

//! Who is woken, and how one sleeps: a byte on the connection is a bell.
//!
//! Nobody rings for who is awake. Who is about to sleep writes into the peer's memory which count he waits for,
//! *reads that back*, and looks at the count once more; who moves a count looks whether somebody waits for it. What
//! is read back can't overtake the wish on its way there, nor its answer what the peer has stored before, so one of the two
//! sees the other.
//!
//! Of those who sleep, one for room and one for data at most, one is in the kernel; he tells the other one that
//! it has rung. A bell may ring for what is long over: whoever is woken looks.
//!
//! A bell is dropped where the connection holds no byte more. That byte would have come behind others that nobody has heard,
//! and these wake up everybody who waits, whatever they were for: so whoever is not rung for looks nevertheless, and later
//! than the peer has moved its count.

use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::endpoint::Stream;

/// What somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Room,
    Data,
}

/// The byte of each bell, and of one that says that the peer has left the ring. Which one it is only tells people.
const ROOM: u8 = b'r';
const DATA: u8 = b'd';
const LEFT: u8 = b'c';
const BYTES: [u8; 3] = [ROOM, DATA, LEFT];

impl What {
    fn byte(self) -> u8 {
        match self {
            Self::Room => ROOM,
            Self::Data => DATA,
        }
    }
}

/// What the two directions take.
pub trait Bells {
    /// Wakes the peer, who waits for this. Does not wait.
    fn ring(&self, what: What);
    /// Sleeps until the peer rings, or probably has. EINTR after a signal.
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

/// Bytes that are heard at once.
const MANY: usize = 64;

/// How often, by who does not sleep: a peer that rings without end keeps nobody for ever.
const MOST: usize = 64;

/// Those of a connection.
pub struct StreamBells<S> {
    stream: S,
    /// An error number, once it is over.
    over: AtomicI32,
    heard: Mutex<Heard>,
    changed: Condvar,
    /// Held while a byte is sent: the kernel would turn away the second one of two who do not wait.
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

    /// A panic leaves it consistent.
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, byte: u8) {
        let _ringing = self.ringing.lock().unwrap_or_else(PoisonError::into_inner);
        // If there is no room for it: see the head of this file.
        if let Err(error) = self.stream.send(&[byte], false) {
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
        for _ in 0..MOST {
            match self.hear_some(&mut heard) {
                Ok(MANY) | Err(Errno::INTR) => {}
                _ => break,
            }
        }
        self.changed.notify_all();
    }

    /// Hears what has rung, and does not wait; says how many bells.
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
            // Somebody has sent on the connection by himself.
            self.end(Errno::PROTO);
        }
    }
}

impl<S: Stream> Bells for StreamBells<S> {
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
            // All that has rung so far wakes up once.
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
