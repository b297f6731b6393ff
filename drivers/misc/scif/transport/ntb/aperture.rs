// SPDX-License-Identifier: GPL-2.0

//! The aperture over our memory, as the peer gets it.
//!
//! One memory window of the device leads there, or several of them together, where one has less room or does
//! not do, each to a part of it (`logic/window_set.rs`). What is behind it depends on the mode:
//!
//! - *arena*: a range of I/O addresses, as large as the window, in which lies what the peer may use
//!   and nothing else;
//! - *bounce*: memory set apart for that, in which there is what both sides write to each other, and slots
//!   in which what is meant for other memory is staged;
//! - *flat*: all memory of this machine, from bus address 0 on. Somebody has to have said that the peer is
//!   trusted.
//!
//! What a device demands of windows, sizes and alignments, is known here only.

use super::Policy;
use crate::{
    logic::{
        hello::Mode,
        window_set::{
            self,
            Shape,
            WindowSet,
            MOST_WINDOWS, //
        },
    },
    sys::{
        arena::Arena,
        dma_map,
        ntb::{
            NtbDevice,
            WindowAlignment, //
        },
        places::Places,
        pool::Pool,
        reached,
        shared_memory::User, //
    },
};
use kernel::{
    device::Device,
    page::PAGE_SIZE,
    prelude::*,
    sync::aref::ARef, //
};

/// Less than this is of no use: a control block and a few rings.
pub(super) const SMALLEST: u64 = 64 << 10;

/// The largest pool: more is hardly faster, and is gone for all else.
const LARGEST_POOL: u64 = 4 << 20;

/// The largest multiple at which a pool may have to begin: so much has to be free in one piece.
pub(super) const LARGEST_ALIGN: u64 = 256 << 20;

/// How large what the peer is kept to may be.
const fn most_of(mode: Mode) -> u64 {
    match mode {
        Mode::Bounce => LARGEST_POOL,
        _ => u64::MAX,
    }
}

/// What an aperture leads to, and so how the peer gets to our memory: all of it, by physical addresses or those of a
/// device, for which it is mapped; what has a place in an arena; or nothing but what lies in a pool.
pub(super) type Behind = User;

impl Behind {
    /// Nobody gets to what lies in it any more, and the driver of the device may go. May sleep.
    pub(super) fn close(&self) {
        match self {
            Self::Physical | Self::Device(_) => (),
            Self::Arena(arena) => arena.close(),
            Self::Pool(pool) => pool.close(),
        }
    }

    /// How it leads to memory.
    pub(super) fn mode(&self) -> Mode {
        match self {
            Self::Physical | Self::Device(_) => Mode::Flat,
            Self::Arena(_) => Mode::Arena,
            Self::Pool(_) => Mode::Bounce,
        }
    }

    /// The places in it, by addresses as the peer names them; none if it is all memory.
    pub(super) fn places(&self) -> Option<&Places> {
        match self {
            Self::Physical | Self::Device(_) => None,
            Self::Arena(arena) => Some(&arena.places),
            Self::Pool(pool) => Some(&pool.places),
        }
    }

    /// Whether the peer gets to what is given to it only; so what was taken back is out of its reach.
    pub(super) fn keeps_out(&self) -> bool {
        self.mode() != Mode::Flat
    }
}

/// See the head of this file.
#[derive(Clone)]
pub(super) struct Aperture {
    pub(super) windows: WindowSet,
    pub(super) base: u64,
    pub(super) len: u64,
    /// How long it becomes where the device takes nothing but the whole memory window.
    whole: u64,
    pub(super) behind: Behind,
    /// Why it is in the mode that it is in, for people.
    pub(super) reason: &'static str,
}

/// Why a device has no aperture to offer; `reports.rs` says it in words.
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

impl Aperture {
    /// Chooses a memory window, and what it leads to. Not again where that is an arena or a pool: the peer of an earlier
    /// session may still have memory in it. May sleep.
    pub(super) fn choose(device: &NtbDevice, policy: Policy) -> Result<Self, Unsuitable> {
        let dma_device = device.dma_device();
        let is_translated = dma_map::has_iommu(&dma_device);
        let choice = Choice {
            device,
            dma_device,
            most_windows: policy.most_windows,
        };
        match policy.wanted {
            None => choice.best(is_translated, policy.allow_flat),
            Some(Mode::Arena) if is_translated => choice.guarded(Mode::Arena, "aperture=arena"),
            Some(Mode::Arena) => Err(Unsuitable::NoIommu),
            Some(Mode::Bounce) => choice.guarded(Mode::Bounce, "aperture=bounce"),
            Some(Mode::Flat) if !policy.allow_flat => Err(Unsuitable::FlatNotAllowed),
            Some(Mode::Flat) => choice.flat("aperture=flat"),
        }
    }

    /// Whether the device takes it. There are windows that lead to one place only, and nothing says so.
    ///
    /// Only for a pool, which may be open for a moment, as nobody can do harm there.
    fn opens(&self, device: &NtbDevice) -> bool {
        let opened = self.clone().open(device).is_ok();
        if opened {
            self.close(device);
        }
        opened
    }

