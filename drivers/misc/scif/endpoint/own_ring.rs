// SPDX-License-Identifier: GPL-2.0

//! The memory of the ring in which an end of a connection receives.
//!
//! It begins as a page: the header, and a small first area behind it; or as less, where the peer reaches
//! little. The peer may ask for more, once, and gets a second area, as large as the ring may become or as
//! there is memory for; where the bytes lie then, is in `logic/ring.rs`. The area is made by the control work,
//! whether anybody receives or not, and charged to whom the connection belongs to. Large rings share what there is for
//! them ([`Share`]). The first area is kept to the end.
//!
//! Only the receiver goes on to the second area. Everything that the peer writes, header and
//! bytes, is read once and checked.
//!
//! What the header says is not known here but for the word of the move, see `rings.rs`.
//!
//! Lock: `open`.
//!
//! How much memory the large rings of this node have, all together.
//!
//! A ring that is full grows, and who has many connections can fill many. Each is charged to its
//! owner, but not every system limits what an owner may have. So only a part of the memory is for what
//! rings have beyond the [`COMMON`] size, which each may have; who comes too late stays at that.
//!
//! Of that each user has a share with each node ([`shares_of`]). Where the peer reaches little, the share is one of all that
//! it reaches, so that others find a place there, too.

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

/// Bytes of the smallest first area, where there is little room that the peer reaches.
const SMALLEST: u32 = 64;

/// Where the word of the move lies in the header, 8 bytes.
pub(super) const MOVE: usize = 8;

struct Area {
    // The memory goes before it is given back.
    memory: SharedMemory,
    geometry: Geometry,
    _share: Option<Share>,
}

/// See the head of this file.
#[pin_data]
pub(super) struct OwnRing {
    /// The header and the first area.
    pub(super) head: SharedMemory,
    pub(super) first: Geometry,
    /// How large the ring may become.
    pub(super) limit: Geometry,
    /// The second area, once it was offered.
    second: SetOnce<KBox<Area>>,
    /// Whether the next byte lies there; written by the receiver.
    has_moved: Atomic<bool>,
    /// What its user has of the memory for rings because of it.
    share: FairShare,
    /// Whether the peer may be given more memory.
    #[pin]
    open: Mutex<bool>,
}

/// Where bytes lie: in which memory, and where in it they begin, as offset and length.
pub(super) struct Unread<'a> {
    pub(super) memory: &'a SharedMemory,
    pub(super) spans: [(usize, usize); 2],
    /// How many they are, together.
    pub(super) count: u32,
}

impl OwnRing {
    /// A ring that may become as large as `limit` bytes, a power of two. The caller is inside the
    /// peer, and pays; the `share` begins with nothing. May sleep.
    pub(super) fn new(path: &dyn Path, limit: u32, share: FairShare) -> Result<impl PinInit<Self>> {
        let most = 1 << path.limits().ring.max(SMALLEST).ilog2();
        let limit = Geometry::new(limit.min(most)).ok_or(EINVAL)?;
        // The largest power of two that finds a place in the page.
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

    /// How large the peer may take it to be. To be asked after its counter has been read.
    pub(super) fn largest(&self) -> Geometry {
        let second = self.second.as_ref();
        second.map_or(self.first, |second| second.geometry)
    }

    /// How much fits at least, whatever the peer has heard of: so much comes before it waits for room.
    pub(super) fn size(&self) -> u32 {
        self.reading()
            .map_or(self.first, |second| second.geometry)
            .size()
    }

    /// The second area, if the next byte lies there.
    fn reading(&self) -> Option<&Area> {
        let second = self.second.as_ref()?;
        self.has_moved.load(Relaxed).then_some(&**second)
    }

    /// From which count on the peer's bytes lie in the second area, if there is one.
    fn moved_at(&self) -> Option<u32> {
        self.second.as_ref()?;
        ring::moved_at(self.head.read_u64(MOVE).ok()?)
    }

    /// Where those of `count` bytes from `consumed` on lie that lie in one area. For who is receiving,
    /// who has read from the peer's counter that they are there.
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

    /// Makes the second area, as large as the ring may become or as there is memory for: its address, and size. ENOSPC if
    /// the ring has all that it may have. The control work, for whom the `group` pays; may sleep.
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
                // A little more is better than nothing, and easier to be had in one piece.
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

    /// Takes the ring away from the peer, for good; the data stays. May sleep.
    pub(super) fn unmap(&self) {
        *self.open.lock() = false;
        self.head.unmap();
        if let Some(second) = self.second.as_ref() {
            second.memory.unmap();
        }
    }
}

/// Returns the shares of users in the memory of the rings that a peer writes to. May sleep.
pub(super) fn shares_of(path: &dyn Path) -> Result<FairShares> {
    let all = path.limits().rings.unwrap_or_else(for_large);
    FairShares::of(usize::try_from(all)?)
}

/// Makes memory of a ring, and counts it in the share of a user: ENOMEM if that is too much.
fn make(path: &dyn Path, len: usize, payer: Payer<'_>, share: &FairShare) -> Result<SharedMemory> {
    let memory = path.share(len, payer)?;
    let is_counted = path.limits().rings.is_some() || len > COMMON as usize;
    if is_counted && !share.add(memory.len()) {
        return Err(ENOMEM);
    }
    Ok(memory)
}

/// Returns how many bytes large rings may have together.
fn for_large() -> u64 {
    reached::end_of_memory() / PARTS
}

/// Bytes of a ring that are not counted.
pub(super) const COMMON: u32 = 1 << 16;

/// Large rings have one part in so many of this node's memory.
const PARTS: u64 = 16;

/// Bytes of all shares.
static TAKEN: Atomic<u64> = Atomic::new(0);

/// So many bytes of the memory for large rings; given back when dropped.
pub(super) struct Share(u64);

impl Share {
    /// None if that is more than is left of `limit` bytes. Any context.
    fn take_of(limit: u64, bytes: u64) -> Option<Self> {
        let before = TAKEN.fetch_add(bytes, Relaxed);
        // Gives them back if they are refused.
        let share = Self(bytes);
        (before.saturating_add(bytes) <= limit).then_some(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Relaxed);
    }
}

#[kunit_tests(scif_endpoint_ring_budget)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again() {
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
