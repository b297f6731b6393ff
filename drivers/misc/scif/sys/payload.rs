// SPDX-License-Identifier: GPL-2.0

//! Data of a sister module that is on its way to a peer: memory in pieces, which its owner releases
//! as soon as it was sent.
//!
//! An engine reads the pieces through a mapping for its device. Without an engine, the owner copies
//! the bytes itself.

use super::{
    bus_range::BusRange,
    dma_map::{
        map_phys,
        unmap_phys,
        SHARED, //
    },
    reached::Room,
};
use kernel::{
    device::Device,
    dma::DataDirection,
    prelude::*,
    sync::aref::ARef, //
};

/// Bytes that are to be sent to a peer. The drop releases them.
///
/// # Safety
///
/// The memory that [`Payload::piece`] describes can be read until the value is dropped.
pub unsafe trait Payload: Send + Sync {
    /// Returns the physical address and the length of a piece, or `None` behind the last one. The
    /// pieces in their order are the bytes.
    fn piece(&self, index: usize) -> Option<(u64, u32)>;

    /// Copies the bytes from an offset on to memory of the peer, as many as it has room for.
    fn copy_to(&self, from: u32, room: &Room<'_>) -> Result;
}

/// A payload whose pieces an engine can read. The drop unmaps and releases it.
///
/// # Invariants
///
/// Each run is mapped for the device, with [`ATTRIBUTES`].
pub(crate) struct MappedPayload {
    device: ARef<Device>,
    runs: KVec<(u64, u32)>,
    payload: KBox<dyn Payload>,
}

const DIRECTION: DataDirection = DataDirection::ToDevice;

/// A platform that needs cache maintenance refuses these, and the CPU copies.
const ATTRIBUTES: c_ulong = SHARED;

/// A place in a mapped payload.
pub(crate) struct Cursor {
    run: usize,
    offset: u32,
}

impl Cursor {
    /// The place of the first byte.
    pub(crate) const START: Self = Self { run: 0, offset: 0 };
}

impl MappedPayload {
    /// Maps the pieces for the engine of a device. Gives the payload back if that can't be done.
    /// Context: any but hard interrupts.
    pub(crate) fn new(
        device: &ARef<Device>,
        payload: KBox<dyn Payload>,
    ) -> Result<Self, KBox<dyn Payload>> {
        // INVARIANT: There are no runs.
        let mut this = Self {
            device: device.clone(),
            runs: KVec::new(),
            payload,
        };
        match this.map() {
            Ok(()) => Ok(this),
            Err(_) => Err(this.into_payload()),
        }
    }

    fn map(&mut self) -> Result {
        let mut pieces = 0;
        while let Some((phys, len)) = self.payload.piece(pieces) {
            self.runs.reserve(1, GFP_ATOMIC | __GFP_NOWARN)?;
            // SAFETY: The payload keeps the memory, and outlives the mapping: `unmap` comes before.
            let bus = unsafe { map_phys(&self.device, phys, len as usize, DIRECTION, ATTRIBUTES) }?;
            // INVARIANT: The piece has just been mapped. There is room for it.
            let _ = self.runs.push_within_capacity((bus, len));
            pieces += 1;
        }
        Ok(())
    }

    fn unmap(&mut self) {
        for (bus, len) in self.runs.drain_all() {
            // SAFETY: By the type invariant, and as the run leaves the list.
            unsafe { unmap_phys(&self.device, bus, len as usize, DIRECTION, ATTRIBUTES) };
        }
    }

    fn into_payload(self) -> KBox<dyn Payload> {
        let mut this = core::mem::ManuallyDrop::new(self);
        this.unmap();
        // SAFETY: `this` is not dropped, and none of its fields is used afterwards.
        unsafe {
            core::ptr::drop_in_place(&mut this.device);
            core::ptr::drop_in_place(&mut this.runs);
            core::ptr::read(&this.payload)
        }
    }

    /// Returns the payload.
    pub(crate) fn payload(&self) -> &dyn Payload {
        &*self.payload
    }

    /// Returns the bytes at a place, at most `most` of them, and moves the place behind them. `None`
    /// at the end.
    pub(crate) fn take(&self, place: &mut Cursor, most: u32) -> Option<BusRange<'_>> {
        let (bus, len) = *self.runs.get(place.run)?;
        let count = most.min(len.checked_sub(place.offset)?);
        let start = bus.checked_add(place.offset.into())?;
        place.offset += count;
        if place.offset == len {
            *place = Cursor {
                run: place.run + 1,
                offset: 0,
            };
        }
        // SAFETY: By the type invariant; the bytes are a part of the run.
        Some(unsafe { BusRange::new(&self.device, start, count.into()) })
    }
}

impl Drop for MappedPayload {
    fn drop(&mut self) {
        self.unmap();
    }
}
