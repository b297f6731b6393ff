// SPDX-License-Identifier: GPL-2.0

//! News: marks that tell for which connections a doorbell has rung.
//!
//! There are fewer doorbells than connections. So the sender of a doorbell also *marks* its
//! connection in the memory of the receiver, which then reads marks instead of polling all
//! connections.
//!
//! Marks are bytes, as a store across the bus can't change one bit and keep its neighbours. Each
//! connection has a *slot*, which follows from its number and may be shared. [`SLOTS_OF_GROUP`]
//! slots form a *group*, which is marked, too. So the reader reads one cache line for the groups,
//! and one for each group with news, however many connections there are.
//!
//! The writer marks the slot and, after a full barrier, its group. The reader clears the mark of a
//! group and then the marks of its slots, each before it handles the connection. So a mark that
//! comes meanwhile is found the next time, and no mark is cleared too early. Only the reader clears
//! marks. Whatever a hostile writer does to marks costs its own connections their news, and the
//! reader some reads.

use core::ops::Range;

/// Number of slots of a group, and maximum number of groups.
pub(crate) const SLOTS_OF_GROUP: u32 = 64;

/// Number of marks that one load reads.
const MARKS_OF_WORD: usize = size_of::<u64>();

/// The memory of the marks, as the reader sees it.
pub(crate) trait Marks {
    /// Loads the eight marks at this offset, the first one in the lowest byte.
    fn load(&self, at: usize) -> u64;

    /// Stores one mark; 0 clears it. Later accesses are not moved before this store.
    fn store(&self, at: usize, mark: u8);
}

/// The layout of the marks in a control block: those of groups, then those of slots.
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
    /// Creates the layout at this offset, a multiple of 64. The number of slots depends on
    /// `messages`, the number of messages of the control block's ring.
    pub(crate) const fn behind(at: usize, messages: u32) -> Self {
        // INVARIANT: All are powers of two in that range.
        Self {
            at,
            groups: match messages {
                0..64 => 4,
                64..256 => 16,
                _ => SLOTS_OF_GROUP,
            },
        }
    }

    /// Returns the offset of the marks.
    pub(crate) const fn start(self) -> usize {
        self.at
    }

    /// Returns the size of all marks in bytes.
    pub(crate) const fn size(self) -> usize {
        (SLOTS_OF_GROUP as usize).saturating_add(self.slots() as usize)
    }

    /// Returns the number of slots, a power of two.
    pub(crate) const fn slots(self) -> u32 {
        self.groups.saturating_mul(SLOTS_OF_GROUP)
    }

    /// Returns the slot of the connection with this number. Neighbours have different slots.
    pub(crate) const fn slot(self, connection: u32) -> u32 {
        connection & self.slots().saturating_sub(1)
    }

    /// Returns the offsets of the marks of a slot and of its group, relative to
    /// [start](Self::start).
    pub(crate) const fn places(self, slot: u32) -> (usize, usize) {
        let first = SLOTS_OF_GROUP as usize;
        let group = (slot / SLOTS_OF_GROUP) as usize;
        (first.saturating_add(slot as usize), group)
    }

    /// Clears marks, and calls `notify` for each marked slot, from slot `from` on, and then for the
    /// slots before it.
    ///
    /// Stops if `notify` returns false. There may then be more marks, and this returns the slot to
    /// continue from. If the reader continues there, a writer that marks some slots all the time
    /// can't hide the others.
    pub(crate) fn take(
        self,
        marks: &impl Marks,
        from: u32,
        mut notify: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        // The group of `from` comes first, in part, and again at last, as a whole.
        let in_group = SLOTS_OF_GROUP.saturating_sub(1);
        let rest = from.saturating_add(in_group) & !in_group;
        self.take_some(marks, from..self.slots(), &mut notify)
            .or_else(|| self.take_some(marks, 0..rest.min(self.slots()), &mut notify))
    }

    /// Clears marks of a range of slots that ends at the end of a group, as [`Self::take`] does.
    fn take_some(
        self,
        marks: &impl Marks,
        slots: Range<u32>,
        notify: &mut impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        let slot_marks = self.at.saturating_add(SLOTS_OF_GROUP as usize);
        let groups =
            slots.start.wrapping_div(SLOTS_OF_GROUP)..slots.end.wrapping_div(SLOTS_OF_GROUP);
        for group in marked(marks, self.at, groups) {
            let place = self.at.saturating_add(group as usize);
            let first = group.saturating_mul(SLOTS_OF_GROUP);
            // If only some slots of the group are read, the others may be marked, so the group
            // stays marked.
            if first >= slots.start {
                marks.store(place, 0);
            }
            let of_group = first.max(slots.start)..first.saturating_add(SLOTS_OF_GROUP);
            for slot in marked(marks, slot_marks, of_group) {
                marks.store(slot_marks.saturating_add(slot as usize), 0);
                if !notify(slot) {
                    marks.store(place, 1);
                    return Some(slot.saturating_add(1));
                }
            }
        }
        None
    }
}

/// Returns the marks that are set in a range of marks at an offset, in order. Loads each word only
/// after the one before it was handled.
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
