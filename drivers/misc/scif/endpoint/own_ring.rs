// SPDX-License-Identifier: GPL-2.0

//! The memory of the ring in which an end of a connection receives.
//!
//! The ring begins as a page: the header, and a small first area behind it. Where the peer reaches
//! little memory, it begins as less. The peer may ask for more, once, and gets a second area: as
//! large as the ring may become, or as there is memory for. `logic/ring.rs` tells where the bytes
//! lie then. The control work makes the second area, whether the owner receives or not, and charges
//! it to the owner of the connection. Large rings share a budget ([`Share`]). The first area is
//! kept to the end.
//!
//! Only the receiver goes on to the second area. Everything that the peer writes, header and bytes,
//! is read once and checked.
//!
//! Of the header, only the word of the move is known here. `rings.rs` has the others.
//!
//! Lock: `open`.
//!
//! # Budget of large rings
//!
//! A full ring grows, and a user with many connections can fill many rings. Each ring is charged to
//! its owner, but not every system limits the memory of an owner. So all large rings of this node
//! together get only a part of its memory. A ring up to the [`COMMON`] size does not count. When
//! the budget is used up, a ring does not grow beyond this size.
//!
//! Each user has a share of the budget with each node ([`shares_of`]). Where the peer reaches
//! little memory, the share is one of all that it reaches, so that other users find room there,
//! too.

use crate::{
    logic::ring::{
        self,
        Corrupt,
        Geometry, //
    },
    sync::fair_share::{
        FairShare,
        FairShares, //
    },
    sys::{
        memory_group::MemoryGroup,
        reached,
        shared_memory::{
            Payer,
            SharedMemory, //
        }, //
    },
    transport::path::Path, //
};
use kernel::{
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Mutex,
        SetOnce, //
    }, //
};

/// Bytes of the header, behind which the first area lies.
pub(super) const HEADER: usize = 192;

/// Bytes of the smallest first area, for a peer that reaches little memory.
const SMALLEST: u32 = 64;

/// Offset of the word of the move in the header, 8 bytes.
pub(super) const MOVE: usize = 8;

struct Area {
    // Dropped before `_share`, which counts it.
    memory: SharedMemory,
    geometry: Geometry,
    _share: Option<Share>,
}

/// The memory of the ring in which an end of a connection receives.
#[pin_data]
pub(super) struct OwnRing {
    /// Header and first area.
    pub(super) head: SharedMemory,
    pub(super) first: Geometry,
    /// Largest size that the ring may get.
    pub(super) limit: Geometry,
    /// Second area, once it was offered.
    second: SetOnce<KBox<Area>>,
    /// Whether the next byte lies in the second area; written by the receiver.
    has_moved: Atomic<bool>,
    /// This ring's part of its user's share of ring memory.
    share: FairShare,
    /// Whether the peer may be given more memory.
    #[pin]
    open: Mutex<bool>,
}

/// The place of bytes: their memory, and their spans in it as offset and length.
pub(super) struct Unread<'a> {
    pub(super) memory: &'a SharedMemory,
    pub(super) spans: [(usize, usize); 2],
    /// Number of bytes in both spans.
    pub(super) count: u32,
}

impl OwnRing {
    /// Creates a ring that may become as large as `limit` bytes, a power of two. The caller is
    /// inside the peer, and pays. Nothing is counted in `share` yet.
    /// Context: may sleep.
    pub(super) fn new(path: &dyn Path, limit: u32, share: FairShare) -> Result<impl PinInit<Self>> {
        let most = 1 << path.limits().ring.max(SMALLEST).ilog2();
        let limit = Geometry::new(limit.min(most)).ok_or(EINVAL)?;
        // Largest power of two that fits into the page.
        let mut first = limit.size().min(1 << (PAGE_SIZE - HEADER).ilog2());
        let head = loop {
            match make(path, HEADER + first as usize, Payer::Caller, &share) {
                Err(ENOMEM) if first / 2 >= SMALLEST => first /= 2,
                head => break head?,
            }
        };
        let first = Geometry::new(first).ok_or(EINVAL)?;
        Ok(pin_init!(Self {
            head,
            first,
            limit,
            second: SetOnce::new(),
            share,
            has_moved: Atomic::new(false),
            open <- new_mutex!(true, "OwnRing::open"),
        }))
    }

    /// Returns the size that the peer may take the ring to have. Called after the peer's counter
    /// has been read.
    pub(super) fn largest(&self) -> Geometry {
        let second = self.second.as_ref();
        second.map_or(self.first, |second| second.geometry)
    }

    /// Returns how many bytes the ring holds in any case, even if the peer has not heard of the
    /// second area. So many bytes come before the peer waits for room.
    pub(super) fn size(&self) -> u32 {
        self.reading()
            .map_or(self.first, |second| second.geometry)
            .size()
    }

    /// Returns the second area, if the next byte lies there.
    fn reading(&self) -> Option<&Area> {
        let second = self.second.as_ref()?;
        self.has_moved.load(Relaxed).then_some(&**second)
    }

