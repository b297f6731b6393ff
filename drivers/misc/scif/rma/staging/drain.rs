// SPDX-License-Identifier: GPL-2.0

//! Slots of this node that an engine empties, some at a time: full ones that follow each other, for memory that the
//! same engine uses. Who empties slots waits for its end, then and there, as he would for his own copy, and keeps
//! the windows meanwhile.
//!
//! All goes by the same engine, in order, so what was put into a later slot is not there earlier. What an engine can't
//! do, the processor does: also after the engine has failed, as a copy may be made twice.
//!
//! A window is mapped for the engine as a whole, with the first bytes that an engine copies there, as for transfers of this
//! end. Nobody pays for that: no process is there that could.

use crate::{
    logic::plan::{
        Linear,
        Plan,
        Segment, //
    },
    memory::window::Window,
    rma::awaited_copies,
    sys::{
        dmaengine::CopyFlags,
        shared_memory::{
            ReadBy,
            SharedMemory, //
        },
    },
    transport::engine::{
        Engine,
        EngineRoute, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};

/// The slots as the engines name them that have emptied some.
pub(super) struct Views {
    memory: Arc<SharedMemory>,
    /// By the instance of the engine.
    views: KVec<(u64, ReadBy)>,
}

impl Views {
    /// No engine knows of them.
    pub(super) fn new(memory: &Arc<SharedMemory>) -> Self {
        Self {
            memory: memory.clone(),
            views: KVec::new(),
        }
    }

    /// Where they begin for this one. May sleep.
    pub(super) fn address(&mut self, engine: &Engine) -> Result<u64> {
        let of_engine = |view: &&(u64, ReadBy)| view.0 == engine.instance;
        if let Some((_, view)) = self.views.iter().find(of_engine) {
            return Ok(view.bus_address());
        }
        let view = ReadBy::new(&self.memory, &engine.device())?;
        let address = view.bus_address();
        self.views.push((engine.instance, view), GFP_KERNEL)?;
        Ok(address)
    }

    /// No engine is to know of them any more. May sleep.
    pub(super) fn clear(&mut self) {
        self.views = KVec::new();
    }
}

/// Bytes in a slot, and where in a window they belong.
pub(super) struct Delivery {
    /// Where they begin among the slots.
    pub(super) at: usize,
    pub(super) window: Arc<Window>,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// What is copied, and how.
type Segments = KVVec<(Segment, CopyFlags)>;

/// Has the engine of `route` empty these slots, unless the peer `is_over`. On an error, which may say that the engine
/// can't, some may have been emptied. The caller is inside the peer. May sleep.
pub(super) fn drain(
    route: &EngineRoute,
    views: &mut Views,
    deliveries: &[Delivery],
    is_over: impl Fn() -> bool,
) -> Result {
    let engine = &route.engine;
    if engine.has_stopped() {
        // It may have no driver any more.
        return Err(EIO);
    }
    let slots = views.address(engine)?;
    let mut segments = Segments::new();
    for delivery in deliveries {
        add(&mut segments, route, slots, delivery)?;
    }
    awaited_copies::copy(engine, segments, is_over)?;
    let bytes = deliveries.iter().map(|delivery| delivery.len).sum();
    engine.bytes.add(bytes, Relaxed);
    Ok(())
}

/// Adds a slot, of those that begin at `slots` for the engine.
fn add(segments: &mut Segments, route: &EngineRoute, slots: u64, delivery: &Delivery) -> Result {
    let Delivery {
        at,
        ref window,
        offset,
        len,
    } = *delivery;
    let (memory, engine) = (&window.memory, &route.engine);
    let pages = &memory.pages;
    // Its place is used for something else when who has lent it wants that; and it may be no RAM.
    if !pages.is_writable() || !pages.are_held() || pages.are_of_device() {
        return Err(EINVAL);
    }
    memory.map_for(route)?;
    let to = memory.engine_addresses().ok_or(EIO)?;
    let source = slots.checked_add(at as u64).ok_or(EFAULT)?;
    if !engine.can_copy(offset, source, usize::try_from(len)?) {
        return Err(EINVAL);
    }
    let from = Linear::new(source, len).ok_or(EFAULT)?;
    for segment in Plan::new(to.walk(offset), from, len, engine.longest_segment()) {
        let segment = segment.map_err(|_| ENXIO)?;
        segments.push((segment, CopyFlags::NONE), GFP_KERNEL)?;
    }
    // What comes in later slots is not there earlier.
    if let Some((_, flags)) = segments.last_mut() {
        *flags = CopyFlags::FENCE;
    }
    Ok(())
}
