// SPDX-License-Identifier: GPL-2.0

//! The path to a peer behind an NTB.
//!
//! The peer's memory is reached through one aperture, which may consist of several memory windows.
//! Each window is mapped by itself, so an access has to lie within one of them. For access to the
//! peer, it makes no difference what is behind the aperture. For the peer's access to this node,
//! [`ApertureBacking`] decides which addresses the peer gets.
//!
//! This file has more than 500 lines because the limits of each mode stand beside the path that
//! keeps them.
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
        ApertureBacking, //
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
            Bridge,
            Export,
            Limits,
            Path, //
        },
    },
};

/// Returns the bytes at an offset of an aperture, or EFAULT if they do not all lie in one of its
/// parts.
fn reach_in(parts: &[IoMapping], seams: Seams, offset: u64, len: u64) -> Result<Reached<'_>> {
    let (index, offset) = seams.locate(offset);
    parts.get(index).ok_or(EFAULT)?.reach(offset, len)
}

/// Bytes to read back from the peer's control block.
const CONTROL_READ: u64 = size_of::<u32>() as u64;

/// The path to a peer behind an NTB.
#[pin_data]
pub(super) struct NtbPath {
    /// The link, which ends the session.
    link: Arc<NtbLink>,
    /// Number of times that the link had gone down when the session began.
    downs: u32,
    /// The aperture as the CPU sees it: one mapping for each window.
    parts: KVec<IoMapping>,
    /// The borders between the parts, as offsets from `base`.
    seams: Seams,
    /// The aperture as each engine sees it.
    routes: Routes,
    /// The peer's bus address at which the aperture begins.
    base: u64,
    /// Offset of the peer's control block in the aperture. It can always be read.
    control: u64,
    /// Record of stores by this node's CPUs into the peer's memory, except those of messages.
    stores: Arc<Stores>,
    mode: Mode,
    /// Set if the device failed to ring a doorbell of the peer, which may wait for it.
    is_to_ring: Atomic<bool>,
    /// The fate of all memory that the peer was told of.
    pub(super) fate: Option<Arc<Fate>>,
    /// The resources of the device, or `None` once the session is over.
    #[pin]
    held: SpinLockIrq<Option<DeviceResources>>,
}

/// The resources of a device that a path holds.
struct DeviceResources {
    /// The device that rings the peer's doorbells.
    device: Arc<NtbDevice>,
    /// The memory that the peer reaches.
    behind: ApertureBacking,
    _windows: KVec<OutboundWindow>,
}

impl NtbPath {
    /// Creates the path to the peer that sent this hello, and that reaches this node through `own`.
    /// `downs` tells how often the link had gone down at the last check. All memory that the peer
    /// is told of gets this fate.
    /// Context: may sleep.
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
        let held = DeviceResources {
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
                        "{}: DMA engine {} is not used: the peer's memory can't be mapped for it ({error:?}); \
                         load the driver of another engine\n",
                        &*self.link.name,
                        engine.name()
                    );
                }
            })
        })
    }

    /// Unmaps the peer's memory from engines that have stopped.
    /// Context: may sleep.
    pub(super) fn unmap_stopped_engines(&self) {
        self.routes.unmap_stopped();
    }

    /// Adds engines that appeared after the path was created.
    /// Context: may sleep.
    pub(super) fn add_engines(&self, engines: &Engines, name: &CStr) {
        engines.for_each_working(|engine| {
            if self.add_engine(engine) && self.link.may_log() {
                pr_info!(
                    "{}: DMA engine {} makes transfers of new connections from now on\n",
                    name,
                    engine.name()
                );
            }
        });
    }

    /// Returns how transfers go, for the log.
    pub(super) fn transfers(&self) -> &'static str {
        match self.routes.len() {
            0 => "no DMA engine: transfers by CPU",
            1 => "transfers by DMA engine",
            _ => "transfers by DMA engines",
        }
    }

    /// Stops ringing doorbells, and releases the device.
    /// Context: may sleep.
    pub(super) fn detach(&self) {
        let held = self.held.lock().take();
        drop(held);
    }

    /// Returns when earlier stores of this node have arrived at the peer. Takes a round trip.
    fn read_back(&self) {
        let control = reach_in(&self.parts, self.seams, self.control, CONTROL_READ);
        let _ = control.and_then(|control| control.read_back(0));
    }

    /// Releases the device and the mappings of the peer's memory. Processes that have lost the peer
    /// may keep this object for long. Meanwhile the driver of the bridge or of an engine may be
    /// unbound.
    /// Context: may sleep.
    pub(super) fn unmap(&self, drained: &Drained) {
        self.detach();
        self.routes
            .iter()
            .for_each(|route| route.view.unmap(drained));
        for part in &self.parts {
            part.unmap(drained);
        }
    }

    /// Returns the memory that the peer reaches, or ENODEV once the session is over.
    fn inbound(&self) -> Result<ApertureBacking> {
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
            // The device does not have this doorbell. Numbers that the peer sends were checked on
            // arrival.
            return;
        }
        // Keeps the lock, so that the device stays.
        let held = self.held.lock();
        let Some(DeviceResources { device, .. }) = held.as_ref().filter(|_| !self.was_down())
        else {
            return;
        };
        // The bridge on the other side raises the interrupt by a write of its own, which may
        // overtake this CPU's stores. The answer to a load comes only after they have arrived.
        self.read_back();
        let rung = device.peer_db_set(bits);
        drop(held);
        if let Err(error) = rung {
            self.is_to_ring.store(true, Relaxed);
            if self.may_log() {
                pr_warn!(
                    "{}: ringing a doorbell of the peer has failed, and is tried again: {:?}\n",
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

    fn bridge(&self) -> Option<Bridge> {
        let held = self.held.lock();
        let device = held.as_ref()?.device.clone();
        drop(held);
        Some(Bridge {
            device: device.hardware(),
            megabits: device.megabits(),
        })
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
            // After the link was down, the stores are lost, and the load may cause a bus error.
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
            ApertureBacking::Physical => Export::Physical(fated()),
            ApertureBacking::Device(device) => Export::Device {
                mapping: DmaMapping::new(pages, &device)?,
                _kept: fated(),
            },
            ApertureBacking::Arena(arena) => Export::within(pages, &arena, access)?,
            ApertureBacking::Pool(_) => Export::nowhere(),
        })
    }

    fn limits(&self) -> Limits {
        match self.inbound() {
            Err(_) | Ok(ApertureBacking::Physical | ApertureBacking::Device(_)) => Limits::NONE,
            Ok(ApertureBacking::Arena(arena)) => Limits {
                // Most of the arena is for windows.
                staging: STAGING_BESIDE_ARENA
                    .min(arena.places.shape.len / 8)
                    .min(piece(arena.places.shape)) as usize,
                rings: Some(arena.places.shape.len / 2),
                ..Limits::NONE
            },
            // Neither cast truncates: a pool is at most 4 MiB.
            Ok(ApertureBacking::Pool(pool)) => {
                let shape = pool.places.shape;
                Limits {
                    // The other half of the smallest pool has room for the control block and 105 of
                    // the smallest rings.
                    staging: (shape.len / 2).min(MOST_STAGING).min(piece(shape)) as usize,
                    ring: (shape.len / RING_PARTS) as u32,
                    rings: Some(shape.len / 2),
                }
            }
        }
    }
}

