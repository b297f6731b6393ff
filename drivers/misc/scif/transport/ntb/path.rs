// SPDX-License-Identifier: GPL-2.0

//! The way to a peer behind an NTB whose memory is covered by one aperture.
//!
//! The aperture may consist of several memory windows: each is mapped by itself, and what is named must lie
//! in one of them. Outbound it makes no difference what is behind it; inbound that decides how the peer's
//! addresses of our memory come about, see [`Behind`].
//!
//! Lock: `held` is a leaf, taken in any context.

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        SpinLockIrq, //
    },
};

use super::{
    aperture::{
        Aperture,
        Behind, //
    },
    link::NtbLink, //
};
use crate::{
    logic::{
        gate::Drained,
        hello::{
            Hello,
            Mode, //
        },
        stores::Stores,
        window_set::{
            Seams,
            Shape,
            WindowSet, //
        },
    },
    sys::{
        arena::Access,
        dma_map::DmaMapping,
        fate::{
            Fate,
            Fated, //
        },
        ntb::NtbDevice,
        pages::Pages,
        places::{
            Places,
            Purpose, //
        },
        reached::{
            IoMapping,
            Reached, //
        },
        shared_memory::{
            Payer,
            SharedMemory, //
        },
    },
    transport::{
        doorbell,
        engine::{
            Engine,
            EngineRoute,
            Engines,
            Routes, //
        },
        path::{
            Export,
            Limits,
            Path, //
        },
    },
};

/// Bytes at an offset of an aperture: EFAULT where they do not all lie in one of its parts.
fn reach_in(parts: &[IoMapping], seams: Seams, offset: u64, len: u64) -> Result<Reached<'_>> {
    let (index, offset) = seams.locate(offset);
    parts.get(index).ok_or(EFAULT)?.reach(offset, len)
}

/// Bytes of the peer's control block that are read back.
const CONTROL_READ: u64 = size_of::<u32>() as u64;

/// See the head of this file.
#[pin_data]
pub(super) struct NtbPath {
    /// Ends the session.
    link: Arc<NtbLink>,
    /// How often that had been down when the session began.
    downs: u32,
    /// The aperture as the CPU sees it: a mapping for each window.
    parts: KVec<IoMapping>,
    /// Where one of them ends, counted from `base`.
    seams: Seams,
    /// The aperture as the engines see it.
    routes: Routes,
    /// The peer's bus address at which the aperture begins.
    base: u64,
    /// Where its control block begins in the aperture, which can always be read.
    control: u64,
    /// What the processor has stored beside messages.
    stores: Arc<Stores>,
    mode: Mode,
    /// The device did not ring a doorbell of the peer, for which somebody may wait.
    is_to_ring: Atomic<bool>,
    /// What becomes of all memory that the peer was told of.
    pub(super) fate: Option<Arc<Fate>>,
    /// What is had of the device; none once the session is over.
    #[pin]
    held: SpinLockIrq<Option<Held>>,
}

/// What a path has of the device.
struct Held {
    /// Whose doorbells reach the peer.
    device: Arc<NtbDevice>,
    /// How the peer gets to our memory.
    behind: Behind,
    _windows: KVec<OutboundWindow>,
}

impl NtbPath {
    /// The way to the peer that has said this hello, and that reaches us through `own`, over a link that had been down so
    /// often at the last look. All memory that the peer is told of has this fate. May sleep.
    pub(super) fn new(
        link: &Arc<NtbLink>,
        device: &Arc<NtbDevice>,
        own: &Aperture,
        downs: u32,
        hello: &Hello,
        fate: Option<&Arc<Fate>>,
    ) -> Result<Arc<Self>> {
        let mode = Mode::from_number(hello.mode).ok_or(EINVAL)?;
        let set = WindowSet::from_bits(hello.windows).ok_or(EINVAL)?;
        let (base, len) = (hello.aperture_base, hello.aperture_len);
        let seams = set.seams(len).ok_or(EINVAL)?;
        let (mut parts, mut windows) = (KVec::new(), KVec::new());
        for (window, start, part) in set.parts(base, len).ok_or(EINVAL)? {
            let memory = device.peer_mw(window)?;
            let size = memory.size;
            if size < part && set.count() > 1 {
                return Err(EINVAL);
            }
            let part = part.min(size);
            parts.push(IoMapping::write_combined(memory, part)?, GFP_KERNEL)?;
            if !device.translates_inbound() {
                let led = OutboundWindow::lead_to(device, window, start, part, size)?;
                windows.push(led, GFP_KERNEL)?;
            }
        }
        let control = hello.control.checked_sub(base).ok_or(EINVAL)?;
        if link.downs() != downs {
            return Err(ENOTCONN);
        }
        reach_in(&parts, seams, control, CONTROL_READ)?.read_back(0)?;
        let routes = Routes::new()?;
        let stores = Arc::new(Stores::new(), GFP_KERNEL)?;
        let held = Held {
            device: device.clone(),
            behind: own.behind.clone(),
            _windows: windows,
        };
        let this = Arc::pin_init(
            pin_init!(Self {
                link: link.clone(),
                downs,
                parts,
                seams,
                routes,
                base,
                control,
                stores,
                mode,
                is_to_ring: Atomic::new(false),
                fate: fate.cloned(),
                held <- new_spinlock_irq!(Some(held), "NtbPath::held"),
            }),
            GFP_KERNEL,
        )?;
        link.context.engines.for_each_at_first(|engine| {
            this.add_engine(engine);
        });
        Ok(this)
    }

