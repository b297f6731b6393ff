// SPDX-License-Identifier: GPL-2.0

//! The aperture: the part of this node's memory that the peer reaches, and the memory windows that
//! lead to it.
//!
//! An aperture uses one memory window of the device. If one window is too small or unsuited, the
//! aperture uses several, each for a part of it (`logic/window_set.rs`). The memory behind it
//! depends on the mode:
//!
//! - *arena*: a range of I/O addresses, as large as the window, that contains the memory which the
//!   peer may use, and nothing else;
//! - *bounce*: reserved memory that contains what both sides write to each other, and bounce
//!   buffers for data that is meant for other memory;
//! - *flat*: all memory of this machine, from bus address 0 on. The administrator has to have said
//!   that the peer is trusted.
//!
//! Only this file knows which sizes and alignments a device demands of windows.

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
        shared_memory::MemoryUser, //
    },
};
use kernel::{
    device::Device,
    page::PAGE_SIZE,
    prelude::*,
    sync::aref::ARef, //
};

/// Size of the smallest useful aperture: a control block and a few rings.
pub(super) const SMALLEST: u64 = 64 << 10;

/// Size of the largest pool. A larger one is hardly faster, and its memory is lost for other uses.
const LARGEST_POOL: u64 = 4 << 20;

/// Largest alignment that a pool may need. So much memory has to be free in one piece.
pub(super) const LARGEST_ALIGN: u64 = 256 << 20;

/// Returns the largest size of an arena or a pool.
const fn most_of(mode: Mode) -> u64 {
    match mode {
        Mode::Bounce => LARGEST_POOL,
        _ => u64::MAX,
    }
}

/// The memory behind an aperture. It is all memory, by physical addresses or mapped for a device,
/// or memory that has a place in an arena, or memory in a pool.
pub(super) type ApertureBacking = MemoryUser;

impl ApertureBacking {
    /// Ends all access through the arena or pool. Afterwards the driver of the device may be
    /// unbound.
    /// Context: may sleep.
    pub(super) fn close(&self) {
        match self {
            Self::Physical | Self::Device(_) => (),
            Self::Arena(arena) => arena.close(),
            Self::Pool(pool) => pool.close(),
        }
    }

    /// Returns the mode of an aperture over this memory.
    pub(super) fn mode(&self) -> Mode {
        match self {
            Self::Physical | Self::Device(_) => Mode::Flat,
            Self::Arena(_) => Mode::Arena,
            Self::Pool(_) => Mode::Bounce,
        }
    }

    /// Returns the places of the arena or pool, by the addresses that the peer uses, or `None` in
    /// flat mode.
    pub(super) fn places(&self) -> Option<&Places> {
        match self {
            Self::Physical | Self::Device(_) => None,
            Self::Arena(arena) => Some(&arena.places),
            Self::Pool(pool) => Some(&pool.places),
        }
    }

    /// Returns whether the peer reaches only memory that it was given. Memory that was taken back
    /// is then out of its reach.
    pub(super) fn keeps_out(&self) -> bool {
        self.mode() != Mode::Flat
    }
}

/// An aperture over this node's memory, as offered to the peer.
#[derive(Clone)]
pub(super) struct Aperture {
    pub(super) windows: WindowSet,
    pub(super) base: u64,
    pub(super) len: u64,
    /// Length to use if the device accepts only translations of whole memory windows.
    whole: u64,
    pub(super) behind: ApertureBacking,
    /// Reason for the mode, shown to users.
    pub(super) reason: &'static str,
}

/// Reason why a device has no aperture to offer. `reports.rs` translates it into words.
pub(super) enum Unsuitable {
    /// The administrator has not said that the peer is trusted.
    FlatNotAllowed,
    /// No IOMMU translates for the device.
    NoIommu,
    /// No memory window of the device is suited for an arena.
    NoArena { largest: u64 },
    /// The memory windows do not cover this node's memory.
    TooSmall { needed: u64, largest: u64 },
    /// No memory window of the device is suited for a pool.
    NoPool { largest: u64, address: u64 },
    /// The device driver returned an error.
    Device(Error),
}

impl From<Error> for Unsuitable {
    fn from(error: Error) -> Self {
        Self::Device(error)
    }
}

impl Aperture {
    /// Chooses the memory windows, and the memory behind them. An arena or a pool is chosen only
    /// once: the peer of an earlier session may still have memory in it.
    /// Context: may sleep.
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

    /// Returns whether the device accepts the aperture's addresses. Some windows can lead to one
    /// fixed place only, and their driver does not say so.
    ///
    /// Only for a pool: it is opened for a moment, which is harmless as the pool holds nothing yet.
    fn opens(&self, device: &NtbDevice) -> bool {
        let opened = self.clone().open(device).is_ok();
        if opened {
            self.close(device);
        }
        opened
    }

    /// Lets the peer in. The caller has seen a fresh nonce of the peer, so the peer has released
    /// all memory that it was told of in an earlier session.
    ///
    /// If the peer sets the translation itself, this function and [`Self::close`] do nothing.
    /// Context: may sleep.
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

