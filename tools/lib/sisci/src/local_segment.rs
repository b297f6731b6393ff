// SPDX-License-Identifier: LGPL-2.1

//! Local segments: memory that others may connect to.
//!
//! A segment's name is taken when it is made; who connects before it is available, or after, is
//! refused. Those who are connected are in `importers.rs`.
//!
//! Locks: `state`, then `importers`, then `windows`; nothing is called with them that waits for a peer.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::Weak;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::callback;
use crate::deadline::Deadline;
use crate::device;
use crate::device::DeviceUse;
use crate::endpoint::PinnedMemory;
use crate::error::Error;
use crate::error::OK;
use crate::error::Result;
use crate::events::Events;
use crate::flags;
use crate::handles::Handle;
use crate::handles::Table;
use crate::handover;
use crate::handover::Giver;
use crate::importers::Importers;
use crate::library;
use crate::listener::Connected;
use crate::listener::Listener;
use crate::lock::lock;
use crate::memory;
use crate::memory::Memory;
use crate::nodes;
use crate::process::NewProcess;
use crate::process::PerProcess;
use crate::protocol::Hello;
use crate::protocol::Notice;
use crate::reason::Reason;
use crate::threads::Caller;
use crate::transfers::Transfers;
use crate::uapi;

/// Broadcast segments have names of their own: their numbers are those of groups.
pub const NAME_GROUP: u32 = uapi::NAME_CLASS_USER + 1;

/// How many groups there are.
pub const GROUPS: u32 = 4;

/// Something has happened to a local segment: what, and from which node (SISCI's id).
pub type Event = (Reason, u32);

/// All of them.
pub static LOCAL_SEGMENTS: Table<LocalSegment> = Table::new(2);

/// Those that were removed and that others may be connected to.
static KEPT: PerProcess<Mutex<Vec<Weak<LocalSegment>>>> = PerProcess::new(Mutex::new(Vec::new()));

/// Takes what was removed away from those who are still connected, as the library ends.
pub fn disconnect_kept() {
    let kept = core::mem::take(&mut *lock(&KEPT));
    for segment in kept.iter().filter_map(Weak::upgrade) {
        segment.importers.disconnect_all();
    }
}

/// Forgets all that the parent had.
pub fn forget(process: &NewProcess) {
    LOCAL_SEGMENTS.forget(process);
    KEPT.renew(Mutex::new(Vec::new()), process);
}

#[derive(Default)]
struct State {
    /// It is pinned.
    prepared: bool,
    /// The program has asked for that.
    prepare_asked: bool,
    available: bool,
    /// Gives the memory to other processes of this node, once it is shared.
    giver: Option<Arc<Giver>>,
    /// Maps and transfers.
    uses: usize,
    removed: bool,
}

/// See the head of this file.
pub struct LocalSegment {
    /// Until it is removed, although others may keep the memory.
    device: DeviceUse,
    id: u32,
    is_private: bool,
    listener: Option<Arc<Listener>>,
    size: OnceLock<usize>,
    memory: OnceLock<Memory>,
    pinned: OnceLock<PinnedMemory>,
    state: Mutex<State>,
    pub importers: Importers,
    /// Connections to others through which its memory is transferred.
    windows: Mutex<Vec<Weak<Transfers>>>,
    /// What tells it from others there.
    identity: u64,
    pub events: Events<Event>,
    has_callback: bool,
    caller: Caller,
}

/// What a segment is made of.
pub struct Wanted {
    /// Its number, if it is not to be chosen.
    pub id: u32,
    /// Bytes.
    pub size: usize,
    /// Of `SCICreateSegment()`.
    pub flags: u32,
    /// For its events.
    pub callback: Option<callback::LocalSegment>,
}

fn new_identity() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Relaxed)
}

impl LocalSegment {
    fn new(device: Handle, wanted: &Wanted, listener: Option<Arc<Listener>>) -> Result<Self> {
        let number = listener.as_ref().map(|listener| listener.number());
        Ok(Self {
            device: device::using(device)?,
            id: number.unwrap_or(wanted.id),
            is_private: wanted.flags & flags::PRIVATE != 0,
            listener,
            size: OnceLock::new(),
            memory: OnceLock::new(),
            pinned: OnceLock::new(),
            state: Mutex::new(State::default()),
            importers: Importers::default(),
            windows: Mutex::new(Vec::new()),
            identity: new_identity(),
            events: Events::new(),
            has_callback: wanted.callback.is_some(),
            caller: Caller::default(),
        })
    }

