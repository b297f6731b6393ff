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
        few::Few,
        remote_window::{
            RemotePiece,
            RemoteWindow, //
        },
    },
    rma::{
        pieces::Sides,
        pushes::Pushes,
        transfer::Request, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Windows that one copy may lie in: what is kept of it until it ends must not be any amount.
const MOST_PIECES: usize = 1024;

/// What the peer wants.
pub(crate) struct Asked {
    /// By which it knows it.
    pub(crate) token: u32,
    /// What lies in the last cache line of the source goes last.
    pub(crate) ordered: bool,
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

    /// The place of the engine, and what it is to do. ENXIO or EACCES if there are no such windows,
    /// ENODEV if there is no engine for it.
    fn prepare_push(
        &self,
        asked: &Asked,
        window: Result<Option<Arc<RemoteWindow>>>,
        pushes: Arc<Pushes>,
    ) -> Result<(usize, Request)> {
        let destination = Range::from_parts(asked.destination, asked.len).map_err(|_| ENXIO)?;
        let remote = match window? {
            None => self.remote_windows.cover(destination, PROTECTION_WRITE)?,
            Some(window) => Few::one(part_of(window, destination)?),
        };
        let source = Range::from_parts(asked.source, asked.len).map_err(|_| ENXIO)?;
        let surroundings = self.enter()?;
        let local = self.windows.cover(source, PROTECTION_READ)?;
        let place = self.engine.ok_or(ENODEV)?;
        let route = self.channel.path().engine(Some(place)).ok_or(ENODEV)?;
        let len = usize::try_from(asked.len)?;
        if !route.engine.can_copy(asked.destination, asked.source, len) {
            return Err(EINVAL);
        }
        if local.iter().count() > MOST_PIECES || remote.iter().count() > MOST_PIECES {
            return Err(EINVAL);
        }
        let request = Request {
            direction: Direction::Write,
            sides: Sides { local, remote },
            parts: match asked.ordered {
                true => plan::split_tail(asked.source, asked.len),
                false => (asked.len, 0),
            },
            synchronous: false,
            announces: true,
            completion: pushes,
            number: asked.token.into(),
            surroundings,
        };
        Ok((place, request))
    }
}
