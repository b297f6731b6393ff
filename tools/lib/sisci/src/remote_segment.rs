// SPDX-License-Identifier: LGPL-2.1

//! Remote segments, to which a program has connected. A remote segment has one connection. A
//! broadcast segment has one to each node that has the group, and connects to nodes that get the
//! group later.
//!
//! Locks: `looks`, then those of its callbacks; `state`, then `imports`; all others are leaves.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::RwLock;
use std::time::Duration;

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
use crate::library;
use crate::local_segment::GROUPS;
use crate::local_segment::NAME_GROUP;
use crate::lock::Locked as _;
use crate::lock::lock;
use crate::nodes;
use crate::reason::Reason;
use crate::threads;
use crate::threads::Caller;

/// Interval at which nodes are asked for a group that they did not have.
const LOOK: Duration = Duration::from_millis(50);

/// The connections at one moment. They are never changed, but replaced.
pub type Imports = Arc<[Arc<Import>]>;

/// A callback that is called with the connections from time to time. It returns whether to call it
/// again.
type OnLook = Box<dyn Fn(&Imports) -> bool + Send>;

/// All remote segments.
pub static REMOTE_SEGMENTS: Table<RemoteSegment> = Table::new(3);

#[derive(Default)]
struct State {
    /// Number of maps and transfers.
    uses: usize,
    released: bool,
}

/// A remote segment.
pub struct RemoteSegment {
    /// The use of the device. It ends when the segment is disconnected, although a thread may still
    /// be connecting.
    device: DeviceUse,
    node_id: u32,
    number: u32,
    /// The connections, once there are any.
    imports: RwLock<Option<Imports>>,
    state: Mutex<State>,
    /// Callbacks of maps that must learn which nodes join the group.
    looks: Mutex<Vec<OnLook>>,
    pub events: Arc<Events<Event>>,
    has_callback: bool,
    caller: Caller,
}

/// The arguments of a connect.
pub struct Wanted {
    /// The node, by SISCI's id.
    pub node_id: u32,
    /// The number of the segment.
    pub number: u32,
    /// The flags of `SCIConnectSegment()`.
    pub flags: u32,
    /// The timeout in milliseconds.
    pub timeout: u32,
    /// The callback for events.
    pub callback: Option<callback::RemoteSegment>,
}

