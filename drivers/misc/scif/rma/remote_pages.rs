// SPDX-License-Identifier: GPL-2.0

//! Pages of the peer as this node's devices, and its processor, may reach them.
//!
//! For who has a device of its own that is to read or write a peer's memory: a network card, a disk.
//! The pages belong to one window, which lives until this is dropped, also when it is unregistered,
//! or either end of the channel is closed meanwhile.
//!
//! A peer that is lost takes its pages away: from then on the addresses lead nowhere, or, if it comes
//! back, to memory of it that is not meant. Nobody can be kept from using an address, so whoever has
//! this has to hear of the loss (`kernel_api/peer_bus.rs`) and stop.

use crate::{
    arguments::{
        PROTECTION_READ,
        PROTECTION_WRITE, //
    },
    logic::{
        address_space::Range,
        plan::Walk, //
    },
    memory::{
        remote_window::RemotePiece,
        remote_windows::RemoteWindows, //
    },
    peer::channel::Channel,
    sys::reached::bus_address, //
};
use kernel::{
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*, //
};

/// The one piece that a range of the peer's windows is, and that this node reaches by itself: ENXIO if there
/// is none, EOPNOTSUPP if it does not. The caller is inside the peer.
fn reached_piece(channel: &Channel, windows: &RemoteWindows, range: Range) -> Result<RemotePiece> {
    let covered = windows.cover_for_long(range, 0);
    // If the connection has ended meanwhile, which takes windows away, that is said.
    let mut pieces = covered.map_err(|error| channel.end_or(error))?;
    let piece = pieces.pop().ok_or(ENXIO)?;
    if !pieces.is_empty() {
        return Err(ENXIO);
    }
    match piece.window.is_reached() {
        true => Ok(piece),
        false => Err(EOPNOTSUPP),
    }
}

/// Where another device of this node finds the first byte of a range of the peer's windows, and how many bytes
/// of it lie there in one piece. Errors as those of [`RemotePages::new`]. May sleep.
pub(crate) fn address_for_devices(
    channel: &Channel,
    windows: &RemoteWindows,
    range: Range,
) -> Result<(u64, u64)> {
    channel.check_established()?;
    let _inside = channel.enter().ok_or(ENODEV)?;
    let piece = reached_piece(channel, windows, range)?;
    // The pages around it, which are all of the window.
    let before = piece.offset % PAGE_SIZE as u64;
    let mut walk = piece.window.extents.walk(piece.offset - before);
    let mut left = (before + piece.len).next_multiple_of(PAGE_SIZE as u64);
    let mut found: Option<(u64, u64)> = None;
    while left > 0 {
        let (address, len) = walk.next(left).ok_or(ENXIO)?;
        let start = channel.path().reach(address, len)?.page_frame()? << PAGE_SHIFT;
        match &mut found {
            None => found = Some((start, len)),
            Some((first, count)) if start.checked_sub(*first) == Some(*count) => *count += len,
            Some(_) => break,
        }
        left -= len;
    }
    let (start, count) = found.ok_or(ENXIO)?;
    let contiguous = (count - before).min(piece.len);
    Ok((bus_address(start).wrapping_add(before), contiguous))
}

/// See the head of this file.
pub(crate) struct RemotePages {
    /// Keeps the window.
    piece: RemotePiece,
    physical: KVVec<u64>,
    mapped: KVVec<usize>,
}

impl RemotePages {
    /// The pages of a range that lies in one window: ENXIO if there is none,
    /// EOPNOTSUPP if this node does not reach it by itself, EACCES if it is for transfers only. May sleep.
    pub(crate) fn new(channel: &Channel, windows: &RemoteWindows, range: Range) -> Result<Self> {
        channel.check_established()?;
        let _inside = channel.enter().ok_or(ENODEV)?;
        let piece = reached_piece(channel, windows, range)?;
        let count = (piece.len >> PAGE_SHIFT) as usize;
        let mut physical = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        let mut mapped = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        let mut walk = piece.window.extents.walk(piece.offset);
        for _ in 0..count {
            let (address, len) = walk.next(PAGE_SIZE as u64).ok_or(ENXIO)?;
            let reached = channel.path().reach(address, len)?;
            let _ = physical.push_within_capacity(reached.page_frame()? << PAGE_SHIFT);
            let _ = mapped.push_within_capacity(reached.kernel_address()?);
        }
        Ok(Self {
            piece,
            physical,
            mapped,
        })
    }

    /// Takes out the physical address of each page, as this node's processor sees it, and where the
    /// kernel has each of them mapped, as device memory.
    pub(crate) fn take_addresses(&mut self) -> (KVVec<u64>, KVVec<usize>) {
        (
            core::mem::replace(&mut self.physical, KVVec::new()),
            core::mem::replace(&mut self.mapped, KVVec::new()),
        )
    }

    /// What the window allows.
    pub(crate) fn protection(&self) -> u32 {
        self.piece.window.protection & (PROTECTION_READ | PROTECTION_WRITE)
    }
}
