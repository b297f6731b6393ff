// SPDX-License-Identifier: LGPL-2.1

//! A connection to a segment of another process.
//!
//! If the link was down and the node comes back in the same life, see `life.rs`, the connection is
//! made again. Maps then show the segment again at the same addresses.
//!
//! Locks: `maps`, then `link`.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::Weak;

use crate::attendant::Attended;
use crate::attendant::WatchId;
use crate::channel::Channel;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::error::OK;
use crate::error::Result;
use crate::events::Events;
use crate::library;
use crate::life;
use crate::life::Life;
use crate::life::Return;
use crate::lock::lock;
use crate::mapping::Place;
use crate::protocol::Frame;
use crate::protocol::Hello;
use crate::protocol::Notice;
use crate::reason::Reason;
use crate::remote_copies::RemoteCopies;
use crate::remote_map::RemoteMap;
use crate::threads;
use crate::transfers::Transfers;

/// An event of a remote segment: the reason, and an error or [`OK`].
pub type Event = (Reason, u32);

/// Timeout of each attempt to connect again.
const AGAIN: u32 = 2000;

/// A connection to a remote segment.
pub struct Import {
    node: u16,
    class: u32,
    number: u32,
    size: u64,
    events: Arc<Events<Event>>,
    link: Mutex<Link>,
    maps: Mutex<Maps>,
}

/// The maps and copies of an import. The import renews them when it has connected again.
#[derive(Default)]
struct Maps {
    maps: Vec<Weak<RemoteMap>>,
    copies: Vec<Weak<RemoteCopies>>,
}

struct Link {
    stand: Stand,
    life: Life,
    token: u64,
    watch: Option<WatchId>,
}

enum Stand {
    Up(Arc<Transfers>),
    /// The node is away.
    Away,
    /// The connection is lost for good, or this side has released it.
    Over,
}

impl Import {
    /// Connects to a segment.
    pub fn connect(
        node: u16,
        class: u32,
        number: u32,
        deadline: Deadline,
        events: &Arc<Events<Event>>,
    ) -> Result<Arc<Self>> {
        let (life, channel, welcome) = life::connect_within(node, deadline, || {
            Channel::connect(node, class, Hello::new(number), deadline)
        })?;
        channel.endpoint.read_ones_after_loss()?;
        let channel = Arc::new(channel);
        let this = Arc::new(Self {
            node,
            class,
            number,
            size: welcome.size,
            events: events.clone(),
            link: Mutex::new(Link {
                stand: Stand::Up(Transfers::new(channel.clone())),
                life,
                token: welcome.token,
                watch: None,
            }),
            maps: Mutex::default(),
        });
        this.watch(&channel)?;
        Ok(this)
    }

    fn watch(self: &Arc<Self>, channel: &Arc<Channel>) -> Result<()> {
        let attendant = library::attendant()?;
        let watch = {
            let mut link = lock(&self.link);
            let watch = attendant.watch(&channel.endpoint, self.clone())?;
            link.watch = Some(watch);
            watch
        };
        // Frames may have come behind the welcome.
        self.clone().ready(watch);
        Ok(())
    }

    /// Returns the size of the segment in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the node that has the segment.
    pub fn node(&self) -> u16 {
        self.node
    }

    /// Returns the epoch in which the import is connected, if it is.
    pub fn epoch(&self) -> Option<u64> {
        let link = lock(&self.link);
        matches!(link.stand, Stand::Up(_)).then(|| link.life.epoch())
    }

    /// Returns whether the import is over and will never be connected again.
    pub fn is_over(&self) -> bool {
        matches!(lock(&self.link).stand, Stand::Over)
    }

    /// Returns the transfers on the present connection.
    pub fn transfers(&self) -> Result<Arc<Transfers>> {
        match &lock(&self.link).stand {
            Stand::Up(transfers) => Ok(transfers.clone()),
            Stand::Away | Stand::Over => Err(Error::NOT_CONNECTED),
        }
    }

    /// Returns the present connection.
    pub fn channel(&self) -> Result<Arc<Channel>> {
        Ok(self.transfers()?.channel.clone())
    }

    // ----- maps ---------------------------------------------------------------------------------

    /// Maps a part of the segment.
    pub fn map(
        self: &Arc<Self>,
        offset: u64,
        len: usize,
        writable: bool,
        place: Place,
    ) -> Result<Arc<RemoteMap>> {
        let mut maps = lock(&self.maps);
        let channel = self.channel()?;
        let map = RemoteMap::new(&channel.endpoint, offset, len, writable, place)?;
        maps.maps.retain(|map| map.strong_count() > 0);
        maps.maps.push(Arc::downgrade(&map));
        Ok(map)
    }

