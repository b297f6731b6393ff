// SPDX-License-Identifier: GPL-2.0

//! The memory of the ring in which an end of a connection receives.
//!
//! It begins as a page: the header, and a small first area behind it; or as less, where the peer reaches
//! little. The peer may ask for more, and gets larger areas until the ring is as large as it may become;
//! where the bytes lie then, is in `logic/areas.rs`. An area is made by the control work, whether anybody
//! receives or not, and paid for by whom the first page was charged to. If there is no memory the ring stays
//! as it is; large rings share what there is for them (`ring_budget.rs`). Areas
//! that the peer has left are kept to the end: together they are smaller than the last one.
//!
//! Only who is receiving goes from one area to the next. Everything that the peer writes, header and
//! bytes, is read once and checked.
//!
//! What the header says is not known here but for the words of moves, see `rings.rs`.
//!
//! Lock: `open`.

use super::ring_budget::{
    Share,
    COMMON, //
};
use crate::{
    logic::{
        areas,
        ring::{
            Corrupt,
            Geometry, //
        },
    },
    sys::{
        shared_memory::{
            Payer,
            SharedMemory, //
        }, //
    },
    transport::path::Path,
};
use kernel::{
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Mutex,
        SetOnce, //
    },
};

/// Bytes of the header, behind which the first area lies.
pub(super) const HEADER: usize = 192;

/// Bytes of the smallest first area, where there is little room that the peer reaches.
const SMALLEST: u32 = 64;

/// Where the words of moves lie in the header, 8 bytes for each area but the first.
pub(super) const MOVES: usize = 8;

static_assert!(MOVES + 8 * areas::MOST <= 64);

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
    head: SharedMemory,
    first: Geometry,
    limit: Geometry,
    /// Those that were offered after it, in order.
    larger: [SetOnce<KBox<Area>>; areas::MOST],
    /// How many these are; written under `open`.
    made: Atomic<usize>,
    /// In which one the next byte lies; written by who is receiving.
    reading: Atomic<usize>,
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
    /// peer, and pays. May sleep.
    pub(super) fn new(path: &dyn Path, limit: u32) -> Result<impl PinInit<Self>> {
        let most = 1 << path.limits().ring.max(SMALLEST).ilog2();
        let limit = Geometry::new(limit.min(most)).ok_or(EINVAL)?;
        // The largest power of two that finds a place in the page.
        let mut first = limit.size().min(1 << (PAGE_SIZE - HEADER).ilog2());
        let head = loop {
            match path.share(HEADER + first as usize, Payer::Caller) {
                Err(ENOMEM) if first / 2 >= SMALLEST => first /= 2,
                head => break head?,
            }
        };
        let first = Geometry::new(first).ok_or(EINVAL)?;
        Ok(pin_init!(Self {
            head,
            first,
            limit,
            larger: [const { SetOnce::new() }; areas::MOST],
            made: Atomic::new(0),
            reading: Atomic::new(0),
            open <- new_mutex!(true, "OwnRing::open"),
        }))
    }

    /// The header.
    pub(super) fn header(&self) -> &SharedMemory {
        &self.head
    }

    /// How large the first area is.
    pub(super) fn first_size(&self) -> u32 {
        self.first.size()
    }

    /// How large the ring may become.
    pub(super) fn limit(&self) -> u32 {
        self.limit.size()
    }

    /// How large the peer may take it to be. To be asked after its counter has been read.
    pub(super) fn largest(&self) -> Geometry {
        let made = self.made.load(Acquire);
        self.area(made)
            .map_or(self.first, |(_, _, geometry)| geometry)
    }

    /// How much fits at least, whatever the peer has heard of: so much comes before it waits for room.
    pub(super) fn size(&self) -> u32 {
        self.area(self.reading.load(Relaxed))
            .map_or(0, |(_, _, geometry)| geometry.size())
    }

    fn area(&self, index: usize) -> Option<(&SharedMemory, usize, Geometry)> {
        let Some(index) = index.checked_sub(1) else {
            return Some((&self.head, HEADER, self.first));
        };
        let area = self.larger.get(index)?.as_ref()?;
        Some((&area.memory, 0, area.geometry))
    }

    /// From which count on the peer's bytes lie in the area behind this one, if it was offered.
    fn left_at(&self, index: usize) -> Option<u32> {
        self.larger.get(index)?.as_ref()?;
        let word = self.head.read_u64(MOVES + 8 * index).ok()?;
        areas::moved_at(word)
    }

    /// Where those of `count` bytes from `consumed` on lie that lie in one area. For who is receiving,
    /// who has read from the peer's counter that they are there.
    pub(super) fn unread(&self, consumed: u32, count: u32) -> Result<Unread<'_>, Corrupt> {
        let nowhere = Corrupt {
            produced: consumed.wrapping_add(count),
            consumed,
            size: 0,
        };
        loop {
            let index = self.reading.load(Relaxed);
            let (memory, start, geometry) = self.area(index).ok_or(nowhere)?;
            let here = areas::here(&geometry, consumed, count, self.left_at(index))?;
            if here == 0 && count != 0 {
                self.reading.store(index + 1, Relaxed);
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

    /// Makes an area in which `wanted` bytes find a place, as far as that may be, and has the peer use
    /// it: its address, and size. ENOSPC if the ring has all that it may have. The control work;
    /// may sleep.
    pub(super) fn grow(&self, path: &dyn Path, wanted: u32) -> Result<(u64, u32)> {
        let open = self.open.lock();
        if !*open {
            return Err(ENOTCONN);
        }
        let made = self.made.load(Relaxed);
        let place = self.larger.get(made).ok_or(ENOSPC)?;
        let before = self.largest().size();
        let mut size = areas::larger(before, wanted, self.limit.size()).ok_or(ENOSPC)?;
        let area = loop {
            match self.make_area(path, size) {
                // A little more is better than nothing, and easier to be had in one piece.
                Err(ENOMEM) if size / 2 > before => size /= 2,
                area => break area?,
            }
        };
        let address = area.memory.bus_address();
        place.populate(KBox::new(area, GFP_KERNEL)?);
        self.made.store(made + 1, Release);
        Ok((address, size))
    }

    fn make_area(&self, path: &dyn Path, size: u32) -> Result<Area> {
        let share = match size > COMMON {
            true => Some(Share::take(size).ok_or(ENOMEM)?),
            false => None,
        };
        Ok(Area {
            _share: share,
            memory: path.share(size as usize, Payer::OwnerOf(&self.head))?,
            geometry: Geometry::new(size).ok_or(EINVAL)?,
        })
    }

    /// Takes the ring away from the peer, for good; the data stays. May sleep.
    pub(super) fn unmap(&self) {
        *self.open.lock() = false;
        self.head.unmap();
        for area in self.larger.iter().filter_map(SetOnce::as_ref) {
            area.memory.unmap();
        }
    }
}
