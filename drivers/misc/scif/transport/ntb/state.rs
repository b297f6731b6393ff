// SPDX-License-Identifier: GPL-2.0

//! The state of a link: its offer or session, and memory that a lost peer may still write to.
//!
//! A peer that seems lost may only be slow. So this node keeps the control block and rings of a
//! session that has ended, and the control block of an offer that was echoed. Each is kept with the
//! peer's nonce of that time. It is released when the peer has said farewell or come back with
//! another nonce, or when the device is removed.
//!
//! Windows are not kept. User memory is unpinned when its node is lost, after the translation of
//! the aperture was removed. If the hardware can remove the translation, a peer that comes to life
//! again writes nowhere.

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

/// A session and the path to its peer.
pub(super) struct Up {
    pub(super) session: Arc<dyn Session>,
    pub(super) path: Arc<NtbPath>,
    pub(super) peer: u16,
    /// The peer's generation, see [`Introduction`](crate::transport::sink::Introduction).
    pub(super) generation: u64,
}

pub(super) struct Inner {
    pub(super) handshake: Handshake,
    pub(super) mailbox: Mailbox,
    /// This node's control block of the current offer.
    pub(super) block: Option<Arc<SharedMemory>>,
    /// The aperture chosen last. If it leads to an arena or a pool, it is chosen only once, because
    /// memory of an earlier session may still lie there.
    pub(super) aperture: Option<Aperture>,
    pub(super) up: Option<Up>,
    pub(super) grace: GraceList,
    /// Number of times that the link had gone down, as read at the last check.
    pub(super) downs: u32,
    /// Set once the log has told why there is no session.
    pub(super) reported: bool,
}

impl Inner {
    /// Closes the aperture, as [`Aperture::close`] does. Returns false if there is no device or no
    /// aperture.
    pub(super) fn close_aperture(&self, device: Option<&NtbDevice>) -> bool {
        match (device, &self.aperture) {
            (Some(device), Some(aperture)) => aperture.close(device),
            _ => false,
        }
    }

    /// Returns whether the peer reaches only memory that this node has given to it, and no longer
    /// reaches memory that this node has taken back.
    pub(super) fn keeps_out(&self) -> bool {
        let aperture = self.aperture.as_ref();
        aperture.is_some_and(|aperture| aperture.behind.keeps_out())
    }

    /// Releases the memory that a lost peer might still write to, if the aperture keeps the peer
    /// out of it.
    pub(super) fn make_room(&mut self) {
        if self.keeps_out() {
            self.grace.release();
        }
    }

    /// Drops this node's offer. If the offer was echoed, the peer may have accepted it and write to
    /// the control block, so the block is kept.
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

/// Limit of the kept entries, so that a peer can't make this node keep more. With one nonce it gets
/// so many offers.
const MAX_KEPT: usize = 64;

/// An entry of a [`GraceList`].
pub(super) enum Kept {
    /// A session that was torn down, and the fate of the memory that its peer was told of.
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

/// Memory that a lost peer may still write to, each entry with the peer's nonce.
pub(super) struct GraceList(KVec<(u32, Kept)>);

impl GraceList {
    pub(super) const fn new() -> Self {
        Self(KVec::new())
    }

    /// Reserves room for the entry that an offer may need.
    ///
    /// # Errors
    ///
    /// - ENOSPC: there are [`MAX_KEPT`] entries.
    /// - ENOMEM: the list can't grow.
    pub(super) fn make_room(&mut self) -> Result {
        if self.0.len() >= MAX_KEPT {
            return Err(ENOSPC);
        }
        Ok(self.0.reserve(1, GFP_KERNEL)?)
    }

    /// Keeps an entry of a peer with this nonce. The caller has reserved room with
    /// [`Self::make_room`].
    pub(super) fn keep(&mut self, nonce: u32, kept: Kept) {
        if let Err(refused) = self.0.push_within_capacity((nonce, kept)) {
            // Leaks the entry. If it were freed, the peer might write to the memory of its next
            // owner.
            core::mem::forget(refused);
        }
    }

    /// Releases all entries. The caller knows that the peer does not write there any more.
    /// Context: may sleep.
    pub(super) fn release(&mut self) {
        while let Some((_, kept)) = self.0.pop() {
            kept.release();
        }
    }

    /// Releases all entries of a peer that nothing keeps out. Seals the memory that the peer may
    /// still write to, so that it is leaked. Returns whether there was any.
    /// Context: may sleep.
    pub(super) fn abandon(&mut self) -> bool {
        let mut some = false;
        while let Some((_, kept)) = self.0.pop() {
            let fate = match &kept {
                Kept::Session(session, _) if session.ended() == Some(Reason::Left) => None,
                Kept::Session(_, fate) => fate.as_ref(),
                Kept::Block(block) => block.fate(),
            };
            if let Some(fate) = fate {
                // Sealed before the release: processes may drop their part of it at any time.
                fate.seal();
                some = true;
            }
            kept.release();
        }
        some
    }

    /// Releases the entries that belong to another nonce than the peer's present one.
    /// Context: may sleep.
    pub(super) fn release_others(&mut self, nonce: u32) {
        while let Some(index) = self.0.iter().position(|(other, _)| *other != nonce) {
            if let Ok((_, kept)) = self.0.remove(index) {
                kept.release();
            }
        }
    }

    /// Returns whether there is a session whose peer has not said farewell.
    pub(super) fn waits_for_farewell(&self) -> bool {
        self.0.iter().any(
            |(_, kept)| matches!(kept, Kept::Session(session, _) if session.ended() != Some(Reason::Left)),
        )
    }
}

#[kunit_tests(scif_transport_ntb_state)]
mod tests {
    use super::*;
    use crate::{
        logic::gate::Drained,
        sync::in_flight::InFlight,
        sys::shared_memory::{
            MemoryUser,
            Payer, //
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
        let memory = SharedMemory::new(4096, &MemoryUser::Physical, Payer::None)?;
        Ok(memory.with_fate(Some(fate.clone())))
    }

    #[test]
    fn memory_exposed_to_a_failed_peer_is_leaked() -> Result {
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
