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
};
use kernel::{
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*, //
};

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
        let covered = windows.cover_for_long(range, 0);
        // If the connection has ended meanwhile, which takes windows away, that is said.
        let mut pieces = covered.map_err(|error| channel.end_or(error))?;
        let piece = pieces.pop().ok_or(ENXIO)?;
        if !pieces.is_empty() {
            return Err(ENXIO);
        }
        if !piece.window.is_reached() {
            return Err(EOPNOTSUPP);
        }
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
