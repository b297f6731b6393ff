// SPDX-License-Identifier: LGPL-2.1

//! The receiving side of interrupts: the connections of all peers that may trigger, and the
//! triggers that no thread has waited for yet.
//!
//! Triggers stay in the connections until a thread waits. The waiter reads them itself, without
//! another thread in between. A connection that is accepted meanwhile is at once in the epoll set
//! that the waiter sleeps on. Before a waiter sleeps, it polls the connections for a moment, if
//! there are few of them and polling has paid off lately. As long as a connection is in an epoll
//! set, its peer rings for whatever it sends. So a waiter that polls alone takes the connections
//! out of the set, until a waiter sleeps.
//!
//! Locks: `channels`, then `inbox`.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use awake::Awake;
use rustix::event::EventfdFlags;
use rustix::event::epoll;
use rustix::event::epoll::EventData;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::channel::Channel;
use crate::deadline::Deadline;
use crate::descriptors::Descriptor;
use crate::error::Error;
use crate::error::Result;
use crate::listener::Connected;
use crate::lock::lock;
use crate::protocol::Frame;
use crate::protocol::Hello;
use crate::protocol::Welcome;

/// Bytes of data that the inbox holds, where a trigger without data counts as one byte. Each
/// connection holds as many again.
const MOST_BYTES: usize = 64 << 10;

/// Largest number of connections that a waiter polls one by one.
const MAX_POLLED: usize = 4;

/// The way in which triggers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Several triggers that no thread has waited for count as one.
    Once,
    /// Each trigger counts.
    Each,
    /// Each trigger counts, and has data.
    Data,
}

#[derive(Default)]
struct Inbox {
    count: u64,
    data: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Whether the bell is readable.
    rung: bool,
}

impl Inbox {
    fn is_empty(&self) -> bool {
        self.count == 0 && self.data.is_empty()
    }
}

/// Returns how many bytes a trigger's data count for in the inbox.
fn cost(data: &[u8]) -> usize {
    data.len().max(1)
}

#[derive(Default)]
struct Channels {
    last: u64,
    open: HashMap<u64, Arc<Channel>>,
    waiters: usize,
    /// Whether no connection is in the epoll set. If false, all are.
    aside: bool,
}

/// A thread that waits for a trigger.
struct Waiter<'a>(&'a Receiver);

impl<'a> Waiter<'a> {
    fn new(receiver: &'a Receiver) -> Self {
        let mut channels = lock(&receiver.channels);
        channels.waiters += 1;
        if channels.waiters > 1 {
            receiver.put_back(&mut channels);
        }
        Self(receiver)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        lock(&self.0.channels).waiters -= 1;
    }
}

/// The receiver of a local interrupt.
pub struct Receiver {
    counting: Counting,
    shared: bool,
    epoll: Descriptor,
    /// An eventfd. Readable while the inbox holds something for another waiter, or the receiver is
    /// closed.
    bell: Descriptor,
    channels: Mutex<Channels>,
    inbox: Mutex<Inbox>,
    closed: AtomicBool,
    awake: Awake,
}

const BELL: u64 = 0;

impl Receiver {
    /// Creates a receiver without connections.
    pub fn new(counting: Counting, shared: bool) -> Result<Arc<Self>> {
        let this = Self {
            counting,
            shared,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?.into(),
            bell: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?.into(),
            channels: Mutex::new(Channels::default()),
            inbox: Mutex::new(Inbox::default()),
            closed: AtomicBool::new(false),
            awake: Awake::new(),
        };
        epoll::add(
            &this.epoll,
            &this.bell,
            EventData::new_u64(BELL),
            EventFlags::IN,
        )?;
        Ok(Arc::new(this))
    }