    /// Lets the peer in. Not before it has shown a fresh nonce: it has then let go of all memory
    /// that it was told of in an earlier session. May sleep.
    ///
    /// Where the peer lets itself in there is nothing to do, here and in [`Self::close`].
    pub(super) fn open(&mut self, device: &NtbDevice) -> Result {
        let opened = self.open_all(device);
        if opened.is_ok() || self.len == self.whole {
            return opened;
        }
        self.len = self.whole;
        self.open_all(device)
    }

    fn open_all(&self, device: &NtbDevice) -> Result {
        let parts = self.windows.parts(self.base, self.len).ok_or(EINVAL)?;
        for (window, base, len) in parts {
            let opened = device.lead_to(window, &self.behind, base, len);
            if opened.is_err() {
                self.close(device);
                return opened;
            }
        }
        Ok(())
    }

    /// Lets the peer in no more: from here on one that is merely slow writes nowhere, if the
    /// hardware can do that. Says whether it is so. May sleep.
    pub(super) fn close(&self, device: &NtbDevice) -> bool {
        if !device.translates_inbound() {
            return false;
        }
        let windows = self.windows.windows();
        let still_open = windows.filter(|window| device.clear_translation(*window).is_err());
        // All are tried.
        still_open.count() == 0
    }
}

/// A memory window of the device and what it demands.
type Window = (u32, WindowAlignment);

/// Several windows that are used together, and what lies behind them: it begins at a multiple of the length of a part.
type Several = (WindowSet, Shape);

/// The first ones of these, each with so many bytes; none if one can't lead to each such part.
fn first_of(windows: &[Window], count: u32, part: u64) -> Option<Several> {
    let these = windows.get(..count as usize)?;
    // What demands a multiple of something gets one in each part.
    let fits = |unit: u64| part.checked_rem(unit.max(1)) == Some(0);
    let fit = |(_, align): &Window| fits(align.address) && fits(align.size);
    if !these.iter().all(fit) {
        return None;
    }
    let set = WindowSet::of(these.iter().map(|(window, _)| *window))?;
    let len = u64::from(count).checked_mul(part)?;
    let seams = set.seams(len)?;
    Some((set, Shape { len, seams }))
}

/// What an aperture is chosen from.
struct Choice<'a> {
    device: &'a NtbDevice,
    dma_device: ARef<Device>,
    most_windows: u32,
}