    /// Keeps the peer out, if the hardware can: from then on not even a slow peer writes to this
    /// node's memory. Returns whether the peer is out.
    /// Context: may sleep.
    pub(super) fn close(&self, device: &NtbDevice) -> bool {
        if !device.translates_inbound() {
            return false;
        }
        let windows = self.windows.windows();
        let still_open = windows.filter(|window| device.clear_translation(*window).is_err());
        // `count` runs through all windows, so each is cleared.
        still_open.count() == 0
    }
}

/// A memory window of the device, and the alignment that it demands.
type Window = (u32, WindowAlignment);

/// Several windows used together, and the shape of the memory behind them. The memory begins at a
/// multiple of the length of one part.
type Several = (WindowSet, Shape);

/// Returns the first `count` of these windows with `part` bytes each, or `None` if one of them
/// can't lead to such a part.
fn first_of(windows: &[Window], count: u32, part: u64) -> Option<Several> {
    let these = windows.get(..count as usize)?;
    // Each part has to be a multiple of the window's alignments.
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

/// The inputs of the choice of an aperture.
struct Choice<'a> {
    device: &'a NtbDevice,
    dma_device: ARef<Device>,
    most_windows: u32,
}

impl Choice<'_> {
    /// Returns the best aperture that is possible.
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

    /// Returns an aperture over an arena or a pool. It is as large as several windows together,
    /// else as the largest window, else as large as possible.
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

    /// Returns an aperture over an arena or a pool as large as the window. If there is no such
    /// range or piece of memory, tries half of the size, and so on. Stops where the window can't
    /// lead to so little, or so little is of no use.
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

    /// Returns an aperture over an arena or a pool of this shape at a multiple of `align`. Returns
    /// `None` if the device has no such range, or there is no such piece of memory.
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
                arena => ApertureBacking::Arena(arena?),
            }
        } else {
            let phys_align = usize::try_from(align.checked_next_power_of_two().ok_or(EINVAL)?)?;
            match Pool::new(&self.dma_device, shape, phys_align.max(PAGE_SIZE)) {
                Err(ENOMEM) => return Ok(None),
                pool => ApertureBacking::Pool(pool?),
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

    /// Returns a flat aperture: the first window that can lead to all memory, or else the fewest
    /// windows that can together.
    fn flat(&self, reason: &'static str) -> Result<Aperture, Unsuitable> {
        let needed = reached::end_of_memory();
        let is_physical = dma_map::bus_is_physical(&self.dma_device);
        let behind = if is_physical {
            ApertureBacking::Physical
        } else {
            ApertureBacking::Device(self.dma_device.clone())
        };
        let windows = self.by_size(&|_| true)?;
        let covering = windows.iter().filter(|(_, align)| align.max_size >= needed);
        let chosen = if let Some((window, align)) = covering.min_by_key(|(window, _)| *window) {
            let set = WindowSet::of([*window]).ok_or(EINVAL)?;
            // Some drivers silently round down a size that is not a power of two.
            let len = needed.checked_next_power_of_two().unwrap_or(needed);
            Some((set, len.min(align.max_size), align.max_size))
        } else if is_physical {
            // Physical and bus addresses are the same here. So memory that is contiguous for this
            // machine is contiguous on the bus, and begins at a multiple of its size.
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

    /// Returns the windows for which `suited` is true, the largest first.
    ///
    /// Returns ENOTCONN while the link is down.
    fn by_size(&self, suited: &dyn Fn(&WindowAlignment) -> bool) -> Result<KVec<Window>> {
        let mut windows: KVec<Window> = KVec::new();
        for window in 0..self.device.mw_count()?.min(MOST_WINDOWS) {
            let align = match self.device.mw_align(window) {
                Ok(align) if suited(&align) => align,
                Err(ENOTCONN) => return Err(ENOTCONN),
                // This window can't be used.
                Ok(_) | Err(_) => continue,
            };
            let is_smaller = |(_, other): &Window| other.max_size < align.max_size;
            let place = windows.iter().position(is_smaller).unwrap_or(windows.len());
            windows.reserve(1, GFP_KERNEL)?;
            // Does not fail: room was reserved above.
            let _ = windows.insert_within_capacity(place, (window, align));
        }
        Ok(windows)
    }

    /// Returns several of these windows that together have more room than the largest one, but not
    /// more than `enough`.
    fn several(&self, windows: &[Window], enough: u64) -> Option<Several> {
        let sizes = || windows.iter().map(|(_, align)| align.max_size);
        let (count, part) = window_set::of_several(sizes(), self.most_windows)?;
        let count = u64::from(count).min(enough.checked_div(part)?);
        if count.checked_mul(part)? <= sizes().next()? {
            return None;
        }
        first_of(windows, count as u32, part)
    }

    /// Returns the fewest of these windows, at least two, that together have room for `needed`
    /// bytes.
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
