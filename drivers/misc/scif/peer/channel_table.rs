// SPDX-License-Identifier: GPL-2.0

//! What a service has of one peer, by channel id.
//!
//! Ids are given out in order, and begin anew when there are no more, so that a message about a channel that
//! is gone does not reach one that took its place. Ids are all that the peer ever learns of a channel.

use crate::logic::envelope::ChannelId;
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
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
}

impl<T> ChannelTable<T> {
    pub(crate) fn new() -> Self {
        Self {
            channels: RBTree::new(),
            count: 0,
            last: 0,
        }
    }

    /// Returns an id for something that is yet to be made, and may then be put in.
    pub(crate) fn next_id(&mut self) -> ChannelId {
        loop {
            self.last = self.last.wrapping_add(1);
            let id = ChannelId(self.last);
            // There are fewer of them than numbers.
            if id != ChannelId::NONE && self.channels.get(&id).is_none() {
                return id;
            }
        }
    }

    /// Has something found by the id that [`Self::next_id`] gave it: ENOSPC if there are too many.
    pub(crate) fn insert(&mut self, node: RBTreeNode<ChannelId, Arc<T>>) -> Result {
        if self.count >= MAX_CHANNELS {
            return Err(ENOSPC);
        }
        self.count += 1;
        self.channels.insert(node);
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
