// SPDX-License-Identifier: GPL-2.0

//! The memory windows that a device has, and which of them an aperture is made of.
//!
//! What is said here is what a device demands. That it takes it shows when a window is opened.

use super::context::PEER;
use crate::{
    logic::window_set::{
        self,
        Shape,
        WindowSet,
        MOST_WINDOWS, //
    },
    sys::ntb::{
        NtbDevice,
        WindowAlignment, //
    },
};
use kernel::prelude::*;

/// A window and what it demands.
pub(super) type Window = (u32, WindowAlignment);

/// Several windows that are used together.
pub(super) struct Several {
    pub(super) set: WindowSet,
    /// What lies behind them; it begins at a multiple of the length of a part.
    pub(super) shape: Shape,
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

/// What a window demands; none if it can't be used. ENOTCONN while the link is down.
pub(super) fn usable(device: &NtbDevice, window: u32) -> Result<Option<WindowAlignment>> {
    match device.mw_align(PEER, window) {
        Err(ENOTCONN) => Err(ENOTCONN),
        align => Ok(align.ok()),
    }
}

/// How many of them can be told of.
pub(super) fn count(device: &NtbDevice) -> Result<u32> {
    Ok(device.mw_count(PEER)?.min(MOST_WINDOWS))
}

/// Of those that are `suited`, the one with the most room.
pub(super) fn largest(
    device: &NtbDevice,
    suited: impl Fn(&WindowAlignment) -> bool,
) -> Result<Option<Window>> {
    Ok(by_size(device, suited)?.first().copied())
}

/// Those that are `suited`, the largest first.
fn by_size(device: &NtbDevice, suited: impl Fn(&WindowAlignment) -> bool) -> Result<KVec<Window>> {
    let mut windows: KVec<Window> = KVec::new();
    for window in 0..count(device)? {
        if let Some(align) = usable(device, window)?.filter(&suited) {
            windows.push((window, align), GFP_KERNEL)?;
        }
    }
    windows.sort_unstable_by_key(|(window, align)| (u64::MAX - align.max_size, *window));
    Ok(windows)
}

/// Of those that are `suited`, several, `limit` at most, that have more room together than one of them, but not more than
/// `enough`.
pub(super) fn several(
    device: &NtbDevice,
    suited: impl Fn(&WindowAlignment) -> bool,
    limit: u32,
    enough: u64,
) -> Result<Option<Several>> {
    let windows = by_size(device, suited)?;
    let sizes = || windows.iter().map(|(_, align)| align.max_size);
    let one = sizes().next().unwrap_or(0);
    Ok(
        window_set::of_several(sizes(), limit).and_then(|(count, part)| {
            let needed = enough.checked_div(part)?;
            let count = u64::from(count).min(needed);
            match count.checked_mul(part)? > one {
                true => Several::first_of(&windows, count as u32, part),
                false => None,
            }
        }),
    )
}

/// The fewest, at least two and `limit` at most, that have together room for `needed` bytes.
pub(super) fn fewest(device: &NtbDevice, needed: u64, limit: u32) -> Result<Option<Several>> {
    let windows = by_size(device, |_| true)?;
    let sizes = windows.iter().map(|(_, align)| align.max_size);
    let mut counted = (1..=limit).zip(sizes).skip(1);
    Ok(counted.find_map(|(count, size)| {
        let part = 1u64.checked_shl(size.checked_ilog2()?)?;
        match u64::from(count).saturating_mul(part) >= needed {
            true => Several::first_of(&windows, count, part),
            false => None,
        }
    }))
}
