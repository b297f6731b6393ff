// SPDX-License-Identifier: GPL-2.0

//! What a link has of its peer: an offer, or a session, and memory that may still be written to.
//!
//! A peer which seems lost may only be slow. The control block and rings of a session that ended, or of an offer
//! that was echoed, are kept until the peer has said farewell or has come back with another nonce,
//! or the device goes: each is kept with the nonce that the peer had. Windows are not: user memory is unpinned when its node is lost, after the
//! translation of the aperture was taken away, which stops the writes of a peer that comes to life
//! again (where the hardware can do that).

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    aperture::Aperture,
    mailbox::Mailbox,
    path::NtbPath, //
};
use crate::{
    logic::handshake::{
        Handshake,
        Reason, //
    },
    sys::{
        fate::Fate,
        ntb::NtbDevice,
        shared_memory::SharedMemory, //
    },
    transport::sink::Session,
};

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
    /// As it was chosen last: once, if it leads to an arena or a pool, as memory of an earlier session may still lie in
    /// that.
    pub(super) aperture: Option<Aperture>,
    pub(super) up: Option<Up>,
    pub(super) grace: GraceList,
    /// How often the link had been down at the last look.
    pub(super) downs: u32,
    /// Why there is no session was said.
    pub(super) reported: bool,
}

impl Inner {
    /// See [`Aperture::close`].
    pub(super) fn close_aperture(&self, device: Option<&NtbDevice>) -> bool {
        match (device, &self.aperture) {
            (Some(device), Some(aperture)) => aperture.close(device),
            _ => false,
        }
    }

    /// Whether the peer gets to nothing but what it was given, and no more to what was taken back.
    pub(super) fn keeps_out(&self) -> bool {
        let aperture = self.aperture.as_ref();
        aperture.is_some_and(|aperture| aperture.behind.keeps_out())
    }

    /// Lets go of what a lost peer might still write to, where it is kept out, or can do no harm.
    pub(super) fn make_room(&mut self) {
        if self.keeps_out() {
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

/// A peer can't make this node keep more: with one nonce it gets so many offers.
const MAX_KEPT: usize = 64;

/// What is kept.
pub(super) enum Kept {
    /// All of a session that was torn down, and what becomes of the memory that the peer was told of.
    Session(Arc<dyn Session>, Option<Arc<Fate>>),
    /// The control block of an offer.
    Block(Arc<SharedMemory>),
}

impl Kept {
    fn release(self) {
        if let Kept::Session(session, _) = self {
            session.unreachable();
            session.forget();
        }
    }
}

/// Memory that a lost peer may still write to.
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
            let fate = match &kept {
                Kept::Session(session, _) if session.ended() == Some(Reason::Left) => None,
                Kept::Session(_, fate) => fate.as_ref(),
                Kept::Block(block) => block.fate(),
            };
            if let Some(fate) = fate {
                // First: processes let go of their part whenever they like.
                fate.seal();
                some = true;
            }
            kept.release();
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
            |(_, kept)| matches!(kept, Kept::Session(session, _) if session.ended() != Some(Reason::Left)),
        )
    }
}

#[kunit_tests(scif_ntb_grace)]
mod tests {
    use super::*;
    use crate::{
        logic::gate::Drained,
        sync::in_flight::InFlight,
        sys::shared_memory::{
            Payer,
            User, //
        },
    };
    use kernel::sync::ArcBorrow;

    /// A session that has ended, with a ring.
    struct Ended {
        reason: Reason,
        uses: Arc<InFlight>,
        _ring: SharedMemory,
    }

    impl Session for Ended {
        fn doorbells(self: ArcBorrow<'_, Self>, _numbers: u64) {}
        fn tick(self: ArcBorrow<'_, Self>, _milliseconds: u32) {}
        fn ended(&self) -> Option<Reason> {
            Some(self.reason)
        }
        fn going(&self) {}
        fn tear_down(&self) -> Drained {
            self.uses.close_and_drain()
        }
        fn unreachable(&self) {}
        fn forget(&self) {}
    }

    fn memory(fate: &Arc<Fate>) -> Result<SharedMemory> {
        let memory = SharedMemory::new(4096, &User::Physical, Payer::Nobody)?;
        Ok(memory.with_fate(Some(fate.clone())))
    }

    #[test]
    fn what_an_exposed_peer_has_not_let_go_of_is_leaked() -> Result {
        let mut list = GraceList::new();
        let [left, failed, offered] = [Fate::new()?, Fate::new()?, Fate::new()?];
        for (reason, fate) in [(Reason::Left, &left), (Reason::Failed, &failed)] {
            list.make_room()?;
            let ended = Ended {
                reason,
                uses: Arc::pin_init(InFlight::new(), GFP_KERNEL)?,
                _ring: memory(fate)?,
            };
            let session: Arc<dyn Session> = Arc::new(ended, GFP_KERNEL)?;
            list.keep(1, Kept::Session(session, Some(fate.clone())));
        }
        list.make_room()?;
        list.keep(1, Kept::Block(Arc::new(memory(&offered)?, GFP_KERNEL)?));
        assert!(list.abandon());
        assert!(!left.is_sealed());
        assert!(failed.is_sealed() && offered.is_sealed());
        assert!(!list.abandon());
        Ok(())
    }
}
