// SPDX-License-Identifier: GPL-2.0

//! A service's channels with one peer, by channel id.
//!
//! Ids are given out in order and begin anew when they run out. So a message about a channel that
//! is gone does not reach a later channel. An id is skipped if its slot for news has more channels
//! than another slot. Otherwise a user that keeps only channels of one slot could make the others
//! in that slot wait. The peer learns nothing of a channel but its id.

use crate::logic::{
    envelope::ChannelId,
    news::News, //
};
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::Arc, //
};

/// Most channels of a table. Further ones are refused with ENOSPC.
pub(crate) const MAX_CHANNELS: usize = 1 << 16;

/// A service's channels with one peer.
pub(crate) struct ChannelTable<T> {
    channels: RBTree<ChannelId, Arc<T>>,
    count: usize,
    last: u32,
    news: News,
    /// Number of channels in each slot for news.
    of_slots: KVVec<u16>,
}

impl<T> ChannelTable<T> {
    /// Creates an empty table.
    /// Context: may sleep.
    pub(crate) fn new(news: News) -> Result<Self> {
        Ok(Self {
            channels: RBTree::new(),
            count: 0,
            last: 0,
            news,
            of_slots: KVVec::from_elem(0, news.slots() as usize, GFP_KERNEL)?,
        })
    }

    /// Returns the number of channels in the slot of this id.
    fn of_slot(&mut self, id: ChannelId) -> Option<&mut u16> {
        self.of_slots.get_mut(self.news.slot(id.0) as usize)
    }

    /// Returns the number of channels in the emptiest slot.
    fn least(&self) -> u16 {
        self.of_slots.iter().min().map_or(0, |count| *count)
    }

    /// Returns an id for a new channel, which may then be inserted.
    pub(crate) fn next_id(&mut self) -> ChannelId {
        // Finds the least count only if a slot is taken: an empty slot always has the least.
        let mut least = None;
        loop {
            self.last = self.last.wrapping_add(1);
            let id = ChannelId(self.last);
            let count = self.of_slot(id).map_or(0, |count| *count);
            let is_least = count == 0 || count == *least.get_or_insert_with(|| self.least());
            let is_wanted = is_least && id != ChannelId::NONE && id < ChannelId::FIRST_FIXED;
            // The loop ends, as there are fewer channels than ids.
            if is_wanted && self.channels.get(&id).is_none() {
                return id;
            }
        }
    }

    /// Inserts a channel under the id that [`Self::next_id`] gave it. ENOSPC if there are too many.
    pub(crate) fn insert(
        &mut self,
        id: ChannelId,
        channel: Arc<T>,
        room: RBTreeNodeReservation<ChannelId, Arc<T>>,
    ) -> Result {
        if self.count >= MAX_CHANNELS {
            return Err(ENOSPC);
        }
        self.count += 1;
        if let Some(count) = self.of_slot(id) {
            *count += 1;
        }
        self.channels.insert(room.into_node(id, channel));
        Ok(())
    }

    /// Returns the channel with this id, if it is still in the table.
    pub(crate) fn get(&self, id: ChannelId) -> Option<&Arc<T>> {
        self.channels.get(&id)
    }

    /// Removes a channel and returns it.
    pub(crate) fn remove(&mut self, id: ChannelId) -> Option<Arc<T>> {
        let removed = self.channels.remove(&id)?;
        self.count -= 1;
        if let Some(count) = self.of_slot(id) {
            *count -= 1;
        }
        Some(removed)
    }

    /// Returns the first channel behind `id`, with its own id. A caller can thus walk over all
    /// channels without holding the table's lock all the way.
    pub(crate) fn behind(&self, id: ChannelId) -> Option<(ChannelId, Arc<T>)> {
        let next = ChannelId(id.0.checked_add(1)?);
        let cursor = self.channels.cursor_lower_bound(&next)?;
        let (id, entry) = cursor.current();
        Some((*id, entry.clone()))
    }
}

#[kunit_tests(scif_peer_channel_table)]
mod tests {
    use super::*;

    #[test]
    fn keeping_channels_of_one_slot_does_not_overfill_that_slot() -> Result {
        let news = News::behind(0, 1);
        let mut table = ChannelTable::new(news)?;
        let at_once = 2 * news.slots();
        for _ in 0..10 {
            let mut ids = KVVec::new();
            for _ in 0..at_once {
                let id = table.next_id();
                let room = RBTreeNodeReservation::new(GFP_KERNEL)?;
                table.insert(id, Arc::new((), GFP_KERNEL)?, room)?;
                ids.push(id, GFP_KERNEL)?;
            }
            let others = ids.iter().filter(|id| news.slot(id.0) != 7);
            others.for_each(|id| drop(table.remove(*id)));
        }
        // All other slots are filled to the same count before.
        assert!(table.count <= 3);
        Ok(())
    }
}
