// SPDX-License-Identifier: LGPL-2.1

//! A name of this node, under which others connect to a resource.
//!
//! A connection is the resource's once it has said what it wants; until then it is looked after
//! here, [`MOST_GREETING`] at a time. The name is free when this is closed.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::Weak;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;

use crate::attendant::Attendant;
use crate::attendant::Attended;
use crate::attendant::WatchId;
use crate::channel::Channel;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::error::Result;
use crate::lock::lock;
use crate::protocol::Frame;
use crate::protocol::Hello;

/// How many connections may keep their wishes to themselves.
const MOST_GREETING: usize = 256;

/// What others connect to.
pub trait Connected: Send + Sync {
    /// Somebody has connected and said what they want. Called by the attendant, so it does not wait.
    fn connected(self: Arc<Self>, channel: Channel, hello: Hello);
}

/// See the head of this file.
pub struct Listener {
    /// Until it is closed.
    endpoint: Mutex<Option<Arc<Endpoint>>>,
    number: u32,
    attendant: Arc<Attendant>,
    owner: Mutex<Option<Weak<dyn Connected>>>,
    watch: Mutex<Option<WatchId>>,
    greeting: AtomicUsize,
    /// Held while connections are accepted.
    accepting: Mutex<()>,
}

impl Listener {
    /// Takes a name, or any that is free; `used` if another has it. Nobody is accepted before it is opened.
    pub fn new(
        attendant: &Arc<Attendant>,
        class: u32,
        name: Option<u32>,
        used: Error,
    ) -> Result<Arc<Self>> {
        let (endpoint, number) = Endpoint::listening(class, name).map_err(|error| match error {
            Errno::ADDRINUSE => used,
            error => error.into(),
        })?;
        Ok(Arc::new(Self {
            endpoint: Mutex::new(Some(Arc::new(endpoint))),
            number,
            attendant: attendant.clone(),
            owner: Mutex::new(None),
            watch: Mutex::new(None),
            greeting: AtomicUsize::new(0),
            accepting: Mutex::new(()),
        }))
    }

    /// The name.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Those who connect are handed to `owner` from now on.
    pub fn open(self: &Arc<Self>, owner: Weak<dyn Connected>) -> Result<()> {
        *lock(&self.owner) = Some(owner);
        let endpoint = lock(&self.endpoint).clone().ok_or(Error::CANCELLED)?;
        *lock(&self.watch) = Some(self.attendant.watch(&*endpoint, self.clone())?);
        Ok(())
    }

    /// Nobody is accepted any more, and the name is free, once the attendant has accepted those whom it
    /// is just accepting.
    pub fn close(&self) {
        let (endpoint, watch) = (lock(&self.endpoint).take(), lock(&self.watch).take());
        if let (Some(endpoint), Some(watch)) = (&endpoint, watch) {
            self.attendant.forget(&**endpoint, watch);
        }
        *lock(&self.owner) = None;
        // Who accepts has the endpoint, too, and the name is free with the last.
        drop(lock(&self.accepting));
        drop(endpoint);
    }

    fn owner(&self) -> Option<Arc<dyn Connected>> {
        lock(&self.owner).as_ref()?.upgrade()
    }
}

impl Attended for Listener {
    fn ready(self: Arc<Self>, _: WatchId) {
        let _accepting = lock(&self.accepting);
        let Some(listening) = lock(&self.endpoint).clone() else {
            return;
        };
        // An error concerns one connection, which is gone; others are told of next time.
        while let Ok(Some((endpoint, node))) = listening.accept() {
            if self.greeting.load(Relaxed) >= MOST_GREETING {
                continue;
            }
            self.greeting.fetch_add(1, Relaxed);
            let greeting = Arc::new(Greeting {
                channel: Mutex::new(Some(Channel::new(endpoint, node))),
                listener: self.clone(),
            });
            greeting.begin();
        }
    }
}

/// A connection that has not said what it wants.
struct Greeting {
    channel: Mutex<Option<Channel>>,
    listener: Arc<Listener>,
}

impl Greeting {
    fn begin(self: Arc<Self>) {
        let guard = lock(&self.channel);
        if let Some(channel) = &*guard {
            // If it can't be watched, it is closed with the last reference.
            let _ = self
                .listener
                .attendant
                .watch(&channel.endpoint, self.clone());
        }
    }
}

impl Attended for Greeting {
    fn ready(self: Arc<Self>, watch: WatchId) {
        let mut guard = lock(&self.channel);
        let Some(channel) = &*guard else { return };
        let mut first = None;
        let ended = channel.receive(|frame| {
            first.get_or_insert(frame);
        });
        if first.is_none() && ended.is_ok() {
            return;
        }
        self.listener.attendant.forget(&channel.endpoint, watch);
        let channel = guard.take();
        drop(guard);
        let (Some(channel), Some(Frame::Hello(hello))) = (channel, first) else {
            return;
        };
        match self.listener.owner() {
            Some(owner) if hello.number == self.listener.number => owner.connected(channel, hello),
            _ => {
                let _ = channel.send(&Frame::Refuse(Error::NO_SUCH_SEGMENT.code()));
            }
        }
    }
}

impl Drop for Greeting {
    fn drop(&mut self) {
        self.listener.greeting.fetch_sub(1, Relaxed);
    }
}
