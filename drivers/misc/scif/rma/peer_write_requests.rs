// SPDX-License-Identifier: GPL-2.0

//! Peer write requests: copies into the peer's windows on request of the peer. The peer wants to
//! read, and this end writes the bytes to the peer.
//!
//! This file checks a request, and takes its windows into use. `peer_reads.rs` is the requesting
//! side. The peer names by offset windows that this end has registered, and windows of its own that
//! it has offered. So the peer reaches no more than it could read itself, and this end no more than
//! it could write for its own callers. The peer may also offer a window for this copy alone. This
//! end releases that window with the copy.
//!
//! The control work starts no copy, because a start waits while an engine's ring is full or no slot
//! is free. One work item starts each copy ([`TransferPolicy::start_later`]), so that long copies
//! do not delay other copies. This end tells the peer when a copy has completed.
//!
//! Such a copy has no fence number, so fences of this end do not wait for it. It keeps the windows,
//! the channel and the peer in use, as transfers of this end do.
//!
//! Lock: `TransferPolicy::reservations` is a leaf, taken in soft interrupts.

use super::{
    operation::{
        are_reached,
        CompletionListener,
        Operation,
        Sides,
        Surroundings, //
    },
    peer_reads,
    transfer_policy::TransferPolicy,
    transfers::Transfers, //
};
use crate::{
    arguments::{
        Direction,
        PROTECTION_READ,
        PROTECTION_WRITE, //
    },
    logic::{
        address_space::Range,
        messages::{
            Message,
            PushRequest,
            Status,
            WindowId, //
        },
        plan, //
    },
    memory::{
        range_tree::SmallList,
        remote_window::{
            RemotePiece,
            RemoteWindow, //
        }, //
    },
    peer::control::Reservation,
    sys::memory_group::without_waiting, //
};
use kernel::{
    alloc::Flags,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};

/// Largest number of writes that one peer has requested and this node has not answered yet. A peer
/// that keeps to the protocol requests no more.
pub(super) const MOST: usize = peer_reads::MOST;

/// Tells the peer that a requested copy has completed. The number of the operation is the peer's
/// token.
impl CompletionListener for TransferPolicy {
    fn ended(self: ArcBorrow<'_, Self>, operation: &Operation, result: Result, _: bool) {
        let status = if result.is_ok() {
            Status::Done
        } else {
            self.peer.status.access_failed();
            Status::TransferFailed
        };
        let token = operation.number as u32;
        // The peer may request another copy as soon as it receives this, so the reservation is
        // taken first.
        let reservation = self.reservations.lock().pop();
        if let Some(reservation) = reservation {
            self.peer
                .send(reservation, &Message::PushDone { token, status });
        }
    }
}

impl TransferPolicy {
    /// Starts the copy that the peer has asked for and reserves the answer to it, or answers why
    /// there will be no copy.
    /// Context: control work, may sleep.
    fn start_peer_write(&self, token: u32, prepared: Result<(Option<usize>, Arc<Operation>)>) {
        let begun = prepared.and_then(|(engine, operation)| {
            self.reserve_answer()?;
            self.start_later(engine, operation).inspect_err(|_| {
                let reservation = self.reservations.lock().pop();
                drop(reservation);
            })
        });
        let Err(error) = begun else { return };
        let status = match error {
            ENOMEM => Status::NoMemory,
            // The peer does not ask again for a while.
            ENODEV => Status::OutOfReach,
            _ => Status::Unknown,
        };
        self.peer.answer(&Message::PushDone { token, status });
    }

    /// Reserves memory for one answer. Returns ENOMEM if there are as many requests as allowed.
    fn reserve_answer(&self) -> Result {
        let reservation = Reservation::new(GFP_KERNEL)?;
        let mut reservations = self.reservations.lock();
        if reservations.len() >= MOST {
            return Err(ENOMEM);
        }
        Ok(reservations.push_within_capacity(reservation)?)
    }
}

/// Largest number of windows on a side of one copy. It bounds the memory that a copy holds until it
/// completes.
const MOST_PIECES: usize = 1024;

/// The same limit for a copy that this node must make, because the peer can't.
const MOST_PIECES_IN_NEED: usize = 1 << 16;

