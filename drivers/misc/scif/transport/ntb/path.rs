// SPDX-License-Identifier: GPL-2.0

//! The way to a peer behind an NTB whose memory is covered by one aperture.
//!
//! The aperture may consist of several memory windows: each is mapped by itself (`outbound_window.rs`), and what is named must
//! lie in one of them.
//!
//! Outbound it makes no difference what is behind it; inbound that decides how the peer's addresses of our
//! memory come about (`way.rs`).
//!
//! Locks: `reach` and `inbound` are leaves, taken in any context.

use super::{
    aperture::Aperture,
    outbound_window::OutboundWindow,
    way::Way, //
};
use crate::{
    logic::{
        doorbells::DoorbellRegister,
        extents::Entry,
        hello::{
            Hello,
            Mode, //
        },
        window_set::{
            Seams,
            WindowSet, //
        },
    },
    sys::{
        arena::Access,
        iomap::IoMapping,
        ntb::NtbDevice,
        pages::Pages,
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
        inbound::{
            Export,
            Inbound,
            Limits, //
        },
        outbound::{
            Outbound,
            Reached, //
        },
        path::Path, //
    },
};
use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        SpinLockIrq, //
    },
};

/// Bytes at an offset of an aperture: EFAULT where they do not all lie in one of its parts.
fn reach_in(parts: &[IoMapping], seams: Seams, offset: u64, len: u64) -> Result<Reached<'_>> {
    let (index, offset) = seams.locate(offset);
    Reached::in_device(parts.get(index).ok_or(EFAULT)?, offset, len)
}

/// Bytes of the peer's control block that are read back.
const CONTROL_READ: u64 = size_of::<u32>() as u64;

/// Who ends the session.
pub(super) trait Owner: Send + Sync {
    /// See [`Path::session_failed`].
    fn session_failed(self: ArcBorrow<'_, Self>);
}

/// See the head of this file.
#[pin_data]
pub(super) struct NtbPath {
    owner: Arc<dyn Owner>,
    /// How the peer gets to our memory; none once the session is over.
    #[pin]
    inbound: SpinLockIrq<Option<Way>>,
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
    mode: Mode,
    register: DoorbellRegister,
    /// What is had of the device; none once the session is over.
    #[pin]
    reach: SpinLockIrq<Option<Reach>>,
}

/// What a path has of the device.
struct Reach {
    /// Whose doorbells reach the peer.
    device: Arc<NtbDevice>,
    _windows: KVec<OutboundWindow>,
}

impl NtbPath {
    /// The way to the peer that has said this hello, and that reaches us through `own`. May sleep.
    pub(super) fn new(
        owner: Arc<dyn Owner>,
        device: &Arc<NtbDevice>,
        engines: &Engines,
        register: DoorbellRegister,
        own: &Aperture,
        hello: &Hello,
    ) -> Result<Arc<Self>> {
        let mode = Mode::from_number(hello.mode).ok_or(EINVAL)?;
        let set = WindowSet::from_bits(hello.windows).ok_or(EINVAL)?;
        let (base, len) = (hello.aperture_base, hello.aperture_len);
        let seams = set.seams(len).ok_or(EINVAL)?;
        let (mut parts, mut windows) = (KVec::new(), KVec::new());
        for (window, start, part) in set.parts(base, len).ok_or(EINVAL)? {
            let (physical, size) = device.peer_mw(window)?;
            if size < part && set.count() > 1 {
                return Err(EINVAL);
            }
            let part = part.min(size);
            parts.push(IoMapping::write_combined(physical, part)?, GFP_KERNEL)?;
            if let Some(window) = OutboundWindow::lead_to(device, window, (start, part), size)? {
                windows.push(window, GFP_KERNEL)?;
            }
        }
        let control = hello.control.checked_sub(base).ok_or(EINVAL)?;
        reach_in(&parts, seams, control, CONTROL_READ)?.read_back(0)?;
        let routes = Routes::new()?;
        let way = Way::through(own, device);
        let reach = Reach {
            device: device.clone(),
            _windows: windows,
        };
        let this = Arc::pin_init(
            pin_init!(Self {
                owner,
                inbound <- new_spinlock_irq!(Some(way), "NtbPath::inbound"),
                parts,
                seams,
                routes,
                base,
                control,
                mode,
                register,
                reach <- new_spinlock_irq!(Some(reach), "NtbPath::reach"),
            }),
            GFP_KERNEL,
        )?;
        engines.for_each_at_first(|engine| {
            this.add_engine(engine);
        });
        Ok(this)
    }