/// Bytes of bounce buffers beside an arena. Most windows have a place in it; the others need these.
const STAGING_BESIDE_ARENA: u64 = 256 << 10;

/// Returns the largest single piece to ask for. Smaller than the free memory, because other pieces
/// lie there, too.
fn piece(shape: Shape) -> u64 {
    shape.longest() / 2
}

/// Maximum bytes of bounce buffers. More would make the slots longer than an engine needs to be
/// fast.
const MOST_STAGING: u64 = 1 << 20;

/// Divisor: the ring of one connection may take one part in so many of a pool.
const RING_PARTS: u64 = 32;

/// Size that every ring may have, however little is left, as more connections may come.
const SMALLEST_RING: u64 = 256;

/// Returns how many bytes of a pool one request may take. The ring of a connection is one of many,
/// and gets least at first, before it has turned out to be used.
fn most_of(pool: &Places, payer: Payer<'_>) -> u64 {
    let free = pool
        .shape
        .len
        .saturating_sub(pool.bytes_for(Purpose::Rings));
    match payer {
        Payer::None | Payer::Optional => free,
        Payer::Caller => (free / 96).max(SMALLEST_RING),
        Payer::Group(_) => free / 8,
    }
}

impl ApertureBacking {
    /// Allocates memory as [`Path::share`] does.
    pub(super) fn share(&self, len: usize, payer: Payer<'_>) -> Result<SharedMemory> {
        if matches!(self, Self::Pool(pool) if len as u64 > most_of(&pool.places, payer)) {
            return Err(ENOMEM);
        }
        match SharedMemory::new(len, self, payer) {
            // Callers of SCIF expect ENOMEM.
            Err(ENOSPC) => Err(ENOMEM),
            memory => memory,
        }
    }
}

/// A memory window that this side leads into the peer's memory. On some devices the user of the
/// memory sets the translation. On others its owner does (`aperture.rs`), and this type is not
/// used. Dropping it closes the window.
pub(super) struct OutboundWindow {
    device: Arc<NtbDevice>,
    window: u32,
}

impl OutboundWindow {
    /// Leads the window, of `whole` bytes, to `len` bytes at a bus address of the peer.
    /// Context: may sleep.
    fn lead_to(
        device: &Arc<NtbDevice>,
        window: u32,
        base: u64,
        len: u64,
        whole: u64,
    ) -> Result<Self> {
        device
            .set_peer_translation(window, base, len)
            // Some devices accept only a translation of the whole window.
            .or_else(|_| device.set_peer_translation(window, base, whole))?;
        Ok(Self {
            device: device.clone(),
            window,
        })
    }

    /// Closes all windows, as an earlier user may have left them open.
    /// Context: may sleep.
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
