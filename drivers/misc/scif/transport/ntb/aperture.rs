// SPDX-License-Identifier: GPL-2.0

//! The aperture over our memory, as the peer gets it.
//!
//! One memory window of the device leads there, or several of them together, where one has less room or does not do, each to
//! a part of it (`memory_windows.rs`, `logic/window_set.rs`). What is behind it depends on the mode:
//!
//! - *arena*: a range of I/O addresses, as large as the window, in which lies what the peer may use
//!   and nothing else;
//! - *bounce*: memory set apart for that, in which there is what both sides write to each other, and slots
//!   in which what is meant for other memory is staged;
//! - *flat*: all memory of this machine, from bus address 0 on. Somebody has to have said that the peer is
//!   trusted.
//!
//! What a device demands of windows, sizes and alignments, is known here and in `memory_windows.rs` only.

use super::{
    context::{
        Policy,
        Wanted,
        PEER, //
    },
    memory_windows::{
        self,
        Several, //
    },
};
use crate::{
    logic::{
        hello::Mode,
        window_set::{
            Seams,
            Shape,
            WindowSet, //
        },
    },
    sys::{
        arena::Arena,
        direct_map, dma_map,
        ntb::{
            NtbDevice,
            WindowAlignment, //
        },
        pool::Pool,
    },
};
use kernel::{
    fmt,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

/// Less than this is of no use: a control block and a few rings.
const SMALLEST: u64 = 64 << 10;

/// The largest pool: more is hardly faster, and is gone for all else.
const LARGEST_POOL: u64 = 4 << 20;

/// The largest multiple at which a pool may have to begin: so much has to be free in one piece.
const LARGEST_ALIGN: u64 = 256 << 20;

/// What an aperture leads to.
#[derive(Clone)]
pub(super) enum Behind {
    /// All memory.
    All,
    Arena(Arc<Arena>),
    Pool(Arc<Pool>),
}

impl Behind {
    /// Nobody gets to what lies in it any more, and the driver of the device may go. May sleep.
    pub(super) fn close(&self) {
        match self {
            Self::All => (),
            Self::Arena(arena) => arena.close(),
            Self::Pool(pool) => pool.close(),
        }
    }

    /// Whether windows that were taken back are out of the peer's reach by that alone.
    pub(super) fn keeps_out(&self) -> bool {
        matches!(self, Self::Arena(_) | Self::Pool(_))
    }
}

/// See the head of this file.
#[derive(Clone)]
pub(super) struct Aperture {
    pub(super) windows: WindowSet,
    pub(super) base: u64,
    pub(super) len: u64,
    /// The size of the memory window, if it is one.
    whole: u64,
    pub(super) behind: Behind,
    /// Why it is in the mode that it is in, for people.
    pub(super) reason: &'static str,
}

/// Why a device has no aperture to offer.
pub(super) enum Unsuitable {
    /// Nobody has said that the peer is trusted.
    FlatNotAllowed,
    /// No IOMMU translates for the device.
    NoIommu,
    /// The device has no memory window in which an arena could be.
    NoArena { largest: u64 },
    /// No windows cover the memory.
    TooSmall { needed: u64, largest: u64 },
    /// The device has no memory window behind which a pool could be.
    NoPool { largest: u64, address: u64 },
    /// The device says no.
    Device(Error),
}

impl From<Error> for Unsuitable {
    fn from(error: Error) -> Self {
        Self::Device(error)
    }
}

impl fmt::Display for Unsuitable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FlatNotAllowed => f.write_str(
                "aperture=flat lets the peer read and write all memory of this machine; load with allow_flat=1 to accept that, or without aperture=flat",
            ),
            Self::NoIommu => f.write_str(
                "aperture=arena needs an IOMMU that translates for the bridge; boot with intel_iommu=on, or amd_iommu=on, and without iommu=pt",
            ),
            Self::NoArena { largest } => write!(
                f,
                "the IOMMU has no range of addresses that a memory window could lead to (the largest window has {} KiB)",
                largest >> 10
            ),
            Self::TooSmall { needed, largest } => write!(
                f,
                "no memory windows cover the {} MiB of this machine (the largest has {} MiB), as aperture=flat demands; make the BARs larger, or load without aperture=flat",
                needed >> 20,
                largest >> 20
            ),
            Self::NoPool { largest, address } => write!(
                f,
                "aperture=bounce takes a memory window of at least {} KiB that can begin at a multiple of {} MiB or less (the largest has {} KiB, and can at those of {} KiB); make the BAR smaller, switch the IOMMU on, or load with allow_flat=1 if the other host is trusted",
                SMALLEST >> 10,
                LARGEST_ALIGN >> 20,
                largest >> 10,
                address >> 10
            ),
            Self::Device(error) => write!(f, "can't offer a link: {error:?}"),
        }
    }
}

