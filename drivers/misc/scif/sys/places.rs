// SPDX-License-Identifier: GPL-2.0

//! Places in a range of device addresses, of which pieces are allocated.
//!
//! Lock: `taking` serialises callers that take a place. Only the lock of the allocator is taken
//! under it.

use core::num::NonZero;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

use super::range_allocator::RangeAllocator;
use crate::logic::window_set::Shape;

/// One part in so many of a range is reserved for rings.
const FOR_RINGS: u64 = 8;

/// The purpose of a piece, for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Memory of the kernel: control blocks and rings. Such a piece crosses no seam.
    Rings,
    /// Memory that a process has registered.
    Windows,
}

/// An allocator of pieces of a range of device addresses.
#[pin_data]
pub(crate) struct Places {
    #[pin]
    units: RangeAllocator,
    #[pin]
    taking: Mutex<()>,
    /// Begin of the range, as the device names it.
    pub(crate) base: u64,
    /// Shape of the range. Its length is a multiple of the unit, and its seams count from the
    /// begin.
    pub(crate) shape: Shape,
    /// Number of bytes of one allocation unit.
    unit: NonZero<usize>,
    /// Number of bytes that are taken for rings.
    rings: Atomic<u64>,
    /// Number of bytes that are taken for windows.
    windows: Atomic<u64>,
}