    fn ring(&self, inbox: &mut Inbox) {
        if !inbox.rung {
            inbox.rung = true;
            // If the eventfd can't count further, it is readable already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    fn silence(&self, inbox: &mut Inbox) {
        // Once closed, the bell stays readable for all waiters.
        if inbox.rung && !self.closed.load(Relaxed) {
            inbox.rung = false;
            let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        }
    }

    /// Cancels all waits, those in progress and later ones.
    pub fn close(&self) {
        {
            let mut inbox = lock(&self.inbox);
            self.closed.store(true, Relaxed);
            self.ring(&mut inbox);
        }
        // Waiters stay counted until they have left.
        let open = core::mem::take(&mut lock(&self.channels).open);
        drop(open);
    }

    /// Waits for the next trigger. Returns its data, or nothing if triggers have none. OVERFLOW,
    /// with the length of the data, if the data are longer than `room`; the trigger then stays.
    pub fn next(&self, room: usize, deadline: Deadline) -> core::result::Result<Vec<u8>, Missed> {
        let _waiter = Waiter::new(self);
        let began = Instant::now();
        let mut was_awake = false;
        loop {
            if self.closed.load(Relaxed) {
                return Err(Error::CANCELLED.into());
            }
            if let Some(taken) = self.take(room)? {
                if was_awake {
                    self.awake.learn(began.elapsed());
                }
                return Ok(taken);
            }
            if !was_awake {
                was_awake = true;
                if self.stay_awake(deadline) {
                    continue;
                }
            }
            if !self.gather(deadline)? {
                self.awake.learn_of_nothing(began.elapsed());
                return Err(Error::TIMEOUT.into());
            }
        }
    }

    /// Polls for a moment. Returns whether a trigger has come. The peers have not been told to ring
    /// for it.
    fn stay_awake(&self, deadline: Deadline) -> bool {
        let limit = self.awake.limit();
        if limit.is_zero() {
            return false;
        }
        let connections = self.set_aside();
        if connections.is_empty() {
            return false;
        }
        let began = Instant::now();
        while began.elapsed() < limit && !deadline.is_over() && !self.closed.load(Relaxed) {
            for (id, channel) in &connections {
                self.read(*id, channel);
            }
            if !lock(&self.inbox).is_empty() {
                return true;
            }
        }
        false
    }

    /// Takes all connections out of the epoll set and returns them, if the caller is the only
    /// waiter and they are few. Returns none if not.
    fn set_aside(&self) -> Vec<(u64, Arc<Channel>)> {
        let mut channels = lock(&self.channels);
        if channels.waiters != 1 || channels.open.len() > MAX_POLLED {
            return Vec::new();
        }
        if !channels.aside {
            for channel in channels.open.values() {
                let _ = epoll::delete(&self.epoll, &channel.endpoint);
            }
            channels.aside = true;
        }
        let all = channels.open.iter();
        all.map(|(id, channel)| (*id, channel.clone())).collect()
    }

    /// Puts all connections back into the epoll set. A waiter that sleeps must hear of all of them.
    fn put_back(&self, channels: &mut Channels) {
        if !channels.aside {
            return;
        }
        channels.aside = false;
        // A connection that can't be watched is of no use any more.
        channels.open.retain(|id, channel| self.watch(*id, channel));
    }

    /// Puts a connection into the epoll set. Returns whether that worked.
    fn watch(&self, id: u64, channel: &Channel) -> bool {
        let data = EventData::new_u64(id);
        epoll::add(&self.epoll, &channel.endpoint, data, EventFlags::IN).is_ok()
    }

    fn take(&self, room: usize) -> core::result::Result<Option<Vec<u8>>, Missed> {
        let mut inbox = lock(&self.inbox);
        if self.counting == Counting::Data {
            let Some(first) = inbox.data.front() else {
                return Ok(None);
            };
            if first.len() > room {
                return Err(Missed {
                    error: Error::OVERFLOW,
                    length: first.len(),
                });
            }
            let data = inbox.data.pop_front().unwrap_or_default();
            inbox.bytes -= cost(&data);
            if inbox.data.is_empty() {
                self.silence(&mut inbox);
            }
            return Ok(Some(data));
        }
        if inbox.count == 0 {
            return Ok(None);
        }
        inbox.count -= 1;
        if inbox.count == 0 {
            self.silence(&mut inbox);
        }
        Ok(Some(Vec::new()))
    }

    /// Waits until triggers have come, and puts them into the inbox. Returns false if none came in
    /// time.
    fn gather(&self, deadline: Deadline) -> Result<bool> {
        self.put_back(&mut lock(&self.channels));
        let mut events = [const { core::mem::MaybeUninit::uninit() }; 16];
        let (ready, _) = match epoll::wait(&self.epoll, &mut events, deadline.left().as_ref()) {
            Err(Errno::INTR) => return Ok(true),
            waited => waited?,
        };
        if ready.is_empty() {
            return Ok(false);
        }
        for event in ready.iter() {
            let id = event.data.u64();
            let channel = lock(&self.channels).open.get(&id).cloned();
            if let Some(channel) = channel {
                self.read(id, &channel);
            }
        }
        Ok(true)
    }

    /// Drops the connections of peers that have gone, although no thread waits. Triggers of other
    /// peers then wait in the inbox.
    fn tidy(&self) {
        // The next waiter sees an error.
        let _ = self.gather(Deadline::after(0));
        let mut inbox = lock(&self.inbox);
        if !inbox.is_empty() {
            self.ring(&mut inbox);
        }
    }

    fn read(&self, id: u64, channel: &Channel) {
        let mut inbox = lock(&self.inbox);
        if inbox.bytes >= MOST_BYTES {
            return;
        }
        let mut is_strange = false;
        let ended = channel.receive(|frame| {
            let Frame::Trigger(data) = frame else {
                is_strange = true;
                return;
            };
            match self.counting {
                Counting::Once => inbox.count = 1,
                Counting::Each => inbox.count = inbox.count.saturating_add(1),
                Counting::Data => {
                    inbox.bytes += cost(&data);
                    inbox.data.push_back(data);
                }
            }
        });
        // Wakes up other waiters too, if one trigger is not all.
        if inbox.count > 1 || inbox.data.len() > 1 {
            self.ring(&mut inbox);
        }
        drop(inbox);
        if ended.is_err() || is_strange || channel.said_bye() {
            let _ = epoll::delete(&self.epoll, &channel.endpoint);
            let closed = lock(&self.channels).open.remove(&id);
            drop(closed);
        }
    }
}

impl Connected for Receiver {
    fn connected(self: Arc<Self>, channel: Channel, _: Hello) {
        let welcome = Frame::Welcome(Welcome {
            counting: self.counting != Counting::Once,
            shared: self.shared,
            ..Default::default()
        });
        if channel.send(&welcome).is_err() || self.closed.load(Relaxed) {
            return;
        }
        let mut channels = lock(&self.channels);
        self.put_back(&mut channels);
        channels.last += 1;
        let id = channels.last;
        if self.watch(id, &channel) {
            channels.open.insert(id, Arc::new(channel));
        }
        drop(channels);
        self.tidy();
    }
}

/// The error of a wait for a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The reason.
    pub error: Error,
    /// Length of the data that did not fit, or 0.
    pub length: usize,
}

impl From<Error> for Missed {
    fn from(error: Error) -> Self {
        Self { error, length: 0 }
    }
}

impl From<Missed> for Error {
    fn from(missed: Missed) -> Self {
        missed.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiter_is_counted_after_close_until_it_leaves() -> Result<()> {
        let receiver = Receiver::new(Counting::Once, false)?;
        let waiter = Waiter::new(&receiver);
        receiver.close();
        assert_eq!(lock(&receiver.channels).waiters, 1);
        drop(waiter);
        assert_eq!(lock(&receiver.channels).waiters, 0);
        Ok(())
    }
}
