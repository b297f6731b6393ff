// SPDX-License-Identifier: LGPL-2.1

//! Those who are connected to a local segment.
//!
//! Each has a connection of SCIF of which the segment's memory is a window. When the link goes, its
//! place is kept for the grace period: who comes back with the token has been there all the time,
//! for the program.
//!
//! Locks: the connection of one of them, then `list`, or the state of the segment; nothing waits for a peer under them.

use std::sync::Arc;
use std::sync::Mutex;

use crate::attendant::Attended;
use crate::attendant::WatchId;
use crate::channel::Channel;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::error::Result;
use crate::library;
use crate::life;
use crate::life::Life;
use crate::life::Return;
use crate::listener;
use crate::local_segment::LocalSegment;
use crate::lock::lock;
use crate::nodes;
use crate::protocol::Frame;
use crate::protocol::Notice;
use crate::protocol::Welcome;
use crate::random;
use crate::reason::Reason;
use crate::threads;
use crate::uapi;

/// See the head of this file.
#[derive(Default)]
pub struct Importers {
    list: Mutex<Vec<Arc<Importer>>>,
}

/// One of them.
struct Importer {
    segment: Arc<LocalSegment>,
    token: u64,
    node: u16,
    connection: Mutex<Connection>,
}

struct Connection {
    /// None while its node is away.
    channel: Option<Arc<Channel>>,
    life: Life,
    watch: Option<WatchId>,
}

/// Makes the segment's memory a window of the connection, from offset 0 on, and says so.
fn welcome(segment: &LocalSegment, endpoint: &Endpoint, token: u64) -> Result<Frame> {
    let length = segment.memory()?.len() as u64;
    let protection = uapi::PROT_READ | uapi::PROT_WRITE;
    endpoint.register(segment.pinned()?, 0..length, protection, Some(0))?;
    Ok(Frame::Welcome(Welcome {
        size: segment.size() as u64,
        token,
        ..Default::default()
    }))
}

/// The present life of the node that an importer is on. The first importer of a node takes a descriptor for a
/// moment; connections that have not said what they want make room for it.
fn life_of(node: u16) -> Result<Life> {
    loop {
        match Life::of(node) {
            Err(Error::NOSPC) if listener::end_oldest() => (),
            result => return result,
        }
    }
}

impl Importers {
    /// Somebody has connected to the segment whose these are.
    pub fn add(&self, segment: &Arc<LocalSegment>, channel: Channel) {
        let channel = Arc::new(channel);
        let node = channel.node;
        let known = random::number().and_then(|token| Ok((token, life_of(node)?)));
        let (token, life) = match known {
            Ok(known) => known,
            Err(error) => {
                let _ = channel.send(&Frame::Refuse(error.code()));
                return;
            }
        };
        let importer = Arc::new(Importer {
            segment: segment.clone(),
            token,
            node,
            connection: Mutex::new(Connection {
                channel: Some(channel.clone()),
                life,
                watch: None,
            }),
        });
        // Who tells all importers something from here on waits for the welcome, and reaches this one, too.
        let connection = lock(&importer.connection);
        lock(&self.list).push(importer.clone());
        // The program may have taken the memory away from all before this one was among them.
        if let Err(error) = segment.check_available() {
            drop(connection);
            self.remove(&importer);
            let _ = channel.send(&Frame::Refuse(error.code()));
            return;
        }
        let welcome = welcome(segment, &channel.endpoint, token);
        let is_told = welcome.is_ok();
        let welcomed = welcome.and_then(|welcome| {
            segment
                .events
                .push((Reason::Connect, nodes::sisci_id(node)));
            channel.send(&welcome)
        });
        drop(connection);
        match welcomed {
            Ok(()) => importer.watch(channel, life),
            Err(error) => {
                let _ = channel.send(&Frame::Refuse(error.code()));
                // Programs count.
                match is_told {
                    true => importer.over(Reason::Disconnect),
                    false => drop(self.remove(&importer)),
                }
            }
        }
    }

    /// Somebody has come back after the link was away.
    pub fn resume(&self, segment: &Arc<LocalSegment>, channel: Channel, token: u64) {
        let found = lock(&self.list)
            .iter()
            .find(|other| other.token == token)
            .cloned();
        let resumed = found.ok_or(Error::NO_SUCH_SEGMENT).and_then(|importer| {
            let life = life_of(channel.node)?;
            if importer.node != channel.node || !importer.is_same_life(&life) {
                return Err(Error::NO_SUCH_SEGMENT);
            }
            channel.send(&welcome(segment, &channel.endpoint, token)?)?;
            Ok((importer, life))
        });
        match resumed {
            Ok((importer, life)) => {
                // If the end of the old connection was not seen yet, it is now.
                importer.suspend();
                segment
                    .events
                    .push((Reason::Operational, nodes::sisci_id(importer.node)));
                importer.watch(Arc::new(channel), life);
            }
            Err(error) => {
                let _ = channel.send(&Frame::Refuse(error.code()));
            }
        }
    }

