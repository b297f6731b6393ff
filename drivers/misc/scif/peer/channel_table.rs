// SPDX-License-Identifier: GPL-2.0

//! What a service has of one peer, by channel id.
//!
//! An id is an index with a generation, so that a message about a channel that is gone does not
//! reach the one that took its place. Ids are all that the peer ever learns of a channel.

use crate::logic::envelope::ChannelId;
use kernel::{
    prelude::*,
    sync::Arc, //
};

const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
const GENERATION_MASK: u32 = u32::MAX >> INDEX_BITS;
/// More channels than this at once are refused with ENOSPC.
const MAX_CHANNELS: usize = 1 << 16;

struct Slot<T> {
    generation: u32,
    entry: Option<Arc<T>>,
}

/// See the head of this file.
pub(crate) struct ChannelTable<T> {
    slots: KVVec<Slot<T>>,
    free: KVVec<u32>,
}

impl<T> ChannelTable<T> {
    pub(crate) const fn new() -> Self {
        Self {
            slots: KVVec::new(),
            free: KVVec::new(),
        }
    }

    /// Takes an id for something that is yet to be made; the rest is [`Self::publish`] or
    /// [`Self::give_back`]. Until then there is nothing with that id.
    pub(crate) fn reserve(&mut self) -> Result<ChannelId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                if self.slots.len() >= MAX_CHANNELS {
                    return Err(ENOSPC);
                }
                // Room to give the index back is made here, so that `remove` can't fail. Nobody pays:
                // the control work needs the lock that is held.
                let missing = (self.slots.len() + 1).saturating_sub(self.free.len());
                self.free.reserve(missing, GFP_KERNEL)?;
                self.slots.push(
                    Slot {
                        generation: 0,
                        entry: None,
                    },
                    GFP_KERNEL,
                )?;
                (self.slots.len() - 1) as u32
            }
        };
        let slot = self.slots.get_mut(index as usize).ok_or(EINVAL)?;
        slot.generation = slot.generation.wrapping_add(1);
        Ok(ChannelId(slot.generation << INDEX_BITS | (index + 1)))
    }

    /// Has `entry` found by the id that was reserved for it.
    pub(crate) fn publish(&mut self, id: ChannelId, entry: Arc<T>) {
        let slot = Self::index(id).and_then(|index| self.slots.get_mut(index));
        if let Some(slot) = slot {
            slot.entry = Some(entry);
        }
    }

    /// Gives an id back that was reserved and is not needed.
    pub(crate) fn give_back(&mut self, id: ChannelId) {
        if let Some(index) = Self::index(id) {
            let _ = self.free.push_within_capacity(index as u32);
        }
    }

    fn index(id: ChannelId) -> Option<usize> {
        (id.0 & INDEX_MASK)
            .checked_sub(1)
            .map(|index| index as usize)
    }

    /// What has this id, if it is still there.
    pub(crate) fn get(&self, id: ChannelId) -> Option<&Arc<T>> {
        let slot = self.slots.get(Self::index(id)?)?;
        match slot.generation & GENERATION_MASK == id.0 >> INDEX_BITS {
            true => slot.entry.as_ref(),
            false => None,
        }
    }

    /// Takes it out.
    pub(crate) fn remove(&mut self, id: ChannelId) -> Option<Arc<T>> {
        self.get(id)?;
        let index = Self::index(id)?;
        let entry = self.slots.get_mut(index)?.entry.take()?;
        let _ = self.free.push_within_capacity(index as u32);
        Some(entry)
    }

    /// The first one at or after an index, and its index: for walking over all of them without
    /// holding the table's lock all the way.
    pub(crate) fn at_or_after(&self, index: usize) -> Option<(usize, Arc<T>)> {
        self.slots
            .iter()
            .enumerate()
            .skip(index)
            .find_map(|(index, slot)| Some((index, slot.entry.clone()?)))
    }
}
