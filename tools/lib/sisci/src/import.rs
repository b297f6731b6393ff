// SPDX-License-Identifier: LGPL-2.1

//! A connection to a segment of another process.
//!
//! It is made again when the link was away and the node comes back in the same life, see
//! `life.rs`; maps then show the segment again where they did before.
//!
//! Locks: `maps`, then `link`. `link` is held while a window is made, which does not wait for programs.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::Weak;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;

use std::os::fd::AsFd;

use crate::attendant::Attended;
use crate::attendant::WatchId;
use crate::channel::Channel;
use crate::deadline::Deadline;
use crate::endpoint::Copied;
use crate::endpoint::Direction;
use crate::error::Error;
use crate::error::OK;
use crate::error::Result;
use crate::events::Events;
use crate::library;
use crate::life;
use crate::life::Life;
use crate::life::Return;
use crate::local_segment::LocalSegment;
use crate::lock::lock;
use crate::mapping::Mapping;
use crate::mapping::Place;
use crate::mapping::shared_memory;
use crate::memory::PAGE;
use crate::protocol::Frame;
use crate::protocol::Hello;
use crate::protocol::Notice;
use crate::reason::Reason;
use crate::remote_map::RemoteMap;
use crate::threads;
use crate::uapi;

/// Something has happened to a remote segment: what, and an error or [`OK`].
pub type Event = (Reason, u32);

/// How long connecting anew may take, each time.
const AGAIN: u32 = 2000;

/// See the head of this file.
pub struct Import {
    node: u16,
    class: u32,
    number: u32,
    size: u64,
    events: Arc<Events<Event>>,
    link: Mutex<Link>,
    maps: Mutex<Vec<Weak<RemoteMap>>>,
}

struct Link {
    stand: Stand,
    life: Life,
    token: u64,
    watch: Option<WatchId>,
    /// Local segments that are windows of the connection: offset and length, by identity.
    windows: HashMap<u64, (i64, u64)>,
    progress: Option<Progress>,
}

enum Stand {
    Up(Arc<Channel>),
    /// Its node is away.
    Away,
    /// For good; or this side has released it.
    Over,
}

/// A word that the driver sets to the number of the last transfer that has ended and that was asked for.
struct Progress {
    word: Mapping,
    offset: i64,
    asked: u64,
}

