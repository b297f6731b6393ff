// SPDX-License-Identifier: GPL-2.0

//! What a link has of its peer: an offer, or a session, and what may still be written to.

use super::{
    aperture::{
        Aperture,
        Behind, //
    },
    grace_list::{
        GraceList,
        Kept, //
    },
    mailbox::Mailbox,
    path::NtbPath,
};
use crate::{
    logic::handshake::Handshake,
    sys::{
        ntb::NtbDevice,
        shared_memory::SharedMemory, //
    },
    transport::sink::Session,
};
use kernel::sync::Arc;

/// A session, and the way to its peer.
pub(super) struct Up {
    pub(super) session: Arc<dyn Session>,
    pub(super) path: Arc<NtbPath>,
    pub(super) peer: u16,
    /// The peer's.
    pub(super) generation: u64,
}

pub(super) struct Inner {
    pub(super) handshake: Handshake,
    pub(super) mailbox: Mailbox,
    /// Ours, while we offer.
    pub(super) block: Option<Arc<SharedMemory>>,
    pub(super) aperture: Option<Aperture>,
    /// What is behind all apertures of this link: memory of an earlier session may still lie in it.
    pub(super) behind: Option<Behind>,
    pub(super) up: Option<Up>,
    pub(super) grace: GraceList,
    /// Why there is no session was said.
    pub(super) reported: bool,
}

impl Inner {
    /// Says why there is no session, once, until there is one or something else to say.
    pub(super) fn report(&mut self, say: impl FnOnce()) {
        if !self.reported {
            self.reported = true;
            say();
        }
    }

    /// See [`Aperture::close`].
    pub(super) fn close_aperture(&mut self, device: Option<&NtbDevice>) -> bool {
        match (device, self.aperture.take()) {
            (Some(device), Some(aperture)) => aperture.close(device),
            _ => false,
        }
    }

    /// Lets go of what a lost peer might still write to, where it is kept out, or can do no harm.
    pub(super) fn make_room(&mut self) {
        if !matches!(self.behind, None | Some(Behind::All)) {
            self.grace.release();
        }
    }

    /// Drops our offer. One that was echoed may have been taken up by the peer, which then writes
    /// to the block.
    pub(super) fn drop_offer(&mut self, echoed: bool, device: Option<&NtbDevice>) {
        let block = self.block.take();
        if echoed {
            self.close_aperture(device);
            let nonce = self.handshake.peer_nonce().unwrap_or(0);
            if let Some(block) = block {
                self.grace.keep(nonce, Kept::Block(block));
            }
        }
    }
}
