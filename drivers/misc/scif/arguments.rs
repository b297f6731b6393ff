// SPDX-License-Identifier: GPL-2.0

//! The arguments of calls, as the ioctls and the kernel interface parse them: ports, options,
//! flags.
//!
//! The numbers of the flags are those of the interface's documentation, the same for user space and
//! for kernel clients. The UAPI header has only structures and ioctl numbers. Unknown bits are
//! refused here, once for both interfaces. This file only parses.

use crate::{
    logic::marks::Origin,
    sys::buffer::Buffer, //
};
use kernel::prelude::*;

/// Memory may be read (`SCIF_PROT_READ`).
pub(crate) const PROTECTION_READ: u32 = 1;
/// Memory may be written (`SCIF_PROT_WRITE`).
pub(crate) const PROTECTION_WRITE: u32 = 2;

/// Further protection bit of a window: the peer may hold the window only during a transfer, not by
/// a mapping or otherwise. The memory may be used for something else as soon as the window is
/// closed.
pub(crate) const TRANSFERS_ONLY: u32 = 4;

/// Further protection bit of a window: the window has no offset, and exists for one copy that the
/// peer is asked for.
pub(crate) const UNLISTED: u32 = 8;

/// Flag: accept waits.
pub(crate) const ACCEPT_SYNC: i32 = 1;
/// Flag: send or receive waits.
pub(crate) const MESSAGE_BLOCK: i32 = 1;
/// Flag: the window has to be at the offset that the caller names.
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
    /// Id of the node.
    pub node: u16,
    /// Port on that node, or 0 for none.
    pub port: u16,
}

/// The direction in which the bytes of a transfer go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the peer's window into ours.
    Read,
    /// From this end's window into the peer's.
    Write,
}

impl Direction {
    /// Returns the protection that the local side and the remote side need.
    pub(crate) fn needs(self) -> (u32, u32) {
        match self {
            Self::Read => (PROTECTION_WRITE, PROTECTION_READ),
            Self::Write => (PROTECTION_READ, PROTECTION_WRITE),
        }
    }
}

/// The local side of a transfer, as the caller names it.
pub(crate) enum LocalSide {
    /// Windows, beginning at this offset.
    Windows(i64),
    /// Memory of the caller.
    Memory(Buffer),
}

impl LocalSide {
    /// Returns whether the local side is kernel memory, which stays the caller's and is not pinned.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self, Self::Memory(memory) if memory.user_address().is_none())
    }

    /// Returns the offset in this end's windows. None if the local side is no window.
    pub(crate) fn offset(&self) -> Option<i64> {
        match self {
            Self::Windows(offset) => Some(*offset),
            Self::Memory(_) => None,
        }
    }
}

/// Options of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferOptions {
    /// Whether the CPU copies, and not an engine.
    pub(crate) use_cpu: bool,
    /// Whether memory that is no window stays pinned for later transfers.
    pub(crate) use_cache: bool,
    /// Whether the transfer must complete before the call returns.
    pub(crate) synchronous: bool,
    /// Whether the last cache line of the source must become visible last.
    pub(crate) ordered: bool,
}

impl TransferOptions {
    /// Parses the flags of a transfer. EINVAL: a flag is unknown.
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

    /// Returns the flags from which [`Self::parse`] makes these options.
    pub(crate) fn flags(self) -> i32 {
        i32::from(self.use_cpu) * RMA_USECPU
            | i32::from(self.use_cache) * RMA_USECACHE
            | i32::from(self.synchronous) * RMA_SYNC
            | i32::from(self.ordered) * RMA_ORDERED
    }
}

/// The accesses that a window allows, and whether its place is fixed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowOptions {
    /// One or both of [`PROTECTION_READ`] and [`PROTECTION_WRITE`].
    pub(crate) protection: u32,
    /// Whether the window has to be at the offset that the caller names.
    pub(crate) fixed: bool,
}

impl WindowOptions {
    /// Parses the options of a window. EINVAL: a flag is unknown, or there is no protection.
    pub(crate) fn parse(protection: i32, flags: i32) -> Result<Self> {
        Ok(Self {
            protection: self::protection(protection as u32)?,
            fixed: is_set(flags, MAP_FIXED)?,
        })
    }
}

/// A value, and the offset in a window at which a fence signal stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignalTarget {
    pub(crate) offset: i64,
    pub(crate) value: u64,
}

/// The words that a fence signal stores, on either side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignalTargets {
    /// Word in this end's window.
    pub(crate) local: Option<SignalTarget>,
    /// Word in the peer's window.
    pub(crate) remote: Option<SignalTarget>,
}

impl SignalTargets {
    /// Parses the flags of a fence signal. Returns the words that they select, and the side whose
    /// transfers the signal waits for. EINVAL: a flag is unknown, no word is selected, or the flags
    /// do not name exactly one side.
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

/// Returns the side whose transfers a mark covers. EINVAL: the flags do not name exactly one side.
pub(crate) fn origin(flags: i32) -> Result<Origin> {
    match flags {
        FENCE_INIT_SELF => Ok(Origin::Own),
        FENCE_INIT_PEER => Ok(Origin::Peer),
        _ => Err(EINVAL),
    }
}

/// Checks the protection of memory. EINVAL: a flag is unknown, or there is no protection.
pub(crate) fn protection(flags: u32) -> Result<u32> {
    match flags & !(PROTECTION_READ | PROTECTION_WRITE) {
        0 if flags != 0 => Ok(flags),
        _ => Err(EINVAL),
    }
}

/// Splits off the flag by which kernel clients name kernel memory. Returns whether it is set, and
/// the other flags.
pub(crate) fn take_map_kernel(flags: i32) -> (bool, i32) {
    (flags & MAP_KERNEL != 0, flags & !MAP_KERNEL)
}

/// Returns whether `flag` is set. EINVAL: another flag is set.
pub(crate) fn is_set(flags: i32, flag: i32) -> Result<bool> {
    if flags & !flag != 0 {
        return Err(EINVAL);
    }
    Ok(flags != 0)
}