impl Import {
    /// Connects.
    pub fn connect(
        node: u16,
        class: u32,
        number: u32,
        deadline: Deadline,
        events: &Arc<Events<Event>>,
    ) -> Result<Arc<Self>> {
        let life = Life::within_reach(node)?;
        let (channel, welcome) = Channel::connect(node, class, Hello::new(number), deadline)?;
        channel.endpoint.read_ones_after_loss()?;
        let channel = Arc::new(channel);
        let this = Arc::new(Self {
            node,
            class,
            number,
            size: welcome.size,
            events: events.clone(),
            link: Mutex::new(Link {
                stand: Stand::Up(channel.clone()),
                life,
                token: welcome.token,
                watch: None,
                windows: HashMap::new(),
                progress: None,
            }),
            maps: Mutex::new(Vec::new()),
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
        // Something may have come behind the welcome.
        self.clone().ready(watch);
        Ok(())
    }

    /// Bytes of the segment.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The node that has it.
    pub fn node(&self) -> u16 {
        self.node
    }

    /// The number of the stretch in which it is connected, if it is.
    pub fn epoch(&self) -> Option<u64> {
        let link = lock(&self.link);
        matches!(link.stand, Stand::Up(_)).then(|| link.life.epoch())
    }

    /// Whether it never will be again.
    pub fn is_over(&self) -> bool {
        matches!(lock(&self.link).stand, Stand::Over)
    }

    /// The connection.
    pub fn channel(&self) -> Result<Arc<Channel>> {
        match &lock(&self.link).stand {
            Stand::Up(channel) => Ok(channel.clone()),
            Stand::Away | Stand::Over => Err(Error::NOT_CONNECTED),
        }
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
        maps.retain(|map| map.strong_count() > 0);
        maps.push(Arc::downgrade(&map));
        Ok(map)
    }

    // ----- transfers ----------------------------------------------------------------------------

    /// Where the memory of a local segment is a window of this connection.
    fn window(self: &Arc<Self>, segment: &Arc<LocalSegment>) -> Result<(Arc<Channel>, u64)> {
        let mut link = lock(&self.link);
        let Stand::Up(channel) = &link.stand else {
            return Err(Error::NOT_CONNECTED);
        };
        let channel = channel.clone();
        let identity = segment.identity();
        if let Some((offset, _)) = link.windows.get(&identity) {
            return Ok((channel, *offset as u64));
        }
        let length = segment.memory()?.len() as u64;
        let protection = uapi::PROT_READ | uapi::PROT_WRITE;
        let pinned = segment.pinned()?;
        let offset = channel
            .endpoint
            .register(pinned, 0..length, protection, None)?;
        link.windows.insert(identity, (offset, length));
        drop(link);
        segment.has_window(self);
        Ok((channel, offset as u64))
    }

    /// The memory of a local segment is no window any more.
    pub fn forget_window(&self, identity: u64) {
        let mut link = lock(&self.link);
        let window = link.windows.remove(&identity);
        if let (Some((offset, length)), Stand::Up(channel)) = (window, &link.stand) {
            // If the connection is gone, so is the window.
            let _ = channel.endpoint.unregister(offset, length);
        }
    }

    /// Starts a copy between a local segment and this one, and waits for its end if that is wanted.
    pub fn copy(
        self: &Arc<Self>,
        direction: Direction,
        segment: &Arc<LocalSegment>,
        range: Copied,
        wait: bool,
    ) -> Result<()> {
        let (channel, window) = self.window(segment)?;
        let range = Copied {
            local: window + range.local,
            ..range
        };
        let started = channel.endpoint.copy(direction, range, wait);
        started.map_err(|_| Error::TRANSFER_FAILED)
    }

    /// As [`Self::copy`], between memory of the program and this segment.
    ///
    /// # Safety
    ///
    /// See [`Endpoint::copy_memory`](crate::endpoint::Endpoint::copy_memory).
    pub unsafe fn copy_memory(
        &self,
        direction: Direction,
        memory: *mut c_void,
        range: Copied,
        wait: bool,
    ) -> Result<()> {
        let channel = self.channel()?;
        let endpoint = &channel.endpoint;
        // SAFETY: By the contract of this function.
        let started = unsafe { endpoint.copy_memory(direction, memory, range, wait) };
        started.map_err(|_| Error::TRANSFER_FAILED)
    }

    /// Asks for a word when all copies so far have ended: its number, for [`Self::has_ended`].
    pub fn ask_for_end(&self) -> Result<u64> {
        let mut link = lock(&self.link);
        let Stand::Up(channel) = &link.stand else {
            return Err(Error::TRANSFER_FAILED);
        };
        let channel = channel.clone();
        if link.progress.is_none() {
            let memory = shared_memory(PAGE as u64)?;
            let word = Mapping::new(memory.as_fd(), 0, PAGE, true, Place::Any)?;
            let offset = channel.endpoint.register_own(&word)?;
            link.progress = Some(Progress {
                word,
                offset,
                asked: 0,
            });
        }
        let progress = link.progress.as_mut().ok_or(Error::SYSTEM)?;
        progress.asked += 1;
        let signalled = channel.endpoint.signal(progress.offset, progress.asked);
        signalled.map_err(|_| Error::TRANSFER_FAILED)?;
        Ok(progress.asked)
    }

    /// Whether copies have ended, one way or the other.
    pub fn has_ended(&self, number: u64) -> bool {
        let link = lock(&self.link);
        match (&link.stand, &link.progress) {
            (Stand::Up(_), Some(progress)) => progress.reached() >= number,
            _ => true,
        }
    }

    // ----- the end ------------------------------------------------------------------------------

    fn disconnect(&self, stand: Stand) -> Option<Arc<Channel>> {
        let mut link = lock(&self.link);
        let before = core::mem::replace(&mut link.stand, stand);
        let watch = link.watch.take();
        link.windows.clear();
        let progress = link.progress.take();
        drop(link);
        drop(progress);
        let Stand::Up(channel) = before else {
            return None;
        };
        if let (Some(watch), Ok(attendant)) = (watch, library::attendant()) {
            attendant.forget(&channel.endpoint, watch);
        }
        Some(channel)
    }

    /// This side needs it no more.
    pub fn release(&self) {
        if let Some(channel) = self.disconnect(Stand::Over) {
            channel.say_bye();
        }
    }

    fn lost(&self) {
        self.disconnect(Stand::Over);
        self.events
            .push((Reason::Lost, Error::NOT_CONNECTED.code()));
    }

    fn ended(self: &Arc<Self>) {
        let life = lock(&self.link).life;
        if life.goes_on() {
            return self.lost();
        }
        self.disconnect(Stand::Away);
        self.events.push((Reason::NotOperational, OK));
        let this = self.clone();
        // Without a thread nobody would wait for it.
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
        channel.endpoint.read_ones_after_loss()?;
        let channel = Arc::new(channel);
        let maps = lock(&self.maps);
        for map in maps.iter().filter_map(Weak::upgrade) {
            map.renew(&channel.endpoint)?;
        }
        {
            let mut link = lock(&self.link);
            if matches!(link.stand, Stand::Over) {
                channel.say_bye();
                return Ok(());
            }
            link.stand = Stand::Up(channel.clone());
            link.life = now;
        }
        drop(maps);
        self.events.push((Reason::Operational, OK));
        self.watch(&channel)
    }
}

impl Progress {
    fn reached(&self) -> u64 {
        let word: *const AtomicU64 = self.word.address().cast();
        // SAFETY: It is the begin of a page that is mapped as long as `self` is there.
        unsafe { (*word).load(Acquire) }
    }
}

impl Attended for Import {
    fn ready(self: Arc<Self>, watch: WatchId) {
        let channel = {
            let link = lock(&self.link);
            match &link.stand {
                Stand::Up(channel) if link.watch == Some(watch) => channel.clone(),
                _ => return,
            }
        };
        let mut removed = false;
        let received = channel.receive(|frame| match frame {
            Frame::Notice(Notice::Unavailable) => self.events.push((Reason::Disconnect, OK)),
            Frame::Notice(Notice::Removed) => removed = true,
            _ => (),
        });
        if removed {
            self.lost();
        } else if received.is_err() {
            self.ended();
        }
    }
}