impl Aperture {
    /// Chooses a memory window, and what it leads to. May sleep.
    ///
    /// `kept` is what was behind one of an earlier choice, which is taken again: the peer of an earlier
    /// session may still have memory in it.
    pub(super) fn choose(
        device: &NtbDevice,
        policy: Policy,
        kept: Option<&Behind>,
    ) -> Result<Self, Unsuitable> {
        let is_translated = dma_map::has_iommu(&device.dma_device());
        match policy.wanted {
            Wanted::Auto => Self::best(device, policy, is_translated, kept),
            Wanted::Arena if is_translated => {
                Self::with_arena(device, policy, kept, "aperture=arena")
            }
            Wanted::Arena => Err(Unsuitable::NoIommu),
            Wanted::Bounce => Self::with_pool(device, policy, kept, "aperture=bounce"),
            Wanted::Flat if !policy.allow_flat => Err(Unsuitable::FlatNotAllowed),
            Wanted::Flat => Self::flat(device, policy, "aperture=flat"),
        }
    }

    /// What is best of what can be.
    fn best(
        device: &NtbDevice,
        policy: Policy,
        is_translated: bool,
        kept: Option<&Behind>,
    ) -> Result<Self, Unsuitable> {
        if is_translated {
            let reason = "an IOMMU translates for the bridge";
            return match Self::with_arena(device, policy, kept, reason) {
                Err(Unsuitable::NoArena { .. }) => Self::with_pool(
                    device,
                    policy,
                    kept,
                    "the IOMMU has no range of addresses as large as a memory window",
                ),
                chosen => chosen,
            };
        }
        if !policy.allow_flat {
            return Self::with_pool(
                device,
                policy,
                kept,
                "no IOMMU translates for the bridge, and allow_flat is not set",
            );
        }
        match Self::flat(
            device,
            policy,
            "no IOMMU translates for the bridge, and allow_flat is set",
        ) {
            Err(Unsuitable::TooSmall { .. }) => {
                let reason = "no memory windows cover the memory of this machine";
                Self::with_pool(device, policy, kept, reason)
            }
            chosen => chosen,
        }
    }

    /// How it leads to memory.
    pub(super) fn mode(&self) -> Mode {
        match self.behind {
            Behind::All => Mode::Flat,
            Behind::Arena(_) => Mode::Arena,
            Behind::Pool(_) => Mode::Bounce,
        }
    }

    /// Over something, in parts.
    fn over_several(several: &Several, base: u64, behind: Behind, reason: &'static str) -> Self {
        Self {
            windows: several.set,
            base,
            len: several.shape.len,
            whole: several.shape.longest(),
            behind,
            reason,
        }
    }

    /// With an arena as large as all windows together, or as the largest, or as can be.
    fn with_arena(
        device: &NtbDevice,
        policy: Policy,
        kept: Option<&Behind>,
        reason: &'static str,
    ) -> Result<Self, Unsuitable> {
        let suited = |align: &WindowAlignment| align.max_size >= SMALLEST;
        let several = memory_windows::several(device, suited, policy.most_windows, u64::MAX)?;
        if let Some(several) = several {
            let (shape, part) = (several.shape, several.shape.longest());
            let arena = match kept {
                Some(Behind::Arena(arena)) if arena.shape() == shape => Some(arena.clone()),
                _ => arena_of(device, part, shape)?,
            };
            if let Some(arena) = arena {
                let (base, behind) = (arena.base(), Behind::Arena(arena));
                return Ok(Self::over_several(&several, base, behind, reason));
            }
        }
        let none = Unsuitable::NoArena { largest: 0 };
        let (window, align) = memory_windows::largest(device, |_| true)?.ok_or(none)?;
        let arena = match kept {
            Some(Behind::Arena(arena)) if arena.shape().fits_in_one(align.max_size) => {
                arena.clone()
            }
            _ => new_arena(device, &align)?,
        };
        Ok(Self {
            windows: WindowSet::of([window]).ok_or(EINVAL)?,
            base: arena.base(),
            len: arena.size(),
            whole: align.max_size,
            behind: Behind::Arena(arena),
            reason,
        })
    }

