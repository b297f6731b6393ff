// SPDX-License-Identifier: LGPL-2.1

//! Those who are connected to a local segment, and whether more may connect.
//!
//! Each has a connection of SCIF of which the segment's memory is a window. When the link goes, its
//! place is kept for the grace period: who comes back with the token has been there all the time,
//! for the program.
//!
//! Locks: the connection of one of them, then `list`; nothing waits for a peer under them.

use std::sync::Arc;
use std::sync::Mutex;

use crate::attendant::Attended;
use crate::attendant::WatchId;
use crate::channel::Channel;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::error::Result;
use crate::events::Events;
use crate::library;
use crate::life;
use crate::life::Life;
use crate::life::Return;
use crate::listener;
use crate::lock::lock;
use crate::nodes;
use crate::protocol::Frame;
use crate::protocol::Notice;
use crate::protocol::Welcome;
use crate::random;
use crate::reason::Reason;
use crate::segment_memory::SegmentMemory;
use crate::threads;

/// Something has happened to a local segment: what, and from which node (SISCI's id).
pub type Event = (Reason, u32);

/// See the head of this file.
pub struct Importers {
    memory: Arc<SegmentMemory>,
    /// What they have done, for the program.
    pub events: Events<Event>,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// More may connect.
    is_open: bool,
    importers: Vec<Arc<Importer>>,
}

/// One of them.
struct Importer {
    importers: Arc<Importers>,
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
    /// None, and nobody may connect.
    pub fn new(memory: Arc<SegmentMemory>) -> Arc<Self> {
        Arc::new(Self {
            memory,
            events: Events::new(),
            list: Mutex::default(),
        })
    }

    /// Lets others connect from now on; says whether they could not before.
    pub fn open(&self) -> bool {
        !core::mem::replace(&mut lock(&self.list).is_open, true)
    }

    /// Refuses those who connect from now on; says whether they could before.
    pub fn close(&self) -> bool {
        core::mem::replace(&mut lock(&self.list).is_open, false)
    }

    /// Somebody has connected.
    pub fn add(self: &Arc<Self>, channel: Channel) {
        let channel = Arc::new(channel);
        if let Err(error) = self.try_add(&channel) {
            let _ = channel.send(&Frame::Refuse(error.code()));
        }
    }

    fn try_add(self: &Arc<Self>, channel: &Arc<Channel>) -> Result<()> {
        if !lock(&self.list).is_open {
            return Err(Error::NO_SUCH_SEGMENT);
        }
        let node = channel.node;
        let (token, life) = (random::number()?, life_of(node)?);
        let importer = Arc::new(Importer {
            importers: self.clone(),
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
        self.insert(&importer)?;
        let welcome = self.welcome(&channel.endpoint, token);
        let welcome = welcome.inspect_err(|_| {
            self.remove(&importer);
        })?;
        let connected = (Reason::Connect, nodes::sisci_id(node));
        self.events.push(connected);
        let welcomed = channel.send(&welcome);
        drop(connection);
        match welcomed {
            Ok(()) => importer.watch(channel.clone(), life),
            // Programs count.
            Err(_) => importer.over(Reason::Disconnect),
        }
        welcomed
    }

    /// Makes the memory a window of the connection, from offset 0 on, and returns what says so.
    fn welcome(&self, endpoint: &Endpoint, token: u64) -> Result<Frame> {
        self.memory.register(endpoint, Some(0))?;
        Ok(Frame::Welcome(Welcome {
            size: self.memory.size() as u64,
            token,
            ..Default::default()
        }))
    }

    /// Somebody has come back after the link was away.
    pub fn resume(&self, channel: Channel, token: u64) {
        match self.find_again(&channel, token) {
            Ok((importer, life)) => {
                // If the end of the old connection was not seen yet, it is now.
                importer.suspend();
                let returned = (Reason::Operational, nodes::sisci_id(importer.node));
                self.events.push(returned);
                importer.watch(Arc::new(channel), life);
            }
            Err(error) => {
                let _ = channel.send(&Frame::Refuse(error.code()));
            }
        }
    }

    /// Welcomes one that has come back in the same life of its node.
    fn find_again(&self, channel: &Channel, token: u64) -> Result<(Arc<Importer>, Life)> {
        let found = lock(&self.list)
            .importers
            .iter()
            .find(|other| other.token == token)
            .cloned();
        let importer = found.ok_or(Error::NO_SUCH_SEGMENT)?;
        let life = life_of(channel.node)?;
        if importer.node != channel.node || !importer.is_same_life(&life) {
            return Err(Error::NO_SUCH_SEGMENT);
        }
        channel.send(&self.welcome(&channel.endpoint, token)?)?;
        Ok((importer, life))
    }

    /// Says something to all.
    pub fn tell_all(&self, notice: Notice) {
        let importers = lock(&self.list).importers.clone();
        for importer in importers {
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
        let importers = core::mem::take(&mut lock(&self.list).importers);
        for importer in importers {
            importer.disconnect();
        }
    }

    fn has(&self, importer: &Arc<Importer>) -> bool {
        let list = lock(&self.list);
        let mut importers = list.importers.iter();
        importers.any(|other| Arc::ptr_eq(other, importer))
    }

    /// Adds one, unless the program has refused more meanwhile.
    fn insert(&self, importer: &Arc<Importer>) -> Result<()> {
        let mut list = lock(&self.list);
        if !list.is_open {
            return Err(Error::NO_SUCH_SEGMENT);
        }
        list.importers.push(importer.clone());
        Ok(())
    }

    /// Removes one; says whether it was there.
    fn remove(&self, importer: &Arc<Importer>) -> bool {
        let mut list = lock(&self.list);
        let mut importers = list.importers.iter();
        let found = importers.position(|other| Arc::ptr_eq(other, importer));
        let removed = found.map(|index| list.importers.swap_remove(index));
        drop(list);
        removed.is_some()
    }
}

impl Importer {
    fn watch(self: &Arc<Self>, channel: Arc<Channel>, life: Life) {
        let Ok(attendant) = library::attendant() else {
            return;
        };
        let mut connection = lock(&self.connection);
        if !self.importers.has(self) {
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
            self.importers.events.push(event);
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
        if self.importers.remove(self) {
            let event = (reason, nodes::sisci_id(self.node));
            self.importers.events.push(event);
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
