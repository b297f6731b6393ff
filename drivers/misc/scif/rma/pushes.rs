// SPDX-License-Identifier: GPL-2.0

//! Copies into the peer's windows that the peer has asked for: what it reads, this end writes.
//!
//! What is asked for is checked and taken into use here; see `pulls.rs` for the asking side. The peer names windows
//! that this end has registered, and windows of its own that it has offered, as offsets; so it reaches no more than it
//! could read by itself, and this end no more than it could write for its own sake. Or it offers a window for this copy
//! alone, which is let go with it.
//!
//! The control work does not begin a copy, as that waits while an engine's ring is full or no slot is free: a work item
//! does ([`Ways::start_later`]), one for each copy, so that those that have much to copy do not keep others waiting. The
//! peer is told of the end of each.
//!
//! They have no numbers: fences of this end know nothing of them. They keep the windows, the channel and
//! the peer in use as transfers of this end do.
//!
//! Lock: `Ways::reservations` is a leaf, taken in soft interrupts.

use super::{
    operation::{
        are_reached,
        Completion,
        Operation,
        Sides,
        Surroundings, //
    },
    pulls,
    transfers::Transfers,
    ways::Ways, //
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
        range_tree::Few,
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

/// How many of a peer there can be at once, until they are answered: a peer does not ask for more.
pub(super) const MOST: usize = pulls::MOST;

/// A push has ended. Tokens of the peer stand in for numbers.
impl Completion for Ways {
    fn ended(self: ArcBorrow<'_, Self>, operation: &Operation, result: Result, _: bool) {
        let status = if result.is_ok() {
            Status::Done
        } else {
            self.peer.status.access_failed();
            Status::TransferFailed
        };
        let token = operation.number as u32;
        // The peer may ask for another one as soon as it hears of this.
        let reservation = self.reservations.lock().pop();
        if let Some(reservation) = reservation {
            self.peer
                .send(reservation, &Message::PushDone { token, status });
        }
    }
}

impl Ways {
    /// The peer has asked for a copy: has room kept for the answer to it, and begins it; or says why not. Called by the
    /// control work.
    fn begin_push(&self, token: u32, prepared: Result<(Option<usize>, Arc<Operation>)>) {
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
            // It does not ask again for a while.
            ENODEV => Status::OutOfReach,
            _ => Status::Unknown,
        };
        self.peer.answer(&Message::PushDone { token, status });
    }

    /// ENOMEM if there are as many as there can be.
    fn reserve_answer(&self) -> Result {
        let reservation = Reservation::new(GFP_KERNEL)?;
        let mut reservations = self.reservations.lock();
        if reservations.len() >= MOST {
            return Err(ENOMEM);
        }
        Ok(reservations.push_within_capacity(reservation)?)
    }
}

/// Windows that one copy may lie in: what is kept of it until it ends must not be any amount.
const MOST_PIECES: usize = 1024;

/// The same, if there is no other way.
const MOST_PIECES_IN_NEED: usize = 1 << 16;

/// Returns how the control work allocates a list of so many windows: if there are many, whom this end belongs to pays, and
/// it does not wait.
fn flags_for(windows: usize) -> Flags {
    if windows <= MOST_PIECES {
        GFP_KERNEL
    } else {
        without_waiting()
    }
}

/// A part of one window: ENXIO if it is not inside, EACCES if it must not be written.
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
    /// The peer wants something copied to it. Called by the control work.
    pub(crate) fn push_wanted(&self, asked: &PushRequest) {
        let prepared = self.prepare_push(asked);
        self.ways.begin_push(asked.token, prepared);
    }

    /// What would become of it, but that nothing is copied.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn would_push(&self, asked: &PushRequest) -> Result {
        self.prepare_push(asked).map(drop)
    }

    /// What is to be done, and by which of the path's engines, if it is by one. ENXIO or EACCES if there are no such
    /// windows, ENODEV if there is no engine for it and it need not be done.
    fn prepare_push(&self, asked: &PushRequest) -> Result<(Option<usize>, Arc<Operation>)> {
        // First, as a window that was offered for this is let go in any case.
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
                Some(window) => Few::one(part_of(window, destination)?),
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
        operation.completion = Some(self.ways.clone());
        operation.number = asked.token.into();
        Ok((engine, operation.into()))
    }

    /// Which of the path's engines copies, or fills slots. None if the processor has to; ENODEV or EINVAL if no engine
    /// can copy it all by itself, and it need not be done.
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