impl RemoteSegment {
    /// Implements `SCIConnectSegment()`.
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
            device: device::using(device)?,
            node_id: wanted.node_id,
            number: wanted.number,
            imports: RwLock::new(None),
            state: Mutex::new(State::default()),
            looks: Mutex::new(Vec::new()),
            events: Arc::new(Events::new()),
            has_callback: wanted.callback.is_some(),
            caller: Caller::default(),
        });
        let deadline = Deadline::of_connect(wanted.timeout);
        let class = if broadcast {
            NAME_GROUP
        } else {
            scif_sys::NAME_SEGMENT
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

    fn establish(
        self: &Arc<Self>,
        node: Option<u16>,
        class: u32,
        deadline: Deadline,
    ) -> Result<()> {
        let connect = |node| Import::connect(node, class, self.number, deadline, &self.events);
        let imports = match node {
            Some(node) => vec![connect(node)?],
            None => {
                let nodes = endpoint::nodes()?.online;
                // Nodes without the group are skipped.
                nodes
                    .into_iter()
                    .filter_map(|node| connect(node).ok())
                    .collect()
            }
        };
        if imports.is_empty() {
            return Err(Error::NO_SUCH_SEGMENT);
        }
        self.set_imports(imports)?;
        match node {
            Some(_) => Ok(()),
            None => self.look_for_others(class),
        }
    }

    fn set_imports(&self, imports: Vec<Arc<Import>>) -> Result<()> {
        let state = lock(&self.state);
        if state.released {
            drop(state);
            imports.iter().for_each(|import| import.release());
            return Err(Error::CANCELLED);
        }
        *self.imports.locked_to_write() = Some(imports.into());
        Ok(())
    }

    /// Starts the thread that connects to nodes which get the group later.
    fn look_for_others(self: &Arc<Self>, class: u32) -> Result<()> {
        let segment = Arc::downgrade(self);
        let thread = threads::spawn("sisci-group", move || {
            loop {
                std::thread::sleep(LOOK);
                let Some(segment) = segment.upgrade() else {
                    return;
                };
                if library::check_running().is_err() || lock(&segment.state).released {
                    return;
                }
                // If a node can't be asked now, the next round asks it.
                let _ = segment.join_others(class);
                if let Ok(imports) = segment.imports() {
                    lock(&segment.looks).retain(|look| look(&imports));
                }
            }
        })?;
        drop(thread);
        Ok(())
    }

    /// Connects to nodes that have the group and are not connected yet, or have the group anew.
    fn join_others(&self, class: u32) -> Result<()> {
        let known = self.imports()?;
        let living = known.iter().filter(|import| !import.is_over());
        let mut imports: Vec<_> = living.cloned().collect();
        let before = imports.len();
        for node in endpoint::nodes()?.online {
            if imports.iter().any(|import| import.node() == node) {
                continue;
            }
            let deadline = Deadline::of_connect(0);
            let joined = Import::connect(node, class, self.number, deadline, &self.events);
            // A smaller segment is no member: programs know the size.
            match joined {
                Ok(import) if import.size() >= self.size() => imports.push(import),
                Ok(import) => import.release(),
                Err(_) => (),
            }
        }
        match imports.len() > before {
            true => self.set_imports(imports),
            false => Ok(()),
        }
    }

    /// Adds a callback. It is called with the connections after each round of asking nodes, as long
    /// as it returns true.
    pub fn on_look(&self, look: impl Fn(&Imports) -> bool + Send + 'static) {
        lock(&self.looks).push(Box::new(look));
    }

    /// Returns the node, by SISCI's id.
    pub fn node_id(&self) -> u32 {
        self.node_id
    }

    /// Returns the number of the segment.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns whether events go to a callback.
    pub fn has_callback(&self) -> bool {
        self.has_callback
    }

    /// Returns the connections. NOT_CONNECTED: there are none yet.
    pub fn imports(&self) -> Result<Imports> {
        let imports = self.imports.locked_to_read();
        imports.clone().ok_or(Error::NOT_CONNECTED)
    }

    /// Returns whether writes go to all nodes of a group.
    pub fn is_broadcast(&self) -> bool {
        self.node_id == nodes::BROADCAST
    }

    /// Returns the only connection, or the first of a group.
    pub fn import(&self) -> Result<Arc<Import>> {
        let imports = self.imports()?;
        imports.first().cloned().ok_or(Error::NOT_CONNECTED)
    }

    /// Returns the size in bytes, of a group the smallest; 0 if there is no connection.
    pub fn size(&self) -> u64 {
        let Ok(imports) = self.imports() else {
            return 0;
        };
        let sizes = imports.iter().map(|import| import.size());
        sizes.min().unwrap_or(0)
    }

    /// Counts a use of the segment, which can't be disconnected until the [`RemoteUse`] is dropped.
    pub fn hold(self: &Arc<Self>) -> Result<RemoteUse> {
        let mut state = lock(&self.state);
        if state.released {
            return Err(Error::ILLEGAL_PARAMETER);
        }
        state.uses += 1;
        Ok(RemoteUse(self.clone()))
    }

    /// Implements `SCIDisconnectSegment()`.
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

    /// Releases all resources.
    pub fn release(&self) {
        lock(&self.state).released = true;
        if let Ok(imports) = self.imports() {
            imports.iter().for_each(|import| import.release());
        }
        self.events.close();
        self.caller.join();
        self.device.release();
    }
}

/// A use of a remote segment.
pub struct RemoteUse(Arc<RemoteSegment>);

impl Drop for RemoteUse {
    fn drop(&mut self) {
        lock(&self.0.state).uses -= 1;
    }
}

/// Returns the segment of a handle.
pub fn get(handle: Handle) -> Result<Arc<RemoteSegment>> {
    REMOTE_SEGMENTS.get(handle)
}
