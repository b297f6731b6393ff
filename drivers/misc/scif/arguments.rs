// SPDX-License-Identifier: GPL-2.0

//! What every front door parses into: ports, options, flags.
//!
//! The numbers of the flags are those of the interface's documentation, the same for user space and
//! for kernel clients; the UAPI header has only structures and ioctl numbers. Unknown bits are
//! refused here, once for all front doors. Nothing is done here.

use crate::{
    logic::marks::Origin,
    sys::buffer::Buffer, //
};
use kernel::prelude::*;

/// Memory may be read (`SCIF_PROT_READ`).
pub(crate) const PROTECTION_READ: u32 = 1;
/// Memory may be written (`SCIF_PROT_WRITE`).
pub(crate) const PROTECTION_WRITE: u32 = 2;

/// Besides those, of a window: nobody may hold it for longer than a transfer takes, by a mapping or
/// otherwise, because its memory may be used for something else as soon as it is closed.
pub(crate) const TRANSFERS_ONLY: u32 = 4;

/// Besides those, of a window: it lies nowhere, and is there for one copy that the peer is asked for.
pub(crate) const UNLISTED: u32 = 8;

/// Accept waits.
pub(crate) const ACCEPT_SYNC: i32 = 1;
/// Send or receive waits.
pub(crate) const MESSAGE_BLOCK: i32 = 1;
/// A window has to be where it is wanted.
pub(crate) const MAP_FIXED: i32 = 0x10;

const MAP_KERNEL: i32 = 0x20;
const FENCE_INIT_SELF: i32 = 1;
const FENCE_INIT_PEER: i32 = 2;
const SIGNAL_LOCAL: i32 = 0x10;
const SIGNAL_REMOTE: i32 = 0x20;
const RMA_USECPU: i32 = 1;
const RMA_USECACHE: i32 = 2;
const RMA_SYNC: i32 = 4;
const RMA_ORDERED: i32 = 8;

/// A node and a port on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortId {
    /// The id of the node.
    pub node: u16,
    /// The port; 0 is none.
    pub port: u16,
}

/// Which way the bytes of a transfer go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the peer's window into ours.
    Read,
    /// From our window into the peer's.
    Write,
}

impl Direction {
    /// What the local side and the remote one have to allow.
    pub(crate) fn needs(self) -> (u32, u32) {
        match self {
            Self::Read => (PROTECTION_WRITE, PROTECTION_READ),
            Self::Write => (PROTECTION_READ, PROTECTION_WRITE),
        }
    }
}

/// The local side of a transfer, as the caller names it.
pub(crate) enum LocalSide {
    /// Windows, from this offset on.
    Windows(i64),
    /// Memory of the caller.
    Memory(Buffer),
}

impl LocalSide {
    /// Whether it is memory that stays the caller's, and is not pinned.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self, Self::Memory(memory) if memory.user_address().is_none())
    }

    /// Where in our windows it is; none if it is not.
    pub(crate) fn offset(&self) -> Option<i64> {
        match self {
            Self::Windows(offset) => Some(*offset),
            Self::Memory(_) => None,
        }
    }
}

/// How the caller wants a transfer done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferOptions {
    /// By CPU, not by engine.
    pub(crate) use_cpu: bool,
    /// Keep the pages of memory that is no window for later transfers.
    pub(crate) use_cache: bool,
    /// Complete on return.
    pub(crate) synchronous: bool,
    /// The last cache line of the source becomes visible last.
    pub(crate) ordered: bool,
}

impl TransferOptions {
    /// EINVAL for an unknown flag.
    pub(crate) fn parse(flags: i32) -> Result<Self> {
        if flags & !(RMA_USECPU | RMA_USECACHE | RMA_SYNC | RMA_ORDERED) != 0 {
            return Err(EINVAL);
        }
        Ok(Self {
            use_cpu: flags & RMA_USECPU != 0,
            use_cache: flags & RMA_USECACHE != 0,
            synchronous: flags & RMA_SYNC != 0,
            ordered: flags & RMA_ORDERED != 0,
        })
    }

    /// The flags that [`Self::parse`] makes these of.
    pub(crate) fn flags(self) -> i32 {
        i32::from(self.use_cpu) * RMA_USECPU
            | i32::from(self.use_cache) * RMA_USECACHE
            | i32::from(self.synchronous) * RMA_SYNC
            | i32::from(self.ordered) * RMA_ORDERED
    }
}

/// What may be done with a window, and whether its place is fixed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowOptions {
    /// Of [`PROTECTION_READ`] and [`PROTECTION_WRITE`], one at least.
    pub(crate) protection: u32,
    /// At the offset that was named and nowhere else.
    pub(crate) fixed: bool,
}

impl WindowOptions {
    /// EINVAL for an unknown flag or no protection.
    pub(crate) fn parse(protection: i32, flags: i32) -> Result<Self> {
        Ok(Self {
            protection: self::protection(protection as u32)?,
            fixed: is_set(flags, MAP_FIXED)?,
        })
    }
}

/// A value and where in a window a fence signal puts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignalTarget {
    pub(crate) offset: i64,
    pub(crate) value: u64,
}

/// The words that a fence signal stores, on either side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignalTargets {
    /// In our window.
    pub(crate) local: Option<SignalTarget>,
    /// In the peer's.
    pub(crate) remote: Option<SignalTarget>,
}

impl SignalTargets {
    /// Takes those that the flags want, and tells whose transfers the signal waits for. EINVAL for an unknown flag, for
    /// no place, or unless exactly one side's transfers are meant.
    pub(crate) fn parse(
        flags: i32,
        local: SignalTarget,
        remote: SignalTarget,
    ) -> Result<(Origin, Self)> {
        let places = SIGNAL_LOCAL | SIGNAL_REMOTE;
        if flags & places == 0 {
            return Err(EINVAL);
        }
        let targets = Self {
            local: (flags & SIGNAL_LOCAL != 0).then_some(local),
            remote: (flags & SIGNAL_REMOTE != 0).then_some(remote),
        };
        Ok((origin(flags & !places)?, targets))
    }
}

/// Whose transfers a mark is for: exactly one side's, or EINVAL.
pub(crate) fn origin(flags: i32) -> Result<Origin> {
    match flags {
        FENCE_INIT_SELF => Ok(Origin::Own),
        FENCE_INIT_PEER => Ok(Origin::Peer),
        _ => Err(EINVAL),
    }
}

/// What may be done with memory, one of the two at least; EINVAL otherwise.
pub(crate) fn protection(flags: u32) -> Result<u32> {
    match flags & !(PROTECTION_READ | PROTECTION_WRITE) {
        0 if flags != 0 => Ok(flags),
        _ => Err(EINVAL),
    }
}

/// Whether memory is the kernel's, which clients in the kernel say by a flag, and the other flags.
pub(crate) fn take_map_kernel(flags: i32) -> (bool, i32) {
    (flags & MAP_KERNEL != 0, flags & !MAP_KERNEL)
}

/// Whether a flag is there; EINVAL if there is another one.
pub(crate) fn is_set(flags: i32, flag: i32) -> Result<bool> {
    if flags & !flag != 0 {
        return Err(EINVAL);
    }
    Ok(flags != 0)
}