    fn add_engine(&self, engine: &Arc<Engine>) -> bool {
        let control = self.base + self.control;
        self.routes.add(engine, || {
            let route = EngineRoute::new(engine, &self.parts, self.seams, self.base, control);
            route.inspect_err(|error| {
                if self.link.may_log() {
                    pr_warn!(
                        "{}: not by DMA engine {}: the peer's memory can't be mapped for it ({error:?}); \
                         load the driver of another engine\n",
                        &*self.link.name,
                        engine.name()
                    );
                }
            })
        })
    }

    /// Looks for engines that have come since. May sleep.
    pub(super) fn add_engines(&self, engines: &Engines, name: &CStr) {
        engines.for_each_working(|engine| {
            if self.add_engine(engine) && self.link.may_log() {
                pr_info!(
                    "{}: transfers by DMA engine {} from now on\n",
                    name,
                    engine.name()
                );
            }
        });
    }

    /// How transfers go, for people.
    pub(super) fn transfers(&self) -> &'static str {
        match self.routes.len() {
            0 => "no DMA engine: transfers by CPU",
            1 => "transfers by DMA engine",
            _ => "transfers by DMA engines",
        }
    }

    /// Rings no doorbell any more, and has nothing of the device. May sleep.
    pub(super) fn detach(&self) {
        let held = self.held.lock().take();
        drop(held);
    }

    /// Returns when what the processor has stored before has arrived: a round trip.
    fn read_back(&self) {
        let control = reach_in(&self.parts, self.seams, self.control, CONTROL_READ);
        let _ = control.and_then(|control| control.read_back(0));
    }

    /// Has nothing of the peer's memory either: processes that have lost the peer may keep this for long, and the driver
    /// of the bridge, or of an engine, may go. May sleep.
    pub(super) fn unmap(&self, drained: &Drained) {
        self.detach();
        self.routes
            .iter()
            .for_each(|route| route.view.unmap(drained));
        for part in &self.parts {
            part.unmap(drained);
        }
    }

    /// How the peer gets to our memory: ENODEV once the session is over.
    fn inbound(&self) -> Result<Behind> {
        let held = self.held.lock();
        Ok(held.as_ref().ok_or(ENODEV)?.behind.clone())
    }
}

impl Path for NtbPath {
    fn mode(&self) -> &'static str {
        self.mode.name()
    }

    fn doorbells(&self) -> u64 {
        self.link.register.numbers()
    }

    fn ring(&self, number: u32) {
        let bits = self.link.register.to_peer_bits(doorbell::bit(number));
        if bits == 0 {
            // One that the device does not have. Those on the wire were checked when they came.
            return;
        }
        // With the lock, so that the device stays.
        let held = self.held.lock();
        let Some(Held { device, .. }) = held.as_ref().filter(|_| !self.was_down()) else {
            return;
        };
        // The doorbell's interrupt is a write of its own, by the bridge on the other side, and no rule of the bus
        // keeps it behind what this processor has stored: the answer to a load does.
        self.read_back();
        let rung = device.peer_db_set(bits);
        drop(held);
        if let Err(error) = rung {
            self.is_to_ring.store(true, Relaxed);
            if self.may_log() {
                pr_warn!(
                    "{}: a doorbell of the peer could not be rung, and is rung again: {:?}\n",
                    &*self.link.name,
                    error
                );
            }
        }
    }

    fn ring_again(&self) {
        if self.is_to_ring.xchg(false, Relaxed) {
            doorbell::numbers(self.doorbells()).for_each(|number| self.ring(number));
        }
    }

    fn may_log(&self) -> bool {
        self.link.may_log()
    }

    fn was_down(&self) -> bool {
        self.link.downs() != self.downs
    }

    fn is_down(&self) -> bool {
        let held = self.held.lock();
        let is_down = held.as_ref().is_some_and(|held| !held.device.link_is_up());
        drop(held);
        if is_down {
            self.link.note_down();
        }
        self.was_down()
    }

    fn session_failed(self: ArcBorrow<'_, Self>) {
        NtbLink::schedule(self.link.as_arc_borrow());
    }

    fn reach(&self, address: u64, len: u64) -> Result<Reached<'_>> {
        let offset = address.checked_sub(self.base).ok_or(EFAULT)?;
        reach_in(&self.parts, self.seams, offset, len)
    }

    fn seams(&self) -> Seams {
        self.seams
    }

    fn reachable(&self) -> u64 {
        self.parts.iter().map(|part| part.size() as u64).sum()
    }

    fn first_reachable(&self) -> u64 {
        self.base
    }

    fn stores(&self) -> Option<&Arc<Stores>> {
        Some(&self.stores)
    }

    fn settle_stores(&self) {
        self.stores.settle(|| {
            // What was stored is lost with the link, and the load may be an error of the bus.
            if !self.was_down() {
                self.read_back();
            }
        });
    }

    fn engines(&self) -> &Routes {
        &self.routes
    }

    fn share(&self, len: usize, payer: Payer<'_>) -> Result<SharedMemory> {
        let memory = self.inbound()?.share(len, payer)?;
        Ok(memory.with_fate(self.fate.clone()))
    }

    fn export(&self, pages: &Arc<Pages>, access: Access) -> Result<Export> {
        let fated = || Fated::new(pages.clone(), self.fate.clone());
        Ok(match self.inbound()? {
            Behind::Physical => Export::Physical(fated()),
            Behind::Device(device) => Export::Device {
                mapping: DmaMapping::new(pages, &device)?,
                _kept: fated(),
            },
            Behind::Arena(arena) => Export::within(pages, &arena, access)?,
            Behind::Pool(_) => Export::nowhere(),
        })
    }

    fn limits(&self) -> Limits {
        match self.inbound() {
            Err(_) | Ok(Behind::Physical | Behind::Device(_)) => Limits::NONE,
            Ok(Behind::Arena(arena)) => Limits {
                // Most of it is for windows.
                staging: STAGING_BESIDE_ARENA
                    .min(arena.places.shape.len / 8)
                    .min(piece(arena.places.shape)) as usize,
                rings: Some(arena.places.shape.len / 2),
                ..Limits::NONE
            },
            // Neither is larger than a pool may be.
            Ok(Behind::Pool(pool)) => {
                let shape = pool.places.shape;
                Limits {
                    // The other half of the smallest one has room for the control block and 105 of the smallest rings.
                    staging: (shape.len / 2).min(MOST_STAGING).min(piece(shape)) as usize,
                    ring: (shape.len / RING_PARTS) as u32,
                    rings: Some(shape.len / 2),
                }
            }
        }
    }
}