    fn add_engine(&self, engine: &Arc<Engine>) -> bool {
        let views = self.parts.iter().map(|part| (part.phys(), part.size()));
        let places = (self.base, self.base + self.control);
        let make = || EngineRoute::new(engine, views, self.seams, places);
        self.routes.add(engine, make)
    }

    /// Looks for engines that have come since. May sleep.
    pub(super) fn add_engines(&self, engines: &Engines, name: &CStr) {
        engines.for_each_working(|engine| {
            if self.add_engine(engine) {
                pr_info!(
                    "{}: transfers by DMA engine {} from now on\n",
                    name,
                    engine.name()
                );
            }
        });
    }

    /// Bytes of the aperture over the peer's memory.
    pub(super) fn size(&self) -> u64 {
        self.parts.iter().map(|part| part.size() as u64).sum()
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
        let reach = self.reach.lock().take();
        drop(reach);
        let way = self.inbound.lock().take();
        drop(way);
    }

    /// ENODEV once the session is over.
    fn way(&self) -> Result<Way> {
        self.inbound.lock().clone().ok_or(ENODEV)
    }
}

impl Inbound for NtbPath {
    fn share(&self, len: usize, payer: Payer<'_>) -> Result<SharedMemory> {
        self.way()?.share(len, payer)
    }

    fn export(&self, pages: &Arc<Pages>, access: Access) -> Result<Export> {
        self.way()?.export(pages, access)
    }

    fn limits(&self) -> Limits {
        self.way().map_or(Limits::NONE, |way| way.limits())
    }
}

impl Outbound for NtbPath {
    fn reach(&self, address: u64, len: u64) -> Result<Reached<'_>> {
        let offset = address.checked_sub(self.base).ok_or(EFAULT)?;
        reach_in(&self.parts, self.seams, offset, len)
    }

    fn reaches(&self, memory: &[Entry]) -> bool {
        let size = self.size();
        memory.iter().all(|entry| {
            let (address, len) = (entry.extent.address(), entry.extent.len());
            let offset = address.checked_sub(self.base);
            offset.is_some_and(|offset| {
                let inside = size.checked_sub(offset).is_some_and(|rest| len <= rest);
                inside && self.seams.before(offset, len) == len
            })
        })
    }

    fn seams(&self) -> Seams {
        self.seams
    }

    fn reachable(&self) -> u64 {
        self.size()
    }

    fn first_reachable(&self) -> u64 {
        self.base
    }

    fn engines(&self) -> &Routes {
        &self.routes
    }
}

impl Path for NtbPath {
    fn mode(&self) -> &'static str {
        self.mode.name()
    }

    fn doorbells(&self) -> u64 {
        self.register.numbers()
    }

    fn ring(&self, number: u32) {
        let bits = self.register.to_peer_bits(doorbell::bit(number));
        if bits == 0 {
            // One that the device does not have. Those on the wire were checked when they came.
            return;
        }
        // With the lock, so that the device stays.
        if let Some(reach) = &*self.reach.lock() {
            // The doorbell's interrupt is a write of its own, by the bridge on the other side, and no rule of the bus
            // keeps it behind what this processor has stored: the answer to a load does.
            let control = reach_in(&self.parts, self.seams, self.control, CONTROL_READ);
            let _ = control.and_then(|control| control.read_back(0));
            let _ = reach.device.peer_db_set(bits);
        }
    }

    fn session_failed(self: ArcBorrow<'_, Self>) {
        self.owner.as_arc_borrow().session_failed();
    }
}