impl Choice<'_> {
    /// What is best of what can be.
    fn best(&self, is_translated: bool, allow_flat: bool) -> Result<Aperture, Unsuitable> {
        if is_translated {
            return match self.guarded(Mode::Arena, "an IOMMU translates for the bridge") {
                Err(Unsuitable::NoArena { .. }) => self.guarded(
                    Mode::Bounce,
                    "the IOMMU has no range of addresses as large as a memory window",
                ),
                chosen => chosen,
            };
        }
        if !allow_flat {
            return self.guarded(
                Mode::Bounce,
                "no IOMMU translates for the bridge, and allow_flat is not set",
            );
        }
        match self.flat("no IOMMU translates for the bridge, and allow_flat is set") {
            Err(Unsuitable::TooSmall { .. }) => self.guarded(
                Mode::Bounce,
                "no memory windows cover the memory of this machine",
            ),
            chosen => chosen,
        }
    }

    /// With what the peer is kept to, an arena or a pool: as large as several windows together, or as the largest one,
    /// or as can be.
    fn guarded(&self, mode: Mode, reason: &'static str) -> Result<Aperture, Unsuitable> {
        let is_arena = mode == Mode::Arena;
        let windows = self.by_size(&|align| {
            let can_begin = is_arena || align.address <= LARGEST_ALIGN;
            can_begin && align.size <= most_of(mode) && align.max_size >= SMALLEST
        })?;
        let is_usable = |aperture: &Aperture| is_arena || aperture.opens(self.device);
        if let Some((set, shape)) = self.several(&windows, most_of(mode)) {
            let aperture = self.over(set, mode, shape, shape.longest(), reason)?;
            if let Some(aperture) = aperture.filter(is_usable) {
                return Ok(aperture);
            }
        }
        for (window, align) in &windows {
            let aperture = self.over_one(*window, align, mode, reason)?;
            if let Some(aperture) = aperture.filter(is_usable) {
                return Ok(aperture);
            }
        }
        let windows = self.by_size(&|_| true)?;
        let largest = windows.first().map(|(_, align)| *align);
        let (largest, address) = largest.map_or((0, 0), |align| (align.max_size, align.address));
        Err(if is_arena {
            Unsuitable::NoArena { largest }
        } else {
            Unsuitable::NoPool { largest, address }
        })
    }

    /// Over something as large as the window; if there is no such range or piece of memory, half of that, and so on, as
    /// long as the window can lead to that and it is of use.
    fn over_one(
        &self,
        window: u32,
        align: &WindowAlignment,
        mode: Mode,
        reason: &'static str,
    ) -> Result<Option<Aperture>> {
        let set = WindowSet::of([window]).ok_or(EINVAL)?;
        let mut size = align.max_size.min(most_of(mode));
        if mode == Mode::Bounce {
            size = 1 << size.checked_ilog2().unwrap_or(0);
        }
        while size >= SMALLEST.max(align.size) {
            let aperture = self.over(set, mode, Shape::in_one(size), align.address, reason)?;
            if aperture.is_some() {
                return Ok(aperture);
            }
            size /= 2;
        }
        Ok(None)
    }

    /// Over an arena or a pool of this shape at a multiple of `align`; none if the device has no such range, or there is no
    /// such piece of memory.
    fn over(
        &self,
        windows: WindowSet,
        mode: Mode,
        shape: Shape,
        align: u64,
        reason: &'static str,
    ) -> Result<Option<Aperture>> {
        let align = align.max(1);
        let behind = if mode == Mode::Arena {
            match Arena::new(&self.dma_device, shape) {
                Err(EOPNOTSUPP) => return Ok(None),
                arena => Behind::Arena(arena?),
            }
        } else {
            let phys_align = usize::try_from(align.checked_next_power_of_two().ok_or(EINVAL)?)?;
            match Pool::new(&self.dma_device, shape, phys_align.max(PAGE_SIZE)) {
                Err(ENOMEM) => return Ok(None),
                pool => Behind::Pool(pool?),
            }
        };
        let place = behind
            .places()
            .map(|places| (places.base, places.shape.len));
        let aligned = place.filter(|(base, _)| base % align == 0);
        Ok(aligned.map(|(base, len)| Aperture {
            windows,
            base,
            len,
            whole: len,
            behind,
            reason,
        }))
    }

    /// The first window that can lead to all of our memory, or the fewest that can together.
    fn flat(&self, reason: &'static str) -> Result<Aperture, Unsuitable> {
        let needed = reached::end_of_memory();
        let is_physical = dma_map::bus_is_physical(&self.dma_device);
        let behind = if is_physical {
            Behind::Physical
        } else {
            Behind::Device(self.dma_device.clone())
        };
        let windows = self.by_size(&|_| true)?;
        let covering = windows.iter().filter(|(_, align)| align.max_size >= needed);
        let chosen = if let Some((window, align)) = covering.min_by_key(|(window, _)| *window) {
            let set = WindowSet::of([*window]).ok_or(EINVAL)?;
            // Some drivers round down what is none, without a word.
            let len = needed.checked_next_power_of_two().unwrap_or(needed);
            Some((set, len.min(align.max_size), align.max_size))
        } else if is_physical {
            // What is in one piece for this machine is so for the bus then, and begins at a multiple of its size.
            let several = self.fewest(&windows, needed);
            several.map(|(set, shape)| (set, shape.len, shape.len))
        } else {
            None
        };
        let Some((set, len, whole)) = chosen else {
            let largest = windows.first().map_or(0, |(_, align)| align.max_size);
            return Err(Unsuitable::TooSmall { needed, largest });
        };
        Ok(Aperture {
            windows: set,
            base: 0,
            len,
            whole,
            behind,
            reason,
        })
    }

    /// The windows that are `suited`, the largest first. ENOTCONN while the link is down.
    fn by_size(&self, suited: &dyn Fn(&WindowAlignment) -> bool) -> Result<KVec<Window>> {
        let mut windows: KVec<Window> = KVec::new();
        for window in 0..self.device.mw_count()?.min(MOST_WINDOWS) {
            let align = match self.device.mw_align(window) {
                Ok(align) if suited(&align) => align,
                Err(ENOTCONN) => return Err(ENOTCONN),
                // It can't be used.
                Ok(_) | Err(_) => continue,
            };
            let is_smaller = |(_, other): &Window| other.max_size < align.max_size;
            let place = windows.iter().position(is_smaller).unwrap_or(windows.len());
            windows.reserve(1, GFP_KERNEL)?;
            // There is room.
            let _ = windows.insert_within_capacity(place, (window, align));
        }
        Ok(windows)
    }

    /// Several of these that have more room together than one of them, but not more than `enough`.
    fn several(&self, windows: &[Window], enough: u64) -> Option<Several> {
        let sizes = || windows.iter().map(|(_, align)| align.max_size);
        let (count, part) = window_set::of_several(sizes(), self.most_windows)?;
        let count = u64::from(count).min(enough.checked_div(part)?);
        if count.checked_mul(part)? <= sizes().next()? {
            return None;
        }
        first_of(windows, count as u32, part)
    }

    /// The fewest of these, at least two, that have together room for `needed` bytes.
    fn fewest(&self, windows: &[Window], needed: u64) -> Option<Several> {
        let sizes = windows.iter().map(|(_, align)| align.max_size);
        let mut counted = (1..=self.most_windows).zip(sizes).skip(1);
        counted.find_map(|(count, size)| {
            let part = 1u64.checked_shl(size.checked_ilog2()?)?;
            if u64::from(count).saturating_mul(part) < needed {
                return None;
            }
            first_of(windows, count, part)
        })
    }
}
