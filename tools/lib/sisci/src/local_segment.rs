// SPDX-License-Identifier: LGPL-2.1

//! Local segments: memory that peers may connect to.
//!
//! A segment takes its name when it is made. A peer that connects while the segment is not
//! available is refused. `importers.rs` has the peers that are connected.
//!
//! Locks: `state`, then those of `importers`. No thread waits for a peer under them.

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

/// Broadcast segments have a name class of their own: their numbers are those of groups.
pub const NAME_GROUP: u32 = scif_sys::NAME_CLASS_USER + 1;

/// Number of groups.
pub const GROUPS: u32 = 4;

/// All local segments.
pub static LOCAL_SEGMENTS: Table<LocalSegment> = Table::new(2);

/// The importers of removed segments that may still be connected.
static KEPT: PerProcess<Mutex<Vec<Weak<Importers>>>> = PerProcess::new(Mutex::new(Vec::new()));

/// Disconnects the importers of removed segments, as the library ends.
pub fn disconnect_kept() {
    let kept = core::mem::take(&mut *lock(&KEPT));
    for importers in kept.iter().filter_map(Weak::upgrade) {
        importers.disconnect_all();
    }
}

/// Forgets all segments of the parent process.
pub fn forget(process: &NewProcess) {
    LOCAL_SEGMENTS.forget(process);
    KEPT.renew(Mutex::new(Vec::new()), process);
}

#[derive(Default)]
struct State {
    /// Whether the memory is pinned.
    prepared: bool,
    /// Whether the program has asked to prepare the segment.
    prepare_asked: bool,
    /// The object that gives the memory to other processes of this node, once it is shared.
    giver: Option<Arc<Giver>>,
    /// Number of maps and transfers.
    uses: usize,
    removed: bool,
}

/// A local segment.
pub struct LocalSegment {
    /// The use of the device. It ends when the segment is removed, although importers may keep the
    /// memory.
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

/// The arguments of a create.
pub struct Wanted {
    /// The number, unless the library chooses it.
    pub id: u32,
    /// The size in bytes.
    pub size: usize,
    /// The flags of `SCICreateSegment()`.
    pub flags: u32,
    /// The callback for events.
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

    /// Implements `SCICreateSegment()`.
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
        // The device is checked before the name is taken.
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

    /// Shares the memory of another process's segment on this node: `SCIAttachLocalSegment()`.
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

    /// Gives memory to an empty segment: memory of the program, or of a device.
    pub fn give_memory(&self, size: usize, memory: Memory) -> Result<()> {
        if lock(&self.state).prepared {
            return Err(Error::ILLEGAL_OPERATION);
        }
        if let Memory::Device { .. } = memory {
            // Device memory is prepared at once, whether the program asks for that or not.
            self.memory.give_pinned(size, memory)?;
            lock(&self.state).prepared = true;
            return Ok(());
        }
        self.memory.give(size, memory)
    }

    /// Returns the number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns whether events go to a callback.
    pub fn has_callback(&self) -> bool {
        self.has_callback
    }

    /// Implements `SCIPrepareSegment()`.
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

    /// Implements `SCISetSegmentAvailable()`.
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

    /// Implements `SCISetSegmentUnavailable()`.
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

    /// Implements `SCIShareSegment()`.
    pub fn share(&self) -> Result<()> {
        let file = self.memory.get()?.file().ok_or(Error::ILLEGAL_OPERATION)?;
        let mut state = lock(&self.state);
        if state.giver.is_none() && !state.removed {
            state.giver = Some(Giver::open(&library::attendant()?, file)?);
        }
        Ok(())
    }

    /// Counts a use of the segment, which can't be removed until the [`LocalUse`] is dropped.
    pub fn hold(self: &Arc<Self>) -> Result<LocalUse> {
        let mut state = lock(&self.state);
        if state.removed {
            return Err(Error::ILLEGAL_PARAMETER);
        }
        state.uses += 1;
        Ok(LocalUse(self.clone()))
    }

    /// Implements `SCIRemoveSegment()`.
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

    /// Releases all resources but the importers, and with `force` disconnects the importers, too.
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

    /// Answers a process of this node that wants to share the memory.
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

/// A use of a local segment.
pub struct LocalUse(Arc<LocalSegment>);

impl Drop for LocalUse {
    fn drop(&mut self) {
        lock(&self.0.state).uses -= 1;
    }
}

/// Returns the segment of a handle.
pub fn get(handle: Handle) -> Result<Arc<LocalSegment>> {
    LOCAL_SEGMENTS.get(handle)
}

/// Gives a program's memory to a segment.
pub fn register_memory(handle: Handle, address: *mut c_void, size: usize) -> Result<()> {
    get(handle)?.give_memory(size, Memory::of_program(address, size)?)
}
