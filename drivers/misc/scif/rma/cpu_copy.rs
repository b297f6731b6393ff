// SPDX-License-Identifier: GPL-2.0

//! Copies by the CPU, which are complete when the call returns.
//!
//! A short path ([`Transfers::copy_at_once`]) makes small copies that lie in one window of the
//! peer. On the local side, they lie in one window or in memory of the caller. Such a copy
//! allocates nothing. It has no number (traces show 0), because a fence has nothing to wait for.
//!
//! The short path reports no errors. If a copy is not that simple, or fails, it is left to the
//! general path (`transfers.rs`), which knows which error to report. So bytes that were copied
//! already may be copied again.

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

/// Number of bytes after which a copy checks the state of the peer and pending signals.
const STEP: u64 = 256 * 1024;

/// Largest number of bytes that the short path writes. A longer write checks for signals in
/// between.
const LARGEST: u64 = 64 << 10;

/// Largest number of bytes that the short path reads, as the CPU waits for each load.
const LARGEST_READ: u64 = 4 << 10;

/// Copies all of an operation, one part after the other, and completes the operation. The caller is
/// inside the peer, and hears of the error.
///
/// # Errors
///
/// - ENODEV: the peer is lost meanwhile.
/// - EINTR: the caller is being killed.
pub(super) fn copy(operation: &Arc<Operation>, caller: Caller) -> Result {
    let copied = operation.parts().into_iter().try_for_each(|(skip, len)| {
        operation
            .sides
            .for_each_stretch(skip, len, |stretch| copy_stretch(operation, &stretch))?;
        // The last part must arrive after the body.
        flush_writes();
        Ok(())
    });
    let stores = operation.surroundings.peer.path().stores();
    finish(stores.map(|stores| &**stores), operation.direction);
    copied.map_err(|error| operation.end_for(caller, error))?;
    operation.end(Ok(()));
    Ok(())
}

/// Orders everything that follows behind a copy, even if the copy failed halfway.
#[inline]
fn finish(stores: Option<&Stores>, direction: Direction) {
    flush_writes();
    if let (Some(stores), Direction::Write) = (stores, direction) {
        // Noted so that engines do not overtake the stores.
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

/// Calls `f` with each contiguous piece of the `len` bytes of a window from `offset` on, until an
/// error. A piece has at most [`STEP`] bytes. `f` also gets the offset of the piece in the `len`
/// bytes and its length.
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

/// Copies between pages and all bytes of a place of the peer.
fn copy_pages(direction: Direction, place: &Reached<'_>, pages: &Pages, offset: usize) -> Result {
    match direction {
        Direction::Write => place.copy_from(pages, offset),
        Direction::Read => place.copy_to(pages, offset),
    }
}

impl Transfers {
    /// Makes a copy by the short path described in the head of this file. Returns `None` if not all
    /// was copied.
    /// Context: may sleep.
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
        // Fails once the other end is closed or lost, or this end has been closed.
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
            // The general path keeps memory in the cache if the caller asked for that. A read must
            // be sure of all its memory, so the general path pins it.
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
        finish(self.policy.stores.as_deref(), request.direction);
        let result = copied.map_err(|_| EAGAIN);
        let (direction, len) = (request.direction, request.remote.len());
        self.marks.trace_end(0, direction, len, &result);
        copied.ok()
    }
}
