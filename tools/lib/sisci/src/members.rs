// SPDX-License-Identifier: LGPL-2.1

//! The nodes that a broadcast map reaches: a map of each one's segment.
//!
//! A node that is away keeps its place; one that is lost loses it when another one joins.

use std::sync::Arc;

use crate::changes::Part;
use crate::import::Import;
use crate::mapping::Place;
use crate::nodes;
use crate::remote_map::RemoteMap;
use crate::remote_segment::Imports;

/// Counts for the epoch of a node whose segment is lost: no node gets there.
const LOST: u64 = 1 << 40;

/// One node.
#[derive(Clone)]
pub struct Member {
    import: Arc<Import>,
    map: Arc<RemoteMap>,
}

/// How a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Changes whenever a member goes, or comes.
    pub epoch: u64,
    /// Grows with each failed access.
    pub errors: u64,
    /// A member is away that may come back.
    pub is_away: bool,
    /// None is left.
    pub is_lost: bool,
}

/// See the head of this file.
#[derive(Default)]
pub struct Members {
    list: Vec<Member>,
    /// Where the maps of them begin.
    addresses: Vec<usize>,
    /// How many were lost, and have no place any more.
    lost: u64,
}

impl Member {
    /// Maps that part of a node's segment.
    pub fn new(import: &Arc<Import>, offset: u64, size: usize) -> crate::error::Result<Self> {
        Ok(Self {
            import: import.clone(),
            map: import.map(offset, size, true, Place::Any)?,
        })
    }
}

impl Members {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Those of a group that are none yet.
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

    /// These and others, without those that are lost.
    pub fn with(&self, others: Vec<Member>) -> Self {
        let (lost, mut list): (Vec<_>, Vec<_>) = self
            .list
            .iter()
            .cloned()
            .partition(|member| member.import.is_over());
        list.extend(others);
        let addresses = list.iter().map(|member| member.map.address() as usize);
        Self {
            addresses: addresses.collect(),
            list,
            lost: self.lost + lost.len() as u64,
        }
    }

    /// Stores a part of a word at each.
    ///
    /// # Safety
    ///
    /// The maps have so many words.
    pub unsafe fn store(&self, index: usize, part: Part, value: u64) {
        for address in &self.addresses {
            // SAFETY: By the contract of this function.
            unsafe { part.store((*address as *mut u64).add(index), value) };
        }
    }

    /// Stores these bytes at each.
    ///
    /// # Safety
    ///
    /// Both have so many bytes.
    pub unsafe fn copy(&self, from: *const u8, offset: usize, size: usize) {
        for address in &self.addresses {
            // SAFETY: By the contract of this function.
            unsafe {
                core::ptr::copy_nonoverlapping(from, (*address as *mut u8).add(offset), size)
            };
        }
    }

    /// Returns when all that was stored has arrived.
    pub fn read_back(&self) {
        for member in &self.list {
            // SAFETY: It has a word at least.
            unsafe { member.map.address().cast::<u32>().read_volatile() };
        }
    }

    /// One that is memory of a test.
    #[cfg(test)]
    pub fn of_memory(address: *mut u64) -> Self {
        Self {
            addresses: vec![address as usize],
            ..Self::default()
        }
    }

    /// How the group stands.
    pub fn standing(&self) -> Standing {
        let mut standing = Standing {
            epoch: self.lost.wrapping_mul(LOST).wrapping_add(1),
            errors: 0,
            is_away: false,
            is_lost: true,
        };
        for member in &self.list {
            if member.import.is_over() {
                standing.epoch = standing.epoch.wrapping_add(LOST);
                continue;
            }
            let Ok(node) = nodes::status(member.import.node()) else {
                continue;
            };
            let epoch = member.import.epoch();
            standing.is_away |= epoch != Some(node.epoch());
            standing.is_lost = false;
            standing.epoch = standing.epoch.wrapping_add(node.epoch());
            standing.errors = standing.errors.wrapping_add(node.errors());
        }
        standing
    }
}
