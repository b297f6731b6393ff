// SPDX-License-Identifier: LGPL-2.1

//! The nodes that a broadcast map reaches: each by a map of its segment, or by copies where the
//! segment can't be mapped.
//!
//! A node that is away keeps its place. A node that is lost loses its place when another one joins.

use std::ops::Range;
use std::sync::Arc;

use crate::changes::Part;
use crate::error::Error;
use crate::error::Result;
use crate::import::Import;
use crate::mapping::Place;
use crate::nodes;
use crate::remote_copies::RemoteCopies;
use crate::remote_map::RemoteMap;
use crate::remote_segment::Imports;

/// Added to the epoch for each node whose segment is lost: no node's own epoch gets there.
const LOST: u64 = 1 << 40;

/// A node of the group.
#[derive(Clone)]
pub struct Member {
    import: Arc<Import>,
    access: Access,
}

/// The means by which a node's segment is accessed.
#[derive(Clone)]
enum Access {
    Map(Arc<RemoteMap>),
    Copies(Arc<RemoteCopies>),
}

/// The state of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupState {
    /// Changes whenever a member goes or comes.
    pub epoch: u64,
    /// Grows with each failed access.
    pub errors: u64,
    /// Whether a member is out of reach that may come back.
    pub is_away: bool,
    /// Whether no member is left.
    pub is_lost: bool,
}

/// The members of a group.
#[derive(Default)]
pub struct Members {
    list: Vec<Member>,
    /// The addresses of the maps, of members that have one.
    addresses: Vec<usize>,
    /// The copies of the other members.
    copies: Vec<Arc<RemoteCopies>>,
    /// Number of members that were lost and have no place any more.
    lost: u64,
}

impl Member {
    /// Makes a member of this part of a node's segment.
    pub fn new(import: &Arc<Import>, offset: u64, size: usize) -> Result<Self> {
        let access = match import.map(offset, size, true, Place::Any) {
            Err(Error::NOT_SUPPORTED) => Access::Copies(import.copies(offset)?),
            map => Access::Map(map?),
        };
        Ok(Self {
            import: import.clone(),
            access,
        })
    }
}

impl Members {
    /// Returns whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the imports of a group that are no members yet.
    pub fn missing(&self, imports: &Imports) -> Vec<Arc<Import>> {
        let is_member = |import: &Arc<Import>| {
            let mut members = self.list.iter();
            members.any(|member| Arc::ptr_eq(&member.import, import))
        };
        let missing = imports
            .iter()
            .filter(|import| !import.is_over() && !is_member(import));
        missing.cloned().collect()
    }

    /// Returns these members and others, without the lost ones.
    pub fn with(&self, others: Vec<Member>) -> Self {
        let (lost, mut list): (Vec<_>, Vec<_>) = self
            .list
            .iter()
            .cloned()
            .partition(|member| member.import.is_over());
        list.extend(others);
        let (mut addresses, mut copies) = (Vec::new(), Vec::new());
        for member in &list {
            match &member.access {
                Access::Map(map) => addresses.push(map.address() as usize),
                Access::Copies(remote) => copies.push(remote.clone()),
            }
        }
        Self {
            addresses,
            copies,
            list,
            lost: self.lost + lost.len() as u64,
        }
    }

    /// Returns whether some members are reached by copies.
    pub fn have_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Stores a part of a word at each member that has a map.
    ///
    /// # Safety
    ///
    /// The word is inside the maps.
    pub unsafe fn store(&self, index: usize, part: Part, value: u64) {
        for address in &self.addresses {
            // SAFETY: By the contract of this function.
            unsafe { part.store((*address as *mut u64).add(index), value) };
        }
    }

    /// Copies bytes of memory to the same place of each member that has no map.
    ///
    /// # Safety
    ///
    /// The bytes are inside the memory.
    pub unsafe fn copy_part(&self, from: *const u8, bytes: Range<usize>) {
        if bytes.is_empty() {
            return;
        }
        for copies in &self.copies {
            // SAFETY: By the contract of this function.
            unsafe { copies.copy(from, bytes.start, bytes.len()) };
        }
    }

    /// Stores bytes of memory at the same place of each member.
    ///
    /// # Safety
    ///
    /// The bytes are inside the memory and the maps.
    pub unsafe fn copy(&self, from: *const u8, bytes: Range<usize>) {
        let (start, size) = (bytes.start, bytes.len());
        for address in &self.addresses {
            // SAFETY: By the contract of this function.
            unsafe {
                let to = (*address as *mut u8).add(start);
                core::ptr::copy_nonoverlapping(from.add(start), to, size);
            };
        }
        // SAFETY: By the contract of this function.
        unsafe { self.copy_part(from, bytes) };
    }

    /// Returns when all stores have arrived. Copies have arrived already.
    pub fn read_back(&self) {
        for address in &self.addresses {
            // SAFETY: The map has at least one word.
            unsafe { (*address as *const u32).read_volatile() };
        }
    }

    /// Makes a member of a test's memory.
    #[cfg(test)]
    pub fn of_memory(address: *mut u64) -> Self {
        Self {
            addresses: vec![address as usize],
            ..Self::default()
        }
    }

    /// Returns the state of the group.
    pub fn group_state(&self) -> GroupState {
        let mut state = GroupState {
            epoch: self.lost.wrapping_mul(LOST).wrapping_add(1),
            errors: 0,
            is_away: false,
            is_lost: true,
        };
        for member in &self.list {
            if member.import.is_over() {
                state.epoch = state.epoch.wrapping_add(LOST);
                continue;
            }
            let Ok(node) = nodes::status(member.import.node()) else {
                continue;
            };
            let epoch = member.import.epoch();
            state.is_away |= epoch != Some(node.epoch());
            state.is_lost = false;
            state.epoch = state.epoch.wrapping_add(node.epoch());
            state.errors = state.errors.wrapping_add(node.errors());
        }
        state
    }
}
