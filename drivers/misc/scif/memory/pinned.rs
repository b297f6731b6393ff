// SPDX-License-Identifier: GPL-2.0

//! Memory that is pinned once, and of which many windows are made: through many connections, and by
//! whoever is given it.
//!
//! A window is made of a *part* of it, in whole pages. Windows of the same part with the same
//! protection share what it takes to reach it: the list of its pages; per peer, what makes the peer
//! reach it, a mapping for the bridge or a place in the arena; and the mapping for an engine, per engine.
//! Each is there as long as one of these windows is, and no longer: it must not outlive the peer, as
//! the memory does. How many windows and parts there may be is bounded by whose memory it is
//! (`account.rs`). Parts that overlap share nothing but the pages themselves, so that a peer never
//! reaches more than what was registered with it. A window's own are its place, its id, and
//! what the peer keeps of it.

use core::{
    ops::Deref,
    ptr, //
};

use super::{
    account::{
        Account,
        Claim,
        Kind, //
    },
    local::{
        EngineMappings,
        LocalMemory, //
    },
};
use crate::{
    peer::Peer,
    sync::{
        call_lock::CallLock,
        shared::{
            Share,
            SharedTable, //
        },
    },
    sys::{
        arena::Access,
        pages::Pages, //
    },
    transport::inbound::Export,
};
use kernel::{
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::Arc, //
};

/// See the head of this file.
#[pin_data]
pub(crate) struct PinnedMemory {
    pages: Arc<Pages>,
    /// None if it may be registered without a bound.
    account: Option<Arc<Account>>,
    parts: Arc<SharedTable<PartKey, Part>>,
    /// Who makes a peer reach a part: two that did the same at once would need two places in its arena.
    #[pin]
    making: CallLock,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PartKey {
    from: u64,
    len: u64,
    /// What the peers may do.
    access: Access,
}

/// What windows of the same part have in common.
struct Part {
    pages: Arc<Pages>,
    exports: Arc<SharedTable<ExportKey, PeerExport>>,
    mappings: Arc<EngineMappings>,
    _claim: Option<Claim>,
}

/// The address of the peer, which stays what it is as long as there is the export.
type ExportKey = usize;

struct PeerExport {
    export: Export,
    // After what it reaches.
    _peer: Arc<Peer>,
}

impl PinnedMemory {
    /// Of pages that are pinned, or lent; their `account` says how often they may be registered, if that is
    /// bounded. May sleep.
    pub(crate) fn new(pages: Arc<Pages>, account: Option<Arc<Account>>) -> Result<Arc<Self>> {
        let parts = SharedTable::new()?;
        Arc::pin_init(
            pin_init!(Self {
                pages,
                account,
                parts,
                making <- CallLock::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// How many bytes there are.
    pub(crate) fn size(&self) -> u64 {
        self.pages.size() as u64
    }

    /// Whether so many bytes from there on are pages of it.
    pub(crate) fn has_pages(&self, from: u64, len: u64) -> bool {
        let page = PAGE_SIZE as u64;
        let end = from.checked_add(len);
        from % page == 0 && len % page == 0 && len != 0 && end.is_some_and(|end| end <= self.size())
    }

    /// The `len` bytes from `from` on, for a window with which peers may do this. EINVAL unless they are
    /// pages of it, EACCES if they are to be written to and may not be, EAGAIN if there are too many windows
    /// or parts of it. May sleep.
    pub(crate) fn part(
        self: &Arc<Self>,
        from: u64,
        len: u64,
        access: Access,
    ) -> Result<PartOfMemory> {
        let claim = self.claim(Kind::Window, len)?;
        let key = PartKey { from, len, access };
        let part = self.parts.join_or_make(key, || {
            Ok(Part {
                pages: Pages::part(&self.pages, from, len, access != Access::Read)?,
                exports: SharedTable::new()?,
                mappings: SharedTable::new()?,
                _claim: self.claim(Kind::Part, len)?,
            })
        })?;
        Ok(PartOfMemory {
            memory: self.clone(),
            access,
            part,
            claim,
        })
    }

    fn claim(&self, kind: Kind, len: u64) -> Result<Option<Claim>> {
        let account = self.account.as_ref();
        account
            .map(|account| account.claim(kind, len >> PAGE_SHIFT))
            .transpose()
    }
}

/// A part of such memory, for one window.
pub(crate) struct PartOfMemory {
    memory: Arc<PinnedMemory>,
    access: Access,
    part: Share<PartKey, Part>,
    claim: Option<Claim>,
}

impl PartOfMemory {
    pub(crate) fn pages(&self) -> &Arc<Pages> {
        &self.part.pages
    }

    /// As the local side of transfers.
    pub(super) fn local(&self) -> LocalMemory {
        LocalMemory::shared(self.part.pages.clone(), self.part.mappings.clone())
    }

    /// Makes the peer reach it, if it does not: see [`Inbound::export`](crate::transport::inbound::Inbound::export).
    /// Interruptible, while others do so, or the last window of it goes. May sleep.
    pub(super) fn export(self, peer: &Arc<Peer>) -> Result<Exported> {
        let key = ptr::from_ref(&**peer).addr();
        let way = {
            let _making = self.memory.making.lock()?;
            match self.part.exports.join(key) {
                Some(export) => Way::Shared(export),
                None => self.make_export(peer, key)?,
            }
        };
        Ok(Exported {
            way,
            _part: Some(self.part),
            _claim: self.claim,
        })
    }

    fn make_export(&self, peer: &Arc<Peer>, key: ExportKey) -> Result<Way> {
        // The last window may have gone just now, and have a place of which there need not be two.
        self.part.exports.wait_for_gone()?;
        let export = peer.path().export(&self.part.pages, self.access)?;
        if !export.is_reached() {
            // For the next one there may be room.
            return Ok(Way::Own(export));
        }
        let shared = self.part.exports.join_or_make(key, || {
            Ok(PeerExport {
                export,
                _peer: peer.clone(),
            })
        });
        shared.map(Way::Shared)
    }
}

/// How the peer reaches the memory of a window, until this is dropped.
pub(super) struct Exported {
    way: Way,
    // After what the peer reaches of it.
    _part: Option<Share<PartKey, Part>>,
    _claim: Option<Claim>,
}

enum Way {
    Own(Export),
    Shared(Share<ExportKey, PeerExport>),
}

impl Exported {
    /// That of one window only.
    pub(super) fn own(export: Export) -> Self {
        Self {
            way: Way::Own(export),
            _part: None,
            _claim: None,
        }
    }
}

impl Deref for Exported {
    type Target = Export;

    fn deref(&self) -> &Export {
        match &self.way {
            Way::Own(export) => export,
            Way::Shared(shared) => &shared.export,
        }
    }
}
