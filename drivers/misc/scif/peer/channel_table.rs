// SPDX-License-Identifier: GPL-2.0

//! What a service has of one peer, by channel id.
//!
//! Ids are given out in order, and begin anew when there are no more, so that a message about a channel that
//! is gone does not reach one that took its place. Those are left out whose slot for news has more channels than another
//! one: else who keeps channels of one slot only would have others in that slot wait. Ids are all that the peer ever learns
//! of a channel.

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

/// More channels than this at once are refused with ENOSPC.
pub(crate) const MAX_CHANNELS: usize = 1 << 16;

/// See the head of this file.
pub(crate) struct ChannelTable<T> {
    channels: RBTree<ChannelId, Arc<T>>,
    count: usize,
    last: u32,
    news: News,
    /// How many channels each slot for news has.
    of_slots: KVVec<u16>,
}

impl<T> ChannelTable<T> {
    /// Nothing yet. May sleep.
    pub(crate) fn new(news: News) -> Result<Self> {
        Ok(Self {
            channels: RBTree::new(),
            count: 0,
            last: 0,
            news,
            of_slots: KVVec::from_elem(0, news.slots() as usize, GFP_KERNEL)?,
        })
    }

    /// How many channels share the slot of this id.
    fn of_slot(&mut self, id: ChannelId) -> Option<&mut u16> {
        self.of_slots.get_mut(self.news.slot(id.0) as usize)
    }

    /// Returns how many channels the emptiest slot has.
    fn least(&self) -> u16 {
        self.of_slots.iter().min().map_or(0, |count| *count)
    }

    /// Returns an id for something that is yet to be made, and may then be put in.
    pub(crate) fn next_id(&mut self) -> ChannelId {
        // Looked for only where a slot is taken, as no slot has fewer than none.
        let mut least = None;
        loop {
            self.last = self.last.wrapping_add(1);
            let id = ChannelId(self.last);
            let count = self.of_slot(id).map_or(0, |count| *count);
            let is_least = count == 0 || count == *least.get_or_insert_with(|| self.least());
            let is_wanted = is_least && id != ChannelId::NONE;
            // There are fewer of them than numbers.
            if is_wanted && self.channels.get(&id).is_none() {
                return id;
            }
        }
    }

    /// Has something found by the id that [`Self::next_id`] gave it: ENOSPC if there are too many.
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

    /// What has this id, if it is still there.
    pub(crate) fn get(&self, id: ChannelId) -> Option<&Arc<T>> {
        self.channels.get(&id)
    }

    /// Takes it out.
    pub(crate) fn remove(&mut self, id: ChannelId) -> Option<Arc<T>> {
        let removed = self.channels.remove(&id)?;
        self.count -= 1;
        if let Some(count) = self.of_slot(id) {
            *count -= 1;
        }
        Some(removed)
    }

    /// The first one behind an id, and its id: for walking over all of them without holding the table's
    /// lock all the way.
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
    fn who_keeps_those_of_one_slot_gets_no_more_of_it_than_of_others() -> Result {
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
        // All others are filled up to that before.
        assert!(table.count <= 3);
        Ok(())
    }
}