    /// `SCICreateSegment()`
    pub fn create(device: Handle, wanted: Wanted) -> Result<Handle> {
        let is_empty = wanted.flags & flags::EMPTY != 0;
        if wanted.size == 0 && !is_empty {
            return Err(Error::ILLEGAL_PARAMETER);
        }
        let class = match wanted.flags & flags::BROADCAST {
            0 => uapi::NAME_SEGMENT,
            _ if wanted.id >= GROUPS => return Err(Error::ILLEGAL_PARAMETER),
            _ => NAME_GROUP,
        };
        // Before the name is taken.
        let _device = device::using(device)?;
        let listener = match wanted.flags & (flags::PRIVATE | flags::AUTO_ID) {
            0 => Some(Some(wanted.id)),
            flags::AUTO_ID => Some(None),
            _ => None,
        };
        let attendant = library::attendant()?;
        let listener = listener
            .map(|name| Listener::new(&attendant, class, name, Error::SEGMENTID_USED))
            .transpose()?;
        let segment = Self::new(device, &wanted, listener)?;
        if !is_empty {
            segment.give(memory::rounded(wanted.size)?, Memory::new(wanted.size)?)?;
        }
        segment.publish(wanted.callback)
    }

    /// `SCIAttachLocalSegment()`: shares the memory of a segment that another process of this node has.
    pub fn attach(device: Handle, wanted: Wanted) -> Result<(Handle, usize)> {
        use crate::channel::Channel;

        let _device = device::using(device)?;
        let hello = Hello {
            attach: true,
            ..Hello::new(wanted.id)
        };
        let deadline = Deadline::after(5000);
        let (_, welcome) = Channel::connect(nodes::own()?, uapi::NAME_SEGMENT, hello, deadline)?;
        let size = usize::try_from(welcome.size).map_err(|_| Error::ACCESS)?;
        let memory = Memory::of_process(handover::take(welcome.token, deadline)?, size)?;
        let segment = Self::new(device, &wanted, None)?;
        segment.give(size, memory)?;
        Ok((segment.publish(wanted.callback)?, size))
    }

    fn publish(self, callback: Option<callback::LocalSegment>) -> Result<Handle> {
        let segment = Arc::new(self);
        let handle = LOCAL_SEGMENTS.insert(segment.clone())?;
        let opened = segment.open(handle, callback);
        if let Err(error) = opened {
            let _ = LOCAL_SEGMENTS.remove(handle);
            segment.release(true);
            return Err(error);
        }
        Ok(handle)
    }

    fn open(
        self: &Arc<Self>,
        handle: Handle,
        callback: Option<callback::LocalSegment>,
    ) -> Result<()> {
        if let Some(callback) = callback {
            let segment = self.clone();
            let handle = handle as usize;
            self.caller.start(move || {
                while let Ok((reason, node)) = segment.events.next(Deadline::NEVER) {
                    if !callback.call(handle as Handle, reason, node, OK) {
                        break;
                    }
                }
            })?;
        }
        if let Some(listener) = &self.listener {
            let this: Arc<dyn Connected> = self.clone();
            listener.open(Arc::downgrade(&this))?;
        }
        Ok(())
    }

    fn give(&self, size: usize, memory: Memory) -> Result<()> {
        self.memory
            .set(memory)
            .map_err(|_| Error::ILLEGAL_OPERATION)?;
        self.size.set(size).map_err(|_| Error::ILLEGAL_OPERATION)
    }

    /// Gives an empty segment memory: of the program, or of a device.
    pub fn give_memory(&self, size: usize, memory: Memory) -> Result<()> {
        if lock(&self.state).prepared {
            return Err(Error::ILLEGAL_OPERATION);
        }
        if let Memory::Device { .. } = memory {
            // It is prepared with that, whether the program does so or not.
            let pinned = memory.pin()?;
            self.give(size, memory)?;
            let _ = self.pinned.set(pinned);
            lock(&self.state).prepared = true;
            return Ok(());
        }
        self.give(size, memory)
    }

    /// The number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Bytes, as programs are told; 0 for an empty one.
    pub fn size(&self) -> usize {
        self.size.get().copied().unwrap_or(0)
    }

    /// Its memory.
    pub fn memory(&self) -> Result<&Memory> {
        self.memory.get().ok_or(Error::ILLEGAL_OPERATION)
    }

    /// Its memory, pinned.
    pub fn pinned(&self) -> Result<&PinnedMemory> {
        self.pinned.get().ok_or(Error::SEGMENT_NOT_PREPARED)
    }

    /// What tells it from others.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Whether its events go to a callback.
    pub fn has_callback(&self) -> bool {
        self.has_callback
    }

    /// `SCIPrepareSegment()`
    pub fn prepare(&self) -> Result<()> {
        let mut state = lock(&self.state);
        if state.prepare_asked {
            return Err(Error::ILLEGAL_OPERATION);
        }
        if !state.prepared {
            let pinned = self.memory()?.pin()?;
            let _ = self.pinned.set(pinned);
        }
        state.prepared = true;
        state.prepare_asked = true;
        Ok(())
    }

    /// `SCISetSegmentAvailable()`
    pub fn set_available(&self) -> Result<()> {
        let mut state = lock(&self.state);
        if self.is_private || self.listener.is_none() {
            return Err(Error::ILLEGAL_OPERATION);
        }
        if !state.prepared {
            return Err(Error::SEGMENT_NOT_PREPARED);
        }
        if state.available {
            return Err(Error::ILLEGAL_OPERATION);
        }
        state.available = true;
        Ok(())
    }

