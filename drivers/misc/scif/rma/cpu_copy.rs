// SPDX-License-Identifier: GPL-2.0

//! A transfer by CPU: over when the call returns.
//!
//! A small copy by CPU that lies in one window of the peer, and in one window of ours or in memory of
//! the caller: over when the call returns, with next to nothing around it.
//!
//! It is made under the locks of both tables of windows, the peer's first: a window that is to go waits
//! for the lock, so none is counted as in use. It has no number (0 for who traces), because a fence has
//! nothing to wait for, and nothing of it is allocated.
//!
//! Only for what goes well: whatever is not so simple, or wrong, is left to the general way, which knows
//! what to say of it (`transfers.rs`). So a copy that was made in part may be made again.

use super::{
    marks::Marks,
    operation::{
        Sides,
        Stretch, //
    }, //
};
use crate::{
    arguments::{
        Direction,
        LocalSide,
        TransferOptions, //
    },
    logic::{
        address_space::Range,
        plan::Walk, //
    },
    memory::{
        remote_window::RemoteWindow,
        remote_windows::RemoteWindows,
        windows::Windows, //
    },
    peer::{
        channel::Channel,
        Peer, //
    },
    sys::{
        current,
        reached::{
            flush_writes,
            Reached, //
        },
        trace, //
    }, //
};
use kernel::prelude::*;

/// A copy looks at the state of the peer and at signals each time it has moved this much.
const STEP: u64 = 256 * 1024;

/// Copies all of the transfer, the two parts one after the other. The caller is inside the peer.
/// ENODEV if the peer is lost meanwhile, EINTR if the caller is being killed.
pub(super) fn copy(
    peer: &Peer,
    direction: Direction,
    sides: &Sides,
    (body, tail): (u64, u64),
) -> Result {
    for (skip, len) in [(0, body), (body, tail)] {
        sides.for_each_stretch(skip, len, |stretch| copy_stretch(peer, direction, &stretch))?;
        // The tail comes after the body, and what follows the call after both.
        flush_writes();
    }
    Ok(())
}

fn copy_stretch(peer: &Peer, direction: Direction, stretch: &Stretch<'_>) -> Result {
    let pages = &stretch.local.memory().pages;
    let mut walk = stretch.remote.window.extents.walk(stretch.remote_offset);
    let mut offset = stretch.local_offset;
    let end = offset + stretch.len;
    while offset < end {
        let (address, len) = walk.next((end - offset).min(STEP)).ok_or(ENXIO)?;
        if peer.is_over() {
            return Err(ENODEV);
        }
        let remote = peer.path().reach(address, len)?;
        match direction {
            Direction::Write => remote.copy_from(pages, offset as usize)?,
            Direction::Read => remote.copy_to(pages, offset as usize)?,
        }
        offset += len;
        if current::is_being_killed() {
            return Err(EINTR);
        }
        current::reschedule();
    }
    Ok(())
}

/// What is written at most: more would keep others from the tables of windows for long.
const LARGEST: u64 = 64 << 10;

/// What is read at most: the processor waits for each load.
const LARGEST_READ: u64 = 4 << 10;

/// See the head of this file.
pub(super) struct AtOnce<'a> {
    pub(super) channel: &'a Channel,
    pub(super) windows: &'a Windows,
    pub(super) remote_windows: &'a RemoteWindows,
    pub(super) marks: &'a Marks,
    pub(super) direction: Direction,
    pub(super) local: &'a LocalSide,
    pub(super) remote: Range,
    pub(super) options: TransferOptions,
}

impl AtOnce<'_> {
    /// Copies, if it is as simple as that: none if not all was copied. May sleep.
    pub(super) fn copy(&self) -> Option<()> {
        let largest = match self.direction {
            Direction::Read => LARGEST_READ,
            Direction::Write => LARGEST,
        };
        if self.remote.len() > largest || self.options.ordered {
            return None;
        }
        // Refused once the other end is closed or lost, and this one has been closed. Dropped after the locks: the end of the last
        // use may have to be told.
        let _use = self.channel.begin_use().ok()?;
        if self.channel.peer().has_failed() {
            return None;
        }
        let (local_need, remote_need) = self.direction.needs();
        self.remote_windows
            .with(self.remote, remote_need, |window, offset| {
                match self.local {
                    LocalSide::Windows(start) => {
                        let range = Range::new(*start, self.remote.len()).ok()?;
                        self.windows.with(range, local_need, |memory, start| {
                            let pages = &memory.pages;
                            self.traced(|| {
                                self.for_each_piece(window, offset, |place, at, _| {
                                    match self.direction {
                                        Direction::Write => place.copy_from(pages, start + at).ok(),
                                        Direction::Read => place.copy_to(pages, start + at).ok(),
                                    }
                                })
                            })
                        })?
                    }
                    // Who wants memory to be kept gets that, and a read has to be sure of all of it.
                    LocalSide::Memory(memory) if self.stores_directly() => self.traced(|| {
                        self.for_each_piece(window, offset, |place, at, len| {
                            let all = place.write_from(0, memory, at, len).ok()?;
                            all.then_some(())
                        })
                    }),
                    LocalSide::Memory(_) => None,
                }
            })??;
        self.marks.count(self.direction, self.remote.len());
        Some(())
    }

    fn stores_directly(&self) -> bool {
        self.direction == Direction::Write && !self.options.use_cache
    }

    /// Calls `f` with each contiguous piece of the window, from `offset` on, where it begins in the copy,
    /// and its length, until there is an end of it.
    fn for_each_piece(
        &self,
        window: &RemoteWindow,
        offset: u64,
        mut f: impl FnMut(&Reached<'_>, usize, usize) -> Option<()>,
    ) -> Option<()> {
        let mut walk = window.extents.walk(offset);
        let mut rest = self.remote.len();
        while rest > 0 {
            let (address, len) = walk.next(rest)?;
            let place = self.channel.path().reach(address, len).ok()?;
            f(&place, (self.remote.len() - rest) as usize, len as usize)?;
            rest -= len;
        }
        Some(())
    }

    fn traced(&self, copy: impl FnOnce() -> Option<()>) -> Option<()> {
        trace::rma_submit(|| trace::Transfer {
            node: self.channel.node(),
            channel: self.channel.id.0,
            number: 0,
            write: self.direction == Direction::Write,
            engine: false,
            local: self.local.offset().unwrap_or(-1),
            remote: self.remote.offset(),
            len: self.remote.len(),
            flags: self.options.flags() as u32,
        });
        let copied = copy();
        // What follows the call comes after it.
        flush_writes();
        trace::rma_complete(|| trace::TransferEnd {
            node: self.channel.node(),
            channel: self.channel.id.0,
            number: 0,
            write: self.direction == Direction::Write,
            len: self.remote.len(),
            result: trace::errno(&copied.ok_or(EAGAIN)),
        });
        copied
    }
}