    /// Prepares copies to the segment from `offset` on, for a segment that can't be mapped.
    pub fn copies(&self, offset: u64) -> Result<Arc<RemoteCopies>> {
        let mut maps = lock(&self.maps);
        let copies = RemoteCopies::new(&self.channel()?.endpoint, offset)?;
        maps.copies.retain(|copies| copies.strong_count() > 0);
        maps.copies.push(Arc::downgrade(&copies));
        Ok(copies)
    }

    // ----- the end ------------------------------------------------------------------------------

    /// Drops the connection. Returns the state before, unless the import was over already.
    fn disconnect(&self, stand: Stand) -> Option<Stand> {
        let mut link = lock(&self.link);
        if matches!(link.stand, Stand::Over) {
            return None;
        }
        let before = core::mem::replace(&mut link.stand, stand);
        let watch = link.watch.take();
        drop(link);
        if let Stand::Up(transfers) = &before {
            transfers.end();
            if let (Some(watch), Ok(attendant)) = (watch, library::attendant()) {
                attendant.forget(&transfers.channel.endpoint, watch);
            }
        }
        Some(before)
    }

    /// Releases the import, which this side needs no more.
    pub fn release(&self) {
        if let Some(Stand::Up(transfers)) = self.disconnect(Stand::Over) {
            transfers.channel.say_bye();
        }
    }

    fn lost(&self) {
        if self.disconnect(Stand::Over).is_none() {
            return;
        }
        // Stores made since the node went were lost, even if the node is back.
        for map in lock(&self.maps).maps.iter().filter_map(Weak::upgrade) {
            map.lost();
        }
        self.events
            .push((Reason::Lost, Error::NOT_CONNECTED.code()));
    }

    fn ended(self: &Arc<Self>) {
        let life = lock(&self.link).life;
        if life.goes_on() {
            return self.lost();
        }
        if self.disconnect(Stand::Away).is_none() {
            return;
        }
        self.events.push((Reason::NotOperational, OK));
        let this = self.clone();
        // Without the thread the node's return would not be waited for.
        if threads::spawn("sisci-recovery", move || this.await_return(life)).is_err() {
            self.lost();
        }
    }

    fn await_return(self: Arc<Self>, life: Life) {
        let deadline = life::end_of_grace();
        loop {
            std::thread::sleep(life::LOOK);
            if library::check_running().is_err() || self.is_over() {
                return;
            }
            match life.returned() {
                Return::Away => (),
                Return::Other => return self.lost(),
                Return::Same(now) => match self.connect_again(now) {
                    Ok(()) => return,
                    Err(Error::NO_SUCH_SEGMENT) => return self.lost(),
                    Err(_) => (),
                },
            }
            if deadline.is_over() {
                return self.lost();
            }
        }
    }

    fn connect_again(self: &Arc<Self>, now: Life) -> Result<()> {
        let hello = Hello {
            token: lock(&self.link).token,
            ..Hello::new(self.number)
        };
        let deadline = Deadline::after(AGAIN);
        let (channel, welcome) = Channel::connect(self.node, self.class, hello, deadline)?;
        if welcome.size != self.size {
            return Err(Error::NO_SUCH_SEGMENT);
        }
        if !now.goes_on() {
            return Err(Error::NODE_NOT_RESPONDING);
        }
        channel.endpoint.read_ones_after_loss()?;
        let channel = Arc::new(channel);
        let maps = lock(&self.maps);
        for map in maps.maps.iter().filter_map(Weak::upgrade) {
            map.renew(&channel.endpoint)?;
        }
        for copies in maps.copies.iter().filter_map(Weak::upgrade) {
            copies.renew(&channel.endpoint)?;
        }
        {
            let mut link = lock(&self.link);
            if matches!(link.stand, Stand::Over) {
                channel.say_bye();
                return Ok(());
            }
            link.stand = Stand::Up(Transfers::new(channel.clone()));
            link.life = now;
        }
        drop(maps);
        self.events.push((Reason::Operational, OK));
        self.watch(&channel)
    }
}

impl Attended for Import {
    fn ready(self: Arc<Self>, watch: WatchId) {
        let channel = {
            let link = lock(&self.link);
            match &link.stand {
                Stand::Up(transfers) if link.watch == Some(watch) => transfers.channel.clone(),
                _ => return,
            }
        };
        let mut is_over = false;
        let received = channel.receive(|frame| match frame {
            Frame::Notice(Notice::Unavailable) => self.events.push((Reason::Disconnect, OK)),
            // The segment is taken away. Any other frame ends the connection, too.
            _ => is_over = true,
        });
        if is_over {
            self.lost();
        } else if received.is_err() {
            self.ended();
        }
    }
}
