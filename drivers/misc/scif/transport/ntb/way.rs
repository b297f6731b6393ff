// SPDX-License-Identifier: GPL-2.0

//! How a peer gets to our memory through the aperture over it.

use super::aperture::{
    Aperture,
    Behind, //
};
use crate::{
    logic::window_set::Shape,
    sys::{
        arena::{
            Access,
            Arena, //
        },
        dma_map,
        ntb::NtbDevice,
        pages::Pages,
        pool::Pool,
        shared_memory::{
            Payer,
            SharedMemory,
            User, //
        }, //
    },
    transport::inbound::{
        Export,
        Limits, //
    },
};
use kernel::{
    device::Device,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
};

/// Beside an arena, in which most windows lie, for those that find no place.
const STAGING_BESIDE_ARENA: u64 = 256 << 10;

/// How long a piece may be that is to find a place: other things are there, too.
const fn piece(shape: Shape) -> u64 {
    shape.longest() / 2
}

/// No more than this: the slots are then as long as an engine is good for.
const MOST_STAGING: u64 = 1 << 20;

/// How large the ring of one connection may become in a pool, one part in so many of it.
const RING_PARTS: u64 = 32;

/// What every ring may have, however little is left: others may still come.
const SMALLEST_RING: u64 = 256;

/// How much of a pool one who asks may have: the ring of a connection is one of many, and more so at first than when
/// it has turned out to be used.
fn most_of(pool: &Pool, payer: Payer<'_>) -> u64 {
    let free = pool.size().saturating_sub(pool.bytes_taken());
    match payer {
        Payer::Nobody => free,
        Payer::Caller => (free / 96).max(SMALLEST_RING),
        Payer::OwnerOf(_) => free / 8,
    }
}

/// See the head of this file.
#[derive(Clone)]
pub(super) enum Way {
    /// Flat, by physical addresses: nothing has to be mapped before it is reached.
    Physical,
    /// Flat, by addresses of a device for which memory is mapped.
    Device(ARef<Device>),
    /// By a place in this.
    Arena(Arc<Arena>),
    /// Not at all, but for what lies in this.
    Pool(Arc<Pool>),
}

impl Way {
    /// Through this aperture. May sleep.
    pub(super) fn through(aperture: &Aperture, device: &NtbDevice) -> Self {
        let dma_device = device.dma_device();
        match &aperture.behind {
            Behind::Arena(arena) => Self::Arena(arena.clone()),
            Behind::Pool(pool) => Self::Pool(pool.clone()),
            Behind::All if dma_map::bus_is_physical(&dma_device) => Self::Physical,
            Behind::All => Self::Device(dma_device),
        }
    }

    /// See [`Inbound::share`](crate::transport::inbound::Inbound::share).
    pub(super) fn share(&self, len: usize, payer: Payer<'_>) -> Result<SharedMemory> {
        let user = match self {
            Self::Physical => User::Physical,
            Self::Device(device) => User::Device(device),
            Self::Arena(arena) => User::Arena(arena),
            Self::Pool(pool) if len as u64 > most_of(pool, payer) => return Err(ENOMEM),
            Self::Pool(pool) => User::Pool(pool),
        };
        match SharedMemory::new(len, user, payer) {
            // What the callers of SCIF know.
            Err(ENOSPC) => Err(ENOMEM),
            memory => memory,
        }
    }

    /// See [`Inbound::export`](crate::transport::inbound::Inbound::export).
    pub(super) fn export(&self, pages: &Arc<Pages>, access: Access) -> Result<Export> {
        match self {
            Self::Physical => Ok(Export::physical(pages)),
            Self::Device(device) => Export::through(pages, device),
            Self::Arena(arena) => match Export::within(pages, arena, access) {
                Err(ENOSPC) => Export::nowhere(),
                export => export,
            },
            Self::Pool(_) => Export::nowhere(),
        }
    }

    /// See [`Inbound::limits`](crate::transport::inbound::Inbound::limits).
    pub(super) fn limits(&self) -> Limits {
        match self {
            Self::Physical | Self::Device(_) => Limits::NONE,
            Self::Arena(arena) => Limits {
                // Most of it is for windows.
                staging: STAGING_BESIDE_ARENA
                    .min(arena.size() / 8)
                    .min(piece(arena.shape())) as usize,
                ..Limits::NONE
            },
            // Neither is larger than a pool may be.
            Self::Pool(pool) => Limits {
                // The other half of the smallest one has room for the control block and 107 of the smallest rings.
                staging: (pool.size() / 2).min(MOST_STAGING).min(piece(pool.shape())) as usize,
                ring: (pool.size() / RING_PARTS) as u32,
            },
        }
    }
}
