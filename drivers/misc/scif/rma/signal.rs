// SPDX-License-Identifier: GPL-2.0

//! Fence signals: a value that appears in a window once the transfers before it have completed.
//!
//! A process can spin on the word without a system call. A signal is an ordinary store of 8 bytes
//! that waits behind a mark. The word lies in this end's window (`SIGNAL_LOCAL`), in the peer's
//! (`SIGNAL_REMOTE`) or in both. The windows are taken into use when the signal is made, so
//! unregistering a window does not cancel the signal.

use super::{
    operation::{
        Operation,
        Sides,
        Surroundings, //
    },
    staging::SendSlots,
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
            SmallList, //
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

/// Number of bytes of a signal's value.
const SIZE: u64 = 8;

/// A signal that was requested and has not been given.
pub(super) struct Signal {
    local: Option<(LocalPiece, u64)>,
    remote: Option<(RemotePiece, u64)>,
    /// The slots at the peer, if this end does not reach the remote word. The signal may then have
    /// to wait for a slot.
    pub(super) send_slots: Option<Arc<SendSlots>>,
}

/// Returns the range of a value. Returns EINVAL unless the value is aligned to 4 bytes and inside
/// one page, ENXIO if no window can lie there.
fn range(target: SignalTarget) -> Result<Range> {
    let in_page = target.offset.rem_euclid(PAGE_SIZE as i64);
    if target.offset % 4 != 0 || in_page > PAGE_SIZE as i64 - SIZE as i64 {
        return Err(EINVAL);
    }
    Range::new(target.offset, SIZE).map_err(|_| ENXIO)
}

impl Signal {
    /// Makes a signal. Returns ENXIO if there is no window, EACCES if a window can't be written.
    /// The caller is inside the peer as long as it has the signal.
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
        let send_slots = match &remote {
            Some((piece, _)) if !piece.window.is_reached() => {
                Some(transfers.policy.staging.send_slots()?.clone())
            }
            _ => None,
        };
        Ok(Self {
            local,
            remote,
            send_slots,
        })
    }

    /// Stores the values. The caller is inside the peer.
    /// Context: may sleep.
    pub(super) fn give(self, channel: &Arc<Channel>) {
        if let Some((piece, value)) = &self.local {
            // Can't fail: the window allows the store, and the value lies in one page of the
            // window.
            let _ = piece
                .memory()
                .pages
                .store_u64(piece.offset as usize, *value);
        }
        if let Some((piece, value)) = self.remote {
            if let Some(send_slots) = &self.send_slots {
                // Without this signal a process could wait forever, so lack of memory fails the
                // peer. Any other error says that the peer is lost or has closed.
                if store_staged(channel, send_slots, piece, value) == Err(ENOMEM) {
                    channel.fail("no memory to send it a signal");
                }
                return;
            }
            // A peer that has closed has its memory back, so nothing is stored.
            let Ok(_use) = channel.begin_use() else {
                return;
            };
            // The signal must not overtake the data that it announces.
            flush_writes();
            let _ = store_remote(channel, &piece, value);
            if let Some(stores) = channel.path().stores() {
                stores.note();
            }
        }
    }
}

/// Has the peer store a value through a slot. Data of earlier slots has arrived before that.
fn store_staged(
    channel: &Arc<Channel>,
    send_slots: &Arc<SendSlots>,
    piece: RemotePiece,
    value: u64,
) -> Result {
    let surroundings = Surroundings::of(channel)?;
    let sides = Sides {
        local: SmallList::new(),
        remote: SmallList::one(piece),
    };
    let operation = Operation::new(Direction::Write, SIZE, SIZE, false, sides, surroundings)?;
    let operation: Arc<Operation> = operation.into();
    let stored = send_slots.put_value(&operation, value);
    operation.part_ended(stored);
    stored
}

fn store_remote(channel: &Channel, piece: &RemotePiece, value: u64) -> Result {
    let (address, _) = piece.window.extents.at(piece.offset).ok_or(ENXIO)?;
    channel.path().reach(address, SIZE)?.store_u64(value)
}