impl Places {
    /// Creates an allocator in which all places are free.
    /// Context: may sleep.
    pub(super) fn new(base: u64, shape: Shape, unit: usize) -> Result<Arc<Self>> {
        let unit = NonZero::new(unit).ok_or(EINVAL)?;
        Arc::pin_init(
            pin_init!(Self {
                units <- RangeAllocator::new(),
                taking <- new_mutex!((), "Places::taking"),
                base,
                shape,
                unit,
                rings: Atomic::new(0),
                windows: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    fn taken(&self, purpose: Purpose) -> &Atomic<u64> {
        match purpose {
            Purpose::Rings => &self.rings,
            Purpose::Windows => &self.windows,
        }
    }

    /// Returns the number of bytes that are taken for a purpose.
    /// Context: any.
    pub(crate) fn bytes_for(&self, purpose: Purpose) -> u64 {
        self.taken(purpose).load(Relaxed)
    }

    /// Takes a piece of at least `len` bytes.
    ///
    /// `phase` is `(phase, step)`, for windows only: if possible, the piece begins `phase` bytes
    /// behind a multiple of `step`.
    ///
    /// # Errors
    ///
    /// - `ENOSPC`: there is no gap of this size, or a window would take space reserved for rings.
    ///
    /// Context: may sleep.
    pub(super) fn take(
        self: &Arc<Self>,
        len: usize,
        purpose: Purpose,
        phase: Option<(usize, usize)>,
    ) -> Result<Place> {
        // Rounds up; a length of 0 takes one unit.
        let units = len.saturating_sub(1) / self.unit + 1;
        let len = units.checked_mul(self.unit.get()).ok_or(ENOSPC)?;
        let taking = self.taking.lock();
        let first = match purpose {
            Purpose::Rings => self.first_in_a_part(units),
            Purpose::Windows if len as u64 > self.left_for_windows() => Err(ENOSPC),
            Purpose::Windows => self.first_at(units, phase),
        }?;
        self.taken(purpose).add(len as u64, Relaxed);
        drop(taking);
        let offset = first * self.unit.get();
        // INVARIANT: The place has just been taken.
        Ok(Place {
            places: self.clone(),
            purpose,
            offset,
            len,
            is_taken: Atomic::new(true),
        })
    }

    /// Returns how many bytes windows may still take. Rings come first: windows can also be reached
    /// by staging, rings can't.
    fn left_for_windows(&self) -> u64 {
        let for_all = self.shape.len - self.shape.len / FOR_RINGS;
        for_all.saturating_sub(self.bytes_for(Purpose::Windows))
    }

    fn first_in_a_part(&self, units: usize) -> Result<usize> {
        for part in self.shape.seams.ranges(usize::try_from(self.shape.len)?) {
            let within = part.start / self.unit..part.end / self.unit;
            match self.units.take(units, within, GFP_KERNEL) {
                Err(ENOSPC) => (),
                taken => return taken,
            }
        }
        Err(ENOSPC)
    }

    fn first_at(&self, units: usize, phase: Option<(usize, usize)>) -> Result<usize> {
        let all = 0..usize::try_from(self.shape.len)? / self.unit;
        if let Some((phase, step)) = phase {
            let (phase, step) = (phase / self.unit, step / self.unit);
            // A gap of this length contains a begin with this phase, wherever the gap begins.
            let longest = units.saturating_add(step.saturating_sub(1));
            if let Ok(gap) = self.units.take(longest, all.clone(), GFP_KERNEL) {
                self.units.give_back(gap);
                let first = gap + phase.wrapping_sub(gap).checked_rem(step).unwrap_or(0);
                self.units.take_these(first..first + units, GFP_KERNEL)?;
                return Ok(first);
            }
        }
        self.units.take(units, all, GFP_KERNEL)
    }
}

/// A piece of the range, until it is dropped or given back.
///
/// # Invariants
///
/// While `is_taken`, `len` bytes at `offset`, in whole units, are taken for this.
pub(super) struct Place {
    places: Arc<Places>,
    purpose: Purpose,
    pub(super) offset: usize,
    pub(super) len: usize,
    is_taken: Atomic<bool>,
}

impl Place {
    /// Returns the begin of the piece, as the device names it.
    pub(super) fn address(&self) -> u64 {
        self.places.base + self.offset as u64
    }

    /// Gives the piece back for others to take.
    /// Context: may sleep.
    pub(super) fn give_back(&self) {
        if self.is_taken.xchg(false, Full) {
            let (places, len) = (&self.places, self.len as u64);
            places.units.give_back(self.offset / places.unit);
            places.taken(self.purpose).fetch_sub(len, Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[kunit_tests(scif_sys_places)]
mod tests {
    use super::*;

    #[test]
    fn released_place_can_be_taken_again() -> Result {
        let places = Places::new(100, Shape::in_one(8), 1)?;
        let take = |units| places.take(units, Purpose::Rings, None);
        let (first, second) = (take(3)?, take(5)?);
        assert_eq!((first.address(), second.address()), (100, 103));
        assert_eq!(places.bytes_for(Purpose::Rings), 8);
        assert_eq!(take(1).err(), Some(ENOSPC));
        first.give_back();
        first.give_back();
        assert_eq!(places.bytes_for(Purpose::Rings), 5);
        assert_eq!(take(4).err(), Some(ENOSPC));
        let (third, fourth) = (take(2)?, take(1)?);
        assert_eq!((third.offset, fourth.offset), (0, 2));
        drop((first, second, third, fourth));
        assert_eq!(places.bytes_for(Purpose::Rings), 0);
        Ok(())
    }

    #[test]
    fn requested_phase_is_kept_if_there_is_room() -> Result {
        let places = Places::new(0, Shape::in_one(24), 1)?;
        let take = |units, phase| places.take(units, Purpose::Windows, phase);
        let phase = Some((2, 8));
        let taken = [take(4, phase)?, take(4, phase)?];
        // No gap is long enough to hold the phase for certain.
        let more = [take(4, phase)?, take(8, None)?];
        assert_eq!(taken.each_ref().map(|place| place.offset), [2, 10]);
        assert_eq!(more.each_ref().map(|place| place.offset), [6, 14]);
        assert_eq!(take(4, phase).err(), Some(ENOSPC));
        assert_eq!(places.bytes_for(Purpose::Windows), 20);
        // An eighth is reserved for rings.
        assert!(take(1, None).is_ok() && take(2, None).is_err());
        assert_eq!(places.take(2, Purpose::Rings, None)?.offset, 0);
        Ok(())
    }
}
