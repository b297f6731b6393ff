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

use super::{
    Policy,
    Wanted, //
};
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
        pool::Pool,
        reached, //
    },
};
use kernel::{
    device::Device,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
};

/// Less than this is of no use: a control block and a few rings.
pub(super) const SMALLEST: u64 = 64 << 10;

/// The largest pool: more is hardly faster, and is gone for all else.
const LARGEST_POOL: u64 = 4 << 20;

/// The largest multiple at which a pool may have to begin: so much has to be free in one piece.
pub(super) const LARGEST_ALIGN: u64 = 256 << 20;

/// What an aperture leads to, and so how the peer gets to our memory.
#[derive(Clone)]
pub(super) enum Behind {
    /// All memory, by physical addresses: nothing has to be mapped before it is reached.
    Physical,
    /// All memory, by addresses of this device, for which it is mapped.
    Device(ARef<Device>),
    /// What has a place in this.
    Arena(Arc<Arena>),
    /// Nothing but what lies in this.
    Pool(Arc<Pool>),
}

impl Behind {
    /// Nobody gets to what lies in it any more, and the driver of the device may go. May sleep.
    pub(super) fn close(&self) {
        match self {
            Self::Physical | Self::Device(_) => (),
            Self::Arena(arena) => arena.close(),
            Self::Pool(pool) => pool.close(),
        }
    }

    /// Whether the peer gets to what is given to it only; so what was taken back is out of its reach.
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
    /// Chooses a memory window, and what it leads to. May sleep.
    ///
    /// `kept` is what was behind one of an earlier choice, which is taken again: the peer of an earlier
    /// session may still have memory in it.
    pub(super) fn choose(
        device: &NtbDevice,
        policy: Policy,
        kept: Option<&Behind>,
    ) -> Result<Self, Unsuitable> {
        let dma_device = device.dma_device();
        let is_translated = dma_map::has_iommu(&dma_device);
        let choice = Choice {
            device,
            dma_device,
            most_windows: policy.most_windows,
            kept,
        };
        match policy.wanted {
            Wanted::Auto => choice.best(is_translated, policy.allow_flat),
            Wanted::Arena if is_translated => choice.arena("aperture=arena"),
            Wanted::Arena => Err(Unsuitable::NoIommu),
            Wanted::Bounce => choice.pool("aperture=bounce"),
            Wanted::Flat if !policy.allow_flat => Err(Unsuitable::FlatNotAllowed),
            Wanted::Flat => choice.flat("aperture=flat"),
        }
    }

    /// Of these windows, with all of what is behind them, or the first bytes of memory.
    fn over(windows: WindowSet, whole: u64, behind: Behind, reason: &'static str) -> Self {
        let (base, len) = match &behind {
            Behind::Physical | Behind::Device(_) => (0, whole),
            Behind::Arena(arena) => (arena.base(), arena.size()),
            Behind::Pool(pool) => (pool.address(), pool.size()),
        };
        Self {
            windows,
            base,
            len,
            whole,
            behind,
            reason,
        }
    }

