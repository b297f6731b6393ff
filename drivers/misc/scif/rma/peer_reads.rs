// SPDX-License-Identifier: GPL-2.0

//! Reads that the peer makes for this end: the peer is asked to write the data into windows of this
//! end.
//!
//! A read across a bus waits for its answer, a write does not: see `transfer_policy.rs` for when it
//! is worthwhile to ask the peer. Memory that is not in a window is offered as a window for this
//! read alone (`memory/windows/unlisted.rs`).
//!
//! A *peer read* is a transfer as any other. It keeps the windows of both sides, the peer and the
//! channel in use until the peer has answered. It has a fence number, and its completion is
//! reported as that of other transfers. The serving side is `peer_write_requests.rs`.
//!
//! A peer that refuses has written nothing and will not write. Then this end's engine reads.
//!
//! If the peer is lost, all peer reads complete with an error. Windows that the lost peer could
//! still write to stay as long as they do for any other reason (`memory/exports.rs`).
//!
//! A peer that does not answer such a request for long counts as lost, just as an engine of this
//! end would be given up. So no wait is without a limit. The limit grows with the bytes that the
//! peer was asked for. It restarts whenever the peer makes progress with the oldest peer read.
//!
//! If this end does not reach the memory, the peer *must* make the copy, in any way it can. If the
//! peer then refuses, the transfer fails.
//!
//! Lock: `TransferPolicy::refused` is a leaf.

use super::{
    operation::Operation,
    transfer_policy::TransferPolicy, //
};
use crate::{
    logic::{
        control_block::Annex,
        messages::{
            Message,
            Status, //
        },
    },
    peer::{
        channel::Channel,
        questions::{
            Until,
            LIMIT, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        Delta,
        Instant, //
    }, //
};

/// Largest number of peer reads in flight to one peer. Further reads are made by this end.
pub(super) const MOST: usize = 256;

/// Largest number of bytes of all peer reads in flight. Further reads are made by this end.
pub(super) const MOST_BYTES: u64 = 1 << 30;

/// Smallest number of bytes that a peer moves in a millisecond. It is a tiny part of what the
/// slowest link carries, as others may use the peer's engine, too.
const SLOWEST: u64 = 8 << 10;

/// Time for which a peer is not asked again after it has said that it has no engine. It may get an
/// engine later, but each refusal costs a read the round trip to the peer.
const REFUSED: Delta = Delta::from_secs(10);

/// A peer read that the peer has not answered.
pub(super) struct PeerRead {
    operation: Arc<Operation>,
    /// The engine of the path that reads if the peer refuses. `None` if the peer must make the
    /// copy.
    engine: Option<usize>,
}

impl TransferPolicy {
    /// Returns whether the peer may be asked, as it has not refused lately.
    /// Context: any but interrupts.
    pub(super) fn can_ask_peer(&self) -> bool {
        let refused = *self.refused.lock();
        refused.is_none_or(|refused| refused.elapsed() >= REFUSED)
    }

    /// Asks the peer for an operation with `message`, which gets a token. The path's `engine` reads
    /// if the peer refuses. Without an engine the peer must make the copy, and the caller waits for
    /// room.
    ///
    /// If this returns `Ok`, the operation completes on its own. On an error nothing was started.
    /// The wait is killable.
    pub(super) fn start_peer_read(
        &self,
        channel: &Arc<Channel>,
        operation: &Arc<Operation>,
        engine: Option<usize>,
        message: impl FnOnce(u32) -> Message,
    ) -> Result {
        let read = PeerRead {
            operation: operation.clone(),
            engine,
        };
        let until = match engine {
            Some(_) => Until::Now,
            None => Until::Killed,
        };
        let token = self.peer_reads.put(read, operation.bytes, until)?;
        self.watch_peer_reads(self.is_oldest(token));
        let posted = channel.post_with(&message(token), Annex::NONE);
        if posted.is_err() && self.take_peer_read(token).is_some() {
            return posted;
        }
        // If the message was not sent here, the loss of the peer has completed the operation.
        Ok(())
    }

    /// Returns whether this is the peer read that waits longest for its answer.
    /// Context: any.
    fn is_oldest(&self, token: u32) -> bool {
        self.peer_reads
            .with_oldest(|oldest| oldest.is_some_and(|(oldest, _)| oldest == token))
    }

    /// Removes a peer read, if it is still there, and watches the next one.
    /// Context: any.
    fn take_peer_read(&self, token: u32) -> Option<PeerRead> {
        let was_oldest = self.is_oldest(token);
        let read = self.peer_reads.take(token)?;
        self.watch_peer_reads(was_oldest);
        Some(read)
    }

    /// Sets the time limit for the oldest peer read, after which the peer counts as lost. If the
    /// oldest peer read `is_new`, the time starts now.
    fn watch_peer_reads(&self, is_new: bool) {
        let countdown = &self.peer.liveness.peer_reads;
        self.peer_reads.with_oldest(|oldest| match oldest {
            None => countdown.set(None),
            Some((_, bytes)) => {
                let limit = (LIMIT.as_millis() as u64).saturating_add(bytes / SLOWEST);
                countdown.allow(u32::try_from(limit).unwrap_or(u32::MAX));
                if is_new {
                    countdown.restart();
                }
            }
        });
    }

    /// Handles the peer's answer to a peer read.
    /// Context: control work, may sleep.
    pub(crate) fn peer_read_answered(&self, token: u32, status: Status) {
        // Ignores an answer to a peer read that was never requested or has completed.
        let Some(read) = self.take_peer_read(token) else {
            return;
        };
        let result = match (status, read.engine) {
            (Status::Done, _) => Ok(()),
            (Status::TransferFailed, _) => Err(EIO),
            (_, Some(_)) => {
                if status == Status::OutOfReach {
                    *self.refused.lock() = Some(Instant::now());
                }
                read.operation.take_over();
                let Err(error) = self.start_later(read.engine, read.operation.clone()) else {
                    return;
                };
                Err(error)
            }
            (Status::NoMemory, None) => Err(ENOMEM),
            (Status::Unknown, None) => Err(ENXIO),
            (_, None) => Err(EIO),
        };
        read.operation.end(result);
    }

    /// Completes all peer reads with an error, for good. The peer is lost.
    /// Context: may sleep.
    pub(crate) fn end_peer_reads(&self) {
        for read in self.peer_reads.close(ENODEV) {
            read.operation.end(Err(ENODEV));
        }
        self.watch_peer_reads(true);
    }
}
