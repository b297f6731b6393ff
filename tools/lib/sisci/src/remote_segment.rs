// SPDX-License-Identifier: LGPL-2.1

//! Remote segments: what a program has connected to. One connection is behind each, or, for a
//! broadcast segment, one to each node that has the group.
//!
//! Lock: `state`, a leaf.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;

use crate::callback;
use crate::deadline::Deadline;
use crate::device;
use crate::device::DeviceUse;
use crate::endpoint;
use crate::error::Error;
use crate::error::OK;
use crate::error::Result;
use crate::events::Events;
use crate::flags;
use crate::handles::Handle;
use crate::handles::Table;
use crate::import::Event;
use crate::import::Import;
use crate::local_segment::GROUPS;
use crate::local_segment::NAME_GROUP;
use crate::lock::lock;
use crate::nodes;
use crate::reason::Reason;
use crate::threads;
use crate::threads::Caller;
use crate::uapi;

/// All of them.
pub static REMOTE_SEGMENTS: Table<RemoteSegment> = Table::new(3);

#[derive(Default)]
struct State {
    /// Maps and transfers.
    uses: usize,
    released: bool,
}

/// See the head of this file.
pub struct RemoteSegment {
    /// Until it is disconnected, although a thread may still be connecting it.
    device: Mutex<Option<DeviceUse>>,
    node_id: u32,
    number: u32,
    /// Once it is connected.
    imports: OnceLock<Vec<Arc<Import>>>,
    state: Mutex<State>,
    pub events: Arc<Events<Event>>,
    has_callback: bool,
    caller: Caller,
}

/// What to connect to, and how.
pub struct Wanted {
    /// Of SISCI.
    pub node_id: u32,
    /// Of the segment.
    pub number: u32,
    /// Of `SCIConnectSegment()`.
    pub flags: u32,
    /// In milliseconds.
    pub timeout: u32,
    /// For its events.
    pub callback: Option<callback::RemoteSegment>,
}

impl RemoteSegment {
    /// `SCIConnectSegment()`
    pub fn connect(device: Handle, wanted: Wanted) -> Result<Handle> {
        let broadcast = wanted.flags & flags::BROADCAST != 0;
        let node = match wanted.node_id {
            nodes::BROADCAST if broadcast && wanted.number >= GROUPS => {
                return Err(Error::ILLEGAL_PARAMETER);
            }
            nodes::BROADCAST if broadcast => None,
            id => Some(nodes::scif_node(id)?),
        };
        let segment = Arc::new(Self {
            device: Mutex::new(Some(device::using(device)?)),
            node_id: wanted.node_id,
            number: wanted.number,
            imports: OnceLock::new(),
            state: Mutex::new(State::default()),
            events: Arc::new(Events::new()),
            has_callback: wanted.callback.is_some(),
            caller: Caller::default(),
        });
        let deadline = Deadline::of_connect(wanted.timeout);
        let class = if broadcast {
            NAME_GROUP
        } else {
            uapi::NAME_SEGMENT
        };
        if wanted.flags & flags::ASYNCHRONOUS_CONNECT == 0 {
            segment.establish(node, class, deadline)?;
            return segment.publish(wanted.callback);
        }
        let handle = segment.clone().publish(wanted.callback)?;
        let started = threads::spawn("sisci-connect", move || {
            match segment.establish(node, class, deadline) {
                Ok(()) => segment.events.push((Reason::Connect, OK)),
                Err(error) => segment.events.push((Reason::Disconnect, error.code())),
            }
        });
        if let Err(error) = started {
            let _ = Self::disconnect(handle);
            return Err(error);
        }
        Ok(handle)
    }

    fn publish(self: Arc<Self>, callback: Option<callback::RemoteSegment>) -> Result<Handle> {
        let inserted = REMOTE_SEGMENTS.insert(self.clone());
        let handle = inserted.inspect_err(|_| self.release())?;
        if let Some(callback) = callback {
            let (segment, number) = (self.clone(), handle as usize);
            let started = self.caller.start(move || {
                while let Ok((reason, status)) = segment.events.next(Deadline::NEVER) {
                    if !callback.call(number as Handle, reason, status) {
                        break;
                    }
                }
            });
            if let Err(error) = started {
                let _ = Self::disconnect(handle);
                return Err(error);
            }
        }
        Ok(handle)
    }

    fn establish(&self, node: Option<u16>, class: u32, deadline: Deadline) -> Result<()> {
        let connect = |node| Import::connect(node, class, self.number, deadline, &self.events);
        let imports = match node {
            Some(node) => vec![connect(node)?],
            None => {
                let (nodes, _) = endpoint::online_nodes()?;
                // Those without the group are not meant.
                nodes
                    .into_iter()
                    .filter_map(|node| connect(node).ok())
                    .collect()
            }
        };
        if imports.is_empty() {
            return Err(Error::NO_SUCH_SEGMENT);
        }
        let state = lock(&self.state);
        if state.released {
            drop(state);
            imports.iter().for_each(|import| import.release());
            return Err(Error::CANCELLED);
        }
        let _ = self.imports.set(imports);
        Ok(())
    }

    /// The node, by SISCI's id.
    pub fn node_id(&self) -> u32 {
        self.node_id
    }

    /// The number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether its events go to a callback.
    pub fn has_callback(&self) -> bool {
        self.has_callback
    }

    /// The connections: NOT_CONNECTED before there are any.
    pub fn imports(&self) -> Result<&[Arc<Import>]> {
        let imports = self.imports.get().ok_or(Error::NOT_CONNECTED)?;
        Ok(imports)
    }

    /// Whether writes go to all nodes of a group.
    pub fn is_broadcast(&self) -> bool {
        self.node_id == nodes::BROADCAST
    }

    /// The connection, for what is done with one only.
    pub fn import(&self) -> Result<&Arc<Import>> {
        self.imports()?.first().ok_or(Error::NOT_CONNECTED)
    }

    /// Bytes, the least of them; 0 if it is not connected.
    pub fn size(&self) -> u64 {
        let imports = self.imports().unwrap_or_default();
        imports
            .iter()
            .map(|import| import.size())
            .min()
            .unwrap_or(0)
    }

    /// Says that something uses it; until the [`RemoteUse`] is dropped it can't be disconnected.
    pub fn hold(self: &Arc<Self>) -> Result<RemoteUse> {
        let mut state = lock(&self.state);
        if state.released {
            return Err(Error::ILLEGAL_PARAMETER);
        }
        state.uses += 1;
        Ok(RemoteUse(self.clone()))
    }

    /// `SCIDisconnectSegment()`
    pub fn disconnect(handle: Handle) -> Result<()> {
        let segment = REMOTE_SEGMENTS.get(handle)?;
        {
            let mut state = lock(&segment.state);
            if state.uses > 0 {
                return Err(Error::BUSY);
            }
            state.released = true;
        }
        REMOTE_SEGMENTS.remove(handle)?;
        segment.release();
        Ok(())
    }

    /// Lets go of all.
    pub fn release(&self) {
        lock(&self.state).released = true;
        for import in self.imports().unwrap_or_default() {
            import.release();
        }
        self.events.close();
        self.caller.join();
        let device = lock(&self.device).take();
        drop(device);
    }
}

/// Something that uses a remote segment.
pub struct RemoteUse(Arc<RemoteSegment>);

impl Drop for RemoteUse {
    fn drop(&mut self) {
        lock(&self.0.state).uses -= 1;
    }
}

/// The segment of a handle.
pub fn get(handle: Handle) -> Result<Arc<RemoteSegment>> {
    REMOTE_SEGMENTS.get(handle)
}
