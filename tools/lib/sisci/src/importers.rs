// SPDX-License-Identifier: LGPL-2.1

//! The importers that are connected to a local segment, and whether more may connect.
//!
//! Each importer has a SCIF connection of which the segment's memory is a window. When the link
//! goes, the importer's place is kept for the grace period. If the importer comes back with its
//! token in that time, the program sees it as connected all along.
//!
//! Locks: `connection` of an importer, then `list`; no thread waits for a peer under them.

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

/// An event of a local segment: the reason, and the node (SISCI's id) that caused it.
pub type Event = (Reason, u32);

/// All importers of a local segment.
pub struct Importers {
    memory: Arc<SegmentMemory>,
    /// The events of importers, for the program.
    pub events: Events<Event>,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// Whether more importers may connect.
    is_open: bool,
    importers: Vec<Arc<Importer>>,
}

/// A peer that is connected to the segment, or may come back.
struct Importer {
    importers: Arc<Importers>,
    token: u64,
    node: u16,
    connection: Mutex<Connection>,
}

struct Connection {
    /// None while the importer's node is away.
    channel: Option<Arc<Channel>>,
    life: Life,
    watch: Option<WatchId>,
}

/// Returns the present life of the node that an importer is on. The first importer of a node takes
/// a descriptor for a moment. If there is none, connections that have not said hello are closed to
/// make room.
fn life_of(node: u16) -> Result<Life> {
    loop {
        match Life::of(node) {
            Err(Error::NOSPC) if listener::end_oldest() => (),
            result => return result,
        }
    }
}

impl Importers {
    /// Creates an empty list, to which no importer may connect.
    pub fn new(memory: Arc<SegmentMemory>) -> Arc<Self> {
        Arc::new(Self {
            memory,
            events: Events::new(),
            list: Mutex::default(),
        })
    }

    /// Lets importers connect from now on. Returns whether they could not before.
    pub fn open(&self) -> bool {
        !core::mem::replace(&mut lock(&self.list).is_open, true)
    }

    /// Refuses importers that connect from now on. Returns whether they could connect before.
    pub fn close(&self) -> bool {
        core::mem::replace(&mut lock(&self.list).is_open, false)
    }

    /// Handles a new connection: welcomes or refuses the importer.
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
        // A thread that sends a notice to all importers from here on waits for the welcome, and so
        // reaches this importer, too.
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
            // Programs count connections, so each one also gets its end.
            Err(_) => importer.over(Reason::Disconnect),
        }
        welcomed
    }

    /// Makes the memory a window of the connection, from offset 0 on, and returns the welcome.
    fn welcome(&self, endpoint: &Endpoint, token: u64) -> Result<Frame> {
        self.memory.register(endpoint, Some(0))?;
        Ok(Frame::Welcome(Welcome {
            size: self.memory.size() as u64,
            token,
            ..Default::default()
        }))
    }

    /// Handles the connection of an importer that has come back after the link was down.
    pub fn resume(&self, channel: Channel, token: u64) {
        match self.find_again(&channel, token) {
            Ok((importer, life)) => {
                // Suspends the importer now if the end of the old connection was not seen yet.
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

    /// Welcomes an importer that has come back in the same life of its node.
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

    /// Sends a notice to all importers.
    pub fn tell_all(&self, notice: Notice) {
        let importers = lock(&self.list).importers.clone();
        for importer in importers {
            let channel = lock(&importer.connection).channel.clone();
            if let Some(channel) = channel {
                // If an importer does not read, its connection has no more room at some time, and
                // it misses the notice.
                let _ = channel.send(&Frame::Notice(notice));
            }
        }
    }

    /// Takes the memory away from all importers.
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

    /// Adds an importer, unless the program has closed the list meanwhile.
    fn insert(&self, importer: &Arc<Importer>) -> Result<()> {
        let mut list = lock(&self.list);
        if !list.is_open {
            return Err(Error::NO_SUCH_SEGMENT);
        }
        list.importers.push(importer.clone());
        Ok(())
    }

    /// Removes an importer. Returns whether it was in the list.
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
            // The program has taken the memory away meanwhile. Dropping `channel` closes the
            // connection.
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

    /// Returns whether the importer has not come back since `life` ended. If it has come back and
    /// gone again, another thread waits for it.
    fn is_away_since(&self, life: &Life) -> bool {
        let connection = lock(&self.connection);
        connection.channel.is_none() && connection.life == *life
    }

    /// Drops the connection. Returns whether there was one.
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

    /// Marks the importer's link as away, if that is not known yet.
    fn suspend(&self) {
        if self.disconnect() {
            let event = (Reason::NotOperational, nodes::sisci_id(self.node));
            self.importers.events.push(event);
        }
    }

    /// Handles the end of the connection. `as_said` means that the peer announced it; if not, the
    /// peer or the link has gone.
    fn ended(self: &Arc<Self>, as_said: bool) {
        let life = lock(&self.connection).life;
        if as_said || life.goes_on() {
            self.disconnect();
            self.over(Reason::Disconnect);
            return;
        }
        self.suspend();
        let this = self.clone();
        // Without the thread the importer's return would not be waited for.
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
        // Only one caller removes the importer, and none if the program has disconnected it itself.
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
        // An importer announces its end and nothing else; one that sends more is disconnected.
        let mut is_strange = false;
        let received = channel.receive(|_| is_strange = true);
        if received.is_err() || is_strange || channel.said_bye() {
            self.ended(channel.said_bye());
        }
    }
}
