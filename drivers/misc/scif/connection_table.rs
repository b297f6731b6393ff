// SPDX-License-Identifier: GPL-2.0

//! The connections of one session, by id.
//!
//! An id is an index with a generation, so that a message about a connection that is gone does not
//! reach the one that took its place. Ids are all that the peer ever learns of a connection.

use crate::{
    connection::Connection,
    logic::wire::ConnectionId, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
/// More connections than this at once are refused with ENOSPC.
const MAX_CONNECTIONS: usize = 1 << 16;

struct Slot {
    generation: u32,
    connection: Option<Arc<Connection>>,
}

/// See the head of this file.
pub(crate) struct ConnectionTable {
    slots: KVVec<Slot>,
    free: KVVec<u32>,
    used: usize,
}

impl ConnectionTable {
    pub(crate) const fn new() -> Self {
        Self {
            slots: KVVec::new(),
            free: KVVec::new(),
            used: 0,
        }
    }

    /// Puts the connection that `make` makes for its new id into the table.
    pub(crate) fn insert(
        &mut self,
        make: impl FnOnce(ConnectionId) -> Result<Arc<Connection>>,
    ) -> Result<Arc<Connection>> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                if self.slots.len() >= MAX_CONNECTIONS {
                    return Err(ENOSPC);
                }
                // Room to give the index back is made here, so that `remove` can't fail.
                let missing = (self.slots.len() + 1).saturating_sub(self.free.len());
                self.free.reserve(missing, GFP_KERNEL)?;
                self.slots.push(
                    Slot {
                        generation: 0,
                        connection: None,
                    },
                    GFP_KERNEL,
                )?;
                (self.slots.len() - 1) as u32
            }
        };
        let slot = self.slots.get_mut(index as usize).ok_or(EINVAL)?;
        slot.generation = slot.generation.wrapping_add(1);
        let id = ConnectionId(slot.generation << INDEX_BITS | (index + 1));
        match make(id) {
            Ok(connection) => {
                slot.connection = Some(connection.clone());
                self.used += 1;
                Ok(connection)
            }
            Err(error) => {
                let _ = self.free.push_within_capacity(index);
                Err(error)
            }
        }
    }

    fn index(id: ConnectionId) -> Option<usize> {
        (id.0 & INDEX_MASK)
            .checked_sub(1)
            .map(|index| index as usize)
    }

    /// The connection with this id, if it is still there.
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Arc<Connection>> {
        let connection = self.slots.get(Self::index(id)?)?.connection.as_ref()?;
        (connection.id == id).then_some(connection)
    }

    /// Takes the connection out.
    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Arc<Connection>> {
        self.get(id)?;
        let index = Self::index(id)?;
        let connection = self.slots.get_mut(index)?.connection.take()?;
        let _ = self.free.push_within_capacity(index as u32);
        self.used -= 1;
        Some(connection)
    }

    /// The first connection at or after an index, and its index: for walking over all of them
    /// without holding the table's lock all the way.
    pub(crate) fn at_or_after(&self, index: usize) -> Option<(usize, Arc<Connection>)> {
        self.slots
            .iter()
            .enumerate()
            .skip(index)
            .find_map(|(index, slot)| Some((index, slot.connection.clone()?)))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.used
    }
}