    /// Several windows that lead to a pool together, if they do.
    fn with_pool_in_parts(
        device: &NtbDevice,
        policy: Policy,
        kept: Option<&Behind>,
        reason: &'static str,
    ) -> Result<Option<Self>> {
        let can_be =
            |align: &WindowAlignment| align.address <= LARGEST_ALIGN && align.max_size >= SMALLEST;
        let several = memory_windows::several(device, can_be, policy.most_windows, LARGEST_POOL)?;
        let Some(several) = several else {
            return Ok(None);
        };
        let shape = several.shape;
        let pool = match kept {
            Some(Behind::Pool(pool)) if pool.shape() == shape => pool.clone(),
            _ => {
                let len = usize::try_from(shape.len)?;
                let align = usize::try_from(shape.longest())?;
                match Pool::new(&device.dma_device(), len, align, shape.seams) {
                    Ok(pool) if pool.address() % align as u64 == 0 => pool,
                    Ok(_) | Err(ENOMEM) => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
        };
        let this = Self::over_several(&several, pool.address(), Behind::Pool(pool), reason);
        Ok(this.opens(device).then_some(this))
    }

    /// Whether the device takes it. There are windows that lead to one place only, and nothing says so.
    ///
    /// Only for a pool, which may be open for a moment, as nobody can do harm there.
    fn opens(&self, device: &NtbDevice) -> bool {
        let opened = self.clone().open(device).is_ok();
        if opened {
            self.clone().close(device);
        }
        opened
    }

    /// The windows that can lead to the largest pool, and do.
    fn with_pool(
        device: &NtbDevice,
        policy: Policy,
        kept: Option<&Behind>,
        reason: &'static str,
    ) -> Result<Self, Unsuitable> {
        if let Some(this) = Self::with_pool_in_parts(device, policy, kept, reason)? {
            return Ok(this);
        }
        let mut largest = u64::MAX;
        loop {
            let can_be = |align: &WindowAlignment| {
                align.address <= LARGEST_ALIGN
                    && align.size <= LARGEST_POOL
                    && (SMALLEST..largest).contains(&align.max_size)
            };
            let Some((window, align)) = memory_windows::largest(device, can_be)? else {
                let other = memory_windows::largest(device, |_| true)?.map(|(_, align)| align);
                return Err(Unsuitable::NoPool {
                    largest: other.as_ref().map_or(0, |align| align.max_size),
                    address: other.as_ref().map_or(0, |align| align.address),
                });
            };
            let pool = match kept {
                Some(Behind::Pool(pool)) if pool.shape().fits_in_one(align.max_size) => {
                    pool.clone()
                }
                _ => new_pool(device, &align)?,
            };
            let this = Self {
                windows: WindowSet::of([window]).ok_or(EINVAL)?,
                base: pool.address(),
                len: pool.size(),
                whole: align.max_size,
                behind: Behind::Pool(pool),
                reason,
            };
            if this.opens(device) {
                return Ok(this);
            }
            largest = align.max_size;
        }
    }

    /// The first window that can lead to all of our memory, or the fewest that can together.
    fn flat(device: &NtbDevice, policy: Policy, reason: &'static str) -> Result<Self, Unsuitable> {
        let needed = direct_map::end_of_memory();
        let mut largest = 0;
        for window in 0..memory_windows::count(device)? {
            let Some(align) = memory_windows::usable(device, window)? else {
                continue;
            };
            largest = largest.max(align.max_size);
            if align.max_size >= needed {
                // Some drivers round down what is none, without a word.
                let len = needed.checked_next_power_of_two().unwrap_or(needed);
                return Ok(Self {
                    windows: WindowSet::of([window]).ok_or(EINVAL)?,
                    base: 0,
                    len: len.min(align.max_size),
                    whole: align.max_size,
                    behind: Behind::All,
                    reason,
                });
            }
        }
        // What is in one piece for this machine is so for the bus then, and begins at a multiple of its size.
        if dma_map::bus_is_physical(&device.dma_device()) {
            let several = memory_windows::fewest(device, needed, policy.most_windows)?;
            if let Some(several) = several {
                return Ok(Self::over_several(&several, 0, Behind::All, reason));
            }
        }
        Err(Unsuitable::TooSmall { needed, largest })
    }

    /// Lets the peer in. Not before it has shown a fresh nonce: it has then let go of all memory
    /// that it was told of in an earlier session. May sleep.
    ///
    /// Where the peer lets itself in there is nothing to do, here and in [`Self::close`].
    pub(super) fn open(&mut self, device: &NtbDevice) -> Result {
        let opened = self.open_all(device);
        if opened.is_ok() || !matches!(self.behind, Behind::All) || self.windows.count() > 1 {
            return opened;
        }
        // Some hardware takes nothing but the whole window.
        self.len = self.whole;
        self.open_all(device)
    }

    fn open_all(&self, device: &NtbDevice) -> Result {
        let parts = self.windows.parts(self.base, self.len).ok_or(EINVAL)?;
        for (window, base, len) in parts {
            let opened = device.set_translation(PEER, window, base, len);
            if opened.is_err() {
                self.clone().close(device);
                return opened;
            }
        }
        Ok(())
    }

    /// Lets the peer in no more: from here on one that is merely slow writes nowhere, if the
    /// hardware can do that. Says whether it is so. May sleep.
    pub(super) fn close(self, device: &NtbDevice) -> bool {
        if !device.translates_inbound() {
            return false;
        }
        let still_open = self
            .windows
            .windows()
            .filter(|window| device.clear_translation(PEER, *window).is_err());
        // All are tried.
        still_open.count() == 0
    }
}

/// One as large as the window, or as can be; smaller, if there is no such piece of memory.
fn new_pool(device: &NtbDevice, align: &WindowAlignment) -> Result<Arc<Pool>, Unsuitable> {
    let mut size = 1u64 << align.max_size.clamp(1, LARGEST_POOL).ilog2();
    let address = align.address.max(1).checked_next_power_of_two();
    let address = usize::try_from(address.ok_or(EINVAL)?).map_err(Error::from)?;
    while size >= SMALLEST.max(align.size) {
        let len = usize::try_from(size).map_err(Error::from)?;
        let align_to = address.max(PAGE_SIZE);
        match Pool::new(&device.dma_device(), len, align_to, Seams::NONE) {
            Ok(pool) if pool.address() % align.address.max(1) == 0 => return Ok(pool),
            Ok(_) => break,
            Err(ENOMEM) => size /= 2,
            Err(error) => return Err(error.into()),
        }
    }
    Err(Unsuitable::NoPool {
        largest: align.max_size,
        address: align.address,
    })
}

/// One as large as the window; if the device has no such range, half of that, and so on.
fn new_arena(device: &NtbDevice, align: &WindowAlignment) -> Result<Arc<Arena>, Unsuitable> {
    let none = Unsuitable::NoArena {
        largest: align.max_size,
    };
    let mut size = align.max_size;
    while size >= SMALLEST.max(align.size) {
        match arena_of(device, align.address, Shape::in_one(size))? {
            Some(arena) => return Ok(arena),
            None => size /= 2,
        }
    }
    Err(none)
}

/// One of this shape at a multiple of `align`; none if the device has no such range.
fn arena_of(device: &NtbDevice, align: u64, shape: Shape) -> Result<Option<Arc<Arena>>> {
    let len = usize::try_from(shape.len)?;
    match Arena::new(&device.dma_device(), len, shape.seams) {
        Ok(arena) if arena.base() % align.max(1) == 0 => Ok(Some(arena)),
        Ok(_) | Err(EOPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}
