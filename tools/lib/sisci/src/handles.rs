// SPDX-License-Identifier: LGPL-2.1

//! Handles, which programs hold instead of pointers.
//!
//! A handle contains the kind of a resource, a generation, and the index in the table of that kind.
//! The table detects a handle that was made up, that belongs to a released resource, or that is of
//! another kind. No handle is ever dereferenced.
//!
//! Lock: `slots` is a leaf. A resource that is taken out is dropped by the caller.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::RwLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use crate::error::Error;
use crate::error::Result;
use crate::lock::Locked as _;
use crate::process::NewProcess;
use crate::process::PerProcess;

/// A handle, as programs hold it.
pub type Handle = *mut c_void;

/// Largest number of resources of a kind.
const MOST: usize = 1 << 20;

const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 32;

/// The parts of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The kind of resource.
    pub kind: u8,
    /// Number of resources of the kind that were made before, also in parents of this process.
    pub generation: u32,
    /// The index in the table.
    pub index: usize,
}

impl Parts {
    /// Returns the handle of these parts, which is never null.
    pub fn handle(self) -> Handle {
        let place = self.index.wrapping_add(1) & ((1 << INDEX_BITS) - 1);
        let generation = (self.generation as usize) << INDEX_BITS;
        let kind = usize::from(self.kind) << (INDEX_BITS + GENERATION_BITS);
        (kind | generation | place) as Handle
    }

    /// Returns the parts of a handle, which may be any number.
    pub fn of(handle: Handle) -> Option<Self> {
        let number = handle as usize;
        let place = number & ((1 << INDEX_BITS) - 1);
        Some(Self {
            kind: u8::try_from(number >> (INDEX_BITS + GENERATION_BITS)).ok()?,
            generation: (number >> INDEX_BITS) as u32,
            index: place.checked_sub(1)?,
        })
    }
}

struct Slot<T> {
    generation: u32,
    object: Option<Arc<T>>,
}

/// All resources of a kind.
pub struct Table<T> {
    kind: u8,
    /// The generation of the newest resource.
    newest: AtomicU32,
    slots: PerProcess<RwLock<Vec<Slot<T>>>>,
}

impl<T> Table<T> {
    /// Creates an empty table. Kinds have different numbers, from 1 on.
    pub const fn new(kind: u8) -> Self {
        Self {
            kind,
            newest: AtomicU32::new(0),
            slots: PerProcess::new(RwLock::new(Vec::new())),
        }
    }

    /// Inserts a resource. `make` gets the handle that the resource will have.
    pub fn insert_with(&self, make: impl FnOnce(Handle) -> Arc<T>) -> Result<Handle> {
        let mut slots = self.slots.locked_to_write();
        let free = slots.iter().position(|slot| slot.object.is_none());
        let index = match free {
            Some(index) => index,
            None if slots.len() < MOST => {
                slots.push(Slot {
                    generation: 0,
                    object: None,
                });
                slots.len() - 1
            }
            None => return Err(Error::API_NOSPC),
        };
        let slot = slots.get_mut(index).ok_or(Error::API_NOSPC)?;
        slot.generation = self.newest.fetch_add(1, Relaxed).wrapping_add(1);
        let handle = Parts {
            kind: self.kind,
            generation: slot.generation,
            index,
        }
        .handle();
        slot.object = Some(make(handle));
        Ok(handle)
    }

    /// Inserts a resource.
    pub fn insert(&self, object: Arc<T>) -> Result<Handle> {
        self.insert_with(|_| object)
    }

    fn place(&self, handle: Handle) -> Result<Parts> {
        let parts = Parts::of(handle).filter(|parts| parts.kind == self.kind);
        parts.ok_or(Error::ILLEGAL_PARAMETER)
    }

    /// Returns the resource of a handle.
    pub fn get(&self, handle: Handle) -> Result<Arc<T>> {
        let parts = self.place(handle)?;
        let slots = self.slots.locked_to_read();
        let slot = slots.get(parts.index).ok_or(Error::ILLEGAL_PARAMETER)?;
        match &slot.object {
            Some(object) if slot.generation == parts.generation => Ok(object.clone()),
            _ => Err(Error::ILLEGAL_PARAMETER),
        }
    }

    /// Takes a resource out. Its handle is stale from now on.
    pub fn remove(&self, handle: Handle) -> Result<Arc<T>> {
        let parts = self.place(handle)?;
        let mut slots = self.slots.locked_to_write();
        let slot = slots.get_mut(parts.index).ok_or(Error::ILLEGAL_PARAMETER)?;
        if slot.generation != parts.generation {
            return Err(Error::ILLEGAL_PARAMETER);
        }
        slot.object.take().ok_or(Error::ILLEGAL_PARAMETER)
    }

    /// Returns all resources.
    pub fn all(&self) -> Vec<Arc<T>> {
        let slots = self.slots.locked_to_read();
        slots
            .iter()
            .filter_map(|slot| slot.object.clone())
            .collect()
    }

    /// Forgets all resources of the parent process, whose handles become stale.
    pub fn forget(&self, process: &NewProcess) {
        self.slots.renew(RwLock::new(Vec::new()), process);
    }

    /// Takes all resources out.
    pub fn take_all(&self) -> Vec<Arc<T>> {
        let mut slots = self.slots.locked_to_write();
        slots
            .iter_mut()
            .filter_map(|slot| slot.object.take())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_handle_is_refused() {
        let table = Table::new(3);
        let first = table.insert(Arc::new(1)).expect("room");
        assert_eq!(table.get(first).map(|value| *value), Ok(1));
        assert_eq!(table.remove(first).map(|value| *value), Ok(1));
        let second = table.insert(Arc::new(2)).expect("room");
        assert_ne!(first, second);
        assert_eq!(table.get(first), Err(Error::ILLEGAL_PARAMETER));
        assert_eq!(table.remove(first), Err(Error::ILLEGAL_PARAMETER));
        assert_eq!(table.get(second).map(|value| *value), Ok(2));
    }

    #[test]
    fn handle_of_another_kind_is_refused() {
        let (these, others) = (Table::new(1), Table::new(2));
        let handle = these.insert(Arc::new(())).expect("room");
        others.insert(Arc::new(())).expect("room");
        assert_eq!(others.get(handle), Err(Error::ILLEGAL_PARAMETER));
        assert_eq!(
            others.get(core::ptr::null_mut()),
            Err(Error::ILLEGAL_PARAMETER)
        );
        for made_up in [1usize, 0xffff, usize::MAX, 0x0100_0000_0000_0001] {
            assert_eq!(others.get(made_up as Handle), Err(Error::ILLEGAL_PARAMETER));
        }
    }
}
