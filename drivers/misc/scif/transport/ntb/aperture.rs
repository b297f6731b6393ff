// SPDX-License-Identifier: GPL-2.0

//! The aperture over our memory, as the peer gets it.
//!
//! One memory window of the device leads there. What is behind it depends on the mode:
//!
//! - *arena*: a range of I/O addresses, as large as the window, in which lies what the peer may use
//!   and nothing else;
//! - *flat*: all memory of this machine, from bus address 0 on.
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
        direct_map,
        dma_map,
        ntb::{
            NtbDevice,
            WindowAlignment, //
        }, //
    },
};
use kernel::{
    fmt,
    prelude::*,
    sync::Arc, //
};

/// Less than this is of no use: a control block and a few rings.
const SMALLEST: u64 = 64 << 10;

/// See the head of this file.
#[derive(Clone)]
pub(super) struct Aperture {
    pub(super) window: u32,
    pub(super) base: u64,
    pub(super) len: u64,
    /// The size of the memory window.
    whole: u64,
    /// In arena mode.
    pub(super) arena: Option<Arc<Arena>>,
    /// Why it is in the mode that it is in, for people.
    pub(super) reason: &'static str,
}

/// Why a device has no aperture to offer.
pub(super) enum Unsuitable {
    /// There is an IOMMU, and nobody has allowed to let the peer past it.
    FlatNotAllowed,
    /// No IOMMU translates for the device.
    NoIommu,
    /// The device has no memory window in which an arena could be.
    NoArena { largest: u64 },
    /// No window covers the memory.
    TooSmall { needed: u64, largest: u64 },
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
                "aperture=flat lets the peer past the IOMMU, to all memory; load with allow_flat=1 to accept that, or without aperture=flat",
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
                "no memory window covers the {} MiB of this machine (the largest has {} MiB), and smaller ones can be used with an IOMMU only; make the BAR larger, or switch the IOMMU on",
                needed >> 20,
                largest >> 20
            ),
            Self::Device(error) => write!(f, "can't offer a link: {error:?}"),
        }
    }
}

impl Aperture {
    /// Chooses a memory window, and what it leads to. May sleep.
    ///
    /// `arena` is the one of an earlier choice, which is taken again: the peer of an earlier session may
    /// still have memory in it.
    pub(super) fn choose(
        device: &NtbDevice,
        policy: Policy,
        arena: Option<&Arc<Arena>>,
    ) -> Result<Self, Unsuitable> {
        let is_translated = dma_map::has_iommu(&device.dma_device());
        match policy.wanted {
            Wanted::Auto if is_translated => {
                Self::with_arena(device, arena, "an IOMMU translates for the bridge")
            }
            Wanted::Auto => Self::flat(device, "no IOMMU translates for the bridge"),
            Wanted::Arena if is_translated => Self::with_arena(device, arena, "aperture=arena"),
            Wanted::Arena => Err(Unsuitable::NoIommu),
            Wanted::Flat if is_translated && !policy.allow_flat => Err(Unsuitable::FlatNotAllowed),
            Wanted::Flat => Self::flat(device, "aperture=flat"),
        }
    }

    /// How it leads to memory.
    pub(super) fn mode(&self) -> Mode {
        match self.arena {
            Some(_) => Mode::Arena,
            None => Mode::Flat,
        }
    }

    /// The largest window, with an arena as large as that, or as can be.
    fn with_arena(
        device: &NtbDevice,
        arena: Option<&Arc<Arena>>,
        reason: &'static str,
    ) -> Result<Self, Unsuitable> {
        let (window, align) = largest_window(device)?;
        let arena = match arena {
            Some(arena) => arena.clone(),
            None => new_arena(device, &align)?,
        };
        Ok(Self {
            window,
            base: arena.base(),
            len: arena.size(),
            whole: align.max_size,
            arena: Some(arena),
            reason,
        })
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
                    arena: None,
                    reason,
                });
            }
        }
        Err(Unsuitable::TooSmall { needed, largest })
    }

    /// Lets the peer in. Not before it has shown a fresh nonce: it has then let go of all memory
    /// that it was told of in an earlier session. May sleep.
    pub(super) fn open(&mut self, device: &NtbDevice) -> Result {
        let opened = device.set_translation(PEER, self.window, self.base, self.len);
        if opened.is_ok() || self.arena.is_some() {
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
        device.clear_translation(PEER, self.window).is_ok()
    }
}

/// What a window demands; none if it can't be used. ENOTCONN while the link is down.
fn usable(device: &NtbDevice, window: u32) -> Result<Option<WindowAlignment>> {
    match device.mw_align(PEER, window) {
        Err(ENOTCONN) => Err(ENOTCONN),
        align => Ok(align.ok()),
    }
}

/// The one with the most room, and what it demands.
fn largest_window(device: &NtbDevice) -> Result<(u32, WindowAlignment), Unsuitable> {
    let mut largest: Option<(u32, WindowAlignment)> = None;
    for window in 0..device.mw_count(PEER)? {
        let Some(align) = usable(device, window)? else {
            continue;
        };
        if largest.is_none_or(|(_, other)| align.max_size > other.max_size) {
            largest = Some((window, align));
        }
    }
    largest.ok_or(Unsuitable::NoArena { largest: 0 })
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
