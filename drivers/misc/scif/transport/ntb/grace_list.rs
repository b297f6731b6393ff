// SPDX-License-Identifier: GPL-2.0

//! Memory that a peer which seems lost may still write to.
//!
//! Such a peer may only be slow. The control block and rings of a session that ended, or of an offer
//! that was echoed, are kept until the peer has said farewell or has come back with another nonce,
//! or the device goes: each is kept with the nonce that the peer had. Windows are not: user memory is unpinned when its node is lost, after the
//! translation of the aperture was taken away, which stops the writes of a peer that comes to life
//! again (where the hardware can do that).

use crate::{
    sys::shared_memory::SharedMemory,
    transport::sink::{
        Session,
        Status, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A peer can't make this node keep more: with one nonce it gets so many offers.
const MAX_KEPT: usize = 64;

/// What is kept.
pub(super) enum Kept {
    /// All of a session that was torn down.
    Session(Arc<dyn Session>),
    /// The control block of an offer.
    Block(Arc<SharedMemory>),
}

impl Kept {
    fn release(self) {
        if let Kept::Session(session) = self {
            session.unreachable();
            session.forget();
        }
    }
}

/// See the head of this file.
pub(super) struct GraceList(KVec<(u32, Kept)>);

impl GraceList {
    pub(super) const fn new() -> Self {
        Self(KVec::new())
    }

    /// Makes room to keep what an offer may lead to, one thing. ENOSPC or ENOMEM if there is none.
    pub(super) fn make_room(&mut self) -> Result {
        if self.0.len() >= MAX_KEPT {
            return Err(ENOSPC);
        }
        Ok(self.0.reserve(1, GFP_KERNEL)?)
    }

    /// Keeps something of a peer with this nonce, for which [`Self::make_room`] was called.
    pub(super) fn keep(&mut self, nonce: u32, kept: Kept) {
        if let Err(refused) = self.0.push_within_capacity((nonce, kept)) {
            // Better lost than written to by a peer when it belongs to somebody else.
            core::mem::forget(refused);
        }
    }

    /// Lets go of everything: the peer writes there no more. May sleep.
    pub(super) fn release(&mut self) {
        while let Some((_, kept)) = self.0.pop() {
            kept.release();
        }
    }

    /// The same where nothing keeps the peer out: what it was not heard to have let go of is left to it,
    /// for ever. Says whether there was such. May sleep.
    pub(super) fn abandon(&mut self) -> bool {
        let mut some = false;
        while let Some((_, kept)) = self.0.pop() {
            match kept {
                Kept::Session(session) if session.status() == Status::Left => {
                    Kept::Session(session).release();
                }
                Kept::Session(session) => {
                    session.forget();
                    core::mem::forget(session);
                    some = true;
                }
                Kept::Block(block) => {
                    core::mem::forget(block);
                    some = true;
                }
            }
        }
        some
    }

    /// Lets go of what belonged to another nonce than the one that the peer has now. May sleep.
    pub(super) fn release_others(&mut self, nonce: u32) {
        while let Some(index) = self.0.iter().position(|(other, _)| *other != nonce) {
            if let Ok((_, kept)) = self.0.remove(index) {
                kept.release();
            }
        }
    }

    /// Whether there is a session to which the peer has not said farewell.
    pub(super) fn waits_for_farewell(&self) -> bool {
        self.0.iter().any(
            |(_, kept)| matches!(kept, Kept::Session(session) if session.status() != Status::Left),
        )
    }
}
