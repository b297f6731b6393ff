// SPDX-License-Identifier: GPL-2.0

//! A transfer by CPU: over when the call returns.

use super::pieces::{
    Sides,
    Stretch, //
};
use crate::{
    arguments::Direction,
    logic::plan::Walk,
    peer::Peer,
    sys::{
        current,
        reached::flush_writes, //
    },
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