    /// `SCISetSegmentUnavailable()`
    pub fn set_unavailable(&self, wanted: u32) -> Result<()> {
        {
            let mut state = lock(&self.state);
            if !state.available {
                return Err(Error::ILLEGAL_OPERATION);
            }
            state.available = false;
        }
        if wanted & flags::FORCE_DISCONNECT != 0 {
            self.importers.disconnect_all();
        } else if wanted & flags::NOTIFY != 0 {
            self.importers.tell_all(Notice::Unavailable);
        }
        Ok(())
    }

    /// `SCIShareSegment()`
    pub fn share(&self) -> Result<()> {
        let file = self.memory()?.file().ok_or(Error::ILLEGAL_OPERATION)?;
        let mut state = lock(&self.state);
        if state.giver.is_none() && !state.removed {
            state.giver = Some(Giver::open(&library::attendant()?, file)?);
        }
        Ok(())
    }

    /// By which its memory is handed over, if it is shared.
    pub fn shared_name(&self) -> Option<u64> {
        lock(&self.state).giver.as_ref().map(|giver| giver.name())
    }

    /// Says that something uses it; until the [`LocalUse`] is dropped it can't be removed.
    pub fn hold(self: &Arc<Self>) -> Result<LocalUse> {
        let mut state = lock(&self.state);
        if state.removed {
            return Err(Error::ILLEGAL_PARAMETER);
        }
        state.uses += 1;
        Ok(LocalUse(self.clone()))
    }

    /// Its memory has become a window of that connection.
    pub fn has_window(&self, transfers: &Arc<Transfers>) {
        let mut windows = lock(&self.windows);
        windows.retain(|other| other.strong_count() > 0);
        windows.push(Arc::downgrade(transfers));
    }

    /// `SCIRemoveSegment()`
    pub fn remove(handle: Handle, flags: u32) -> Result<()> {
        let segment = LOCAL_SEGMENTS.get(handle)?;
        {
            let mut state = lock(&segment.state);
            if state.uses > 0 {
                return Err(Error::BUSY);
            }
            state.removed = true;
            state.available = false;
        }
        LOCAL_SEGMENTS.remove(handle)?;
        segment.release(flags & flags::FORCE_REMOVE != 0);
        let mut kept = lock(&KEPT);
        kept.retain(|other| other.strong_count() > 0);
        kept.push(Arc::downgrade(&segment));
        Ok(())
    }

    /// Lets go of all but those who are connected, and of those, too, if that is forced.
    pub fn release(&self, force: bool) {
        let giver = {
            let mut state = lock(&self.state);
            state.removed = true;
            state.available = false;
            state.giver.take()
        };
        if let Some(giver) = giver {
            giver.close();
        }
        if let Some(listener) = &self.listener {
            listener.close();
        }
        if force {
            self.importers.disconnect_all();
        }
        let windows = core::mem::take(&mut *lock(&self.windows));
        for transfers in windows.iter().filter_map(Weak::upgrade) {
            transfers.forget_window(self.identity);
        }
        self.events.close();
        self.caller.join();
        self.device.release();
    }

    /// Whether others may connect to it.
    pub fn check_available(&self) -> Result<()> {
        let available = lock(&self.state).available;
        available.then_some(()).ok_or(Error::NO_SUCH_SEGMENT)
    }

    fn check_connectable(&self, hello: &Hello) -> Result<()> {
        if !hello.attach {
            return self.check_available();
        }
        let is_shared = lock(&self.state).giver.is_some();
        is_shared.then_some(()).ok_or(Error::NO_SUCH_SEGMENT)
    }
}

impl Connected for LocalSegment {
    fn connected(self: Arc<Self>, channel: crate::channel::Channel, hello: Hello) {
        if hello.token != 0 && !hello.attach {
            return self.importers.resume(&self, channel, hello.token);
        }
        let refused = self.check_connectable(&hello).err();
        match refused {
            Some(error) => {
                let _ = channel.send(&crate::protocol::Frame::Refuse(error.code()));
            }
            None if hello.attach => self.importers.attach(&self, &channel),
            None => self.importers.add(&self, channel),
        }
    }
}

/// Something that uses a local segment.
pub struct LocalUse(Arc<LocalSegment>);

impl Drop for LocalUse {
    fn drop(&mut self) {
        lock(&self.0.state).uses -= 1;
    }
}

/// The segment of a handle.
pub fn get(handle: Handle) -> Result<Arc<LocalSegment>> {
    LOCAL_SEGMENTS.get(handle)
}

/// The address at which a program's memory is given to a segment.
pub fn register_memory(handle: Handle, address: *mut c_void, size: usize) -> Result<()> {
    get(handle)?.give_memory(size, Memory::of_program(address, size)?)
}