    /// How it leads to memory.
    pub(super) fn mode(&self) -> Mode {
        match self.behind {
            Behind::Physical | Behind::Device(_) => Mode::Flat,
            Behind::Arena(_) => Mode::Arena,
            Behind::Pool(_) => Mode::Bounce,
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
        if opened.is_ok() || self.behind.keeps_out() || self.windows.count() > 1 {
            return opened;
        }
        // Some hardware takes nothing but the whole window.
        self.len = self.whole;
        self.open_all(device)
    }

    fn open_all(&self, device: &NtbDevice) -> Result {
        let parts = self.windows.parts(self.base, self.len).ok_or(EINVAL)?;
        for (window, base, len) in parts {
            let opened = device.set_translation(window, base, len);
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

/// Several windows that are used together.
struct Several {
    set: WindowSet,
    /// What lies behind them; it begins at a multiple of the length of a part.
    shape: Shape,
}

impl Several {
    /// The first ones of these, each with so many bytes; none if one can't lead to each such part.
    fn first_of(windows: &[Window], count: u32, part: u64) -> Option<Self> {
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
        Some(Self {
            set,
            shape: Shape { len, seams },
        })
    }
}

/// What an aperture is chosen from.
struct Choice<'a> {
    device: &'a NtbDevice,
    dma_device: ARef<Device>,
    most_windows: u32,
    kept: Option<&'a Behind>,
}

impl Choice<'_> {
    /// What is best of what can be.
    fn best(&self, is_translated: bool, allow_flat: bool) -> Result<Aperture, Unsuitable> {
        if is_translated {
            return match self.arena("an IOMMU translates for the bridge") {
                Err(Unsuitable::NoArena { .. }) => {
                    self.pool("the IOMMU has no range of addresses as large as a memory window")
                }
                chosen => chosen,
            };
        }
        if !allow_flat {
            return self.pool("no IOMMU translates for the bridge, and allow_flat is not set");
        }
        match self.flat("no IOMMU translates for the bridge, and allow_flat is set") {
            Err(Unsuitable::TooSmall { .. }) => {
                self.pool("no memory windows cover the memory of this machine")
            }
            chosen => chosen,
        }
    }

    /// With an arena as large as all windows together, or as the largest, or as can be.
    fn arena(&self, reason: &'static str) -> Result<Aperture, Unsuitable> {
        if let Some(Several { set, shape }) =
            self.several(&|align| align.max_size >= SMALLEST, u64::MAX)?
        {
            let part = shape.longest();
            let arena = match self.kept {
                Some(Behind::Arena(arena)) if arena.shape() == shape => Some(arena.clone()),
                _ => self.new_arena(shape, part)?,
            };
            if let Some(arena) = arena {
                return Ok(Aperture::over(set, part, Behind::Arena(arena), reason));
            }
        }
        let windows = self.by_size(&|_| true)?;
        let none = Unsuitable::NoArena { largest: 0 };
        let (window, align) = windows.first().ok_or(none)?;
        let whole = align.max_size;
        let arena = match self.kept {
            Some(Behind::Arena(arena)) if arena.shape().fits_in_one(whole) => arena.clone(),
            _ => self.largest_arena(align)?,
        };
        let set = WindowSet::of([*window]).ok_or(EINVAL)?;
        Ok(Aperture::over(set, whole, Behind::Arena(arena), reason))
    }

    /// One as large as the window; if the device has no such range, half of that, and so on.
    fn largest_arena(&self, align: &WindowAlignment) -> Result<Arc<Arena>, Unsuitable> {
        for size in halves(align, align.max_size) {
            if let Some(arena) = self.new_arena(Shape::in_one(size), align.address)? {
                return Ok(arena);
            }
        }
        Err(Unsuitable::NoArena {
            largest: align.max_size,
        })
    }

    /// One of this shape at a multiple of `align`; none if the device has no such range.
    fn new_arena(&self, shape: Shape, align: u64) -> Result<Option<Arc<Arena>>> {
        let len = usize::try_from(shape.len)?;
        match Arena::new(&self.dma_device, len, shape.seams) {
            Ok(arena) if arena.base() % align.max(1) == 0 => Ok(Some(arena)),
            Ok(_) | Err(EOPNOTSUPP) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The windows that can lead to the largest pool, and do.
    fn pool(&self, reason: &'static str) -> Result<Aperture, Unsuitable> {
        if let Some(aperture) = self.pool_in_parts(reason)? {
            return Ok(aperture);
        }
        let can_be = |align: &WindowAlignment| {
            align.address <= LARGEST_ALIGN
                && align.size <= LARGEST_POOL
                && align.max_size >= SMALLEST
        };
        for (window, align) in self.by_size(&can_be)? {
            let whole = align.max_size;
            let pool = match self.kept {
                Some(Behind::Pool(pool)) if pool.shape().fits_in_one(whole) => pool.clone(),
                _ => self.largest_pool(&align)?,
            };
            let set = WindowSet::of([window]).ok_or(EINVAL)?;
            let aperture = Aperture::over(set, whole, Behind::Pool(pool), reason);
            if aperture.opens(self.device) {
                return Ok(aperture);
            }
        }
        let windows = self.by_size(&|_| true)?;
        let largest = windows.first().map(|(_, align)| align);
        Err(Unsuitable::NoPool {
            largest: largest.map_or(0, |align| align.max_size),
            address: largest.map_or(0, |align| align.address),
        })
    }

    /// Several windows that lead to a pool together, if they do.
    fn pool_in_parts(&self, reason: &'static str) -> Result<Option<Aperture>> {
        let can_be =
            |align: &WindowAlignment| align.address <= LARGEST_ALIGN && align.max_size >= SMALLEST;
        let Some(Several { set, shape }) = self.several(&can_be, LARGEST_POOL)? else {
            return Ok(None);
        };
        let part = shape.longest();
        let pool = match self.kept {
            Some(Behind::Pool(pool)) if pool.shape() == shape => Some(pool.clone()),
            _ => self.new_pool(shape, part)?,
        };
        let aperture = pool.map(|pool| Aperture::over(set, part, Behind::Pool(pool), reason));
        Ok(aperture.filter(|aperture| aperture.opens(self.device)))
    }

    /// One as large as the window, or as can be; smaller, if there is no such piece of memory.
    fn largest_pool(&self, align: &WindowAlignment) -> Result<Arc<Pool>, Unsuitable> {
        let largest = align.max_size.min(LARGEST_POOL).checked_ilog2();
        let largest = 1u64 << largest.unwrap_or(0);
        for size in halves(align, largest) {
            if let Some(pool) = self.new_pool(Shape::in_one(size), align.address)? {
                return Ok(pool);
            }
        }
        Err(Unsuitable::NoPool {
            largest: align.max_size,
            address: align.address,
        })
    }

    /// One of this shape at a multiple of `align`; none if there is no such piece of memory.
    fn new_pool(&self, shape: Shape, align: u64) -> Result<Option<Arc<Pool>>> {
        let align = align.max(1);
        let phys_align = usize::try_from(align.checked_next_power_of_two().ok_or(EINVAL)?)?;
        let (len, phys_align) = (usize::try_from(shape.len)?, phys_align.max(PAGE_SIZE));
        match Pool::new(&self.dma_device, len, phys_align, shape.seams) {
            Ok(pool) if pool.address() % align == 0 => Ok(Some(pool)),
            Ok(_) | Err(ENOMEM) => Ok(None),
            Err(error) => Err(error),
        }
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
        if let Some((window, align)) = covering.min_by_key(|(window, _)| *window) {
            let set = WindowSet::of([*window]).ok_or(EINVAL)?;
            // Some drivers round down what is none, without a word.
            let len = needed.checked_next_power_of_two().unwrap_or(needed);
            return Ok(Aperture {
                len: len.min(align.max_size),
                ..Aperture::over(set, align.max_size, behind, reason)
            });
        }
        // What is in one piece for this machine is so for the bus then, and begins at a multiple of its size.
        let several = is_physical.then(|| self.fewest(&windows, needed));
        if let Some(Several { set, shape }) = several.flatten() {
            return Ok(Aperture {
                len: shape.len,
                ..Aperture::over(set, shape.longest(), behind, reason)
            });
        }
        let largest = windows.first().map_or(0, |(_, align)| align.max_size);
        Err(Unsuitable::TooSmall { needed, largest })
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

    /// Of those that are `suited`, several that have more room together than one of them, but not more than
    /// `enough`.
    fn several(
        &self,
        suited: &dyn Fn(&WindowAlignment) -> bool,
        enough: u64,
    ) -> Result<Option<Several>> {
        let windows = self.by_size(suited)?;
        let sizes = || windows.iter().map(|(_, align)| align.max_size);
        let one = sizes().next().unwrap_or(0);
        let best = window_set::of_several(sizes(), self.most_windows);
        Ok(best.and_then(|(count, part)| {
            let count = u64::from(count).min(enough.checked_div(part)?);
            if count.checked_mul(part)? <= one {
                return None;
            }
            Several::first_of(&windows, count as u32, part)
        }))
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
            Several::first_of(windows, count, part)
        })
    }
}

/// A size, half of it, and so on, as long as a window can lead to that and it is of use.
fn halves(align: &WindowAlignment, size: u64) -> impl Iterator<Item = u64> {
    let least = SMALLEST.max(align.size);
    core::iter::successors(Some(size), |size| Some(size / 2)).take_while(move |size| *size >= least)
}
