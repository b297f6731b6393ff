// SPDX-License-Identifier: LGPL-2.1

//! Local segments: memory that others may connect to.
//!
//! A segment's name is taken when it is made; who connects before it is available, or after, is
//! refused. Those who are connected are in `importers.rs`.
//!
//! Locks: `state`, then those of `importers`; nothing is called with them that waits for a peer.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::Weak;

use crate::callback;
use crate::channel::Channel;
use crate::deadline::Deadline;
use crate::device;
use crate::device::DeviceUse;
use crate::error::Error;
use crate::error::OK;
use crate::error::Result;
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
use crate::protocol::Frame;
use crate::protocol::Hello;
use crate::protocol::Notice;
use crate::protocol::Welcome;
use crate::segment_memory::SegmentMemory;
use crate::threads::Caller;

/// Broadcast segments have names of their own: their numbers are those of groups.
pub const NAME_GROUP: u32 = scif_sys::NAME_CLASS_USER + 1;

/// How many groups there are.
pub const GROUPS: u32 = 4;

/// All of them.
pub static LOCAL_SEGMENTS: Table<LocalSegment> = Table::new(2);

/// Those who may be connected to segments that were removed.
static KEPT: PerProcess<Mutex<Vec<Weak<Importers>>>> = PerProcess::new(Mutex::new(Vec::new()));

/// Takes what was removed away from those who are still connected, as the library ends.
pub fn disconnect_kept() {
    let kept = core::mem::take(&mut *lock(&KEPT));
    for importers in kept.iter().filter_map(Weak::upgrade) {
        importers.disconnect_all();
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
    pub memory: Arc<SegmentMemory>,
    state: Mutex<State>,
    pub importers: Arc<Importers>,
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

impl LocalSegment {
    fn new(device: Handle, wanted: &Wanted, listener: Option<Arc<Listener>>) -> Result<Self> {
        let number = listener.as_ref().map(|listener| listener.number());
        let memory = Arc::new(SegmentMemory::default());
        Ok(Self {
            device: device::using(device)?,
            id: number.unwrap_or(wanted.id),
            is_private: wanted.flags & flags::PRIVATE != 0,
            listener,
            importers: Importers::new(memory.clone()),
            memory,
            state: Mutex::new(State::default()),
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
            0 => scif_sys::NAME_SEGMENT,
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
            let size = memory::rounded(wanted.size)?;
            segment.memory.give(size, Memory::new(wanted.size)?)?;
        }
        segment.publish(wanted.callback)
    }

    /// `SCIAttachLocalSegment()`: shares the memory of a segment that another process of this node has.
    pub fn attach(device: Handle, wanted: Wanted) -> Result<(Handle, usize)> {
        let _device = device::using(device)?;
        let hello = Hello {
            attach: true,
            ..Hello::new(wanted.id)
        };
        let deadline = Deadline::after(5000);
        let (_, welcome) =
            Channel::connect(nodes::own()?, scif_sys::NAME_SEGMENT, hello, deadline)?;
        let size = usize::try_from(welcome.size).map_err(|_| Error::ACCESS)?;
        let memory = Memory::of_process(handover::take(welcome.token, deadline)?, size)?;
        let segment = Self::new(device, &wanted, None)?;
        segment.memory.give(size, memory)?;
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
                while let Ok((reason, node)) = segment.importers.events.next(Deadline::NEVER) {
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

    /// Gives an empty segment memory: of the program, or of a device.
    pub fn give_memory(&self, size: usize, memory: Memory) -> Result<()> {
        if lock(&self.state).prepared {
            return Err(Error::ILLEGAL_OPERATION);
        }
        if let Memory::Device { .. } = memory {
            // It is prepared with that, whether the program does so or not.
            self.memory.give_pinned(size, memory)?;
            lock(&self.state).prepared = true;
            return Ok(());
        }
        self.memory.give(size, memory)
    }

    /// The number.
    pub fn id(&self) -> u32 {
        self.id
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
            self.memory.pin()?;
        }
        state.prepared = true;
        state.prepare_asked = true;
        Ok(())
    }

    /// `SCISetSegmentAvailable()`
    pub fn set_available(&self) -> Result<()> {
        let state = lock(&self.state);
        if self.is_private || self.listener.is_none() {
            return Err(Error::ILLEGAL_OPERATION);
        }
        if !state.prepared {
            return Err(Error::SEGMENT_NOT_PREPARED);
        }
        if !self.importers.open() {
            return Err(Error::ILLEGAL_OPERATION);
        }
        Ok(())
    }

    /// `SCISetSegmentUnavailable()`
    pub fn set_unavailable(&self, wanted: u32) -> Result<()> {
        if !self.importers.close() {
            return Err(Error::ILLEGAL_OPERATION);
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
        let file = self.memory.get()?.file().ok_or(Error::ILLEGAL_OPERATION)?;
        let mut state = lock(&self.state);
        if state.giver.is_none() && !state.removed {
            state.giver = Some(Giver::open(&library::attendant()?, file)?);
        }
        Ok(())
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

    /// `SCIRemoveSegment()`
    pub fn remove(handle: Handle, flags: u32) -> Result<()> {
        let segment = LOCAL_SEGMENTS.get(handle)?;
        {
            let mut state = lock(&segment.state);
            if state.uses > 0 {
                return Err(Error::BUSY);
            }
            state.removed = true;
        }
        segment.importers.close();
        LOCAL_SEGMENTS.remove(handle)?;
        segment.release(flags & flags::FORCE_REMOVE != 0);
        let mut kept = lock(&KEPT);
        kept.retain(|other| other.strong_count() > 0);
        kept.push(Arc::downgrade(&segment.importers));
        Ok(())
    }

    /// Lets go of all but those who are connected, and of those, too, if that is forced.
    pub fn release(&self, force: bool) {
        let giver = {
            let mut state = lock(&self.state);
            state.removed = true;
            state.giver.take()
        };
        self.importers.close();
        if let Some(giver) = giver {
            giver.close();
        }
        if let Some(listener) = &self.listener {
            listener.close();
        }
        if force {
            self.importers.disconnect_all();
        }
        self.memory.end_windows();
        self.importers.events.close();
        self.caller.join();
        self.device.release();
    }

    /// A process of this node wants to share the memory.
    fn hand_over(&self, channel: &Channel) {
        let name = lock(&self.state).giver.as_ref().map(|giver| giver.name());
        let answer = match name {
            Some(name) if nodes::own() == Ok(channel.node) => Frame::Welcome(Welcome {
                size: self.memory.size() as u64,
                token: name,
                ..Default::default()
            }),
            _ => Frame::Refuse(Error::NO_SUCH_SEGMENT.code()),
        };
        let _ = channel.send(&answer);
    }
}

impl Connected for LocalSegment {
    fn connected(self: Arc<Self>, channel: Channel, hello: Hello) {
        if hello.attach {
            self.hand_over(&channel);
        } else if hello.token != 0 {
            self.importers.resume(channel, hello.token);
        } else {
            self.importers.add(channel);
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
