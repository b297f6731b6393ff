// SPDX-License-Identifier: GPL-2.0

//! Copies by the processor: over when the call returns.
//!
//! A small copy that lies in one window of the peer, and in one window of ours or in memory of the caller, has next to
//! nothing around it ([`Transfers::copy_at_once`]). It has no number (0 for who traces), because a fence has nothing to
//! wait for, and nothing of it is allocated.
//!
//! That is only for what goes well: whatever is not so simple, or wrong, is left to the general way, which knows
//! what to say of it (`transfers.rs`). So a copy that was made in part may be made again.

use super::{
    operation::{
        Caller,
        Operation,
        Stretch, //
    },
    transfers::{
        Request,
        Transfers, //
    }, //
};
use crate::{
    arguments::{
        Direction,
        LocalSide, //
    },
    logic::{
        address_space::Range,
        stores::Stores, //
    },
    memory::remote_window::RemoteWindow,
    sys::{
        current,
        pages::Pages,
        reached::{
            flush_writes,
            Reached, //
        }, //
    },
    transport::path::Path, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A copy looks at the state of the peer and at signals each time it has moved this much.
const STEP: u64 = 256 * 1024;

/// What is written at once at most: more looks at signals meanwhile.
const LARGEST: u64 = 64 << 10;

/// What is read at once at most: the processor waits for each load.
const LARGEST_READ: u64 = 4 << 10;

/// Copies all of an operation, one part after the other, and ends it. The caller is inside the peer, and hears of the
/// error: ENODEV if the peer is lost meanwhile, EINTR if the caller is being killed.
pub(super) fn copy(operation: &Arc<Operation>, caller: Caller) -> Result {
    let copied = operation.parts().into_iter().try_for_each(|(skip, len)| {
        operation
            .sides
            .for_each_stretch(skip, len, |stretch| copy_stretch(operation, &stretch))?;
        // The tail comes after the body.
        flush_writes();
        Ok(())
    });
    let stores = operation.surroundings.peer.path().stores();
    finish(stores.map(|stores| &**stores), operation.direction);
    copied.map_err(|error| operation.end_for(caller, error))?;
    operation.end(Ok(()));
    Ok(())
}

/// Has what follows a copy come after it, if that failed in the middle, too.
#[inline]
fn finish(stores: Option<&Stores>, direction: Direction) {
    flush_writes();
    if let (Some(stores), Direction::Write) = (stores, direction) {
        // Engines would overtake it.
        stores.note();
    }
}

fn copy_stretch(operation: &Operation, stretch: &Stretch<'_>) -> Result {
    let peer = &operation.surroundings.peer;
    let (window, offset) = (&stretch.remote.window, stretch.remote_offset);
    for_each_piece(peer.path(), window, offset, stretch.len, |place, at, _| {
        if peer.is_over() {
            return Err(ENODEV);
        }
        let pages = &stretch.local.memory().pages;
        let local = (stretch.local_offset + at) as usize;
        copy_pages(operation.direction, place, pages, local)?;
        if current::is_being_killed() {
            return Err(EINTR);
        }
        current::reschedule();
        Ok(())
    })
}

/// Calls `f` with each contiguous piece, of [`STEP`] bytes at most, of the `len` bytes from `offset` on of a window, with
/// where it begins in them, and its length, until there is an error.
fn for_each_piece(
    path: &dyn Path,
    window: &RemoteWindow,
    offset: u64,
    len: u64,
    mut f: impl FnMut(&Reached<'_>, u64, u64) -> Result,
) -> Result {
    let mut at = 0;
    while at < len {
        let (address, contiguous) = window.extents.at(offset + at).ok_or(ENXIO)?;
        let step = contiguous.min(len - at).min(STEP);
        f(&path.reach(address, step)?, at, step)?;
        at += step;
    }
    Ok(())
}

/// Copies all of a place of the peer, or to all of it.
fn copy_pages(direction: Direction, place: &Reached<'_>, pages: &Pages, offset: usize) -> Result {
    match direction {
        Direction::Write => place.copy_from(pages, offset),
        Direction::Read => place.copy_to(pages, offset),
    }
}

impl Transfers {
    /// Copies, if it is as simple as the head of this file says: none if not all was copied. May sleep.
    pub(super) fn copy_at_once(&self, request: &Request<'_>) -> Option<()> {
        let (direction, remote, options) = (request.direction, request.remote, request.options);
        let len = remote.len();
        let largest = match direction {
            Direction::Read => LARGEST_READ,
            Direction::Write => LARGEST,
        };
        if len > largest || options.ordered {
            return None;
        }
        // Refused once the other end is closed or lost, and this one has been closed.
        let _use = self.channel.begin_use().ok()?;
        if self.channel.peer().is_over() {
            return None;
        }
        let path = self.channel.path();
        let (local_need, remote_need) = direction.needs();
        let (window, offset) = self.remote_windows.holder(remote, remote_need)?;
        match request.local {
            LocalSide::Windows(start) => {
                let range = Range::new(*start, len).ok()?;
                let (local, start) = self.windows.holder(range, local_need)?;
                self.traced(request, || {
                    for_each_piece(path, &window, offset, len, |place, at, _| {
                        let pages = &local.memory.pages;
                        copy_pages(direction, place, pages, start + at as usize)
                    })
                })
            }
            // Who wants memory to be kept gets that, and a read has to be sure of all of it.
            LocalSide::Memory(_) if direction == Direction::Read || options.use_cache => None,
            LocalSide::Memory(memory) => self.traced(request, || {
                for_each_piece(path, &window, offset, len, |place, at, len| {
                    let all = place.write_from(0, memory, at as usize, len as usize)?;
                    if all {
                        Ok(())
                    } else {
                        Err(EFAULT)
                    }
                })
            }),
        }?;
        self.marks.count(direction, len);
        Some(())
    }

    #[inline(always)]
    fn traced(&self, request: &Request<'_>, copy: impl FnOnce() -> Result) -> Option<()> {
        self.trace_submit(request, 0, false);
        let copied = copy();
        finish(self.ways.stores.as_deref(), request.direction);
        let result = copied.map_err(|_| EAGAIN);
        let (direction, len) = (request.direction, request.remote.len());
        self.marks.trace_end(0, direction, len, &result);
        copied.ok()
    }
}
