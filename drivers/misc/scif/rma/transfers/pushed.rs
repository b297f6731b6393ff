// SPDX-License-Identifier: GPL-2.0

//! What the peer asks this end's engine to copy into its windows: checked, and taken into use.
//!
//! The peer names windows that this end has registered, and windows of its own that it has offered, as
//! offsets; so it reaches no more than it could read by itself, and this end no more than it could write
//! for its own sake. Or it offers a window for this copy alone, which is let go with it.

use super::Transfers;
use crate::{
    arguments::{
        Direction,
        PROTECTION_READ,
        PROTECTION_WRITE, //
    },
    logic::{
        address_space::Range,
        messages::WindowId,
        plan, //
    },
    memory::{
        range_tree::Few,
        remote_window::{
            RemotePiece,
            RemoteWindow, //
        },
    },
    rma::{
        operation::{
            Operation,
            Request, //
        },
        pieces::{
            are_reached,
            Sides, //
        },
        pushes::{
            How,
            Pushes, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Windows that one copy may lie in: what is kept of it until it ends must not be any amount.
const MOST_PIECES: usize = 1024;

/// The same, if there is no other way.
const MOST_PIECES_IN_NEED: usize = 1 << 16;

/// What the peer wants.
pub(crate) struct Asked {
    /// By which it knows it.
    pub(crate) token: u32,
    /// What lies in the last cache line of the source goes last.
    pub(crate) ordered: bool,
    /// It can't copy by itself: CPU or slots will do.
    pub(crate) must: bool,
    /// Where in windows of this end.
    pub(crate) source: u64,
    /// Where in windows of the peer.
    pub(crate) destination: u64,
    pub(crate) len: u64,
    /// The one that it was offered for this, in which the destination is.
    pub(crate) window: Option<WindowId>,
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
    pub(crate) fn push_wanted(&self, asked: &Asked) {
        // Let go in any case.
        let window = self.take_window(asked);
        let pushes = &self.ways.pushes;
        pushes.wanted(asked.token, |pushes| {
            self.prepare_push(asked, window, pushes)
        });
    }

    /// What would become of it, but that nothing is copied.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn would_push(&self, asked: &Asked) -> Result {
        let window = self.take_window(asked);
        let prepared = self.prepare_push(asked, window, self.ways.pushes.clone());
        prepared.map(drop)
    }

    /// The window that was offered for this: ENXIO if one is named that was not.
    fn take_window(&self, asked: &Asked) -> Result<Option<Arc<RemoteWindow>>> {
        let Some(id) = asked.window else {
            return Ok(None);
        };
        self.remote_windows.take_unlisted(id).map(Some).ok_or(ENXIO)
    }

    /// The place of the engine for a copy that goes by itself.
    fn engine_for(&self, asked: &Asked, is_reached: bool) -> Result<usize> {
        let place = self.channel.engine().ok_or(ENODEV)?;
        let route = self.channel.path().engine(Some(place)).ok_or(ENODEV)?;
        let len = usize::try_from(asked.len)?;
        match is_reached && route.engine.can_copy(asked.destination, asked.source, len) {
            true => Ok(place),
            false => Err(EINVAL),
        }
    }

    /// How it is to be made, and what is to be done. ENXIO or EACCES
    /// if there are no such windows, ENODEV if there is no engine for it and it need not be done.
    fn prepare_push(
        &self,
        asked: &Asked,
        window: Result<Option<Arc<RemoteWindow>>>,
        pushes: Arc<Pushes>,
    ) -> Result<(How, Request)> {
        let destination = Range::from_parts(asked.destination, asked.len).map_err(|_| ENXIO)?;
        let remote = match window? {
            None => self.remote_windows.cover(destination, PROTECTION_WRITE)?,
            Some(window) => Few::one(part_of(window, destination)?),
        };
        let source = Range::from_parts(asked.source, asked.len).map_err(|_| ENXIO)?;
        let surroundings = self.enter()?;
        let local = self.windows.cover(source, PROTECTION_READ)?;
        let how = match self.engine_for(asked, are_reached(&remote)) {
            Err(_) if asked.must => How::ByHand(self.channel.engine()),
            place => How::ByEngine(place?),
        };
        let most = match asked.must {
            true => MOST_PIECES_IN_NEED,
            false => MOST_PIECES,
        };
        if local.iter().count() > most || remote.iter().count() > most {
            return Err(EINVAL);
        }
        let request = Request {
            operation: Operation {
                completion: pushes,
                number: asked.token.into(),
                direction: Direction::Write,
                bytes: asked.len,
            },
            sides: Sides { local, remote },
            parts: match asked.ordered {
                true => plan::split_tail(asked.source, asked.len),
                false => (asked.len, 0),
            },
            synchronous: false,
            surroundings,
        };
        Ok((how, request))
    }
}