/// Beside an arena, in which most windows lie, for those that find no place.
const STAGING_BESIDE_ARENA: u64 = 256 << 10;

/// How long a piece may be that is to find a place: other things are there, too.
fn piece(shape: Shape) -> u64 {
    shape.longest() / 2
}

/// No more than this: the slots are then as long as an engine is good for.
const MOST_STAGING: u64 = 1 << 20;

/// How large the ring of one connection may become in a pool, one part in so many of it.
const RING_PARTS: u64 = 32;

/// What every ring may have, however little is left: others may still come.
const SMALLEST_RING: u64 = 256;

/// How much of a pool one who asks may have: the ring of a connection is one of many, and more so at first than when
/// it has turned out to be used.
fn most_of(pool: &Places, payer: Payer<'_>) -> u64 {
    let free = pool
        .shape
        .len
        .saturating_sub(pool.bytes_for(Purpose::Rings));
    match payer {
        Payer::Nobody => free,
        Payer::Caller => (free / 96).max(SMALLEST_RING),
        Payer::Group(_) => free / 8,
    }
}

impl Behind {
    /// See [`Path::share`].
    pub(super) fn share(&self, len: usize, payer: Payer<'_>) -> Result<SharedMemory> {
        if matches!(self, Self::Pool(pool) if len as u64 > most_of(&pool.places, payer)) {
            return Err(ENOMEM);
        }
        match SharedMemory::new(len, self, payer) {
            // What the callers of SCIF know.
            Err(ENOSPC) => Err(ENOMEM),
            memory => memory,
        }
    }
}

/// A memory window that this side makes lead into the peer's memory, on devices on which that is for who uses
/// it; on others it is for the owner of the memory (`aperture.rs`). Dropping it closes the window.
pub(super) struct OutboundWindow {
    device: Arc<NtbDevice>,
    window: u32,
}

impl OutboundWindow {
    /// Makes the window, of `whole` bytes, lead to `len` at a bus address of the peer. May sleep.
    fn lead_to(
        device: &Arc<NtbDevice>,
        window: u32,
        base: u64,
        len: u64,
        whole: u64,
    ) -> Result<Self> {
        device
            .set_peer_translation(window, base, len)
            // Some take nothing but all of it.
            .or_else(|_| device.set_peer_translation(window, base, whole))?;
        Ok(Self {
            device: device.clone(),
            window,
        })
    }

    /// Makes all windows lead nowhere, as somebody before may have left them. May sleep.
    pub(super) fn close_all(device: &NtbDevice) {
        if device.translates_inbound() {
            return;
        }
        for window in 0..device.peer_mw_count().unwrap_or(0) {
            let _ = device.clear_peer_translation(window);
        }
    }
}

impl Drop for OutboundWindow {
    fn drop(&mut self) {
        let _ = self.device.clear_peer_translation(self.window);
    }
}
