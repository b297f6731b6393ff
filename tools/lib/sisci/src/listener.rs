// SPDX-License-Identifier: LGPL-2.1

//! A name of this node, under which peers connect to a resource.
//!
//! A connection is handed to the resource once the peer has sent its hello. Until then it is a
//! greeting, at most [`MOST_GREETING`] for all names. The greeting that has been silent the longest
//! is closed to make room for the next one, or for anything that lacks a descriptor. If there is no
//! greeting to close, no connection is accepted for a moment: it waits in the kernel. The name is
//! free when the listener is closed.
//!
//! Locks: `accepting`, then a greeting's `speaker`; `GREETING`: a leaf.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::Weak;

use rustix::io::Errno;

use crate::attendant::Attendant;
use crate::attendant::Attended;
use crate::attendant::WatchId;
use crate::channel::Channel;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::error::Result;
use crate::lock::lock;
use crate::process::NewProcess;
use crate::process::PerProcess;
use crate::protocol::Frame;
use crate::protocol::Hello;

/// Number of connections that may be open without a hello.
const MOST_GREETING: usize = 64;

/// Number of connections that are accepted before other descriptors have their turn.
const MOST_AT_ONCE: usize = 32;

/// The greetings of all names. The oldest is the first; some may have ended.
static GREETING: PerProcess<Mutex<VecDeque<Weak<Greeting>>>> =
    PerProcess::new(Mutex::new(VecDeque::new()));

/// Forgets the greetings of the parent process.
pub fn forget(process: &NewProcess) {
    GREETING.renew(Mutex::new(VecDeque::new()), process);
}

/// A resource that peers connect to.
pub trait Connected: Send + Sync {
    /// Takes over a connection whose peer has sent its hello. The attendant calls this, so it must
    /// not wait.
    fn connected(self: Arc<Self>, channel: Channel, hello: Hello);
}

/// A name on this node, at which a listening endpoint takes connections.
pub struct Listener {
    /// None once closed.
    endpoint: Mutex<Option<Arc<Endpoint>>>,
    number: u32,
    attendant: Arc<Attendant>,
    owner: Mutex<Option<Weak<dyn Connected>>>,
    watch: Mutex<Option<WatchId>>,
    /// Held while connections are accepted.
    accepting: Mutex<()>,
}

impl Listener {
    /// Takes the name, or any free one; fails with `used` if the name is taken. No connection is
    /// accepted before [`Self::open`].
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
            accepting: Mutex::new(()),
        }))
    }

    /// Returns the name.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Hands connections to `owner` from now on.
    pub fn open(self: &Arc<Self>, owner: Weak<dyn Connected>) -> Result<()> {
        *lock(&self.owner) = Some(owner);
        let endpoint = lock(&self.endpoint).clone().ok_or(Error::CANCELLED)?;
        *lock(&self.watch) = Some(self.attendant.watch(&*endpoint, self.clone())?);
        Ok(())
    }

    /// Stops accepting, and frees the name. First waits until the attendant has accepted the
    /// connections that it is just accepting.
    pub fn close(&self) {
        let (endpoint, watch) = (lock(&self.endpoint).take(), lock(&self.watch).take());
        if let (Some(endpoint), Some(watch)) = (&endpoint, watch) {
            self.attendant.forget(&**endpoint, watch);
        }
        *lock(&self.owner) = None;
        // The thread that accepts has a reference to the endpoint, too, and the last reference
        // holds the name.
        drop(lock(&self.accepting));
        drop(endpoint);
    }

    fn owner(&self) -> Option<Arc<dyn Connected>> {
        lock(&self.owner).as_ref()?.upgrade()
    }

    fn welcome(self: &Arc<Self>, endpoint: Endpoint, node: u16) {
        {
            let mut greeting = lock(&GREETING);
            greeting.retain(|other| other.strong_count() > 0);
            if greeting.len() >= MOST_GREETING {
                drop(greeting);
                end_oldest();
            }
        }
        let greeting = Arc::new(Greeting {
            speaker: Mutex::new(Some(Speaker {
                channel: Channel::new(endpoint, node),
                watch: None,
            })),
            listener: self.clone(),
        });
        lock(&GREETING).push_back(Arc::downgrade(&greeting));
        greeting.begin();
    }
}

impl Attended for Listener {
    fn ready(self: Arc<Self>, watch: WatchId) {
        let _accepting = lock(&self.accepting);
        let Some(listening) = lock(&self.endpoint).clone() else {
            return;
        };
        for _ in 0..MOST_AT_ONCE {
            match listening.accept() {
                Ok(Some((endpoint, node))) => self.welcome(endpoint, node),
                Ok(None) => break,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
                    if !end_oldest() {
                        return self.attendant.rest(&*listening, watch);
                    }
                }
                // The error concerns one connection, which is gone.
                Err(_) => (),
            }
        }
        self.attendant.go_on(&*listening, watch);
    }
}

/// Ends the connection that has been silent the longest, or hands it over if its hello has just
/// come. Returns false if there is none. After true, a caller that lacks a descriptor tries again.
pub fn end_oldest() -> bool {
    loop {
        let oldest = lock(&GREETING).pop_front();
        let Some(oldest) = oldest else { return false };
        if let Some(greeting) = oldest.upgrade() {
            greeting.hear();
            greeting.end();
            return true;
        }
    }
}

/// A connection whose peer has not sent its hello.
struct Greeting {
    /// None once the hello has come, or the connection was given up.
    speaker: Mutex<Option<Speaker>>,
    listener: Arc<Listener>,
}

struct Speaker {
    channel: Channel,
    watch: Option<WatchId>,
}

impl Greeting {
    fn begin(self: Arc<Self>) {
        if let Some(speaker) = &mut *lock(&self.speaker) {
            let attendant = &self.listener.attendant;
            // If the endpoint can't be watched, it is closed with the last reference.
            speaker.watch = attendant
                .watch(&speaker.channel.endpoint, self.clone())
                .ok();
        }
    }

    /// Takes the connection out of the greeting.
    fn take(&self, speaker: &mut Option<Speaker>) -> Option<Channel> {
        let speaker = speaker.take()?;
        if let Some(watch) = speaker.watch {
            let endpoint = &speaker.channel.endpoint;
            self.listener.attendant.forget(endpoint, watch);
        }
        Some(speaker.channel)
    }

    /// Closes the connection, unless it was taken out before.
    fn end(&self) {
        let channel = self.take(&mut lock(&self.speaker));
        drop(channel);
    }

    /// Handles the hello, if it has come.
    fn hear(&self) {
        let mut speaker = lock(&self.speaker);
        let Some(Speaker { channel, .. }) = &*speaker else {
            return;
        };
        let mut first = None;
        let ended = channel.receive(|frame| {
            first.get_or_insert(frame);
        });
        if first.is_none() && ended.is_ok() {
            return;
        }
        let channel = self.take(&mut speaker);
        drop(speaker);
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

impl Attended for Greeting {
    fn ready(self: Arc<Self>, _: WatchId) {
        self.hear();
    }
}