/// Returns the flags with which the control work allocates a list of `windows` windows. A long list
/// is charged to the user of this end and allocated without waiting.
fn flags_for(windows: usize) -> Flags {
    if windows <= MOST_PIECES {
        GFP_KERNEL
    } else {
        without_waiting()
    }
}

/// Returns a part of one window. Returns ENXIO if the range is not inside the window, EACCES if the
/// window must not be written.
fn part_of(window: Arc<RemoteWindow>, range: Range) -> Result<RemotePiece> {
    if !window.range.contains(&range) {
        return Err(ENXIO);
    }
    if window.protection & PROTECTION_WRITE == 0 {
        return Err(EACCES);
    }
    Ok(RemotePiece {
        offset: range.start() - window.range.start(),
        window,
        len: range.len(),
    })
}

impl Transfers {
    /// Handles the peer's request to copy something to the peer.
    /// Context: control work, may sleep.
    pub(crate) fn peer_write_requested(&self, asked: &PushRequest) {
        let prepared = self.prepare_peer_write(asked);
        self.policy.start_peer_write(asked.token, prepared);
    }

    /// Returns the result that a request would have, without copying.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn would_write_for_peer(&self, asked: &PushRequest) -> Result {
        self.prepare_peer_write(asked).map(drop)
    }

    /// Checks a request. Returns the operation and the engine of the path that makes it, if an
    /// engine does.
    ///
    /// # Errors
    ///
    /// - ENXIO: a range lies in no window, or the offered window does not exist.
    /// - EACCES: a window does not allow the access.
    /// - ENODEV: there is no engine for the copy, and this node need not make it.
    /// - EINVAL: the engine can't make the copy, which this node need not make, or a side has too
    ///   many windows.
    fn prepare_peer_write(&self, asked: &PushRequest) -> Result<(Option<usize>, Arc<Operation>)> {
        // Takes the offered window first, so that it is released in any case.
        let window = match asked.window {
            WindowId::NONE => None,
            id => Some(self.remote_windows.take_unlisted(id).ok_or(ENXIO)?),
        };
        let destination = Range::from_parts(asked.destination, asked.len).map_err(|_| ENXIO)?;
        let source = Range::from_parts(asked.source, asked.len).map_err(|_| ENXIO)?;
        let surroundings = Surroundings::of(&self.channel)?;
        let (remote, local) = self.channel.group.pays_for(|| -> Result<_> {
            let remote = match window {
                None => self
                    .remote_windows
                    .cover(destination, PROTECTION_WRITE, flags_for)?,
                Some(window) => SmallList::one(part_of(window, destination)?),
            };
            let local = self.windows.cover(source, PROTECTION_READ, flags_for)?;
            Ok((remote, local))
        })?;
        let engine = self.engine_for(asked, are_reached(&remote))?;
        let most = if asked.must {
            MOST_PIECES_IN_NEED
        } else {
            MOST_PIECES
        };
        if local.iter().count() > most || remote.iter().count() > most {
            return Err(EINVAL);
        }
        let mut body = asked.len;
        if asked.ordered {
            (body, _) = plan::split_tail(asked.source, asked.len);
        }
        let sides = Sides { local, remote };
        let mut operation = Operation::new(
            Direction::Write,
            asked.len,
            body,
            false,
            sides,
            surroundings,
        )?;
        operation.listener = Some(self.policy.clone());
        operation.number = asked.token.into();
        Ok((engine, operation.into()))
    }

    /// Returns which of the path's engines copies or fills slots, or `None` if the CPU must. If
    /// this node need not make the copy, returns ENODEV without an engine, and EINVAL if the engine
    /// can't make the whole copy.
    fn engine_for(&self, asked: &PushRequest, is_reached: bool) -> Result<Option<usize>> {
        let place = self.channel.engine();
        let route = self.channel.path().engine(place);
        let len = usize::try_from(asked.len)?;
        let can_copy = route.is_some_and(|route| {
            let engine = &route.engine;
            engine.can_copy(asked.destination, asked.source, len)
        });
        let goes_by_engine = is_reached && can_copy;
        if !asked.must && !goes_by_engine {
            return Err(if route.is_some() { EINVAL } else { ENODEV });
        }
        Ok(place.filter(|_| can_copy || !is_reached))
    }
}