    /// Returns the count from which on the peer's bytes lie in the second area, if there is one.
    fn moved_at(&self) -> Option<u32> {
        self.second.as_ref()?;
        ring::moved_at(self.head.read_u64(MOVE).ok()?)
    }

    /// Returns the place of the `count` bytes from `consumed` on, as far as they lie in one area.
    /// Only for the receiver, which has found in the peer's counter that the bytes are there.
    pub(super) fn unread(&self, consumed: u32, count: u32) -> Result<Unread<'_>, Corrupt> {
        loop {
            let (memory, start, geometry, moved) = match self.reading() {
                Some(second) => (&second.memory, 0, second.geometry, None),
                None => (&self.head, HEADER, self.first, self.moved_at()),
            };
            let here = ring::in_first_area(&geometry, consumed, count, moved)?;
            if here == 0 && count != 0 {
                self.has_moved.store(true, Relaxed);
                continue;
            }
            let spans = geometry.spans(consumed, here);
            return Ok(Unread {
                memory,
                spans: spans.map(|(offset, len)| (start + offset as usize, len as usize)),
                count: here,
            });
        }
    }

    /// Makes the second area: as large as the ring may become, or as there is memory for. Returns
    /// its address and its size. The `group` pays for it. ENOSPC: the ring can't grow any more.
    /// Context: control work, may sleep.
    pub(super) fn grow(&self, path: &dyn Path, group: &MemoryGroup) -> Result<(u64, u32)> {
        let open = self.open.lock();
        if !*open {
            return Err(ENOTCONN);
        }
        let before = self.first.size();
        let mut size = self.limit.size();
        if size <= before || self.second.as_ref().is_some() {
            return Err(ENOSPC);
        }
        let area = loop {
            match self.make_area(path, size, group) {
                // Half of that is still more than the first area, and easier to get in one piece.
                Err(ENOMEM) if size / 2 > before => size /= 2,
                area => break area?,
            }
        };
        let address = area.memory.bus_address();
        self.second.populate(KBox::new(area, GFP_KERNEL)?);
        Ok((address, size))
    }

    fn make_area(&self, path: &dyn Path, size: u32, group: &MemoryGroup) -> Result<Area> {
        let share = if size > COMMON {
            Some(Share::take_of(for_large(), size.into()).ok_or(ENOMEM)?)
        } else {
            None
        };
        Ok(Area {
            _share: share,
            memory: make(path, size as usize, Payer::Group(group), &self.share)?,
            geometry: Geometry::new(size).ok_or(EINVAL)?,
        })
    }

    /// Takes the ring away from the peer, for good. The data stays.
    /// Context: may sleep.
    pub(super) fn unmap(&self) {
        *self.open.lock() = false;
        self.head.unmap();
        if let Some(second) = self.second.as_ref() {
            second.memory.unmap();
        }
    }
}

/// Returns the shares of users in the memory of the rings that a peer writes to.
/// Context: may sleep.
pub(super) fn shares_of(path: &dyn Path) -> Result<FairShares> {
    let all = path.limits().rings.unwrap_or_else(for_large);
    FairShares::of(usize::try_from(all)?)
}

/// Makes memory of a ring, and counts it in the share of a user. ENOMEM: the user has too much, or
/// there is no memory.
fn make(path: &dyn Path, len: usize, payer: Payer<'_>, share: &FairShare) -> Result<SharedMemory> {
    let memory = path.share(len, payer)?;
    let is_counted = path.limits().rings.is_some() || len > COMMON as usize;
    if is_counted && !share.add(memory.len()) {
        return Err(ENOMEM);
    }
    Ok(memory)
}

/// Returns the bytes of the budget for large rings.
fn for_large() -> u64 {
    reached::end_of_memory() / PARTS
}

/// Size in bytes up to which a ring is not counted.
pub(super) const COMMON: u32 = 1 << 16;

/// Divisor of this node's memory that gives the budget of large rings.
const PARTS: u64 = 16;

/// Bytes of all shares.
static TAKEN: Atomic<u64> = Atomic::new(0);

/// A number of bytes from the budget of large rings. The drop gives them back.
pub(super) struct Share(u64);

impl Share {
    /// Takes `bytes`, so that at most `limit` bytes are taken in all. None if fewer are left.
    /// Context: any.
    fn take_of(limit: u64, bytes: u64) -> Option<Self> {
        let before = TAKEN.fetch_add(bytes, Relaxed);
        // The drop gives the bytes back if they are refused.
        let share = Self(bytes);
        (before.saturating_add(bytes) <= limit).then_some(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Relaxed);
    }
}

#[kunit_tests(scif_endpoint_own_ring)]
mod tests {
    use super::*;

    #[test]
    fn dropped_share_can_be_taken_again() {
        let before = TAKEN.load(Relaxed);
        let (first, second) = (
            Share::take_of(before + 100, 60),
            Share::take_of(before + 100, 60),
        );
        assert!(first.is_some() && second.is_none());
        drop(first);
        let again = Share::take_of(before + 100, 100);
        assert!(again.is_some());
        drop(again);
        assert_eq!(TAKEN.load(Relaxed), before);
    }
}
