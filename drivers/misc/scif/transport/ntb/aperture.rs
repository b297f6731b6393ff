// SPDX-License-Identifier: GPL-2.0

//! The aperture over our memory, as the peer gets it.
//!
//! One memory window of the device leads there. What is behind it depends on the mode:
//!
//! - *arena*: a range of I/O addresses, as large as the window, in which lies what the peer may use
//!   and nothing else;
//! - *bounce*: memory set apart for that, in which there is what both sides write to each other, and slots
//!   in which what is meant for other memory is staged;
//! - *flat*: all memory of this machine, from bus address 0 on. Somebody has to have said that the peer is
//!   trusted.
//!
//! What a device demands of windows, sizes and alignments, is known here only.

use super::context::{
    Policy,
    Wanted,
    PEER, //
};
use crate::{
    logic::hello::Mode,
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
    pub(super) window: u32,
    pub(super) base: u64,
    pub(super) len: u64,
    /// The size of the memory window.
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
    /// No window covers the memory.
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
                "no memory window covers the {} MiB of this machine (the largest has {} MiB), as aperture=flat demands; make the BAR larger, or load without aperture=flat",
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
            Wanted::Arena if is_translated => Self::with_arena(device, kept, "aperture=arena"),
            Wanted::Arena => Err(Unsuitable::NoIommu),
            Wanted::Bounce => Self::with_pool(device, kept, "aperture=bounce"),
            Wanted::Flat if !policy.allow_flat => Err(Unsuitable::FlatNotAllowed),
            Wanted::Flat => Self::flat(device, "aperture=flat"),
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
            let chosen = Self::with_arena(device, kept, "an IOMMU translates for the bridge");
            return match chosen {
                Err(Unsuitable::NoArena { .. }) => Self::with_pool(
                    device,
                    kept,
                    "the IOMMU has no range of addresses as large as a memory window",
                ),
                chosen => chosen,
            };
        }
        if !policy.allow_flat {
            return Self::with_pool(
                device,
                kept,
                "no IOMMU translates for the bridge, and allow_flat is not set",
            );
        }
        match Self::flat(
            device,
            "no IOMMU translates for the bridge, and allow_flat is set",
        ) {
            Err(Unsuitable::TooSmall { .. }) => {
                let reason = "no memory window covers the memory of this machine";
                Self::with_pool(device, kept, reason)
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

    /// The largest window, with an arena as large as that, or as can be.
    fn with_arena(
        device: &NtbDevice,
        kept: Option<&Behind>,
        reason: &'static str,
    ) -> Result<Self, Unsuitable> {
        let (window, align) =
            largest_window(device, |_| true)?.ok_or(Unsuitable::NoArena { largest: 0 })?;
        let arena = match kept {
            Some(Behind::Arena(arena)) => arena.clone(),
            _ => new_arena(device, &align)?,
        };
        Ok(Self {
            window,
            base: arena.base(),
            len: arena.size(),
            whole: align.max_size,
            behind: Behind::Arena(arena),
            reason,
        })
    }

    /// The largest window that can lead to a pool, and does.
    fn with_pool(
        device: &NtbDevice,
        kept: Option<&Behind>,
        reason: &'static str,
    ) -> Result<Self, Unsuitable> {
        let mut largest = u64::MAX;
        loop {
            let can_be = |align: &WindowAlignment| {
                align.address <= LARGEST_ALIGN
                    && align.size <= LARGEST_POOL
                    && (SMALLEST..largest).contains(&align.max_size)
            };
            let Some((window, align)) = largest_window(device, can_be)? else {
                let other = largest_window(device, |_| true)?.map(|(_, align)| align);
                return Err(Unsuitable::NoPool {
                    largest: other.as_ref().map_or(0, |align| align.max_size),
                    address: other.as_ref().map_or(0, |align| align.address),
                });
            };
            let pool = match kept {
                Some(Behind::Pool(pool)) if pool.size() <= align.max_size => pool.clone(),
                _ => new_pool(device, &align)?,
            };
            let this = Self {
                window,
                base: pool.address(),
                len: pool.size(),
                whole: align.max_size,
                behind: Behind::Pool(pool),
                reason,
            };
            // There are windows that lead to one place only, and nothing says so. Nobody can do harm in
            // a pool, though it is open for a moment.
            if this.clone().open(device).is_ok() {
                this.clone().close(device);
                return Ok(this);
            }
            largest = align.max_size;
        }
    }

    /// The first window that can lead to all of our memory.
    fn flat(device: &NtbDevice, reason: &'static str) -> Result<Self, Unsuitable> {
        let needed = direct_map::end_of_memory();
        let mut largest = 0;
        for window in 0..device.mw_count(PEER)? {
            let Some(align) = usable(device, window)? else {
                continue;
            };
            largest = largest.max(align.max_size);
            if align.max_size >= needed {
                // Some drivers round down what is none, without a word.
                let len = needed.checked_next_power_of_two().unwrap_or(needed);
                return Ok(Self {
                    window,
                    base: 0,
                    len: len.min(align.max_size),
                    whole: align.max_size,
                    behind: Behind::All,
                    reason,
                });
            }
        }
        Err(Unsuitable::TooSmall { needed, largest })
    }

    /// Lets the peer in. Not before it has shown a fresh nonce: it has then let go of all memory
    /// that it was told of in an earlier session. May sleep.
    ///
    /// Where the peer lets itself in there is nothing to do, here and in [`Self::close`].
    pub(super) fn open(&mut self, device: &NtbDevice) -> Result {
        let opened = device.set_translation(PEER, self.window, self.base, self.len);
        if opened.is_ok() || !matches!(self.behind, Behind::All) {
            return opened;
        }
        // Some hardware takes nothing but the whole window.
        device.set_translation(PEER, self.window, self.base, self.whole)?;
        self.len = self.whole;
        Ok(())
    }

    /// Lets the peer in no more: from here on one that is merely slow writes nowhere, if the
    /// hardware can do that. Says whether it is so. May sleep.
    pub(super) fn close(self, device: &NtbDevice) -> bool {
        device.translates_inbound() && device.clear_translation(PEER, self.window).is_ok()
    }
}

/// What a window demands; none if it can't be used. ENOTCONN while the link is down.
fn usable(device: &NtbDevice, window: u32) -> Result<Option<WindowAlignment>> {
    match device.mw_align(PEER, window) {
        Err(ENOTCONN) => Err(ENOTCONN),
        align => Ok(align.ok()),
    }
}

/// Of those that are `suited`, the one with the most room, and what it demands.
fn largest_window(
    device: &NtbDevice,
    suited: impl Fn(&WindowAlignment) -> bool,
) -> Result<Option<(u32, WindowAlignment)>> {
    let mut largest: Option<(u32, WindowAlignment)> = None;
    for window in 0..device.mw_count(PEER)? {
        let Some(align) = usable(device, window)?.filter(&suited) else {
            continue;
        };
        if largest
            .as_ref()
            .is_none_or(|(_, other)| align.max_size > other.max_size)
        {
            largest = Some((window, align));
        }
    }
    Ok(largest)
}

/// One as large as the window, or as can be; smaller, if there is no such piece of memory.
fn new_pool(device: &NtbDevice, align: &WindowAlignment) -> Result<Arc<Pool>, Unsuitable> {
    let mut size = 1u64 << align.max_size.clamp(1, LARGEST_POOL).ilog2();
    let address = align.address.max(1).checked_next_power_of_two();
    let address = usize::try_from(address.ok_or(EINVAL)?).map_err(Error::from)?;
    while size >= SMALLEST.max(align.size) {
        let len = usize::try_from(size).map_err(Error::from)?;
        match Pool::new(&device.dma_device(), len, address.max(PAGE_SIZE)) {
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
        match Arena::new(
            &device.dma_device(),
            usize::try_from(size).map_err(Error::from)?,
        ) {
            Ok(arena) if arena.base() % align.address.max(1) == 0 => return Ok(arena),
            Ok(_) | Err(EOPNOTSUPP) => size /= 2,
            Err(error) => return Err(error.into()),
        }
    }
    Err(none)
}
