// SPDX-License-Identifier: LGPL-2.1

//! The nodes that a broadcast map reaches: a map of each one's segment, or copies to it where it can't be mapped.
//!
//! A node that is away keeps its place; one that is lost loses it when another one joins.

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

/// Counts for the epoch of a node whose segment is lost: no node gets there.
const LOST: u64 = 1 << 40;

/// One node.
#[derive(Clone)]
pub struct Member {
    import: Arc<Import>,
    way: Way,
}

/// How its segment is reached.
#[derive(Clone)]
enum Way {
    Map(Arc<RemoteMap>),
    Copies(Arc<RemoteCopies>),
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
    /// Where the maps of them begin, of those that have one.
    addresses: Vec<usize>,
    /// The others.
    copies: Vec<Arc<RemoteCopies>>,
    /// How many were lost, and have no place any more.
    lost: u64,
}

impl Member {
    /// With that part of a node's segment.
    pub fn new(import: &Arc<Import>, offset: u64, size: usize) -> Result<Self> {
        let way = match import.map(offset, size, true, Place::Any) {
            Err(Error::NOT_SUPPORTED) => Way::Copies(import.copies(offset)?),
            map => Way::Map(map?),
        };
        Ok(Self {
            import: import.clone(),
            way,
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
        let (mut addresses, mut copies) = (Vec::new(), Vec::new());
        for member in &list {
            match &member.way {
                Way::Map(map) => addresses.push(map.address() as usize),
                Way::Copies(way) => copies.push(way.clone()),
            }
        }
        Self {
            addresses,
            copies,
            list,
            lost: self.lost + lost.len() as u64,
        }
    }

    /// Whether some are reached by copies.
    pub fn have_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Stores a part of a word at each that has a map.
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

    /// Copies bytes of memory to each that has no map, to the same place.
    ///
    /// # Safety
    ///
    /// The memory has them.
    pub unsafe fn copy_part(&self, from: *const u8, bytes: Range<usize>) {
        if bytes.is_empty() {
            return;
        }
        for copies in &self.copies {
            // SAFETY: By the contract of this function.
            unsafe { copies.copy(from, bytes.start, bytes.len()) };
        }
    }

    /// Stores bytes of memory at each, at the same place.
    ///
    /// # Safety
    ///
    /// The memory has them, and so have the maps.
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

    /// Returns when all that was stored has arrived. What was copied has.
    pub fn read_back(&self) {
        for address in &self.addresses {
            // SAFETY: The map has a word at least.
            unsafe { (*address as *const u32).read_volatile() };
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
