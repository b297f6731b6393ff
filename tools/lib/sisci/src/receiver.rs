// SPDX-License-Identifier: LGPL-2.1

//! Where triggers of interrupts arrive: the connections of all who may trigger, and those that nobody
//! has waited for yet.
//!
//! Triggers stay in the connections until somebody waits, who reads them without any other thread in
//! between. Who is accepted meanwhile is in the set that is waited for at once. Before it sleeps it looks at them for
//! a moment, if that has been worth it lately, and they are few. As long as a connection is in a set that can be
//! waited for, its peer rings for whatever it sends, so one who looks alone sets them aside, until somebody sleeps.
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

/// Bytes of data that wait here, where a trigger without any counts as one; as many again wait in each connection.
const MOST_BYTES: usize = 64 << 10;

/// So many connections can be looked at one by one in no time.
const FEW: usize = 4;

/// What triggers mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Several that nobody has waited for are one.
    Once,
    /// Each counts.
    Each,
    /// Each counts, and has data.
    Data,
}

#[derive(Default)]
struct Inbox {
    count: u64,
    data: VecDeque<Vec<u8>>,
    bytes: usize,
    /// The bell is readable.
    rung: bool,
}

impl Inbox {
    fn is_empty(&self) -> bool {
        self.count == 0 && self.data.is_empty()
    }
}

/// What data counts for in the inbox.
fn cost(data: &[u8]) -> usize {
    data.len().max(1)
}

#[derive(Default)]
struct Channels {
    last: u64,
    open: HashMap<u64, Arc<Channel>>,
    waiters: usize,
    /// None of them is in the set that is waited for; else all are.
    aside: bool,
}

/// One who waits.
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

/// See the head of this file.
pub struct Receiver {
    counting: Counting,
    shared: bool,
    epoll: Descriptor,
    /// Readable while there is something in the inbox for another who waits, or it is closed.
    bell: Descriptor,
    channels: Mutex<Channels>,
    inbox: Mutex<Inbox>,
    closed: AtomicBool,
    awake: Awake,
}

const BELL: u64 = 0;

impl Receiver {
    /// With nobody connected.
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
            // If it can't count further, it is readable.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    fn silence(&self, inbox: &mut Inbox) {
        // Once closed it stays readable, for all who wait.
        if inbox.rung && !self.closed.load(Relaxed) {
            inbox.rung = false;
            let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        }
    }

    /// Nobody waits any more.
    pub fn close(&self) {
        {
            let mut inbox = lock(&self.inbox);
            self.closed.store(true, Relaxed);
            self.ring(&mut inbox);
        }
        // Those who wait are counted on, until they have left.
        let open = core::mem::take(&mut lock(&self.channels).open);
        drop(open);
    }

    /// The next trigger, with its data if it has such. OVERFLOW, with its length, if that is more than
    /// `room`: it stays then.
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

    /// Looks for a moment; whether something has come. The peers have not been told to ring for it.
    fn stay_awake(&self, deadline: Deadline) -> bool {
        let limit = self.awake.limit();
        if limit.is_zero() {
            return false;
        }
        let few = self.set_aside();
        if few.is_empty() {
            return false;
        }
        let began = Instant::now();
        while began.elapsed() < limit && !deadline.is_over() && !self.closed.load(Relaxed) {
            for (id, channel) in &few {
                self.read(*id, channel);
            }
            if !lock(&self.inbox).is_empty() {
                return true;
            }
        }
        false
    }

    /// Takes the connections out of the set that is waited for, if the caller is the only one who waits: all of
    /// them, which are few. None otherwise.
    fn set_aside(&self) -> Vec<(u64, Arc<Channel>)> {
        let mut channels = lock(&self.channels);
        if channels.waiters != 1 || channels.open.len() > FEW {
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

    /// Who sleeps hears of all.
    fn put_back(&self, channels: &mut Channels) {
        if !channels.aside {
            return;
        }
        channels.aside = false;
        // One that can't be waited for is of no use any more.
        channels.open.retain(|id, channel| self.watch(*id, channel));
    }

    /// Puts one into the set that is waited for; whether that could be done.
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

    /// Waits until something has come, and puts it into the inbox; whether that was in time.
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

    /// Lets go of those who have gone, though nobody waits; what has come of others waits in the inbox then.
    fn tidy(&self) {
        // An error is seen by who waits.
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
        // For others who wait, too, if one does not take all.
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

/// Why there is no trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// Why.
    pub error: Error,
    /// Of the data that there was no room for.
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
    fn who_waits_is_counted_until_it_leaves_though_all_is_closed() -> Result<()> {
        let receiver = Receiver::new(Counting::Once, false)?;
        let waiter = Waiter::new(&receiver);
        receiver.close();
        assert_eq!(lock(&receiver.channels).waiters, 1);
        drop(waiter);
        assert_eq!(lock(&receiver.channels).waiters, 0);
        Ok(())
    }
}
