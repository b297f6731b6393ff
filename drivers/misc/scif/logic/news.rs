// SPDX-License-Identifier: GPL-2.0

//! News: for which connections a doorbell has rung.
//!
//! There are fewer doorbells than connections, so who rings also says for which one: it *marks* the connection in the
//! memory of the other end, which then looks at marks, and not at connections.
//!
//! Marks are bytes, as a store across the bus can't change a bit and leave its neighbours. A connection has a *slot*,
//! which follows from its number and may be shared, and [`SLOTS_OF_GROUP`] slots are a *group*, which is marked, too. So
//! the reader looks at one cache line for the groups, and at one more for each group with news, however many connections
//! there are.
//!
//! The writer marks the slot and, after a full barrier, its group; the reader takes the mark of a group away, and then those of its slots,
//! each before it looks at what the mark is about. So a mark that comes while the reader looks is found
//! the next time, and one that is taken away too early does not exist. Only the reader takes marks away: what a hostile
//! writer does to them costs the writer's own connections their news, and the reader some looks.

use core::ops::Range;

/// Slots of a group; and bytes for the marks of groups, of which there are no more.
pub(crate) const SLOTS_OF_GROUP: u32 = 64;

/// Marks of which one load finds any.
const MARKS_OF_WORD: usize = size_of::<u64>();

/// The memory that marks lie in, as the reader sees it.
pub(crate) trait Marks {
    /// Loads the eight marks from this place on, the first one in the lowest byte.
    fn load(&self, at: usize) -> u64;

    /// Stores one mark: 0 takes it away. Nothing that follows is moved before this.
    fn store(&self, at: usize, mark: u8);
}

/// Where marks lie in a control block: those of groups, then those of slots.
///
/// # Invariants
///
/// `groups` is a power of two from 1 to [`SLOTS_OF_GROUP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News {
    at: usize,
    groups: u32,
}

impl News {
    /// From this place on, a multiple of 64, for as many connections as have to do with a ring of so many messages.
    pub(crate) const fn behind(at: usize, messages: u32) -> Self {
        // INVARIANT: All are.
        Self {
            at,
            groups: match messages {
                0..64 => 4,
                64..256 => 16,
                _ => SLOTS_OF_GROUP,
            },
        }
    }

    /// Where the marks begin.
    pub(crate) const fn start(self) -> usize {
        self.at
    }

    /// Bytes of all of them.
    pub(crate) const fn size(self) -> usize {
        (SLOTS_OF_GROUP as usize).saturating_add(self.slots() as usize)
    }

    /// How many slots there are, a power of two.
    pub(crate) const fn slots(self) -> u32 {
        self.groups.saturating_mul(SLOTS_OF_GROUP)
    }

    /// The slot of the connection with this number: neighbours have different ones.
    pub(crate) const fn slot(self, connection: u32) -> u32 {
        connection & self.slots().saturating_sub(1)
    }

    /// Where the marks of a slot and of its group lie, from the [start](Self::start) on.
    pub(crate) const fn places(self, slot: u32) -> (usize, usize) {
        let first = SLOTS_OF_GROUP as usize;
        let group = (slot / SLOTS_OF_GROUP) as usize;
        (first.saturating_add(slot as usize), group)
    }

    /// Takes marks away and calls `tell` for each slot that was marked, from slot `from` on, and then for those before
    /// it. Stops when `tell` has asked for that by a no: then there may be more, and this returns where to go on. If
    /// the reader does so, a writer that marks some slots all the time does not keep others from being found.
    pub(crate) fn take(
        self,
        marks: &impl Marks,
        from: u32,
        mut tell: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        // The group of `from` comes first in part, and at last as a whole.
        let in_group = SLOTS_OF_GROUP.saturating_sub(1);
        let rest = from.saturating_add(in_group) & !in_group;
        self.take_some(marks, from..self.slots(), &mut tell)
            .or_else(|| self.take_some(marks, 0..rest.min(self.slots()), &mut tell))
    }

    /// As [`Self::take`], of slots that end where a group does.
    fn take_some(
        self,
        marks: &impl Marks,
        slots: Range<u32>,
        tell: &mut impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        let slot_marks = self.at.saturating_add(SLOTS_OF_GROUP as usize);
        let groups =
            slots.start.wrapping_div(SLOTS_OF_GROUP)..slots.end.wrapping_div(SLOTS_OF_GROUP);
        for group in marked(marks, self.at, groups) {
            let place = self.at.saturating_add(group as usize);
            let first = group.saturating_mul(SLOTS_OF_GROUP);
            // In a group of which only some are looked at, others may be marked.
            if first >= slots.start {
                marks.store(place, 0);
            }
            let of_group = first.max(slots.start)..first.saturating_add(SLOTS_OF_GROUP);
            for slot in marked(marks, slot_marks, of_group) {
                marks.store(slot_marks.saturating_add(slot as usize), 0);
                if !tell(slot) {
                    marks.store(place, 1);
                    return Some(slot.saturating_add(1));
                }
            }
        }
        None
    }
}

/// Which of these marks behind a place are there, in order. Each word is loaded when the one before it was dealt with.
fn marked(marks: &impl Marks, at: usize, those: Range<u32>) -> impl Iterator<Item = u32> + '_ {
    let Range { start, end } = those;
    let in_word = (MARKS_OF_WORD as u32).saturating_sub(1);
    let first_word = start & !in_word;
    let firsts = (first_word..end).step_by(MARKS_OF_WORD);
    firsts.flat_map(move |first| {
        let mut left = marks.load(at.saturating_add(first as usize));
        let all = core::iter::from_fn(move || {
            let bits = left.trailing_zeros();
            let index = (bits < u64::BITS).then(|| bits.wrapping_div(u8::BITS))?;
            left &= !0xffu64.wrapping_shl(index.wrapping_mul(u8::BITS));
            Some(first.saturating_add(index))
        });
        all.filter(move |index| (start..end).contains(index))
    })
}
