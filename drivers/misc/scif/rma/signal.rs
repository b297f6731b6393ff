// SPDX-License-Identifier: GPL-2.0

//! Fence signals: a value that appears in a window when the transfers before it have ended.
//!
//! A process can spin on the word with no system call. A signal is an ordinary store of 8 bytes
//! that waits behind a mark, in our window (`SIGNAL_LOCAL`), in the peer's (`SIGNAL_REMOTE`) or in
//! both. The windows are taken into use when the signal is made, so unregistering them does not end
//! it.

use super::{
    operation::{
        Operation,
        Sides,
        Surroundings, //
    },
    staging::Outbox,
    transfers::Transfers, //
};
use crate::{
    arguments::{
        Direction,
        SignalTarget,
        SignalTargets,
        PROTECTION_WRITE, //
    },
    logic::address_space::Range,
    memory::{
        local::LocalPiece,
        range_tree::{
            paid_by_caller,
            Few, //
        },
        remote_window::RemotePiece, //
    },
    peer::channel::Channel,
    sys::reached::flush_writes, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

/// Bytes of a signal's value.
const SIZE: u64 = 8;

/// See the head of this file.
pub(super) struct Signal {
    local: Option<(LocalPiece, u64)>,
    remote: Option<(RemotePiece, u64)>,
    /// For what is remote, if this end does not reach it: then the signal may have to wait for slots.
    pub(super) outbox: Option<Arc<Outbox>>,
}

/// The range of a value. EINVAL unless it is aligned to 4 bytes and inside one page, ENXIO if there
/// can be no window.
fn range(target: SignalTarget) -> Result<Range> {
    let in_page = target.offset.rem_euclid(PAGE_SIZE as i64);
    if target.offset % 4 != 0 || in_page > PAGE_SIZE as i64 - SIZE as i64 {
        return Err(EINVAL);
    }
    Range::new(target.offset, SIZE).map_err(|_| ENXIO)
}

impl Signal {
    /// ENXIO where there is no window, EACCES where it can't be written. The caller is inside the
    /// peer as long as it has the signal.
    pub(super) fn new(transfers: &Transfers, targets: SignalTargets) -> Result<Self> {
        let local = targets.local.map(|target| {
            let pieces =
                transfers
                    .windows
                    .cover(range(target)?, PROTECTION_WRITE, paid_by_caller)?;
            Ok::<_, Error>((pieces.into_first().ok_or(ENXIO)?, target.value))
        });
        let remote = targets.remote.map(|target| {
            let pieces =
                transfers
                    .remote_windows
                    .cover(range(target)?, PROTECTION_WRITE, paid_by_caller)?;
            Ok::<_, Error>((pieces.into_first().ok_or(ENXIO)?, target.value))
        });
        let (local, remote) = (local.transpose()?, remote.transpose()?);
        let outbox = match &remote {
            Some((piece, _)) if !piece.window.is_reached() => {
                Some(transfers.ways.staging.outbox()?.clone())
            }
            _ => None,
        };
        Ok(Self {
            local,
            remote,
            outbox,
        })
    }

    /// Stores the values. May sleep. The caller is inside the peer.
    pub(super) fn give(self, channel: &Arc<Channel>) {
        if let Some((piece, value)) = &self.local {
            // The window allows it, and the value lies in one page of it.
            let _ = piece
                .memory()
                .pages
                .store_u64(piece.offset as usize, *value);
        }
        if let Some((piece, value)) = self.remote {
            if let Some(outbox) = &self.outbox {
                // Whoever waits for it would do so for ever. All other errors say that the peer is lost, or has
                // closed.
                if store_staged(channel, outbox, piece, value) == Err(ENOMEM) {
                    channel.fail("no memory for a signal to it");
                }
                return;
            }
            // A peer that has closed has its memory back.
            let Ok(_use) = channel.begin_use() else {
                return;
            };
            // The signal must not overtake what it stands for.
            flush_writes();
            let _ = store_remote(channel, &piece, value);
            if let Some(stores) = channel.path().stores() {
                stores.note();
            }
        }
    }
}

/// Comes after what was put into slots before, which is there already.
fn store_staged(
    channel: &Arc<Channel>,
    outbox: &Arc<Outbox>,
    piece: RemotePiece,
    value: u64,
) -> Result {
    let surroundings = Surroundings::of(channel)?;
    let sides = Sides {
        local: Few::new(),
        remote: Few::one(piece),
    };
    let operation = Operation::new(Direction::Write, SIZE, SIZE, false, sides, surroundings)?;
    let operation: Arc<Operation> = operation.into();
    let stored = outbox.put_value(&operation, value);
    operation.part_ended(stored);
    stored
}

fn store_remote(channel: &Channel, piece: &RemotePiece, value: u64) -> Result {
    let (address, _) = piece.window.extents.at(piece.offset).ok_or(ENXIO)?;
    channel.path().reach(address, SIZE)?.store_u64(value)
}