    /// A process of this node wants to share the memory.
    pub fn attach(&self, segment: &LocalSegment, channel: &Channel) {
        let own = nodes::own().ok();
        let answer = match segment.shared_name() {
            Some(name) if own == Some(channel.node) => Frame::Welcome(Welcome {
                size: segment.size() as u64,
                token: name,
                ..Default::default()
            }),
            _ => Frame::Refuse(Error::NO_SUCH_SEGMENT.code()),
        };
        let _ = channel.send(&answer);
    }

    /// Says something to all.
    pub fn tell_all(&self, notice: Notice) {
        let list = lock(&self.list).clone();
        for importer in list {
            let channel = lock(&importer.connection).channel.clone();
            if let Some(channel) = channel {
                // Who does not read what it is told has no room for more at some time, and does not hear this.
                let _ = channel.send(&Frame::Notice(notice));
            }
        }
    }

    /// Takes the memory away from all.
    pub fn disconnect_all(&self) {
        self.tell_all(Notice::Removed);
        let list = core::mem::take(&mut *lock(&self.list));
        for importer in list {
            importer.disconnect();
        }
    }

    fn has(&self, importer: &Arc<Importer>) -> bool {
        let list = lock(&self.list);
        list.iter().any(|other| Arc::ptr_eq(other, importer))
    }

    fn remove(&self, importer: &Arc<Importer>) -> bool {
        let mut list = lock(&self.list);
        let found = list.iter().position(|other| Arc::ptr_eq(other, importer));
        match found {
            Some(index) => {
                let removed = list.swap_remove(index);
                drop(list);
                drop(removed);
                true
            }
            None => false,
        }
    }
}

impl Importer {
    fn watch(self: &Arc<Self>, channel: Arc<Channel>, life: Life) {
        let Ok(attendant) = library::attendant() else {
            return;
        };
        let mut connection = lock(&self.connection);
        if !self.segment.importers.has(self) {
            // The program has taken the memory away meanwhile. The connection ends with `channel`.
            connection.channel = None;
            return;
        }
        connection.channel = Some(channel.clone());
        connection.life = life;
        connection.watch = attendant.watch(&channel.endpoint, self.clone()).ok();
    }

    fn is_same_life(&self, now: &Life) -> bool {
        let before = lock(&self.connection).life;
        matches!(before.returned(), Return::Same(life) if life == *now)
    }

    /// Whether it has not come back since the end of that stretch: if it has, and has gone again, another waits.
    fn is_away_since(&self, life: &Life) -> bool {
        let connection = lock(&self.connection);
        connection.channel.is_none() && connection.life == *life
    }

    /// Lets go of the connection; says whether there was one.
    fn disconnect(&self) -> bool {
        let mut connection = lock(&self.connection);
        let (channel, watch) = (connection.channel.take(), connection.watch.take());
        drop(connection);
        let Some(channel) = channel else { return false };
        if let (Some(watch), Ok(attendant)) = (watch, library::attendant()) {
            attendant.forget(&channel.endpoint, watch);
        }
        true
    }

    /// The link is away, if that is not known yet.
    fn suspend(&self) {
        if self.disconnect() {
            let event = (Reason::NotOperational, nodes::sisci_id(self.node));
            self.segment.events.push(event);
        }
    }

    /// The connection has ended, as was said, or because something has gone.
    fn ended(self: &Arc<Self>, as_said: bool) {
        let life = lock(&self.connection).life;
        if as_said || life.goes_on() {
            self.disconnect();
            self.over(Reason::Disconnect);
            return;
        }
        self.suspend();
        let this = self.clone();
        // Without a thread nobody would wait for it.
        if threads::spawn("sisci-grace", move || this.await_return(life)).is_err() {
            self.over(Reason::Lost);
        }
    }

    fn await_return(self: Arc<Self>, life: Life) {
        let deadline = life::end_of_grace();
        loop {
            std::thread::sleep(life::LOOK);
            if library::check_running().is_err() || !self.is_away_since(&life) {
                return;
            }
            if deadline.is_over() || life.returned() == Return::Other {
                return self.over(Reason::Lost);
            }
        }
    }

    fn over(self: &Arc<Self>, reason: Reason) {
        // Once, and not for those whom the program has disconnected itself.
        if self.segment.importers.remove(self) {
            self.segment
                .events
                .push((reason, nodes::sisci_id(self.node)));
        }
    }
}

impl Attended for Importer {
    fn ready(self: Arc<Self>, watch: WatchId) {
        let channel = {
            let connection = lock(&self.connection);
            if connection.watch != Some(watch) {
                return;
            }
            connection.channel.clone()
        };
        let Some(channel) = channel else { return };
        // An importer has nothing to say but its end; one that says more is hung up on.
        let mut is_strange = false;
        let received = channel.receive(|_| is_strange = true);
        if received.is_err() || is_strange || channel.said_bye() {
            self.ended(channel.said_bye());
        }
    }
}
