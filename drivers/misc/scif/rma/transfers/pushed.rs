// SPDX-License-Identifier: GPL-2.0

//! What the peer asks this end's engine to copy into its windows: checked, and taken into use.
//!
//! The peer names windows that this end has registered, and windows of its own that it has offered, as
//! offsets; so it reaches no more than it could read by itself, and this end no more than it could write
//! for its own sake.

use super::Transfers;
use crate::{
    arguments::{
        Direction,
        PROTECTION_READ,
        PROTECTION_WRITE, //
    },
    logic::{
        address_space::Range,
        plan, //
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
}

impl Transfers {
    /// The peer wants something copied to it. Called by the control work.
    pub(crate) fn push_wanted(&self, asked: &Asked) {
        let pushes = &self.ways.pushes;
        pushes.wanted(asked.token, |pushes| self.prepare_push(asked, pushes));
    }

    /// The place of the engine, and what it is to do. ENXIO or EACCES if there are no such windows,
    /// ENODEV if there is no engine for it.
    fn prepare_push(&self, asked: &Asked, pushes: Arc<Pushes>) -> Result<(usize, Request)> {
        let place = self.engine.ok_or(ENODEV)?;
        let source = Range::from_parts(asked.source, asked.len).map_err(|_| ENXIO)?;
        let destination = Range::from_parts(asked.destination, asked.len).map_err(|_| ENXIO)?;
        let surroundings = self.enter()?;
        let route = self.channel.path().engine(Some(place)).ok_or(ENODEV)?;
        let len = usize::try_from(asked.len)?;
        if !route
            .engine
            .can_copy(destination.start(), source.start(), len)
        {
            return Err(EINVAL);
        }
        let sides = Sides {
            local: self.windows.cover(source, PROTECTION_READ)?,
            remote: self.remote_windows.cover(destination, PROTECTION_WRITE)?,
        };
        let request = Request {
            direction: Direction::Write,
            sides,
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
